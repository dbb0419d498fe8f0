"""Faults of GGUF files and weights in other models than those that they were reported in, and sound files nearby."""

import numpy as np
import pytest

from auditing.faulty_containers import FACTORS, LLAMA, gguf, keys, llama3_factors
from auditing.model_files import Gguf, audited, fired, of_code
from auditing.odd_looking_files import with_weights
from auditing.published_fields import DEEPSEEK_V3, LLAMA_3, LLAMA_31, PHI3_LONG, PHI3_SHORT, QWEN2

# Keys as llama.cpp's converter writes them, shapes as in the configs of the same models.
LLAMA_32_1B = keys(
    "llama", block_count=16, context_length=131072, embedding_length=2048, attention__head_count=32,
    attention__head_count_kv=8, attention__key_length=64, attention__value_length=64, rope__freq_base=500000.0,
    rope__dimension_count=64,
)  # fmt: skip
PHI3 = keys(
    "phi3", block_count=32, context_length=131072, embedding_length=3072, attention__head_count=32,
    attention__head_count_kv=32, rope__freq_base=10000.0, rope__dimension_count=96,
    rope__scaling__original_context_length=4096, rope__scaling__attn_factor=1.1902380714238083,
)  # fmt: skip
GEMMA2_2B = keys(
    "gemma2", block_count=26, context_length=8192, embedding_length=2304, attention__head_count=8,
    attention__head_count_kv=4, attention__key_length=256, attention__value_length=256, rope__freq_base=10000.0,
)  # fmt: skip
GPT_NEOX = keys(
    "gptneox", block_count=44, context_length=2048, embedding_length=6144, attention__head_count=64,
    rope__dimension_count=24,
)  # fmt: skip
# Class defaults of Qwen3NextConfig (transformers 5.23.0): 16 heads of 256 channels, of which 64 turn.
QWEN3_NEXT = keys(
    "qwen3next", block_count=48, context_length=262144, embedding_length=2048, attention__head_count=16,
    attention__head_count_kv=2, attention__key_length=256, attention__value_length=256, rope__freq_base=10000000.0,
    rope__dimension_count=64,
)  # fmt: skip
SHORT, LONG = np.array(PHI3_SHORT, np.float32), np.array(PHI3_LONG, np.float32)
QUERIES = np.zeros((2048, 2304), np.float32)
NO_WIDTH = {name: value for name, value in GEMMA2_2B.items() if not name.endswith("_length") or "attention" not in name}

FAULTY = {
    "no factors in Llama-3.2-1B": (gguf(LLAMA_32_1B), "rope-freqs-missing"),
    "factors of 1": (gguf(LLAMA, rope_freqs__weight=np.ones(64, np.float32)), "rope-freqs-differ"),
    "factors that multiply instead of divide": (gguf(LLAMA, rope_freqs__weight=1 / FACTORS), "rope-freqs-differ"),
    "factors of another base": (
        gguf(LLAMA, rope_freqs__weight=llama3_factors(base=10000.0)), "rope-freqs-differ",
    ),
    "factors beside a scaling in keys": (
        gguf(LLAMA | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0},
             rope_freqs__weight=FACTORS),
        "rope-freqs-differ",
    ),
    "half the channels of Llama": (
        gguf(LLAMA | {"llama.rope.dimension_count": 64}, rope_freqs__weight=FACTORS[:32]), "dimension-count",
    ),
    "no lists in Phi-3": (gguf(PHI3), "longrope-factors-missing"),
    "lists of Phi-3 swapped": (
        gguf(PHI3, rope_factors_short__weight=LONG, rope_factors_long__weight=SHORT), "longrope-swapped",
    ),
    "no width of a head in Gemma 2": (gguf(NO_WIDTH, blk__0__attn_q__weight=QUERIES), "head-width"),
    "factors lost beside the config": (
        {"config.json": LLAMA_31, "model.gguf": Gguf(LLAMA)}, "files-disagree",
    ),
    "the tokenizer's length past the context": (
        {"config.json": LLAMA_3, "tokenizer_config.json": {"model_max_length": 131072}}, "lengths-differ",
    ),
}  # fmt: skip

SOUND = {
    "a tokenizer of Qwen, which gives the length of the longest of the family": {
        "config.json": QWEN2, "tokenizer_config.json": {"model_max_length": 131072}
    },
    "Llama-3.2-1B": gguf(LLAMA_32_1B, rope_freqs__weight=llama3_factors(32.0, 32)),
    "Llama 3 needs no factors": gguf(LLAMA | {"llama.context_length": 8192}),
    "Phi-3": gguf(PHI3, rope_factors_short__weight=SHORT, rope_factors_long__weight=LONG),
    "Gemma 2": gguf(GEMMA2_2B, blk__0__attn_q__weight=QUERIES),
    "GPT-NeoX, whose files never hold the base": gguf(GPT_NEOX),
    "as many gates as queries": gguf(QWEN3_NEXT, blk__3__attn_q__weight=np.zeros((8192, 2048), np.float32)),
    "a part of a model that is spread over eight devices": with_weights(
        LLAMA_3, layers__0__attention__wq__weight=np.zeros((512, 4096), np.float16)
    ),
    "a tokenizer without a length": {
        "config.json": LLAMA_31, "tokenizer_config.json": {"model_max_length": 1000000000000000019884624838656},
    },
    "documents that say the same": {
        "config.json": QWEN2, "tokenizer_config.json": {"model_max_length": 32768},
        "generation_config.json": {"max_new_tokens": 512},
    },
    "projections of the declared heads": with_weights(
        LLAMA_3, model__layers__0__self_attn__q_proj__weight=np.zeros((4096, 4096), np.float16)
    ),
    "projections of latent heads": with_weights(
        DEEPSEEK_V3, model__layers__0__self_attn__q_b_proj__weight=np.zeros((24576, 1536), np.float16)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_caught_in_another_model_too(name, tmp_path):
    model, code = FAULTY[name]
    found = audited(tmp_path, model)
    assert {finding.severity for finding in of_code(found, code)} == {"warning"}, fired(found)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_model_near_it_does_not_fire(name, tmp_path):
    assert fired(audited(tmp_path, SOUND[name])) == []
