"""A bare table of several axes, checked on every row, with the words for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.additive import AxialSinusoidal
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
    placed,
    spacings,
)
from clockhands.recognition.given import Given
from clockhands.recognition.matches import Equivalent, Match, Matches, Rows
from clockhands.recognition.plain_numbers import UNKNOWN, plain
from clockhands.recognition.published import ranked
from clockhands.recognition.verifying import Comparison, Expected, compared, computed_in
from clockhands.specs import describe

# Of the presets that are one and the same code: those best known for rows in which the first axis runs fastest (x, y),
# and those for rows in which the last one does (y, x).
_KNOWN = {True: ("mae", "simple-vit"), False: ("transformers-2d", "detr", "timm-2d")}


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
    if cells is None:
        return Matches([], "No pair of channels turns evenly from row to row, or along the axes of a grid.")
    lines = [given.at(cells.rows(axis)) for axis in range(len(cells.sizes))]
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
                match = _checked(given, cells, arrangement, candidate, prefix)
                if match is not None:
                    match = replace(match, equivalents=(*match.equivalents, *_equivalents(match, candidate, found)))
                    words = f"Every row is that of {describe(match.spec)}, in a grid of {grid}"
                    return Matches([match], f"{words}, within {match.error:.2g}.")
    return Matches([], reason)


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


def _checked(given: Given, cells: Cells, arrangement: Arrangement, candidate: Candidate, prefix: int) -> Match | None:
    order = tuple(int(axis) for axis in np.argsort(arrangement.axes))
    sizes = tuple(cells.sizes[axis] for axis in arrangement.axes)
    grid = Grid(sizes, start=candidate.start, step=candidate.step, order=order)
    spec = candidate.spec
    check = compared(given, expected_of(spec, grid))
    if check.wrong or check.zeros or check.bad:
        return None
    full = Grid(sizes, start=candidate.start, step=candidate.step, order=order, prefix=prefix)
    names = ranked(list(candidate.names), _KNOWN[order[-1] == 0])
    return Match(
        spec,
        full,
        None,
        error=check.error,
        confidence=1.0,
        name=names[0] if names else None,
        equivalents=tuple(names[1:]),
        computed_in=computed_in(check, given),
        rows=Rows(prepended=prefix),
        evidence=_evidence(given, cells, candidate, check),
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
    )
