"""Recognition of a table of several axes: its grid, the channels and the ladder of each axis, checked on every row."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import numpy as np

from clockhands.encodings.additive import AxialSinusoidal
from clockhands.encodings.additive.axial import Channels
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import EvenSteps, Spacing
from clockhands.encodings.positions import positions_of
from clockhands.encodings.written_numbers import plain
from clockhands.errors import ClockhandsError
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Equivalent, Matches, Residual, Rows
from clockhands.recognition._preset_names import of_kind, ranked
from clockhands.recognition.tables._describing import (
    LEVEL,
    Description,
    MeasuredNumbers,
    TableShape,
    described,
    placed_row,
)
from clockhands.recognition.tables._grid_cells import UNKNOWN_AXIS, Cells, cells_of, loose_cells
from clockhands.recognition.tables._pair_angles import angles_of
from clockhands.recognition.tables._progressions import Progression, complex_waves, covariance_of, fitted, likely
from clockhands.recognition.tables._verifying import Candidate, ExpectedTable, in_words, verified

_OFF = 0.01  # rad of error allowed in angles while a ladder is searched
_SAME = 5e-8  # rad: fits of an axis that differ by less are equally good
_EXACT = 1e-3  # the largest relative variation of pair sizes in a table that is a code, also in 8 bits
# The best-known of several presets with the same code: those with the first axis fastest (x, y), and those with the
# last axis fastest (y, x).
_KNOWN = {True: ("mae", "simple-vit"), False: ("transformers-2d", "detr", "timm-2d")}
_LITTLE = 0.1  # the largest difference of a table that is near a code, relative to the code


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A possible order of the channels of several axes, as a spec; its ladders are not known yet.

    Attributes:
        spec: The spec, with a placeholder as its ladder.
        axes: For each axis of the spec, its index in the sizes of the grid.
        scale: The common size of all pairs.
        noise: The largest relative variation of that size.
    """

    spec: AxialSinusoidal
    axes: tuple[int, ...]
    scale: float
    noise: float


def arrangements(cells: Cells, width: int) -> list[Arrangement]:
    """Arrangements in which each channel belongs to its axis and all pairs have one size on these lines; best first."""
    found = []
    number = len(cells.sizes)
    for axes in itertools.permutations(range(number)):
        for raw in (None, "before", "after", "before-each", "after-each"):
            shares = _shares(cells, axes, raw)
            for share, channels, uneven in itertools.product(shares, get_args(Channels), ("refuse", "zero", "cut")):
                try:
                    spec = AxialSinusoidal(width, share, channels=channels, uneven=uneven, raw=raw)  # type: ignore[arg-type]
                except ClockhandsError:
                    continue
                if uneven != "refuse" and (width - (number if raw else 0)) % (2 * sum(spec.shares)) == 0:
                    continue  # the width divides evenly, so this is the same as "refuse"
                one = _fits(spec, axes, cells)
                if one is not None:
                    found.append(one)
    return sorted(found, key=lambda one: one.noise)


