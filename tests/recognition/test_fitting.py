"""Ladders from measured rates: what is found has the rates, and is what people would write."""

import math

import numpy as np
import pytest

from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric
from clockhands.encodings.scaling import Linear, Llama3, LongRope, Ntk, Proportional, Yarn
from clockhands.errors import InvalidValue
from clockhands.recognition import fit_ladder

EPSILON = 2.0**-24
DIVISORS = tuple(round(1 + 0.02 * pair**1.5, 2) for pair in range(32))


def made(spacing, scaling=None, pairs=32, channels=None):
    ladder = spacing.ladder(pairs, 2 * pairs if channels is None else channels)
    return ladder if scaling is None else scaling(ladder)


def measured(ladder, seed=0, epsilon=EPSILON):
    """Rates as float32 arithmetic leaves them, with the bound on their error."""
    rates = np.array(ladder.rates)
    noise = np.random.default_rng(seed).uniform(-1, 1, len(rates))
    return rates * (1 + epsilon * noise), 4 * epsilon * rates + 1e-13


WRITTEN = {
    "the paper's": (Geometric(), None),
    "another base": (Geometric(500_000.0), None),
    "closed": (Geometric(span="closed"), None),
    "no round base": (Geometric(9_646.62), None),
    "rising": (Geometric(0.8, 1.0), None),
    "in turns": (Geometric(100.0, multiplier=2 * math.pi), None),
    "even steps": (EvenSteps(1.0, 16.0, math.pi), None),
    "linear": (Geometric(), Linear(4.0)),
    "linear on another base": (Geometric(30_000.0), Linear(2.5)),
    "proportional": (Geometric(1e6), Proportional(0.25)),
    "proportional and slowed": (Geometric(1e6), Proportional(0.5, 8.0)),
    "yarn": (Geometric(), Yarn(8.0, 4_096)),
    "yarn, other turns": (Geometric(), Yarn(8.0, 4_096, 30.0, 3.0)),
    "yarn without rounding": (Geometric(150_000.0), Yarn(32.0, 4_096, truncate=False)),
    "yarn without a factor": (Geometric(), Yarn(40.0, 4_096, attention_factor=1.0)),
    "yarn with a factor of its own": (Geometric(), Yarn(40.0, 4_096, attention_factor=1.25)),
    "llama 3": (Geometric(500_000.0), Llama3(8.0, 8_192)),
    "llama 3, a step": (Geometric(500_000.0), Llama3(16.0, 8_192, 1.0, 1.0)),
    "llama 3, other turns": (Geometric(), Llama3(4.0, 2_048, 2.0, 6.0)),
}


def test_the_first_is_what_was_written_and_every_one_has_the_rates(cases):
    for pairs in (32, 64):
        for name, (spacing, scaling) in WRITTEN.items():
            with cases(pairs, name):
                ladder = made(spacing, scaling, pairs)
                rates, bounds = measured(ladder)
                fits = fit_ladder(rates, bounds, attention_factor=ladder.attention_factor)
                assert (fits[0].spacing, fits[0].scaling) == (spacing, scaling)
                assert isinstance(fits[-1].spacing, Explicit)
                for fit in fits:
                    again = made(fit.spacing, fit.scaling, pairs)
                    assert (np.abs(np.array(again.rates) - rates) <= bounds).all()
                    assert again.attention_factor == pytest.approx(ladder.attention_factor, abs=1e-6)


def test_numbers_are_shortened_only_within_what_was_measured():
    rates = np.array(made(Geometric(10_001.0)).rates)
    assert fit_ladder(rates, 1e-3 * rates)[0].spacing == Geometric(10_000.0)
    assert fit_ladder(rates, 1e-7 * rates)[0].spacing == Geometric(10_001.0)


def test_a_raised_base_is_a_base_with_its_other_name_beside_it():
    ladder = made(Geometric(), Ntk(4.0))
    fits = fit_ladder(*measured(ladder))
    assert fits[0].scaling is None
    assert isinstance(fits[0].spacing, Geometric)
    assert fits[0].spacing.base == pytest.approx(10_000 * 4 ** (32 / 31), rel=1e-6)
    assert (Geometric(), Ntk(4.0)) in [(fit.spacing, fit.scaling) for fit in fits]


