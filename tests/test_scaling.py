"""Scalings against the formulas in real numbers, against published numbers, and their limits."""

from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from clockhands.encodings.ladders import EvenSteps, Explicit, Joined, evenly_spaced, explicit, geometric
from clockhands.encodings.scaling import Dynamic, Linear, Llama3, LongRope, MixedNtk, Ntk, Proportional, Scaling, Yarn
from clockhands.errors import InvalidValue
from oracles import real_numbers, sentences
from oracles.real_numbers import worst_relative
from oracles.rows import every

# Scaled in 70 digits from rates of 60: the rates' own rounding, and that of the result.
CLOSE = 1e-50
PAIRS = st.integers(2, 80)
BASES = st.sampled_from([100.0, 10_000.0, 500_000.0, 1e9])
FACTORS = st.floats(1.0, 1_000.0)
LENGTHS = st.integers(2, 2**20)


@given(PAIRS, BASES, FACTORS)
def test_linear(pairs, base, factor):
    wanted = real_numbers.linear(real_numbers.geometric(pairs, base), factor)
    assert worst_relative(Linear(factor)(geometric(pairs, base)).exact, wanted) < CLOSE


@given(PAIRS, BASES, FACTORS)
def test_ntk(pairs, base, factor):
    got = Ntk(factor)(geometric(pairs, base))
    assert worst_relative(got.exact, real_numbers.ntk(pairs, base, factor)) < CLOSE
    assert got.exact[0] == 1
    assert float(got.exact[-1]) == pytest.approx(float(geometric(pairs, base).exact[-1]) / factor)


@given(PAIRS, BASES, FACTORS, st.none() | st.floats(0.1, 3))
@example(32, 160_000.0, 2.0, None)
@example(32, 20_000.0, 8.0, 0.625)
def test_mixed_ntk(pairs, base, factor, exponent):
    got = MixedNtk(factor, 1.0 if exponent is None else exponent)(geometric(pairs, base))
    assert worst_relative(got.exact, real_numbers.mixed_ntk(pairs, base, factor, exponent)) < CLOSE
    assert float(got.exact[-1]) == pytest.approx(float(geometric(pairs, base).exact[-1]) / factor)


@given(PAIRS, BASES, FACTORS, LENGTHS, LENGTHS)
@example(32, 10_000.0, 2.0, 4_096, 4_096)
@example(32, 10_000.0, 2.0, 4_096, 4_097)
@example(32, 10_000.0, 1.0, 4_096, 100_000)
def test_dynamic(pairs, base, factor, original, length):
    got = Dynamic(factor, original)(geometric(pairs, base), length)
    assert worst_relative(got.exact, real_numbers.dynamic(pairs, base, factor, original, length)) < CLOSE


def test_dynamic_leaves_the_ladder_alone_up_to_the_original_length():
    plain, scaling = geometric(32), Dynamic(2.0, 4_096)
    for length in (None, 1, 4_095, 4_096):
        assert scaling(plain, length) == plain
    assert scaling(plain, 8_192) == Ntk(3.0)(plain)


def yarn_values():
    return st.builds(
        dict,
        factor=FACTORS,
        original=st.integers(16, 2**18),
        beta_fast=st.floats(4.0, 200.0),
        beta_slow=st.floats(0.1, 3.9),
    )


@given(PAIRS, BASES, yarn_values(), st.booleans())
@example(32, 10_000.0, {"factor": 8.0, "original": 4_096, "beta_fast": 32.0, "beta_slow": 1.0}, True)
@example(32, 10_000.0, {"factor": 8.0, "original": 4_096, "beta_fast": 16.0, "beta_slow": 2.0}, False)
@example(2, 100.0, {"factor": 2.0, "original": 64, "beta_fast": 32.0, "beta_slow": 1.0}, True)
def test_yarn_over_the_index(pairs, base, values, truncate):
    got = Yarn(**values, truncate=truncate)(geometric(pairs, base))
    wanted = real_numbers.yarn(pairs, base, **values, truncate=truncate)
    assert worst_relative(got.exact, wanted) < CLOSE


@given(PAIRS, BASES, yarn_values())
def test_yarn_over_the_turns(pairs, base, values):
    got = Yarn(**values, ramp="turns")(geometric(pairs, base))
    wanted = real_numbers.yarn_by_turns(real_numbers.geometric(pairs, base), **values)
    assert worst_relative(got.exact, wanted) < CLOSE


