"""The pairs of channels of a table, and their rotation from row to row.

A pair, taken as one complex number ``z = second + i first``, has constant size and rotates by the same angle at every
row: ``z_r = A exp(i (angle r + phase))``. Only with the right layout is the size the same in all pairs and rows.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np

from clockhands.encodings.layouts import Layout, pair_channels

# In independent noise, the size of a pair varies by about half of its value; in a pair of sine and cosine, by rounding.
_UNSTEADY = 0.4


@dataclass(frozen=True, eq=False)
class PairReading:
    """The pairs of a table under one layout of its channels.

    Attributes:
        layout: Which two channels form a pair.
        first, second: The two channels of each pair, int64 [pairs]; ``second`` is -1 if the last pair has one only.
        size: The common size of all pairs, which is the scale of the table.
        offset: A constant that was added to every number.
        noise: The relative variation of the size of a pair: about the relative error of a number.
        turns: Pairs with both channels in the sampled rows, divided by their size, complex128 [rows, pairs].
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
        """The number of pairs with both channels."""
        return int((self.second >= 0).sum())


def readings(head: np.ndarray) -> list[PairReading]:
    """The layouts under which all pairs of these rows [rows, width] have one size, the least noise first.

    Columns of zeros at the end are left out.
    """
    filled = np.flatnonzero(head.any(axis=0))
    width = int(filled[-1]) + 1 if filled.size else 0
    found = []
    for layout in ("interleaved", "halves"):
        if width < 2:
            continue
        first, second = pair_channels(-(-width // 2), cast(Layout, layout)).T
        second = np.where(second < width, second, -1)
        whole = width // 2
        one, two = head[:, first[:whole]], head[:, second[:whole]]
        hands = _steady(one, two, cast(Layout, layout), first, second)
        if hands is not None:
            found.append(hands)
    return sorted(found, key=lambda hands: hands.noise)


def _steady(
    one: np.ndarray, two: np.ndarray, layout: Layout, first: np.ndarray, second: np.ndarray
) -> PairReading | None:
    noise, size, offset = _circle(one, two, 0.0)
    if noise > 1e-3:  # perhaps a standardised table, in which all numbers are shifted by one constant
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
    return PairReading(layout, first, second, size, offset, noise, turns)


def _circle(one: np.ndarray, two: np.ndarray, offset: float) -> tuple[float, float, float]:
    sizes = np.hypot(one - offset, two - offset)
    size = float(np.median(sizes))
    if not size > 0:
        return np.inf, size, offset
    # The 85th percentile, so that a few wrong rows do not change the result: 1.44 deviations of a normal distribution.
    return float(np.quantile(np.abs(sizes / size - 1), 0.85)) / 1.44, size, offset


@dataclass(frozen=True, eq=False)
class PairAngles:
    """The rotation of each pair.

    Attributes:
        angle: Radians from one row to the next, in (-pi, pi], float64 [pairs].
        phase: Radians at row 0, [pairs].
        spread: Standard deviation of the angle, [pairs].
    """

    angle: np.ndarray
    phase: np.ndarray
    spread: np.ndarray


def angles_of(turns: np.ndarray, noise: float) -> PairAngles:
    """The rotation of pairs [rows, pairs] at evenly spaced positions, in radians per row.

    Rows at distance ``l`` give the angle with an error of noise / l, modulo 2 pi / l. Each distance is twice the
    previous one, so the angle so far is precise enough to determine the number of full rotations.
    """
    unit = turns / np.maximum(np.abs(turns), 1e-300)
    rows = len(unit)
    angle = np.zeros(unit.shape[1])
    lag = 1
    while lag < rows:
        summed = np.einsum("rp,rp->p", unit[lag:], unit[:-lag].conj())
        # A sum of 0 comes from rows of zeros and adds nothing; NumPy's angle of a negative zero is pi.
        angle += np.where(summed == 0, 0, np.angle(summed * np.exp(-1j * lag * angle)) / lag)
        lag *= 2
    place = np.arange(rows)[:, None]
    back = unit * np.exp(-1j * angle * place)
    phase = np.angle(back.sum(axis=0))
    rest = np.angle(back * np.exp(-1j * phase))
    there = np.asarray(unit.any(axis=1))[:, None]  # rows of zeros have no angle
    middle = float((place * there).sum() / max(1, there.sum()))
    slope = ((place - middle) * there * rest).sum(axis=0) / max(1.0, float(((place - middle) ** 2 * there).sum()))
    # One step of least squares, for pairs whose remaining phases are far from a half rotation.
    clear = np.abs(rest).max(axis=0) < 1.5
    angle = np.where(clear, angle + slope, angle)
    back = unit * np.exp(-1j * angle * place)
    phase = np.angle(back.sum(axis=0))
    spread = noise * np.sqrt(12 / max(1, rows * (rows**2 - 1))) * np.ones_like(angle)
    return PairAngles(angle, phase, spread)


def angles_at(turns: np.ndarray, noise: float, positions: np.ndarray) -> PairAngles:
    """The rotation of pairs [rows, pairs] at these positions [rows], in radians per token.

    Pairs of rows are used in order of their distance. The nearest two rows give the rate modulo 2 pi / distance. A
    larger distance is used only if the rate is already precise enough to determine the number of full rotations.
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
    return PairAngles(rate, phase, np.full_like(rate, exact))


def _neighbours(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of two rows each, at distances of 1, 2, 4, … rows."""
    one, two, lag = [], [], 1
    while lag < rows:
        one.append(np.arange(0, rows - lag, max(1, lag // 8)))
        two.append(one[-1] + lag)
        lag *= 2
    return np.concatenate(one), np.concatenate(two)
