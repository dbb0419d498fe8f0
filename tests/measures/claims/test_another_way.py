"""Every number that a claim states, computed a second time without clockhands, by the formulas of formulas.toml."""

import functools
import importlib
import math
import tomllib
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from statistics import fmean

import mpmath
import numpy as np
import pytest

from clockhands.measures.claims import CLAIMS, SUBJECTS
from measures.claims import ladders, roundings

FORMULAS = tomllib.loads(Path(__file__).with_name("formulas.toml").read_text(encoding="utf-8"))
ROWS = [(subject, name) for subject, claims in FORMULAS.items() for name in claims]
# What these state without training has tests of its own in test_attention_claims.py, or is no number to compute again.
ELSEWHERE = {each.id for title in ("Attention and order", "Trained models") for each in SUBJECTS[title]}
PLAIN = {"math": math, "np": np, "Fraction": Fraction, "combinations": combinations, "fmean": fmean}


@functools.cache
def names_of(subject):
    """What the formulas of a subject may use: the later goes before the earlier."""
    own = importlib.import_module(f"measures.claims.{subject}")
    return vars(mpmath) | vars(roundings) | PLAIN | vars(ladders) | vars(own)


def computed(subject, name):
    """The numbers of a claim by their formulas."""
    numbers = {}
    for number, formula in FORMULAS[subject][name].items():
        found = eval(formula, dict(names_of(subject)))
        numbers |= found if number == "*" else {number: found}
    return {f"measured_{number}" if subject == "trained" else number: each for number, each in numbers.items()}


def plain(number):
    """A bool, an int or a float, of NumPy's numbers and mpmath's."""
    if isinstance(number, bool | int):
        return number
    return number.item() if type(number).__module__ == "numpy" else float(number)


def agree(name, numbers):
    """Assert that the numbers are those that a claim states: what was measured of trained models, or the others.

    What is zero but for rounding has no other way to be computed, and is left out.
    """
    measured = any(each.startswith("measured_") for each in numbers)
    stated = {
        each: number
        for each, number in CLAIMS[name].numbers.items()
        if not number.limit and each.startswith("measured_") == measured
    }
    assert set(numbers) == set(stated)
    found = {each: plain(number) for each, number in numbers.items()}
    assert {each: (found[each], stated[each].text) for each in found if not stated[each].holds(found[each])} == {}


def test_another_way_gives_the_same_for_a_sample(cases, draw):
    with mpmath.workdps(40):
        for subject, name in draw(ROWS, 12):
            with cases(subject, name):
                agree(name, computed(subject, name))


@pytest.mark.slow
def test_another_way_gives_the_same(cases):
    with mpmath.workdps(40):
        for subject, name in ROWS:
            with cases(subject, name):
                agree(name, computed(subject, name))


def test_no_claim_is_left_out():
    of_training = {name for name, told in CLAIMS.items() if all(each.startswith("measured_") for each in told.numbers)}
    computed_here = sorted(name for subject, name in ROWS if subject != "trained")
    assert computed_here == sorted(set(CLAIMS) - ELSEWHERE - of_training)
    assert set(FORMULAS["trained"]) == {name for name, told in CLAIMS.items() if told.measured}


@pytest.mark.parametrize(
    ("subject", "name", "number", "wrong"),
    [
        ("ladders", "divisor-9956", "divisor_by_the_paper", mpmath.mpf(9956)),
        ("tables", "positions-in-bfloat16", "distinct_of_4096_in_bfloat16", 768),
        ("projections", "scores-are-content", "crossed_at_deviation_1", 0.455),
        ("scores", "t5-base-1000", "buckets", 31),
    ],
)
def test_another_number_does_not_agree(subject, name, number, wrong):
    with pytest.raises(AssertionError, match=number):
        agree(name, computed(subject, name) | {number: wrong})


def test_the_roundings_are_those_of_the_formats():
    assert (roundings.single(1 + 2**-24), roundings.single(1 + 3 * 2**-25)) == (1.0, 1 + 2**-23)
    assert (roundings.half(2049), roundings.brain(257), roundings.brain(259)) == (2048, 256, 260)
