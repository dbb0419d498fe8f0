"""llama.cpp as it is described: what its converter writes of a config, and what its loader takes of that."""

import math

import pytest

from runtimes.reading_files import read

QWEN = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 4, "max_position_embeddings": 131072, "rope_theta": 1e6,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def test_the_new_block_comes_before_the_old_one(tmp_path):
    config = QWEN | {"rope_scaling": YARN, "rope_parameters": YARN | {"factor": 2.0, "rope_theta": 1e6}}
    found = read(tmp_path, config, "llama.cpp")
    assert found.verdict == "differs"
    assert found.codes[0].scaling["factor"] == 2.0
    assert found.not_read == ("config.json:rope_scaling",)


def test_a_written_factor_on_cosine_and_sine_is_dropped(tmp_path):
    found = read(tmp_path, QWEN | {"rope_scaling": YARN | {"attention_factor": 1.0}}, "llama.cpp")
    (group,) = found.parted
    assert found.not_read == ("config.json:rope_scaling.attention_factor",)
    assert group.theirs.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert group.ladder.same_rates


def test_the_ends_of_the_ramp_are_constants(tmp_path):
    found = read(tmp_path, QWEN | {"rope_scaling": YARN | {"beta_fast": 4.0}}, "llama.cpp")
    plain = read(tmp_path, QWEN | {"rope_scaling": YARN}, "llama.cpp")
    assert found.codes[0].rates == plain.codes[0].rates
    assert (found.verdict, plain.verdict) == ("differs", "same")


def test_llama3_is_written_for_llama_and_not_for_qwen(tmp_path):
    llama = QWEN | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rope_scaling": LLAMA3}
    assert read(tmp_path, llama, "llama.cpp").verdict == "same"
    found = read(tmp_path, QWEN | {"rope_scaling": LLAMA3}, "llama.cpp")
    assert found.codes[0].scaling is None
    assert found.says == ("The converter of llama.cpp does not write a scaling of type llama3 for Qwen2ForCausalLM.",)


def test_deepseeks_two_numbers_cancel(tmp_path):
    config = {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
        "num_attention_heads": 128, "num_hidden_layers": 4, "max_position_embeddings": 163840, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "rope_theta": 1e4,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }  # fmt: skip
    found = read(tmp_path, config, "llama.cpp")
    assert (found.verdict, found.codes[0].attention_factor) == ("same", 1.0)


def test_what_it_refuses_or_is_not_known_to_read(tmp_path):
    molmo = {"architectures": ["MolmoForCausalLM"]}
    found = read(tmp_path, QWEN | molmo, "llama.cpp")
    said = "The converter of llama.cpp has no architecture MolmoForCausalLM."
    assert (found.verdict, found.because) == ("refuses", said)
    found = read(tmp_path, QWEN | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "llama.cpp")
    said = "rope_scaling of type yarn lacks original_max_position_embeddings (KeyError in the converter)."
    assert (found.verdict, found.because) == ("refuses", said)
    # An architecture whose converter was not read.
    assert read(tmp_path, QWEN | {"architectures": ["Gemma2ForCausalLM"]}, "llama.cpp").verdict == "unknown"
