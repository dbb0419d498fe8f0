"""Ladders against real numbers, and what cannot be a ladder."""

import copy
import pickle
from decimal import Decimal, getcontext, localcontext

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from clockhands.encodings import ladders
from clockhands.encodings.ladders import EvenSteps, Geometric, Ladder, evenly_spaced, explicit, geometric
from clockhands.errors import InvalidValue
from oracles import real_numbers, sentences
from oracles.real_numbers import worst_relative

# Stored with 60 digits: half a unit of the last is 5e-60 at most.
ROUNDING = 5.01e-60
BASES = st.floats(1e-4, 1e9).filter(lambda base: abs(base - 1) > 1e-6)


SPANS = st.sampled_from(["open", "closed"]) | st.floats(0.5, 1e4)


@given(st.integers(1, 200), BASES, SPANS, st.floats(1e-6, 1e6))
@example(1, 10_000.0, "open", 1.0)
@example(128, 1e9, "open", 1.0)
@example(2, 10_000.0, "closed", 1.0)
@settings(max_examples=200)
def test_geometric_of_any_span_is_the_real_number(pairs, base, span, multiplier):
    assume(pairs > 1 or span != "closed")
    wanted = real_numbers.geometric(pairs, base, {"open": pairs, "closed": pairs - 1}.get(span, span), multiplier)
    if max(wanted) < 2**63:
        got = geometric(pairs, base, span, multiplier)
        assert got.pairs == pairs
        assert worst_relative(got.exact, wanted) <= ROUNDING


@given(st.integers(1, 100), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-3, 1e3))
@example(2, 1.0, 2.8480090820547786e-58, 1.0)
@example(2, 1e6, 5e-324, 1.0)
def test_even_steps_are_the_real_numbers(pairs, first, last, multiplier):
    got = evenly_spaced(pairs, first, last, multiplier)
    steps = max(pairs - 1, 1)
    with mp.workdps(800):  # this difference may be of numbers 600 digits apart
        wanted = [mpf(multiplier) * (mpf(first) + (mpf(last) - mpf(first)) * i / steps) for i in range(pairs)]
    assert worst_relative(got.exact, wanted) <= ROUNDING
    assert got.rates[0] == pytest.approx(first * multiplier)
    if pairs > 1:
        assert got.rates[-1] == pytest.approx(last * multiplier)


@given(st.lists(st.floats(0, 9e18, allow_subnormal=True), min_size=1, max_size=9))
def test_explicit_rates_are_the_numbers_that_their_floats_hold(rates):
    got = explicit(rates)
    assert got.rates == tuple(rates)
    assert worst_relative(got.exact, [mpf(rate) for rate in rates]) <= ROUNDING


def test_the_check_of_rates_can_fail():
    wanted = real_numbers.geometric(4)
    assert worst_relative(geometric(4).rates, wanted) > 1e-20
    assert worst_relative(geometric(4, 10_001.0).exact, wanted) > 1e-5
    assert worst_relative(Ladder((Decimal(1), Decimal("1e-30"))).exact, [mpf(1), mpf(0)]) > 0


def test_the_width_decides_the_denominator():
    # An odd width: 33 hands of which the last has one channel, on the ladder of 65.
    rate = mp.power(10_000, -mpf(2) / 65)
    assert worst_relative(Geometric().ladder(33, 65).exact[1:2], [rate]) <= ROUNDING
    assert worst_relative(Geometric(span="closed").ladder(3, 7).exact, real_numbers.geometric(3, 1e4, 2)) <= ROUNDING
    assert Geometric().denominator(65) == Decimal("32.5")
    assert Geometric(span="closed").denominator(65) == 31
    assert Geometric(span=7.5).denominator(65) == Decimal("7.5")
    assert Geometric(span="closed").denominator(4) == 1


def test_two_pi_is_right():
    with mp.workdps(110):
        assert abs(mpf(str(ladders.TWO_PI)) / (2 * mp.pi) - 1) < mpf(10) ** -ladders.WORKING


# --- what a ladder shows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ladder", "rates"),
    [
        (geometric(40), real_numbers.geometric(40)),
        (explicit([9.2e18, 7.0, 1e-300, 0.0]), [mpf(9.2e18), mpf(7), mpf(1e-300), mpf(0)]),
    ],
)
def test_turns_are_the_nearest_in_fixed_point(ladder, rates):
    turns = ladder.turns
    for whole, high, low, rate in zip(*turns, rates, strict=True):
        fixed = (int(whole) << 128) + (int(high) << 64) + int(low)
        assert abs(fixed - rate / (2 * mp.pi) * mpf(2) ** 128) <= mpf("0.501")
    for limb in turns:
        assert limb.dtype == np.uint64
        assert limb.shape == (ladder.pairs,)
        assert not limb.flags.writeable
        assert limb.flags.c_contiguous
    assert turns is ladder.turns


def test_the_callers_decimal_context_changes_nothing():
    right = geometric(5, 123.0)
    with localcontext() as context:
        context.prec = 5
        context.Emax = 10
        context.rounding = "ROUND_UP"
        for trap in context.traps:
            context.traps[trap] = True
        coarse = geometric(5, 123.0)
        assert coarse == right
        assert coarse.turns.low.tolist() == right.turns.low.tolist()
        assert explicit([1 / 3, 2.0]).rates == (1 / 3, 2.0)
        assert EvenSteps(0.0, 1 / 3).ladder(4, 8) == EvenSteps(0.0, 1 / 3).ladder(4, 8)
        assert getcontext().prec == 5
    assert worst_relative(coarse.exact, real_numbers.geometric(5, 123.0)) <= ROUNDING


def test_a_ladder_is_a_value():
    one, same = geometric(4), geometric(4)
    assert one == same
    assert hash(one) == hash(same)
    _ = one.turns, one.rates
    for back in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), copy.copy(one)):
        assert back == one
        assert (back.origin, back.ratio, back.attention_factor) == (one.origin, one.ratio, one.attention_factor)
        assert "turns" not in vars(back)
        assert back.rates == one.rates
    assert one != geometric(4, 9_999.0)
    assert one != Ladder(one.exact, attention_factor=1.5)
    assert one == Ladder(one.exact, origin="elsewhere")
    # Beyond the 60 digits that are kept there is nothing.
    assert Ladder((Decimal(1),)) == Ladder((Decimal(f"1.{64 * '0'}1"),))
    assert Ladder((Decimal(1),)) != Ladder((Decimal(f"1.{57 * '0'}1"),))


def test_geometric_ladders_know_their_ratio():
    assert worst_relative([geometric(3).ratio], [mp.power(10_000, -mpf(1) / 3)]) < 1e-65
    assert evenly_spaced(2, 1.0, 2.0).ratio is None


# --- what spaces rates -----------------------------------------------------------------------------------------


def test_what_cannot_be_a_ladder_is_refused_in_words(cases):
    sentences.hold("ladders", cases)


def test_the_most_pairs_are_allowed(monkeypatch):
    monkeypatch.setattr(ladders, "MOST_PAIRS", 3)
    assert geometric(3).pairs == evenly_spaced(3, 1.0, 2.0).pairs == 3
    for call in (lambda: geometric(4), lambda: evenly_spaced(4, 1.0, 2.0)):
        with pytest.raises(InvalidValue, match=r"^At most 3 pairs are allowed, got 4\."):
            call()
