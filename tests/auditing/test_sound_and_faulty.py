"""Real models that look wrong and are right must not fire; real faults that a config shows must.

The cases hold the position fields of published models, as facts; where each was reported or published stands beside it.
"""

import io
import json

import pytest

from clockhands.auditing import audit

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "rope_theta": 500000.0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
QWEN2 = LLAMA | {"model_type": "qwen2", "rope_theta": 1e6, "max_position_embeddings": 32768}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61,
    "max_position_embeddings": 163840, "rope_theta": 10000, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 2560, "num_attention_heads": 8, "head_dim": 256,
    "num_hidden_layers": 34, "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
    "sliding_window": 1024, "sliding_window_pattern": 6, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}  # fmt: skip
BERT = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12}
PHI3 = {
    "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0,
}  # fmt: skip
LISTS = {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


SOUND = {
    "Llama 3.1: 8 x 8192 is not 131072": LLAMA | {"rope_scaling": LLAMA3},
    "Llama 3.2: 32 x 8192 is not 131072": LLAMA | {"rope_scaling": LLAMA3 | {"factor": 32.0}},
    "Llama 4 Scout: low and high factor are both 1": LLAMA
    | {"rope_scaling": LLAMA3 | {"factor": 16.0, "high_freq_factor": 1.0}},
    "Apertus: base 12,000,000": LLAMA | {"rope_theta": 12e6, "rope_scaling": LLAMA3},
    "both spellings of the type, and they agree": LLAMA | {"rope_scaling": LLAMA3 | {"type": "llama3"}},
    "both schemas, and they agree": LLAMA
    | {"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"rope_theta": 500000.0}},
    "a bare base of 10,000 where it was trained so": LLAMA | {"rope_theta": 10000.0, "max_position_embeddings": 4096},
    "an odd base": LLAMA | {"rope_theta": 11158840},
    "YaRN whose maximum is still the original length": QWEN2 | {"rope_scaling": YARN},
    "YaRN whose maximum is the stretched length": QWEN2
    | {"rope_scaling": YARN, "max_position_embeddings": 131072},
    "Qwen2: a window that is switched off": QWEN2 | {"sliding_window": 4096, "use_sliding_window": False},
    "DeepSeek-V3: mscale and mscale_all_dim are both 1": DEEPSEEK
    | {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "Gemma 3: two bases, and a factor for one of them": GEMMA3,
    "RoBERTa: 514 rows for 512 tokens": BERT
    | {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1},
    "OPT: the table is the maximum and two": BERT
    | {"model_type": "opt", "max_position_embeddings": 2048, "word_embed_proj_dim": 768},
    "Phi-4-mini: three quarters turn, short factors are all 1": PHI3
    | {"hidden_size": 3072, "num_attention_heads": 24, "partial_rotary_factor": 0.75, "rope_scaling": LISTS},
    "Phi-2: four tenths turn": PHI3
    | {"model_type": "phi", "hidden_size": 2560, "partial_rotary_factor": 0.4, "max_position_embeddings": 2048},
    "a type that nobody knows": LLAMA | {"model_type": "mystery"},
}  # fmt: skip

FAULTY = {
    # both schemas: the old one wins in one library, the new one in another, neither warns
    "two schemas disagree": (
        LLAMA | {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "conflicting-shapes", "warning",
    ),
    "two spellings of the type disagree": (
        LLAMA | {"rope_scaling": LLAMA3 | {"type": "linear"}}, "conflicting-spellings", "warning",
    ),
    "a Llama-3 block that was cut short": (
        LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "incomplete-scaling", "error",
    ),
    "YaRN without the original length": (
        QWEN2 | {"max_position_embeddings": 131072, "rope_scaling": without(YARN, "original_max_position_embeddings")},
        "missing-original", "warning",
    ),
    "YaRN whose three numbers do not fit": (
        DEEPSEEK | {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 163840 // 2}},
        "factor-times-original", "warning",
    ),
    "a misspelt key": (LLAMA | {"rope_scaling": LLAMA3 | {"factr": 8.0}}, "unknown-key", "warning"),
    "a scaling that nobody knows": (
        LLAMA | {"rope_scaling": {"type": "stretchy", "factor": 2.0}}, "unknown-scaling", "error",
    ),
    "Gemma 3 with the old spelling of its scaling alone": (
        GEMMA3 | {"rope_scaling": {"type": "linear", "factor": 8.0}}, "ignored-key", "warning",
    ),
    "the base is a text": (LLAMA | {"rope_theta": "500000"}, "text-number", "warning"),
    "the base is 0": (LLAMA | {"rope_theta": 0}, "impossible-value", "error"),
    "the base is negative": (LLAMA | {"rope_theta": -5}, "impossible-value", "error"),
    "more than all of a head turns": (PHI3 | {"partial_rotary_factor": 1.5}, "impossible-value", "error"),
    "lists of another length than there are pairs": (
        PHI3 | {"rope_scaling": LISTS | {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64}},
        "longrope-lists", "error",
    ),
    "a factor below 1": (
        LLAMA | {"rope_scaling": {"type": "linear", "factor": 0.25}}, "impossible-value", "error",
    ),
    "Gemma 3 with a flat block where one for each kind of layer belongs": (
        without(GEMMA3, "rope_theta", "rope_local_base_freq", "rope_scaling")
        | {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}},
        "flat-layer-types", "warning",
    ),
}  # fmt: skip


def findings(config):
    return audit("-", stdin=io.BytesIO(json.dumps(config).encode())).findings


@pytest.mark.parametrize("case", SOUND)
def test_what_looks_wrong_and_is_right_does_not_fire(case):
    assert [found.message for found in findings(SOUND[case]) if found.severity != "note"] == []


@pytest.mark.parametrize("case", FAULTY)
def test_what_is_wrong_fires(case):
    config, code, severity = FAULTY[case]
    assert (code, severity) in {(found.code, found.severity) for found in findings(config)}


def test_a_base_that_only_the_class_knows_is_a_note_with_its_owner():
    plain = without(LLAMA, "rope_theta") | {"max_position_embeddings": 4096}
    (found,) = [each for each in findings(plain) if each.code == "default-base"]
    assert found.severity == "note"
    assert found.evidence["used"] == 10_000.0
    assert "llama" in found.message
