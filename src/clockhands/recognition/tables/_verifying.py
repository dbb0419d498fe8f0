"""Comparison of every row of a table with a description, within a derived error bound.

**The bound.** A number of a table of scale ``A`` that was made exactly is rounded once to the table's dtype, of
relative rounding ``u``: it is off by at most ``A u``; with the measured numbers of the description together at most
``4 A u``. Made in an arithmetic of rounding ``e`` (2**-24 for float32), it is off by more:

* the exponent of a rate, ``x = log(rate)``, is a product of two rounded numbers: off by ``3 e |x|``, which is a
  relative ``3 e |x|`` of the rate; the power or exponential adds 2 ``e``, a division 1;
* the position and the product of both are rounded: 2 ``e`` more.

So a phase ``p`` is off by at most ``e |p| (3 |x| + 5)``, and the number by ``A`` times that and ``2 e``. What is off
by more, anywhere, is not what the description makes.

Long phases make that bound loose. But an arithmetic uses about the same share of it in every row: a row that uses 8
times the share that nine in ten rows stay below, and is off by more than 16 roundings, is another row. In a table that
was made exactly, where that share is 0, any such row is.
"""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode, table
from clockhands.grids import Grid
from clockhands.phases import thread_count
from clockhands.positions import positions_of
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Residual, Rows

_LARGE = 1 << 22  # numbers above which a table is compared in float32
_BLOCK = 1 << 22  # numbers of one block
# Of float64, with room for a base, a start and a step that are measured from numbers of float64 themselves.
_DOUBLE = 2.0**-49
_SAMPLED = 8  # of so many blocks of a large table one is looked at for the nearest numbers


@dataclass(frozen=True, eq=False)
class ExpectedTable:
    """What a table should be.

    Attributes:
        spec: The code.
        positions: From a first and a last row to where those stand, as `clockhands.table` takes it.
        values: Learned numbers, or None.
        scale: The largest number.
        rates: Of each channel along each axis, [axes, channels].
        places: From row numbers to where they stand, [rows, axes].
        drawn: Whether rates are random numbers, and no powers.
    """

    spec: AdditiveCode
    positions: Callable[[int, int], Any]
    values: Any
    scale: float
    rates: np.ndarray
    places: Callable[[np.ndarray], np.ndarray]
    drawn: bool = False

    @classmethod
    def of_cells(
        cls, spec: Any, grid: Grid, rates: np.ndarray, *, values: Any = None, raw: bool = False, drawn: bool = False
    ) -> "ExpectedTable":
        """A code beside every cell of a grid; with ``raw``, coordinates are among its channels."""
        at = positions_of(grid).as_float64().reshape(grid.cells, grid.axes)
        largest = spec.scale * max(1.0, float(np.abs(at).max()) if raw else 1.0)

        def positions(begin: int, end: int) -> Any:
            if (begin, end) == (0, grid.cells):
                return grid
            return at[begin:end] if grid.axes > 1 else at[begin:end, 0]

        return cls(spec, positions, values, largest, rates, lambda rows: at[rows], drawn)

    def bounds(self, rows: np.ndarray, arithmetic: float) -> np.ndarray:
        """How far phases of this arithmetic may put each number of these rows off."""
        fastest = self.rates.max(axis=0)
        powers = np.abs(np.log(np.maximum(fastest, 1e-300))) * (fastest > 0) * (not self.drawn)
        return np.abs(self.places(rows)) @ self.rates * (arithmetic * self.scale * (3 * powers + 5))


@dataclass
class Comparison:
    """A table beside what was expected of it.

    Attributes:
        error: The largest absolute difference in the rows that are as expected.
        excess: The largest difference as a share of the bound of exact arithmetic, in rows as expected.
        wrong: Rows that are not as expected, with their largest difference and its root mean square; zeros are not
            among them.
        suspects: Rows that are off by more than a rounding, [rows, 4]: row, largest difference, its root mean square,
            and its largest share of the bound.
        zeros: Rows of zeros that were expected to be others.
        bad: Rows with NaN or infinite numbers.
        squares: Sum of squares of the difference, of the blocks that hold wrong rows.
        inexact: Numbers that are not the nearest of their dtype, of those looked at for that.
        numbers: Numbers looked at for that.
        channels: The sum of squares by channel.
        uses: The largest share of the bound by channel, in the rows that are off by more than a rounding.
        arithmetic: The rounding of the arithmetic whose bound that is.
    """

    error: float = 0.0
    excess: float = 0.0
    wrong: list[tuple[int, float, float]] = field(default_factory=list)
    suspects: list[np.ndarray] = field(default_factory=list)
    zeros: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    squares: float = 0.0
    inexact: int = 0
    numbers: int = 0
    channels: np.ndarray | None = None
    uses: np.ndarray | None = None
    arithmetic: float = 2.0**-24


