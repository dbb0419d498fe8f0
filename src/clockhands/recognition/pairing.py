"""Which two channels of a head form a pair, told from trained query or key weights alone.

A rotation is the same for a pair whichever way the pair's two channels are turned together, so training leaves that
direction free; what it does not leave free is how *neighbouring* pairs, whose rates are nearly equal, go together: the
plane of one looks at nearly what the plane of the other looks at, turned by one angle. Scale every row ``r`` of a head
(an output channel's weights over the input) to length 1 and let ``G = r r^T``. For pairs ``i`` and ``j`` of a proposed
layout, with channels ``(a_i, b_i)`` and ``(a_j, b_j)``, the 2 x 2 block

    [[G[a_i, a_j], G[a_i, b_j]], [G[b_i, a_j], G[b_i, b_j]]]

is then close to a rotation times a number, and its determinant is positive; for two channels that are no pair it has
either sign. The statistic of a head is

    T = sum over i != j of exp(-|i - j| / 4) det(block of i and j).

**What it is compared with.** T is summed over the heads. Were their channels in any other order, the same in each, T
would be a sum of the same kind. Over all orders, each as likely as the other, its mean is 0: a determinant is the
difference of two products of two entries of G with four different channels, and both have the same mean. Exchanging
``a_j`` and ``b_j`` changes the sign of the determinants with pair ``j`` and of no other, so two determinants that are
not of the same two pairs are uncorrelated, and the variance is exactly

    Var T = 2 sum over i != j of exp(-|i - j| / 2) E[D^2],  D = sum over heads of det,
    E[D^2] = 2 sum over heads g, h of (E[M_pq M_rs] - E[G_pq H_qr G_rs H_sp]),  M_pq = G_pq H_pq,

with G and H the matrices of the heads g and h, and p, q, r, s four different channels. Both means are sums over a
graph, known in closed form. z = T / sqrt(Var T); no draw is made, and equal weights give equal numbers.

**What must be the same.** A determinant is a straight product less a crossed one. A rotation by an angle gives them as
cos^2 and -sin^2, so over many angles both parts carry half of z. Rows that are merely alike, such as the same channel
of two heads, give a straight part alone, and a crossed one of the other sign. A layout is told only where either part
carries at least a quarter. In SmolLM2 and glassllm the crossed part is 0.52 to 0.57 of z over all layers, 0.35 to 0.69
in a single layer's queries.

What weights cannot say: which way a pair turns, how fast (the base), and, where pairs are interleaved and only some
channels turn, which of them do.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from clockhands.arguments import count
from clockhands.errors import InvalidValue
from clockhands.layouts import Layout, pair_channels

LAYOUTS: tuple[Layout, ...] = get_args(Layout)

REACH = 4.0
"""Pairs over which neighbours' weights fall to 1 / e."""

MODEL_Z, MODEL_LEAD = 5.0, 3.0
"""What all layers together must reach: standard deviations from chance, and more than the other layout."""

LAYER_Z, LAYER_LEAD = 3.0, 2.0
"""What one layer must reach for a word of its own."""

MOST_CONFIDENCE = 0.99
"""Weights are evidence of how a model was trained, never proof of how a reader pairs."""

FEWEST_PAIRS = 4
"""With fewer pairs in a head there are too few neighbours to compare."""


@dataclass(frozen=True)
class Score:
    """How far projections are from chance for each layout.

    Attributes:
        z: Standard deviations by which the statistic exceeds that of a random order of channels, by layout.
        crossed: The part of them that the crossed products carry, less what they carry by chance.
        heads: Heads that were counted; those with rows that are zero or not finite are left out.
    """

    z: Mapping[Layout, float]
    crossed: Mapping[Layout, float]
    heads: int

    @property
    def best(self) -> Layout:
        """The layout that is further from chance."""
        return max(LAYOUTS, key=self.z.__getitem__)

    def turns(self, layout: Layout) -> bool:
        """Whether either part carries at least a quarter of what a layout has, as those of rotations do."""
        return abs(self.crossed[layout] - self.z[layout] / 2) <= self.z[layout] / 4

    def verdict(self, least: float = MODEL_Z, lead: float = MODEL_LEAD) -> Layout | None:
        """The layout that stands out, or None.

        Args:
            least: What its z must reach.
            lead: By how much it must exceed the other's.
        """
        best, other = self.z[self.best], min(self.z.values())
        return self.best if best >= least and best - other >= lead and self.turns(self.best) else None

    @property
    def layout(self) -> Layout | None:
        """The layout of one layer alone, or None if it cannot be told."""
        return self.verdict(LAYER_Z, LAYER_LEAD)

    @property
    def confidence(self) -> float:
        """How likely the better layout is not ahead by chance, at most 0.99.

        Where nothing is to be told the two z have a standard deviation of 1, and their difference has one of sqrt(2)
        if they do not hang together: ``Phi(difference / sqrt(2))``, Phi the normal distribution.
        """
        return min(MOST_CONFIDENCE, 0.5 * (1 + math.erf((max(self.z.values()) - min(self.z.values())) / 2)))


