"""Finds the two tokens with the nearest rows, and the period after which all pairs repeat their angles.

**Clocks** (codes of cosine-sine pairs). The distance of the rows of two tokens depends only on the tokens between them:
``distance(k) ** 2 = sum_i |1 - exp(i k rate_i)| ** 2 = 2 (kernel(0) - kernel(k))``. All kernels of a range are one
product of matrices, since ``cos(a + b) = cos a cos b - sin a sin b``: for ``n`` distances, about ``2 sqrt(n)`` exact
sines of each pair are needed. In float64 a kernel of ``P`` pairs is then off by at most ``P (2 P + 7) 2**-53``: ``2 P``
products of two numbers off by at most 1.55 x 2**-53 each, summed in any order; and the square by at most ``e = 2 P (2 P
+ 9) 2**-53``. So the nearest is among the distances whose square is within ``4 e`` of the smallest found, and these are
computed again from exact phases.

**Tables.** Without a formula all pairs of rows are compared: blocks of products ``a . b``, with ``|a - b| ** 2 = |a| **
2 + |b| ** 2 - 2 a . b``. Pairs within the rounding error of the smallest are computed again from the differences of the
rows.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from clockhands.encodings.ladders import TWO_PI, Ladder, working
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.errors import InvalidValue
from clockhands.measures.tokens.smooth import step_distances

LARGEST_TABLE = 16_384
"""Rows from which on not all pairs are compared."""

_FINE = 1024  # distances that share one coarse value
_CLOSE = 4096  # distances within rounding of the smallest that are computed again
_ROWS = 1024
_SMALL = 1 << 25  # multiplications
_LARGEST_PART = 10**6


def nearest_offset(ladder: Ladder, length: int) -> tuple[int, float]:
    """The distance ``1 <= k < length`` at which two rows are nearest, and the Euclidean distance of these rows.

    The Euclidean distance is that of cosines and sines, ``sqrt(sum_i 4 sin(k rate_i / 2) ** 2)``; of equal ones the
    smallest ``k`` is returned.

    Accuracy: the distance itself within ``sqrt(2 pairs) 1.55 x 2**-53``; a nearer pair is possible only within the
    error of a square, at most ``4 e`` (see the module).

    Raises:
        InvalidValue: There are fewer than two tokens.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5, for the code; the distance is elementary.

    >>> from clockhands.encodings.ladders import geometric
    >>> k, apart = nearest_offset(geometric(1), 1000)
    >>> k, round(apart, 7)
    (710, 6.03e-05)
    """
    if length < 2:
        raise InvalidValue(f"`length` must be at least 2, got {length}.", "One token has no other to compare with.")
    pairs = ladder.pairs
    together = min(_FINE, 1 << ((length - 1).bit_length() + 1) // 2)
    fine = _sides(ladder, range(together))
    slack = 4 * 2 * pairs * (2 * pairs + 9) * 2.0**-53
    best, found = math.inf, (np.empty(0, np.int64), np.empty(0))
    for start in range(0, length, together * _FINE):
        coarse = _sides(ladder, range(start, min(start + together * _FINE, length), together))
        coarse[:, pairs:] *= -1
        squares = 2 * (pairs - _products(coarse, fine)).reshape(-1)[: length - start]
        if not start:
            squares[0] = math.inf
        best = min(best, float(squares.min()))
        close = np.flatnonzero(squares <= best + slack)
        offsets, values = np.concatenate([found[0], close + start]), np.concatenate([found[1], squares[close]])
        kept = np.flatnonzero(values <= best + slack)
        kept = np.sort(kept[np.argsort(values[kept], kind="stable")[:_CLOSE]])
        found = offsets[kept], values[kept]
    exact = step_distances(ladder, found[0])
    at = int(np.argmin(exact))
    return int(found[0][at]), float(exact[at])


def _sides(ladder: Ladder, distances: range) -> np.ndarray:
    """Cosines, then sines, of all pairs at these distances, float64 [distances, 2 pairs]."""
    turned = units(ladder, positions_of(distances))
    return np.concatenate([turned.real, turned.imag], axis=1)


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product of each row of one with each row of the other; small products run without threads."""
    if len(left) * right.size <= _SMALL:
        return np.einsum("rc,sc->rs", left, right)
    return left @ right.T


