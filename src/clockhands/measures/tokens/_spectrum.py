"""Measures how many directions of its channels a code uses, and which part of it is the same in every row.

**The numbers**, over the tokens of the length:

* ``channels``: the number of dimensions of a position's encoding; for an encoding with several axes, the number of
  dimensions for one coordinate.
* ``rank``: the number of singular values of the table that are larger than ``threshold`` times the largest singular
  value. The ``threshold`` is the distance from 1 to the next number of the dtype: 2**-23 for float32 (and also used for
  float64).
* ``rank_of_real_numbers``: for sines and cosines, the rank of the table without rounding, at most the number of tokens.
  Each frequency is first replaced by the frequency between 0 and pi that is equal to it at integer positions. Then each
  different frequency between 0 and pi adds two to the rank, and each of the frequencies 0 and pi adds one.
* ``mean_share``: the norm of the mean row divided by the root mean square of the norms of the rows, between 0 and 1.
  The mean row is the part of the encoding that is the same for all tokens.
* ``variance``: the mean squared distance of a row of the table from the mean row.
* ``directions_of_90_percent``, ``directions_of_99_percent``: how many of the directions with the largest variance hold
  90 % and 99 % of ``variance``;
* ``participation_ratio``: ``(sum v)**2 / sum v**2`` of the variances ``v`` along the principal directions of the rows:
  the number of directions of equal variance that would be equally spread out.
* ``variance_by_pair`` (for sines and cosines) or ``variance_by_channel``: the variance of each dimension pair or of
  each dimension, in the order of the pairs or dimensions.

**Method.** A shift only rotates the channels of a clock, so tokens may be counted from the middle of the text. Then
every cosine is even and every sine odd: the table splits into two of half the width, over half of the tokens (each
counted twice), and the mean row has cosines only.

**Accuracy.** Singular values are square roots of the eigenvalues of the smaller matrix of dot products, in float64.
Rounding moves an eigenvalue by about 1e-15 of the largest (measured beside a singular value decomposition at up to
8,192 tokens and 1,024 channels; held below 4e-15 by a test), so a singular value of 2**-23 of the largest has a
relative error of up to 1/7, and ranks are exact unless a singular value is that close to the threshold. Shares are
accurate to 1e-12.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.ladders import Ladder
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.errors import InvalidValue
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode

# Multiplications of a decomposition, and rows of a code without a clock; more would take too long.
_WORK, _ROWS = 8e9, 1 << 15

_NOTHING = 4e-15  # relative to the largest eigenvalue: what rounding leaves of identical rows

_THRESHOLDS = {"float64": 2.0**-23, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Spread(NamedTuple):
    """The singular values and variances of a table.

    Attributes:
        values: Singular values of the table, in descending order.
        centred: Singular values of the table minus its mean row.
        mean: The squared norm of the mean row.
        parts: The variance of each pair or channel.
    """

    values: NDArray[np.float64]
    centred: NDArray[np.float64]
    mean: float
    parts: NDArray[np.float64]


def spread_of_rows(rows: NDArray[np.float64]) -> Spread:
    """The decomposition of a table [tokens, channels].

    >>> spread_of_rows(np.array([[1.0, 1.0], [1.0, -1.0]])).centred.round(9).tolist()
    [1.414213562, 0.0]
    """
    return _decomposed(rows, np.ones(len(rows)))


def spread_of_clock(ladder: Ladder, tokens: int) -> Spread:
    """The decomposition of a clock's table over consecutive tokens with pairs of norm 1; any start gives the same.

    Accuracy: as the module says; the phases are exact.
    """
    middle = (tokens - 1) / 2
    at = np.arange(-(-tokens // 2)) + (middle % 1)
    unit = units(ladder, positions_of(at))
    weights = np.where(at == 0, 1.0, 2.0)
    cosine, sine = _decomposed(unit.real, weights), _singular(unit.imag, weights)
    values, centred = (np.sort(np.concatenate([one, sine]))[::-1] for one in (cosine.values, cosine.centred))
    # The mean of a cosine over the tokens: what remains of a pair of norm 1.
    means = weights @ unit.real / tokens
    return Spread(values, centred, cosine.mean, 1 - means**2)


def rank_of_real_numbers(ladder: Ladder) -> int:
    """How many directions the unrounded rows of a clock span at whole positions.

    Frequencies that give the same angles at every whole position, up to full rotations and the direction, count once.
    They are compared by 128 bits of a rotation.

    >>> from clockhands.encodings.ladders import Explicit
    >>> rank_of_real_numbers(Explicit((1.0, 1.0, 0.5, 0.0)).ladder(4, 8))
    5
    """
    high, low = ladder.turns.high.tolist(), ladder.turns.low.tolist()
    turns = {(above << 64) + below for above, below in zip(high, low, strict=True)}
    folded = {min(turn, 2**128 - turn) for turn in turns}
    return sum(1 if turn in (0, 2**127) else 2 for turn in folded)


def _decomposed(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> Spread:
    """The decomposition of rows that are counted with weights."""
    mean = weights @ rows / weights.sum()
    about = rows - mean
    parts = weights @ about**2 / weights.sum()
    return Spread(_singular(rows, weights), _singular(about, weights), float(mean @ mean), parts)


def _singular(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values of rows that are counted with weights, in descending order."""
    heavy = rows * np.sqrt(weights)[:, None]
    products = heavy.T @ heavy if len(heavy) > heavy.shape[1] else heavy @ heavy.T
    return np.sqrt(np.linalg.eigvalsh(products)[::-1].clip(0))


