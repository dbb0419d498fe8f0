"""Pairs that complete a rotation within a length, and those that never do."""

import math

import numpy as np
import pytest

from clockhands.encodings.additive import FourierFeatures, SineOnly, Sinusoidal, WarpedPosition
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.rotary import Rotary
from clockhands.measures.ladders.turning import completes, turning
from clockhands.measures.subject import subject_of

SMOLLM2 = Rotary(head_width=64, base=100_000.0)


def found(spec, length, dtype="float32", values=None):
    return turning(subject_of(spec, length, dtype, values))


def test_a_wavelength_that_equals_the_length_completes_its_turn():
    """Pi is not a float64, and the product may fall short of a whole turn by a rounding."""
    for wavelength in range(1, 400):
        assert completes(2 * math.pi / wavelength, wavelength), wavelength
        assert not completes(2 * math.pi / (wavelength + 1e-6), wavelength)


def test_smollm2_has_twelve_pairs_of_thirty_two(cases):
    """Pair i needs 2 pi 10**(5 i / 32) tokens: pair 19 has 5,846 and pair 20 has 8,378, more than 8,192."""
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        with cases(dtype):
            numbers = found(SMOLLM2, 8192, dtype).numbers
            assert (numbers["never_completing"], numbers["completing"], numbers["pairs"]) == (12, 20, 32)
            assert numbers["first_never_completing"] == 20
            slowest = 2 * math.pi * 10 ** (5 * 31 / 32)
            assert numbers["slowest_wavelength"] == pytest.approx(slowest, rel=1e-14)
            assert numbers["slowest_share_of_circle"] == pytest.approx(8192 / slowest, rel=1e-14)
            assert found(SMOLLM2, 8379, dtype).numbers["never_completing"] == 11
            assert found(SMOLLM2, 2048, dtype).numbers["never_completing"] == 15


def test_the_sentence_names_the_numbers_and_short_texts_have_some():
    said = found(SMOLLM2, 8192)
    assert said.brief == "12 of 32 pairs"
    assert said.says == (
        "12 of 32 dimension pairs, from pair 20 on, never complete a rotation within 8,192 tokens; the slowest pair "
        "needs 438,460 tokens for a rotation and completes 1.9% of a rotation."
    )
    for length in (1, 2):
        assert found(Sinusoidal(width=4), length).numbers["completing"] == 0
        assert found(SineOnly(width=3), length).brief == "3 of 3 sines"


def test_pairs_that_stand_still_and_pairs_that_turn_too_fast():
    """Rates 4, 3, 1/1000 and 0: one beyond pi a token, one that needs 6,283 tokens, one that never moves."""
    spec = Rotary(head_width=8, spacing=Explicit((4.0, 3.0, 0.001, 0.0)))
    numbers = found(spec, 100).numbers
    assert (numbers["completing"], numbers["never_completing"], numbers["standing_still"]) == (2, 1, 1)
    assert numbers["more_than_half_a_turn_a_token"] == 1
    assert numbers["first_never_completing"] == 2
    assert found(spec, 100).brief == "2 of 4 pairs"
    assert found(spec, 100).says.startswith("2 of 4 dimension pairs never complete a rotation within 100 tokens;")
    assert "1 of 4 dimension pairs never rotates, because its frequency is 0." in found(spec, 100).says
    assert "1 of 4 dimension pairs never rotates" in found(spec, 7000).says
    assert found(spec, 6284).numbers["first_never_completing"] == 3
    assert found(spec, 6284).brief == "1 of 4 pairs"


def test_the_slowest_axis_is_said():
    spec = Rotary(head_width=8, axes=(0, 0, 1, 1), spacing=Explicit((1.0, 0.1, 0.5, 0.01)))
    numbers = found(spec, 100).numbers
    assert (numbers["axis"], numbers["never_completing_by_axis"]) == (1, [0, 1])
    assert numbers["first_never_completing"] == 1
    assert "the slowest pair, along axis 1, needs 628 tokens" in found(spec, 100).says


def test_a_warped_position_is_counted_by_how_far_it_runs():
    """From 1 to 101 the logarithm runs over 4.6, the square from 0 to 10,000, the reciprocal over 1 - 1/101."""
    assert found(WarpedPosition(width=8, warp="log"), 100).numbers["completing"] == 0
    assert found(WarpedPosition(width=8, warp="reciprocal"), 10**6).numbers["completing"] == 0
    square = found(WarpedPosition(width=8), 100).numbers
    assert (square["completing"], square["slowest_share_of_circle"]) == (4, pytest.approx(10 / (2 * math.pi)))
    assert found(WarpedPosition(width=8), 79).numbers["never_completing"] == 1  # 79 squared is 6,241, below 2,000 pi
    assert found(WarpedPosition(width=8, warp="log"), 534).numbers["completing"] == 0
    assert found(WarpedPosition(width=8, warp="log"), 535).numbers["completing"] == 1  # exp(2 pi) = 535.49


def test_rates_that_are_values_are_read_from_them():
    spec, rates = FourierFeatures(width=8, axes=2, multiplier=2.0), [[0.5, -0.25, 0.0, 0.001], [1.0, 1.0, 1.0, 2.0]]
    numbers = found(spec, 100, values=np.array(rates)).numbers
    assert (numbers["pairs"], numbers["completing"]) == (8, 6)
    assert (numbers["standing_still"], numbers["never_completing_by_axis"]) == (1, [1, 0])
    assert numbers["slowest_wavelength"] == pytest.approx(1000 * math.pi)
