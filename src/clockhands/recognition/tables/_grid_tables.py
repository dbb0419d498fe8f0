"""Recognition of a table of several axes: its grid, the channels and the ladder of each axis, checked on every row.

In a table of grid cells, a channel of one axis does not depend on the other coordinates. So the size of the fastest
axis is the number of rows after which its channels repeat, while the other channels are constant within these rows.
The constant channels form a table of the remaining axes, with one row for each block.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import numpy as np

from clockhands.encodings.additive import AxialSinusoidal, table
from clockhands.encodings.additive.axial import Channels
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import EvenSteps, Spacing
from clockhands.encodings.positions import positions_of
from clockhands.encodings.written_numbers import UNKNOWN, plain
from clockhands.errors import ClockhandsError
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Equivalent, Match, Matches, Residual, Rows
from clockhands.recognition._preset_names import of_kind, ranked
from clockhands.recognition.tables._describing import Description, TableShape, described
from clockhands.recognition.tables._progressions import (
    Progression,
    angles_of,
    covariance_of,
    progressions,
    refined,
    turned,
)
from clockhands.recognition.tables._verifying import (
    Comparison,
    ExpectedTable,
    compared,
    in_words,
    match_of,
    residual_of,
)

_LOADED = 1 << 23  # the most numbers that are used to find the grid
_MOST = 5  # the most axes that are split off, one after another
_OFF = 0.01  # rad of error allowed in angles while a ladder is searched
_MOVED = 0.05  # the largest difference of cells in a table that is near a code, relative to its largest numbers
_ALIKE = 0.9  # the least share of cells that must agree in such a table
_LOOSE = 1 << 20  # the largest such table, in numbers
_EXACT = 1e-3  # the largest relative variation of pair sizes in a table that is a code, also in 8 bits
UNKNOWN_AXIS = -1
# The best-known of several presets with the same code: those with the first axis fastest (x, y), and those with the
# last axis fastest (y, x).
_KNOWN = {True: ("mae", "simple-vit"), False: ("transformers-2d", "detr", "timm-2d")}
_FEW = 0.01  # the share of rows that may differ
_LITTLE = 0.1  # the largest difference of a table that is near a code, relative to the code


@dataclass(frozen=True, eq=False)
class Cells:
    """The grid of the rows of a table.

    Attributes:
        sizes: Number of cells of each axis, the slowest axis first.
        owner: The axis of each channel as index into ``sizes``, [width]; `UNKNOWN_AXIS` for a constant channel.
    """

    sizes: tuple[int, ...]
    owner: np.ndarray

    @property
    def strides(self) -> tuple[int, ...]:
        """Number of rows from one cell of each axis to the next."""
        return tuple(math.prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes)))

    def rows(self, axis: int) -> np.ndarray:
        """The rows of the cells along one axis, with the other axes at their first cell."""
        return self.strides[axis] * np.arange(self.sizes[axis])


def cells_of(given: GivenTable) -> Cells | None:
    """The grid of a table, or None if its channels cannot be divided into axes."""
    rows = given.rows
    if rows * given.width > _LOADED and rows > _LOADED // 8:
        return None
    step = max(1, -(-rows * given.width // _LOADED))
    some = given.at(slice(None)) if step == 1 else np.asarray(given.array[:, ::step]).astype(np.float64)
    within = 4 * given.rounding * float(np.abs(some).max(initial=0.0))
    sizes, owner = _split(some, within)
    if len(sizes) < 2:
        return None
    if step > 1:  # only some channels were used to find the grid; the axis of each channel needs few rows
        grid = Cells(sizes, np.zeros(0))
        owner = np.full(given.width, UNKNOWN_AXIS)
        for axis in range(len(sizes)):
            lines = given.at(grid.rows(axis))
            owner[np.abs(lines - lines[0]).max(axis=0) > within] = axis
    return Cells(sizes, owner)


def loose_cells(given: GivenTable) -> tuple[Cells, list[np.ndarray]] | None:
    """The grid of a table with some wrong rows, or with all rows moved a little, and one line [cells, width] per axis.

    A line along an axis is the median over the other axes, so that a few wrong rows do not change it.
    """
    if given.rows * given.width > _LOOSE:
        return None
    rows = given.at(slice(None))
    sizes, owner = _split(rows, _MOVED * float(np.quantile(np.abs(rows), 0.99)), loose=True)
    if len(sizes) < 2:
        return None
    cube = rows.reshape(*sizes, given.width)
    every = range(len(sizes))
    lines = [np.median(cube, axis=tuple(other for other in every if other != axis)) for axis in every]
    return Cells(sizes, owner), lines


def _split(
    rows: np.ndarray, within: float, *, loose: bool = False, depth: int = 0
) -> tuple[tuple[int, ...], np.ndarray]:
    """Sizes (slowest axis first) and the axis of each channel of rows [rows, channels]; ``loose`` allows wrong rows."""
    number = len(rows)

    def middle(blocks: np.ndarray, axis: int) -> np.ndarray:
        return np.median(blocks, axis=axis, keepdims=True) if loose else blocks.take([0], axis)

    def alike(blocks: np.ndarray, axis: int) -> np.ndarray:
        apart = blocks - middle(blocks, axis)
        near = np.abs(apart, out=apart) <= within
        return np.asarray(near.mean(axis=(0, 1)) >= _ALIKE if loose else near.all(axis=(0, 1)))

    for fast in range(2, number // 2 + 1) if depth < _MOST else ():
        if number % fast:
            continue
        blocks = rows.reshape(-1, fast, rows.shape[1])
        # The first three blocks are checked first, because they rule out most lengths.
        again = still = np.zeros(rows.shape[1], bool)
        for part in (blocks,) if loose else (blocks[:3], blocks):
            again = alike(part, 0)
            still = alike(part, 1) if not loose or again.any() else again
            if not (again | still).all():
                break
        else:
            if (again & ~still).any() and (still & ~again).any():
                rest = still & ~again
                sizes, inner = _split(middle(blocks, 1)[:, 0, rest], within, loose=loose, depth=depth + 1)
                owner = np.full(rows.shape[1], UNKNOWN_AXIS)
                owner[rest] = inner
                owner[again & ~still] = len(sizes)
                return (*sizes, fast), owner
    return (number,), np.zeros(rows.shape[1], int)


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


def arrangements(cells: Cells, lines: list[np.ndarray], width: int) -> list[Arrangement]:
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
                one = _fits(spec, axes, cells, lines)
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


def _fits(spec: AxialSinusoidal, axes: tuple[int, ...], cells: Cells, lines: list[np.ndarray]) -> Arrangement | None:
    hands, coordinates = spec.places
    width = spec.width
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


def axes_of(given: GivenTable, one: Arrangement, lines: list[np.ndarray], order: str) -> list[TableAxis] | None:
    """The ladder and position of each axis of an arrangement with this order of sine and cosine, or None."""
    hands, coordinates = one.spec.places
    out = []
    for number, (axis, channels) in enumerate(zip(one.axes, hands, strict=True)):
        line = lines[axis]
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
    places = np.arange(float(len(turns)))
    angles = angles_of(turns, max(given.rounding, 2.0**-24, noise))
    found = []
    for rough in progressions(angles, len(turns)):
        if rough.order != order or (raw is not None and (raw[1] > 0) != (rough.sign > 0)):
            continue
        trial = refined(rough, turns, places)
        if raw is not None and abs(trial.origin - raw[0] / abs(raw[1])) > 1e-3 * (1 + abs(trial.origin)):
            continue
        if trial.rest < 0.01:
            found.append(trial)
    if not found:
        # Frequencies above half a rotation from cell to cell show no series; with coordinates, presets are compared.
        known = None if raw is None else (raw, turned(turns, order))  # type: ignore[arg-type]
        return None if known is None else TableAxis([], np.zeros((3, 3)), [], *known)
    least = min(trial.rest for trial in found)
    found.sort(
        key=lambda trial: (trial.rest > 2 * least + 1e-7, round(float(trial.advances.max()), 3), abs(trial.origin))
    )
    best = found[0]
    shape = TableShape(2 * pairs, "halves", order, lone=False, zeros=0, pairs=pairs)
    doubts = covariance_of(best, given.rounding)
    level = best if raw is None else replace(best, level=best.level - math.log(abs(raw[1])))
    if raw is not None and best.kind == "even":
        level = best.with_numbers(best.level / abs(raw[1]), best.slope / abs(raw[1]), best.origin)
    ways = described(level, doubts, shape, known=raw is not None)
    return TableAxis(found[:12], doubts, ways, raw, turned(turns, best.order))


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
class Candidate:
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
        return _of_cells(given, cells, [given.at(cells.rows(axis)) for axis in range(len(cells.sizes))], prefix)
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
        match = None if found is None else _of_cells(inner, *found, prefix + before, loose=True)
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


def _of_cells(given: GivenTable, cells: Cells, lines: list[np.ndarray], prefix: int, *, loose: bool = False) -> Matches:
    grid = " x ".join(map(str, cells.sizes))
    reason = f"Its rows run through a grid of {grid}, but no order of dimensions makes pairs of one size."
    for arrangement in arrangements(cells, lines, given.width):
        for order in ("sin-cos", "cos-sin"):
            axes = axes_of(given, arrangement, lines, order)
            if axes is None:
                reason = (
                    f"Its rows run through a grid of {grid}, but its pairs do not follow one series of frequencies."
                )
                continue
            found = sorted(_candidates(arrangement, axes, order), key=lambda one: one.digits)
            for candidate in found[:4]:
                match = _checked(given, cells, arrangement, candidate, prefix, loose=loose)
                if match is not None:
                    others = [one for one in found if one is not candidate][:4]
                    grids = [replace(match.positions, start=one.start, step=one.step) for one in others]
                    same = [Equivalent(one.spec, at) for one, at in zip(others, grids, strict=True)]
                    match = replace(match, equivalents=(*match.equivalents, *same))
                    wrong = dict(match.evidence)["wrong_rows"]
                    error = match.error if match.residual is None else None
                    return Matches([match], in_words(match, f", in a grid of {grid}", wrong, error))
    return Matches([], reason)


def _candidates(arrangement: Arrangement, axes: list[TableAxis], order: str) -> Iterator[Candidate]:
    size = arrangement.scale
    scale = plain(size, max(arrangement.noise, 2.0**-24) * size, (1.0,))[1]
    spec = replace(arrangement.spec, order=order, scale=scale)
    seen: dict[Any, Candidate] = {}
    form = (order, spec.shares, spec.channels, spec.raw)
    for name, own in of_kind(AxialSinusoidal):
        if (own.order, own.shares, own.channels, own.raw) != form or spec.uneven not in ("refuse", own.uneven):
            continue
        each = own.spacing if isinstance(own.spacing, tuple) else (own.spacing,) * len(axes)
        made = _candidate(spec, axes, each, (name,))
        if made is None:  # evenly spaced rates may be for another resolution
            alike = tuple(
                even_like(axis, one, pairs) if isinstance(one, EvenSteps) else None
                for axis, one, pairs in zip(axes, each, spec.pairs, strict=True)
            )
            made = None if None in alike else _candidate(spec, axes, alike, (name,))
        if made is not None:
            key = (made.spec, made.start, made.step)
            seen[key] = replace(made, names=(*seen[key].names, name)) if key in seen else made
    measured = [_candidate(spec, axes, (way.spec.spacing,) * len(axes), ()) for axis in axes for way in axis.ways[:2]]
    measured.append(_candidate(spec, axes, tuple(axis.ways[0].spec.spacing for axis in axes if axis.ways), ()))
    for made in measured:
        if made is not None:
            seen.setdefault((made.spec, made.start, made.step), made)
    yield from seen.values()


def _candidate(
    spec: AxialSinusoidal, axes: list[TableAxis], each: tuple[Any, ...], names: tuple[str, ...]
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
        doubts = np.sqrt(np.diag(axis.doubts)) if not known else np.full(3, 2.0**-22)
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
    given: GivenTable, cells: Cells, arrangement: Arrangement, candidate: Candidate, prefix: int, *, loose: bool
) -> Match | None:
    order = tuple(int(axis) for axis in np.argsort(arrangement.axes))
    sizes = tuple(cells.sizes[axis] for axis in arrangement.axes)
    full = Grid(sizes, start=candidate.start, step=candidate.step, order=order, prefix=prefix)
    grid, spec = replace(full, prefix=0), candidate.spec
    check = compared(given, ExpectedTable.of_cells(spec, grid))
    if check.zeros or check.bad or (check.wrong and not (loose and _nearly(check, given, spec))):
        return None
    residual = residual_of(check, given, spec.scale, prefix) if check.wrong else None
    names = ranked(list(candidate.names), _KNOWN[order[-1] == 0])
    match = match_of(
        check,
        given,
        spec,
        full,
        {
            "grid": list(cells.sizes),
            "start": list(candidate.start),
            "step": list(candidate.step),
            "scale": spec.scale,
            "names": list(candidate.names),
        },
        names=names,
        rows=Rows(prepended=prefix),
        residual=residual,
        confidence=1.0 if residual is None else 1 - min(residual.share, len(check.wrong) / given.rows),
        moved=len(check.wrong) > _FEW * given.rows + 1,
    )
    return replace(match, evidence=(*match.evidence, ("wrong_rows", check.wrong_rows)))


def _nearly(check: Comparison, given: GivenTable, spec: AxialSinusoidal) -> bool:
    """Whether at most one row or 1 % of the rows differ, or at least 90 % have moved by similar, small amounts.

    Small means a root mean square of at most a tenth of the code; similar, a median of at least half of the 95th
    percentile.
    """
    wrong = len(check.wrong)
    if wrong <= max(1, _FEW * given.rows):
        return True
    moves = np.array([size for _, _, size in check.wrong])
    return bool(
        wrong >= 0.9 * given.rows
        and residual_of(check, given, spec.scale, 0).share <= _LITTLE
        and np.median(moves) >= 0.5 * np.quantile(moves, 0.95)
    )