def _joined(parts: Iterable[Comparison]) -> Comparison:
    """Comparisons of one block after another as one."""
    every = list(parts)
    channels = [part.channels for part in every if part.channels is not None]
    uses = [part.uses for part in every if part.uses is not None]
    return Comparison(
        error=max(part.error for part in every),
        excess=max(part.excess for part in every),
        suspects=[rows for part in every for rows in part.suspects],
        zeros=[row for part in every for row in part.zeros],
        bad=[row for part in every for row in part.bad],
        squares=sum(part.squares for part in every),
        inexact=sum(part.inexact for part in every),
        numbers=sum(part.numbers for part in every),
        channels=sum(channels[1:], channels[0]) if channels else None,
        uses=np.max(uses, axis=0) if uses else None,
    )


def compared(given: GivenTable, expected: ExpectedTable) -> Comparison:
    """Every row beside what is expected: with the bound of float32's arithmetic, or of float64's where that is kept."""
    if given.rounding < 2.0**-40:
        fine = _compared(given, expected, _DOUBLE)
        if len(fine.wrong) <= max(1, given.rows // 100):
            return fine
    return _compared(given, expected, 2.0**-24)


def _compared(given: GivenTable, expected: ExpectedTable, arithmetic: float) -> Comparison:
    fine = given.rows * given.width <= _LARGE or given.rounding < 2.0**-40
    height = max(1, _BLOCK // given.width)
    starts = range(0, given.rows, height)

    def compare(begin: int) -> Comparison:
        end = min(begin + height, given.rows)
        rows = np.asarray(given.array[begin:end])
        return _block(rows, expected, begin, rounding=given.rounding, fine=fine, arithmetic=arithmetic)

    workers = min(thread_count(), len(starts))
    if workers < 2:
        total = _joined(map(compare, starts))
    else:
        with ThreadPoolExecutor(workers) as pool:
            total = _joined(pool.map(compare, starts))
    return _settled(total, given, 4 * expected.scale * given.rounding, arithmetic)


def _settled(total: Comparison, given: GivenTable, once: float, arithmetic: float) -> Comparison:
    """The comparison with its suspects told apart: those of the table's arithmetic, and wrong ones."""
    total.arithmetic = arithmetic
    if not total.suspects:
        return total
    row, worst, rms, used = np.concatenate(total.suspects).T
    every = np.zeros(given.rows)
    every[row.astype(int)] = used
    usual = float(np.quantile(every, 0.9))
    # The bound of float64 is never loose.
    limit = min(1.0, 8 * usual) if arithmetic > _DOUBLE else 1.0
    wrong = (used > 1) | ((used > limit) & (worst > 4 * once))
    error = max(total.error, float(worst[~wrong].max(initial=0.0)))
    picked = [
        (int(at), float(most), float(size)) for at, most, size in zip(row[wrong], worst[wrong], rms[wrong], strict=True)
    ]
    assert total.uses is not None
    uses = np.where(total.uses > limit, total.uses, 0)
    return replace(total, error=error, excess=error / once, wrong=picked, suspects=[], uses=uses)


def _block(
    rows: np.ndarray, expected: ExpectedTable, begin: int, *, rounding: float, fine: bool, arithmetic: float
) -> Comparison:
    end, work = begin + len(rows), np.float64 if fine else np.float32
    made = table(expected.spec, expected.positions(begin, end), np.dtype(work), values=expected.values, threads=1)
    off = rows.astype(work) if rows.dtype != work else rows
    inexact = numbers = 0
    if fine or begin // len(rows) % _SAMPLED == 0:
        nearest = made.astype(rows.dtype) if rows.dtype != work else made
        inexact, numbers = int(np.count_nonzero(nearest != rows)), rows.size
    off = np.subtract(off, made, out=made)
    size = np.abs(off, out=off)
    worst = size.max(axis=1) if size.size else np.zeros(len(rows))
    once = 4 * expected.scale * rounding
    bad = np.flatnonzero(~np.isfinite(worst))
    suspect = np.flatnonzero(~(worst <= once))
    if not suspect.size:
        error = float(worst.max(initial=0.0))
        return Comparison(error, error / once, inexact=inexact, numbers=numbers)
    zero = suspect[~rows[suspect].any(axis=1)]
    suspect = np.setdiff1d(suspect, np.concatenate([zero, bad]))
    bound = np.zeros((0, rows.shape[1]))
    if suspect.size:
        bound = expected.bounds(begin + suspect, arithmetic)
    bound += 2 * arithmetic * expected.scale
    shares = np.maximum((size[suspect] - once) / bound, 0) if suspect.size else np.zeros((0, rows.shape[1]))
    used = shares.max(axis=1)
    usual = np.ones(len(rows), bool)
    usual[suspect] = usual[zero] = usual[bad] = False
    size[zero] = size[bad] = 0
    by_row = np.sqrt(np.einsum("rc,rc->r", size, size, dtype=np.float64) / size.shape[1])
    by_channel = np.einsum("rc,rc->c", size, size, dtype=np.float64)
    return Comparison(
        error := float(worst[usual].max(initial=0.0)),
        error / once,
        suspects=[np.stack([begin + suspect, worst[suspect], by_row[suspect], used], axis=1)],
        zeros=[begin + int(row) for row in zero],
        bad=[begin + int(row) for row in bad],
        squares=float(by_channel.sum()),
        inexact=inexact,
        numbers=numbers,
        channels=by_channel,
        uses=shares.max(axis=0, initial=0.0),
    )


def residual_of(check: Comparison, given: GivenTable, scale: float, prefix: int, pairs: int | None = None) -> Residual:
    """How far what is given lies from the code: sine and cosine of each of its pairs have a square of 1."""
    assert check.channels is not None
    assert check.uses is not None
    worst = sorted(check.wrong, key=lambda one: -one[2])
    order = np.argsort(-check.channels, kind="stable")
    return Residual(
        largest=max(size for _, size, _ in worst),
        root_mean_square=math.sqrt(check.squares / max(1, given.rows * given.width)),
        share=math.sqrt(check.squares / (given.rows * (pairs or given.width / 2))) / scale,
        rows=tuple(prefix + row for row, *_ in worst[:10]),
        channels=tuple(int(channel) for channel in order[check.uses[order] > 0][:10]),
    )


def computed_in(check: Comparison, given: GivenTable) -> str | None:
    """The arithmetic that the numbers were made in, where it can be seen.

    Numbers made in double precision and rounded once are the nearest of their dtype, but for those that the measured
    description misses by little. Phases in float32 leave a good part of the numbers others than the nearest.
    """
    share = check.inexact / max(1, check.numbers)
    if given.rounding < 2.0**-40:
        return "float64" if check.arithmetic < 2.0**-40 else "float32"
    if check.excess > 1:
        return "float32"
    if given.dtype == "float32":
        return "float64" if share < 0.02 else "float32" if share > 0.1 else None
    return None


def exact_match(
    given: GivenTable,
    expected: ExpectedTable,
    positions: Any,
    names: list[str],
    seen: dict[str, Any],
    *,
    prefix: int = 0,
) -> Match | None:
    """The match of a code that makes every row, after ``prefix`` rows of zeros; None where it does not."""
    check = compared(given, expected)
    if check.wrong or check.zeros or check.bad:
        return None
    evidence = {"dtype": given.dtype, **seen, "not_nearest": check.inexact / max(1, check.numbers)}
    return Match(
        expected.spec,
        positions,
        expected.values,
        error=check.error,
        name=names[0] if names else None,
        equivalents=tuple(names[1:]),
        computed_in=computed_in(check, given),
        rows=Rows(prepended=prefix),
        evidence=tuple(evidence.items()),
    )
