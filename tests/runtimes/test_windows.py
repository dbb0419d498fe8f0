"""Windows and sections of M-RoPE, as each runtime's own code has them."""

import json
from itertools import product
from pathlib import Path

import pytest

from clockhands.configs import open_target
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import layer_numbers
from clockhands.runtimes import readings
from runtimes.reading_files import read

CASES = json.loads(Path(__file__).with_name("windows.json").read_text(encoding="utf-8"))["cases"]
LAYERS = 6
SMALL = {
    "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": LAYERS, "max_position_embeddings": 64,
    "head_dim": 16, "rope_theta": 10000.0,
}  # fmt: skip
SETTINGS = {
    "window": {"sliding_window": 4},
    "from layer 3": {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 3},
    "listed": {
        "sliding_window": 4, "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"] * 3
    },
    "period": {"sliding_window": 4, "sliding_window_pattern": 3},
}  # fmt: skip
MISTRAL = {
    "model_type": "mistral", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "sliding_window": 4096, "max_position_embeddings": 32768, "rope_theta": 10000.0,
}  # fmt: skip
QWEN3_VL = {
    "model_type": "qwen3_vl_text", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 36,
    "max_position_embeddings": 262144, "head_dim": 128, "rope_theta": 5000000.0,
}  # fmt: skip


def windows(found):
    each: list[int | None] = [None] * LAYERS
    for code in found.codes:
        for layer in range(LAYERS) if code.layers is None else layer_numbers(code.layers):
            each[layer] = code.farthest
    return each


def test_each_layer_has_the_window_that_the_runtime_gave_it(tmp_path, cases):
    for case in CASES:
        with cases(case["reader"], case["type"], case["setting"]):
            config = {"model_type": case["type"], **SMALL, **SETTINGS[case["setting"]]}
            found = read(tmp_path, config, case["reader"])
            assert "windows" not in found.not_compared
            assert windows(found) == case["windows"]


def test_vllm_refuses_a_qwen_of_which_only_some_layers_have_a_window(tmp_path):
    for name, layers in (("qwen2", 0), ("qwen3", LAYERS)):
        config = {"model_type": name, **SMALL, **SETTINGS["from layer 3"]}
        assert read(tmp_path, config, "vllm").verdict == "refuses", name
        assert read(tmp_path, config | {"max_window_layers": layers}, "vllm").verdict == "same", name


def test_vllm_gives_windows_of_cohere2_one_token_more(tmp_path):
    found = read(tmp_path, {"model_type": "cohere2", **SMALL, "sliding_window": 4}, "vllm")
    assert windows(found) == [5, 5, 5, None, 5, 5]


def test_windows_that_were_not_read_are_not_compared_and_that_is_said(tmp_path):
    listed = {"layer_types": ["sliding_attention"] * 16 + ["full_attention"] * 16}
    found = read(tmp_path, MISTRAL | listed, "mlx-lm")
    assert (found.verdict, found.not_compared) == ("same", ("windows",))


@pytest.mark.parametrize("reader", ["vllm", "vllm-0.11"])
def test_vllm_takes_a_window_that_the_class_of_llama_passes_over(tmp_path, reader):
    llama = {"model_type": "llama", **SMALL, "sliding_window": 4}
    found = read(tmp_path, llama, reader)
    assert (found.verdict, windows(found), found.not_compared) == ("differs", [4] * LAYERS, ())
    assert read(tmp_path, llama, "transformers-4").verdict == "same"
    assert read(tmp_path, llama | {"sliding_window": None}, reader).verdict == "same"


def test_a_window_that_only_the_runtime_may_take_is_not_said_to_be_the_same(tmp_path):
    granite = {"model_type": "granite", **SMALL, "sliding_window": 4}
    assert read(tmp_path, granite, "vllm").not_compared == ("windows",)
    assert read(tmp_path, granite | {"sliding_window": None}, "vllm").not_compared == ()


