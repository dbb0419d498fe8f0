"""`check_positions`: every seeded fault is named, nothing sound is, and what is unknown is said to be unknown."""

import numpy as np
import pytest

from clockhands.recognition.token_positions import FAMILIES, rules_of
from clockhands.testing import check_positions
from testing.positions import rope_indices
from testing.positions.written_positions import GRID_FAULTS, IMAGE_FAULTS, TEXT_FAULTS, TIME_FAULTS, Numbering

WRITTEN = [family for family, rules in FAMILIES.items() if not rules[0].latent]


def faults_of(family):
    """The seeded faults of a family, with the code of each."""
    rule = rules_of(family)[0]
    if rule.image == "none":
        return TEXT_FAULTS
    if rule.image == "text":
        return IMAGE_FAULTS
    timed = TIME_FAULTS if rule.per_second else {} if rule.frames_apart else {"twice the time": "time-step"}
    return {**GRID_FAULTS, **timed}


@pytest.mark.parametrize("family", WRITTEN)
def test_a_sound_function_is_sound(family):
    report = check_positions(Numbering(family), like=family, raises=False)
    assert report.sound, str(report)
    assert len(report.experiments) >= 5


@pytest.mark.parametrize("family", WRITTEN)
def test_every_seeded_fault_is_named(family, cases):
    for fault, code in faults_of(family).items():
        with cases(family, fault):
            report = check_positions(Numbering(family, fault), like=family, raises=False)
            assert not report.sound
            assert report.codes == {code}, str(report)


@pytest.mark.parametrize("family", rope_indices.FAMILIES)
def test_the_function_of_transformers_is_sound(family):
    report = check_positions(rope_indices.rope_index(family), like=family, raises=False)
    assert report.sound, str(report)
    assert report.called["library"] == "torch"
    assert "a video" in report.experiments


def test_an_unknown_fault_is_not_named():
    sound = Numbering("qwen2_vl")

    def odd(input_ids, attention_mask, image_grid_thw, mm_token_type_ids, document_ids):
        given = {"mm_token_type_ids": mm_token_type_ids, "document_ids": document_ids}
        out = sound(input_ids, attention_mask, image_grid_thw, **given)
        return out + (np.arange(out.shape[-1]) % 7 == 5)

    report = check_positions(odd, like="qwen2_vl", raises=False)
    assert not report.sound
    assert report.explanations == ()
    assert "No known fault" in str(report)
    assert report.failures[0].evidence["token"] == 5
