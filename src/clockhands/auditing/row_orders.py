"""Rows that a converter has put in order for another number of heads than the tensor has.

Moving rows from one pairing to the other takes the number of heads. Told a wrong one, a converter moves rows across
pairs; undoing that for the same number shows the pairs again, more clearly than the rows show any as they stand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.layouts import Layout
from clockhands.recognition import LAYOUTS, MODEL_LEAD, MODEL_Z, Score, score, together
from clockhands.sources.projections import Projections, WeightProjection

Order = tuple[int, Layout]
"""A number of heads, and the layout in whose order rows stood before they were put into the other's for so many."""

_SOME_LAYERS = 8  # among which an order is looked for; what they show is confirmed by all


@dataclass(frozen=True)
class Permuted:
    """Rows that pair only after an order for another number of heads is undone.

    Attributes:
        of: ``q`` or ``k``.
        heads: The heads that the tensor has.
        undone: The heads for which its rows were put in order.
        also: Other numbers of heads that explain it nearly as well.
        layout: How they pair once that is undone.
        z: Standard deviations from chance then.
        before: The most that the rows have as they stand.
    """

    of: str
    heads: int
    undone: int
    also: tuple[int, ...]
    layout: Layout
    z: float
    before: float


def permuted(found: Projections) -> Iterator[Permuted]:
    """Orders for another number of heads that explain queries or keys better than their rows as they stand."""
    for of in ("q", "k"):
        ones = [one for one in found.projections if one.of == of and one.rotated == one.width]
        if len({(len(one.starts), one.width) for one in ones}) != 1:
            continue
        heads, width = len(ones[0].starts), ones[0].width
        wrong = [count for count in _wrong_counts(found, heads) if heads * width % (2 * count) == 0]
        some = ones[:: max(1, len(ones) // _SOME_LAYERS)]
        near, _, _ = _leaders(some, [(count, layout) for count in wrong for layout in LAYOUTS])
        # Two orders that undo much of the same are told apart by all layers, if at all.
        near, z, before = _leaders(ones, near)
        if near:
            (undone, layout), *others = near
            also = tuple(sorted({count for count, _ in others if count != undone}))
            yield Permuted(of, heads, undone, also, layout, z, before)


def _wrong_counts(found: Projections, heads: int) -> list[int]:
    """Numbers of heads that a converter may have taken for the right one.

    One for all, those of the other projection, and queries over keys, which llama.cpp's converter took until pull
    request 3364 of September 2023.
    """
    counts = {1, found.heads, found.keys}
    if found.heads and found.keys:
        counts.add(found.heads // found.keys)
    return sorted(count for count in counts if count and count != heads)


def _leaders(ones: Sequence[WeightProjection], orders: Sequence[Order]) -> tuple[list[Order], float, float]:
    """The order that explains the rows best, if better than they are as they stand, and those that come near it.

    Heads of one layer are alike, so that their rows taken for pairs of one another have a high z too; but none of it is
    in the crossed part, and `Score.turns` tells them from pairs that turn.

    Returns:
        The orders, the z of the first, and the most that the rows have as they stand.
    """
    if not orders:
        return [], 0.0, 0.0
    plain: list[Score] = []
    scores: dict[Order, list[Score]] = {order: [] for order in orders}
    for one in ones:
        try:
            heads = one.read()
        except ClockhandsError:
            continue
        tried = ((made, _undone(heads, *order)) for order, made in scores.items())
        for made, rows in ((plain, heads), *tried):
            found = score(rows)
            if found is not None:
                made.append(found)
    if not plain or not all(scores.values()):
        return [], 0.0, 0.0
    before = max(together(plain).z.values())
    whole = [(together(made), order) for order, made in scores.items()]
    turning = sorted(((made.z[order[1]], order) for made, order in whole if made.turns(order[1])), reverse=True)
    if not turning or turning[0][0] < max(MODEL_Z, before + MODEL_LEAD):
        return [], 0.0, before
    most = turning[0][0]
    return [order for z, order in turning if z > most - MODEL_LEAD], most, before


def _undone(heads: np.ndarray, count: int, layout: Layout) -> Iterator[np.ndarray]:
    """Rows in the order of a layout, before they were put into the other's for a number of heads; a head at a time."""
    rows = heads.reshape(-1, heads.shape[-1])
    order = np.arange(len(rows)).reshape(count, 2, -1).swapaxes(1, 2).reshape(-1)  # from halves to interleaved
    places = np.argsort(order) if layout == "halves" else order
    return (rows[each] for each in places.reshape(heads.shape[:2]))