@measure
def spectrum(subject: MeasuredCode) -> Property:
    """How many directions of its channels a code uses; the module lists the numbers.

    Accuracy: see the module. A code of several axes is measured along each axis, with the pairs of that axis; the axis
    that uses the smallest share of its channels is reported.
    """
    if subject.length == 1:
        return not_computed(sentence("spectrum.one_token"))
    try:
        each = _each_axis(subject)
    except InvalidValue as error:
        return not_computed(str(error).splitlines()[0])
    if None in each:
        return not_computed(sentence("spectrum.too_long", length=subject.length))
    found = [one for one in each if one is not None]
    axis = min(range(len(found)), key=lambda number: found[number]["directions_of_99_percent"] or 0)
    return _property_of(subject, found[axis], axis)


def _each_axis(subject: MeasuredCode) -> list[dict[str, Any] | None]:
    """The figures along each axis; axes with equal frequencies are measured once."""
    ladders = subject.clock_ladders
    if not ladders:
        return [_along(subject, axis, None) for axis in range(subject.axes)]
    made = {ladder: _along(subject, ladders.index(ladder), ladder) for ladder in dict.fromkeys(ladders)}
    return [made[ladder] for ladder in ladders]


def _along(subject: MeasuredCode, axis: int, ladder: Ladder | None) -> dict[str, Any] | None:
    """The figures along one axis; None if they would take too long."""
    tokens = subject.length
    scale, exact = subject.scale, None
    if ladder is not None:
        if tokens / 2 * ladder.pairs * min(tokens / 2, ladder.pairs) > _WORK / 2:
            return None
        spread, exact = spread_of_clock(ladder, tokens), min(tokens, rank_of_real_numbers(ladder))
        channels, which = 2 * ladder.pairs, "variance_by_pair"
    else:
        width = int(getattr(subject.spec, "width", 1))
        if tokens > _ROWS or tokens * width * min(tokens, width) > _WORK:
            return None
        rows = subject.rows(0, tokens, axis, "float64")
        if subject.axes > 1:  # what belongs to the other coordinates stands still
            rows = rows[:, rows.max(axis=0) != rows.min(axis=0)]
        spread, scale = spread_of_rows(rows), 1.0
        channels, which = rows.shape[1], "variance_by_channel"
    same = spread.centred.max(initial=0) ** 2 <= _NOTHING * spread.values.max(initial=0) ** 2
    variances = np.zeros(1) if same else spread.centred**2 / tokens * scale**2
    variance, mean = float(variances.sum()), spread.mean * scale**2
    shares = np.cumsum(variances) / variance if variance > 0 else None
    threshold = _THRESHOLDS[subject.dtype.name]
    found: dict[str, Any] = {
        "channels": channels,
        "rank": int((spread.values > threshold * spread.values.max(initial=0)).sum()),
        "threshold": threshold,
        "rank_of_real_numbers": exact,
        "mean_share": math.sqrt(mean / (variance + mean)) if variance + mean > 0 else None,
        "variance": variance,
        "directions_of_90_percent": None if shares is None else _directions(shares, 0.9),
        "directions_of_99_percent": None if shares is None else _directions(shares, 0.99),
        "participation_ratio": None if shares is None else variance**2 / float((variances**2).sum()),
        which: (spread.parts * scale**2).tolist(),
    }
    return found


def _directions(shares: NDArray[np.float64], part: float) -> int:
    """How many of the largest variances hold a part of all, from their running share."""
    return min(int(np.searchsorted(shares, part)) + 1, len(shares))


def _property_of(subject: MeasuredCode, found: dict[str, Any], axis: int) -> Property:
    if subject.axes > 1:
        found |= {"axis": axis}
    words = {
        "length": subject.length, "dtype": subject.dtype.name, "where": f" of axis {axis}" if subject.axes > 1 else ""
    }  # fmt: skip
    return answer(
        "spectrum.all_equal" if found["directions_of_99_percent"] is None else "spectrum.spread", words=words, **found
    )
