"""Values that a caller sets over those of a config: what is refused, and what a whole new block loses.

`stated/overriding_and_ignored.json` states what configs are resolved to under them.
"""

import json

import pytest

from clockhands.auditing import audit
from clockhands.configs.opened import Opened
from clockhands.configs.overriding import overridden, read_overrides
from clockhands.configs.resolve import resolve
from clockhands.errors import InvalidType, InvalidValue
from configs.expected import opened
from configs.test_gguf_metadata import gguf

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
    "max_position_embeddings": 8192, "rope_theta": 500000.0,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}


def test_the_config_that_was_opened_stays_as_it_is():
    config = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    target = opened(config)
    resolve(target, overrides={"rope_scaling.factor": 4.0, "rope_theta": 2.0})
    assert target.config == {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}


@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("rope_thet", "rope_thet cannot be set: config.json does not hold it", "Did you mean rope_theta?"),
        ("rope_scaling.facto", "rope_scaling.facto cannot be set", "Did you mean rope_scaling.factor?"),
        ("text_config.rope_theta", "config.json has no object text_config", "At this level, the file has no objects"),
        ("rope_theta.factor", "rope_theta is 500000 in config.json, not an object", "Set rope_theta itself."),
    ],
)
def test_a_place_that_is_not_there_is_refused(key, message, hint):
    with pytest.raises(InvalidValue) as caught:
        overridden(opened(LLAMA), {key: 1})
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_what_cannot_be_set_is_refused():
    with pytest.raises(InvalidValue, match=r"rope\.freq_bas cannot be set"):
        overridden(gguf(), {"rope.freq_bas": 1})
    with pytest.raises(InvalidType, match="a config holds numbers, texts"):
        overridden(opened(LLAMA), {"rope_theta": object()})
    with pytest.raises(InvalidType, match="The key of a value to override must be a string"):
        overridden(opened(LLAMA), {1: 1})  # type: ignore[dict-item]
    with pytest.raises(InvalidValue, match="fields are written behind its name"):
        overridden(Opened("vaswani2017", "preset"), {"width": 4})
    with pytest.raises(InvalidValue, match="it has no config"):
        overridden(Opened("model.safetensors", "safetensors"), {"rope_theta": 4})


def test_texts_become_json_or_stay_texts():
    texts = ["rope_theta=1e6", "a=yarn", 'b={"c": [1, null, true]}', "d=", " e =x=y", "f=Infinity"]
    assert read_overrides(texts) == {
        "rope_theta": 1e6,
        "a": "yarn",
        "b": {"c": [1, None, True]},
        "d": "",
        "e": "x=y",
        "f": float("inf"),
    }
    assert overridden(opened(LLAMA), {}) == overridden(opened(LLAMA), None) == opened(LLAMA)
    with pytest.raises(InvalidValue, match="rope_theta is set twice"):
        read_overrides(["rope_theta=1", "rope_theta=2"])
    for text in ("hf-overrides=4", "json-model-override-args=4"):
        with pytest.raises(InvalidValue, match=f"'{text}' is no JSON object"):
            read_overrides([text])
    for text in ('b={"c": 1', "b=[1, 2", 'b="c', "{rope_theta: 1e6}"):
        with pytest.raises(InvalidValue, match="which looks like JSON but is not valid"):
            read_overrides([text])
    for text in ("rope_theta", "=5"):
        with pytest.raises(InvalidValue, match="not of the form KEY=VALUE"):
            read_overrides([text])


def test_a_whole_object_is_laid_over_the_config_as_a_server_does_it():
    text = '{"text_config": {"rope_theta": 1e6, "rope_scaling": {"factor": 2}}, "rope_scaling": {"factor": 4}}'
    made = {"text_config.rope_theta": 1e6, "text_config.rope_scaling": {"factor": 2}, "rope_scaling": {"factor": 4}}
    assert (
        read_overrides([text]) == read_overrides([f"hf-overrides={text}"]) == read_overrides([f"--hf-overrides={text}"])
    )
    assert read_overrides([text]) == made
    assert read_overrides(["--rope-theta=1e6", 'rope-scaling={"factor": 4}', "max-model-len=8192"]) == {
        "rope_theta": 1e6, "rope_scaling": {"factor": 4}, "max_model_len": 8192,
    }  # fmt: skip


def test_options_of_sglang_are_taken_by_their_names():
    """Its override replaces every value whole, a part of the config too: config.update(model_override_args)."""
    text = '{"text_config": {"rope_theta": 1e6}, "rope_scaling": {"factor": 4}}'
    made = {"text_config": {"rope_theta": 1e6}, "rope_scaling": {"factor": 4}}
    assert read_overrides([f"json-model-override-args={text}"]) == made
    assert read_overrides([f"--json-model-override-args={text}", "--context-length=8192"]) == made | {
        "max_model_len": 8192
    }
    assert read_overrides(["context_length=8192"]) == {"context_length": 8192}  # a key of some configs
    nested = {"model_type": "mistral3", "text_config": {"model_type": "ministral3", "head_dim": 64, "rope_theta": 5e5}}
    whole = overridden(opened(nested), read_overrides(['json-model-override-args={"text_config": {"rope_theta": 1}}']))
    assert whole.config["text_config"] == {"rope_theta": 1}
    laid_over = overridden(opened(nested), read_overrides(['{"text_config": {"rope_theta": 1}}']))
    assert laid_over.config["text_config"] == nested["text_config"] | {"rope_theta": 1}


