"""Ladders against real numbers, and what cannot be a ladder."""

import copy
import pickle
import re
from decimal import Decimal, getcontext, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from clockhands import ladders
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import (
    EvenSteps,
    Explicit,
    Geometric,
    Ladder,
    evenly_spaced,
    explicit,
    geometric,
    spacing_of,
)
from oracles import real_numbers
from oracles.real_numbers import worst_relative

# Stored with 60 digits: half a unit of the last is 5e-60 at most.
ROUNDING = 5.01e-60
BASES = st.floats(1e-4, 1e9).filter(lambda base: abs(base - 1) > 1e-6)


@given(st.integers(1, 200), BASES)
@example(1, 10_000.0)
@example(128, 1e9)
def test_geometric_open_is_the_real_number(pairs, base):
    got = geometric(pairs, base)
    assert got.pairs == pairs
    assert worst_relative(got.exact, real_numbers.geometric(pairs, base)) <= ROUNDING


@given(st.integers(2, 200), BASES, st.floats(1e-6, 1e6))
@example(2, 10_000.0, 1.0)
def test_geometric_closed_is_the_real_number(pairs, base, multiplier):
    got = geometric(pairs, base, "closed", multiplier)
    assert worst_relative(got.exact, real_numbers.geometric(pairs, base, pairs - 1, multiplier)) <= ROUNDING


@given(st.integers(1, 100), BASES, st.floats(0.5, 1e4), st.floats(1e-6, 1e6))
def test_geometric_of_any_span_is_the_real_number(pairs, base, span, multiplier):
    wanted = real_numbers.geometric(pairs, base, span, multiplier)
    if max(wanted) < 2**63:
        assert worst_relative(geometric(pairs, base, span, multiplier).exact, wanted) <= ROUNDING


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


def test_the_paper_and_its_code_differ():
    assert geometric(2).rates == (1.0, 0.01)
    assert geometric(2, span="closed").rates == (1.0, 0.0001)
    assert geometric(2, span=4).rates == (1.0, 0.1)
    assert geometric(2, multiplier=3).rates == (3.0, 0.03)
    assert geometric(2).rates == (1.0, 0.01)


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


def test_rates_and_wavelengths():
    ladder = explicit([2.0, 0.5, 0.0])
    assert ladder.rates == (2.0, 0.5, 0.0)
    assert ladder.wavelengths == (np.pi, 4 * np.pi, float("inf"))
    assert ladder.attention_factor == 1.0
    assert ladder.pairs == 3


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


def test_origins_say_how_a_ladder_was_made():
    assert geometric(2).origin == "geometric frequencies (base 10000, span open)"
    assert geometric(2, 50.0, 3).origin == "geometric frequencies (base 50, span 3)"
    assert evenly_spaced(2, 1.0, 0.25).origin == "evenly spaced frequencies (1 to 0.25)"
    assert explicit([1.0, 2.0]).origin == "2 explicit frequencies"
    assert Ladder((Decimal(1),)).origin == "custom"


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


def test_mapped_ladders():
    ladder = geometric(3).mapped(lambda pair, rate: rate * pair, "rates times their place", 1.5)
    assert ladder.rates == (0.0, geometric(3).rates[1], 2 * geometric(3).rates[2])
    assert ladder.attention_factor == 1.5
    assert ladder.ratio is None
    assert ladder.origin == "rates times their place of geometric frequencies (base 10000, span open)"
    assert ladder.mapped(lambda _, rate: rate, "again", 2.0).attention_factor == 3.0
    assert ladder.mapped(lambda _, rate: rate, "again").attention_factor == 1.5
    third = Ladder((Decimal(1),)).mapped(lambda _, rate: rate / 3, "a third")
    assert worst_relative(third.exact, [mpf(1) / 3]) <= ROUNDING


def test_geometric_ladders_know_their_ratio():
    assert worst_relative([geometric(3).ratio], [mp.power(10_000, -mpf(1) / 3)]) < 1e-65
    assert evenly_spaced(2, 1.0, 2.0).ratio is None


# --- what spaces rates -----------------------------------------------------------------------------------------


def test_spacings_are_values():
    assert Geometric() == Geometric(10_000, "open", 1)
    assert Geometric(span=4) == Geometric(span=4.0)
    assert type(Geometric(500_000).base) is float
    assert Explicit([1, 2]) == Explicit((1.0, 2.0))
    assert Explicit(iter([1.0])).rates == (1.0,)
    assert Explicit(np.array([0.5, 0.25])).rates == (0.5, 0.25)
    assert hash(EvenSteps(1, 0)) == hash(EvenSteps(1.0, 0.0))


