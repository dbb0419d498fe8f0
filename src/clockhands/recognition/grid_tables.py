"""A bare table of several axes, checked on every row, with the words for it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from clockhands.additive import AxialSinusoidal, table
from clockhands.errors import ClockhandsError
from clockhands.grids import Grid
from clockhands.ladders import EvenSteps
from clockhands.positions import positions_of
from clockhands.recognition.axes import (
    Arrangement,
    Axis,
    Cells,
    arrangements,
    axes_of,
    cells_of,
    even_like,
    loose_cells,
    placed,
    spacings,
)
from clockhands.recognition.given import Given
from clockhands.recognition.matches import Equivalent, Match, Matches, Residual, Rows
from clockhands.recognition.plain_numbers import UNKNOWN, plain
from clockhands.recognition.published import ranked
from clockhands.recognition.verifying import Comparison, Expected, compared, computed_in, residual_of
from clockhands.specs import describe

# Of the presets that are one and the same code: those best known for rows in which the first axis runs fastest (x, y),
# and those for rows in which the last one does (y, x).
_KNOWN = {True: ("mae", "simple-vit"), False: ("transformers-2d", "detr", "timm-2d")}


_FEW = 0.01  # of the rows may be others
_LITTLE = 0.1  # of the code, that a table may have moved by


@dataclass(frozen=True, eq=False)
class Candidate:
    """A code of several axes that a table may be."""

    spec: AxialSinusoidal
    start: tuple[float, ...]
    step: tuple[float, ...]
    digits: float
    names: tuple[str, ...]


def identify_cells(given: Given, prefix: int) -> Matches:
    """The code of several axes that a table is; ``prefix`` rows of zeros stood before these."""
    cells = cells_of(given)
    if cells is not None:
        return _of_cells(given, cells, [given.at(cells.rows(axis)) for axis in range(len(cells.sizes))], prefix)
    found = _moved_cells(given, prefix)
    return found or Matches([], "No pair of channels turns evenly from row to row, or along the axes of a grid.")


def _moved_cells(given: Given, prefix: int) -> Matches | None:
    """The code of a table some of whose rows are others: a class token's before it, zeros behind it, any one."""
    behind = _zeros_behind(given)
    for before in (0, 1):
        if before + behind + 4 > given.rows or (before and prefix) or (behind and prefix):
            continue
        inner = replace(given, array=given.array[before : given.rows - behind])
        found = loose_cells(inner)
        match = None if found is None else _of_cells(inner, *found, prefix + before, loose=True)
        if match:
            return _with_others(match, given, before, behind) if before or behind else match
    return None


def _zeros_behind(given: Given) -> int:
    """Rows of zeros at the end, of those looked at."""
    tail = np.asarray(np.asarray(given.array[-min(given.rows, 256) :]).any(axis=1))
    return int(np.argmax(tail[::-1])) if tail.any() else 0


def _with_others(found: Matches, given: Given, before: int, behind: int) -> Matches:
    """The match of the cells of a table as one of the whole table, whose first or last rows are others."""
    match, spec = found[0], cast(AxialSinusoidal, found[0].spec)
    positions = match.positions
    if behind:  # no grid has rows behind it: they are given the last cell's position
        at = positions_of(replace(positions, prefix=0)).as_float64().reshape(-1, len(positions.sizes))
        positions = at[[*[0] * before, *range(len(at)), *[-1] * behind]]
    made = table(spec, positions, "float64")
    off = np.abs(given.at(slice(None)) - made)
    wrong = np.flatnonzero((off > match.error * 1.01).any(axis=1)) if match.residual is None else np.arange(given.rows)
    furthest = wrong[np.argsort(-off[wrong].max(axis=1), kind="stable")]
    squares = float((off**2).sum())
    moved = off[wrong].max(axis=0)
    residual = Residual(
        float(off.max()),
        math.sqrt(squares / off.size),
        math.sqrt(squares / float((made**2).sum())),
        tuple(map(int, furthest[:10])),
        tuple(int(one) for one in np.argsort(-moved, kind="stable")[:10] if moved[one] > match.error),
    )
    confidence = match.confidence * (1 - (before + behind) / given.rows)
    match = replace(match, positions=positions, residual=residual, error=residual.largest, confidence=confidence)
    match = replace(match, rows=Rows(zeroed=tuple(range(given.rows - behind, given.rows))))
    words = [f"But its last {behind} rows are zeros."] if behind else []
    words += ["But its first row is another: that of a class token, perhaps."] if before else []
    return Matches([match], " ".join([found.reason, *words]))


