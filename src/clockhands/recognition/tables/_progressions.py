"""The pairs of channels of a table, their rotation from row to row, and the ladder of these angles.

A pair, taken as one complex number ``z = second + i first``, has constant size and rotates by the same angle at every
row: ``z_r = A exp(i (angle r + phase))``. Only with the right layout is the size the same in all pairs and rows.

A pair of rate ``r`` at positions ``start + step x`` has the phase ``r start + r step x``, known modulo 2 pi. Rows show
only ``a = r |step|``, not the rate itself; the phase is ``a (origin + sign x)``, where ``origin = start / |step|``. So
a geometric ladder has three unknown numbers, however many pairs and rows there are. Low-frequency pairs rotate by less
than half a rotation from row to row, so their angles are known. They give a first estimate of the ladder. The estimate
predicts the next faster pair well enough to find its number of full rotations, which improves the estimate, and so on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from clockhands.encodings.clocks import Order
from clockhands.encodings.layouts import Layout, pair_channels

# In independent noise, the size of a pair varies by about half of its value; in a pair of sine and cosine, by rounding.
_UNSTEADY = 0.4
Kind = Literal["geometric", "even", "explicit"]
_TURN = 2 * np.pi
_LOOSE = 0.02  # rad of error that the search for a progression always allows; each result is checked exactly later
_CHANCE = 1e-3  # the largest number of positions that may fit random phases, where each pair has a rate of its own
_FARTHEST = 64  # the largest distance of position 0 that is searched, in full rotations of the slowest pair


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


@dataclass(frozen=True, eq=False)
class Progression:
    """A ladder in radians per row, and the place of position 0.

    Attributes:
        kind: ``geometric``: ``advance_k = exp(level + slope k)``; ``even``: ``level + slope k``; ``explicit``: free.
        order: Whether sine or cosine is first.
        sign: 1 if positions increase with the rows, -1 if they decrease.
        level, slope: The parameters of the progression; 0 if it is explicit.
        advances: Radians by which each pair rotates from one row to the next, not modulo 2 pi, at least 0, [pairs].
        origin: The position of row 0, in steps.
        rest: Root mean square of the residual angles, in radians.
        normal: The normal matrix of least squares for level, slope and origin, [3, 3].
        spread: The same matrix with each angle weighted by its squared residual, [3, 3].
    """

    kind: Kind
    order: Order
    sign: int
    level: float
    slope: float
    advances: np.ndarray
    origin: float
    rest: float = np.inf
    normal: np.ndarray | None = None
    spread: np.ndarray | None = None

    def with_numbers(self, level: float, slope: float, origin: float) -> "Progression":
        """The same kind of ladder with other parameters."""
        index = np.arange(len(self.advances))
        line = level + slope * index
        advances = np.exp(line) if self.kind == "geometric" else line
        return replace(self, level=level, slope=slope, advances=advances, origin=origin)

    def phases(self, places: np.ndarray) -> np.ndarray:
        """The phase of every pair at these rows in radians, [rows, pairs]."""
        return np.multiply.outer(self.origin + self.sign * places, self.advances)


def turned(values: np.ndarray, order: Order) -> np.ndarray:
    """Complex pairs ``second + i first`` converted to ``cos + i sin``."""
    return values if order == "sin-cos" else 1j * values.conj()


def progressions(angles: PairAngles, rows: int, *, known: bool = False) -> Iterator[Progression]:
    """All ladders, with the place of position 0, that give these angles of ``second + i first`` within their errors.

    If positions are ``known``, the angles are per token; the origin is 0 and positions increase.
    """
    for order in ("sin-cos", "cos-sin"):
        angle = angles.angle if order == "sin-cos" else -angles.angle
        phase = angles.phase if order == "sin-cos" else np.pi / 2 - angles.phase
        for sign in (1,) if known else (1, -1):
            for kind, level, slope, advances in _ladders(sign * angle, angles.spread):
                start = Progression(kind, order, sign, level, slope, advances, 0.0)
                for origin, chance in ((0.0, 0.0),) if known else _origins(phase, advances, angles.spread, rows):
                    if kind != "explicit" or chance < _CHANCE:
                        yield replace(start, origin=origin)


def _ladders(angle: np.ndarray, spread: np.ndarray) -> Iterator[tuple[Kind, float, float, np.ndarray]]:
    """Kind, level, slope and advances of ladders with these angles modulo 2 pi."""
    pairs = len(angle)
    index = np.arange(pairs)
    found = False
    if pairs == 1:
        if angle[0] > 0:
            yield "geometric", float(np.log(angle[0])), 0.0, angle.copy()
        return
    for sequence in (index[::-1], index):
        line = _line(angle, spread, sequence)
        if line is None:
            continue
        values = line[0] + line[1] * index
        if np.abs(values).max() > 300:
            continue
        off = _wrapped(angle - np.exp(values))
        if np.mean(np.abs(off) <= _LOOSE + 6 * spread + 0.05 * np.minimum(np.exp(values), 1)) >= 0.9:
            found = True
            yield "geometric", *line, np.exp(values)
    if found:
        return
    for level, slope in _even_lines(angle):
        found = True
        yield "even", level, slope, np.maximum(level + slope * index, 0.0)
    if found:
        return
    if (angle > -_LOOSE).all() and (angle > 10 * spread).any():
        yield "explicit", 0.0, 0.0, np.maximum(angle, 0.0)


def _even_lines(angle: np.ndarray) -> Iterator[tuple[float, float]]:
    """Level and slope of evenly spaced advances that agree with these angles modulo 2 pi, smallest first."""
    index = np.arange(len(angle))
    slope, level = float(np.angle(np.exp(1j * np.diff(angle)).sum())), 0.0
    for _ in range(2):  # a line through the angles, unwrapped along the slope
        level = float(np.angle(np.exp(1j * (angle - slope * index)).sum()))
        off = _wrapped(angle - level - slope * index)
        slope += float((off * (index - index.mean())).sum() / ((index - index.mean()) ** 2).sum())
    if len(angle) < 3 or np.abs(_wrapped(angle - level - slope * index)).max() > _LOOSE:
        return
    for turns in (0, 1, -1, 2, -2):
        for more in (0, 1):
            first, last = level + _TURN * more, level + _TURN * more + (slope + _TURN * turns) * index[-1]
            if min(first, last) >= 0 and min(first, last) < 2 * _TURN and abs(slope + _TURN * turns) > 1e-6:
                yield first, slope + _TURN * turns


def _line(angle: np.ndarray, spread: np.ndarray, sequence: np.ndarray) -> tuple[float, float] | None:
    """Level and slope of the geometric progression through the pairs in this sequence, slowest first; or None."""
    floor = np.maximum(spread, 2.0**-22 * np.minimum(np.abs(angle), 1) + 2.0**-40)
    known = angle > 10 * floor
    start = next(
        (at for at in range(len(sequence) - 1) if known[sequence[at]] and known[sequence[at + 1]]),
        None,
    )
    if start is None:
        return None
    fit = _Weighted()
    for place, pair in enumerate(sequence[start:]):
        measured, error = float(angle[pair]), float(floor[pair])
        if place >= 2:
            value, doubt = fit.at(pair)
            if value > 60:
                return None
            predicted = float(np.exp(value))
            measured += _TURN * round((predicted - measured) / _TURN)
            allowed = _LOOSE * min(1.0, predicted) + 6 * (doubt * predicted + error)
            if measured <= 0 or abs(measured - predicted) > allowed or allowed > 2:
                return None
        fit.add(pair, float(np.log(measured)), error / measured)
        if place == 1 and (fit.slope() > 0) != (sequence[-1] > sequence[0]):
            return None
    return fit.line()


class _Weighted:
    """A straight line fitted by weighted least squares to points that are added one by one."""

    def __init__(self) -> None:
        self.sums = np.zeros(5)
        self.centre: float | None = None

    def add(self, x: float, y: float, error: float) -> None:
        if self.centre is None:
            self.centre = x
        x -= self.centre
        weight = 1 / error**2
        self.sums += weight * np.array([1.0, x, x * x, y, x * y])

    def slope(self) -> float:
        one, x, xx, y, xy = self.sums
        return (one * xy - x * y) / (one * xx - x * x)

    def at(self, x: float) -> tuple[float, float]:
        """The value of the line at ``x``, and its standard deviation."""
        one, sx, xx, y, _ = self.sums
        middle = sx / one
        slope, off = self.slope(), x - (self.centre or 0.0) - middle
        return y / one + slope * off, float(np.sqrt(1 / one + off**2 / max(xx - one * middle**2, 1e-300)))

    def line(self) -> tuple[float, float]:
        """The value at 0, and the slope."""
        return self.at(0.0)[0], self.slope()


def _origins(phase: np.ndarray, advances: np.ndarray, spread: np.ndarray, rows: int) -> Sequence[tuple[float, float]]:
    """At most 8 positions of row 0, in steps, that give these phases at row 0; the nearest to 0 first.

    With each comes how many positions as near to 0 would fit random phases: one for each rotation of the slowest pair,
    times ``allowed / pi`` for each other pair. A pair whose rate is not on a ladder has a rate of its own, and far from
    position 0 its error explains any phase.
    """
    turning = np.flatnonzero(advances > 0)
    if not turning.size:
        return ()
    order = turning[np.argsort(advances[turning])]
    error = np.maximum(spread * rows, 2.0**-20)
    first = order[0]
    origins = (phase[first] + _TURN * np.arange(-_FARTHEST, _FARTHEST + 1)) / advances[first]
    weight = np.full_like(origins, (advances[first] / error[first]) ** 2)
    chance = 1 + np.abs(origins) * advances[first] / np.pi
    for pair in order[1:]:
        doubt = advances[pair] / np.sqrt(weight)
        predicted = advances[pair] * origins
        off = _wrapped(phase[pair] - predicted)
        # An error of the pair's advance changes its phase by more, the further away position 0 is.
        allowed = _LOOSE + 6 * (doubt + error[pair] + np.abs(origins) * spread[pair])
        keep = (np.abs(off) <= allowed) | (allowed > 1)
        if not keep.any():
            return ()
        chance = (chance * np.where(allowed > 1, 1, allowed / np.pi))[keep]
        origins, weight, off, doubt = origins[keep], weight[keep], off[keep], doubt[keep]
        own = (advances[pair] / error[pair]) ** 2
        told = doubt < 0.5
        origins = np.where(told, origins + off / advances[pair] * own / (own + weight), origins)
        weight = np.where(told, weight + own, weight)
    best = np.argsort(np.abs(origins), kind="stable")
    return [(float(origins[one]), float(chance[one])) for one in best[:8]]


def refined(found: Progression, turns: np.ndarray, places: np.ndarray, rounds: int = 3) -> Progression:
    """The progression fitted to these pairs [rows, pairs] at these places [rows] by least squares.

    Rows with much larger residuals than the others are left out; they are found later, when every row is checked.
    """
    values = turned(turns, found.order)
    index = np.arange(len(found.advances))
    free = {"geometric": [0, 1, 2], "even": [0, 1, 2], "explicit": [2]}[found.kind]
    if len(index) == 1 and 1 in free:
        free.remove(1)
    rest, normal = np.zeros((0, len(index))), np.zeros((3, 3))
    by_row, by_pair = np.zeros((3, 0)), np.zeros((3, len(index)))
    for last in (*[False] * rounds, True):
        reach = found.origin + found.sign * places
        rest = np.angle(values * np.exp(-1j * found.phases(places)))
        size = np.sqrt(np.mean(rest**2, axis=1))
        keep = size <= 6 * np.median(size) + 1e-13
        rest, reach = rest[keep], reach[keep]
        # The derivative of an angle by level, slope or origin is a factor of the row times a factor of the pair.
        by_row = np.stack([reach, reach, np.ones_like(reach)])
        line = found.advances if found.kind == "geometric" else np.ones(len(index))
        by_pair = np.stack([line, line * index, found.advances])
        normal = (by_row @ by_row.T) * (by_pair @ by_pair.T)
        right = np.einsum("ir,rp,ip->i", by_row, rest, by_pair, optimize=True)
        scale = 1 / np.sqrt(np.maximum(np.diag(normal), 1e-300))
        scaled = (normal * np.outer(scale, scale))[np.ix_(free, free)]
        if last:
            break
        change = np.zeros(3)
        change[free] = np.linalg.lstsq(scaled, right[free] * scale[free], rcond=1e-15)[0] * scale[free]
        level, slope, origin = np.array([found.level, found.slope, found.origin]) + change
        if found.kind == "explicit":
            # Each pair has a rate of its own, by the rows as they are after the common origin has changed.
            reach = origin + found.sign * places[keep]
            left = np.angle(values[keep] * np.exp(-1j * np.multiply.outer(reach, found.advances)))
            own = (reach @ left) / max(float(reach @ reach), 1e-300)
            new = replace(found, origin=float(origin), advances=found.advances + own)
        else:
            new = found.with_numbers(float(level), float(slope), float(origin))
        if not np.isfinite(change).all() or not (new.advances >= 0).all() or abs(new.level) > 300:
            break
        found = new
    spread = np.einsum("ir,jr,ip,jp,rp->ij", by_row, by_row, by_pair, by_pair, rest**2, optimize=True)
    return replace(found, rest=float(np.sqrt(np.mean(rest**2))), normal=normal, spread=spread)


def _wrapped(angle: np.ndarray) -> np.ndarray:
    return angle - _TURN * np.round(angle / _TURN)


def covariance_of(trial: Progression, rounding: float) -> np.ndarray:
    """The covariance of the measured level, slope and origin, [3, 3].

    The rounding errors of the table are independent, although of different sizes (a small sine is rounded less than a
    cosine near 1), so least squares gives their effect. If the residuals are larger, rates and positions were rounded
    before. Such an error is the same in a whole pair or row, and more rows do not reduce it: level and slope (the
    logarithm of a rate) have an error of a few roundings of their value, and so has the origin.
    """
    assert trial.normal is not None
    assert trial.spread is not None
    scale = 1 / np.sqrt(np.maximum(np.diag(trial.normal), 1e-300))
    inner = trial.normal * np.outer(scale, scale)
    if trial.kind == "explicit":
        inner = np.diag(np.diag(inner))
    inverse = scale[:, None] * np.linalg.pinv(inner, rcond=1e-15, hermitian=True) * scale
    covariance = inverse @ trial.spread @ inverse + inverse * (rounding / 4) ** 2
    unit = 2.0**-50 if rounding < 2.0**-40 and trial.rest < 1e-9 else 2.0**-24 if trial.rest > rounding else 0.0
    steady = unit * np.array([2.0, 2 * abs(trial.slope), 2 * max(1.0, abs(trial.origin))])
    return covariance + np.diag(steady**2)
