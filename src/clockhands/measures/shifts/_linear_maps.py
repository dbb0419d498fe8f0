"""Fits the best linear map from the rows of a code to the rows some tokens later, and tests it on held-out rows.

A code of cosine-sine pairs has one matrix for each distance that maps every row to the row that many tokens later. For
other codes this is tested: a matrix is fitted by least squares to some pairs of rows and tested on the others. With as
many channels as tokens, a matrix fits the rows of any table exactly, which means nothing; only the error on held-out
rows counts.

Every third run of eight tokens is held out. (Fitting to the first half of the tokens and testing on the second is too
strict: over 2,048 tokens the slow pairs of a sinusoid of 512 channels hardly rotate, so half of the table does not
determine the matrix that shifts the other half.)

The **residual share** is ``sum of (later - predicted)**2 / sum of (later - mean of the judged later)**2``: 0 for an
exact map, 1 for no better than the mean row, above 1 for worse. Directions with a singular value below a cut-off are
left out of the fit; the best result of the cut-offs `CUTOFFS` is reported, so the figure is slightly optimistic.

**Accuracy.** Least squares by singular values in float64: an exact map of rows of size 1 is found within
``2**-52 / cut-off`` in each direction; a residual share above 1e-12 is right to three digits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CUTOFFS = (1e-12, 1e-6, 1e-3, 1e-2, 3e-2)
"""Singular values below these shares of the largest are left out, from the smallest share to the largest."""

FEWEST = 24  # the fewest pairs of rows of which a third can be held out


class Judged(NamedTuple):
    """The error of the best map on held-out rows.

    Attributes:
        share: The residual share.
        largest: The largest absolute error, in the code's unit.
    """

    share: float
    largest: float


def best_linear_map(
    rows: NDArray[np.float64], later: NDArray[np.float64], cutoff: float = CUTOFFS[0]
) -> tuple[NDArray[np.float64], float]:
    """The matrix ``M`` for which ``rows @ M.T`` is nearest to ``later``, and the share of variance it leaves.

    Args:
        rows: The rows of some tokens, [tokens, channels].
        later: The rows to be predicted, [tokens, channels].
        cutoff: Directions of ``rows`` whose singular value is below this share of the largest are left out.

    Returns:
        ``M`` [channels of later, channels of rows], and the residual share on the same rows: 0 for an exact map, also
        if ``later`` does not vary and is predicted.

    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> matrix, share = best_linear_map(rows, rows @ turn.T)
    >>> (matrix.round(9) + 0.0).tolist(), share < 1e-28
    ([[0.0, 1.0], [-1.0, 0.0]], True)
    """
    left, sizes, right = np.linalg.svd(rows, full_matrices=False)
    kept = sizes > cutoff * sizes[0] if sizes.size and sizes[0] else np.zeros(sizes.shape, bool)
    matrix = (right[kept].T / sizes[kept]) @ (left[:, kept].T @ later)
    return matrix.T, _share(later - rows @ matrix, later)


def judged(rows: NDArray[np.float64], distances: Sequence[int], *, constant: bool = False) -> list[Judged | None]:
    """For each distance, the best linear map from rows ``t`` to rows ``t + distance``, tested on held-out rows.

    Every third run of eight rows is held out.

    Args:
        rows: The rows of consecutive tokens, [tokens, channels].
        distances: Tokens from a row to the predicted one, with one map each; all are fitted to the same rows ``t``.
        constant: Whether a map may add a constant row: an affine map.

    Returns:
        None for each where there are fewer than `FEWEST` rows ``t``.
    """
    number = max(0, len(rows) - max(distances))
    if number < FEWEST:
        return [None] * len(distances)
    fitted = np.arange(number) // 8 % 3 != 1
    given = _different_columns(rows[:number])
    if constant:
        given = np.concatenate([given, np.ones((number, 1))], axis=1)
    left, sizes, right = np.linalg.svd(given[fitted], full_matrices=False)
    asked = given[~fitted] @ right.T
    return [_best(left, sizes, asked, rows[k : k + number], fitted) for k in distances]


def _best(
    left: NDArray[np.float64],
    sizes: NDArray[np.float64],
    asked: NDArray[np.float64],
    later: NDArray[np.float64],
    fitted: NDArray[np.bool_],
) -> Judged:
    """The best result over the cut-offs, for the map given by the singular vectors of the fitted rows."""
    target = left.T @ later[fitted]
    expected, predicted = later[~fitted], np.zeros(later[~fitted].shape)
    found, end = [], 0
    for cutoff in reversed(CUTOFFS):  # each cut-off keeps the directions of the one before, and some more
        begin, end = end, int((sizes > cutoff * sizes[0]).sum()) if sizes[0] else 0
        predicted += (asked[:, begin:end] / sizes[begin:end]) @ target[begin:end]
        error = expected - predicted
        found.append(Judged(_share(error, expected), float(np.abs(error).max())))
    return min(found)


def _different_columns(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows without repeated channels: they span the same space with less work."""
    _, first = np.unique(rows, axis=1, return_index=True)
    return rows[:, np.sort(first)]


def _share(error: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The sum of squares of the error over the sum of squares of the expected rows about their mean."""
    about = float(((expected - expected.mean(axis=0)) ** 2).sum()) if expected.size else 0.0
    unexplained = float((error**2).sum())
    if about <= 1e-24 * float((expected**2).sum()):  # the rows do not vary
        return 0.0 if unexplained <= 1e-24 * max(1.0, float((expected**2).sum())) else 1.0
    return unexplained / about
