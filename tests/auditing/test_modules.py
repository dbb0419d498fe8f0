"""Loaded models of many families: sound ones have no fault, and each of the public faults is named, with its layers."""

import json

import pytest

import clockhands as ch
from auditing import loaded_models as models

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch


def firing(audited):
    return [found for found in audited.findings if found.severity != "note"]


def told(audited):
    """Code to layers of what fires, each as often as it stands there."""
    return sorted((found.code, found.layers) for found in firing(audited))


@pytest.mark.parametrize("name", models.FAMILIES)
def test_a_sound_model_has_no_fault(name):
    audited = ch.audit(models.model_of(name))
    assert [(found.code, found.message) for found in firing(audited)] == []
    assert audited.target.endswith("Model (loaded)")
    assert audited.model_type == name
    json.dumps(audited.to_dict(), allow_nan=False)


def made_in_bfloat16(name):
    model = models.transformers().AutoModel.from_config(models.config_of(name), dtype=torch.bfloat16)
    assert next(model.parameters()).dtype == torch.bfloat16
    return model


# Three classes of Transformers 5.23.0 compute their tables with the default type, which `dtype=` sets meanwhile.
ROUNDED_AS_MADE = {"gptj": "buffer-rounded", "codegen": "buffer-rounded", "whisper": "table-differs"}


@pytest.mark.parametrize("name", [name for name in models.FAMILIES if name not in ROUNDED_AS_MADE])
def test_a_model_made_in_bfloat16_is_sound(name):
    assert [(found.code, found.message) for found in firing(ch.audit(made_in_bfloat16(name)))] == []


@pytest.mark.parametrize(("name", "code"), ROUNDED_AS_MADE.items())
def test_a_table_that_was_made_in_bfloat16_is_told(name, code):
    model, right = made_in_bfloat16(name), models.model_of(name)
    find = "encoder.embed_positions.weight" if name == "whisper" else "h.0.attn.embed_positions"
    tables = [{**dict(each.named_buffers()), **each.state_dict()}[find].float() for each in (model, right)]
    assert (tables[0] - tables[1]).abs().max() > 0.1, "the library has mended it: take the family out of this list"
    assert [found.code for found in firing(ch.audit(model))] == [code]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ["llama", "gemma3_text", "phi3", "gptj", "whisper", "m2m_100", "bert", "esm"])
def test_a_model_loaded_in_any_type_is_sound(name, dtype, tmp_path):
    models.model_of(name).save_pretrained(tmp_path)
    model = models.transformers().AutoModel.from_pretrained(tmp_path, dtype=dtype)
    assert next(model.parameters()).dtype == dtype
    assert [(found.code, found.message) for found in firing(ch.audit(model))] == []


@pytest.mark.parametrize("name", models.TURNING)
def test_rates_that_nobody_filled_are_named_with_their_layers(name):
    family = models.FAMILIES[name]
    expected = [("buffer-uninitialised", layers) for layers in family.ladders.values()]
    if family.written:  # the checkpoint brings the rates, and not the numbers of positions
        expected = [("buffer-uninitialised", None)]
    assert told(ch.audit(models.emptied(name))) == sorted(expected)


@pytest.mark.parametrize("name", models.TURNING)
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (models.recycled, "buffer-uninitialised"),
        (models.zeroed, "buffer-zero"),
        (models.first_wrong, "buffer-uninitialised"),
        (models.cast, "buffer-rounded"),
    ],
    ids=["recycled", "zeroed", "first", "cast"],
)
def test_wrong_rates_are_named_with_their_layers(name, fault, code):
    expected = [(code, layers) for layers in models.FAMILIES[name].ladders.values()]
    assert told(ch.audit(fault(name))) == sorted(expected)


@pytest.mark.parametrize("name", [name for name in models.TURNING if models.FAMILIES[name].scaled])
def test_a_repair_that_forgot_the_scaling_is_named_with_its_layers(name):
    family = models.FAMILIES[name]
    expected = [("buffer-unscaled", family.ladders[buffer]) for buffer in family.scaled]
    audited = ch.audit(models.repaired_without_scaling(name))
    assert told(audited) == sorted(expected)
    evidence = firing(audited)[0].evidence
    assert evidence["effective factor"] == 1
    assert evidence.get("declared factor", 8.0) > 1


LATE = [name for name in models.TURNING if not models.FAMILIES[name].scaled and name not in ("esm", "gemma4_text")]


@pytest.mark.parametrize("name", LATE)
def test_a_scaling_that_came_too_late_is_named_with_its_layers(name):
    expected = [("scaling-inert", layers) for layers in models.FAMILIES[name].ladders.values()]
    audited = ch.audit(models.configured_late(name))
    assert [each for each in told(audited) if each[0] == "scaling-inert"] == sorted(expected)
    evidence = [found.evidence for found in firing(audited) if found.code == "scaling-inert"]
    assert [each["declared factor"] for each in evidence] == [4] * len(expected)