def test_the_spacing_of_a_spec():
    assert spacing_of(None, None) == Geometric()
    assert spacing_of(7.0, None) == Geometric(7.0)
    assert spacing_of(7.0, Geometric(span="closed")) == Geometric(7.0, "closed")
    assert spacing_of(None, Explicit((1.0,))) == Explicit((1.0,))


def test_one_rate_many_times():
    assert EvenSteps(0.7, 0.7).ladder(3, 6).exact == explicit([0.7] * 3).exact


NAN, INFINITY = float("nan"), float("inf")
BASE_HINT = "Usual bases are 10000 (the paper) and 500000 (Llama 3); with base 1 all pairs have the same frequency."
BASE = "`base` must be a finite positive number other than 1, got {}."

REFUSED = [
    *[(lambda base=base: geometric(2, base), BASE.format(f"{base:g}"), BASE_HINT) for base in (0.0, 1.0, -2.0)],
    (lambda: geometric(2, NAN), BASE.format("nan"), BASE_HINT),
    (lambda: geometric(2, INFINITY), BASE.format("inf"), BASE_HINT),
    (lambda: geometric(2, 1), BASE.format("1"), BASE_HINT),
    (lambda: geometric(2, "10000"), "`base` must be a number, got '10000'.", "Give `base` as an int or a float."),
    (lambda: geometric(2, True), "`base` must be a number, got True.", "Give `base` as an int or a float."),
    (lambda: geometric(2, np.True_), "`base` must be a number, got np.True_.", "Give `base` as an int or a float."),
    (lambda: geometric(2, None), "`base` must be a number, got None.", "Give `base` as an int or a float."),
    (lambda: geometric(2, 1j), "`base` must be a number, got 1j.", "Give `base` as an int or a float."),
    (
        lambda: geometric(2, 10**400),
        f"`base` must be a number that fits a float64, got 1{56 * '0'}....",
        "Give `base` as an int or a float.",
    ),
    (
        lambda: geometric(2, 10**5000),
        "`base` must be a number that fits a float64, got int too long to show.",
        "Give `base` as an int or a float.",
    ),
    (
        lambda: geometric(2, span="closd"),
        '`span` must be "open", "closed" or a positive number, got \'closd\'.',
        'Use "open" for denominators d/2 (the paper), "closed" for d/2 - 1 (tensor2tensor).',
    ),
    (lambda: geometric(2, span=0), "`span` must be finite and positive, got 0.", "Give `span` as a number above 0."),
    (
        lambda: geometric(2, span=INFINITY),
        "`span` must be finite and positive, got inf.",
        "Give `span` as a number above 0.",
    ),
    (lambda: geometric(2, span=()), "`span` must be a number, got ().", "Give `span` as an int or a float."),
    (
        lambda: geometric(2, multiplier=0.0),
        "`multiplier` must be finite and positive, got 0.",
        "Give `multiplier` as a number above 0.",
    ),
    (
        lambda: geometric(2, multiplier=INFINITY),
        "`multiplier` must be finite and positive, got inf.",
        "Give `multiplier` as a number above 0.",
    ),
    (
        lambda: geometric(1, span="closed"),
        "A closed span divides by d/2 - 1, which is 0 or less at width 2.",
        'Use at least 4 dimensions, or span="open" (the paper\'s, which divides by d/2).',
    ),
    (
        lambda: geometric(0),
        "`pairs` must be at least 1, got 0.",
        "Give `pairs` as an int of at least 1.",
    ),
    (
        lambda: geometric(2.0),
        "`pairs` must be a whole number, got 2.",
        "Give `pairs` as an int of at least 1.",
    ),
    (
        lambda: geometric(10**6 + 1),
        "At most 1,000,000 pairs are allowed, got 1,000,001.",
        "Use a smaller width.",
    ),
    (
        lambda: evenly_spaced(2**62, 1.0, 2.0),
        "At most 1,000,000 pairs are allowed, got 4,611,686,018,427,387,904.",
        "Use a smaller width.",
    ),
    (
        lambda: evenly_spaced(0, 1.0, 2.0),
        "`pairs` must be at least 1, got 0.",
        "Give `pairs` as an int of at least 1.",
    ),
    (
        lambda: evenly_spaced(2, -1.0, 2.0),
        "`first` must be finite and not negative, got -1.",
        "Give `first` as a number of at least 0.",
    ),
    (
        lambda: evenly_spaced(2, 1.0, NAN),
        "`last` must be finite and not negative, got nan.",
        "Give `last` as a number of at least 0.",
    ),
    (
        lambda: evenly_spaced(2, 1.0, INFINITY),
        "`last` must be finite and not negative, got inf.",
        "Give `last` as a number of at least 0.",
    ),
    (
        lambda: evenly_spaced(2, 1.0, 2.0, 0.0),
        "`multiplier` must be finite and positive, got 0.",
        "Give `multiplier` as a number above 0.",
    ),
    (
        lambda: explicit([1.0, -1.0]),
        "`rates` must be finite and not negative, got -1.",
        "Give `rates` as a number of at least 0.",
    ),
    (
        lambda: explicit([]),
        "`rates` must contain at least one frequency, got none.",
        "Pass one frequency for each pair.",
    ),
    (
        lambda: explicit(3),
        "`rates` must be a sequence of numbers, got int.",
        "Pass one frequency in rad/token for each pair.",
    ),
    (lambda: Explicit("12"), "`rates` must be a number, got '1'.", "Give `rates` as an int or a float."),
    (lambda: Explicit((None,)), "`rates` must be a number, got None.", "Give `rates` as an int or a float."),
    (
        lambda: Explicit((1.0, 2.0)).ladder(3, 6),
        "2 frequencies were given for the 3 pairs of 6 dimensions.",
        "Pass one frequency for each pair.",
    ),
    (
        lambda: Ladder(()),
        "At least one frequency is needed, got none.",
        "Pass one frequency for each dimension pair.",
    ),
    *[
        (
            lambda rates=rates: Ladder(rates),
            f"Frequencies must be finite, not negative and below 2**63 rad/token, got {shown} for pair {pair}.",
            "Check the base, the multiplier and the scaling that the frequencies were computed from.",
        )
        for rates, shown, pair in (
            ((Decimal(-1),), "-1", 0),
            ((Decimal(1), Decimal(2**63)), "9.22337e+18", 1),
            ((Decimal("NaN"),), "NaN", 0),
            ((Decimal("Infinity"),), "Infinity", 0),
        )
    ],
    (
        lambda: Ladder((1.0,)),
        "Frequencies must be Decimal numbers, got 1 for pair 0.",
        "Make them with geometric, evenly_spaced or explicit of clockhands.ladders.",
    ),
    *[
        (
            lambda factor=factor: Ladder((Decimal(1),), factor),
            f"`attention_factor` must be finite and positive, got {factor}.",
            "Leave it out to compute it from the scaling.",
        )
        for factor in (0.0, -1.0, INFINITY, NAN)
    ],
    (
        lambda: geometric(2, 0.5, 1e-300),
        "Frequencies must be finite, not negative and below 2**63 rad/token, got Infinity for pair 1.",
        "Check the base, the multiplier and the scaling that the frequencies were computed from.",
    ),
    (
        lambda: spacing_of(None, "geometric"),
        "`spacing` must define how frequencies are spaced, got 'geometric'.",
        "Use Geometric, EvenSteps, Explicit or Joined of clockhands.ladders.",
    ),
    (
        lambda: spacing_of(2.0, Explicit((1.0,))),
        "`base` needs geometric spacing, but the spacing is Explicit.",
        "Leave `base` out, or give spacing=Geometric(base=…).",
    ),
]


