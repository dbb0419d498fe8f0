"""Single faults drawn at random are all caught, and named rightly or within the group that the report states.

The draw is seeded. What is named is printed as a table of confusions: the fault, and what it was called.
"""

import random
from collections import Counter

import pytest

from clockhands import testing
from faults.drawn_faults import drawn
from faults.rows import expected


def judged(one, framework):
    check, options = getattr(testing, f"check_{one.kind}"), dict(one.options)
    if "make" in options:
        return check(like=one.spec, backend=framework, raises=False, **options)
    return check(options.pop("fn"), one.spec, backend=framework, raises=False, **options)


def sweep(number, seed, frameworks):
    """How many are missed or misnamed of so many faults, as two lists of sentences; prints the confusions."""
    draw, missed, misnamed, confusions = random.Random(seed), [], [], Counter()
    for turn in range(number):
        framework = frameworks[turn % len(frameworks)]
        one = drawn(draw, framework)
        report = judged(one, framework)
        called = " | ".join(report.explanations[0].codes) if report.explanations else "nothing known"
        if report.sound:
            missed.append(f"{one.about} ({'/'.join(sorted(one.codes))})")
            called = "sound"
        elif not expected(report, one.codes):
            misnamed.append(f"{one.about} ({'/'.join(sorted(one.codes))}): {called}")
        confusions[one.fault, called] += 1
    print()
    for (fault, called), times in sorted(confusions.items()):
        print(f"{times:4d}  {fault:32s} {called}")
    return missed, misnamed


def present(names=("numpy", "torch", "jax")):
    found = []
    for name in names:
        try:
            __import__(name)
        except ImportError:
            continue
        found.append(name)
    return found


def test_a_few_random_faults_are_caught_and_named():
    missed, misnamed = sweep(6, 14, present(("numpy", "torch")))
    assert missed == []
    assert misnamed == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2026, 1989])
def test_two_hundred_random_faults_are_caught_and_named(seed):
    missed, misnamed = sweep(200, seed, present())
    assert missed == []
    assert len(misnamed) <= 10, "\n".join(misnamed)
