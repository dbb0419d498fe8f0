"""Readings as a whole: which readers there are, what they cost nothing for, and files that fit none."""

import json

import pytest

from clockhands.auditing import audit
from clockhands.configs import open_target
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import LayerEncoding
from clockhands.errors import InvalidValue
from clockhands.runtimes import PATTERNS, READERS, compared, readings
from clockhands.runtimes.telling import reading_to_dict, runtime_rows
from clockhands.runtimes.views import facts

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_attention_heads": 32,
    "num_hidden_layers": 4, "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
ODD = [
    None, 0, -1, True, "", "yarn", [], {}, 1e308, float("inf"), float("nan"), 10**290, "500000", [None],
    {"rope_type": ["x"]}, {"full_attention": None}, {"rope_type": "yarn", "factor": 1e308}, {"type": {"a": 1}},
    {"rope_type": "longrope", "long_factor": 5, "short_factor": None, "factor": -1},
]  # fmt: skip
KEYS = [
    "rope_theta", "rope_scaling", "rope_parameters", "model_type", "max_position_embeddings", "architectures",
    "original_max_position_embeddings", "partial_rotary_factor", "text_config", "vision_config", "auto_map",
]  # fmt: skip


def target(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return open_target(path)


def test_every_reader_says_which_release_it_is():
    assert set(facts()["readers"]) == set(READERS)
    for name in READERS:
        title, version, read = (facts()["readers"][name][key] for key in ("title", "version", "read"))
        assert title
        assert (version == "a pattern") == (name in PATTERNS)
        assert read or name in PATTERNS


def test_a_plain_config_is_read_alike_by_all_and_resolved_once(tmp_path):
    opened = target(tmp_path, LLAMA)
    resolved = resolve(opened)
    found = {each.reader: each for each in readings(opened, resolved, resolved.length)}
    assert {each.verdict for name, each in found.items() if name != "no-scaling"} == {"same"}
    # What is seen as the audit sees it is not computed again.
    assert all(each.codes is resolved.codes for name, each in found.items() if name != "no-scaling")
    assert found["no-scaling"].verdict == "unknown"


OF_LAYERS = {"per_layer_config": {"1": {"head_dim": 64}}}
GEMMA4 = {"model_type": "gemma4_text", "num_hidden_layers": 4, "head_dim": 256, "sliding_window": 512}


@pytest.mark.parametrize(
    ("config", "described"), [({**LLAMA, **OF_LAYERS}, set()), ({**GEMMA4, **OF_LAYERS}, {"transformers-5"})]
)
def test_only_transformers_5_is_known_to_read_values_of_single_layers(tmp_path, config, described):
    opened = target(tmp_path, config)
    found = {each.reader: each for each in readings(opened, resolve(opened)) if each.reader != "no-scaling"}
    assert {name for name, each in found.items() if each.verdict == "same"} == described
    others = [each for name, each in found.items() if name not in described]
    assert {each.verdict for each in others} <= {"unknown", "refuses"}
    assert any(each.because == "clockhands does not know how this runtime reads per_layer_config." for each in others)


def test_the_growth_of_scores_is_needed_by_some_and_passed_over_by_others(tmp_path):
    # transformers 5.23.0 models/ministral3, mlx-lm 0.32.2 models/ministral3.py, vllm 0.33.0 models/mistral.py
    block = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "ministral3", "rope_parameters": block}))
    found = {reading.reader: reading for reading in audit(tmp_path).readings}
    assert found["transformers-5"].verdict == found["mlx-lm"].verdict == "refuses"
    whole = block | {"llama_4_scaling_beta": 0.1}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "ministral3", "rope_parameters": whole}))
    found = {reading.reader: reading for reading in audit(tmp_path).readings}
    assert "refuses" not in (found["transformers-5"].verdict, found["mlx-lm"].verdict)
    assert "config.json:rope_parameters.llama_4_scaling_beta" in found["vllm"].not_read


@pytest.mark.parametrize("change", [{"rope_theta": "abc"}, {"rope_theta": 0}, {"rope_theta": float("nan")}])
def test_readings_that_both_lack_their_rates_are_not_said_to_be_the_same(tmp_path, change):
    opened = target(tmp_path, LLAMA | change)
    assert "same" not in {each.verdict for each in readings(opened, resolve(opened))}


