"""Comparison of every row of a table with a description, within a derived error bound.

**The bound.** A number in a table of scale ``A`` that was computed exactly is rounded once to the table's dtype, of
relative rounding ``u``: its error is at most ``A u``, and at most ``4 A u`` together with the errors of the measured
parameters of the description. In an arithmetic of rounding ``e`` (2**-24 for float32), there are further errors:

* the exponent of a rate, ``x = log(rate)``, is a product of two rounded numbers: its error is ``3 e |x|``, which is a
  relative error ``3 e |x|`` of the rate; the power or exponential adds 2 ``e``, a division 1;
* the position and the product of both are rounded: 2 ``e`` more.

So the error of a phase ``p`` is at most ``e |p| (3 |x| + 5)``, and that of the number ``A`` times the sum of this and
``2 e``. A row with a larger error in any number does not agree with the description.

For large phases, this bound is loose. But an arithmetic uses about the same share of the bound in every row. Therefore
a row is also wrong if it uses more than 8 times the 90th percentile of this share and has an error of more than 16
roundings. In a table that was computed exactly, that percentile is 0, so the second condition decides.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode, FourierFeatures, table
from clockhands.encodings.grids import Grid
from clockhands.encodings.phases import thread_count
from clockhands.encodings.positions import positions_of
from clockhands.encodings.specs import describe
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Residual, Rows
from clockhands.recognition.channel_waves import sinusoid_channels

_LARGE = 1 << 22  # a table with more numbers is compared in float32
_BLOCK = 1 << 22  # numbers of one block
# Rounding of float64 arithmetic, larger than 2**-53 because base, start and step are measured from float64 numbers.
_DOUBLE = 2.0**-49
_FEW = 0.01  # the share of rows that may differ in a table that still counts as that of a code; one row always may
_SAMPLED = 8  # in a large table, one of this many blocks is checked for numbers that are not the nearest of the dtype


@dataclass(frozen=True, eq=False)
class ExpectedTable:
    """The expected content of a table.

    Attributes:
        spec: The code.
        positions: Maps a range of rows ``(begin, end)`` to their positions, as `clockhands.table` takes them.
        values: Learned numbers, or None.
        scale: The largest number.
        rates: The rate of each channel along each axis in rad per unit of position, [axes, channels].
        power: The power of the position to which phases are proportional.
    """

    spec: AdditiveCode
    positions: Callable[[int, int], Any]
    values: Any
    scale: float
    rates: np.ndarray
    power: int = 1

    @classmethod
    def of_spec(
        cls, spec: Any, positions: Callable[[int, int], Any], scale: float, *, values: Any = None
    ) -> "ExpectedTable":
        """A code whose rates are those of its ladders, or of the frequencies in ``values``."""
        waves = sinusoid_channels(spec, values)
        assert waves is not None
        rates, raw = np.abs(waves.rates), np.flatnonzero(waves.raw >= 0)
        rates[waves.raw[raw], raw] = 1.0
        return cls(spec, positions, values, scale, rates)

    @classmethod
    def of_cells(cls, spec: Any, grid: Grid, *, values: Any = None) -> "ExpectedTable":
        """A code at every cell of a grid; some of its channels may be coordinates."""
        at = positions_of(grid).as_float64().reshape(grid.cells, grid.axes)
        largest = spec.scale * max(1.0, float(np.abs(at).max()) if spec.raw else 1.0)

        def positions(begin: int, end: int) -> Any:
            if (begin, end) == (0, grid.cells):
                return grid
            return at[begin:end] if grid.axes > 1 else at[begin:end, 0]

        return cls.of_spec(spec, positions, largest, values=values)

    def bounds(self, rows: np.ndarray, arithmetic: float) -> np.ndarray:
        """The error bound of each number of these rows due to phases in this arithmetic, [rows, channels]."""
        fastest = self.rates.max(axis=0)
        drawn = isinstance(self.spec, FourierFeatures)  # random numbers in place of powers: no exponent with an error
        powers = np.abs(np.log(np.maximum(fastest, 1e-300))) * (fastest > 0) * (not drawn)
        first, last = int(rows[0]), int(rows[-1])
        places = positions_of(self.positions(first, last + 1)).as_float64().reshape(last + 1 - first, -1)
        away = np.abs(places[rows - first]) ** self.power
        return away @ self.rates * (arithmetic * self.scale * (3 * powers + 5))


@dataclass
class Comparison:
    """The comparison of a table with the expected one.

    Attributes:
        error: The largest absolute difference in the rows that agree.
        excess: The same, divided by the bound for exact arithmetic, ``4 A u``.
        channels: Sum of squared differences by channel, of the blocks with a difference above ``4 A u``.
        uses: The largest share of the bound by channel, in the suspects.
        inexact: How many of the checked numbers are not the nearest ones of their dtype.
        numbers: How many numbers were checked for this.
        wrong: For each row that does not agree: row, largest difference, and root mean square of the difference; rows
            of zeros are not among them.
        suspects: Rows with a difference above ``4 A u``, [rows, 4]: row, largest difference, root mean square of the
            difference, and largest share of the bound.
        zeros: Rows of zeros where other numbers were expected.
        bad: Rows with NaN or infinite numbers.
        arithmetic: The rounding of the arithmetic of this bound.
    """

    error: float
    excess: float
    channels: np.ndarray
    uses: np.ndarray
    inexact: int
    numbers: int
    wrong: list[tuple[int, float, float]] = field(default_factory=list)
    suspects: list[np.ndarray] = field(default_factory=list)
    zeros: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    arithmetic: float = 2.0**-24

    @property
    def squares(self) -> float:
        """Sum of squared differences."""
        return float(self.channels.sum())

    def share(self, given: GivenTable, size: float, pairs: float) -> float:
        """Root mean square of the difference over that of a code of so many pairs of this size.

        The squares of a pair's sine and cosine sum to that of its size.
        """
        return math.sqrt(self.squares / (given.rows * pairs)) / size

    def differs(self, given: GivenTable) -> bool:
        """Whether more than one row and more than 1 % of the rows do not agree."""
        return len(self.wrong) > max(1, _FEW * given.rows)

    def moved(self, given: GivenTable, size: float, pairs: float, most: float) -> bool:
        """Whether nearly every row differs, by similar amounts, of at most ``most`` as a share of the code.

        At least 90 % of the rows differ, with a median of at least half of the 95th percentile. If instead some rows
        were replaced, most rows are unchanged or nearly so.
        """
        moves = np.array([mean for *_, mean in self.wrong])
        return bool(
            len(moves) >= 0.9 * (given.rows - len(self.zeros))
            and self.share(given, size, pairs) <= most
            and np.median(moves) >= 0.5 * np.quantile(moves, 0.95)
        )

    @property
    def wrong_rows(self) -> list[int]:
        """The first 10 rows that do not agree."""
        return [row for row, *_ in self.wrong[:10]]


def _joined(parts: Iterable[Comparison]) -> Comparison:
    """The comparisons of all blocks, in order, combined into one."""
    every = list(parts)
    return Comparison(
        error=max(part.error for part in every),
        excess=max(part.excess for part in every),
        channels=np.sum([part.channels for part in every], axis=0),
        uses=np.max([part.uses for part in every], axis=0),
        inexact=sum(part.inexact for part in every),
        numbers=sum(part.numbers for part in every),
        suspects=[rows for part in every for rows in part.suspects],
        zeros=[row for part in every for row in part.zeros],
        bad=[row for part in every for row in part.bad],
    )


def compared(given: GivenTable, expected: ExpectedTable) -> Comparison:
    """Compare every row with the bound of float64 arithmetic if a float64 table keeps it, else with that of float32."""
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
    """The comparison with its suspects divided into rows that the arithmetic explains and wrong rows."""
    total.arithmetic = arithmetic
    if not total.suspects:
        return total
    row, worst, rms, used = np.concatenate(total.suspects).T
    every = np.zeros(given.rows)
    every[row.astype(int)] = used
    usual = float(np.quantile(every, 0.9))
    # The bound of float64 arithmetic is never loose.
    limit = min(1.0, 8 * usual) if arithmetic > _DOUBLE else 1.0
    wrong = (used > 1) | ((used > limit) & (worst > 4 * once))
    error = max(total.error, float(worst[~wrong].max(initial=0.0)))
    picked = [
        (int(at), float(most), float(size)) for at, most, size in zip(row[wrong], worst[wrong], rms[wrong], strict=True)
    ]
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
        error, none = float(worst.max(initial=0.0)), np.zeros(rows.shape[1])
        return Comparison(error, error / once, none, none, inexact, numbers)
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
    return Comparison(
        error := float(worst[usual].max(initial=0.0)),
        error / once,
        np.einsum("rc,rc->c", size, size, dtype=np.float64),
        shares.max(axis=0, initial=0.0),
        inexact,
        numbers,
        suspects=[np.stack([begin + suspect, worst[suspect], by_row[suspect], used], axis=1)],
        zeros=[begin + int(row) for row in zero],
        bad=[begin + int(row) for row in bad],
    )


def _residual(check: Comparison, given: GivenTable, size: float, prefix: int, pairs: float) -> Residual:
    """The difference between the given table and the code, in which sine and cosine of a pair have this size."""
    worst = sorted(check.wrong, key=lambda one: -one[2])
    order = np.argsort(-check.channels, kind="stable")
    return Residual(
        largest=max(size for _, size, _ in worst),
        root_mean_square=math.sqrt(check.squares / max(1, given.rows * given.width)),
        share=check.share(given, size, pairs),
        rows=tuple(prefix + row for row, *_ in worst[:10]),
        channels=tuple(int(channel) for channel in order[check.uses[order] > 0][:10]),
    )


def computed_in(check: Comparison, given: GivenTable) -> str | None:
    """The arithmetic in which the numbers were computed, ``"float32"`` or ``"float64"``; None if it is not clear.

    Numbers computed in float64 and rounded once are the nearest ones of their dtype, except few that differ because the
    description is measured: less than 2 %. With phases in float32, more than 10 % are not the nearest ones.
    """
    share = check.inexact / max(1, check.numbers)
    if given.rounding < 2.0**-40:
        return "float64" if check.arithmetic < 2.0**-40 else "float32"
    if check.excess > 1:
        return "float32"
    if given.dtype == "float32":
        return "float64" if share < 0.02 else "float32" if share > 0.1 else None
    return None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A code that may be a table.

    Attributes:
        expected: The table that it gives.
        positions: The positions of all rows, also of those before the table.
        seen: What was measured, as evidence.
        names: The presets that are this code.
        prefix: The number of rows of zeros before the table that have no position.
        may_differ: Whether some rows may differ; the evidence then lists them.
    """

    expected: ExpectedTable
    positions: Any
    seen: dict[str, Any]
    names: Sequence[str] = ()
    prefix: int = 0
    may_differ: bool = False


