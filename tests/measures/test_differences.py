"""Differences of two ladders: published figures, and a direct count beside each closed form."""

import math

import numpy as np
import pytest

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Llama3
from clockhands.errors import InvalidValue
from clockhands.measures import difference, distances

LLAMA_3_1 = Llama3(factor=8, original=8192)


def test_a_lost_base_and_scaling_turn_the_slowest_pair_of_a_head_of_64_by_354_times_too_fast():
    # MarinFold#198: base 500,000 with factor 8 read as base 10,000 without.
    lost, right = Rotary(64, base=1e4), Rotary(64, base=5e5, scaling=LLAMA_3_1)
    found = difference(lost.rates, right.rates)
    assert found.ratio == pytest.approx(8 * 50 ** (62 / 64), rel=1e-12)
    assert round(found.ratio) == 354
    assert (found.ratio_pair, found.first, found.last) == (31, 1, 31), "pair 0 turns by 1 rad/token whatever the base"


def test_the_closed_forms_are_what_rotations_do():
    ours, theirs = Rotary(16, base=100.0), Rotary(16, base=120.0)
    found = difference(ours.rates, theirs.rates)
    for distance in (1, 7, 300):
        angles = [distance * (mine - other) for mine, other in zip(ours.rates, theirs.rates, strict=True)]
        assert found.phase_error(distance) == pytest.approx(max(map(abs, angles)), rel=1e-12)
        # A vector of equal length on every pair, turned by the one and back by the other.
        turned = np.exp(1j * np.array(angles))
        assert found.mean_cosine(distance) == pytest.approx(turned.mean().real, rel=1e-12)


def test_the_first_distance_that_is_too_far_off_is_the_first():
    found = difference((1.0, 0.1), (1.0, 0.13))
    for radians in (0.1, 1.0, 3.0):
        reached = found.reaches(radians)
        assert reached is not None
        assert found.phase_error(reached) > radians >= found.phase_error(reached - 1)


def test_what_is_a_difference_of_ladders_and_what_is_none():
    rates = Rotary(128, base=1e6).rates
    found = difference(rates, rates)
    assert found.same
    assert found.same_rates
    assert (found.first, found.ratio, found.reaches(0.1), found.mean_cosine(10**6)) == (None, 1.0, None, 1.0)
    rates = np.array(Rotary(8, base=1e4).rates)
    assert difference(rates, rates * (1 + 4e-16)).same
    assert not difference(rates, rates * (1 + 1e-9)).same
    found = difference((1.0, 0.1), (1.0, 0.0))
    assert found.ratio == math.inf
    assert found.drift == 0.1
    assert difference((1.0, 0.0), (1.0, 0.0)).same


def test_factors_are_compared_up_to_the_digits_that_files_hold():
    rates = (1.0, 0.5)
    assert difference(rates, rates, factor=1.1386294361, other_factor=1.138629436111989).same
    found = difference(rates, rates, factor=1.2, other_factor=1.0)
    assert not found.same
    assert found.same_rates
    assert found.factor_ratio == 1.2


def test_ladders_of_other_lengths_are_refused(cases):
    for others in ((1.0,), ()):
        with cases(others):
            with pytest.raises(InvalidValue, match="compared pair by pair") as refused:
                difference((1.0, 0.1), others)
            assert "the same number of RoPE dimensions" in refused.value.hint


def test_distances_hold_the_context_and_what_is_beyond():
    assert distances(131_072)[-3:] == (65_536, 131_072, 524_288)
    assert distances(1) == (1, 4)


def test_angles_are_compared_on_the_circle():
    found = difference((1.0, 0.5), (1.0, 0.25))
    for distance in (1, 4, 12, 13, 1000, 10**6):
        angle = 0.25 * distance
        assert found.angle_error(distance) == pytest.approx(abs(math.remainder(angle, 2 * math.pi)), abs=1e-6)
        assert found.angle_error(distance) <= math.pi
