"""Parts of a model that are found by the shape of their objects, and how they are called."""

import json

from clockhands.auditing import audit
from clockhands.auditing.layer_words import label_of
from configs.expected import resolved

SHAPE = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64}


def labels(config):
    return [label_of(code) for code in resolved(config).codes]


def test_an_object_with_layers_heads_and_a_width_is_a_part_by_the_name_of_its_key(cases):
    for key, part, label in (
        ("talker_config", "other", "talker layers 0-3"),
        ("code2wav_config", "other", "code2wav layers 0-3"),
        ("action_config", "other", "action layers 0-3"),
        ("action_expert", "other", "action expert layers 0-3"),
        ("sound_tower.audio_config", "audio", "audio layers 0-3"),
    ):
        with cases(key):
            outer, _, inner = key.partition(".")
            config = {"model_type": "qwen2", **SHAPE, outer: {inner: SHAPE} if inner else SHAPE}
            code = resolved(config).codes[-1]
            assert (code.part, code.kind) == (part, None)
            assert labels(config) == ["layers 0-3", label]
            assert (
                f"the position encoding of the {label.rpartition(' layers')[0]} part is not known"
                in audit(config).verdict
            )


def test_a_language_model_under_any_key_is_the_text(cases):
    for key in ("lm_config", "transformer_layer_config", "language_model", "llm"):
        with cases(key):
            config = {"model_type": "of nobody", key: {"model_type": "qwen2", **SHAPE, "rope_theta": 1e6}}
            (code,) = resolved(config).codes
            assert (code.part, code.layers, code.base, code.component) == ("text", "0-3", 1e6, None)


def test_a_rope_key_beside_a_number_of_heads_makes_a_part():
    codes = resolved({"model_type": "of nobody", "attn": {"num_heads": 8, "rope_theta": 1e4}}).codes
    assert [(code.component, code.base) for code in codes] == [(None, None), ("attn", 1e4)]


def test_objects_of_other_settings_are_no_parts(cases):
    for key, values in (
        ("quantization_config", {"bits": 4, "group_size": 128}),
        ("rope_parameters", {"rope_theta": 1e4, "rope_type": "default"}),
        ("attn_config", {"rope_theta": 1e4, "alibi": False}),
        ("empty", {}),
    ):
        with cases(key):
            assert labels({"model_type": "qwen2", **SHAPE, key: values}) == ["layers 0-3"]


def test_a_file_that_only_holds_parts_has_no_text_of_its_own():
    (code,) = resolved({"name": "a model", "config": {"model_type": "qwen2", **SHAPE}}).codes
    assert (code.part, code.component, code.kind) == ("text", None, "rotary")
    found = resolved({"generator": SHAPE, "discriminator": SHAPE | {"num_hidden_layers": 2}})
    assert [code.component for code in found.codes] == ["generator", "discriminator"]


def test_a_config_inside_an_object_is_audited_as_the_config_itself(cases, published):
    """But for the places of its values: the model type, its parts, and what each runtime makes of it."""
    for name in ("gemma-3-4b", "glm-4.1v-9b", "llama-3.2-1b", "qwen2-vl-7b"):
        held = json.loads((published / "configs" / f"{name}.json").read_text(encoding="utf-8"))["config"]
        alone = audit(held).to_dict()
        for file in ({"config": held, "seed": 1}, {"model": held}):
            with cases((name, *file)):
                found = audit(file).to_dict()
                assert found["model_type"] == held["model_type"]
                assert found["source"]["model_type"] == f"config:{next(iter(file))}.model_type"
                same = ("verdict", "context")
                assert {key: found[key] for key in same} == {key: alone[key] for key in same}
                read = [(each["reader"], each["verdict"]) for each in alone["readers"]]
                assert [(each["reader"], each["verdict"]) for each in found["readers"]] == read
                parts = [(each["part"], each["base"], each["layout"]) for each in alone["layers"]]
                assert [(each["part"], each["base"], each["layout"]) for each in found["layers"]] == parts
                codes = [each["code"] for each in alone["findings"]]
                assert [each["code"] for each in found["findings"]] == codes


def test_an_object_that_repeats_the_type_of_a_model_without_parts_has_that_type():
    outer, inner = resolved({"model_type": "llama", **SHAPE, "config": {"model_type": "llama", **SHAPE}}).codes
    assert (inner.component, inner.kind, inner.layout) == ("config", "rotary", outer.layout)


def test_an_unknown_type_is_not_said_to_rotate_whole_heads(cases):
    for more, assumed in (({}, ("rotated", "rates")), ({"partial_rotary_factor": 0.5}, ()), ({"rotary_dim": 8}, ())):
        with cases(more):
            config = {"model_type": "of nobody", **SHAPE, "rope_theta": 1e4, **more}
            (code,) = resolved(config).codes
            assert code.assumed == assumed
            (layer,) = audit(config).to_dict()["layers"]
            assert layer["assumed"] == list(assumed)
    assert resolved({"model_type": "llama", **SHAPE}).codes[0].assumed == ()