def match_of(
    check: Comparison, given: GivenTable, candidate: Candidate, size: float | None = None, pairs: float | None = None
) -> Match:
    """The match of a candidate with what was compared; if rows differ, with the residual.

    The table has so many ``pairs`` (half of its channels) of this ``size`` (the scale of the code).
    """
    expected, share, moved = candidate.expected, len(check.wrong) / given.rows, check.differs(given)
    residual = None
    if check.wrong:
        scale = float(getattr(expected.spec, "scale", 1.0)) if size is None else size
        residual = _residual(check, given, scale, candidate.prefix, given.width / 2 if pairs is None else pairs)
        share = residual.share if moved else share
    evidence = (("dtype", given.dtype), *candidate.seen.items(), ("not_nearest", check.inexact / max(1, check.numbers)))
    return Match(
        expected.spec,
        candidate.positions,
        expected.values,
        error=max([check.error, *(size for _, size, _ in check.wrong)]),
        confidence=1 - share,
        name=candidate.names[0] if candidate.names else None,
        equivalents=tuple(candidate.names[1:]),
        computed_in=None if moved else computed_in(check, given),
        rows=Rows(prepended=candidate.prefix),
        residual=residual,
        evidence=(*evidence, ("wrong_rows", check.wrong_rows)) if candidate.may_differ else evidence,
    )


