"""Which two channels of a head form a pair, inferred from trained query or key weights alone.

Scores do not change if the query and the key plane of a pair are rotated by the same angle, so training does not
determine the angle of a pair. It does determine how *neighbouring* pairs, which have nearly equal rates, are related:
the planes of both read nearly the same input directions, up to one rotation. Scale every row ``r`` of a head (the
weights of one output channel over the input) to length 1 and let ``G = r r^T``. For pairs ``i`` and ``j`` of a proposed
layout, with channels ``(a_i, b_i)`` and ``(a_j, b_j)``, the 2 x 2 block

    [[G[a_i, a_j], G[a_i, b_j]], [G[b_i, a_j], G[b_i, b_j]]]

is then close to a rotation times a number, and its determinant is positive. For two channels that are not a pair, the
determinant can have either sign. The statistic of a head is

    T = sum over i != j of exp(-|i - j| / 4) det(block of i and j).

**The reference distribution.** T is summed over the heads. It is compared with T for a random order of the channels,
the same in all heads. Over all orders, with equal probability, the mean of T is 0: a determinant is the difference of
two products of two entries of G with four different channels, and both products have the same mean. Exchanging ``a_j``
and ``b_j`` changes the sign of the determinants with pair ``j`` and of no others. Therefore two determinants that are
not of the same two pairs are uncorrelated, and the variance is exactly

    Var T = 2 sum over i != j of exp(-|i - j| / 2) E[D^2],  D = sum over heads of det,
    E[D^2] = 2 sum over heads g, h of (E[M_pq M_rs] - E[G_pq H_qr G_rs H_sp]),  M_pq = G_pq H_pq,

with G and H the matrices of the heads g and h, and p, q, r, s four different channels. Both means are sums over a
graph, known in closed form. z = T / sqrt(Var T). No random numbers are used, so equal weights give equal results.

**Rotations, not only similar rows.** A determinant is a straight product minus a crossed one. For a rotation by an
angle, these are cos^2 and -sin^2, so over many angles both parts contribute half of z. Rows that are only similar, such
as the same channel of two heads, contribute to the straight part, and with the other sign to the crossed part.
Therefore a layout is reported only if each part contributes at least a quarter of z. In SmolLM2 and glassllm, the
crossed part is 0.52 to 0.57 of z over all layers, and 0.35 to 0.69 in the queries of a single layer.

Weights do not show the direction of the rotation, the frequencies (the base), or, for interleaved pairs in partial
RoPE, which dimensions rotate.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.layouts import Layout, pair_channels
from clockhands.errors import InvalidValue

LAYOUTS: tuple[Layout, ...] = get_args(Layout)

REACH = 4.0
"""Distance in pairs at which the weight of a determinant in T has fallen to 1 / e."""

MODEL_Z, MODEL_LEAD = 5.0, 3.0
"""Thresholds for all layers together: z in standard deviations, and its lead over the other layout."""

LAYER_Z, LAYER_LEAD = 3.0, 2.0
"""The same thresholds for one layer alone."""

MOST_CONFIDENCE = 0.99
"""The highest confidence: weights are evidence of how a model was trained, not proof of how a runtime forms pairs."""

FEWEST_PAIRS = 4
"""The fewest pairs of a head that is scored; with fewer, there are too few neighbours to compare."""


@dataclass(frozen=True)
class Score:
    """The statistic of each layout, in standard deviations of that of a random order of channels.

    Attributes:
        z: The statistic in standard deviations, by layout.
        crossed: The contribution of the crossed products to z, minus its mean over random orders.
        heads: Number of heads that were counted; those with rows that are zero or not finite are left out.
    """

    z: Mapping[Layout, float]
    crossed: Mapping[Layout, float]
    heads: int

    @property
    def best(self) -> Layout:
        """The layout with the higher z."""
        return max(LAYOUTS, key=self.z.__getitem__)

    def pairs_rotate(self, layout: Layout) -> bool:
        """Whether the straight and the crossed part each contribute at least a quarter of z, as for rotations."""
        return abs(self.crossed[layout] - self.z[layout] / 2) <= self.z[layout] / 4

    def verdict(self, least: float = MODEL_Z, lead: float = MODEL_LEAD) -> Layout | None:
        """The layout that is significantly better than the other, or None.

        Args:
            least: The least z of the layout.
            lead: The least difference from the z of the other layout.
        """
        best, other = self.z[self.best], min(self.z.values())
        return self.best if best >= least and best - other >= lead and self.pairs_rotate(self.best) else None

    @property
    def layout(self) -> Layout | None:
        """The layout by the thresholds for one layer, or None if it cannot be determined."""
        return self.verdict(LAYER_Z, LAYER_LEAD)

    @property
    def confidence(self) -> float:
        """The probability that the better layout is not ahead by chance, at most 0.99.

        For a random order of channels, each z has a standard deviation of 1, so their difference has one of sqrt(2) if
        they are uncorrelated: ``Phi(difference / sqrt(2))``, with Phi the normal distribution.
        """
        return min(MOST_CONFIDENCE, 0.5 * (1 + math.erf((max(self.z.values()) - min(self.z.values())) / 2)))


def score(heads: Iterable[np.ndarray]) -> Score | None:
    """Score both layouts on the RoPE dimensions of each head.

    Args:
        heads: For each head, the weights of the RoPE dimensions [rotated, inputs], in the order of the file: an array
            of three axes, or an iterable of heads. Only one head at a time is converted to float32.

    Returns:
        The score, or None if no head can be counted: a head needs finite rows that are not zero, four pairs and two
        inputs.

    Raises:
        InvalidValue: A head is not a matrix, or its number of RoPE dimensions is odd.

    >>> draw = np.random.default_rng(0).standard_normal((4, 32, 64))
    >>> all(abs(z) < 4 for z in score(draw).z.values()), score(draw).layout
    (True, None)
    """
    grams = _grams(heads)
    variance = _variance(grams) if len(grams) else 0.0
    if variance <= 0:
        return None
    deviation = math.sqrt(variance)
    z: dict[Layout, float] = {}
    crossed: dict[Layout, float] = {}
    for layout in LAYOUTS:
        straight, across = _statistic(grams, layout)
        z[layout], crossed[layout] = (straight + across) / deviation, across / deviation
    return Score(z, crossed, len(grams))


def together(scores: Sequence[Score]) -> Score:
    """The score of several projections together: the sum of their z over the square root of their number (Stouffer).

    Raises:
        InvalidValue: There are no scores.

    >>> one = Score({"interleaved": 3.0, "halves": 0.0}, {"interleaved": 1.5, "halves": 0.0}, 9)
    >>> together([one] * 4).z["interleaved"], together([one] * 4).verdict()
    (6.0, 'interleaved')
    """
    root = math.sqrt(count("the number of scores", len(scores)))
    return Score(
        {layout: sum(each.z[layout] for each in scores) / root for layout in LAYOUTS},
        {layout: sum(each.crossed[layout] for each in scores) / root for layout in LAYOUTS},
        sum(each.heads for each in scores),
    )


def _grams(heads: Iterable[np.ndarray]) -> np.ndarray:
    """Cosines between the rows of each head, float64 [heads, rotated, rotated], with a diagonal of 0.

    Heads with too few pairs, or with rows that are zero or not finite, are left out.
    """
    made = []
    for head in heads:
        if head.ndim != 2 or len(head) % 2:
            raise InvalidValue(
                f"A head has the shape {list(head.shape)}, expected [RoPE dimensions, inputs], with an even number "
                "of dimensions.",
                "Give each head's rows of the projection as one block; transpose a weight that stores `x @ W`.",
            )
        if len(head) // 2 < FEWEST_PAIRS or head.shape[1] < 2:
            continue
        with np.errstate(all="ignore"):  # numbers too large for float32 become infinite
            rows = np.asarray(head, np.float32)
        lengths = np.sqrt(np.einsum("rx,rx->r", rows, rows))[:, None]
        if np.isfinite(lengths).all() and lengths.all():
            rows = rows / lengths
            gram = (rows @ rows.T).astype(np.float64)
            np.fill_diagonal(gram, 0)
            made.append(gram)
    return np.array(made)


def _statistic(grams: np.ndarray, layout: Layout) -> tuple[float, float]:
    """The straight and the crossed part of the statistic, each minus its mean over all orders of the channels."""
    first, second = pair_channels(grams.shape[1] // 2, layout).T
    straight = grams[:, first[:, None], first] * grams[:, second[:, None], second]
    crossed = grams[:, first[:, None], second] * grams[:, second[:, None], first]
    weights = _weights(len(first))
    mean = float(weights.sum()) * _mean(grams)
    return float(np.sum(weights * straight.sum(axis=0))) - mean, mean - float(np.sum(weights * crossed.sum(axis=0)))


def _mean(grams: np.ndarray) -> float:
    """The sum over heads of the mean of G_pq G_rs over all choices of four different channels."""
    rows, channels = grams.sum(axis=2), grams.shape[1]
    edges = rows.sum(axis=1) ** 2 - 4 * np.sum(rows**2, axis=1) + 2 * np.sum(grams**2, axis=(1, 2))
    return float(edges.sum()) / math.perm(channels, 4)


def _weights(pairs: int) -> np.ndarray:
    distance = np.abs(np.subtract.outer(np.arange(pairs), np.arange(pairs)))
    weights = np.exp(-distance / REACH)
    np.fill_diagonal(weights, 0)
    return weights


def _variance(grams: np.ndarray) -> float:
    """The exact variance of the statistic over all orders of the channels, with the same order in all heads."""
    heads, channels, _ = grams.shape
    flat = grams.reshape(heads, -1)
    whole = float(np.sum((flat @ flat.T) ** 2))
    by_channel = grams.transpose(1, 0, 2)  # [channels, heads, channels]
    rows = float(np.sum((by_channel @ by_channel.transpose(0, 2, 1)) ** 2))
    twice = float(np.sum(np.sum(grams * grams, axis=0) ** 2))  # an edge there and back
    # Two edges without a common end: all pairs of edges minus those that share one or both ends.
    edges = whole - 4 * rows + 2 * twice
    # Closed walks through four different channels: all closed walks of four steps minus those that return after two.
    ways = _closed(grams) - 2 * rows + twice
    return 2 * float(np.sum(_weights(channels // 2) ** 2)) * 2 * (edges - ways) / math.perm(channels, 4)


def _closed(grams: np.ndarray) -> float:
    """The sum over all G and all H of the trace of (G H)^2, which equals that of (H G)^2."""
    heads, channels, _ = grams.shape
    # In sums of this length, float32 has a relative error of 1e-6; one product for all H is faster than one for each.
    wide = grams.transpose(1, 0, 2).reshape(channels, -1).astype(np.float32)
    total = 0.0
    for place in range(heads):
        here = slice(place * channels, (place + 1) * channels)
        steps = (wide[:, here] @ wide[:, here.start :]).reshape(channels, -1, channels)
        traces = np.einsum("ihj,jhi->h", steps, steps, dtype=np.float64)
        total += 2 * float(traces.sum()) - float(traces[0])
    return total