@pytest.mark.parametrize(("call", "message", "hint"), REFUSED, ids=[message[:50] for _, message, _ in REFUSED])
def test_what_cannot_be_a_ladder_is_refused_in_words(call, message, hint):
    with pytest.raises((InvalidValue, InvalidType), match=f"^{re.escape(message)}\nhint: {re.escape(hint)}$"):
        call()


def test_the_most_pairs_are_allowed(monkeypatch):
    monkeypatch.setattr(ladders, "MOST_PAIRS", 3)
    assert geometric(3).pairs == evenly_spaced(3, 1.0, 2.0).pairs == 3
    for call in (lambda: geometric(4), lambda: evenly_spaced(4, 1.0, 2.0)):
        with pytest.raises(InvalidValue, match=r"^At most 3 pairs are allowed, got 4\."):
            call()


def test_slow_hands_have_no_least_rate():
    # Below what the usual decimal arithmetic holds, and far below a float64.
    ladder = geometric(2, 2.0, 1e-8)
    assert ladder.exact[1] > 0
    assert ladder.rates[1] == 0.0
    assert ladder.turns.low[1] == 0


def test_limits_are_allowed():
    assert evenly_spaced(3, 1.0, 2.0).rates == (1.0, 1.5, 2.0)
    assert explicit([0.0]).rates == (0.0,)
    assert Ladder((Decimal(2**63) - 1,)).pairs == 1
    assert evenly_spaced(1, 0.0, 0.0).rates == (0.0,)
    assert geometric(2, 0.5).rates[1] == pytest.approx(2**0.5)
    assert Geometric(span=0.5).span == 0.5
