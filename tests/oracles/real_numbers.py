"""Position codes in real numbers: mpmath with 80 digits, from the formulas, sharing nothing with the library."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp, mpf

# Positions take up to 19 digits before the point, so 60 are left behind it.
mp.dps = 80

# What a table promises, for float32 and float64.
FLOAT32 = 2.0**-25 * 1.01
FLOAT64 = 4 * 2.0**-52


def geometric(pairs: int, base: float = 10_000.0, den: float | None = None, multiplier: float = 1.0) -> list[Any]:
    """``multiplier * base ** (-i / den)``."""
    den = mpf(pairs if den is None else den)
    return [mpf(multiplier) * mp.power(mpf(base), -i / den) for i in range(pairs)]


def linear(rates: Sequence[Any], factor: float) -> list[Any]:
    return [rate / mpf(factor) for rate in rates]


def ntk(pairs: int, base: float, factor: Any) -> list[Any]:
    stretched = mpf(base) * mp.power(mpf(factor), mpf(2 * pairs) / (2 * pairs - 2))
    return [mp.power(stretched, -mpf(2 * i) / (2 * pairs)) for i in range(pairs)]


def mixed_ntk(pairs: int, base: float, factor: float, exponent: float | None) -> list[Any]:
    """As the class of Alibaba-NLP/new-impl writes it; None is its fixed NTK."""
    d = 2 * pairs
    if exponent is None:
        stretched = mpf(base) * mpf(factor)
        return [mp.power(stretched, -mpf(2 * i) / d) / mp.power(mpf(factor), mpf(2) / d) for i in range(pairs)]
    a = mp.log(mpf(factor)) / mp.power(mpf(d) / 2, mpf(exponent))
    return [mp.power(mpf(base), -mpf(2 * i) / d) / mp.exp(a * mp.power(i + 1, mpf(exponent))) for i in range(pairs)]


def dynamic(pairs: int, base: float, factor: float, original: int, length: int) -> list[Any]:
    reach = max(length, original)
    return ntk(pairs, base, mpf(factor) * reach / original - (mpf(factor) - 1))


def yarn(
    pairs: int,
    base: float,
    factor: float,
    original: int,
    *,
    beta_fast: float = 32,
    beta_slow: float = 1,
    truncate: bool = True,
) -> list[Any]:
    """As released: a ramp over the index of the pair."""
    d = 2 * pairs

    def correction(turns: float) -> Any:
        return d * mp.log(original / (2 * mp.pi * mpf(turns))) / (2 * mp.log(mpf(base)))

    low, high = correction(beta_fast), correction(beta_slow)
    if truncate:
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(d - 1))
    if low == high:
        high += mpf("0.001")
    rates = []
    for j, rate in enumerate(geometric(pairs, base)):
        ramp = min(max((j - low) / (high - low), mpf(0)), mpf(1))
        rates.append(rate / mpf(factor) * ramp + rate * (1 - ramp))
    return rates


def yarn_by_turns(
    rates: Sequence[Any], factor: float, original: int, beta_fast: float = 32, beta_slow: float = 1
) -> list[Any]:
    """As the paper writes it: gamma of the turns in the original length is kept, the rest slowed."""
    scaled = []
    for rate in rates:
        turns = original / (2 * mp.pi / rate)
        gamma = min(max((turns - mpf(beta_slow)) / (mpf(beta_fast) - mpf(beta_slow)), mpf(0)), mpf(1))
        scaled.append((1 - gamma) * rate / mpf(factor) + gamma * rate)
    return scaled


def yarn_magnitude(factor: float, mscale: float = 1) -> Any:
    return mpf(1) if factor <= 1 else mpf("0.1") * mpf(mscale) * mp.log(mpf(factor)) + 1


def longrope_magnitude(factor: float, original: int) -> Any:
    return mp.sqrt(1 + mp.log(mpf(factor)) / mp.log(mpf(original)))


def llama3(rates: Sequence[Any], factor: float, original: int, low: float = 1, high: float = 4) -> list[Any]:
    """By wavelengths, as released."""
    scaled = []
    for rate in rates:
        wavelength = 2 * mp.pi / rate
        if wavelength < original / mpf(high):
            scaled.append(rate)
        elif wavelength > original / mpf(low):
            scaled.append(rate / mpf(factor))
        else:
            smooth = (original / wavelength - mpf(low)) / (mpf(high) - mpf(low))
            scaled.append((1 - smooth) * rate / mpf(factor) + smooth * rate)
    return scaled


def worst_relative(got: Iterable[Any], wanted: Sequence[Any]) -> float:
    """The largest relative difference of rates; where a rate is 0, the other must be as well."""
    got = [mpf(number if isinstance(number, float) else str(number)) for number in got]
    assert len(got) == len(wanted)
    return float(max(abs(a - b) / b if b else abs(a) for a, b in zip(got, wanted, strict=True)))


def hands(rates: Sequence[Any], position: float) -> list[tuple[Any, Any]]:
    """(cosine, sine) of every pair at one position, an int or the real number that a float holds."""
    return [mp.cos_sin(mpf(position) * rate) for rate in rates]


def worst_unit(units: np.ndarray, rates: Sequence[Any], positions: Iterable[float]) -> float:
    """The largest error of a part of ``cos + i sin``, [positions, pairs]."""
    errors = [mpf(0)]
    for row, position in zip(units, positions, strict=True):
        for unit, (cosine, sine) in zip(row, hands(rates, position), strict=True):
            errors += [abs(mpf(float(unit.real)) - cosine), abs(mpf(float(unit.imag)) - sine)]
    return float(max(errors))


def sinusoid(rates: Sequence[Any], position: float, layout: str = "interleaved", order: str = "sin-cos") -> list[Any]:
    """A row of a sinusoidal table, channel by channel."""
    pairs = [(sine, cosine) if order == "sin-cos" else (cosine, sine) for cosine, sine in hands(rates, position)]
    if layout == "interleaved":
        return [number for pair in pairs for number in pair]
    return [first for first, _ in pairs] + [second for _, second in pairs]


def worst_entry(
    table: np.ndarray,
    rates: Sequence[Any],
    positions: Iterable[float],
    layout: str = "interleaved",
    order: str = "sin-cos",
) -> float:
    """The largest error of an entry of a table [positions, width]."""
    errors = [mpf(0)]
    for row, position in zip(table, positions, strict=True):
        wanted = sinusoid(rates, position, layout, order)
        errors += [abs(mpf(float(number)) - real) for number, real in zip(row, wanted, strict=True)]
    return float(max(errors))


def worst_number(table: Iterable[Iterable[float]], rows: Iterable[Iterable[mpf]]) -> float:
    """The largest error of a table whose real numbers are given row by row."""
    pairs = [pair for made, real in zip(table, rows, strict=True) for pair in zip(made, real, strict=True)]
    return float(max(abs(mpf(float(number)) - real) for number, real in pairs))


def nearest(number: float, bits: int, smallest: int) -> Fraction:
    """The nearest float of so many bits and no unit below ``2**smallest``, ties to even; no upper limit."""
    exact = Fraction(number)
    if not exact:
        return exact
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - bits + 1, smallest)
    return round(exact / unit) * unit


def bfloat16(number: float) -> Fraction:
    return nearest(number, 8, -133)


def float16(number: float) -> Fraction:
    return nearest(number, 11, -24)
