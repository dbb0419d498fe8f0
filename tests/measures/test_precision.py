"""Errors of computed angles, against exact fractions with a rounding of their own."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest

from clockhands.encodings.additive import FourierFeatures, SineOnly, Sinusoidal
from clockhands.encodings.biases import Alibi
from clockhands.encodings.ladders import explicit, geometric
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Linear
from clockhands.errors import InvalidValue
from clockhands.measures.ladders._angle_errors import FROM_A_BASE
from clockhands.measures.ladders.precision import (
    WAYS,
    first_position_off,
    phase_error,
    phase_errors,
    precision,
    precision_table,
)
from clockhands.measures.subject import subject_of

# Significant bits, smallest exponent of a last place, largest number.
FORMATS = {
    "float64": (53, -1074, Fraction(np.finfo(np.float64).max)),
    "float32": (24, -149, Fraction(float(np.finfo(np.float32).max))),
    "float16": (11, -24, Fraction(65504)),
    "bfloat16": (8, -133, Fraction(255) * 2**120),
}
POSITIONS = [0, 1, 2, 3, 100, 257, 1000, 2047, 4096, 50_001, 131_071, 10**6 + 1, 10**9 + 7]


def nearest(number, dtype):
    """A fraction rounded to nearest, ties to even; None where it is infinite."""
    bits, smallest, largest = FORMATS[dtype]
    if number == 0:
        return Fraction(0)
    power = math.floor(math.log2(number)) if number > Fraction(1, 10**300) else -1000
    while Fraction(2) ** (power + 1) <= number:
        power += 1
    while Fraction(2) ** power > number:
        power -= 1
    place = Fraction(2) ** max(power - bits + 1, smallest)
    rounded = round(number / place) * place  # Python rounds halves of fractions to even
    return rounded if rounded <= largest else None


def exact(number):
    """An mpmath number as the fraction that it is."""
    sign, digits, power, _ = number._mpf_
    return Fraction(-int(digits) if sign else int(digits)) * Fraction(2) ** power


def real_rates(pairs, base):
    with mpmath.workdps(60):
        return [exact(mpmath.power(base, -mpmath.mpf(pair) / pairs)) for pair in range(pairs)]


def rates_in(dtype, way, pairs, base):
    if way in ("rates", "throughout"):
        return [nearest(rate, dtype) for rate in real_rates(pairs, base)]
    if way in ("positions", "phases"):
        return real_rates(pairs, base)
    rates = []
    for pair in range(pairs):
        index = nearest(Fraction(2 * pair), dtype)
        with mpmath.workdps(60):
            if way == "power":
                exponent = nearest(index / nearest(Fraction(2 * pairs), dtype), dtype)
                used = nearest(Fraction(base), dtype)
                if used is None:
                    rates.append(Fraction(1 if pair == 0 else 0))
                    continue
                power = mpmath.power(int(used), mpmath.mpf(exponent.numerator) / exponent.denominator)
                rates.append(nearest(1 / nearest(exact(power), dtype), dtype))
            else:
                kind = "float64" if dtype == "float64" else "float32"
                factor = nearest(exact(mpmath.log(base) / (2 * pairs)), kind)
                exponent = nearest(index * factor, dtype)
                rates.append(nearest(exact(mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)), dtype))
    return rates


def expected_errors(dtype, way, pairs, base, positions):
    used, real = rates_in(dtype, way, pairs, base), real_rates(pairs, base)
    rows = []
    for position in positions:
        at = Fraction(position) if way in ("rates", "phases") else nearest(Fraction(position), dtype)
        row = []
        for rate, truth in zip(used, real, strict=True):
            angle = None if at is None else at * rate
            if angle is not None and way not in ("rates", "positions"):
                angle = nearest(angle, dtype)
            row.append(None if angle is None else angle - position * truth)
        rows.append(row)
    return rows


def test_every_way_by_exact_fractions(cases):
    """But powers and exponentials of float64 are those of the machine: no other arithmetic repeats their bits."""
    for way, dtype, (pairs, base) in itertools.product(WAYS, FORMATS, ((8, 10_000), (5, 500_000))):
        if dtype == "float64" and way in FROM_A_BASE:
            continue
        found = phase_errors(geometric(pairs, base), POSITIONS, dtype, way)
        truths = expected_errors(dtype, way, pairs, base, POSITIONS)
        for row, expected, position in zip(found, truths, POSITIONS, strict=True):
            with cases(way, dtype, pairs, position):
                for error, truth, rate in zip(row, expected, geometric(pairs, base).rates, strict=True):
                    if truth is None:
                        assert not np.isfinite(error)
                        continue
                    bound = abs(truth) * Fraction(2) ** -51 + Fraction(position * rate) * Fraction(2) ** -102
                    assert abs(Fraction(float(error)) - truth) <= bound


def test_the_oracle_can_fail():
    """An error that is off in its twelfth digit, and a rounding that ties away from even, are seen."""
    (error,) = phase_errors(geometric(8), [1001], "float32", "throughout")[:, 3]
    truth = expected_errors("float32", "throughout", 8, 10_000, [1001])[0][3]
    assert abs(Fraction(float(error) * (1 + 1e-12)) - truth) > abs(truth) * Fraction(2) ** -51
    assert nearest(Fraction(2049), "float16") == 2048
    assert nearest(Fraction(2051), "float16") == 2052
    assert nearest(Fraction(65_520), "float16") is None


def test_what_pytorch_computes():
    """Textbook code in PyTorch: the same rates and angles, in bfloat16 and float16 to the bit."""
    torch = pytest.importorskip("torch")
    positions = torch.tensor([1, 100, 257, 1000, 4095])
    real = np.array(geometric(64).rates)
    index = torch.arange(0, 128, 2, dtype=torch.float32)
    for name in ("bfloat16", "float16"):
        dtype = getattr(torch, name)
        power = 1.0 / (10000.0 ** (index.to(dtype) / 128))
        exponential = torch.exp(index.to(dtype) * (-math.log(10000.0) / 128))
        for way, rates in (("power", power), ("exponential", exponential)):
            angles = (positions.to(dtype)[:, None] * rates).double().numpy()
            found = phase_errors(geometric(64), positions.tolist(), name, way)
            np.testing.assert_allclose(found, angles - positions.numpy()[:, None] * real, rtol=0, atol=1e-11)


def test_the_first_position_that_is_off_by_looking_at_all(cases):
    ladder = geometric(16, 500_000.0)
    for dtype, way, radians in itertools.product(("float16", "bfloat16"), WAYS, (0.1, 1.0)):
        with cases(dtype, way, radians):
            off = ~(np.abs(phase_errors(ladder, range(5000), dtype, way)) <= radians).all(axis=1)
            expected = int(off.argmax()) if off.any() else None
            assert first_position_off(ladder, 5000, dtype, way, radians) == expected
            if expected is not None:
                assert first_position_off(ladder, expected, dtype, way, radians) is None
    # The first whole number that float32 does not hold.
    assert first_position_off(ladder, 2**24 + 2, "float32", "positions", 0.5) == 2**24 + 1
    assert first_position_off(ladder, 2**24 + 1, "float32", "positions", 0.5) is None


def test_where_float16_overflows_and_float32_is_near():
    still = explicit([1e-9])
    assert first_position_off(still, 10**6, "float16", "positions", 1.0) == 65_520
    assert phase_error(still, 65_520, "float16", "positions") == math.inf
    assert phase_error(still, 65_519, "float16", "positions") < 1e-7
    assert first_position_off(explicit([0.0]), 10**6, "bfloat16", "throughout", 1.0) is None
    assert first_position_off(geometric(64), 131_072, "float32", "power", 0.1) is None
    ladder = explicit([1.0 + 2.0**-25, 0.5])  # off by 2**-25 rad/token and never by a rounding of the product
    assert first_position_off(ladder, 2**22, "float32", "rates", 0.1) == math.ceil(0.1 * 2**25)


def test_the_table_names_what_overflows():
    table = precision_table(geometric(4), [1, 10**6], ["float16", "float32"], ["positions", "power"])
    assert set(table) == {"float16", "float32"}
    assert table["float16"]["positions"] == [0.0, None]
    assert table["float32"]["positions"] == [0.0, 0.0]
    assert table["float32"]["power"][1] == phase_error(geometric(4), 10**6, "float32", "power")


def test_a_closed_span_is_given_by_its_base():
    """Divided by d/2 - 1, the exponents of 1 / base**x are others than for the base that the ladder would have."""
    ladder = geometric(8, 10_000.0, span="closed")
    named = phase_error(ladder, 1000, "float32", "power", base=10_000.0)
    assert named < 1e-3
    assert named != phase_error(ladder, 1000, "float32", "power")


def test_bad_input(cases):
    whole, drawn = geometric(4), explicit([1.0, 0.3])
    for arguments, sentence in (
        ((whole, 1, "float32", "half"), "`way` must be one of"),
        ((whole, 1, "float8", "rates"), "`dtype` must be one of"),
        ((whole, 2**53 + 1, "float32", "rates"), r"`positions` must be at most 2\*\*53"),
        ((whole, -1, "float32", "rates"), "`positions` must be at least 0"),
        ((drawn, 1, "float32", "power"), "only if they are a geometric progression; these are"),
    ):
        with cases(sentence), pytest.raises(InvalidValue, match=sentence):
            phase_error(*arguments)


# The property


def found(spec, length, dtype="float32", values=None):
    return precision(subject_of(spec, length, dtype, values))


def test_a_code_is_told_at_its_last_position(cases):
    ladder = geometric(32, 100_000.0)
    for length, dtype in ((512, "bfloat16"), (8192, "float64"), (8192, "float32"), (8192, "float16")):
        with cases(length, dtype):
            numbers = found(Rotary(head_width=64, base=100_000.0), length, dtype).numbers
            place = numbers["positions"].index(length - 1)
            for name in {"float32", "float16", "bfloat16", dtype}:
                for way in WAYS:
                    assert numbers[f"{name}_{way}"][place] == phase_error(ladder, length - 1, name, way)
                first = first_position_off(ladder, length, name, "power", 1.0)
                assert numbers[f"{name}_power_first_off_by_one"] == first
            other = phase_error(geometric(32, 5e5), length - 1, "bfloat16", "power")
            assert numbers["base_500000_bfloat16_power"][place] == other
            assert numbers["float16_positions"][-1] is None
            assert {1, 100, 4096, 131_072, 10**6, 10**9} <= set(numbers["positions"])


def test_the_sentence_names_the_numbers():
    overflows = found(Rotary(head_width=64, base=100_000.0), 8192, "float16").says
    assert "some angle is too large for float16 at position 100,000" in overflows
    said = found(Rotary(head_width=64, base=100_000.0), 8192)
    last = phase_error(geometric(32, 1e5), 8191, "float32", "power")
    assert said.brief == f"{last:.1e} rad off at 8,191"
    assert f"the largest angle error is {last:.1e} rad at position 8,191" in said.says
    first = first_position_off(geometric(32, 1e5), 8192, "bfloat16", "power", 1.0)
    assert f"position {first:,} is the first with an angle error of more than 1 rad" in said.says


def test_powers_of_two_are_exact_rates():
    """Binary rates lose nothing in any dtype; what is lost are positions."""
    said = found(Rotary(head_width=4, base=4.0), 200)
    assert said.numbers["bfloat16_throughout"][: said.numbers["positions"].index(199) + 1] == [0.0, 0.0, 0.0]
    assert said.brief == "exact at 199"
    assert "error is 0 rad at position 199, and the largest angle error is 0 rad at position 100,000" in said.says


def test_ladders_without_a_base_and_of_several_axes():
    scaled = found(Rotary(head_width=64, scaling=Linear(factor=3.0)), 2048).numbers
    axes = found(Rotary(head_width=8, axes=(0, 0, 1, 1)), 2048).numbers
    whole = geometric(4)
    assert "float32_throughout" in scaled
    assert axes["float32_throughout"][-1] == phase_error(whole, 10**9, "float32", "throughout")
    assert "float32_power" not in axes
    assert "float32_throughout" in found(SineOnly(width=5), 64).numbers
    fourier = FourierFeatures(width=4, axes=1)
    assert found(fourier, 64, values=np.array([0.25, -0.1])).state == "measured"


def test_short_texts():
    for length in (1, 2, 17):
        assert found(Sinusoidal(width=8), length).state == found(Alibi(heads=2), length).state == "measured"


# Biases


def test_merged_distances_by_their_numbers(cases):
    kinds = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
    for (dtype, kind), length in itertools.product(kinds.items(), (300, 2048)):
        numbers = found(Alibi(heads=6), length, dtype).numbers
        for head, one in enumerate(2.0 ** -np.array([2.0, 4, 6, 8, 1, 3])):
            with cases(dtype, length, head):
                exact = -one * np.arange(length)
                row = exact.astype(kind)
                assert numbers[f"{dtype}_largest_error"][head] == np.abs(row.astype(float) - exact).max()
                merged = [d for d in range(length - 1) if row[d] == row[d + 1]]
                assert numbers[f"{dtype}_first_merged_distance"][head] == (merged[0] if merged else None)
                assert numbers[f"{dtype}_merged_at_the_length"][head] == sum(row == row[-1])
                runs = [len(list(alike)) for _, alike in itertools.groupby(row.tolist())]
                assert numbers[f"{dtype}_most_merged"][head] == max(runs)


def test_a_bias_by_key_merges_the_nearest_keys():
    """BLOOM's numbers grow with the key: at the last of 2,000 tokens they are coarsest beside the query."""
    bloom = found(Alibi(heads=8, form="key"), 2000, "bfloat16")
    assert bloom.numbers["bfloat16_first_merged_distance"] == [0] * 8
    assert bloom.numbers["bfloat16_most_merged"] == [9] * 8
    assert bloom.says.endswith("so the nearest keys are the first with equal values.")
    assert "nearest keys" not in found(Alibi(heads=8), 2000, "bfloat16").says
    assert found(Alibi(heads=1, octaves=0.001), 2**17).numbers["float16_largest_error"] == [None], "it overflows"
