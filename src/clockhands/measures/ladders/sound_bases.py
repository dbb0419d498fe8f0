"""Searches the bases that are valid for a length by the bound of Men et al. 2024, for unscaled frequencies.

A plain ladder of ``n`` pairs has the frequencies ``base ** (-i / den)``, by default with ``den = n``. A base is *sound*
(valid) for a length if ``sum_i cos(m base ** (-i / den))`` is at least 0 at every distance ``m`` from 1 to the length
minus 1. Pairs of frequency 0 add 1 each. Very large bases are sound, since all pairs but the first hardly rotate; below
them sound and failing ranges alternate. So there is a smallest sound base, and there are gaps above it.

How bases are searched: a pair's phase at the farthest distance changes with the logarithm of the base by at most
``length / (e ln base)`` radians, so the lowest sum hardly changes within a logarithmic step that changes this phase by
much less than a radian. Bases are tried in steps of half a radian, or in wider ones (`search_step`) where this would
sum more than about 2**30 cosines. A base that is sound for a length is sound for shorter ones, so the search for the
smallest sound base starts from that of half the length. The ends of ranges are then bisected to a thousandth of a step.

Accuracy: a sum is within ``pairs x length x 2**-50`` of the real one. Ends are within a thousandth of a step of the
change; gaps and sound ranges narrower than a step may be missed, so the true smallest sound base may be smaller. Every
base that is returned was checked and is sound.

Source: Men et al. 2024, arXiv:2405.14591, section 4 (the condition); that the set of sound bases has gaps follows from
the condition, and is shown here.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, positive
from clockhands.errors import InvalidValue

# The most cosines that a search sums, over about this many logarithmic units of bases.
_MOST_COSINES = 2**30
_UNITS = 2
# A search in wider steps would find little in a set whose gaps are a few percent wide.
WIDEST_STEP = 0.02
# The largest base that is searched: with so few pairs no base in use is sound.
_LARGEST_BASE = 1e18
_AT_ONCE = 2**15  # distances x bases whose sums fit in the cache
_HALVINGS = 10
# Multiplications up to which OpenBLAS uses one thread (SMP_THRESHOLD_MIN x GEMM_MULTITHREAD_THRESHOLD of its source).
_ONE_THREAD = 2**18


def search_step(pairs: int, length: int, base: float) -> float:
    """The step in which bases near ``base`` are searched, as a share of the base.

    >>> round(search_step(64, 2048, 10_000.0), 4), round(search_step(64, 8192, 10_000.0), 4)
    (0.0061, 0.002)
    """
    fastest = length / (math.e * math.log(base)) if base > math.e else length / base
    return max(min(0.5 / fastest, WIDEST_STEP), _UNITS * 2 * pairs * length / _MOST_COSINES)


def searchable(pairs: int, length: int) -> bool:
    """Whether the search is fine enough to be meaningful at this length."""
    return _UNITS * 2 * pairs * length / _MOST_COSINES <= WIDEST_STEP


def lowest_sums(
    bases: NDArray[np.float64], pairs: int, length: int, *, still: int = 0, denominator: float | None = None
) -> NDArray[np.float64]:
    """The lowest sum of cosines at the distances 1 to ``length - 1``, one for each base.

    ``sum_i cos(m base ** (-i / denominator)) + still``, infinite if there is no distance. A rotation by ``a + b`` is
    one by ``a`` and then one by ``b``, so the sums are a matrix product, and the rotations themselves are computed by
    doubling.
    """
    exponents = np.arange(pairs) / (denominator or pairs)
    together = max(1, _AT_ONCE // length)
    found = np.full(len(bases), math.inf)
    columns = 1 << math.ceil(math.log2(max(length, 2)) / 2)
    for begin in range(0, len(bases) if length > 1 else 0, together):
        rates = np.exp(-np.outer(np.log(bases[begin : begin + together]), exponents))
        turn = np.exp(1j * rates)[:, None]
        fine, turn = _powers(turn, columns)
        coarse, _ = _powers(turn, -(-length // columns))
        left = np.concatenate([coarse.real, coarse.imag], axis=2)
        right = np.concatenate([fine.real, -fine.imag], axis=2).transpose(0, 2, 1)
        sums = product(left, right).reshape(len(rates), -1)
        found[begin : begin + together] = sums[:, 1:length].min(axis=1) + still
    return found


def _powers(turn: NDArray[np.complex128], number: int) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """The powers 0 to ``number - 1`` of rotations [bases, 1, pairs], and the next power of 2 after them."""
    made = np.ones_like(turn)
    while made.shape[1] < number:
        made, turn = np.concatenate([made, made * turn], axis=1), turn * turn
    return made[:, :number], turn


def smallest_sound_base(pairs: int, length: int, *, still: int = 0, denominator: float | None = None) -> float | None:
    """The smallest base that the search of the module finds sound for a length; None if it finds none.

    Args:
        pairs: Pairs of the ladder.
        length: Tokens; distances from 1 to ``length - 1``.
        still: Additional pairs of frequency 0 (dimensions that are not rotated).
        denominator: ``den`` of the exponents; the number of pairs by default.

    Returns:
        The base; 1.0 if every base above 1 is sound.

    Raises:
        InvalidValue: A number is below 1, or the length is too long to be searched.

    >>> round(smallest_sound_base(64, 1024), -1)
    4290.0
    """
    pairs, length, still = count("pairs", pairs), count("length", length), count("still", still, 0)
    _refuse_longer(pairs, length)
    return _smallest(_Ladders(pairs, length, still, denominator))


@dataclass(frozen=True)
class _Ladders:
    """The plain ladders with a number of pairs, at a length."""

    pairs: int
    length: int
    still: int
    denominator: float | None

    def hold(self, bases: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of these bases are sound."""
        lowest = lowest_sums(bases, self.pairs, self.length, still=self.still, denominator=self.denominator)
        return lowest >= 0


