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
        "The RoPE frequencies in rotary_emb.inv_freq and 1 similar tensor are uninitialised: 8 of 8 pairs hold values"
        " that no formula gives, such as earlier memory contents (pair 0 has NaN rad per token, but the config gives"
        " 1).",
    ),
    (
        "buffer-uninitialised",
        {**_HELD, "pair": 0, "stored": 6.93e-18, "declared": 1.0, "wrong": 1, "pairs": 8},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are uninitialised, at least in part: 1 of 8 pairs hold values"
        " that no formula gives, such as earlier memory contents (pair 0 has 6.93e-18 rad per token, but the config"
        " gives 1).",
    ),
    (
        "buffer-uninitialised",
        {**_TABLE, **_AT, "stored": 3e20, "wrong": 60, "pairs": 64, "of": "rows"},
        "error",
        "The cosines and sines in layers.0.attn.cos_cached and 2 similar tensors are uninitialised, at least in part:"
        " 60 of 64 rows hold values that no formula gives, such as earlier memory contents (the cosine of pair 1 at"
        " position 63 is 3e+20, but the config gives 0.25).",
    ),
    (
        "buffer-uninitialised",
        {"model:embeddings.position_ids": [1, 64], "what": "numbers of positions", "of": "numbers", "wrong": 64,
         "pairs": 64},
        "error",
        "The position ids in embeddings.position_ids are uninitialised: 64 of 64 numbers hold values that no formula"
        " gives, such as earlier memory contents.",
    ),
    (
        "buffer-zero",
        {**_HELD, "pairs": 8},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are all zero: nothing rotates, and the model cannot distinguish"
        " positions.",
    ),
    (
        "buffer-unscaled",
        {**_HELD, **_OFF, "effective factor": 1.0, "declared factor": 8.0, "base": 500000.0},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are those of base 500,000 without the declared scaling (pair 5"
        " has 0.000274248 rad per token, but the config gives 3.4281e-05). The config declares a scaling factor of 8.",
    ),
    (
        "buffer-scaled-twice",
        {**_HELD, **_OFF, "effective factor": 64.0, "declared factor": 8.0, "rounded to": "bfloat16"},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are scaled twice (pair 5 has 0.000274248 rad per token, but the"
        " config gives 3.4281e-05). The slowest pair has a scaling factor of 64, but the config declares 8. The"
        " values are also rounded to bfloat16.",
    ),
    (
        "buffer-reread",
        {**_HELD, "bytes of": "float32", "read as": "bfloat16", "pairs": 128},
        "error",
        "The bytes of the RoPE frequencies in rotary_emb.inv_freq were read as bfloat16. If the bytes are read as"
        " float32, the frequencies are those of the config.",
    ),
    (
        "buffer-of-another-factor",
        {**_HELD, **_OFF, "effective factor": 4.0, "declared factor": 8.0},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are scaled by a factor of 4, but the config declares a factor of"
        " 8 (pair 5 has 0.000274248 rad per token, but the config gives 3.4281e-05).",
    ),
    (
        "buffer-of-another-base",
        {**_HELD, **_OFF, "base in effect": 10000.0, "declared base": 1000000.0},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are those of base 10,000, but the config declares base 1,000,000"
        " (pair 5 has 0.000274248 rad per token, but the config gives 3.4281e-05).",
    ),
    (
        "buffer-of-another-base",
        {**_HELD, **_OFF, "base in effect": 10000.0, "declared base": 500000.0, "scaling dropped": True},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are those of base 10,000, but the config declares base 500,000"
        " (pair 5 has 0.000274248 rad per token, but the config gives 3.4281e-05). Also, the declared scaling is"
        " missing.",
    ),
    (
        "buffer-of-another-base",
        {**_HELD, **_OFF, "base in effect": 10000.0, "declared base": 500000.0, "scaled twice": True},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are those of base 10,000, but the config declares base 500,000"
        " (pair 5 has 0.000274248 rad per token, but the config gives 3.4281e-05). Also, the frequencies are scaled"
        " twice.",
    ),
    (
        "buffer-of-another-scaling",
        {**_HELD, **_OFF, "scaling in effect": "Linear", "effective factor": 8.0, "declared factor": 8.0,
         "declared scaling": "Llama3"},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq have Linear scaling with factor 8, but the config declares Llama3"
        " scaling (pair 5 has 0.000274248 rad per token, but the config gives 3.4281e-05).",
    ),
    (
        "buffer-of-another-width",
        {**_HELD, "pairs": 4, "declared pairs": 8, "it is": "RoPE, half-split, 8 of 8 dimensions"},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq are for 4 pairs, but the config declares 8 pairs. The buffer"
        " holds RoPE, half-split, 8 of 8 dimensions.",
    ),
    (
        "shared-object-mutated",
        {**_HELD, "tensors": 3, "pairs": 4, "declared pairs": 8, "pairs by layer": {"0": 8, "1": 4, "2": 2}},
        "error",
        "The number of RoPE frequencies in rotary_emb.inv_freq and 2 similar tensors falls from layer to layer: 8 in"
        " layer 0, 4 in layer 1, 2 in layer 2. The config declares 8 for every layer. All layers share one settings"
        " object, and each layer changed this object.",
    ),
    (
        "buffer-differs",
        {**_HELD, **_OFF},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq differ from the config: pair 5 has 0.000274248 rad per token, but"
        " the config gives 3.4281e-05.",
    ),
    (
        "buffer-on-meta",
        {**_HELD},
        "error",
        "The RoPE frequencies in rotary_emb.inv_freq have a shape but no data (meta device), although the rest of the"
        " model is loaded. If other code fills this memory, the values are not those of the config.",
    ),
    (
        "slopes-differ",
        {"model:layers.0.slopes": "8 numbers in float32", "tensors": 2, "what": "slopes", "head": 0, "stored": 1.0,
         "declared": 0.5, "it is": "a series that begins at 1"},
        "error",
        "The slopes in layers.0.slopes and 1 similar tensor do not match the number of heads: the slope of head 0 is"
        " 1, expected 0.5. The slopes are a series that begins at 1.",
    ),
    (
        "buffer-rounded",
        {"model:layers.0.slopes": "12 numbers in bfloat16", "tensors": 1, "what": "slopes", "head": 1, "stored": 0.34,
         "declared": 0.35, "rounded to": "bfloat16"},
        "warning",
        "The slopes in layers.0.slopes are the values of the config, rounded to bfloat16: the slope of head 1 is"
        " 0.34, expected 0.35.",
    ),
    (
        "attention-factor-differs",
        {"model:rotary_emb.attention_scaling": 1.0, "declared": 1.3465735902799727},
        "error",
        "The module multiplies cosine and sine by 1 (rotary_emb.attention_scaling), but the attention factor of the"
        " config is 1.34657.",
    ),
    (
        "ids-of-floats",
        {"model:embeddings.position_ids": [1, 77], "dtype": "float16", "count": 77},
        "error",
        "The position ids in embeddings.position_ids are stored as float16 instead of integers. The ids are still"
        " whole numbers, but the next cast of the model rounds the ids.",
    ),
    (
        "ids-of-floats",
        {"model:embeddings.position_ids": [1, 77], "dtype": "float32", "count": 77, "wrong": 1, "first wrong": 76,
         "stored": 75.9},
        "error",
        "The 77 position ids in embeddings.position_ids are stored as float32, and 1 of them is wrong: the id of"
        " position 76 is 75.9.",
    ),
    (
        "table-uninitialised",
        {"model:wpe.weight": [128, 64], "least": 1e-40, "most": 3e30},
        "error",
        "The position table in wpe.weight is uninitialised: the magnitudes of its numbers go from 1e-40 to 3e+30,"
        " which is impossible in a trained or random table.",
    ),
    (
        "rotation-differs",
        {"module": "rotary_emb", **_AT, "behaves as": "one whose phases were rounded to bfloat16"},
        "error",
        "The rotation in rotary_emb differs from the config: the cosine of pair 1 at position 63 is 0.5, but the"
        " config gives 0.25. The module behaves like one whose phases were rounded to bfloat16.",
    ),
    (
        "scaling-inert",
        {**_HELD, "declared factor": 4.0, "scaling": "linear", "built as": "default"},
        "warning",
        'The config declares linear scaling with factor 4, but rotary_emb was built without scaling (its type is'
        ' "default"). Changing the config after the model is built does not change the model.',
    ),
    (
        "buffer-rounded",
        {**_HELD, "pair": 1, "stored": 0.07958984375, "declared": 0.079403, "rounded to": "bfloat16",
         "phase error": 0.0957, "context": 512},
        "warning",
        "The RoPE frequencies in rotary_emb.inv_freq are the values of the config, rounded to bfloat16: pair 1 has"
        " 0.0795898 rad per token, but the config gives 0.079403; phases are off by up to 0.096 rad at the end of the"
        " context (512 positions).",
    ),
    (
        "buffer-of-another-dtype",
        {**_TABLE, "dtype": "bfloat16", "right": "float32", "error": 2.0**-8},
        "warning",
        "The cosines and sines in layers.0.attn.cos_cached and 2 similar tensors are in bfloat16, but the model"
        " computes in float32. The values were computed for a call in another dtype and kept for later calls, so the"
        " values are off by up to 0.0039.",
    ),
    (
        "buffer-of-another-dtype",
        {**_HELD, "dtype": "bfloat16", "right": "float32", "exact": True},
        "note",
        "The RoPE frequencies in rotary_emb.inv_freq are in bfloat16, but float32 is usual. The dtype has no effect"
        " here, because bfloat16 represents these values exactly.",
    ),
    (
        "table-zero",
        {"model:embeddings.position_embeddings": [1, 17, 64], "rows": 17, "width": 64},
        "note",
        "All 17 rows of embeddings.position_embeddings are zero and trainable. Image models often start training with"
        " a table of zeros.",
    ),
    (
        "buffer-persistent",
        {**_HELD},
        "note",
        "The RoPE frequencies in rotary_emb.inv_freq are saved with the weights, although they can be computed."
        " Loading a checkpoint may overwrite the buffer with wrong values.",
    ),
    (
        "run-differs",
        {"says": "The model differs from one pass in: cached. The cache restarts the count.", "experiments": "cached"},
        "error",
        "The model differs from one pass in: cached. The cache restarts the count.",
    ),
]  # fmt: skip
