"""Right functions pass, whatever their style, dtype and library; and what is wrong at one place only is caught."""

import random

import numpy as np
import pytest

import clockhands as ch
from clockhands.testing import check_rotary
from faults import right_functions
from faults.right_functions import fly
from faults.rows import arrays_of, cast
from faults.test_random_faults import judged, present

QUICK = {("numpy", "halves"), ("torch", "interleaved")}
PLACES = [
    pytest.param(framework, layout, marks=[] if (framework, layout) in QUICK else pytest.mark.slow)
    for framework in ("numpy", "torch", "jax")
    for layout in ("halves", "interleaved")
]
KINDS = ("drawn_rotary", "drawn_rotary", "drawn_rotary", "drawn_additive", "drawn_bias")


class _Right:
    def __init__(self, kind, spec, options):
        self.kind, self.spec, self.options = kind, spec, options


def sweep(number, seed, frameworks):
    """The reports on right functions that fail."""
    draw, failed = random.Random(seed), []
    for turn in range(number):
        framework = frameworks[turn % len(frameworks)]
        name, kind, spec, options = getattr(right_functions, draw.choice(KINDS))(draw, framework)
        report = judged(_Right(kind, spec, options), framework)
        if not report.sound:
            failed.append(f"{name}\n{report}")
    return failed


def test_a_few_right_functions_pass():
    assert sweep(6, 14, present(("numpy", "torch"))) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2026, 1989])
def test_two_hundred_right_functions_pass(seed):
    failed = sweep(200, seed, present())
    assert failed == [], "\n\n".join(failed)


def _wrong_at(spec, xp, pair, position, by=1):
    """Right, but for this pair at this position, which is turned as one further on."""
    right = fly(spec, xp)
    channels = (pair, pair + spec.rotated // 2) if spec.layout == "halves" else (2 * pair, 2 * pair + 1)
    its = xp.asarray([channel in channels for channel in range(spec.head_width)])

    def forward(x, positions):
        here = (positions == position)[..., None] & its
        return xp.where(here, right(x, positions + by), right(x, positions))

    return forward


@pytest.mark.parametrize(("framework", "layout"), PLACES)
def test_one_pair_at_one_position_of_ten_thousand_is_caught(framework, layout):
    xp, draw = arrays_of(framework), random.Random(f"{framework} {layout}")
    spec = ch.Rotary(64, layout)
    for _ in range(2):
        pair, position = draw.randrange(8), draw.randrange(10_000)
        report = check_rotary(_wrong_at(spec, xp, pair, position), spec, backend=framework, raises=False)
        assert not report.sound, f"pair {pair} is wrong at position {position}"
        assert "one-number-wrong" in report.codes
        channels = (pair, pair + 32) if layout == "halves" else (2 * pair, 2 * pair + 1)
        told = " ".join(str(report).split())
        assert f"position {position:,}, in dimensions {channels[0]}, {channels[1]}" in told


def test_the_right_twin_of_that_passes():
    spec = ch.Rotary(64)
    assert check_rotary(_wrong_at(spec, np, 3, 123_456), spec, raises=False).sound


def _off_at(spec, xp, by, position=7_777, channel=5):
    """Right, but for one channel at one position, off by so much."""
    right = fly(spec, xp, double=True)
    its = xp.asarray([float(number == channel) for number in range(spec.head_width)])

    def forward(x, positions):
        here = cast(xp, (positions == position)[..., None], "float32") * cast(xp, its, "float32")
        return right(x, positions) + by * here

    return forward


# Right to float64 but there: JAX has no such numbers.
@pytest.mark.parametrize(("framework", "layout"), PLACES[:4])
def test_twice_what_is_allowed_at_one_place_is_caught(framework, layout):
    """What is allowed there is read from a report: an error that is large, as a share of it."""
    xp, spec, large = arrays_of(framework), ch.Rotary(64, layout), 1.0

    def asked(by):
        return check_rotary(_off_at(spec, xp, by), spec, backend=framework, raises=False)

    allowed = large / asked(large).worst
    assert 0 < allowed < 0.02
    assert not asked(2 * allowed).sound
    assert asked(allowed / 2).sound
