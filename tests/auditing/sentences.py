"""What is told of lengths, tables, files, GGUF and weights: a case of every finding, for the tests of all rows."""

from auditing.module_sentences import MODULES

C = "config.json:"

LENGTHS = [
    (
        "set-beyond-context",
        {f"{C}pretrained_config.max_position_embeddings": 2048, f"{C}build_config.max_input_len": 2048,
         f"{C}build_config.max_output_len": 512, "length": 2560, "context": 2048, "stops": False, "kind": "learned",
         "then": "TensorRT-LLM builds an engine that takes texts of that length"},
        "error",
        "build_config.max_input_len is 2,048 and build_config.max_output_len is 512, together 2,560, but"
        " pretrained_config.max_position_embeddings, the context length, is 2,048: TensorRT-LLM builds an engine that"
        " takes texts of that length. The learned table has no rows for later positions.",
    ),
    (
        "set-beyond-context",
        {"recipe.yaml:tokenizer.max_seq_len": 16384, "length": 16384, "context": 8192, "stops": False,
         "then": "it goes on"},
        "warning",
        "tokenizer.max_seq_len is 16,384, but the context length is 8,192: it goes on.",
    ),
    (
        "lengths-differ",
        {"context": 8192, "other": 131072, f"{C}max_position_embeddings": 8192, f"{C}model_max_length": 131072,
         "leaves": "context"},
        "warning",
        "Two declared lengths differ: max_position_embeddings is 8,192 but model_max_length is 131,072; runtimes that"
        " use the longer length exceed the declared context length of 8,192.",
    ),
    (
        "lengths-differ",
        {"context": 512, "other": 1024, f"{C}max_position_embeddings": 512,
         "tokenizer_config.json:model_max_length": 1024, "leaves": "table"},
        "warning",
        "Two declared lengths differ: config.json:max_position_embeddings is 512 but"
        " tokenizer_config.json:model_max_length is 1,024; runtimes that use the longer length read past the end of"
        " the table of 512 positions.",
    ),
    (
        "lengths-differ",
        {"context": 8192, "other": 131072, f"{C}max_position_embeddings": 8192, f"{C}model_max_length": 131072,
         "leaves": "context", "because": "the family is published so"},
        "note",
        "Two declared lengths differ: max_position_embeddings is 8,192 but model_max_length is 131,072; runtimes that"
        " use the longer length exceed the declared context length of 8,192. The difference is expected: the family"
        " is published so.",
    ),
    (
        "lengths-differ",
        {"context": 8192, "other": 2048, f"{C}max_position_embeddings": 8192, f"{C}seq_length": 2048},
        "note",
        "Two declared lengths differ: max_position_embeddings is 8,192 but seq_length is 2,048; runtimes that use the"
        " shorter length cut inputs after 2,048 of 8,192 positions.",
    ),
    (
        "base-below-bound",
        {"first failing distance": 1707, "reach": 4096, "scaled": False, f"{C}rope_theta": 1e4},
        "note",
        "The base is low for the context length: at distance 1,707 (a query can attend to 4,096 positions), the sum"
        " of cos(distance x RoPE frequency) over all pairs is below 0. At this distance, a query scores a matching"
        " token below a random token (Men et al. 2024).",
    ),
    (
        "base-below-bound",
        {"first failing distance": 85133, "reach": 131072, "scaled": True, f"{C}rope_theta": 5e5},
        "note",
        "The base, with its scaling, is low for the context length: at distance 85,133 (a query can attend to 131,072"
        " positions), the sum of cos(distance x RoPE frequency) over all pairs is below 0. At this distance, a query"
        " scores a matching token below a random token (Men et al. 2024).",
    ),
    (
        "padding-offset",
        {"rows": 514, "offset": 2, "usable": 512},
        "note",
        "Position 0 is row 2 of the position table: 2 of the 514 rows belong to no position, and 512 rows belong to"
        " positions.",
    ),
    (
        "padding-offset",
        {"rows": 1025, "offset": 1, "usable": 1024, "part": "decoder"},
        "note",
        "Position 0 is row 1 of the position table of the decoder: 1 of the 1,025 rows belongs to no position, and"
        " 1,024 rows belong to positions.",
    ),
    (
        "colliding-positions",
        {"dtype": "bfloat16", "first": 257, "context": 8192, f"{C}torch_dtype": "bfloat16"},
        "note",
        "The checkpoint is in bfloat16, which cannot represent position 257 and many later positions, up to the"
        " context length of 8,192. The dtype is harmless unless a runtime casts positions or phases to bfloat16.",
    ),
]  # fmt: skip

