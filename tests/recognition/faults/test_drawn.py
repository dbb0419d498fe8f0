"""Faults drawn at random are caught and named, and what is wrong at one place only is caught.

The draw is seeded. What is named is printed as a table of confusions: the fault, and what it was called.
"""

import importlib.util
import random
from collections import Counter

import numpy as np
import pytest

import clockhands as ch
from clockhands.testing import check_rotary
from recognition.faults import drawn
from recognition.faults.rows import arrays_of, expected
from recognition.faults.written import rotated

# JAX compiles for every shape, so it gets few.
LIBRARIES = [name for name in ("numpy", "torch") * 4 + ("jax",) if importlib.util.find_spec(name)]


def missed_and_misnamed(number, seed, frameworks):
    """Of so many faults, as two lists of sentences; prints the confusions."""
    draw, missed, misnamed, confusions = random.Random(seed), [], [], Counter()
    for turn in range(number):
        framework = frameworks[turn % len(frameworks)]
        row, asked = drawn.fault(draw, framework)
        report = row.report(framework, **asked)
        called = " | ".join(report.explanations[0].codes) if report.explanations else "nothing known"
        if report.sound:
            missed.append(f"{row.name} {framework} {asked}")
        elif not expected(report, row.codes):
            misnamed.append(f"{row.name} {framework} {asked}: {called}")
        confusions["/".join(sorted(row.codes)), "sound" if report.sound else called] += 1
    print()
    for (code, called), times in sorted(confusions.items()):
        print(f"{times:4d}  {code:32s} {called}")
    return missed, misnamed


def test_a_few_random_faults_are_caught_and_named():
    assert missed_and_misnamed(3, 14, LIBRARIES[:2]) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2026, 1989])
def test_two_hundred_random_faults_are_caught_and_named(seed):
    missed, misnamed = missed_and_misnamed(200, seed, LIBRARIES)
    assert missed == []
    assert len(misnamed) <= 10, "\n".join(misnamed)


PLACES = [
    ("numpy", "halves"),
    ("torch", "interleaved"),
    *(pytest.param(*place, marks=pytest.mark.slow) for place in (("torch", "halves"), ("jax", "interleaved"))),
]


@pytest.mark.parametrize(("framework", "layout"), PLACES)
def test_one_pair_at_one_position_of_ten_thousand_is_caught(framework, layout):
    """Turned as one further on."""
    xp, draw, spec = arrays_of(framework), random.Random(f"{framework} {layout}"), ch.Rotary(64, layout)
    pair, position = draw.randrange(8), draw.randrange(10_000)
    channels = (pair, pair + 32) if layout == "halves" else (2 * pair, 2 * pair + 1)
    its = xp.asarray(np.isin(np.arange(64), channels))

    def wrong(x, positions, position=position):
        here = (positions == position)[..., None] & its
        return xp.where(here, rotated(x, positions + 1, spec, xp), rotated(x, positions, spec, xp))

    report = check_rotary(wrong, spec, backend=framework, raises=False)
    assert "one-number-wrong" in report.codes
    told = " ".join(str(report).split())
    assert f"position {position:,}, in dimensions {channels[0]}, {channels[1]}" in told
    assert check_rotary(lambda x, at: wrong(x, at, 123_456), spec, backend=framework, raises=False).sound
