"""Faults of GGUF files and weights in other models than those that they were reported in, and sound files nearby."""

import numpy as np

from auditing import published_fields as of
from auditing.faulty_containers import FACTORS, gguf, llama3_factors
from auditing.model_files import Gguf, audited, fired, of_code
from auditing.odd_looking_files import with_weights

SHORT, LONG = np.array(of.PHI3_SHORT, np.float32), np.array(of.PHI3_LONG, np.float32)
QUERIES = np.zeros((2048, 8), np.float32)
NO_WIDTH = {
    name: value for name, value in of.GGUF_GEMMA2_2B.items() if not name.endswith("_length") or "attention" not in name
}

FAULTY = {
    "no factors in Llama-3.2-1B": (gguf(of.GGUF_LLAMA_32_1B), "rope-freqs-missing"),
    "factors of 1": (gguf(of.GGUF_LLAMA, rope_freqs__weight=np.ones(64, np.float32)), "rope-freqs-differ"),
    "factors that multiply instead of divide": (
        gguf(of.GGUF_LLAMA, rope_freqs__weight=1 / FACTORS), "rope-freqs-differ",
    ),
    "factors of another base": (
        gguf(of.GGUF_LLAMA, rope_freqs__weight=llama3_factors(base=10000.0)), "rope-freqs-differ",
    ),
    "factors beside a scaling in keys": (
        gguf(of.GGUF_LLAMA | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0},
             rope_freqs__weight=FACTORS),
        "rope-freqs-differ",
    ),
    "half the channels of Llama": (
        gguf(of.GGUF_LLAMA | {"llama.rope.dimension_count": 64}, rope_freqs__weight=FACTORS[:32]), "dimension-count",
    ),
    "no lists in Phi-3": (gguf(of.GGUF_PHI3), "longrope-factors-missing"),
    "lists of Phi-3 swapped": (
        gguf(of.GGUF_PHI3, rope_factors_short__weight=LONG, rope_factors_long__weight=SHORT), "longrope-swapped",
    ),
    "no width of a head in Gemma 2": (gguf(NO_WIDTH, blk__0__attn_q__weight=QUERIES), "head-width"),
    "factors lost beside the config": (
        {"config.json": of.LLAMA_31, "model.gguf": Gguf(of.GGUF_LLAMA)}, "files-disagree",
    ),
    "the tokenizer's length past the context": (
        {"config.json": of.LLAMA_3, "tokenizer_config.json": {"model_max_length": 131072}}, "lengths-differ",
    ),
}  # fmt: skip

SOUND = {
    "a tokenizer of Qwen, which gives the length of the longest of the family": {
        "config.json": of.QWEN2, "tokenizer_config.json": {"model_max_length": 131072}
    },
    "Llama-3.2-1B": gguf(of.GGUF_LLAMA_32_1B, rope_freqs__weight=llama3_factors(32.0, 32)),
    "Llama 3 needs no factors": gguf(of.GGUF_LLAMA | {"llama.context_length": 8192}),
    "Phi-3": gguf(of.GGUF_PHI3, rope_factors_short__weight=SHORT, rope_factors_long__weight=LONG),
    "Gemma 2": gguf(of.GGUF_GEMMA2_2B, blk__0__attn_q__weight=QUERIES),
    "GPT-NeoX, whose files never hold the base": gguf(of.GGUF_GPT_NEOX),
    "as many gates as queries": gguf(of.GGUF_QWEN3_NEXT, blk__3__attn_q__weight=np.zeros((8192, 8), np.float32)),
    "a part of a model that is spread over eight devices": with_weights(
        of.LLAMA_3, layers__0__attention__wq__weight=np.zeros((512, 8), np.float16)
    ),
    "a tokenizer without a length": {
        "config.json": of.LLAMA_31, "tokenizer_config.json": {"model_max_length": 1000000000000000019884624838656},
    },
    "documents that say the same": {
        "config.json": of.QWEN2, "tokenizer_config.json": {"model_max_length": 32768},
        "generation_config.json": {"max_new_tokens": 512},
    },
    "projections of the declared heads": with_weights(
        of.LLAMA_3, model__layers__0__self_attn__q_proj__weight=np.zeros((4096, 8), np.float16)
    ),
    "projections of latent heads": with_weights(
        of.DEEPSEEK_V3, model__layers__0__self_attn__q_b_proj__weight=np.zeros((24576, 8), np.float16)
    ),
}  # fmt: skip


def test_a_fault_is_caught_in_another_model_too(cases, tmp_path):
    for number, (name, (model, code)) in enumerate(FAULTY.items()):
        with cases(name):
            found = audited(tmp_path / str(number), model)
            assert {finding.severity for finding in of_code(found, code)} == {"warning"}, fired(found)


def test_a_sound_model_near_it_does_not_fire(cases, tmp_path):
    for number, (name, model) in enumerate(SOUND.items()):
        with cases(name):
            assert fired(audited(tmp_path / str(number), model)) == []
