r"""Bounds of the rounding error of a correct output.

Rotary functions
----------------
A function is correct if it computes the defined real numbers with one rounding per operation. ``e = 2**-24`` is the
unit roundoff of float32 (half the relative distance of neighbouring numbers), and ``u`` that of the tokens' dtype.

**Phases.** A frequency is ``exp(-x)`` or ``base**(-i/n)`` with ``x = |ln frequency|``. The exponent is a product of
rounded numbers with an error of ``3 e x``, which is a relative error of the frequency; the power or exponential adds
``2 e``, a division ``e``. A scaling multiplies this error by its derivative ``k = |d ln scaled / d ln plain|``, which
is measured at the frequencies of the spec (at most 1 for linear scalings, more within the ramps of YaRN and Llama 3),
and adds at most ten roundings, including that of the base of NTK scalings. The position and the product add two. So
the error of a phase ``p`` is at most ``e |p| (k (3 x + 3) + 12)`` with a scaling and ``e |p| (3 x + 5)`` without one.
Cosine and sine together, as a point on the circle, have no larger error than the phase, and never more than 2.

**Waves and products.** Cosine and sine are multiplied by the attention factor and rounded to the tokens' dtype or to a
finer one (``u`` each). Two products and a sum are rounded: ``4 u (|a cos| + |b sin|)``, at most ``4 u`` times the norm
of the pair. An attention factor other than 1 is rounded too, which makes it ``5 u``. One percent more and one unit of
the dtype cover second-order terms, and products below the smallest normal number.

A function that computes all of this in float64 stays within the same bounds, because they are upper bounds.

Additive functions
------------------
``e`` is as above. ``u`` is the unit roundoff of the tokens' dtype, but at least ``e``, because a function of float64
tokens may compute in float32.

**Phases.** A frequency is ``exp(-x)`` or ``base**(-i/n)`` with ``x = |ln(frequency / multiplier)|``. The exponent is a
product of rounded numbers with an error of ``3 e x``; the power or exponential adds ``2 e``, a division ``e``; the
position and the product add two roundings. So the error of a phase ``p`` is at most ``e |p| (3 x + 5)``. A multiplier
adds 2 roundings (its own, and the product), a warped position adds 3. Evenly spaced frequencies are differences of
numbers of the size of the largest, with an error of ``4 e`` times the largest. Frequencies that are given as values are
rounded once, and the products of several axes are summed: one rounding for each axis, and one for the phases at the
origin. No wave has an error above 2.

**Rows.** A sine or cosine in float32 is within ``2 e``; a scale is rounded, and so is the product with it: ``2 u`` of
the number. A row of a learned table, of counters or of shares has a relative error of at most ``3 e``: two numbers and
their quotient. If the rows are standardised (minus the mean of all rows, divided by their standard deviation), the
error of the mean is at most the mean error of the rows, that of the standard deviation is no larger, and a sum of n
numbers adds ``(2 + log2 n) e`` of their size.

**The sum.** The table is rounded to the tokens' dtype (``u`` of the row), a factor of the tokens is rounded and so is
its product (``2 u``), and the sum is rounded (``u``); float64 tokens are rounded to float32 first. One percent more and
a few units of the dtype cover second-order terms, and numbers below the smallest normal number.

Biases
------
``u`` is the unit roundoff of the precision that the bias must have (at least that of float32, in which learned tables
and slopes are stored). Each class of biases derives its bound in `clockhands.biases.BiasCode.rounding_error`, and which
distances may fall into either of two buckets in `clockhands.biases.codes.LogBuckets.near_edge`.

If rows are compared relative to one key, the error at this key is added. One percent more and one unit of the smallest
number cover second-order terms.

Modules after a treatment
-------------------------
``u`` is the unit roundoff of the coarser one of the dtypes of the two outputs.

**The same arithmetic.** If a treatment does not change the numbers, only cosine, sine, products and sum are rounded to
the tokens' dtype: ``4 u`` times the norm of a pair, as above. Tokens are +1 and -1, so a pair has the norm ``sqrt(2)``,
and no rotated pair has a larger norm than ``sqrt(2)`` times the largest number of the output. An additive encoding is
rounded twice, which is less. A bias is rounded at most three times (the slope, the distance, their product), relative
to itself: ``4 u |bias|``. Its parameters are those of the output with which it is compared.

After a cast to a coarser dtype and back, computed numbers may remain rounded once, as learned numbers do: ``u`` is then
that of the coarser dtype. This allowance does not cover rounded frequencies, because their phase error grows with the
position.

**Other arithmetic.** A module that was compiled, cast to float64 or computed again may compute its frequencies and
phases with other, equally correct operations. The error of a phase ``p r`` in float32 is ``2**-24 p r (3 |ln r| + 5)``.
For frequencies up to 1 it is largest at ``r = 1``, where it is ``5 x 2**-24 p``; two correct phases may differ by twice
that, and a scaling may double it again. So ``20 x 2**-24 p`` is allowed, times the largest frequency if that is above
1. Biases may likewise have an error of 20 roundings in float32.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from clockhands.encodings.additive import (
    AdditiveCode,
    EvenlySpaced,
    FourierFeatures,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.dtypes import SMALLEST as TINY
from clockhands.encodings.dtypes import UNIT_ROUNDOFF as UNIT
from clockhands.encodings.ladders import EvenSteps, Joined, Repeated
from clockhands.encodings.rotary import Rotary
from clockhands.recognition.channel_waves import ChannelWaves, sinusoid_channels

SINGLE = UNIT["float32"]


def phase_error(phases: np.ndarray, rates: np.ndarray, passed_on: np.ndarray | None = None) -> np.ndarray:
    """The bound of the error of phases that are computed in float32, in rad, of the shape of ``phases``; at most 2.

    Args:
        phases: Position times frequency, [..., pairs].
        rates: The frequencies before scaling, [pairs].
        passed_on: The derivative of a scaling, [pairs]; None without a scaling.
    """
    return np.minimum(SINGLE * np.abs(phases) * phase_shares(rates, passed_on), 2.0)


def phase_shares(rates: np.ndarray, passed_on: np.ndarray | None = None) -> np.ndarray:
    """The error of a phase that is computed in float32, as a multiple of `SINGLE` times the phase, [pairs].

    Args:
        rates: The frequencies before scaling, [pairs].
        passed_on: The derivative of a scaling, [pairs]; None without a scaling.
    """
    logarithms = np.abs(np.log(np.where(rates > 0, rates, 1.0)))
    return 3 * logarithms + 5 if passed_on is None else passed_on * (3 * logarithms + 3) + 12


def passed_on(spec: Rotary) -> np.ndarray | None:
    """``|d ln scaled rate / d ln plain rate|`` of a spec's scaling, [pairs]; None where it has none.

    Computed by central differences with a relative step of 1e-6: far above the rounding errors of float64, and far
    below the width of the ramps.
    """
    if spec.scaling is None:
        return None
    plain, scaling = replace(spec, scaling=None, length=None).ladder, spec.scaling
    step = Decimal("1e-6")

    def scaled(factor: Decimal) -> np.ndarray:
        moved = replace(plain.mapped(lambda _, rate: rate * factor, "moved"), ratio=plain.ratio)
        return np.array(scaling(moved, spec.length).rates)

    with np.errstate(divide="ignore", invalid="ignore"):
        derivative = (np.log(scaled(1 + step)) - np.log(scaled(1 - step))) / float(2 * step)
    return np.where(np.isfinite(derivative), np.abs(derivative), 1.0)


@lru_cache(maxsize=1024)
def _phase_shares(spec: Rotary) -> np.ndarray:
    """The error of each pair's phase, as a multiple of `SINGLE` times the phase, [pairs]."""
    plain = spec if spec.scaling is None else replace(spec, scaling=None, length=None)
    return phase_shares(np.array(plain.rates), passed_on(spec))


