r"""How far a right answer may be off, because its numbers are rounded.

Rotary functions
----------------
A function is right if it is made of the right real numbers, each operation rounded once. With ``e = 2**-24``, half the
distance of neighbouring float32 numbers relative to their size, and ``u`` the same of the dtype of the tokens:

**Phases.** A rate is ``exp(-x)`` or ``base**(-i/n)`` with ``x = |ln rate|``: the exponent is a product of rounded
numbers, off by ``3 e x``, which is a relative error of the rate; the power or exponential adds ``2 e``, a division
``e``. A scaling passes this error on times its own derivative ``k = |d ln scaled / d ln plain|``, which is measured at
the spec's own rates (at most 1 for linear scalings, more within the ramps of YaRN and Llama 3), and adds at most ten
roundings of its own, the base of NTK scalings among them. The position and the product are two more. So a phase ``p``
is off by at most ``e |p| (k (3 x + 3) + 12)`` where there is a scaling, ``e |p| (3 x + 5)`` where there is none, and
its cosine and sine together, as a point on the circle, by no more, and never by more than 2.

**Waves and products.** Cosine and sine are rounded to the tokens' dtype (or to a finer one), times the attention factor
(``u`` each); two products and a sum are rounded: ``4 u (|a cos| + |b sin|)``, at most ``4 u`` of the pair's length; an
attention factor that is not 1 is rounded itself, which makes it ``5 u``. Second orders, and products below the smallest
normal number, are within another percent and one unit of the dtype.

A function that does all of this in float64 stays within the same bounds: nothing here has to be as bad as it may be.

Additive functions
------------------
``e`` is as above, and ``u`` too, or ``e`` where that is finer: what is done with tokens of float64 may be done in
float32.

**Phases.** A rate is ``exp(-x)`` or ``base**(-i/n)`` with ``x = |ln(rate / multiplier)|``: the exponent is a product of
rounded numbers, off by ``3 e x``; the power or exponential adds ``2 e``, a division ``e``; the position and the product
are two more. So a phase ``p`` is off by at most ``e |p| (3 x + 5)``, by 2 roundings more where there is a multiplier
(it is rounded, and multiplied by), by 3 more where the position is warped first. Evenly spaced rates are differences of
numbers of the size of the largest, off by ``4 e`` of that. Rates that are given as values are rounded once, and the
products of several axes are summed: one rounding for each axis, and for the phases at the origin. No wave is off by
more than 2.

**Rows.** A sine or cosine of float32 is within ``2 e``; a scale is rounded, and multiplied by: ``2 u`` of the number. A
row of a learned table, of counters or of shares is off by at most ``3 e`` of itself: two numbers and their quotient.
Where the mean of all rows is taken away and they are divided by their spread, the mean moves by at most the mean error
of the rows, the spread by no more, and sums of n numbers add ``(2 + log2 n) e`` of their size.

**The sum.** The table is rounded to the tokens' dtype (``u`` of the row), a factor of the tokens is rounded and
multiplied by (``2 u``), and so is the sum (``u``); tokens of float64 are rounded to float32 first. Second orders, and
what is below the smallest normal number, are within another percent and a few units of the dtype.

Biases
------
``u`` is that of the dtype that the bias should be good for (no finer than float32: learned tables and slopes are held
in it). Each bias derives its own bound, `clockhands.biases.BiasCode.rounding_error`, and that of the distances that may
be in either of two buckets, `clockhands.biases.codes.LogBuckets.near_edge`.

Where constants of rows are removed, the error of the key that they are read at is added. One percent and one unit of
the smallest number are for second orders.

Modules after a treatment
-------------------------
With ``u`` half the distance of neighbouring numbers of the dtype of the answer (the coarser one of both answers):

**The same arithmetic.** A treatment that leaves the numbers alone leaves cosine, sine, products and sum to be rounded
to the dtype of the tokens: ``4 u`` of a pair's length, as above. Tokens are +1 and -1, so a
pair of them is ``sqrt(2)`` long, and no turned one is longer than ``sqrt(2)`` times the largest number that came back;
a code that is added is rounded twice, which is less. A bias is rounded three times at most (the slope, the distance,
their product), relative to itself: ``4 u |bias|``. Its parameters are those of the question that it is compared with.

Cast to a coarser dtype and back, computed numbers may stay rounded to it once, as the learned ones beside them do:
``u`` is then that of the coarser dtype. Rates that stay rounded are off by that much of a phase, which grows with the
position and is not allowed.

**Other arithmetic.** What was compiled, cast to float64 or computed anew may have made its rates and phases by other
operations, as right as the first. A phase ``p r`` made in float32 is off by ``2**-24 p r (3 |ln r| + 5)``, which for
rates up to 1 is largest at ``r = 1``, where it is ``5 x 2**-24 p``; twice that lies between two right ones, and as much
again passes through a scaling. It is ``20 x 2**-24 p`` times the fastest rate, where that is above 1. Biases, likewise,
may be off by 20 roundings in float32.
"""