def test_divisors_one_by_one():
    ladder = made(Geometric(), LongRope(DIVISORS, DIVISORS, 4_096, 32.0))
    fit = fit_ladder(*measured(ladder), attention_factor=ladder.attention_factor)[0]
    assert fit.spacing == Geometric()
    assert fit.scaling == LongRope(DIVISORS, DIVISORS, 4_096, 32.0)
    assert dict(fit.undetermined).keys() == {"long"}


def test_rates_of_no_rule_stay_explicit():
    rates = np.sort(np.random.default_rng(5).uniform(0, 1, 16))[::-1]
    fits = fit_ladder(rates, 1e-7)
    assert [fit.spacing for fit in fits] == [Explicit(tuple(rates))]


@pytest.mark.filterwarnings("error")
def test_noise_in_place_of_frequencies_stays_explicit_without_a_warning(cases):
    """Far above the ladder, and with a difference beyond floats."""
    for rates in ([1.0, 1.5e-15, 6e-45, 2.5e294, 6e-07], [1.0, 1.5e-175, 2e147]):
        for bound in (6e-8, 1e-4, 3e-3):
            with cases(rates, bound):
                assert fit_ladder(np.array(rates), np.array(rates) * bound)[-1].spacing == Explicit(tuple(rates))


def test_one_wrong_rate_is_no_geometric_ladder():
    rates, bounds = measured(made(Geometric()))
    rates[20] *= 1.001
    assert all(not isinstance(fit.spacing, Geometric) for fit in fit_ladder(rates, bounds))


def test_an_exponent_over_the_whole_head():
    rates, bounds = measured(made(Geometric(span=32.0), pairs=8))
    fits = fit_ladder(rates, bounds, whole=64)
    assert fits[0].spacing == Geometric(span=32.0)
    # The same ladder by the rotated channels' own exponent, base 10: both are said.
    assert Geometric(10.0) in [fit.spacing for fit in fits]


def test_fast_hands_that_made_turns_unseen_follow_from_the_slow_ones():
    ladder = made(Geometric(100.0, multiplier=2 * math.pi))
    seen = np.array(ladder.rates)
    seen = seen - 2 * math.pi * np.round(seen / (2 * math.pi))
    fits = fit_ladder(seen, 1e-8, modulo=2 * math.pi)
    assert fits[0].spacing == Geometric(100.0, multiplier=2 * math.pi)
    assert all(isinstance(fit.spacing, Explicit) for fit in fit_ladder(np.abs(seen), 1e-8))


def test_lengths_that_the_rates_do_not_tell_are_said():
    ladder = made(Geometric(), Yarn(8.0, 4_096))
    fit = fit_ladder(*measured(ladder), attention_factor=ladder.attention_factor)[0]
    low, high = dict(fit.undetermined)["original"]
    assert low < 4_096 < high
    for original in (math.ceil(low), math.floor(high)):
        assert made(Geometric(), Yarn(8.0, original)).rates == ladder.rates
    for original in (math.floor(low), math.ceil(high)):
        assert made(Geometric(), Yarn(8.0, original)).rates != ladder.rates


def test_impossible_rates_are_refused():
    for rates, bound, words in (
        ([1.0, -0.1], 1e-6, "and not negative"),
        ([], 1e-6, "and not negative"),
        ([1.0], 0.0, "and positive"),
    ):
        with pytest.raises(InvalidValue, match=f"finite {words}"):
            fit_ladder(rates, bound)


def test_a_first_rate_larger_than_any_number_is_none():
    """The slow pairs alone give the fall, and 300 pairs before them would have rates up to e**2000."""
    rates = np.array([0.1] * 300 + [1e-3, 1e-6])
    assert all(isinstance(fit.spacing, Explicit) for fit in fit_ladder(rates, 1e-9, modulo=2 * math.pi))
