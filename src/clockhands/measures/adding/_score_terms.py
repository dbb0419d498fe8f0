"""Splits the attention score of token + position into four terms, and measures how far the last depends on the offset.

A head scores a query token i and a key token j by ``(x_i + p_i) M (x_j + p_j)^T`` with ``M = W_Q W_K^T``, here [width,
width] of rank at most the head's width. It is the sum of content-content ``x_i M x_j^T``, content-position ``x_i M
p_j^T``, position-content and position-position. This is exact for the first layer, up to the model's own norm; later
layers mix the terms. The common factor of all scores (``1 / sqrt(head width)``) changes no share.

**Random weights.** If the entries of W_Q and W_K are independent with mean 0 and variance ``1 / width``, then ``E[M_ab
M_cd]`` is ``head_width / width**2`` for a = c and b = d, and 0 otherwise. So, for fixed rows ``a_i`` and ``b_j``, the
variance of ``a_i M b_j^T`` over all pairs (i, j), about its mean, has the expectation

``(head_width / width**2) (mean |a_i|**2 mean |b_j|**2 - |mean a|**2 |mean b|**2)``:

the shares depend on norms only, not on the head's width, which determines how much single draws vary
(`expected_terms`).

**A function of the offset.** The best function of j - i is the mean of each diagonal of the position-position scores;
``R**2 = 1 - sum of squares within diagonals / total sum of squares about the mean`` is its share (`offset_share`). It
is 1 for a sinusoidal code and an M of blocks [[a, b], [-b, a]] on its pairs, because these commute with the rotations
(`commuting_form`). For random weights the mean of a diagonal of m pairs has the expected square ``(head_width /
width**2) m**-2 sum_ij G_ij G_(i+k, j+k)``, with the Gram matrix G of the rows, so the ratio of the expected sums of
squares follows from G, without any random draw (`expected_offset_share`). A matrix of independent numbers has ``(2 n -
2) / (n**2 - 1)``, which is 2 / (n + 1): a share of that size means no dependence.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from clockhands.arguments import count, positive
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

MOST_ROWS = 2048
"""Rows that `offset_share` takes: it forms all their products."""

_BLOCK = 256  # rows of scores at once


@dataclass(frozen=True)
class Terms:
    """Shares of the four terms of a score in the sum of their variances over all pairs of tokens.

    Attributes:
        content_content: Token with token.
        content_position: The query's token with the key's position.
        position_content: The query's position with the key's token.
        position_position: Position with position.
    """

    content_content: float
    content_position: float
    position_content: float
    position_position: float

    def to_dict(self) -> dict[str, float]:
        """The shares by name."""
        return asdict(self)


def four_terms(tokens: Any, rows: Any, query: Any, key: Any) -> Terms:
    """Shares of the four terms in the scores of every token as a query with every token as a key.

    Args:
        tokens: Token vectors, [n, width].
        rows: Position rows that are added to them, [n, width].
        query: W_Q [width, head_width], as in ``x @ W_Q``; a linear layer's weight is its transpose.
        key: W_K, in the same form.

    Returns:
        Each term's variance about its own mean over the n**2 pairs, over the sum of the four. In a single draw the
        terms can be correlated, so that sum equals the variance of the score only on average.

    Raises:
        InvalidValue: The shapes do not fit, or no term varies.
    """
    x, p = (np.asarray(each, np.float64) for each in (tokens, rows))
    left, right = (np.asarray(each, np.float64) for each in (query, key))
    if x.ndim != 2 or x.shape != p.shape or not len(x):
        raise InvalidValue(
            f"`tokens` and `rows` must have the same shape [n, width], got {list(x.shape)} and {list(p.shape)}.",
            "Give a row for each token.",
        )
    if left.ndim != 2 or left.shape != right.shape or len(left) != x.shape[1]:
        raise InvalidValue(
            f"`query` and `key` must be of shape [{x.shape[1]}, head_width], got {list(left.shape)} and "
            f"{list(right.shape)}.",
            "Take the dimensions of one head; transpose the weight of a linear layer.",
        )
    queries, keys = [x @ left, p @ left], [x @ right, p @ right]
    variances = [_variance(one, other) for one in queries for other in keys]
    return _shares(variances, "these tokens and rows")


def expected_terms(rows: Any, token_deviation: float = 1.0) -> Terms:
    """`four_terms` for many tokens of independent N(0, s**2) channels and random weights: ratios of expectations.

    With P the mean squared norm of the rows, m the norm of their mean and X = s**2 width, the shares are X**2, X P, X P
    and ``P**2 - m**4``, over their sum. With many tokens the mean token is 0.

    >>> import numpy as np
    >>> found = expected_terms(np.array([[1.0, 0.0], [-1.0, 0.0]]), token_deviation=0.5)
    >>> [round(share, 3) for share in found.to_dict().values()]  # 1/4, 1/2, 1/2 and 1, over their sum
    [0.111, 0.222, 0.222, 0.444]
    """
    p = _rows(rows)
    content = positive("token_deviation", token_deviation) ** 2 * p.shape[1]
    length, mean = float((p**2).sum(-1).mean()), float((p.mean(0) ** 2).sum())
    return _shares([content**2, content * length, content * length, max(0.0, length**2 - mean**2)], "these rows")


def offset_share(matrix: Any, rows: Any) -> float:
    """R**2 of the best function of the offset j - i for the scores ``p_i M p_j^T`` of all pairs of rows.

    Args:
        matrix: M = W_Q W_K^T, [width, width]; or the two factors (W_Q, W_K), each [width, head_width], which is
            cheaper.
        rows: p, [n, width], of consecutive positions; at most 2,048, because all n**2 scores are formed, by blocks.

    Returns:
        Between 0 and 1; 1 where the scores do not vary at all, because a constant is a function of the offset.

    Accuracy: the rounding of the sums, about ``n**2`` times 2**-53 at the very worst, 1e-12 in the tests.

    Raises:
        InvalidValue: The shapes do not fit, or there are too many rows.
    """
    p = _rows(rows, MOST_ROWS)
    n, width = p.shape
    left, right = matrix if isinstance(matrix, tuple) else (matrix, None)
    left = np.asarray(left, np.float64)
    right = np.eye(width) if right is None else np.asarray(right, np.float64)
    if left.ndim != 2 or len(left) != width or len(right) != width or left.shape[1] != right.shape[1]:
        raise InvalidValue(
            f"`matrix` must be [{width}, {width}] for rows of width {width}, got "
            f"{list(left.shape)}{' and ' + str(list(right.shape)) if isinstance(matrix, tuple) else ''}.",
            "Take the dimensions of one head; transpose the weight of a linear layer.",
        )
    queries, keys = p @ left, p @ right
    mean = queries.mean(0) @ keys.mean(0)
    sums, total = np.zeros(2 * n - 1), 0.0
    for start in range(0, n, _BLOCK):
        block = queries[start : start + _BLOCK] @ keys.T - mean
        total += float((block**2).sum())
        # The rows from last to first, each shifted by one channel: each column then holds one offset.
        held = np.zeros((len(block), n + len(block)))
        held[:, :n] = block[::-1]
        wide = n + len(block) - 1
        columns = held.ravel()[: len(block) * wide].reshape(len(block), wide).sum(0)
        # The first column is the last row's first key: offset -(start + len - 1), place n - 1 - (start + len - 1).
        place = n - start - len(block)
        sums[place : place + wide] += columns
    if total <= (2.0**-40 * np.abs(queries).max() * np.abs(keys).max() * n) ** 2:
        return 1.0
    lengths = n - np.abs(np.arange(1 - n, n))
    return float(min(1.0, (sums**2 / lengths).sum() / total))


def expected_offset_share(rows: Any) -> float:
    """The value of `offset_share` for random weights: the ratio of the expected sums of squares, for any head width.

    Args:
        rows: [n, width] of consecutive positions; n**2 log n operations.

    Raises:
        InvalidValue: There are too many rows, or they are not a matrix.

    >>> import numpy as np
    >>> round(expected_offset_share(np.eye(5)), 3)  # independent numbers: 2 / (n + 1)
    0.333
    """
    p = _rows(rows, MOST_ROWS)
    n = len(p)
    gram = p @ p.T
    # sum_ij G_ij G_(i+k, j+k) is, for each e = j - i, the autocorrelation at k of diagonal e of G; e and -e have the
    # same one. Reading rows of 2 n numbers as rows of 2 n + 1 turns diagonals into columns.
    held = np.zeros(n * (2 * n + 1))
    held[: 2 * n * n].reshape(n, 2 * n)[:, :n] = gram
    diagonals = held.reshape(n, 2 * n + 1)[:, :n]
    spectrum = np.abs(np.fft.rfft(diagonals, 2 * n, axis=0)) ** 2
    spectrum[:, 1:] *= 2
    agreeing = np.fft.irfft(spectrum.sum(1), 2 * n)[:n]
    lengths = n - np.arange(n)
    explained = agreeing / lengths
    mean = (float(gram.sum()) / n) ** 2
    total = float(np.trace(gram)) ** 2 - mean
    if total <= 2.0**-40 * mean:
        return 1.0
    return float(np.clip((explained[0] + 2 * explained[1:].sum() - mean) / total, 0.0, 1.0))


def commuting_form(pairs: int, layout: Layout, a: Any = 1.0, b: Any = 0.0) -> np.ndarray:
    """A matrix of blocks [[a, b], [-b, a]] on the pairs of a layout, [2 pairs, 2 pairs]: it commutes with rotations.

    ``a`` and ``b`` are one number, or one for each pair.

    Raises:
        InvalidValue: The layout is unknown, or there are other than ``pairs`` numbers.

    >>> commuting_form(1, "halves", 2.0, 3.0).tolist()
    [[2.0, 3.0], [-3.0, 2.0]]
    """
    channels = pair_channels(count("pairs", pairs), layout)
    sizes = [np.asarray(each, np.float64) for each in (a, b)]
    if any(each.shape not in ((), (pairs,)) for each in sizes):
        raise InvalidValue(
            f"`a` and `b` must each be one number, or {pairs} numbers, got {shown(a)} and {shown(b)}.",
            "Give one number for each pair.",
        )
    first, second = channels.T
    form = np.zeros((2 * pairs, 2 * pairs))
    form[first, first] = form[second, second] = sizes[0]
    form[first, second] = sizes[1]
    form[second, first] = -sizes[1]
    return form


def drawn_projections(rng: np.random.Generator, width: int, head_width: int) -> tuple[np.ndarray, np.ndarray]:
    """W_Q and W_K, each [width, head_width], of independent N(0, 1 / width)."""
    query, key = rng.standard_normal((2, width, head_width)) / np.sqrt(width)
    return query, key


def _rows(rows: Any, most: float = math.inf) -> np.ndarray:
    p = np.asarray(rows, np.float64)
    if p.ndim != 2 or not p.size:
        raise InvalidValue(f"`rows` must be of shape [n, width], got {list(p.shape)}.", "Give the rows of a table.")
    if len(p) > most:
        raise InvalidValue(
            f"`rows` must have at most {most:,} rows, got {len(p):,}.",
            "Pass fewer rows: the products of all pairs of rows are computed.",
        )
    return p


def _variance(queries: np.ndarray, keys: np.ndarray) -> float:
    """Variance of ``queries @ keys.T`` about its mean, from the two covariances, [n, head_width] each.

    With means u and v and centred parts A and B: ``A B^T`` + ``A v`` + ``u B^T`` + ``u v``; the middle ones do not
    mix with the others, as the sums of A and of B are zero.
    """
    u, v = queries.mean(0), keys.mean(0)
    a, b = queries - u, keys - v
    n = len(a)
    both = float(np.vdot(a.T @ a, b.T @ b)) / n**2
    return both + float(((a @ v) ** 2).mean()) + float(((b @ u) ** 2).mean())


def _shares(variances: list[float], of: str) -> Terms:
    total = sum(variances)
    if not total > 0:
        raise InvalidValue(f"All terms of the score are the same for {of}.", "Give tokens or rows that differ.")
    return Terms(*(each / total for each in variances))