def _of_cells(given: Given, cells: Cells, lines: list[np.ndarray], prefix: int, *, loose: bool = False) -> Matches:
    grid = " x ".join(map(str, cells.sizes))
    reason = f"Its rows run through a grid of {grid}, but no order of channels makes pairs of one size."
    for arrangement in arrangements(cells, lines, given.width):
        for order in ("sin-cos", "cos-sin"):
            axes = axes_of(given, arrangement, lines, order)
            if axes is None:
                reason = f"Its rows run through a grid of {grid}, but its pairs do not turn as one ladder."
                continue
            found = sorted(_candidates(arrangement, axes, order), key=lambda one: one.digits)
            for candidate in found[:4]:
                match = _checked(given, cells, arrangement, candidate, prefix, loose=loose)
                if match is not None:
                    match = replace(match, equivalents=(*match.equivalents, *_equivalents(match, candidate, found)))
                    return Matches([match], _in_words(match, grid))
    return Matches([], reason)


def _in_words(match: Match, grid: str) -> str:
    words, residual = f"{describe(match.spec)}, in a grid of {grid}", match.residual
    if residual is None:
        return f"Every row is that of {words}, within {match.error:.2g}."
    wrong = dict(match.evidence)["wrong_rows"]
    if len(wrong) > 5:
        words = f"A table trained further from {words}: it has moved by {residual.share:.2g} of its size"
        return f"{words}, {residual.largest:.2g} at most."
    return f"All rows but {len(wrong)} (row {', '.join(map(str, wrong))}) are those of {words}."


def _candidates(arrangement: Arrangement, axes: list[Axis], order: str) -> Iterator[Candidate]:
    spec = replace(arrangement.spec, order=order, scale=_scale(arrangement))
    seen: dict[Any, Candidate] = {}
    for name, published in spacings(arrangement, order):
        each = published if isinstance(published, tuple) else (published,) * len(axes)
        made = _candidate(spec, axes, each, (name,))
        if made is None:  # evenly spaced rates may be those of another resolution
            alike = tuple(
                even_like(axis, one, pairs) if isinstance(one, EvenSteps) else None
                for axis, one, pairs in zip(axes, each, spec.pairs, strict=True)
            )
            made = None if None in alike else _candidate(spec, axes, alike, (name,))
        if made is not None:
            key = (made.spec, made.start, made.step)
            seen[key] = replace(made, names=(*seen[key].names, name)) if key in seen else made
    own = [_candidate(spec, axes, (way.spec.spacing,) * len(axes), ()) for axis in axes for way in axis.ways[:2]]
    own.append(_candidate(spec, axes, tuple(axis.ways[0].spec.spacing for axis in axes if axis.ways), ()))
    for made in own:
        if made is not None:
            seen.setdefault((made.spec, made.start, made.step), made)
    yield from seen.values()


def _scale(arrangement: Arrangement) -> float:
    digits, number = plain(arrangement.scale, max(arrangement.noise, 2.0**-24) * arrangement.scale, (1.0,))
    return number if digits < UNKNOWN else arrangement.scale


def _candidate(
    spec: AxialSinusoidal, axes: list[Axis], each: tuple[Any, ...], names: tuple[str, ...]
) -> Candidate | None:
    if len(each) != len(axes):
        return None
    starts, steps, total = [], [], 0.0
    for axis, spacing, pairs in zip(axes, each, spec.pairs, strict=True):
        try:
            at = placed(axis, spacing, pairs)
        except ClockhandsError:
            return None
        if at is None:
            return None
        start, step = at
        known = axis.raw is not None
        origin = start / abs(step)
        doubts = np.sqrt(np.diag(axis.doubts.covariance)) if not known else np.full(3, 2.0**-22)
        digits, number = plain(step, float(doubts[0]) * abs(step) + 1e-12)
        if digits < UNKNOWN:
            step = number
            more, number = plain(start, float(doubts[2]) * abs(step) + 1e-12)
        else:
            more, number = plain(origin, float(doubts[2]) + 1e-12)
            number *= abs(step)
        start = number if more < UNKNOWN else start
        total += digits + more
        starts.append(start)
        steps.append(step)
    made = replace(spec, spacing=each if len(set(each)) > 1 else each[0])
    rules = sum(len(str(getattr(one, "base", getattr(one, "last", "")))) for one in set(each))
    rules += sum(getattr(one, "multiplier", 1.0) != 1 for one in set(each))
    return Candidate(made, tuple(starts), tuple(steps), total + rules - 4 * bool(names), names)