G = "model.gguf:"

GGUF = [
    (
        "rope-freqs-missing",
        {"context": 131072, "reach": 8192, "release": "Llama 3.1",
         "scaling": "llama3 scaling with factor 8 and original length 8,192",
         "architecture": "llama", "base": 500000.0, f"{G}llama.rope.freq_base": 500000.0},
        "warning",
        "The file lacks the tensor rope_freqs.weight, which would hold the RoPE scaling of this model. The file has"
        " the architecture llama, base 500,000 and context length 131,072, like Llama 3.1, which has llama3 scaling"
        " with factor 8 and original length 8,192. Without the scaling, the RoPE frequencies of the slow pairs are"
        " too high, and the output degrades past about 8,192 positions.",
    ),
    (
        "rope-freqs-differ",
        {"first": 1.0, "last": 8.0, "largest": 64.5, "pairs": 64, "because": "no formula",
         f"{G}rope_freqs.weight": "64 numbers"},
        "warning",
        "The 64 numbers of rope_freqs.weight, which divide the RoPE frequencies, are neither those of a llama3"
        " scaling nor a LongRoPE list: the first is 1, the last is 8 and the largest is 64.5.",
    ),
    (
        "rope-freqs-differ",
        {"first": 1.0, "last": 32.0, "largest": 32.0, "pairs": 32, "because": "another base", "base": 10000.0,
         "fitting base": 500000.0, f"{G}rope_freqs.weight": "32 numbers"},
        "warning",
        "The 32 numbers of rope_freqs.weight, which divide the RoPE frequencies, are those of a llama3 scaling with"
        " base 500,000, but runtimes use base 10,000. Every RoPE frequency but the first is wrong.",
    ),
    (
        "rope-freqs-differ",
        {"first": 1.0, "last": 1.0, "largest": 1.0, "pairs": 64, "because": "all are 1", "release": "Llama 3.1",
         "scaling": "llama3 scaling with factor 8 and original length 8,192", f"{G}rope_freqs.weight": "64 numbers"},
        "warning",
        "The 64 numbers of rope_freqs.weight, which divide the RoPE frequencies, are all 1, so nothing is scaled. But"
        " Llama 3.1, which has the same base and context length, has llama3 scaling with factor 8 and original length"
        " 8,192.",
    ),
    (
        "rope-freqs-differ",
        {"first": 1.0, "last": 8.0, "largest": 8.0, "pairs": 64, "because": "applied twice",
         f"{G}rope_freqs.weight": "64 numbers", f"{G}llama.rope.scaling.factor": 8.0},
        "warning",
        "The 64 numbers of rope_freqs.weight, which divide the RoPE frequencies, go up to 8, and"
        " llama.rope.scaling.factor is 8 as well. Runtimes apply both scalings, so the RoPE frequencies of the slow"
        " pairs are too low.",
    ),
    (
        "longrope-factors-missing",
        {"missing": ["rope_factors_long.weight"], "architecture": "phi3", f"{G}phi3.rope.scaling.attn_factor": 1.19},
        "warning",
        "phi3.rope.scaling.attn_factor is 1.19, as in a model extended with LongRoPE, but rope_factors_long.weight is"
        " missing. Runtimes leave the RoPE frequencies unscaled, and the model fails past its original length.",
    ),
    (
        "dimension-count",
        {"declared": 64, "width": 64, "architecture": "persimmon", "expected": 32,
         f"{G}persimmon.rope.dimension_count": 64},
        "warning",
        "persimmon.rope.dimension_count is 64, but releases of this architecture rotate 32 of the 64 dimensions of a"
        " head.",
    ),
    (
        "dimension-count",
        {"declared": None, "width": 80, "architecture": "stablelm", "expected": 20, "file": "model.gguf"},
        "warning",
        "stablelm.rope.dimension_count is missing, so runtimes rotate all 80 dimensions of a head, but releases of"
        " this architecture rotate 20 of these dimensions.",
    ),
]  # fmt: skip

W = "model.safetensors:"
INV_FREQ = {f"{W}layers.0.inv_freq": "64 numbers in float32"}