SLOW = {"factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0}
ONE_AND_ONE = {"factor": 32.0, "original": 4_096, "beta_fast": 1.0, "beta_slow": 1.0}  # Kimi-K2 publishes 1 and 1


@every(
    "pairs, base, values",
    [
        # c(32) and c(1) are both 0 or less: the ramp ends a thousandth of a pair after it begins.
        (8, 10_000.0, SLOW | {"original": 6}),
        # A length so long that even the slowest pair makes 32 turns: the end is cut to the last channel.
        (4, 100.0, SLOW | {"original": 2**62}),
        # And the other way round, a begin past the end: all pairs before it.
        (4, 100.0, SLOW | {"original": 1}),
        # The original's slip: it is cut at d - 1 and not d/2 - 1, seen where the ramp reaches past the last pair.
        (8, 10_000.0, SLOW | {"original": 10**6}),
        # The ratio of one rate is the spacing's, since it has none: 10,000 ** -1.
        *((1, 10_000.0, {"factor": 8.0, "original": original}) for original in (10, 4_096, 10**6)),
        *((32, 50_000.0, ONE_AND_ONE | {"truncate": truncate}) for truncate in (True, False)),
    ],
)
def test_yarn_at_the_ends_of_its_ramp(pairs, base, values):
    got = Yarn(**values)(geometric(pairs, base))
    assert worst_relative(got.exact, real_numbers.yarn(pairs, base, **values)) < CLOSE


@every(
    "ladder, rates, fall, low_at",
    [
        # However a geometric ladder was made, and whatever its span.
        (Linear(2.0)(geometric(8)), [rate / 2 for rate in real_numbers.geometric(8)], 8, 2),
        (geometric(8, 10_000.0, 16), real_numbers.geometric(8, 10_000.0, 16), 16, 1),
    ],
)
def test_yarn_holds_on_any_geometric_ladder(ladder, rates, fall, low_at):
    low, high = (mp.log(4_096 / (low_at * 2 * mp.pi * turns)) / (mp.log(10_000) / fall) for turns in (32, 1))
    low, high = max(mp.floor(low), mpf(0)), min(mp.ceil(high), mpf(15))
    ramps = [min(max((j - low) / (high - low), mpf(0)), mpf(1)) for j in range(8)]
    wanted = [rate / 8 * ramp + rate * (1 - ramp) for rate, ramp in zip(rates, ramps, strict=True)]
    assert worst_relative(Yarn(8.0, 4_096)(ladder).exact, wanted) < CLOSE
    assert (ladder.ratio is None) == (low_at == 2)


def test_yarn_with_equal_betas_over_the_turns_is_a_step():
    ladder = geometric(32, 50_000.0)
    got = Yarn(32.0, 4_096, beta_fast=2.0, beta_slow=2.0, ramp="turns")(ladder)
    for new, old in zip(got.rates, ladder.rates, strict=True):
        assert new == (old if 4_096 * old / (2 * np.pi) >= 2 else old / 32)


@every(
    "fields, wanted",
    [
        ({}, real_numbers.yarn_magnitude(40)),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, mpf(1)),
        (
            {"mscale": 0.707, "mscale_all_dim": 1.0},
            real_numbers.yarn_magnitude(40, 0.707) / real_numbers.yarn_magnitude(40),
        ),
        # One of the two, or a zero, counts for nothing.
        ({"mscale": 0.707}, real_numbers.yarn_magnitude(40)),
        ({"mscale_all_dim": 0.707}, real_numbers.yarn_magnitude(40)),
        ({"mscale": 0.0, "mscale_all_dim": 1.0}, real_numbers.yarn_magnitude(40)),
        ({"mscale": 1.0, "mscale_all_dim": 0.0}, real_numbers.yarn_magnitude(40)),
        ({"attention_factor": 1.25}, mpf(1.25)),
        ({"attention_factor": 1.25, "mscale": 0.5, "mscale_all_dim": 1.0}, mpf(1.25)),
        ({"ramp": "turns"}, real_numbers.yarn_magnitude(40)),
    ],
)
def test_attention_factors_of_yarn(fields, wanted):
    got = Yarn(40.0, 4_096, **fields)(geometric(8)).attention_factor
    assert abs(mpf(got) / wanted - 1) < 1e-15