def verified(given: GivenTable, candidate: Candidate, most: float | None = None) -> Match | None:
    """The match of a candidate if every row agrees, else None.

    With ``most``, one row or 1 % of the rows may differ, or nearly every row by a small amount of at most this share.
    """
    check = compared(given, candidate.expected)
    size = float(getattr(candidate.expected.spec, "scale", 1.0))
    near = most is not None and (not check.differs(given) or check.moved(given, size, given.width / 2, most))
    if check.zeros or check.bad or (check.wrong and not near):
        return None
    return match_of(check, given, candidate)


def in_words(match: Match, where: str = "", wrong: Sequence[int] = (), error: float | None = None) -> str:
    """The sentence about a match; ``where`` are its positions in words, ``wrong`` the rows that differ."""
    words, residual = f"{describe(match.spec)}{where}", match.residual
    if residual is not None and len(wrong) > 5:
        return (
            f"The rows are near those of {words}, and differ by {residual.share:.2g} of their size, "
            f"{residual.largest:.2g} at most, more than rounding explains. What changed them is not known."
        )
    within = "" if error is None else f", within {error:.2g}"
    if wrong:
        return f"All rows but {len(wrong)} (row {', '.join(map(str, wrong))}) are those of {words}{within}."
    return f"Every row is that of {words}{within}."
