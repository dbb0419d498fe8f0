"""Keys that are null: what the classes make of them, as data, and what the audit says of it."""

import random

import pytest

import clockhands as ch
from clockhands.configs import null_keys
from clockhands.configs.model_types import model_type, model_types
from clockhands.runtimes import FileReadings
from configs.expected import opened, resolved
from late import Late

tool = Late("null_keys")

# Some classes warn of the key when they are built with it.
pytestmark = pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated:FutureWarning")

LIBRARY = null_keys.measured_nulls()["library"]
MEASURED = [name for name in model_types() if getattr(model_type(name), "library", "") == LIBRARY]


@pytest.fixture
def measured():
    yield tool.meanings
    null_keys.measured_nulls.cache_clear()


def test_a_null_means_what_the_class_makes_of_it(measured, cases):
    for name in ("qwen3_next", "llama"):
        with cases(name):
            expected = tool.held(name)
            assert measured(name) == expected


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_null_means_what_the_class_makes_of_it_in_a_drawn_sample(measured, cases, part):
    for name in random.Random(45).sample(MEASURED, 40)[part::4]:
        with cases(name):
            expected = tool.held(name)
            assert measured(name) == expected


def test_the_file_is_what_the_tool_writes_of_its_own_contents():
    found = {name: tool.held(name) for name in MEASURED}
    assert tool.as_text(found) == null_keys.FILE.read_text(encoding="utf-8")
    assert tool.LIBRARY == LIBRARY


def facts(config):
    return [dict(fact.evidence) for fact in resolved(config).facts if fact.code == "null-value"]


def test_a_null_that_the_class_keeps_is_no_default():
    found = resolved({"model_type": "qwen3_next", "num_hidden_layers": 4, "partial_rotary_factor": None})
    assert {code.rotated for code in found.codes if code.kind == "rotary"} == {256}
    assert not [fact for fact in found.facts if fact.code == "null-value"]


def test_a_null_that_the_class_refuses_is_a_warning_that_names_the_release():
    audit = ch.audit({"model_type": "llama", "num_attention_heads": None})
    (found,) = (each for each in audit.warnings if each.code == "null-value")
    assert "num_attention_heads is null, which LlamaModel in transformers 5.23.0, " in found.message
    assert {each.reader for each in audit.readings if each.verdict == "refuses"} == {"transformers-5"}


def test_a_null_with_which_the_class_fails_is_a_warning_unless_another_key_has_the_value():
    config = {"model_type": "llama", "rope_theta": None}
    assert [each["means"] for each in facts(config)] == ["fails"]
    assert not facts(config | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})
    assert not facts(config | {"rope_theta": 5e5})


def test_a_null_of_unknown_meaning_is_a_doubt_and_no_runtime_is_compared():
    for config in ({"model_type": "roberta", "pad_token_id": None}, {"model_type": "chatglm", "seq_length": None}):
        audit = ch.audit(config)
        assert not audit.correct
        assert any("is null means to the code of this model type is not known" in doubt for doubt in audit.doubts)
        held = FileReadings(opened(config), resolved(config), None).shown()
        assert {each.verdict for each in held} <= {"unknown", "refuses"}


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "llama", "rope_scaling": None, "head_dim": None},
        {"model_type": "qwen3", "layer_types": None, "sliding_window": None},
    ],
    ids=lambda config: config["model_type"],
)
def test_a_null_that_is_usual_is_silent(config):
    assert not facts(config)