def test_an_override_at_a_level_that_is_not_read_is_a_warning(tmp_path):
    """Servers set a key of the outer config, and the text part never sees it."""
    text = {name: value for name, value in LLAMA.items() if name != "model_type"} | {"model_type": "ministral3"}
    config = {"model_type": "mistral3", "text_config": text | {"head_dim": 128}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = audit(tmp_path / "config.json", overrides={"rope_scaling": YARN})
    (told,) = [each for each in found.findings if each.code == "ignored-key"]
    assert (told.severity, told.edit) == ("warning", None)
    assert "--set:rope_scaling" in told.evidence
    assert "text_config" in told.hint
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": YARN}))
    found = audit(tmp_path / "config.json")
    assert [each.severity for each in found.findings if each.code == "ignored-key"] == ["note"]


def test_the_length_that_a_server_is_started_with(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "max_position_embeddings": 4096}')
    assert audit(tmp_path, overrides={"max_model_len": 8192}).asked == 8192
    assert audit(tmp_path, 100, overrides={"max_model_len": 8192}).asked == 100
    # vllm 0.33.0, human_readable_int_or_auto
    for said, length in (("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1M", 2**20), ("auto", None), (-1, None)):
        assert audit(tmp_path, overrides={"max_model_len": said}).asked == length
    for said in (1.5, "32.5K", "many"):
        with pytest.raises(InvalidValue, match="max_model_len must be a whole number above 0"):
            audit(tmp_path, overrides={"max_model_len": said})
    with pytest.raises(InvalidValue, match="model_type must be the name of a type, got 1"):
        audit(tmp_path, overrides={"model_type": 1})
    assert audit(tmp_path, overrides={"rope_scaling.mrope_interleaved": True}).layers


def test_an_audit_under_overrides(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "rope_theta": 10000.0, "rope_theta": 500000.0}')
    assert next(found.code for found in audit(path).findings) == "duplicate-key"
    found = audit(path, overrides={"rope_theta": 0})
    assert "duplicate-key" not in [each.code for each in found.findings]
    (error,) = found.errors
    assert error.code == "impossible-value"
    assert error.evidence["--set:rope_theta"] == 0
    assert found.layers[0].rates is None


def test_a_whole_new_block_of_a_file_without_a_base_and_one_key_of_a_block_lose_nothing():
    config = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    del config["rope_theta"]
    assert not overridden(opened(config), {"rope_parameters": {"rope_type": "default", "rope_theta": 1000}}).lost
    block = LLAMA | {"rope_scaling": YARN, "rope_theta": 5e5}
    assert not overridden(opened(block), {"rope_scaling.factor": 8.0, "rope_theta": 1e6}).lost


LOST = [
    ({"rope_parameters": {"rope_theta": 5e5}}, "rope_scaling", {}, "rope_parameters.rope_theta"),
    ({"rope_theta": 5e5}, "rope_scaling", {}, "rope_theta"),
    ({"rope_theta": 5e5}, "rope_parameters", {}, "rope_theta"),
    ({"rope_parameters": {"rope_theta": 5e5}}, "rope_parameters", {}, "rope_parameters.rope_theta"),
    ({"partial_rotary_factor": 0.5}, "rope_scaling", {"rope_theta": 1e6}, "partial_rotary_factor"),
]


@pytest.mark.parametrize(("values", "key", "more", "lost"), LOST)
def test_what_a_whole_new_block_leaves_out_is_lost_and_told(values, key, more, lost, tmp_path):
    """Checked with Transformers 5.23.0: it raises for Llama, and rotates whole heads for GLM."""
    config = {name: value for name, value in LLAMA.items() if name != "rope_theta"} | values
    target = overridden(opened(config), {key: {**YARN, **more}})
    assert dict(target.lost) == {
        f"config.json:{lost}": next(iter(reversed(values.values()))) if "." not in lost else 5e5
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = audit(tmp_path / "config.json", overrides={key: {**YARN, **more}})
    (told,) = [each for each in found.findings if each.code == "override-replaces-block"]
    assert told.severity == ("error" if "." in lost else "warning")
    assert lost.rpartition(".")[2] in told.hint
    assert "default-base" not in [each.code for each in found.findings]
    whole = audit(tmp_path / "config.json", overrides={key: {**YARN, "rope_theta": 5e5, "partial_rotary_factor": 0.5}})
    assert "override-replaces-block" not in [each.code for each in whole.findings]


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_block_that_is_taken_away_takes_its_base_with_it(nothing, tmp_path):
    """Transformers 5.23.0 has no base then, and raises."""
    config = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    config |= {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for key in ("rope_scaling", "rope_parameters"):
        (told,) = audit(tmp_path / "config.json", overrides={key: nothing}).errors
        assert (told.code, told.evidence["lost"]) == ("override-replaces-block", {"rope_parameters.rope_theta": 5e5})