def test_vllm_0_11_has_one_window_for_all_layers_of_qwen(tmp_path, cases):
    kinds = {"layer_types": ["sliding_attention", "full_attention"] * 3}
    for name, (more, expected) in product(
        ("qwen2", "qwen3"),
        (
            ({"max_window_layers": 3}, "refuses"), (kinds, "refuses"), ({}, [4] * LAYERS),
            (kinds | {"max_window_layers": LAYERS}, [None] * LAYERS), ({"max_window_layers": 0}, [4] * LAYERS),
            ({"max_window_layers": LAYERS}, [4] * LAYERS), ({"use_sliding_window": False}, [None] * LAYERS),
        ),
    ):  # fmt: skip
        with cases(name, more):
            config = {"model_type": name, **SMALL, "sliding_window": 4, "use_sliding_window": True, **more}
            found = read(tmp_path, config, "vllm-0.11")
            assert (found.verdict if found.verdict == "refuses" else windows(found)) == expected
            assert "windows" not in found.not_compared


STEP = {
    "model_type": "step3p5", **SMALL, "sliding_window": 4, "rope_theta": [5e6, 1e4] * 3, "head_dim": 16,
    "layer_types": ["full_attention", "sliding_attention"] * 3, "yarn_only_types": ["full_attention"],
    "rope_scaling": {
        "rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0,
        "high_freq_factor": 32.0,
    },
}  # fmt: skip


def test_vllm_leaves_layers_of_step_3_5_without_rotation_where_the_file_lists_them(tmp_path):
    assert read(tmp_path, STEP, "vllm").verdict == "same"
    found = read(tmp_path, STEP | {"use_rope_layers": [True] * 5 + [False]}, "vllm")
    assert (found.verdict, [group.layers for group in found.parted]) == ("differs", ["5"])
    assert found.parted[0].says == ("rotary against no position encoding",)
    assert read(tmp_path, STEP | {"use_rope_layers": [False]}, "vllm").verdict == "unknown"


def test_scales_of_scores_are_not_said_to_be_compared(tmp_path):
    scaling = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384, "rope_theta": 1e6}
    config = {"model_type": "ministral3", **SMALL, "max_position_embeddings": 262144}
    config["rope_parameters"] = scaling | {"llama_4_scaling_beta": 0.1}
    assert read(tmp_path, config, "vllm").not_compared == ("scores",)
    assert read(tmp_path, config, "transformers-5").not_compared == ()


def test_the_loader_of_llama_cpp_has_one_choice_of_layers_without_rotation_for_smollm3(tmp_path):
    config = {"model_type": "smollm3", **SMALL, "num_hidden_layers": 8, "no_rope_layer_interval": 4}
    assert read(tmp_path, config, "llama.cpp").verdict == "same"
    found = read(tmp_path, config | {"no_rope_layer_interval": 3}, "llama.cpp")
    assert (found.verdict, {group.layers for group in found.parted}) == ("differs", {"2,5", "3,7"})


@pytest.mark.parametrize(("flag", "verdict"), [({}, "differs"), ({"mrope_interleaved": True}, "same")])
def test_vllm_shares_pairs_among_axes_by_the_flag_of_the_file(tmp_path, flag, verdict):
    scaling = {"rope_type": "default", "mrope_section": [24, 20, 20], **flag}
    found = read(tmp_path, QWEN3_VL | {"rope_scaling": scaling}, "vllm")
    assert found.verdict == verdict
    says = [sentence for group in found.parted for sentence in group.says]
    assert says == (["interleaved M-RoPE sections against consecutive M-RoPE sections"] if verdict == "differs" else [])


def test_a_target_that_no_runtime_is_compared_on_says_why():
    opened = open_target("vaswani2017")
    found = readings(opened, resolve(opened, None))
    assert {each.verdict for each in found} == {"unknown"}
    assert {each.because for each in found} == {"This target is a spec of clockhands, which runtimes do not read."}


def test_a_dialect_is_named_as_the_reason(tmp_path):
    path = tmp_path / "model_config.yaml"
    path.write_text(
        "block_size: 2048\nn_layer: 4\nn_head: 4\nn_embd: 64\nrotary_percentage: 1.0\nrope_base: 10000\n"
        "name: small\npadded_vocab_size: 64\n",
        encoding="utf-8",
    )
    opened = open_target(path)
    (found,) = readings(opened, resolve(opened, None), only=["vllm"])
    assert (found.verdict, found.because) == (
        "unknown",
        "The compared runtimes read configs of Transformers, and this is a file of LitGPT.",
    )
