"""params.json as Meta and Mistral write it: the same numbers as the same model's config, every value with its place.

The values are facts of published files: Meta-Llama-3-8B-Instruct/params.json of meta-llama/llama3 (commit
2cc744bfb923d8c56549694cec5fe39a47cd3fd0), ``use_scaled_rope`` of llama-models 0.3.0 (``sku_list.py``), and the keys of
Mistral's as vllm-project/vllm reads them (``vllm/transformers_utils/configs/mistral.py``, commit
01da88c5bef903224038ae4e57d653964740dc04).
"""

import math

import numpy as np
import pytest

from clockhands.configs.resolve import resolve
from clockhands.configs.targets import Opened

LLAMA = {
    "dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0,
}  # fmt: skip
MISTRAL = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
    "norm_eps": 1e-05, "vocab_size": 32768, "rope_theta": 1e6,
}  # fmt: skip
YARN = {"alpha": 1, "beta": 32, "factor": 16.0, "original_max_position_embeddings": 16384}


def resolved(config, name="params.json", **named):
    return resolve(Opened("x", "config", config=config, config_name=name), **named)


def facts(found):
    return {fact.code: dict(fact.evidence) for fact in found.facts}


def converted(**more):
    """The same model in the other shape, without its values that say nothing about position."""
    config = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    return resolve(Opened("x", "config", config=config | more, config_name="config.json")).codes[0]


def test_llama_3():
    found = resolved(LLAMA)
    (code,) = found.codes
    assert (code.layers, code.kind, code.width, code.rotated, code.base) == ("0-31", "rotary", 128, 128, 500000.0)
    assert code.rates == converted(rope_theta=500000.0).rates
    assert code.layout == "interleaved"
    assert code.source["base"] == "params.json:rope_theta"
    assert code.source["layers"] == "params.json:n_layers"
    assert code.source["width"] == "params.json:dim / params.json:n_heads"
    assert (found.model_type, found.context, facts(found)) == (None, None, {})


def test_the_stretching_of_llama_3(cases):
    for more, factor, place in (
        ({}, 8.0, "llama-models 0.3.0, llama3/model.py"),
        ({"rope_scaling_factor": 32}, 32.0, "params.json:rope_scaling_factor"),
        ({"rope_scale_factor": 32}, 32.0, "params.json:rope_scale_factor"),
    ):
        found = resolved(LLAMA | {"use_scaled_rope": True} | more)
        (code,) = found.codes
        block = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": factor}
        block |= {"original_max_position_embeddings": 8192}
        rates = converted(rope_theta=500000.0, rope_scaling=block, max_position_embeddings=131072).rates
        with cases(place):
            assert code.rates == rates
            assert dict(code.scaling) == {"type": "llama3", "factor": factor, "original": 8192}
            assert place in code.source["scaling"]
            assert "params.json:use_scaled_rope" in code.source["scaling"]
            # A factor that no file has is what Meta's code takes; Llama 3.2 was published with another elsewhere.
            default = facts(found).get("default-value")
            assert (default and default["default of"]) == (None if more else f"Llama of Meta ({place})")
            assert resolved(LLAMA | {"use_scaled_rope": False} | more).codes[0].scaling is None


def test_llama_4_scout_rotates_three_of_four_layers():
    config = LLAMA | {"use_scaled_rope": True, "nope_layer_interval": 4, "attention_chunk_size": 8192, "head_dim": 128}
    turning, still = resolved(config).codes
    assert (turning.kind, still.kind, still.layers) == ("rotary", "none", "3,7,11,15,19,23,27,31")
    assert dict(turning.scaling) == {"type": "llama3", "factor": 16.0, "original": 8192}
    assert "llama4/model.py" in turning.source["scaling"]


def test_an_absent_base_is_that_of_the_makers_code_and_said_to_be(cases):
    for config, base in (
        (LLAMA | {"vocab_size": -1}, 10000.0),
        (LLAMA | {"vocab_size": 32000}, 10000.0),
        (LLAMA, 500000.0),
        (MISTRAL, 1000000.0),
        (MISTRAL | {"sliding_window": 4096}, 10000.0),
    ):
        found = resolved({key: value for key, value in config.items() if key != "rope_theta"})
        with cases(config, base):
            assert found.codes[0].base == base
            assert facts(found)["default-base"]["used"] == base
            assert "params.json" not in found.codes[0].source["base"]