def _as_slice(channels: np.ndarray) -> slice | np.ndarray:
    """Evenly spaced channels as a slice, which selects them without a copy; others as they are."""
    steps = np.diff(channels)
    if not len(steps) or steps[0] <= 0 or (steps != steps[0]).any():
        return channels
    return slice(int(channels[0]), int(channels[-1]) + 1, int(steps[0]))


def rotation_error(x: np.ndarray, spec: Rotary, phases: np.ndarray, dtype: str) -> np.ndarray:
    """The bound of the error of each dimension of rotated tokens, of x's shape.

    Args:
        x: The tokens as float64, rounded to the dtype, [..., seq, width].
        spec: The RoPE spec.
        phases: The phase of each token and pair, [..., seq, pairs].
        dtype: The dtype in which the function computes and returns.
    """
    first, second = map(_as_slice, spec.channels.T)
    factor = spec.ladder.attention_factor
    # Float64 tokens may be multiplied by cosines and sines of float32.
    unit = max(UNIT[dtype], SINGLE)
    # In place to save time and memory: there may be millions of numbers.
    relative = np.abs(phases)
    relative *= SINGLE * _phase_shares(spec)
    np.minimum(relative, 2.0, out=relative)
    relative += (4 + (factor != 1)) * unit
    pairs = np.hypot(x[..., first], x[..., second])
    pairs *= factor
    pairs *= 1.01
    pairs = pairs * relative
    pairs += 4 * TINY[dtype]
    allowed = np.zeros(np.broadcast_shapes(x.shape, (*phases.shape[:-1], x.shape[-1])))
    allowed[..., first] = pairs
    allowed[..., second] = pairs
    return allowed


