"""What was measured of trained models, taken from the seeds of the stored results without clockhands."""

import json
from pathlib import Path
from statistics import fmean

import pytest

import clockhands.claims
from clockhands.claims import CLAIMS

STUDIES = json.loads((Path(clockhands.claims.__file__).parent / "studies.json").read_text(encoding="utf-8"))["studies"]


def seeds(study, *path):
    """The number of each seed, as it is stored: task, arm, [variant, protocol,] measure and length."""
    task, arm, *path = path
    *where, measure, length = path
    if not where:
        where = ["as trained", "whole"]
    found = STUDIES[study]["tasks"][task]["cells"][arm]
    for step in (*where, measure, str(length)):
        found = found[step]
    return found[3:]


def of_training(study, task, arm, measure):
    """The number of each seed, of a measure without a length."""
    return STUDIES[study]["tasks"][task]["training"][arm][measure][3:]


def less(one, other):
    """Differences seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def over(one, other):
    """Ratios seed by seed."""
    return [a / b for a, b in zip(one, other, strict=True)]


BY_HAND = {
    "sinusoids-extrapolate": lambda: {
        "share_of_right_copies_at_64_tokens": fmean(seeds("quick", "copy", "sinusoidal", "accuracy", 64)),
        "share_of_right_copies_at_256_tokens": fmean(seeds("quick", "copy", "sinusoidal", "accuracy", 256)),
    },
}


@pytest.mark.parametrize("name", [name for name, told in CLAIMS.items() if told.measured])
def test_what_was_measured_follows_from_the_seeds(name):
    stated = {each: number for each, number in CLAIMS[name].numbers.items() if each.startswith("measured_")}
    found = {f"measured_{each}": number for each, number in BY_HAND[name]().items()}
    assert set(found) == set(stated)
    assert {each: (found[each], stated[each].text) for each in found if not stated[each].holds(found[each])} == {}