def test_windows_of_mistral():
    (code,) = resolved(MISTRAL | {"sliding_window": 4096}).codes
    assert (code.window, code.layers) == (4096, "0-31")
    full, sliding = resolved(MISTRAL | {"sliding_window": [None, None, None, 1024]}).codes
    assert (full.window, sliding.window, sliding.layers) == (None, 1024, "3,7,11,15,19,23,27,31")
    assert sliding.source["window"] == "params.json:sliding_window"
    for wrong in ([1, 2], [], [None] * 5, ["a"] * 4, [0, None]):
        assert "impossible-value" in facts(resolved(MISTRAL | {"sliding_window": wrong}))


def test_yarn_of_mistral(cases):
    block = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384}
    given = {"rope_theta": 1e6, "rope_scaling": block, "max_position_embeddings": 262144}
    for scale, factor in (({}, 0.1 * math.log(16) + 1), ({"apply_scale": True}, 0.1 * math.log(16) + 1),
                          ({"apply_scale": False}, 1.0)):  # fmt: skip
        found = resolved(MISTRAL | {"max_position_embeddings": 262144, "yarn": YARN | scale})
        (code,) = found.codes
        with cases(scale):
            assert code.rates == converted(**given).rates
            assert code.attention_factor == pytest.approx(factor, rel=1e-15)
            assert (found.context, found.source["context"]) == (262144, "params.json:max_position_embeddings")
            assert "params.json:yarn.factor" in code.source["scaling"]
            if scale == {"apply_scale": False}:
                assert code.source["attention_factor"] == "params.json:yarn.apply_scale"
            assert facts(found) == {}
            assert found.ignored == {}
    # Its alpha and beta bound the ramp.
    bounded = resolved(MISTRAL | {"max_position_embeddings": 262144, "yarn": YARN | {"alpha": 2, "beta": 16}}).codes[0]
    assert bounded.rates == converted(**given | {"rope_scaling": block | {"beta_fast": 16, "beta_slow": 2}}).rates


def test_an_unknown_key_of_yarn_is_noticed_where_it_stands():
    found = resolved(MISTRAL | {"max_position_embeddings": 262144, "yarn": YARN | {"gamma": 3}})
    assert facts(found)["unknown-key"]["params.json:yarn.gamma"] == 3


def test_heads_of_two_parts():
    latent = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "kv_lora_rank": 512}
    (code,) = resolved(MISTRAL | latent).codes
    assert (code.width, code.rotated, code.spec.part) == (192, 64, "last")


def test_the_tower_of_pixtral_shares_one_ladder_between_rows_and_columns():
    tower = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24, "rope_theta": 10000.0}
    found = resolved(MISTRAL | {"vision_encoder": tower, "max_position_embeddings": 4096})
    vision = found.codes[1]
    assert (vision.part, vision.layers, vision.width, vision.usable_length) == ("vision", "0-23", 64, None)
    ladder = 10000.0 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(vision.rates, [*ladder[::2], *ladder[1::2]], rtol=1e-15)
    assert vision.spec.axes == (0,) * 16 + (1,) * 16


def test_what_is_no_params_file_is_read_as_a_config(cases):
    for wrong in ({"dim": "4096"}, {"n_heads": None}, {"architectures": ["LlamaForCausalLM"]}, {"use_hf_rope": True}):
        with cases(wrong):
            assert "unknown-model-type" in facts(resolved(LLAMA | wrong))


def test_values_can_be_set_over_those_of_the_file():
    found = resolved(LLAMA, overrides={"rope_theta": 1e6})
    assert (found.codes[0].base, found.codes[0].source["base"]) == (1e6, "--set:rope_theta")


def test_a_key_about_position_that_nothing_reads_is_said():
    assert resolved(MISTRAL | {"yarn": YARN, "rope_style": 2}).ignored.keys() == {"params.json:rope_style"}
    assert resolved(MISTRAL | {"yarn": YARN}).ignored == {}