# What the numbers of a stored tensor are is told in the words that the same numbers of a loaded model are told in.
_CAUSES = (
    "uninitialised", "zero", "unscaled", "scaled-twice", "reread", "of-another-factor", "of-another-base",
    "of-another-scaling", "rounded",
)  # fmt: skip
_HELD_AND_STORED = [
    (
        f"stored-frequencies-{cause}",
        {name.replace("model:", W): value for name, value in evidence.items()},
        "warning",
        message.replace("rotary_emb.inv_freq", f"{W}rotary_emb.inv_freq"),
    )
    for cause in _CAUSES
    for code, evidence, _, message in MODULES
    if code == f"buffer-{cause}" and "what" not in evidence
]

STORED = [
    *_HELD_AND_STORED,
    (
        "stored-frequencies-rounded",
        INV_FREQ
        | {"tensors": 1, "pair": 3, "stored": 0.5005, "declared": 0.5, "rounded to": "float16", "loaded": "no"},
        "note",
        "The RoPE frequencies in model.safetensors:layers.0.inv_freq are the values of the config, rounded to"
        " float16: pair 3 has 0.5005 rad per token, but the config gives 0.5.",
    ),
    (
        "stored-frequencies",
        INV_FREQ | {"tensors": 32},
        "note",
        "The checkpoint stores the RoPE frequencies (model.safetensors:layers.0.inv_freq and 31 more tensors). Recent"
        " runtimes ignore these tensors and compute the frequencies from the config.",
    ),
    (
        "stored-frequencies-differ",
        INV_FREQ | {"tensors": 1, "pair": 3, "stored": 0.0, "declared": 0.5},
        "warning",
        "The checkpoint stores RoPE frequencies (model.safetensors:layers.0.inv_freq) that differ from the config:"
        " pair 3 has 0 rad per token in the checkpoint, but the config gives 0.5.",
    ),
    (
        "stored-frequencies-differ",
        INV_FREQ | {"tensors": 1, "pairs": 32, "declared pairs": 64},
        "warning",
        "The checkpoint stores RoPE frequencies (model.safetensors:layers.0.inv_freq) that differ from the config: the"
        " tensor has 32 numbers, but there are 64 RoPE pairs.",
    ),
    (
        "low-precision",
        INV_FREQ | {"tensors": 1, "rates": True, "dtype": "bfloat16", "error": 0.0039, "phase error": 4.2},
        "warning",
        "The RoPE frequencies in the checkpoint (model.safetensors:layers.0.inv_freq) are rounded to bfloat16. The"
        " relative error of the frequencies is up to 0.0039, which gives a phase error of 4.2 rad at the end of the"
        " context.",
    ),
    (
        "float-position-ids",
        {f"{W}position_ids": [1, 77], "dtype": "float32", "count": 77, "wrong": 1, "first wrong": 76, "stored": 75.9},
        "warning",
        "The 77 position ids (model.safetensors:position_ids) are stored in float32 and 1 of them is wrong: the id of"
        " position 76 is 75.9. A runtime that loads these ids reads wrong rows of the table.",
    ),
    (
        "float-position-ids",
        {f"{W}position_ids": [1, 77], "dtype": "float32", "count": 77},
        "warning",
        "The position ids (model.safetensors:position_ids) are stored in float32. The ids are still whole numbers,"
        " but the next cast or merge of the checkpoint rounds the ids.",
    ),
]  # fmt: skip

# fmt: off
PAIRS = {
    "layout in the weights": "interleaved", "z": 311.0, "z of the other": 2.0, "layers looked at": 30,
    "layout of readers": "halves", "because": "architecture of llama (transformers 5.23.0)",
}
# fmt: on

