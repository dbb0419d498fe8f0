"""Angles that Python puts into the page, beyond what the page's own double precision reaches, against many digits."""

import json
from typing import Any

import mpmath
import pytest

from clockhands.presets import preset
from clockhands.show.explorer.data import data
from clockhands.show.explorer.precise import POSITIONS, precise

BOUND = 2.0**-50  # rad, as documented

# A rate is 10,000 to the power of minus the pair over this.
DENOMINATORS = {"vaswani2017": 256, "fairseq": 255, "whisper": 255}


def real(position: int, pair: int, denominator: int) -> Any:
    """The angle of a hand in rad, from -pi to pi."""
    with mpmath.workdps(60):
        phase = position * mpmath.power(10000, -mpmath.mpf(pair) / denominator)
        return mpmath.atan2(mpmath.sin(phase), mpmath.cos(phase))


@pytest.mark.parametrize("name", DENOMINATORS)
def test_angles_against_sixty_digits(name: str):
    found = precise([name])
    held = found["codes"][name]
    assert len(held["angles"]) == len(found["positions"]) == len(POSITIONS)
    for position, angles in zip(found["positions"], held["angles"], strict=True):
        for pair, angle in zip(held["pairs"], angles, strict=True):
            assert abs(real(position, pair, DENOMINATORS[name]) - angle) <= BOUND, (position, pair)


def test_a_double_product_would_be_seen():
    held = precise(["vaswani2017"])["codes"]["vaswani2017"]
    rates = preset("vaswani2017").rates  # type: ignore[union-attr]
    last, pair = POSITIONS[-1], held["pairs"][1]
    off = float(last) * rates[pair] - held["angles"][-1][1]
    assert abs(mpmath.sin(off / 2)) > 1e-3


def test_the_ends_of_the_ladder_are_among_the_hands_and_a_short_ladder_has_each_once():
    assert precise(["vaswani2017"])["codes"]["vaswani2017"]["pairs"] == [0, 51, 102, 153, 204, 255]
    assert precise(["gpt-neox"])["codes"]["gpt-neox"]["pairs"] == [0, 2, 4, 7, 9, 11]


def test_a_code_without_hands_has_no_angles():
    assert precise(["alibi", "bert"])["codes"] == {}


def test_positions_lie_where_the_page_trusts_itself_no_more_and_a_browser_can_say_them():
    assert min(POSITIONS) == 2**40
    assert max(POSITIONS) == 2**53 - 1
    assert list(POSITIONS) == sorted(set(POSITIONS))


def test_the_page_holds_the_code_that_it_opens_on():
    held = json.loads(json.dumps(data()))["precise"]
    assert held == precise(["vaswani2017"])