@lru_cache(maxsize=256)
def _smallest(ladders: _Ladders) -> float | None:
    if ladders.length <= 2 or ladders.still >= ladders.pairs:
        return 1.0
    base = _smallest(replace(ladders, length=-(-ladders.length // 2)))
    failing = base
    while base is not None and base < _LARGEST_BASE:
        step = search_step(ladders.pairs, ladders.length, base)
        bases = base * np.exp(step * np.arange(1 if base == 1 else 0, 65))
        sound = ladders.hold(bases)
        if sound.any():
            first = int(sound.argmax())
            failing = bases[first - 1] if first else failing
            return float(_halved(np.array([failing]), bases[first : first + 1], ladders)[0])
        base = failing = float(bases[-1])
    return None


def sound_bases(
    pairs: int,
    length: int,
    low: float,
    high: float,
    *,
    step: float | None = None,
    still: int = 0,
    denominator: float | None = None,
) -> tuple[tuple[float, float], ...]:
    """The ranges of sound bases from ``low`` to ``high``, each as (first, last), in order.

    Args:
        pairs: Pairs of the ladder.
        length: Tokens; distances from 1 to ``length - 1``.
        low: Where the search begins.
        high: Where it ends.
        step: The step as a share of the base; `search_step` at ``low`` by default.
        still: Additional pairs of frequency 0.
        denominator: ``den`` of the exponents; the number of pairs by default.

    Raises:
        InvalidValue: A number is out of range, or the length is too long to be searched in the usual steps.

    >>> [(round(begin), round(end)) for begin, end in sound_bases(64, 1024, 4000, 8000, step=0.001)]
    [(4293, 4330), (5602, 5644), (6018, 8000)]
    """
    pairs, length, still = count("pairs", pairs), count("length", length), count("still", still, 0)
    low, high = positive("low", low), positive("high", high)
    if high <= low:
        raise InvalidValue(f"`high` must be above `low`, got {low:g} to {high:g}.", "Give the smaller base first.")
    if step is None:
        _refuse_longer(pairs, length)
    step = search_step(pairs, length, low) if step is None else positive("step", step)
    return _stretches(_Ladders(pairs, length, still, denominator), low, high, step)


@lru_cache(maxsize=64)
def _stretches(ladders: _Ladders, low: float, high: float, step: float) -> tuple[tuple[float, float], ...]:
    bases = np.geomspace(low, high, math.ceil(math.log(high / low) / step) + 1)
    sound = ladders.hold(bases)
    turns = np.flatnonzero(sound[1:] != sound[:-1])
    failing = np.where(sound[turns], bases[turns + 1], bases[turns])
    holding = np.where(sound[turns], bases[turns], bases[turns + 1])
    ends = [float(end) for end in _halved(failing, holding, ladders)]
    if sound[0]:
        ends.insert(0, low)
    if sound[-1]:
        ends.append(high)
    return tuple(zip(ends[::2], ends[1::2], strict=True))


def _halved(failing: NDArray[np.float64], sound: NDArray[np.float64], ladders: _Ladders) -> NDArray[np.float64]:
    """The sound bases closest to each change, found by bisection between failing and sound ones."""
    for _ in range(_HALVINGS):
        middle = np.sqrt(failing * sound)
        holds = ladders.hold(middle)
        failing, sound = np.where(holds, failing, middle), np.where(holds, middle, sound)
    return sound


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left @ right``, computed in blocks of rows of ``left``; the same up to the order of the sums.

    OpenBLAS distributes even small products over all cores, which costs more time than it saves; if other processes are
    running, its threads wait for each other, up to a hundred times as long. Products below a size limit run in the
    calling thread.

    Args:
        left: [*batch, rows, inner].
        right: [*batch, inner, columns].

    >>> product(np.arange(6.0).reshape(3, 2), np.eye(2)).tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    rows, inner = left.shape[-2:]
    columns = right.shape[-1]
    together = max(1, _ONE_THREAD // max(1, inner * columns))
    if rows <= together:
        return left @ right
    made: Any = np.empty((*left.shape[:-1], columns), np.result_type(left, right))
    for row in range(0, rows, together):
        np.matmul(left[..., row : row + together, :], right, out=made[..., row : row + together, :])
    return made


def _refuse_longer(pairs: int, length: int) -> None:
    if not searchable(pairs, length):
        raise InvalidValue(
            f"With {pairs:,} pairs over {length:,} tokens the search would take steps of more than "
            f"{WIDEST_STEP:.0%} of the base, which is too coarse.",
            "Use a shorter length, or call sound_bases with a `step`.",
        )
