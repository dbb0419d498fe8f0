"""Where the installed library drops what a config says without a word, the audit says so and keeps to the config."""

import pytest

from configs.expected import resolved
from configs.library import gaps, read_config

BASE = {"hidden_size": 512, "num_attention_heads": 4, "num_hidden_layers": 4, "head_dim": 128}
BASE |= {"max_position_embeddings": 32768}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
KINDS = ["sliding_attention", "full_attention"] * 2
NESTED = {label: {"rope_type": "default", "rope_theta": 1e6} for label in ("sliding_attention", "full_attention")}

# Case to the config, the key that is lost, and whether the ladders then differ.
CASES = {
    "a base of Olmo 3 at the top": (
        {"model_type": "olmo3", "rope_theta": 1e4, "layer_types": KINDS},
        "rope_theta",
        True,
    ),
    "truncate inside the object of a kind of layer": (
        {
            "model_type": "gemma3_text",
            "layer_types": KINDS,
            "rope_parameters": {**NESTED, "full_attention": {**YARN, "rope_theta": 1e6, "truncate": False}},
        },
        "rope_parameters.full_attention.truncate",
        True,
    ),
    "type alone in an old block of Gemma 3": (
        {"model_type": "gemma3_text", "layer_types": KINDS, "rope_scaling": {"type": "linear", "factor": 8.0}},
        "rope_scaling.type",
        True,
    ),
    "mscale alone": (
        {"model_type": "llama", "rope_theta": 1e6, "rope_scaling": {**YARN, "mscale": 0.7}},
        "rope_scaling.mscale",
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_library_drops_is_told(name):
    config, key, _ = CASES[name]
    facts = [fact for fact in resolved({**BASE, **config}).facts if fact.code == "ignored-key"]
    (fact,) = facts
    assert f"config.json:{key}" in fact.evidence


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", CASES)
def test_the_library_does_drop_it(name):
    """If a later version no longer does, what the audit says of it is to go."""
    config, _, differs = CASES[name]
    values = {**BASE, **config}
    assert bool(list(gaps(read_config(values), resolved(values)))) == differs


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ["mixtral", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral", "minimax"])
def test_classes_that_fail_where_no_width_is_written(name):
    from clockhands.models.class_encodings import rotary_module

    whole = {"model_type": name, **BASE, "rope_theta": 1e6, "rope_scaling": YARN}
    bare = {key: value for key, value in whole.items() if key != "head_dim"}
    told = [dict(fact.evidence) for fact in resolved(bare).facts if "without it" in fact.evidence]
    assert [evidence["missing"] for evidence in told] == ["head_dim"]
    assert not [fact for fact in resolved(whole).facts if "without it" in fact.evidence]
    assert list(gaps(read_config(whole), resolved(whole))) == []
    with pytest.raises(TypeError):
        rotary_module(read_config(bare))


def test_the_same_values_in_the_right_place_are_no_fact():
    sound = {"model_type": "olmo3", "rope_theta": 500000.0, "layer_types": KINDS}
    both = {"model_type": "llama", "rope_theta": 1e6, "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}}
    flat = {"model_type": "llama", "rope_theta": 1e6, "rope_scaling": {**YARN, "truncate": False}}
    for config in (sound, both, flat):
        assert "ignored-key" not in [fact.code for fact in resolved({**BASE, **config}).facts]