from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from clockhands.additive import (
    AdditiveCode,
    EvenlySpaced,
    FourierFeatures,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.biases import BiasCode
from clockhands.dtypes import SMALLEST as TINY
from clockhands.dtypes import UNIT_ROUNDOFF as UNIT
from clockhands.faults import ChannelWaves, hands_of
from clockhands.ladders import EvenSteps, Joined, Repeated
from clockhands.rotary import Rotary

SINGLE = UNIT["float32"]


def phase_error(phases: np.ndarray, rates: np.ndarray, passed_on: np.ndarray | None = None) -> np.ndarray:
    """How far phases may be off that are made in float32.

    Args:
        phases: Position times rate, [..., pairs].
        rates: Those of the ladder before it is scaled, [pairs].
        passed_on: The derivative of a scaling, [pairs]; None where there is none.
    """
    logarithms = np.abs(np.log(np.where(rates > 0, rates, 1.0)))
    shares = 3 * logarithms + 5 if passed_on is None else passed_on * (3 * logarithms + 3) + 12
    return np.minimum(SINGLE * np.abs(phases) * shares, 2.0)


@lru_cache(maxsize=32)
def passed_on(spec: Rotary) -> np.ndarray | None:
    """``|d ln scaled rate / d ln plain rate|`` of a spec's scaling, [pairs]; None where it has none.

    By central differences of the scaling itself, over one part in a million: far above the rounding of float64, far
    below what its ramps take.
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


@lru_cache(maxsize=32)
def _unscaled_rates(spec: Rotary) -> np.ndarray:
    plain = spec if spec.scaling is None else replace(spec, scaling=None, length=None)
    return np.array(plain.rates)


def turned_error(x: np.ndarray, spec: Rotary, phases: np.ndarray, dtype: str) -> np.ndarray:
    """How far each channel of turned tokens may be off, of x's shape.

    Args:
        x: The tokens, float64, as the dtype holds them, [..., seq, width].
        spec: The code.
        phases: Of each token and pair, [..., seq, pairs].
        dtype: The dtype that the function computes and answers in.
    """
    first, second = spec.channels.T
    length = np.hypot(x[..., first], x[..., second]) * spec.attention_factor
    moved = phase_error(phases, _unscaled_rates(spec), passed_on(spec))
    # Tokens of float64 may meet waves of float32.
    unit = max(UNIT[dtype], SINGLE)
    pairs = 1.01 * length * (moved + (4 + (spec.attention_factor != 1)) * unit) + 4 * TINY[dtype]
    allowed = np.zeros(np.broadcast_shapes(x.shape, (*phases.shape[:-1], x.shape[-1])))
    allowed[..., first] = pairs
    allowed[..., second] = pairs
    return allowed


def row_error(spec: AdditiveCode, values: Any, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How far the rows of a code may be off that are made in float32, of the shape of rows.

    Args:
        spec: The code.
        values: Its learned numbers, or None.
        at: Positions [..., seq], or [..., seq, axes].
        rows: What is right there, [..., seq, width].
    """
    hands = hands_of(spec, values)
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
    """How far tokens may be off to which these rows were added, of x's shape.

    Args:
        x: The tokens, as the dtype holds them; zeros where a table alone is asked for.
        rows: What is right, broadcast to x.
        errors: `row_error` of them.
        dtype: The dtype that the function answers in.
        token_scale: What the tokens are multiplied by.
        scaled: Whether the code has a scale.
    """
    unit = max(UNIT[dtype], SINGLE)
    token = np.abs(token_scale * x)
    token *= unit * (1 + 2 * (token_scale != 1) + (UNIT[dtype] < SINGLE))
    # In place, as there may be millions.
    token += np.abs(rows) * ((4 if scaled else 2) * unit)
    token += errors
    token *= 1.01
    token += 4 * TINY[dtype]
    return token


def is_scaled(spec: AdditiveCode) -> bool:
    """Whether numbers are multiplied by something after they are made."""
    return getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0))) != (0.0, 1.0) or getattr(spec, "scaled", False)