WEIGHTS = [
    (
        "pairing-against-format",
        {**PAIRS, "confidence": 0.99},
        "warning",
        "The weights of 30 layers have the layout interleaved (neighbouring rows form a pair; z score 311 against 2.0"
        " for the other layout, confidence 0.99). But runtimes use the layout halves (rows half a head apart form a"
        " pair) for this file, according to the architecture of llama (transformers 5.23.0).",
    ),
    (
        "pairing-against-format",
        {**PAIRS, "projection": "keys", "queries": "halves", "z": 86.3, "z of the other": -1.7},
        "warning",
        "The keys have the layout interleaved (neighbouring rows form a pair; z score 86.3 against -1.7 for the other"
        " layout), and the queries have the layout halves. But runtimes use the layout halves (rows half a head apart"
        " form a pair) for this file, according to the architecture of llama (transformers 5.23.0).",
    ),
    (
        "pairing-against-format",
        {**PAIRS, "layers that pair so": 2, "other layers": "halves", "because": f"{C}rope_interleave"},
        "warning",
        "2 of 30 layers have the layout interleaved (neighbouring rows form a pair; highest z score 311 against 2.0"
        " for the other layout), and the other layers have the layout halves. But runtimes use the layout halves"
        " (rows half a head apart form a pair) for this file, according to config.json:rope_interleave.",
    ),
    (
        "permuted-heads",
        {
            "projection": "keys", "heads": 2, "put in order for heads": 8, "or for heads": [4],
            "layout once undone": "halves", "z once undone": 9.7, "z as they stand": 5.4,
        },
        "warning",
        "The rows of the key weights are in the order for 8 or 4 heads, but the model has 2 key heads. If this order"
        " is undone, the rows have the layout halves (rows half a head apart form a pair; z score 9.7); in the stored"
        " order, no layout fits as well (z score at most 5.4).",
    ),
    (
        "permuted-heads",
        {
            "projection": "queries", "heads": 1024, "put in order for heads": 1, "or for heads": [],
            "layout once undone": "interleaved", "z once undone": 3110.0, "z as they stand": 0.0,
        },
        "warning",
        "The rows of the query weights are in the order for 1 head, but the model has 1,024 query heads. If this"
        " order is undone, the rows have the layout interleaved (neighbouring rows form a pair; z score 3,110); in"
        " the stored order, no layout fits as well (z score at most 0.0).",
    ),
]  # fmt: skip

FILES = [
    (
        "files-disagree",
        {"what": "base", f"{C}rope_theta": 1e6, "params.json:rope_theta": 1e4},
        "warning",
        "Two files contradict each other about the base: config.json:rope_theta is 1,000,000 but"
        " params.json:rope_theta is 10,000; runtimes that read different files build different models.",
    ),
    (
        "files-disagree",
        {"what": "scaling", "ratio": 8.0, "lost": True, f"{C}rope_scaling.rope_type": "llama3",
         "model.gguf:scaling": None},
        "warning",
        'Two files contradict each other about the scaling: config.json:rope_scaling.rope_type is "llama3" but'
        ' model.gguf:scaling is null. The RoPE frequencies differ by a factor of up to 8; one of the two files lost'
        ' the scaling and gives wrong RoPE frequencies for the slow pairs.',
    ),
    (
        "files-disagree",
        {"what": "attention factor", "here": 1.0, "there": 1.41589, f"{C}rope_parameters.mscale": 1.0,
         "params.json:yarn.apply_scale": True},
        "warning",
        "Two files contradict each other about the attention factor: config.json:rope_parameters.mscale is 1 but"
        " params.json:yarn.apply_scale is true. By the config, cosine and sine are multiplied by 1; by params.json,"
        " cosine and sine are multiplied by 1.41589.",
    ),
]  # fmt: skip

HEADS = [
    (
        "head-width",
        {"tensor": "model.layers.0.self_attn.q_proj.weight", "rows": 4096, "heads": 32, "width": 256,
         "width in the weights": 128, f"{C}head_dim": 256},
        "warning",
        "The query weights have 4,096 rows: 32 heads of width 128. But a head width of 256 is declared. With a head"
        " width of 256, the RoPE frequencies are wrong, and runtimes split the rows into the wrong heads.",
    ),
    (
        "head-width",
        {"tensor": "blk.0.attn_q.weight", "rows": 2048, "heads": 8, "width": 288, "width in the weights": 256,
         "width from": "model.gguf:gemma2.embedding_length / model.gguf:gemma2.attention.head_count"},
        "warning",
        "The query weights have 2,048 rows: 8 heads of width 256. But a head width of 288 follows from the declared"
        " values (model.gguf:gemma2.embedding_length / model.gguf:gemma2.attention.head_count). With a head width of"
        " 288, the RoPE frequencies are wrong, and runtimes split the rows into the wrong heads.",
    ),
]  # fmt: skip

SENTENCES = [*LENGTHS, *GGUF, *STORED, *WEIGHTS, *FILES, *HEADS]
