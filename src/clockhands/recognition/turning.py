"""Which channels of a table turn together, and how far each pair turns from one row to the next.

A pair of a clock, taken as one complex number ``z = second + i first``, keeps its size and turns by the same angle
at every row: ``z_r = A exp(i (angle r + phase))``. That its size is the same in all pairs and rows is what tells the
layouts apart; how it turns is then read off, more and more exactly at growing distances between rows.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np

from clockhands.layouts import Layout

# A pair of independent noise has a size that varies by half of itself; a clock's, by its rounding.
_UNSTEADY = 0.4


@dataclass(frozen=True, eq=False)
class Hands:
    """The pairs of a table under one reading of its channels.

    Attributes:
        layout: Which two channels form a pair.
        first, second: The channel of each pair's first and second number, int64 [pairs]; -1 where the last has none.
        size: What all pairs are long: the scale of the table.
        offset: What was added to every number.
        noise: How much the size of a pair varies, relative to it: about the relative error of a number.
        turns: Whole pairs in the sampled rows divided by their size, complex128 [rows, pairs].
    """

    layout: Layout
    first: np.ndarray
    second: np.ndarray
    size: float
    offset: float
    noise: float
    turns: np.ndarray

    @property
    def whole(self) -> int:
        """Pairs with both channels."""
        return int((self.second >= 0).sum())


def readings(head: np.ndarray) -> list[Hands]:
    """The ways to pair the channels of these rows [rows, width] under which all pairs keep one size, steadiest first.

    Columns of zeros at the end are left out.
    """
    filled = np.flatnonzero(head.any(axis=0))
    width = int(filled[-1]) + 1 if filled.size else 0
    found = []
    for layout in ("interleaved", "halves"):
        if width < 2:
            continue
        pairs = -(-width // 2)
        index = np.arange(pairs)
        first, second = (2 * index, 2 * index + 1) if layout == "interleaved" else (index, index + pairs)
        second = np.where(second < width, second, -1)
        whole = width // 2
        one, two = head[:, first[:whole]], head[:, second[:whole]]
        hands = _steady(one, two, cast(Layout, layout), first, second)
        if hands is not None:
            found.append(hands)
    return sorted(found, key=lambda hands: hands.noise)


def _steady(one: np.ndarray, two: np.ndarray, layout: Layout, first: np.ndarray, second: np.ndarray) -> Hands | None:
    noise, size, offset = _circle(one, two, 0.0)
    if noise > 1e-3:  # a standardised table: all numbers have moved by one and the same
        # x**2 + y**2 = 2 b (x + y) + (size**2 - 2 b**2) is linear in b and in the rest.
        total, square = (one + two).ravel(), (one**2 + two**2).ravel()
        total -= total.mean()
        slope = float(total @ square) / max(float(total @ total), 1e-300)
        moved = _circle(one, two, slope / 2)
        if moved[0] < noise / 4:
            noise, size, offset = moved
    if not 0 < size < np.inf or noise > _UNSTEADY:
        return None
    turns = ((two - offset) + 1j * (one - offset)) / size
    return Hands(layout, first, second, size, offset, noise, turns)


def _circle(one: np.ndarray, two: np.ndarray, offset: float) -> tuple[float, float, float]:
    sizes = np.hypot(one - offset, two - offset)
    size = float(np.median(sizes))
    if not size > 0:
        return np.inf, size, offset
    # The share of rows that may be wrong must not reach the figure: the 85th percentile, of a normal law.
    return float(np.quantile(np.abs(sizes / size - 1), 0.85)) / 1.44, size, offset


@dataclass(frozen=True, eq=False)
class Angles:
    """How each pair turns.

    Attributes:
        angle: Radians from one row to the next, in (-pi, pi], float64 [pairs].
        phase: Radians at row 0.
        spread: How exactly the angle is known, one standard deviation.
        steady: The length of the mean of all rows turned back: 1 for a pair that turns evenly, 0 for noise.
    """

    angle: np.ndarray
    phase: np.ndarray
    spread: np.ndarray
    steady: np.ndarray


def angles_of(turns: np.ndarray, noise: float) -> Angles:
    """The turning of pairs [rows, pairs] that stand at equal distances.

    At distance ``l`` the angle is known to noise / l, modulo 2 pi / l; each distance is twice the one before,
    so the last one's turn is known from it.
    """
    unit = turns / np.maximum(np.abs(turns), 1e-300)
    rows = len(unit)
    angle = np.zeros(unit.shape[1])
    lag = 1
    while lag < rows:
        summed = np.einsum("rp,rp->p", unit[lag:], unit[:-lag].conj())
        # Where all rows so far apart are zeros nothing is added; NumPy's angle of a negative zero is pi.
        angle += np.where(summed == 0, 0, np.angle(summed * np.exp(-1j * lag * angle)) / lag)
        lag *= 2
    place = np.arange(rows)[:, None]
    back = unit * np.exp(-1j * angle * place)
    phase = np.angle(back.sum(axis=0))
    rest = np.angle(back * np.exp(-1j * phase))
    there = np.asarray(unit.any(axis=1))[:, None]  # rows of zeros tell nothing
    middle = float((place * there).sum() / max(1, there.sum()))
    slope = ((place - middle) * there * rest).sum(axis=0) / max(1.0, float(((place - middle) ** 2 * there).sum()))
    # One step of least squares, where the phases are clear of a turn.
    clear = np.abs(rest).max(axis=0) < 1.5
    angle = np.where(clear, angle + slope, angle)
    back = unit * np.exp(-1j * angle * place)
    phase = np.angle(back.sum(axis=0))
    steady = np.abs(back.mean(axis=0))
    spread = noise * np.sqrt(12 / max(1, rows * (rows**2 - 1))) * np.ones_like(angle)
    return Angles(angle, phase, spread, steady)


def angles_at(turns: np.ndarray, noise: float, positions: np.ndarray) -> Angles:
    """The turning of pairs that stand at these positions, in radians per token.

    Neighbours in order of distance: the nearest two rows tell the angle modulo a turn over that distance, and each
    larger distance is used as soon as what is known is exact enough to say which turn it is.
    """
    unit = turns / np.maximum(np.abs(turns), 1e-300)
    one, two = np.triu_indices(len(positions), 1) if len(positions) <= 64 else _neighbours(len(positions))
    gap = positions[two] - positions[one]
    one, two = np.where(gap > 0, one, two), np.where(gap > 0, two, one)
    gap = np.abs(gap)
    keep = np.flatnonzero(gap > 0)
    order = keep[np.argsort(gap[keep], kind="stable")]
    rate, exact = np.zeros(unit.shape[1]), np.inf
    weight = 0.0
    for number in order:
        reach = gap[number]
        if reach * exact > 0.5 and weight:
            continue
        seen = unit[two[number]] * unit[one[number]].conj()
        off = np.angle(seen * np.exp(-1j * reach * rate)) / reach
        weight += reach**2
        rate += off * reach**2 / weight
        exact = 2 * max(noise, 2.0**-24) / np.sqrt(weight)
    back = unit * np.exp(-1j * rate * positions[:, None])
    phase = np.angle(back.sum(axis=0))
    return Angles(rate, phase, np.full_like(rate, exact), np.abs(back.mean(axis=0)))


def _neighbours(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of rows at distances 1, 2, 4, … in the order given."""
    one, two, lag = [], [], 1
    while lag < rows:
        one.append(np.arange(0, rows - lag, max(1, lag // 8)))
        two.append(one[-1] + lag)
        lag *= 2
    return np.concatenate(one), np.concatenate(two)
