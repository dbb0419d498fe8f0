"""The ladder that gives the rotation of pairs from row to row.

A pair of rate ``r`` at positions ``start + step x`` has the phase ``r start + r step x``, known modulo 2 pi. Rows show
only ``a = r |step|``, not the rate itself; the phase is ``a (origin + sign x)``, where ``origin = start / |step|``. So
a geometric ladder has three unknown numbers, however many pairs and rows there are. Low-frequency pairs rotate by less
than half a rotation from row to row, so their angles are known. They give a first estimate of the ladder. The estimate
predicts the next faster pair well enough to find its number of full rotations, which improves the estimate, and so on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clockhands.encodings.clocks import Order
from clockhands.recognition.tables._pair_angles import PairAngles

HEAD = 256  # rows at the start in which candidates are searched
Kind = Literal["geometric", "even", "explicit"]
_TURN = 2 * np.pi
_LOOSE = 0.02  # rad of error that the search for a progression always allows; each result is checked exactly later
_CHANCE = 1e-3  # the largest number of positions that may fit random phases, where each pair has a rate of its own
_FARTHEST = 64  # the largest distance of position 0 that is searched, in full rotations of the slowest pair


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

    @property
    def numbers(self) -> np.ndarray:
        """Level, slope and origin."""
        return np.array([self.level, self.slope, self.origin])

    def with_numbers(self, level: float, slope: float, origin: float) -> "Progression":
        """The same kind of ladder with other parameters."""
        index = np.arange(len(self.advances))
        line = level + slope * index
        advances = np.exp(line) if self.kind == "geometric" else line
        return replace(self, level=level, slope=slope, advances=advances, origin=origin)

    def phases(self, places: np.ndarray) -> np.ndarray:
        """The phase of every pair at these rows in radians, [rows, pairs]."""
        return np.multiply.outer(self.origin + self.sign * places, self.advances)


def complex_waves(values: np.ndarray, order: Order) -> np.ndarray:
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

    A pair that has only its first channel, with NaN as its real part, is fitted by that wave alone. Rows with much
    larger residuals than the others are left out; they are found later, when every row is checked.
    """
    index = np.arange(len(found.advances))
    free = {"geometric": [0, 1, 2], "even": [0, 1, 2], "explicit": [2]}[found.kind]
    if len(index) == 1 and 1 in free:
        free.remove(1)
    rest, normal = np.zeros((0, len(index))), np.zeros((3, 3))
    weight = rest
    by_row, by_pair = np.zeros((3, 0)), np.zeros((3, len(index)))
    for last in (*[False] * rounds, True):
        reach = found.origin + found.sign * places
        rest, weight = _residuals(found, turns, places)
        size = np.sqrt(np.mean(rest**2, axis=1))
        keep = size <= 6 * np.median(size) + 1e-13
        rest, weight, reach = rest[keep], weight[keep], reach[keep]
        # The derivative of an angle by level, slope or origin is a factor of the row times a factor of the pair.
        by_row = np.stack([reach, reach, np.ones_like(reach)])
        line = found.advances if found.kind == "geometric" else np.ones(len(index))
        by_pair = np.stack([line, line * index, found.advances])
        normal = (by_row @ by_row.T) * (by_pair @ by_pair.T)
        if (weight != 1).any():
            normal = _weighted_products(by_row, by_pair, weight)
        right = ((by_row @ rest) * by_pair).sum(axis=1)
        scale = 1 / np.sqrt(np.maximum(np.diag(normal), 1e-300))
        scaled = (normal * np.outer(scale, scale))[np.ix_(free, free)]
        if last:
            break
        change = np.zeros(3)
        change[free] = np.linalg.lstsq(scaled, right[free] * scale[free], rcond=1e-15)[0] * scale[free]
        level, slope, origin = map(float, found.numbers + change)
        if found.kind == "explicit":
            # Each pair has a rate of its own, by the rows as they are after the common origin has changed.
            reach = origin + found.sign * places[keep]
            left = _residuals(replace(found, origin=origin), turns[keep], places[keep])[0]
            own = (reach @ left) / max(float(reach @ reach), 1e-300)
            new = replace(found, origin=origin, advances=found.advances + own)
        else:
            new = found.with_numbers(level, slope, origin)
        if not np.isfinite(change).all() or not (new.advances >= 0).all() or abs(new.level) > 300:
            break
        found = new
    spread = _weighted_products(by_row, by_pair, rest**2)
    total = max(float(weight.sum()), 1e-300)
    return replace(found, rest=float(np.sqrt((rest**2).sum() / total)), normal=normal, spread=spread)


def _weighted_products(by_row: np.ndarray, by_pair: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The products of the three derivatives, summed with a weight [rows, pairs] over all rows and pairs, [3, 3]."""
    rows, pairs = ((each[:, None] * each).reshape(9, -1) for each in (by_row, by_pair))
    return ((rows @ weight) * pairs).sum(axis=1).reshape(3, 3)


def _residuals(found: Progression, turns: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The residual angle of each pair in each row, and its weight: less than 1 where only the first wave is there."""
    phases = found.phases(places)
    rest = np.angle(complex_waves(turns, found.order) * np.exp(-1j * phases))
    weight = np.ones_like(rest)
    lone = np.isnan(np.real(turns)).all(axis=0)
    if lone.any():
        at = phases[:, lone] + (0 if found.order == "sin-cos" else np.pi / 2)
        rest[:, lone] = (np.imag(turns)[:, lone] - np.sin(at)) * np.cos(at)
        weight[:, lone] = np.cos(at) ** 2
    return rest, weight


def without_second(first: np.ndarray) -> np.ndarray:
    """Pairs that have only their first channel, [rows, pairs], as `refined` takes them."""
    return np.full(first.shape, np.nan) + 1j * first


def fitted(
    angles: PairAngles, turns: np.ndarray, noise: float, places: np.ndarray, filled: np.ndarray, *, known: bool = False
) -> list[Progression]:
    """The ladders with these angles that fit the pairs [rows, pairs] in the rows that are ``filled``, bool [rows].

    ``noise`` is the relative error of a number. If positions are ``known``, ``places`` are positions, else row numbers.
    """
    out = []
    least = np.inf
    rows, apart = np.flatnonzero(filled), max(1, len(turns) // 32)
    for trial in progressions(angles, len(turns), known=known):
        # First a short fit on about 32 rows, because most trials are wrong by far.
        some = rows[::apart]
        rough = refined(trial, turns[some], places[some], rounds=2)
        if rough.rest > max(0.5, 4 * noise) or rough.rest > 20 * least + 1e-12:
            continue
        start, rounds = (rough, 1) if apart == 1 else (trial, 3)
        fine = refined(start, turns[rows], places[rows], rounds)
        least = min(least, fine.rest)
        out.append(fine)
    return out


def likely(trial: Progression, least: float) -> tuple[bool, float, float, float]:
    """The sort key of trials: of equally good fits, the slowest comes first, then the one nearest to position 0."""
    return trial.rest > 2 * least + 1e-14, round(float(trial.advances.max()), 3), abs(trial.origin), trial.rest


def growing_parts(rows: int) -> Iterator[np.ndarray]:
    """At most 256 rows from ever larger parts of a table: what each shows is precise enough to read the next."""
    reach = min(HEAD, rows)
    while True:
        yield np.unique(np.linspace(0, reach - 1, min(HEAD, reach)).astype(np.int64))
        if reach == rows:
            return
        reach = min(rows, 4 * reach)


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
