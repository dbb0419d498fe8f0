"""Rates at the ends of what a number can be: every property has an answer, in plain JSON."""

import json
import math

import pytest

import clockhands as ch
from clockhands.ladders import Explicit

SLOWEST = 5e-324  # the smallest number above 0: a turn takes more tokens than a float64 can count
LADDERS = {
    "all as slow as can be": (SLOWEST,) * 4,
    "slow beside usual ones": (1.0, 1e-310, 0.0, SLOWEST),
    "fast": (1e18, 1e17, 1.0, 2.0),
    "still": (0.0,) * 4,
}


@pytest.mark.parametrize("length", [1, 2, 17, 512])
@pytest.mark.parametrize("rates", LADDERS.values(), ids=LADDERS.keys())
def test_every_property_has_an_answer(rates, length):
    for spec in (ch.Rotary(head_width=8, spacing=Explicit(rates)), ch.Sinusoidal(8, spacing=Explicit(rates))):
        for dtype in ("float32", "bfloat16"):
            for _, each in ch.properties(spec, length, dtype):
                json.dumps(each.to_dict(), allow_nan=False)


def test_a_wavelength_that_no_number_holds_is_said_so():
    found = ch.properties(ch.Rotary(head_width=8, spacing=Explicit(LADDERS["slow beside usual ones"])), 512)
    assert found.turning.numbers["slowest_wavelength"] is None
    assert "needs more than 1e308 tokens" in found.turning.says
    assert found.cover.numbers["longest_wavelength"] == 2 * math.pi  # of the pair that turns by 1 rad a token