def resizing_error(values: np.ndarray, grid: Sequence[int]) -> float:
    """The bound of the error of each number of a learned table that is resized in float32.

    Along an axis of ``n`` rows the place of a new row has three roundings, each of at most ``u n``. A weight changes
    with the place by at most 1.4 (cubic, a = -0.75), and is a polynomial whose terms are at most 6, with eight
    roundings. Four weights of each axis are not 0, and the sizes of those of the other axis add up to at most 1.6;
    antialiasing has more weights, which are as much smaller. The sum of 16 products has 16 roundings.

    Args:
        values: The rows before.
        grid: The sizes of their grid.
    """
    largest = float(np.abs(values).max(initial=0.0))
    weights = sum(4 * 1.6 * (1.4 * 3 * rows + 8 * 6) for rows in grid)
    return largest * SINGLE * (weights + 16 * 1.6**2)


def row_error(spec: AdditiveCode, values: Any, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The bound of the error of rows that are computed in float32, of the shape of ``rows``.

    Args:
        spec: The encoding.
        values: Its learned numbers, or None.
        at: Positions [..., seq], or [..., seq, axes].
        rows: The correct rows, [..., seq, width].
    """
    hands = sinusoid_channels(spec, values)
    if hands is None:
        return 3 * SINGLE * np.abs(rows)
    scale = _scale(spec, values)
    error = scale * wave_error(spec, hands, np.asarray(at, np.float64))
    error[..., hands.quarters < 0] = 0
    error[..., hands.raw >= 0] = 2 * SINGLE * np.abs(rows[..., hands.raw >= 0])
    if isinstance(spec, Sinusoidal) and spec.standardised is not None:
        error = error + _standardised_error(spec, hands, rows, scale)
    return error


def added_error(
    x: np.ndarray, rows: np.ndarray, errors: np.ndarray, dtype: str, *, token_scale: float, scaled: bool
) -> np.ndarray:
    """The bound of the error of tokens plus rows, of x's shape.

    Args:
        x: The tokens, rounded to the dtype; zeros for a function that returns a table.
        rows: The correct rows, broadcast to x.
        errors: The `row_error` of these rows.
        dtype: The dtype that the function returns.
        token_scale: The factor of the tokens.
        scaled: Whether the encoding has a scale.
    """
    unit = max(UNIT[dtype], SINGLE)
    token = np.abs(token_scale * x)
    token *= unit * (1 + 2 * (token_scale != 1) + (UNIT[dtype] < SINGLE))
    # In place to save memory: there may be millions of numbers.
    token += np.abs(rows) * ((4 if scaled else 2) * unit)
    token += errors
    token *= 1.01
    token += 4 * TINY[dtype]
    return token


def is_scaled(spec: AdditiveCode) -> bool:
    """Whether the encoding has an offset or a scale, which are applied after the rows are computed."""
    return getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0))) != (0.0, 1.0) or getattr(spec, "scaled", False)


def _scale(spec: AdditiveCode, values: Any) -> float:
    scale = abs(getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0)))[1])
    if isinstance(spec, Sinusoidal) and spec.scaled:
        scale *= abs(float(np.asarray(values, np.float64).reshape(())))
    return scale


def wave_error(spec: AdditiveCode, hands: ChannelWaves, at: np.ndarray) -> np.ndarray:
    """The bound of the error of sines and cosines without a scale, [..., seq, width]."""
    at = at[..., None] if len(hands.rates) == 1 else at
    if isinstance(spec, WarpedPosition):
        with np.errstate(divide="ignore"):
            at = {"square": np.square, "log": lambda p: np.abs(np.log(p)), "reciprocal": lambda p: 1 / np.abs(p)}[
                spec.warp
            ](at)
    size = np.abs(at) @ _shares(spec, hands)
    if hands.offsets.any():
        size = size + 4 * np.abs(hands.offsets)
    return np.minimum(SINGLE * size, 2.0) + 2 * SINGLE


def _shares(spec: AdditiveCode, hands: ChannelWaves) -> np.ndarray:
    """The error of a phase per unit of position, as a multiple of `SINGLE`, [axes, width]."""
    rates = np.abs(hands.rates)
    if isinstance(spec, FourierFeatures):
        return rates * (7 + spec.axes + spec.offsets)
    spacings = _spacings(spec)
    multipliers = {float(getattr(spacing, "multiplier", 1.0)) for spacing in spacings}
    powers = np.max([np.abs(np.log(np.where(rates > 0, rates / each, 1.0))) for each in multipliers], axis=0)
    shares = rates * (3 * powers + 5 + 2 * (multipliers != {1.0}) + 3 * isinstance(spec, WarpedPosition))
    if isinstance(spec, EvenlySpaced) or any(isinstance(each, EvenSteps) for each in spacings):
        shares = shares + 4 * rates.max() * (rates > 0)
    return shares


def _spacings(spec: AdditiveCode) -> tuple[Any, ...]:
    spacing = getattr(spec, "spacing", None)
    found: list[Any] = []
    for each in spacing if isinstance(spacing, tuple) else (spacing,):
        inner = each.spacing if isinstance(each, Repeated) else each
        found += [part for _, part in inner.parts] if isinstance(inner, Joined) else [inner]
    return tuple(found)


def _standardised_error(spec: Sinusoidal, hands: ChannelWaves, rows: np.ndarray, scale: float) -> np.ndarray:
    """The error that the mean and the standard deviation of all rows add, of the shape of ``rows``."""
    assert spec.standardised is not None
    plain = replace(spec, standardised=None, scale=1.0)
    every = np.arange(spec.standardised)
    made = table(plain, every, "float64")
    sums = SINGLE * (2 + np.log2(max(made.size, 2)))
    moved = float(wave_error(plain, hands, every.astype(np.float64)).mean()) + sums * float(np.abs(made).mean())
    spread = float(made.std(ddof=1))
    return scale * moved + np.abs(rows) * (moved + sums * spread) / spread


def bias_error(
    spec: BiasCode, queries: np.ndarray, keys: np.ndarray, numbers: np.ndarray, *, values: Any, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """The bound of the error of each number of a bias, before rows are compared relative to one key.

    Args:
        spec: The bias.
        queries: The positions of the queries, [queries].
        keys: The positions of the keys, [keys].
        numbers: The correct numbers, float64 [heads, queries, keys].
        values: Learned numbers, or None.
        dtype: The precision that the numbers must have.

    Returns:
        Two arrays that broadcast to [heads, queries, keys]: the absolute error, and a relative error that all keys of a
        row share (that of a slope), so that it is also the relative error of the difference of two keys.
    """
    unit, least = max(UNIT[dtype], SINGLE), TINY[dtype] + TINY["float32"]
    own, common = spec.rounding_error(queries, keys, np.abs(numbers), values, unit)
    return 1.01 * own + least, 1.01 * common


def near_edge(spec: BiasCode, distances: np.ndarray) -> np.ndarray:
    """Which distances are so near the edge of two buckets that float32 may put them on either side; booleans.

    Such a distance is the last or the first of its bucket: `beyond_edge` gives a distance in the other bucket.
    """
    if spec.log_buckets is None:
        return np.zeros(np.shape(distances), bool)
    return spec.log_buckets.near_edge(distances)


def beyond_edge(spec: BiasCode, distances: np.ndarray) -> np.ndarray:
    """For each distance near an edge, the distance one token away that lies in the other bucket; else the distance."""
    sizes, sign = np.abs(distances), np.where(distances < 0, -1, 1)
    limits = np.array(spec.boundaries, np.int64)  # type: ignore[attr-defined]
    row = np.searchsorted(limits, sizes, side="right")
    near = near_edge(spec, distances)
    down = near & (np.searchsorted(limits, sizes - 1, side="right") != row)
    up = near & ~down & (np.searchsorted(limits, sizes + 1, side="right") != row)
    return sign * (sizes - down + up)


_OTHER = 20 * 2.0**-24


def treated_error(wanted: Any, dtype: str, *, is_bias: bool, another: bool, fastest: float) -> np.ndarray:
    """The bound of the error of each number of a module's output after a treatment, of the shape of ``wanted.rows``.

    Args:
        wanted: The expected output: its rows, their positions, its dtype and its largest number.
        dtype: The dtype of the output.
        is_bias: Whether it is a bias.
        another: Whether it may have been computed by other arithmetic.
        fastest: The largest frequency, at least 1 rad/token.
    """
    unit, tiny = (max(kind[dtype], kind[wanted.dtype]) for kind in (UNIT, TINY))
    if is_bias:
        size = np.where(np.isfinite(wanted.rows), np.abs(wanted.rows), 0.0)
        return 1.01 * size * (4 * unit + (_OTHER if another else 0.0)) + 4 * tiny
    size = np.sqrt(2) * max(1.0, wanted.size)
    moved = np.minimum(_OTHER * np.abs(wanted.positions) * fastest, 2.0) if another else 0.0 * wanted.positions
    return np.broadcast_to((1.01 * size * (4 * unit + moved) + 4 * tiny)[:, None], wanted.rows.shape)