def score(heads: Iterable[np.ndarray]) -> Score | None:
    """Score both layouts on the turning rows of each head.

    Args:
        heads: Of each head the output channels that turn [rotated, inputs], in the order of the file: an array of three
            axes, or one head after the other. One at a time is made float32.

    Returns:
        The score, or None where nothing can be counted: no head is whole, or a head has fewer than four pairs.

    Raises:
        InvalidValue: A head is no matrix, or an odd number of channels turns.

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
    """Several projections as one: the sum of their z over the root of their number (Stouffer).

    Raises:
        InvalidValue: There are none.

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
    """The rows' cosines of each head [heads, rotated, rotated], without each row's own; heads without them left out."""
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
        with np.errstate(all="ignore"):  # what float32 does not hold becomes infinite
            rows = np.asarray(head, np.float32)
        lengths = np.sqrt(np.einsum("rx,rx->r", rows, rows))[:, None]
        if np.isfinite(lengths).all() and lengths.all():
            rows = rows / lengths
            gram = (rows @ rows.T).astype(np.float64)
            np.fill_diagonal(gram, 0)
            made.append(gram)
    return np.array(made)


def _statistic(grams: np.ndarray, layout: Layout) -> tuple[float, float]:
    """The straight and the crossed part of the statistic, each less its mean over all orders of the channels."""
    first, second = pair_channels(grams.shape[1] // 2, layout).T
    straight = grams[:, first[:, None], first] * grams[:, second[:, None], second]
    crossed = grams[:, first[:, None], second] * grams[:, second[:, None], first]
    weights = _weights(len(first))
    mean = float(weights.sum()) * _mean(grams)
    return float(np.sum(weights * straight.sum(axis=0))) - mean, mean - float(np.sum(weights * crossed.sum(axis=0)))


def _mean(grams: np.ndarray) -> float:
    """Sum over heads of the mean of G_pq G_rs over four different channels."""
    rows, channels = grams.sum(axis=2), grams.shape[1]
    edges = rows.sum(axis=1) ** 2 - 4 * np.sum(rows**2, axis=1) + 2 * np.sum(grams**2, axis=(1, 2))
    return float(edges.sum()) / _orders(channels)


def _orders(channels: int) -> int:
    """Ways to take four different channels, one after the other."""
    return channels * (channels - 1) * (channels - 2) * (channels - 3)


def _weights(pairs: int) -> np.ndarray:
    distance = np.abs(np.subtract.outer(np.arange(pairs), np.arange(pairs)))
    weights = np.exp(-distance / REACH)
    np.fill_diagonal(weights, 0)
    return weights


def _variance(grams: np.ndarray) -> float:
    """The variance of the statistic over all orders of the channels, the same in all heads: exact."""
    heads, channels, _ = grams.shape
    flat = grams.reshape(heads, -1)
    whole = float(np.sum((flat @ flat.T) ** 2))
    by_channel = grams.transpose(1, 0, 2)  # [channels, heads, channels]
    rows = float(np.sum((by_channel @ by_channel.transpose(0, 2, 1)) ** 2))
    twice = float(np.sum(np.sum(grams * grams, axis=0) ** 2))  # an edge there and back
    # Two edges without a common end: all pairs of edges, without those that share one end or both.
    edges = whole - 4 * rows + 2 * twice
    # Closed ways over four different channels: all of four steps, without those that come back after two.
    ways = _closed(grams) - 2 * rows + twice
    return 2 * float(np.sum(_weights(channels // 2) ** 2)) * 2 * (edges - ways) / _orders(channels)


def _closed(grams: np.ndarray) -> float:
    """Sum over all G and all H of the trace of (G H)^2, which is that of (H G)^2."""
    heads, channels, _ = grams.shape
    # In sums of this length float32 costs 1e-6 of them; one product for all H is faster than one for each.
    wide = grams.transpose(1, 0, 2).reshape(channels, -1).astype(np.float32)
    total = 0.0
    for place in range(heads):
        here = slice(place * channels, (place + 1) * channels)
        steps = (wide[:, here] @ wide[:, here.start :]).reshape(channels, -1, channels)
        traces = np.einsum("ihj,jhi->h", steps, steps, dtype=np.float64)
        total += 2 * float(traces.sum()) - float(traces[0])
    return total