def nearest_rows(table: np.ndarray) -> tuple[int, int, float]:
    """The two rows that are nearest to each other, and their Euclidean distance: ``(earlier, later, distance)``.

    Of equally near pairs, the one with the smallest earlier row, then the smallest later row.

    Accuracy: the distance within a relative ``(width + 3) 2**-53``; no pair is nearer by more than that.

    Raises:
        InvalidValue: There are fewer than two rows, or more than `LARGEST_TABLE`.

    >>> nearest_rows(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 1.0]]))
    (1, 2, 3.0)
    """
    number, width = table.shape
    if not 2 <= number <= LARGEST_TABLE:
        raise InvalidValue(
            f"A table must have 2 to {LARGEST_TABLE:,} rows for a comparison of all pairs of rows, got {number:,}.",
            "Pass fewer rows, and at least 2.",
        )
    mean = table.mean(axis=0, dtype=np.float64)

    def centred(first: int) -> np.ndarray:
        # Made again for each product, which takes far longer: only a block of rows is held as float64.
        return table[first : first + _ROWS].astype(np.float64) - mean

    tops = range(0, number, _ROWS)
    sizes = np.concatenate([np.einsum("rc,rc->r", block, block) for block in map(centred, tops)])
    # The square of a distance as one product: (-2 a, |a|^2, 1) . (b, 1, |b|^2).
    one = np.ones((number, 1))
    best = math.inf, 0, 0
    for top in tops:
        above = slice(top, top + _ROWS)
        left = np.concatenate([-2 * centred(top), sizes[above, None], one[above]], axis=1)
        for side in tops[top // _ROWS :]:
            beside = slice(side, side + _ROWS)
            squares = _products(left, np.concatenate([centred(side), one[beside], sizes[beside, None]], axis=1))
            if side == top:
                squares[np.tri(len(squares), dtype=bool)] = math.inf
            # Products and sums of numbers of these sizes, each rounded.
            slack = 2 * (width + 8) * 2.0**-52 * (sizes[above].max() + sizes[beside].max())
            smallest = float(squares.min())
            if smallest <= best[0] ** 2 + slack:
                earlier, later = np.nonzero(squares <= min(smallest + 2 * slack, best[0] ** 2 + slack))
                best = min(best, _nearest_of(table, earlier + top, later + side))
    return best[1], best[2], best[0]


def _nearest_of(table: np.ndarray, earlier: np.ndarray, later: np.ndarray) -> tuple[float, int, int]:
    """The nearest of some pairs of rows, from the differences of the rows: ``(distance, earlier, later)``."""
    best = math.inf, 0, 0
    for begin in range(0, len(earlier), _ROWS):
        one, other = earlier[begin : begin + _ROWS], later[begin : begin + _ROWS]
        apart = table[one].astype(np.float64) - table[other].astype(np.float64)
        squares = np.einsum("rc,rc->r", apart, apart)
        at = int(np.argmin(squares))
        best = min(best, (math.sqrt(squares[at]), int(one[at]), int(other[at])))
    return best


def period(ladder: Ladder) -> float | None:
    """After how many tokens all pairs are back at their angles, a real number; None if that never happens.

    ``2 pi / g`` for the largest ``g`` of which every frequency is a whole multiple. The frequencies must have ratios of
    whole numbers; numbers up to a million are recognised, to 50 digits. The period is not a whole number of tokens,
    unless a frequency is a rational part of 2 pi to all its digits.

    >>> from clockhands.encodings.ladders import geometric
    >>> round(period(geometric(4)), 1), period(geometric(32))
    (6283.2, None)
    """
    turning = [rate for rate in ladder.exact if rate]
    if not turning:
        return None
    with localcontext(working()):
        largest = max(turning)
        whole = Fraction(1)
        for rate in turning:
            ratio = Fraction(rate / largest)
            near = ratio.limit_denominator(_LARGEST_PART)
            if abs(near - ratio) > ratio * Fraction(1, 10**50):
                return None
            whole = Fraction(
                math.gcd(whole.numerator * near.denominator, near.numerator * whole.denominator),
                whole.denominator * near.denominator,
            )
        return _finite(TWO_PI / (largest * Decimal(whole.numerator) / whole.denominator))


def near_period(ladder: Ladder) -> float | None:
    """The near-period of evenly spaced frequencies, ``2 pi / step`` tokens; None for other ladders.

    Each pair has then rotated once more than its slower neighbour, so all are off by one common angle.

    >>> from clockhands.encodings.ladders import evenly_spaced
    >>> round(near_period(evenly_spaced(256, 1.0, 1e-4)))
    1602
    """
    if ladder.pairs < 3:
        return None
    with localcontext(working()):
        steps = [later - earlier for earlier, later in zip(ladder.exact, ladder.exact[1:], strict=False)]
        uneven = max(abs(step - steps[0]) for step in steps)
        if not steps[0] or uneven > abs(steps[0]) * Decimal("1e-50"):
            return None
        return _finite(TWO_PI / abs(steps[0]))


def _finite(tokens: Decimal) -> float | None:
    """A number of tokens; None if it overflows float64."""
    found = float(tokens)
    return found if math.isfinite(found) else None