def test_a_factor_of_1_changes_nothing():
    ladder = geometric(8)
    for scaling in (
        Linear(1.0),
        Ntk(1.0),
        Dynamic(1.0, 64),
        Yarn(1.0, 64),
        Llama3(1.0, 64),
        Proportional(1.0),
        MixedNtk(1.0),
    ):
        scaled = scaling(ladder, 64)
        assert worst_relative(scaled.exact, real_numbers.geometric(8)) < CLOSE
        assert scaled.attention_factor == 1.0


# --- LongRoPE --------------------------------------------------------------------------------------------------

SHORT, LONG = tuple(1 + i / 50 for i in range(8)), tuple(1 + 1.5 * i for i in range(8))


def test_longrope_takes_the_long_list_beyond_the_original_length():
    scaling, ladder = LongRope(SHORT, LONG, 4_096, 32.0), geometric(8)
    rates = real_numbers.geometric(8)
    short = [rate / mpf(divisor) for rate, divisor in zip(rates, SHORT, strict=True)]
    long = [rate / mpf(divisor) for rate, divisor in zip(rates, LONG, strict=True)]
    for length in (None, 1, 4_096):
        assert worst_relative(scaling(ladder, length).exact, short) < CLOSE
    for length in (4_097, 10**6):
        assert worst_relative(scaling(ladder, length).exact, long) < CLOSE


def test_attention_factors_of_longrope():
    ladder, plain = geometric(8), LongRope(SHORT, LONG, 4_096, 32.0)
    for length in (None, 5_000):
        assert abs(mpf(plain(ladder, length).attention_factor) / real_numbers.longrope_magnitude(32, 4_096) - 1) < 1e-15
        assert replace(plain, attention_factor=1.5)(ladder, length).attention_factor == 1.5
    assert replace(plain, factor=1.0)(ladder).attention_factor == 1.0
    both = replace(plain, attention_factor=9.0, short_mscale=1.25, long_mscale=1.5)
    assert both(ladder).attention_factor == 1.25
    assert both(ladder, 4_096).attention_factor == 1.25
    assert both(ladder, 4_097).attention_factor == 1.5


# --- Llama 3, proportional -------------------------------------------------------------------------------------


@given(PAIRS, BASES, FACTORS, LENGTHS, st.tuples(st.floats(0.5, 4.0), st.floats(0.0, 8.0)))
@example(32, 500_000.0, 8.0, 8_192, (1.0, 3.0))
@example(64, 500_000.0, 16.0, 8_192, (1.0, 0.0))
def test_llama3(pairs, base, factor, original, band):
    low, room = band
    rates = real_numbers.geometric(pairs, base)
    high = low + room
    assume(high == low or high - low > 1e-6)
    got = Llama3(factor, original, low, high)(geometric(pairs, base))
    if high == low:
        turns = [original * rate / (2 * mp.pi) for rate in rates]
        wanted = [rate if made >= low else rate / mpf(factor) for made, rate in zip(turns, rates, strict=True)]
    else:
        wanted = real_numbers.llama3(rates, factor, original, low, high)
    assert worst_relative(got.exact, wanted) < CLOSE
    assert got.attention_factor == 1.0


def test_llama3_exactly_at_its_ends():
    # A pair that makes exactly `high` turns is kept, one of exactly `low` is slowed.
    rate = float(2 * np.pi)
    made = Decimal(rate) * 8 / (2 * Decimal(str(mp.pi)))
    assert float(made) == 8.0
    for factors, slowed in (((1.0, 7.0), False), ((9.0, 10.0), True)):
        got = Llama3(4.0, 8, *factors)(explicit([rate]))
        assert got.rates[0] == (rate / 4 if slowed else rate)
    still = Llama3(4.0, 8)(explicit([0.0, 1e3]))
    assert still.rates == (0.0, 1e3)


@every("fraction, turning", [(0.25, 8), (1.0, 32), (0.5, 16), (0.26, 8), (0.28125, 9), (0.03, 0), (0.999, 31)])
def test_proportional(fraction, turning):
    got = Proportional(fraction, 2.0)(geometric(32))
    wanted = [rate / 2 if pair < turning else mpf(0) for pair, rate in enumerate(real_numbers.geometric(32))]
    assert worst_relative(got.exact, wanted) < CLOSE
    assert got.attention_factor == 1.0


