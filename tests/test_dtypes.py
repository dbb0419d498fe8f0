"""Output dtypes: their names, and rounding once."""

from fractions import Fraction

import ml_dtypes
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import clockhands as ch
from clockhands.encodings.dtypes import NAMES, before_rounding, output_dtype, to_odd_float32
from oracles import real_numbers, sentences
from oracles.rows import every

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# Just past the middle of two bfloat16: a float32 first falls onto the middle, and then to the wrong side.
TRAPS = [
    sign * scale * (1 + odd * 2.0**-8 + tip)
    for sign in (1, -1)
    for scale in (1.0, 2.0**-10, 2.0**20)
    for odd in (1, 3, 127)
    for tip in (2.0**-30, -(2.0**-30), 2.0**-52, -(2.0**-52), 0.0)
]


def rounded(numbers, dtype):
    """As every table is rounded."""
    numbers = np.asarray(numbers)
    out = np.empty(numbers.shape, dtype)
    out[...] = before_rounding(numbers, np.dtype(dtype))
    return out


@given(st.floats(-2.0, 2.0) | st.floats(-1e30, 1e30) | st.sampled_from(TRAPS))
@example(0.0)
@example(-0.0)
@example(5e-324)
@example(2.0**-134)
@example(1.5 * 2.0**-133)
@example(np.nextafter(2.0**-134, 1))
def test_bfloat16_is_rounded_once(number):
    got = rounded([number], BFLOAT16)[0]
    assert Fraction(float(got)) == real_numbers.bfloat16(number)
    assert np.signbit(np.float64(got)) == np.signbit(number)


@given(st.floats(-2.0, 2.0) | st.floats(-65_000.0, 65_000.0))
@example(1 + 2.0**-11 + 2.0**-40)
@example(1 + 2.0**-11 - 2.0**-40)
@example(1 + 2.0**-11)
@example(1 + 3 * 2.0**-11)
@example(2.0**-25)
@example(np.nextafter(2.0**-25, 1))
@example(3 * 2.0**-25)
def test_float16_is_rounded_once(number):
    assert Fraction(float(rounded([number], np.float16)[0])) == real_numbers.float16(number)


@given(st.floats(allow_nan=False, width=64, min_value=-3e38, max_value=3e38))
@example(1 + 2.0**-24)
@example(1 + 2.0**-23)
def test_rounding_to_odd(number):
    got = to_odd_float32(np.array([number]))
    assert got.dtype == np.float32
    back = Fraction(float(got[0]))
    if Fraction(number) == Fraction(float(np.float32(number))):
        assert back == Fraction(number)
    else:
        assert got.view(np.uint32)[0] % 2 == 1
        # One of the two float32 beside the number.
        low, high = sorted((np.float32(number), np.nextafter(np.float32(number), np.float32(np.sign(number) * np.inf))))
        before = np.nextafter(np.float32(number), np.float32(0))
        assert back in {Fraction(float(low)), Fraction(float(high)), Fraction(float(before))}
        assert abs(back - Fraction(number)) < abs(Fraction(float(np.spacing(np.float32(number)))))


def test_parts_of_complex_numbers_are_rounded_alike():
    numbers = np.array(TRAPS[:6]) + 1j * np.array(TRAPS[6:12])
    got = before_rounding(numbers, BFLOAT16)
    assert got.dtype == np.complex64
    assert got.real.tolist() == to_odd_float32(numbers.real).tolist()
    assert got.imag.tolist() == to_odd_float32(numbers.imag.copy()).tolist()


def test_what_is_not_bfloat16_is_left_as_it_is():
    numbers = np.array([0.1, 0.2])
    for dtype in (np.float64, np.float32, np.float16):
        assert before_rounding(numbers, np.dtype(dtype)) is numbers


@every("name, nearest", [("bfloat16", real_numbers.bfloat16), ("float16", real_numbers.float16)])
@every("positions", [range(1_000), [1.5, 10**15, 7, -3]])
def test_tables_are_rounded_once(name, nearest, positions):
    spec = ch.Sinusoidal(8, layout="halves")
    exact, coarse = ch.table(spec, positions, "float64"), ch.table(spec, positions, name)
    assert coarse.dtype == output_dtype(name)
    # The double that is rounded may part from the one shown by some units: only where both sides are as near.
    off = [
        (number, got)
        for number, got in zip(exact.reshape(-1).tolist(), coarse.astype(float).reshape(-1).tolist(), strict=True)
        if Fraction(got) not in {nearest(number - 2.0**-45), nearest(number), nearest(number + 2.0**-45)}
    ]
    assert not off
    same = sum(
        Fraction(got) == nearest(number)
        for number, got in zip(exact.reshape(-1).tolist(), coarse.astype(float).reshape(-1).tolist(), strict=True)
    )
    assert same >= exact.size - 1


# --- names -----------------------------------------------------------------------------------------------------


def test_names_and_dtypes_are_taken(backend):
    for name in NAMES:
        wanted = BFLOAT16 if name == "bfloat16" else np.dtype(name)
        assert output_dtype(name) == wanted
        assert output_dtype(wanted) == wanted
        assert output_dtype(wanted.type) == wanted
        if backend.name != "numpy":
            assert output_dtype(backend.dtype(name)) == wanted
    assert output_dtype(float) == np.float64
    assert output_dtype("<f4") == np.float32
    assert output_dtype(np.dtype(">f4")).isnative


def test_dtypes_in_words(cases):
    sentences.hold("dtypes", cases)
