r"""How far a right additive function may be off, because its numbers are rounded.

As in `clockhands.testing.bounds`, ``e = 2**-24`` is half the distance of neighbouring float32 numbers relative to their
size, and ``u`` the same of the dtype of the tokens, or ``e`` where that is finer: what is done with tokens of float64
may be done in float32.

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
"""

from dataclasses import replace
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
from clockhands.faults.adding import Hands, hands_of
from clockhands.ladders import EvenSteps, Joined, Repeated
from clockhands.testing.bounds import SINGLE, TINY, UNIT


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


def wave_error(spec: AdditiveCode, hands: Hands, at: np.ndarray) -> np.ndarray:
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


def _shares(spec: AdditiveCode, hands: Hands) -> np.ndarray:
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


def _standardised_error(spec: Sinusoidal, hands: Hands, rows: np.ndarray, scale: float) -> np.ndarray:
    """What the mean and the spread of all rows add."""
    assert spec.standardised is not None
    plain = replace(spec, standardised=None, scale=1.0)
    every = np.arange(spec.standardised)
    made = table(plain, every, "float64")
    sums = SINGLE * (2 + np.log2(max(made.size, 2)))
    moved = float(wave_error(plain, hands, every.astype(np.float64)).mean()) + sums * float(np.abs(made).mean())
    spread = float(made.std(ddof=1))
    return scale * moved + np.abs(rows) * (moved + sums * spread) / spread
