"""A bare table of one axis: which sinusoid makes it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.recognition.describing import Description, Doubts, Shape, described
from clockhands.recognition.double_precision import polished
from clockhands.recognition.given import Given
from clockhands.recognition.progressions import Progression, progressions, refined, turned
from clockhands.recognition.turning import Angles, Hands, angles_at, angles_of, readings
from clockhands.recognition.verifying import Expected

HEAD = 256  # rows that a description is looked for in
_TRIED = 4  # readings of the head that are followed to the end


@dataclass(frozen=True, eq=False)
class Found:
    """A sinusoid that a table may be.

    Attributes:
        best: Its description.
        others: Further descriptions of the same numbers.
        scale: What the code is multiplied by.
        doubt: One standard deviation of the scale.
        hands: How its channels are paired.
        progression: The measured numbers.
        rest: Root mean square of the angles that are not explained in the rows looked at.
        told: For each whole pair how steadily it turns as described, 1 for exactly and 0 for not at all.
        measured: Makes the description in which every number is as it was measured.
    """

    best: Description
    others: tuple[Description, ...]
    scale: float
    doubt: float
    hands: Hands
    progression: Progression
    rest: float
    told: np.ndarray
    measured: Callable[[], Description]


def head_of(given: Given) -> tuple[np.ndarray, np.ndarray]:
    """The first rows in float64, and which of them hold anything but zeros."""
    head = given.at(slice(0, min(HEAD, given.rows)))
    return head, np.asarray(head.any(axis=1))


def sinusoids(given: Given) -> Iterator[Found]:
    """The sinusoids that a table of one axis may be, likeliest first; each is still to be checked on every row."""
    head, filled = head_of(given)
    if filled.sum() < 3 or not np.ptp(head[filled], axis=0).any():
        return
    places = np.arange(len(head)) if given.positions is None else given.positions[: len(head)]
    trials = []
    for hands in readings(head[filled]):
        even = filled.copy()
        even[filled] = _of_one_size(hands.turns)
        turns = np.zeros((len(head), hands.turns.shape[1]), complex)
        turns[even] = hands.turns[even[filled]]
        found = _trials(turns, hands, places, even, known=given.positions is not None)
        trials.extend((trial, hands) for trial in found)
    if not trials:
        return
    least = min(trial.rest for trial, _ in trials)
    trials.sort(key=lambda one: _likely(one[0], least))
    for trial, hands in trials[:_TRIED]:
        found = _followed(given, trial, hands)
        if found is not None:
            yield found


def _of_one_size(turns: np.ndarray) -> np.ndarray:
    """Which rows are fit to look for turns in: a row whose pairs differ far more in size than others' is another."""
    off = np.median(np.abs(np.abs(turns) - 1), axis=1)
    keep = off <= 10 * np.median(off) + 1e-6
    return keep if keep.mean() >= 0.9 else np.ones(len(keep), bool)


def _likely(trial: Progression, least: float) -> tuple[bool, float, float, float]:
    """What trials are sorted by: of those that fit as well, the slowest, and the one nearest to position 0."""
    return trial.rest > 2 * least + 1e-14, round(float(trial.advances.max()), 3), abs(trial.origin), trial.rest


