"""What is told of loaded modules: a case of every finding about what one holds."""

M = "model:rotary_emb.inv_freq"
_HELD = {M: "8 numbers in float32", "tensors": 1}
_OFF = {"pair": 5, "stored": 0.000274248, "declared": 3.4281e-05}
_TABLE = {"model:layers.0.attn.cos_cached": "[64, 8] in float32", "tensors": 3, "what": "cosines and sines"}
_AT = {"pair": 1, "position": 63, "wave": "cosine", "stored": 0.5, "declared": 0.25}

MODULES = [
    (
        "buffer-uninitialised",
        {**_HELD, "tensors": 2, "pair": 0, "stored": float("nan"), "declared": 1.0, "wrong": 8, "pairs": 8},
        "error",
        "The rates in rotary_emb.inv_freq and 1 more like it were never filled: 8 of 8 pairs hold what nothing"
        " computes, such as what the memory held before: pair 0 turns by NaN rad a token, where the config says 1.",
    ),
    (
        "buffer-uninitialised",
        {**_HELD, "pair": 0, "stored": 6.93e-18, "declared": 1.0, "wrong": 1, "pairs": 8},
        "error",
        "The rates in rotary_emb.inv_freq were never filled, or not all of them: 1 of 8 pairs hold what nothing"
        " computes, such as what the memory held before: pair 0 turns by 6.93e-18 rad a token, where the config"
        " says 1.",
    ),
    (
        "buffer-uninitialised",
        {**_TABLE, **_AT, "stored": 3e20, "wrong": 60, "pairs": 64, "of": "rows"},
        "error",
        "The cosines and sines in layers.0.attn.cos_cached and 2 more like it were never filled, or not all of them: 60"
        " of 64 rows hold what nothing computes, such as what the memory held before: the cosine of pair 1 at position"
        " 63 is 3e+20, where the config says 0.25.",
    ),
    (
        "buffer-uninitialised",
        {"model:embeddings.position_ids": [1, 64], "what": "numbers of positions", "of": "numbers", "wrong": 64,
         "pairs": 64},
        "error",
        "The numbers of positions in embeddings.position_ids were never filled: 64 of 64 numbers hold what nothing"
        " computes, such as what the memory held before.",
    ),
    (
        "buffer-zero",
        {**_HELD, "pairs": 8},
        "error",
        "The rates in rotary_emb.inv_freq are all zero: nothing turns, and no position can be told from another.",
    ),
    (
        "buffer-unscaled",
        {**_HELD, **_OFF, "effective factor": 1.0, "declared factor": 8.0, "base": 500000.0},
        "error",
        "The rates in rotary_emb.inv_freq are those of base 500,000 without the scaling that the config declares (pair"
        " 5 turns by 0.000274248 rad a token, where the config says 3.4281e-05). The factor in effect is 1, the"
        " declared one 8.",
    ),
    (
        "buffer-scaled-twice",
        {**_HELD, **_OFF, "effective factor": 64.0, "declared factor": 8.0, "rounded to": "bfloat16"},
        "error",
        "The rates in rotary_emb.inv_freq are scaled twice (pair 5 turns by 0.000274248 rad a token, where the config"
        " says 3.4281e-05). The slowest pair is slowed by 64, where 8 is declared. They are rounded to bfloat16 as"
        " well.",
    ),
    (
        "buffer-of-another-factor",
        {**_HELD, **_OFF, "effective factor": 4.0, "declared factor": 8.0},
        "error",
        "The rates in rotary_emb.inv_freq are scaled by 4, where the config declares 8 (pair 5 turns by 0.000274248 rad"
        " a token, where the config says 3.4281e-05).",
    ),
    (
        "buffer-of-another-base",
        {**_HELD, **_OFF, "base in effect": 10000.0, "declared base": 1000000.0},
        "error",
        "The rates in rotary_emb.inv_freq are those of base 10,000, where the config declares 1,000,000 (pair 5 turns"
        " by 0.000274248 rad a token, where the config says 3.4281e-05).",
    ),
    (
        "buffer-of-another-base",
        {**_HELD, **_OFF, "base in effect": 10000.0, "declared base": 500000.0, "scaling dropped": True},
        "error",
        "The rates in rotary_emb.inv_freq are those of base 10,000, without the declared scaling, where the config"
        " declares 500,000 (pair 5 turns by 0.000274248 rad a token, where the config says 3.4281e-05).",
    ),
    (
        "buffer-of-another-base",
        {**_HELD, **_OFF, "base in effect": 10000.0, "declared base": 500000.0, "scaled twice": True},
        "error",
        "The rates in rotary_emb.inv_freq are those of base 10,000, scaled twice, where the config declares 500,000"
        " (pair 5 turns by 0.000274248 rad a token, where the config says 3.4281e-05).",
    ),
    (
        "buffer-of-another-scaling",
        {**_HELD, **_OFF, "scaling in effect": "Linear", "effective factor": 8.0, "declared factor": 8.0,
         "declared scaling": "Llama3"},
        "error",
        "The rates in rotary_emb.inv_freq have the scaling Linear by 8, where the config declares Llama3 (pair 5 turns"
        " by 0.000274248 rad a token, where the config says 3.4281e-05).",
    ),
    (
        "buffer-of-another-width",
        {**_HELD, "pairs": 4, "declared pairs": 8, "it is": "rotary, halves, 8 of 8 channels"},
        "error",
        "The rates in rotary_emb.inv_freq are for 4 pairs, where the config declares 8. What it holds is rotary,"
        " halves, 8 of 8 channels.",
    ),
    (
        "shared-object-mutated",
        {**_HELD, "tensors": 3, "pairs": 4, "declared pairs": 8, "pairs by layer": {"0": 8, "1": 4, "2": 2}},
        "error",
        "The rates in rotary_emb.inv_freq and 2 more like it become fewer with depth (8 in layer 0, 4 in layer 1, 2 in"
        " layer 2 pairs), where the config declares 8 in all: each layer has changed an object that they share.",
    ),
    (
        "buffer-differs",
        {**_HELD, **_OFF},
        "error",
        "The rates in rotary_emb.inv_freq are not what the config declares: pair 5 turns by 0.000274248 rad a token,"
        " where the config says 3.4281e-05.",
    ),
    (
        "buffer-on-meta",
        {**_HELD},
        "error",
        "The rates in rotary_emb.inv_freq have a shape and no numbers (they are on the meta device), while the rest of"
        " the model has been loaded: whatever stands in for them is not what the config declares.",
    ),
    (
        "slopes-differ",
        {"model:layers.0.slopes": "8 numbers in float32", "tensors": 2, "what": "slopes", "head": 0, "stored": 1.0,
         "declared": 0.5, "it is": "a series that begins at 1"},
        "error",
        "The slopes in layers.0.slopes and 1 more like it are not those of so many heads: that of head 0 is 1, where"
        " 0.5 is right. They are a series that begins at 1.",
    ),
    (
        "buffer-rounded",
        {"model:layers.0.slopes": "12 numbers in bfloat16", "tensors": 1, "what": "slopes", "head": 1, "stored": 0.34,
         "declared": 0.35, "rounded to": "bfloat16"},
        "warning",
        "The slopes in layers.0.slopes are the declared ones rounded to bfloat16: that of head 1 is 0.34, where 0.35 is"
        " right.",
    ),
    (
        "attention-factor-differs",
        {"model:rotary_emb.attention_scaling": 1.0, "declared": 1.3465735902799727},
        "error",
        "Cosine and sine are multiplied by 1 (rotary_emb.attention_scaling), where 1.34657 follows from the config.",
    ),
    (
        "ids-of-floats",
        {"model:embeddings.position_ids": [1, 77], "dtype": "float16", "count": 77},
        "error",
        "The numbers of positions in embeddings.position_ids are held as float16, where rows are found by whole"
        " numbers: the next cast rounds them.",
    ),
    (
        "ids-of-floats",
        {"model:embeddings.position_ids": [1, 77], "dtype": "float32", "count": 77, "wrong": 1, "first wrong": 76,
         "stored": 75.9},
        "error",
        "The 77 numbers of positions in embeddings.position_ids are held as float32, and 1 of them is wrong: position"
        " 76 is 75.9.",
    ),
    (
        "table-uninitialised",
        {"model:wpe.weight": [128, 64], "least": 1e-40, "most": 3e30},
        "error",
        "The table of positions in wpe.weight was never filled: its numbers go from 1e-40 to 3e+30 in size, as those of"
        " no table do that is random or trained.",
    ),
    (
        "rotation-differs",
        {"module": "rotary_emb", **_AT, "behaves as": "one whose phases were rounded to bfloat16"},
        "error",
        "What rotary_emb turns by is not what the config declares: the cosine of pair 1 at position 63 is 0.5, where"
        " the config says 0.25. It behaves as one whose phases were rounded to bfloat16.",
    ),
    (
        "scaling-inert",
        {**_HELD, "declared factor": 4.0, "scaling": "linear", "built as": "default"},
        "warning",
        "The config declares a linear scaling by 4, but rotary_emb was built without one (it says of itself that it is"
        ' "default"): a config that is changed after the model is made changes no number in it.',
    ),
    (
        "buffer-rounded",
        {**_HELD, "pair": 1, "stored": 0.07958984375, "declared": 0.079403, "rounded to": "bfloat16",
         "phase error": 0.0957, "context": 512},
        "warning",
        "The rates in rotary_emb.inv_freq are the declared ones rounded to bfloat16: pair 1 turns by 0.0795898 rad a"
        " token, where the config says 0.079403; phases are off by up to 0.096 rad at the end of the context of 512.",
    ),
    (
        "buffer-of-another-dtype",
        {**_TABLE, "dtype": "bfloat16", "right": "float32", "error": 2.0**-8},
        "warning",
        "The cosines and sines in layers.0.attn.cos_cached and 2 more like it are held in bfloat16, while the model"
        " computes in float32: they were made for another type and kept, and are off by up to 0.0039.",
    ),
    (
        "buffer-of-another-dtype",
        {**_HELD, "dtype": "bfloat16", "right": "float32", "exact": True},
        "note",
        "The rates in rotary_emb.inv_freq are held in bfloat16, where float32 is usual; none of these happens to be"
        " rounded.",
    ),
    (
        "table-zero",
        {"model:embeddings.position_embeddings": [1, 17, 64], "rows": 17, "width": 64},
        "note",
        "All 17 rows of embeddings.position_embeddings are zero, and can be trained: so does training of image models"
        " begin.",
    ),
    (
        "buffer-persistent",
        {**_HELD},
        "note",
        "The rates in rotary_emb.inv_freq are written with the weights, although they are computed: a loader may keep"
        " stale ones.",
    ),
]  # fmt: skip