def _checked(
    given: Given, cells: Cells, arrangement: Arrangement, candidate: Candidate, prefix: int, *, loose: bool
) -> Match | None:
    order = tuple(int(axis) for axis in np.argsort(arrangement.axes))
    sizes = tuple(cells.sizes[axis] for axis in arrangement.axes)
    grid = Grid(sizes, start=candidate.start, step=candidate.step, order=order)
    spec = candidate.spec
    check = compared(given, expected_of(spec, grid))
    if check.zeros or check.bad or (check.wrong and not (loose and _nearly(check, given, spec))):
        return None
    residual = residual_of(check, given, spec.scale, prefix) if check.wrong else None
    full = Grid(sizes, start=candidate.start, step=candidate.step, order=order, prefix=prefix)
    names = ranked(list(candidate.names), _KNOWN[order[-1] == 0])
    return Match(
        spec,
        full,
        None,
        error=max([check.error, *(size for _, size, _ in check.wrong)]),
        confidence=1.0 if residual is None else 1 - min(residual.share, len(check.wrong) / given.rows),
        name=names[0] if names else None,
        equivalents=tuple(names[1:]),
        computed_in=None if len(check.wrong) > _FEW * given.rows + 1 else computed_in(check, given),
        rows=Rows(prepended=prefix),
        residual=residual,
        evidence=_evidence(given, cells, candidate, check),
    )


def _nearly(check: Comparison, given: Given, spec: AxialSinusoidal) -> bool:
    """Whether few rows are others, or all have moved a little and alike: by a tenth of the code in all."""
    wrong = len(check.wrong)
    if wrong <= max(1, _FEW * given.rows):
        return True
    moves = np.array([size for _, _, size in check.wrong])
    return bool(
        wrong >= 0.9 * given.rows
        and residual_of(check, given, spec.scale, 0).share <= _LITTLE
        and np.median(moves) >= 0.5 * np.quantile(moves, 0.95)
    )


def expected_of(spec: AxialSinusoidal, grid: Grid) -> Expected:
    """What a code of several axes says of every cell of a grid."""
    hands, coordinates = spec.places
    at = positions_of(grid).as_float64().reshape(grid.cells, grid.axes)
    rates = np.zeros((grid.axes, spec.width))
    for axis, (channels, ladder) in enumerate(zip(hands, spec.ladders, strict=True)):
        for wave in range(2):
            inside = channels[:, wave] < spec.width
            rates[axis, channels[inside, wave]] = np.array(ladder.rates)[inside]
    for axis, channel in enumerate(coordinates):
        rates[axis, channel] = 1.0
    fastest = rates.max(axis=0)
    powers = np.abs(np.log(np.maximum(fastest, 1e-300))) * (fastest > 0)
    largest = spec.scale * max(1.0, float(np.abs(at).max()) if len(coordinates) else 1.0)

    def positions(begin: int, end: int) -> Any:
        return grid if (begin, end) == (0, grid.cells) else at[begin:end]

    return Expected(spec, positions, None, largest, powers, lambda rows: np.abs(at[rows]) @ rates)


def _equivalents(match: Match, best: Candidate, others: list[Candidate]) -> tuple[Any, ...]:
    grid = match.positions
    return tuple(
        Equivalent(one.spec, Grid(grid.sizes, start=one.start, step=one.step, order=grid.order, prefix=grid.prefix))
        for one in others
        if one is not best
    )[:4]


def _evidence(given: Given, cells: Cells, candidate: Candidate, check: Comparison) -> tuple[tuple[str, Any], ...]:
    return (
        ("dtype", given.dtype),
        ("grid", list(cells.sizes)),
        ("start", list(candidate.start)),
        ("step", list(candidate.step)),
        ("scale", candidate.spec.scale),
        ("names", list(candidate.names)),
        ("not_nearest", check.inexact / max(1, check.numbers)),
        ("wrong_rows", [row for row, *_ in check.wrong[:10]]),
    )
