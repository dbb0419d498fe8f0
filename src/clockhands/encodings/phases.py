r"""Cosine and sine of position x RoPE frequency within a derived bound, for any position up to 2**63 in size.

A pair that makes ``f`` full rotations per token has made ``p f`` of them at position ``p``; only the fractional part
matters. ``f`` is stored in fixed point (`clockhands.ladders.Turns`), so multiplying it by an integer with wrap-around
gives the fractional part directly, however large ``p`` is. A *turn* below is one full rotation, 2 pi rad.

**The fraction.** Units below are 2**-64 turns.

* ``p`` integer, ``|p| <= 2**63``: ``p x high`` wraps exactly; the upper half of ``p x low`` is made of
  four 32-bit products, of which two are truncated and one is left out: less than 3 units. The rate itself
  is within 2**-129 turns: at most 1/4 unit more.
* ``p = whole + part`` real: the part is taken as 128 bits (exact down to parts of 2**-75; below that it
  is cut, at most 1/2 unit after multiplying by the whole turns), times ``whole + high`` turns: less than
  3 + 3 units for the cut products, 2 for the products left out, 1 for the rate's ``low``.

Together less than ``F = 13`` units, which is 13 x 2 pi x 2**-64 < 2**-57.6 rad.

**The angle.** The fraction is reduced to ``q`` quarter turns and a rest within an eighth of a turn, in
fixed point, so exactly. The rest ``r`` becomes an angle ``x`` of at most pi/4.

* *plain*: ``float(r) * C`` with three roundings: ``|error| <= 3 x 2**-53 x pi/4 < 2.36 x 2**-53``.
* *fine*: ``r = rh + rl`` with ``rh`` of at most 26 bits, ``C = C1 + C2`` with ``C1`` of 26 bits, so ``rh C1``
  is exact; ``x`` is the rounded sum and ``e`` what the rounding lost, known to 2**-78; then
  ``sin(x + e) = sin x + e cos x`` and ``cos(x + e) = cos x - e sin x`` up to ``e**2 < 2**-106``.

**Cosine and sine.** NumPy's, on [-pi/4, pi/4], are taken to be within one unit in the last place, 2**-53
there (a test measures it on the machine at hand). So each component is within

* plain: ``DIRECT_PLAIN = (2.36 + 1 + 0.05) x 2**-53`` (phase, function, fraction);
* fine: ``DIRECT_FINE = (1 + 0.5 + 0.05) x 2**-53``, 0.78 ulp of 1 (function, the rounding of the
  correcting sum, fraction). An ulp of 1 is 2**-52.

**Consecutive positions.** A shift is the same rotation at every position, so ``unit(a + b) = unit(a) x unit(b)``: a
table over consecutive positions is an outer product, coarse by fine, in complex128. Components ``a, b`` with error
``d1`` times components ``c, d`` with error ``d2``: at most ``(|a| + |b|) d2 + (|c| + |d|) d1 <= sqrt(2) (d1 + d2)``,
plus ``2 x 2**-53`` for the roundings of two products and a sum.

* float64 output: one product of fine factors, ``PRODUCT_FINE = (2.83 x 1.55 + 2) x 2**-53 < 6.4 x 2**-53``,
  3.2 ulp of 1.
* float32, bfloat16 and float16 output: up to six plain factors (five products). An error ``d`` of each
  grows to at most 2**-46, after which the result is rounded once to the output: for float32 half an ulp,
  at most 2**-25, times ``1 + 2**-21``.

Blocks of consecutive positions are cut at multiples of `FINE`, wherever the range starts, so a row
does not depend on the range in which it is computed (up to the roundings above).
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count
from clockhands.encodings.ladders import Ladder, Turns
from clockhands.encodings.positions import LARGEST, Positions, Sizes
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

ULP = 2.0**-52
FRACTION = 13 * 2.0**-64  # turns
DIRECT_PLAIN = 3.41 * 2.0**-53
DIRECT_FINE = 1.55 * 2.0**-53
PRODUCT_FINE = 6.4 * 2.0**-53
PRODUCT_PLAIN = 2.0**-46

FINE = 64  # consecutive rows that share one coarse row
_GROUP = FINE * FINE  # rows of one group of coarse rows
_COLUMNS = 1024  # pairs x coarse rows at once: blocks of 64 x 1024 complex128 are 1 MB
_DIRECT = 1 << 14  # phases at once where each is computed for itself
_THREADED = 1 << 18  # numbers from which starting a second thread saves time

_MASK32 = np.uint64(0xFFFFFFFF)
_S32, _S62 = np.uint64(32), np.uint64(62)
_EIGHTH, _QUARTER_MASK = np.uint64(1 << 61), np.uint64((1 << 62) - 1)
_EIGHTH_SIGNED = np.int64(1 << 61)
_LOW36 = np.int64((1 << 36) - 1)
_UNIT = float.fromhex("0x1.921fb54442d18p-62")  # 2 pi / 2**64, the float64 next to it
_UNIT_HIGH = float.fromhex("0x1.921fb50000000p-62")  # its first 25 bits
_UNIT_LOW = float.fromhex("0x1.110b4611a6263p-88")  # 2 pi / 2**64 - _UNIT_HIGH, the float64 next to it
_QUARTERS = np.array([1, 1j, -1, -1j])
_QUARTERS_BACK = _QUARTERS.conj()

# write(rows, pairs, block): receives the numbers of some rows and pairs. The block is reused afterwards.
Write = Callable[[slice, slice, np.ndarray], None]


def units(ladder: Ladder, positions: Positions) -> NDArray[np.complex128]:
    """``cos + i sin`` of every pair at every position, complex128 of shape [*positions, pairs].

    Accuracy: each part within `DIRECT_FINE`, 0.78 ulp of 1; see the module.
    """
    out = np.empty((positions.size, ladder.pairs), np.complex128)

    def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
        out[rows, pairs] = block

    _fill_directly(write, ladder, positions, range(positions.size), swapped=False, fine=True)
    return out.reshape(*positions.shape, ladder.pairs)


def units_of_sums(
    ladders: Sequence[Ladder], backward: Sequence[NDArray[np.bool_]], positions: Sequence[Positions]
) -> NDArray[np.complex128]:
    """``cos + i sin`` of phases that are sums over axes of position x rate, complex128 [positions, pairs].

    Args:
        ladders: The rates of each axis, one per pair.
        backward: For each axis, which pairs have a negative rate.
        positions: The coordinates of each axis, flattened.

    Accuracy: the fractions of a turn are added in fixed point, so each axis adds its 13 units of 2**-64 turns and
    nothing else: each part is within `DIRECT_FINE` and 0.04 x 2**-53 for every axis past the first.
    """
    rows, pairs = positions[0].size, ladders[0].pairs
    out = np.empty((rows, pairs), np.complex128)
    height = max(1, _DIRECT // pairs)
    for begin in range(0, rows, height):
        end = min(begin + height, rows)
        total = np.zeros((end - begin, pairs), np.uint64)
        for ladder, turned, at in zip(ladders, backward, positions, strict=True):
            fraction = _fractions(ladder.turns, at.sizes(begin, end))
            np.subtract(np.uint64(0), fraction, out=fraction, where=turned)
            total += fraction
        out[begin:end] = _on_circle(total, fine=True)
    return out


def fill(
    write: Write,
    ladder: Ladder,
    positions: Positions,
    *,
    swapped: bool,
    fine: bool,
    threads: int | None = None,
    into: NDArray[np.complexfloating] | None = None,
) -> None:
    """Compute every pair at every (flattened) position and pass the results to ``write``, block by block.

    Blocks are complex128 of shape [rows, pairs]: ``cos + i sin``, or ``sin + i cos`` where
    ``swapped``. With more than one thread ``write`` is called from several, never for the same rows.
    ``fine`` chooses the analysis of the module: needed for float64 output, not for less.

    Where results need no further step, ``into`` [rows, pairs] is where ``write`` would put them: products are then
    rounded into it as they are computed, without a block between.

    Accuracy: `PRODUCT_FINE` or `PRODUCT_PLAIN` for progressions, `DIRECT_FINE` or `DIRECT_PLAIN` for other positions.
    """
    number = positions.size
    if not number:
        return
    stepping = positions.progression and number > 2 * FINE and abs(positions.step) * (number + 2 * _GROUP) < LARGEST
    workers = thread_count(threads) if number * ladder.pairs >= _THREADED else 1
    if stepping:
        work = _Progression(ladder, positions, swapped=swapped, fine=fine)
        parts = _shares(number, workers, FINE)
        run = [lambda part=part: work.fill(write, part, into) for part in parts]
    else:
        parts = _shares(number, workers, 1)
        run = [
            lambda part=part: _fill_directly(write, ladder, positions, part, swapped=swapped, fine=fine)
            for part in parts
        ]
    if len(run) == 1:
        run[0]()
        return
    waiting = [_pool(len(run) - 1, os.getpid()).submit(step) for step in run[1:]]
    try:
        run[0]()
    finally:
        for step in waiting:
            step.exception()  # waits for its end
    for step in waiting:
        step.result()


@cache
def _pool(workers: int, process: int) -> "ThreadPoolExecutor":  # noqa: ARG001 - a forked process has none of the threads
    """Threads that are kept, because starting one costs as much time as some hundred rows."""
    from concurrent.futures import ThreadPoolExecutor  # imported for large tables only

    return ThreadPoolExecutor(workers, thread_name_prefix="clockhands")


def thread_count(threads: int | None = None) -> int:
    """How many threads to use: the number given, else ``CLOCKHANDS_THREADS``, else the number of CPU cores.

    Raises:
        InvalidValue: The number is below 1, or the environment variable is not a whole number.
    """
    if threads is None:
        said = os.environ.get("CLOCKHANDS_THREADS", "").strip()
        if not said:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if not said.isdecimal():
            raise InvalidValue(
                f"`CLOCKHANDS_THREADS` must be a whole number of at least 1, got {shown(said)}.",
                "Unset it to use all cores, or set it to 1 to use only the calling thread.",
            )
        threads = int(said)
    return count("threads", threads)


def _shares(number: int, workers: int, grain: int) -> list[range]:
    """``range(number)`` in at most ``workers`` runs of nearly equal length, cut at multiples of ``grain``."""
    grains = -(-number // grain)
    workers = max(1, min(workers, grains))
    cuts = [min(number, grain * (grains * worker // workers)) for worker in range(workers + 1)]
    return [range(a, b) for a, b in itertools.pairwise(cuts)]


class _Progression:
    """Rows at equally spaced positions, as products group x coarse x fine of rotations."""

    def __init__(self, ladder: Ladder, positions: Positions, *, swapped: bool, fine: bool) -> None:
        self.ladder, self.step, self.swapped, self.exact = ladder, positions.step, swapped, fine
        # Groups start at multiples of their size, so that a row is the same product in every range.
        self.skip = positions.start % _GROUP if positions.step == 1 else 0
        self.start = positions.start - self.skip
        last = self.skip + positions.size
        numbers = min(FINE, last), min(FINE, -(-last // FINE))
        if fine:
            self.fine, self.coarse = self._evaluated(range(numbers[0])), None
        else:
            self.fine, self.coarse = self._products(numbers)

    def _products(self, numbers: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Units at so many multiples of one step, and of `FINE` steps, each an outer product of eight by eight."""
        # Evaluated together, because each call has a cost of its own.
        factors = self._evaluated([stride * k for stride in (1, 8, FINE, 8 * FINE) for k in range(8)])
        low, high, coarse_low, coarse_high = factors.reshape(4, 8, -1)
        fine, coarse = (high[:, None] * low).reshape(FINE, -1), (coarse_high[:, None] * coarse_low).reshape(FINE, -1)
        return fine[: numbers[0]], coarse[: numbers[1]]

    def _evaluated(self, multiples: Sequence[int]) -> np.ndarray:
        """Units at these multiples of the step."""
        units_at = _evaluate(self.ladder.turns, _integers([self.step * k for k in multiples]), fine=self.exact)
        return units_at.conj() if self.swapped else units_at

    def fill(self, write: Write, rows: range, into: NDArray[np.complexfloating] | None) -> None:
        """Write the rows of this range, which count from the first position."""
        first, last = rows.start + self.skip, rows.stop + self.skip
        for columns in _columns(self.ladder.pairs):
            wide = columns.stop - columns.start
            together = max(1, _COLUMNS // wide)  # fewer and larger blocks: less switching between threads
            block = np.empty((together, FINE, wide), np.complex128)
            fine = self.fine[:, columns]
            for group in range(first // _GROUP, -(-last // _GROUP)):
                begin, end = max(first, group * _GROUP), min(last, (group + 1) * _GROUP)
                runs = range(begin // FINE, -(-end // FINE))
                coarse = self._coarse(group, runs, columns)
                whole = _whole_runs(begin, end) if into is not None else runs[:0]
                if into is not None and whole:
                    at = slice(whole.start * FINE - self.skip, whole.stop * FINE - self.skip)
                    target = into[at, columns].reshape(len(whole), FINE, wide)
                    leads = coarse[whole.start - runs.start : whole.stop - runs.start, None]
                    np.multiply(leads, fine, out=target, casting="same_kind", dtype=np.complex128)
                for rest in (range(runs.start, whole.start), range(whole.stop, runs.stop)):
                    for run in rest[::together]:
                        leads = coarse[run - runs.start : min(run + together, rest.stop) - runs.start]
                        made = np.multiply(leads[:, None], fine, out=block[: len(leads)]).reshape(-1, wide)
                        row = run * FINE
                        low, high = max(begin, row), min(end, row + len(made))
                        write(slice(low - self.skip, high - self.skip), columns, made[low - row : high - row])

    def _coarse(self, group: int, blocks: range, columns: slice) -> np.ndarray:
        turns = Turns(*(limb[columns] for limb in self.ladder.turns))
        if self.coarse is None:
            places = _integers(range(self._at(blocks.start), self._at(blocks.stop), self.step * FINE))
            return _evaluate(turns, places, fine=True, swapped=self.swapped)
        begin = self._at(group * FINE)
        lead = _evaluate(turns, _integers(range(begin, begin + 1)), fine=False, swapped=self.swapped)
        base = group * FINE
        return lead * self.coarse[blocks.start - base : blocks.stop - base, columns]

    def _at(self, block: int) -> int:
        """Position of the first row of a block."""
        return self.start + self.step * FINE * block


def _whole_runs(begin: int, end: int) -> range:
    """The runs of `FINE` rows that lie between these two rows entirely; empty at ``begin``'s run where none does."""
    first = -(-begin // FINE)
    return range(first, max(first, end // FINE))


def _columns(pairs: int) -> Iterator[slice]:
    for begin in range(0, pairs, _COLUMNS):
        yield slice(begin, min(begin + _COLUMNS, pairs))


def _fill_directly(
    write: Write, ladder: Ladder, positions: Positions, rows: range, *, swapped: bool, fine: bool
) -> None:
    """Compute each phase separately, in blocks small enough for the cache."""
    for columns in _columns(ladder.pairs):
        turns = Turns(*(limb[columns] for limb in ladder.turns))
        height = max(1, _DIRECT // (columns.stop - columns.start))
        for begin in range(rows.start, rows.stop, height):
            end = min(begin + height, rows.stop)
            block = _evaluate(turns, positions.sizes(begin, end), fine=fine, swapped=swapped)
            write(slice(begin, end), columns, block)


def _integers(places: Sequence[int]) -> Sizes:
    """Integer positions of less than 2**64 in size."""
    return Sizes(
        np.array([abs(place) for place in places], np.uint64),
        None,
        np.array([place < 0 for place in places], bool) if any(place < 0 for place in places) else None,
    )


def _evaluate(turns: Turns, at: Sizes, *, fine: bool, swapped: bool = False) -> np.ndarray:
    """``cos + i sin`` (``sin + i cos`` where ``swapped``) for positions x pairs, complex128."""
    return _on_circle(_fractions(turns, at), fine=fine, swapped=swapped)


def _on_circle(fraction: np.ndarray, *, fine: bool, swapped: bool = False) -> np.ndarray:
    """Cosine and sine of fractions of a turn in units of 2**-64, which are overwritten."""
    fraction += _EIGHTH
    quarter = (fraction >> _S62).view(np.int64)
    fraction &= _QUARTER_MASK
    rest = fraction.view(np.int64)
    rest -= _EIGHTH_SIGNED
    out = np.empty(rest.shape, np.complex128)
    cosine, sine = (out.imag, out.real) if swapped else (out.real, out.imag)
    if fine:
        tail = rest & _LOW36
        rest -= tail
        head = rest * _UNIT_HIGH
        remainder = rest * _UNIT_LOW + tail * _UNIT
        angle = head + remainder
        error = (head - angle) + remainder
        cosine0, sine0 = np.cos(angle), np.sin(angle)
        np.subtract(cosine0, error * sine0, out=cosine)
        np.add(sine0, error * cosine0, out=sine)
    else:
        angle = rest * _UNIT
        np.cos(angle, out=cosine)
        np.sin(angle, out=sine)
    out *= (_QUARTERS_BACK if swapped else _QUARTERS)[quarter]
    return out


def _fractions(turns: Turns, at: Sizes) -> np.ndarray:
    """Fraction of a turn in units of 2**-64 modulo 2**64, uint64 of shape [positions, pairs]."""
    whole = at.whole[:, None]
    fraction = whole * turns.high
    fraction += _upper(whole, turns.low)
    if at.part is not None:
        scaled = at.part[:, None] * 2.0**64
        high = scaled.astype(np.uint64)
        low = ((scaled - high) * 2.0**64).astype(np.uint64)
        fraction += _upper(high, turns.high)
        if turns.whole.any():
            fraction += high * turns.whole
            fraction += _upper(low, turns.whole)
    if at.negative is not None:
        np.subtract(np.uint64(0), fraction, out=fraction, where=at.negative[:, None])
    return fraction


def _upper(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper 64 bits of the 128-bit product of two uint64 arrays; at most 2 too small."""
    a1, b1, b0 = a >> _S32, b >> _S32, b & _MASK32
    a0 = a & _MASK32
    upper = a0 * b1
    upper >>= _S32
    if a1.any():
        cross = a1 * b0
        cross >>= _S32
        upper += cross
        upper += a1 * b1
    return upper