def _trials(
    turns: np.ndarray, hands: Hands, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    noise = max(hands.noise, 2.0**-52)
    angles = angles_at(turns[filled], noise, places[filled]) if known else angles_of(turns, noise)
    out = _fitted(angles, turns, noise, places, filled, known=known)
    if not known and noise < 0.1 and not any(trial.kind == "geometric" for trial in out):
        # What rounding to a few steps does to a slow pair is the same in many rows: off by a whole step in all.
        loose = replace(angles, spread=np.maximum(angles.spread, 2 * noise / len(turns)))
        out += _fitted(loose, turns, noise, places, filled, known=known)
    return out


def _fitted(
    angles: Angles, turns: np.ndarray, noise: float, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    out = []
    least = np.inf
    for trial in progressions(angles, len(turns), known=known):
        # First on few rows and once: most readings are far off.
        some = np.flatnonzero(filled)[:: max(1, len(turns) // 32)]
        rough = refined(trial, turns[some], places[some], rounds=2)
        if rough.rest > max(0.5, 4 * noise) or rough.rest > 20 * least + 1e-12:
            continue
        fine = refined(trial, turns[filled], places[filled])
        least = min(least, fine.rest)
        out.append(fine)
    return out


def _followed(given: Given, trial: Progression, hands: Hands) -> Found | None:
    """A trial fitted to rows from ever larger parts of the table, and described."""
    whole = slice(0, hands.whole)
    first, second = hands.first[whole], hands.second[whole]
    reach = min(HEAD, given.rows)
    while True:
        rows = np.unique(np.linspace(0, reach - 1, min(HEAD, reach)).astype(np.int64))
        numbers = given.at(rows)
        filled = numbers.any(axis=1) & np.isfinite(numbers).all(axis=1)
        rows, numbers = rows[filled], numbers[filled]
        turns = ((numbers[:, second] - hands.offset) + 1j * (numbers[:, first] - hands.offset)) / hands.size
        places = rows.astype(float) if given.positions is None else given.positions[rows]
        trial = refined(trial, turns, places)
        if not np.isfinite(trial.rest) or trial.rest > 1:
            return None
        if reach >= given.rows:
            break
        reach = min(given.rows, 4 * reach)
    values = turned(turns, trial.order)
    along = np.real(values * np.exp(-1j * trial.phases(places)))
    size = float(np.median(along.mean(axis=1))) if len(along) > 8 else float(along.mean())
    if not 0.5 < size < 2:  # what does not turn as described has no scale
        return None
    doubt = max(given.rounding, 2.0**-24 if trial.rest > 2.0**-30 else 0) / math.sqrt(along.size) + trial.rest**2 / 2
    scale = hands.size * size
    shape = Shape(
        given.width,
        hands.layout,
        trial.order,
        lone=bool((hands.second < 0).any()),
        zeros=given.width - int(max(hands.first.max(), hands.second.max())) - 1,
        pairs=len(hands.first),
    )
    if shape.lone and trial.kind == "explicit":
        return None
    full = trial
    if shape.lone:
        lone = (numbers[:, hands.first[-1]] - hands.offset) / hands.size
        full = _with_lone(trial, turns, lone, places)
    doubts = Doubts(covariance_of(full, given.rounding))
    ways = described(full, doubts, shape, known=given.positions is not None)
    if not ways:
        return None
    best = ways[0]
    if given.rounding < 2.0**-40 and best.free and trial.rest < 1e-9 and trial.kind == "geometric":
        ways = polished(ways, values, places, known=given.positions is not None)
        best = ways[0]
    told = along.mean(axis=0) / np.sqrt((np.abs(values) ** 2).mean(axis=0))

    def measured() -> Description:
        return described(full, Doubts(np.zeros((3, 3))), shape, known=given.positions is not None)[0]

    return Found(best, tuple(ways[1:]), scale, scale * doubt, hands, trial, trial.rest, told, measured)


def _with_lone(trial: Progression, turns: np.ndarray, lone: np.ndarray, places: np.ndarray) -> Progression:
    """A trial fitted to a last hand without its second channel too, which is made up from what is known of it."""
    full = replace(trial, advances=np.append(trial.advances, 0.0))
    full = full.with_numbers(trial.level, trial.slope, trial.origin)
    for _ in range(2):
        phase = full.phases(places)[:, -1]
        second = np.cos(phase) if trial.order == "sin-cos" else np.sin(phase)
        full = refined(full, np.column_stack([turns, second + 1j * lone]), places, rounds=1)
    return full


def covariance_of(trial: Progression, rounding: float) -> np.ndarray:
    """Of level, slope and origin, of what was measured.

    Errors of rounding the table are independent, if not alike (a small sine is rounded less than a cosine near 1), and
    least squares says what they do. Where more than that is left, rates and positions were rounded on their way: they
    are off by the same in a whole pair or row, level and slope (the logarithm of a rate) by a few roundings of what
    they are, the origin likewise, however many rows there are.
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


def expected_of(
    spec: Any, positions: Callable[[int, int], Any], values: Any, scale: float, places: Callable[[int, int], Any]
) -> Expected:
    """What a sinusoid of one axis says of every number, with the rates of its channels."""
    rates = np.zeros(spec.width)
    own = np.array(spec.ladder.rates)
    pairs = len(own)
    width = min(spec.width, 2 * pairs)
    index = np.arange(width)
    rates[:width] = own[index // 2 if spec.layout == "interleaved" else np.where(index < pairs, index, index - pairs)]
    powers = np.abs(np.log(np.maximum(rates, 1e-300))) * (rates > 0)

    def reach(rows: np.ndarray) -> np.ndarray:
        first = int(rows[0])
        return np.multiply.outer(np.abs(places(first, int(rows[-1]) + 1)[rows - first]), rates)

    return Expected(spec, positions, values, scale, powers, reach)
