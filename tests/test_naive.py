"""The codes that fail: their numbers are right, and they do fail as their docstrings say."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import clockhands as ch
from clockhands.encodings.additive import (
    Binary,
    Counter,
    EvenlySpaced,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    WarpedPosition,
)
from clockhands.errors import InvalidValue
from oracles import real_numbers, sentences
from oracles.real_numbers import FLOAT32, FLOAT64, worst_entry
from oracles.rows import every

BOUNDS = {"float32": FLOAT32, "float64": FLOAT64}
both = pytest.mark.parametrize("dtype", BOUNDS)


# --- counters --------------------------------------------------------------------------------------------------


def test_a_counter_grows_without_bound():
    assert np.abs(ch.table(Counter(2), [100])).max() == 100
    for position in (65_520, 10**6):
        message = f"The value {position:g} is too large for float16.\nhint: Use dtype float32 or float64."
        with pytest.raises(InvalidValue, match=f"^{re.escape(message)}$"):
            ch.table(Counter(2), [position], "float16")
    assert ch.table(Counter(1), [65_519], "float16")[0, 0] == 65_504
    assert float(ch.table(Counter(1), [10**6], "bfloat16")[0, 0]) == 999_424


# --- binary ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**63), st.integers(1, 70))
def test_binary_digits(position, width):
    digits = ch.table(Binary(width), [position])[0].tolist()
    assert digits == [position >> channel & 1 for channel in range(width)]


# --- sines and hands -------------------------------------------------------------------------------------------


@both
@given(st.lists(st.integers(-(2**63), 2**63) | st.floats(-1e15, 1e15), min_size=1, max_size=3))
@settings(max_examples=30)
def test_sines_are_exact(dtype, positions):
    table = ch.table(SineOnly(5, base=50.0), positions, dtype)
    for row, position in zip(table, positions, strict=True):
        for number, (_, sine) in zip(row, real_numbers.hands(real_numbers.geometric(5, 50.0), position), strict=True):
            assert abs(mpf(float(number)) - sine) <= BOUNDS[dtype]


@every("dtype", BOUNDS)
def test_runs_of_sines_are_exact(dtype):
    table = ch.table(SineOnly(5, base=50.0), range(-1_000, 1_000), dtype)
    one_by_one = ch.table(SineOnly(5, base=50.0), list(range(-1_000, 1_000)), dtype)
    assert np.abs(table.astype(np.float64) - one_by_one).max() <= 2 * BOUNDS[dtype]


@every("dtype", BOUNDS)
@every("layout", ["interleaved", "halves"])
@every("order", ["sin-cos", "cos-sin"])
def test_single_frequencies_and_even_steps_are_exact(dtype, layout, order):
    positions = [1, -3, 10**15, 0.5]
    single = ch.table(SingleFrequency(6, 0.7, layout=layout, order=order), positions, dtype)
    assert worst_entry(single, [mpf(0.7)] * 3, positions, layout, order) <= BOUNDS[dtype]
    rates = [mpf(1.0), (mpf(1.0) + mpf(1e-4)) / 2, mpf(1e-4)]
    even = ch.table(EvenlySpaced(6, layout=layout, order=order), positions, dtype)
    assert worst_entry(even, rates, positions, layout, order) <= BOUNDS[dtype]


# --- warped positions ------------------------------------------------------------------------------------------


@both
@given(st.lists(st.integers(-(2**31), 2**31) | st.integers(-4_000, 4_000).map(lambda n: n / 8), min_size=1, max_size=3))
@settings(max_examples=30)
def test_squares_are_exact(dtype, positions):
    table = ch.table(WarpedPosition(4, "square"), positions, dtype)
    squares = [mpf(position) ** 2 for position in positions]
    assert worst_entry(table, real_numbers.geometric(2), squares) <= BOUNDS[dtype]


@pytest.mark.parametrize("warp", ["log", "reciprocal"])
@given(st.lists(st.integers(1, 2**63) | st.floats(1e-3, 1e18), min_size=1, max_size=3))
@settings(max_examples=30)
def test_logarithms_and_reciprocals_are_as_exact_as_a_double_of_them(warp, positions):
    spec = WarpedPosition(4, warp, layout="halves", order="cos-sin")
    table = ch.table(spec, positions, "float64")
    warped = [mp.log(mpf(position)) if warp == "log" else 1 / mpf(position) for position in positions]
    # g(p) rounded to a double, and the logarithm of the machine within one more unit.
    moved = max(abs(g) for g in warped) * 2 * mpf(2) ** -53
    assert worst_entry(table, real_numbers.geometric(2), warped, "halves", "cos-sin") <= FLOAT64 + float(moved)


# --- none of them is a clock -----------------------------------------------------------------------------------

WHY = {
    Counter(4): "a step adds to the encoding, and no matrix changes the zeros at position 0",
    NormalizedCounter(4, 9): "a step adds a number that depends on the length of the text",
    Binary(4): "a step flips digits that depend on the position",
    SineOnly(4): "sin(a + b) needs cos(a), which the encoding does not contain",
    WarpedPosition(4): "a step rotates its pairs by an angle that depends on the position",
}


@every("spec, why", WHY.items())
@every("call", [ch.shift, ch.kernel])
def test_those_without_a_shift_say_why(spec, why, call):
    message = f"{type(spec).__name__} has no shift matrix and no kernel: {why}."
    with pytest.raises(InvalidValue, match=f"^{re.escape(message)}\nhint: Use Sinusoidal, which has both"):
        call(spec, 1)


# --- errors ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("naive", cases)