def _shares(cells: Cells, axes: tuple[int, ...], raw: str | None) -> set[tuple[int, ...]]:
    """Possible shares of the channels per axis: equal ones, or those of the counted channels."""
    counts = [int((cells.owner == axis).sum()) - bool(raw) for axis in axes]
    # A slow pair may not move within the grid, so the counted channels are not all of an axis.
    out = {spec.shares for _, spec in of_kind(AxialSinusoidal) if len(spec.shares) == len(axes)}
    if min(counts) > 0:
        common = math.gcd(*counts)
        if common > 1 and max(counts) // common <= 64:
            out.add(tuple(count // common for count in counts))
    return out


def _fits(spec: AxialSinusoidal, axes: tuple[int, ...], cells: Cells) -> Arrangement | None:
    hands, coordinates = spec.places
    width, lines = spec.width, cells.lines
    sizes = []
    used = np.zeros(width, bool)
    for axis, channels in zip(axes, hands, strict=True):
        inside = channels[channels < width]
        used[inside] = True
        if not np.isin(cells.owner[inside], (axis, UNKNOWN_AXIS)).all():
            return None
        whole = channels[(channels < width).all(axis=1)]
        sizes.append(np.hypot(lines[axis][:, whole[:, 0]], lines[axis][:, whole[:, 1]]))
    for axis, channel in zip(axes, coordinates, strict=False):
        used[channel] = True
        if cells.owner[channel] != axis or not _affine(lines[axis][:, channel]):
            return None
    if any(line[:, ~used].any() for line in lines):
        return None
    every = np.concatenate([size.ravel() for size in sizes])
    scale = float(np.median(every)) if every.size else 0.0
    if not scale > 0:
        return None
    noise = float(np.abs(every / scale - 1).max())
    return Arrangement(spec, axes, scale, noise) if noise < 0.02 else None


def _affine(column: np.ndarray) -> bool:
    """Whether a column changes by a constant step from cell to cell."""
    if len(column) < 2 or column[0] == column[-1]:
        return False
    straight = column[0] + (column[-1] - column[0]) * np.arange(len(column)) / (len(column) - 1)
    return bool(np.abs(column - straight).max() <= 1e-3 * np.abs(column[-1] - column[0]) / len(column))


@dataclass(frozen=True, eq=False)
class TableAxis:
    """One axis of a table.

    Attributes:
        trials: Measured parameters of its ladder, likeliest first; they differ in the number of full rotations.
        doubts: The covariance of level, slope and origin, [3, 3].
        ways: Descriptions, the shortest first.
        raw: Start and step, measured from its raw coordinate, or None.
        values: The pairs as ``cos + i sin``, complex [cells, pairs].
    """

    trials: list[Progression]
    doubts: np.ndarray
    ways: list[Description]
    raw: tuple[float, float] | None
    values: np.ndarray

    @property
    def places(self) -> np.ndarray:
        """The index of each cell, float64 [cells]."""
        return np.arange(float(len(self.values)))


def axes_of(given: GivenTable, one: Arrangement, cells: Cells, order: str) -> list[TableAxis] | None:
    """The ladder and position of each axis of an arrangement with this order of sine and cosine, or None."""
    hands, coordinates = one.spec.places
    out = []
    for number, (axis, channels) in enumerate(zip(one.axes, hands, strict=True)):
        line = cells.lines[axis]
        whole = channels[(channels < one.spec.width).all(axis=1)]
        if not len(whole):
            return None
        turns = (line[:, whole[:, 1]] + 1j * line[:, whole[:, 0]]) / one.scale
        raw = None
        if len(coordinates):
            column = line[:, coordinates[number]]
            raw = (float(column[0]), float(column[-1] - column[0]) / max(1, len(column) - 1))
        made = _axis(given, turns, order, len(channels), raw, noise=one.noise if one.noise > _EXACT else 0.0)
        if made is None:
            return None
        out.append(made)
    return out


def _axis(
    given: GivenTable, turns: np.ndarray, order: str, pairs: int, raw: tuple[float, float] | None, *, noise: float
) -> TableAxis | None:
    places, every, noise = np.arange(float(len(turns))), np.ones(len(turns), bool), max(given.rounding, 2.0**-24, noise)
    found = [
        trial
        for trial in fitted(angles_of(turns, noise), turns, noise, places, every)
        if trial.order == order and trial.rest < _OFF and (raw is None or _starts_at(trial, *raw))
    ]
    if not found:
        # Frequencies above half a rotation from cell to cell show no series; with coordinates, presets are compared.
        return None if raw is None else TableAxis([], np.zeros((3, 3)), [], raw, complex_waves(turns, order))  # type: ignore[arg-type]
    least = min(trial.rest for trial in found) + _SAME
    found.sort(key=lambda trial: likely(trial, least))
    best = level = found[0]
    shape = TableShape(2 * pairs, "halves", order, lone=False, zeros=0, pairs=pairs)
    doubts = covariance_of(best, given.rounding)
    if raw is not None:
        level = replace(best, level=best.level - math.log(abs(raw[1])))
        if best.kind == "even":
            level = best.with_numbers(best.level / abs(raw[1]), best.slope / abs(raw[1]), best.origin)
    ways = described(level, doubts, shape, known=raw is not None)
    return TableAxis(found[:12], doubts, ways, raw, complex_waves(turns, best.order))


def _starts_at(trial: Progression, start: float, step: float) -> bool:
    """Whether a measured ladder has its position 0 where coordinates have it."""
    off = abs(trial.origin - start / abs(step))
    return (step > 0) == (trial.sign > 0) and off <= 1e-3 * (1 + abs(trial.origin))


def placed(axis: TableAxis, spacing: Spacing, pairs: int) -> tuple[float, float] | None:
    """Start and step of an axis if its rates are those of this spacing; else None."""
    rates = np.array(spacing.ladder(pairs, 2 * pairs).rates)[: axis.values.shape[1]]

    def rest(start: float, step: float) -> np.ndarray:
        return np.angle(axis.values * np.exp(-1j * np.multiply.outer(start + step * axis.places, rates)))

    if axis.raw is not None:
        return axis.raw if np.abs(rest(*axis.raw)).max() < _OFF else None
    best = None
    for trial in axis.trials:
        step = float(rates @ trial.advances / (rates @ rates)) * trial.sign
        start = trial.origin * abs(step)
        if np.abs(trial.advances - abs(step) * rates).max() * len(axis.values) > 2 * _OFF:
            continue
        columns = np.stack([np.tile(rates, len(axis.values)), np.multiply.outer(axis.places, rates).ravel()], axis=1)
        for _ in range(3):
            change = np.linalg.lstsq(columns, rest(start, step).ravel(), rcond=None)[0]
            start, step = start + float(change[0]), step + float(change[1])
        size = float(np.sqrt(np.mean(rest(start, step) ** 2)))
        if size < _OFF and (best is None or size < best[0] / 2):
            best = (size, start, step)
    return None if best is None else best[1:]


def even_like(axis: TableAxis, published: EvenSteps, pairs: int) -> EvenSteps | None:
    """Evenly spaced rates of an axis with the published first rate and a measured last one, or None.

    If the axis has a raw coordinate, the first rate must agree with it.
    """
    for trial in axis.trials:
        first, end = float(trial.advances[0]), float(trial.advances[-1])
        if trial.kind != "even" or len(trial.advances) != pairs or not first > 0:
            continue
        if axis.raw is not None and abs(first / abs(axis.raw[1]) / published.first / published.multiplier - 1) > 1e-3:
            continue
        last = published.first * end / first
        doubt = last * 4 * max(trial.rest, 2.0**-24) / (first * len(axis.values))
        return EvenSteps(published.first, plain(last, doubt)[1], published.multiplier)
    return None


@dataclass(frozen=True, eq=False)
class PlacedCode:
    """A code of several axes that may be the table, with the start and step of each axis."""

    spec: AxialSinusoidal
    start: tuple[float, ...]
    step: tuple[float, ...]
    digits: float
    names: tuple[str, ...]


def identify_cells(given: GivenTable, prefix: int) -> Matches:
    """The match of a table of several axes, or none with a reason; ``prefix`` rows of zeros precede the table."""
    cells = cells_of(given)
    if cells is not None:
        return _of_cells(given, cells, prefix)
    found = _moved_cells(given, prefix)
    return found or Matches(
        [], "No dimension pair has a constant frequency from row to row, or along the axes of a grid."
    )


def _moved_cells(given: GivenTable, prefix: int) -> Matches | None:
    """The match of a table with wrong rows: that of a class token before it, zeros after it, or any others."""
    behind = _zeros_behind(given)
    for before in (0, 1):
        if before + behind + 4 > given.rows or (before and prefix) or (behind and prefix):
            continue
        inner = replace(given, array=given.array[before : given.rows - behind])
        found = loose_cells(inner)
        match = None if found is None else _of_cells(inner, found, prefix + before, loose=True)
        if match:
            return _with_others(match, given, before, behind) if before or behind else match
    return None


def _zeros_behind(given: GivenTable) -> int:
    """The number of rows of zeros at the end, at most 255; 0 if the last 256 rows are all zeros."""
    tail = np.asarray(np.asarray(given.array[-min(given.rows, 256) :]).any(axis=1))
    return int(np.argmax(tail[::-1])) if tail.any() else 0


def _with_others(found: Matches, given: GivenTable, before: int, behind: int) -> Matches:
    """The match of the grid cells extended to the whole table, with ``before`` and ``behind`` rows that differ."""
    match, spec = found[0], cast(AxialSinusoidal, found[0].spec)
    positions = match.positions
    if behind:  # a `Grid` has no rows after its cells, so these get the position of the last cell
        at = positions_of(replace(positions, prefix=0)).as_float64().reshape(-1, len(positions.sizes))
        positions = at[[*[0] * before, *range(len(at)), *[-1] * behind]]
    least = 1.01 * match.error if match.residual is None else 0.0
    residual = Residual.between(given.array, spec, positions, least)
    match = replace(
        match,
        positions=positions,
        residual=residual,
        error=residual.largest,
        confidence=match.confidence * (1 - (before + behind) / given.rows),
        rows=Rows(zeroed=tuple(range(given.rows - behind, given.rows))),
    )
    words = [f"But its last {behind} rows are zeros."] if behind else []
    words += ["But its first row is another: that of a class token, perhaps."] if before else []
    return Matches([match], " ".join([found.reason, *words]))


def _of_cells(given: GivenTable, cells: Cells, prefix: int, *, loose: bool = False) -> Matches:
    grid = " x ".join(map(str, cells.sizes))
    reason = f"Its rows run through a grid of {grid}, but no order of dimensions makes pairs of one size."
    for arrangement in arrangements(cells, given.width):
        for order in ("sin-cos", "cos-sin"):
            axes = axes_of(given, arrangement, cells, order)
            if axes is None:
                reason = (
                    f"Its rows run through a grid of {grid}, but its pairs do not follow one series of frequencies."
                )
                continue
            found = sorted(_placed_codes(arrangement, axes, order), key=lambda one: one.digits)
            for code in found[:4]:
                candidate = _candidate(code, cells, arrangement, prefix)
                match = verified(given, candidate, _LITTLE if loose else None)
                if match is not None:
                    others = [one for one in found if one is not code][:4]
                    grids = [replace(match.positions, start=one.start, step=one.step) for one in others]
                    same = [Equivalent(one.spec, at) for one, at in zip(others, grids, strict=True)]
                    match = replace(match, equivalents=(*match.equivalents, *same))
                    wrong = dict(match.evidence)["wrong_rows"]
                    error = match.error if match.residual is None else None
                    return Matches([match], in_words(match, f", in a grid of {grid}", wrong, error))
    return Matches([], reason)


def _placed_codes(arrangement: Arrangement, axes: list[TableAxis], order: str) -> Iterator[PlacedCode]:
    size = arrangement.scale
    scale = plain(size, max(arrangement.noise, 2.0**-24) * size, (1.0,))[1]
    spec = replace(arrangement.spec, order=order, scale=scale)
    seen: dict[Any, PlacedCode] = {}
    form = (order, spec.shares, spec.channels, spec.raw)
    for name, own in of_kind(AxialSinusoidal):
        if (own.order, own.shares, own.channels, own.raw) != form or spec.uneven not in ("refuse", own.uneven):
            continue
        each = own.spacing if isinstance(own.spacing, tuple) else (own.spacing,) * len(axes)
        made = _placed_code(spec, axes, each, (name,))
        if made is None:  # evenly spaced rates may be for another resolution
            alike = tuple(
                even_like(axis, one, pairs) if isinstance(one, EvenSteps) else None
                for axis, one, pairs in zip(axes, each, spec.pairs, strict=True)
            )
            made = None if None in alike else _placed_code(spec, axes, alike, (name,))
        if made is not None:
            key = (made.spec, made.start, made.step)
            seen[key] = replace(made, names=(*seen[key].names, name)) if key in seen else made
    measured = [_placed_code(spec, axes, (way.spec.spacing,) * len(axes), ()) for axis in axes for way in axis.ways[:2]]
    measured.append(_placed_code(spec, axes, tuple(axis.ways[0].spec.spacing for axis in axes if axis.ways), ()))
    for made in measured:
        if made is not None:
            seen.setdefault((made.spec, made.start, made.step), made)
    yield from seen.values()


def _placed_code(
    spec: AxialSinusoidal, axes: list[TableAxis], each: tuple[Any, ...], names: tuple[str, ...]
) -> PlacedCode | None:
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
        doubts = np.sqrt(np.diag(axis.doubts)) + 1e-12 if axis.raw is None else np.full(3, 2.0**-22)
        numbers = MeasuredNumbers(np.array([math.log(abs(step)), 0.0, start / abs(step)]), np.diag(doubts**2))
        digits, size, start, _ = placed_row(numbers, LEVEL)
        total += digits
        starts.append(start)
        steps.append(math.copysign(size, step))
    made = replace(spec, spacing=each if len(set(each)) > 1 else each[0])
    rules = sum(len(str(getattr(one, "base", getattr(one, "last", "")))) for one in set(each))
    rules += sum(getattr(one, "multiplier", 1.0) != 1 for one in set(each))
    return PlacedCode(made, tuple(starts), tuple(steps), total + rules - 4 * bool(names), names)


def _candidate(code: PlacedCode, cells: Cells, arrangement: Arrangement, prefix: int) -> Candidate:
    order = tuple(int(axis) for axis in np.argsort(arrangement.axes))
    sizes = tuple(cells.sizes[axis] for axis in arrangement.axes)
    full = Grid(sizes, start=code.start, step=code.step, order=order, prefix=prefix)
    seen = {
        "grid": list(cells.sizes),
        "start": list(code.start),
        "step": list(code.step),
        "scale": code.spec.scale,
        "names": list(code.names),
    }
    names = ranked(list(code.names), _KNOWN[order[-1] == 0])
    expected = ExpectedTable.of_cells(code.spec, replace(full, prefix=0))
    return Candidate(expected, full, seen, names, prefix, may_differ=True)