def test_readers_that_refuse_for_one_reason_stand_in_one_line(tmp_path):
    block = {"rope_type": "llama3", "original_max_position_embeddings": 8192}
    opened = target(tmp_path, LLAMA | {"rope_scaling": block})
    rows = [text for label, text in runtime_rows(readings(opened, resolve(opened)), 8192) if label == "refuses"]
    reasons = [text.partition(": ")[2] for text in rows]
    assert len(rows) > 1
    assert len(set(reasons)) == len(rows)
    assert sum("Transformers 4.57.1" in text and "vLLM" in text for text in rows) == 1


def test_a_reader_that_does_not_exist_is_refused(tmp_path):
    opened = target(tmp_path, LLAMA)
    with pytest.raises(InvalidValue, match="no runtime 'vlm'"):
        readings(opened, resolve(opened), None, ["vlm"])


@pytest.mark.parametrize("some", [1, pytest.param(len(ODD), marks=pytest.mark.slow)], ids=["some", "all"])
def test_odd_values_are_read_or_refused_and_never_an_exception(tmp_path, cases, draw, some):
    for key in KEYS:
        for value in draw(ODD, some):
            for more in ({}, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}):
                with cases(key, value, more):
                    opened = target(tmp_path, LLAMA | more | {key: value})
                    found = audit(opened.path).to_dict()
                    json.dumps(found["readers"], allow_nan=False)


def test_what_the_caller_sets_is_read_by_all(tmp_path):
    opened = target(tmp_path, LLAMA)
    found = audit(opened.path, overrides={"rope_scaling": {"rope_type": "linear", "factor": 2.0}})
    rows = {each.reader: each for each in found.readings}
    assert rows["transformers-4"].verdict == "same"
    assert rows["vllm"].longest == 16384
    assert rows["no-scaling"].verdict == "differs"


def test_a_reading_is_json(tmp_path):
    opened = target(tmp_path, {key: value for key, value in LLAMA.items() if key != "rope_theta"} | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}
    })  # fmt: skip
    resolved = resolve(opened)
    (found,) = readings(opened, resolved, None, ["transformers-4"])
    made = json.loads(json.dumps(reading_to_dict(found, resolved.context)))
    assert (made["verdict"], made["not_read"]) == ("differs", ["config.json:rope_parameters"])
    (group,) = made["differs"]
    assert (group["first"]["base"], group["second"]["base"]) == (500000.0, 10000.0)
    assert [each["distance"] for each in group["rates"]["at"]] == [1, 16, 256, 1024, 4096, 8192, 32768]


def rotary(layers, base, **more):
    rates = tuple(base ** (-pair / 4) for pair in range(4))
    return LayerEncoding(
        "text", layers, "rotary", width=8, rotated=8, base=base, rates=rates, attention_factor=1.0, **more
    )


def test_layers_are_grouped_by_what_both_have():
    found = compared([rotary("0-5", 1e4)], [rotary("0-1,4-5", 1e4), rotary("2-3", 1e6)])
    assert [(group.layers, group.same) for group in found] == [("0-1,4-5", True), ("2-3", False)]


def test_a_code_for_an_unknown_number_of_layers_is_for_all():
    (group,) = compared([rotary(None, 1e4)], [rotary("0-5", 1e4)])
    assert (group.layers, group.same) == ("0-5", True)


def test_layers_that_one_side_lacks_are_told():
    found = compared([rotary("0-5", 1e4)], [rotary("0-3", 1e4)])
    assert [(group.layers, group.says) for group in found] == [
        ("0-3", ()),
        ("4-5", ("the second has no such layers",)),
    ]


def test_pairs_of_other_channels_are_not_compared():
    half = LayerEncoding("text", "0", "rotary", width=8, rotated=4, base=1e4, rates=(1.0, 0.01), attention_factor=1.0)
    (group,) = compared([rotary("0", 1e4)], [half])
    assert group.ladder is None
    assert group.says == ("8 of 8 dimensions rotate against 4 of 8 dimensions rotate",)


def test_windows_count_where_everything_does():
    ours, theirs = rotary("0", 1e4, window=128), rotary("0", 1e4)
    (group,) = compared([ours], [theirs])
    assert group.says == ("the last 128 positions against all positions",)
    assert compared([ours], [theirs], windows=False)[0].same