# --- what all of them share ------------------------------------------------------------------------------------

# Each scaling, and what its ladders say of their origin.
ORIGINS = {
    Linear(2.0): "linear scaling by 2 of ",
    Ntk(2.0): "NTK-aware scaling by 2 of ",
    Dynamic(2.0, 4_096): "dynamic NTK by 2 at length 4096 of ",
    Yarn(2.0, 4_096): "YaRN by 2 from 4096 of ",
    LongRope(SHORT, LONG, 4_096, 2.0): "LongRoPE (short) from 4096 of ",
    Llama3(2.0, 4_096): "Llama-3 scaling by 2 from 4096 of ",
    Proportional(0.5): "proportional scaling (0.5 of the pairs) of ",
    MixedNtk(2.0, 0.5): "mixed NTK by 2 of ",
}
EACH = tuple(ORIGINS)


@every("scaling", EACH)
def test_scalings_are_functions_of_ladders_and_values(scaling):
    assert isinstance(scaling, Scaling)
    assert hash(scaling) == hash(replace(scaling))
    ladder = geometric(8)
    assert scaling(ladder) == scaling(ladder)
    assert scaling(ladder).pairs == 8
    assert ladder == geometric(8)


def test_attention_factors_of_scalings_multiply():
    once = Yarn(4.0, 4_096)(geometric(8))
    assert once.attention_factor > 1.1
    for scaling in EACH:
        wanted = scaling(geometric(8)).attention_factor * once.attention_factor
        # The ramp over the index asks for a geometric ladder, which a scaled one no longer is.
        again = replace(scaling, ramp="turns") if isinstance(scaling, Yarn) else scaling
        assert again(once).attention_factor == pytest.approx(wanted, rel=1e-15)


@every("scaling", EACH)
def test_origins_say_what_was_done(scaling):
    assert scaling(geometric(8)).origin == ORIGINS[scaling] + "geometric frequencies (base 10000, span open)"


@every("scaling", [Ntk(2.0), Dynamic(2.0, 64)])
def test_ntk_of_a_single_pair_is_refused(scaling):
    with pytest.raises(
        InvalidValue,
        match=r"^NTK-aware scaling spreads its factor over several pairs, but there is only one pair\.\n"
        r"hint: Rotate at least 4 dimensions, or use linear scaling\.$",
    ):
        scaling(geometric(1), 100)


@every(
    "ladder, origin",
    [
        (evenly_spaced(4, 1.0, 0.1), "evenly spaced frequencies (1 to 0.1)"),
        (explicit([1.0]), "1 explicit frequencies"),
        (
            Joined(((1, Explicit((1.0,))), (2, EvenSteps(1.0, 3.0)))).ladder(3, 6),
            "1 explicit frequencies; then evenly spaced frequencies (1 to 3)",
        ),
        (explicit([1.0, 0.5, 0.26]), "3 explicit frequencies"),
        (explicit([0.0, 0.0]), "2 explicit frequencies"),
        (explicit([1.0, 0.5, 0.25 + 2.0**-54]), "3 explicit frequencies"),
        (Proportional(0.5)(geometric(4)), "proportional scaling (0.5 of the pairs) of geometric frequencies"),
    ],
)
def test_yarns_index_ramp_needs_a_geometric_ladder(ladder, origin):
    with pytest.raises(InvalidValue) as caught:
        Yarn(2.0, 64)(ladder)
    assert caught.value.message.startswith(f"YaRN's ramp needs geometric frequencies, got {origin}")
    assert caught.value.hint == 'Use ramp="turns", which uses the rotations of each pair.'
    assert Yarn(2.0, 64, ramp="turns")(ladder).pairs == ladder.pairs


@every("scaling", EACH)
def test_the_callers_decimal_context_changes_nothing(scaling):
    right = scaling(geometric(8), 9_000)
    with localcontext() as context:
        context.prec = 3
        context.Emin = -1
        for trap in context.traps:
            context.traps[trap] = True
        assert scaling(geometric(8), 9_000) == right


def test_impossible_scalings_are_refused_in_words(cases):
    sentences.hold("scaling", cases)