def _scale(spec: AdditiveCode, values: Any) -> float:
    scale = abs(getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0)))[1])
    if isinstance(spec, Sinusoidal) and spec.scaled:
        scale *= abs(float(np.asarray(values, np.float64).reshape(())))
    return scale


def wave_error(spec: AdditiveCode, hands: ChannelWaves, at: np.ndarray) -> np.ndarray:
    """Of waves between -1 and 1, [..., seq, width]."""
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
    """The error of a phase for each token, as a multiple of `SINGLE`, [axes, width]."""
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
    """What the mean and the spread of all rows add."""
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
    """How far each number of a bias may be off, before constants of rows are removed.

    Args:
        spec: The code.
        queries: Their positions, [queries].
        keys: Theirs, [keys].
        numbers: What is right, float64 [heads, queries, keys].
        values: Learned numbers, or None.
        dtype: What the numbers should be good for.

    Returns:
        Two arrays that broadcast to [heads, queries, keys]: the error, and a relative one that the whole row has in
        common (that of a slope): of a difference of two keys it is the share that may be off.
    """
    unit, least = max(UNIT[dtype], SINGLE), TINY[dtype] + TINY["float32"]
    own, common = spec.rounding_error(queries, keys, np.abs(numbers), values, unit)
    return 1.01 * own + least, 1.01 * common


def near_edge(spec: BiasCode, distances: np.ndarray) -> np.ndarray:
    """Which distances lie so near an edge of two buckets that float32 may put them on either side.

    Such a distance is the last of its bucket, or the first: the other bucket is that of a neighbour (`beyond_edge`).
    """
    if spec.log_buckets is None:
        return np.zeros(np.shape(distances), bool)
    return spec.log_buckets.near_edge(distances)


def beyond_edge(spec: BiasCode, distances: np.ndarray) -> np.ndarray:
    """The neighbour of each distance that lies in the next bucket, before or after; itself where none does."""
    sizes, sign = np.abs(distances), np.where(distances < 0, -1, 1)
    limits = np.array(spec.boundaries, np.int64)  # type: ignore[attr-defined]
    row = np.searchsorted(limits, sizes, side="right")
    near = near_edge(spec, distances)
    down = near & (np.searchsorted(limits, sizes - 1, side="right") != row)
    up = near & ~down & (np.searchsorted(limits, sizes + 1, side="right") != row)
    return sign * (sizes - down + up)


_OTHER = 20 * 2.0**-24


def treated_error(wanted: Any, dtype: str, *, is_bias: bool, another: bool, fastest: float) -> np.ndarray:
    """How far each number of a module's answer may be off after a treatment.

    Args:
        wanted: The answer that it is compared with: its rows, their positions, its dtype and its largest number.
        dtype: Of the answer.
        is_bias: Whether it is a bias.
        another: Whether other arithmetic may have made it.
        fastest: The largest rate, if above 1 rad/token.
    """
    unit, tiny = (max(kind[dtype], kind[wanted.dtype]) for kind in (UNIT, TINY))
    if is_bias:
        size = np.where(np.isfinite(wanted.rows), np.abs(wanted.rows), 0.0)
        return 1.01 * size * (4 * unit + (_OTHER if another else 0.0)) + 4 * tiny
    size = np.sqrt(2) * max(1.0, wanted.size)
    moved = np.minimum(_OTHER * np.abs(wanted.positions) * fastest, 2.0) if another else 0.0 * wanted.positions
    return np.broadcast_to((1.01 * size * (4 * unit + moved) + 4 * tiny)[:, None], wanted.rows.shape)
