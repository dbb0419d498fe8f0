"""Finds the first two tokens with equal rows, for more tokens than fit in memory at once.

Rows are computed block by block, and a hash of 64 bits is kept for each. Tokens with equal hashes are candidates: their
rows are computed again, in the same blocks, and compared number by number. So the hash decides how much work there is,
never the answer. A row has the hash ``sum_j w_j m_j`` modulo 2**64, with its bits in words ``w_j`` of 32 and odd
constants ``m_j`` of 64: so a sign, the highest bit of a word, still changes 33 bits of the hash.

-0.0 counts as 0.0: a model cannot distinguish them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clockhands.errors import InvalidValue

MakeRows = Callable[[int, int], np.ndarray]
Hash = Callable[[NDArray[np.uint32]], NDArray[np.uint64]]

_BLOCK = 1 << 20  # numbers in a block of rows
_KEPT = 1 << 25  # bytes of rows that are kept for comparison
_UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_SEED = 20170612


@dataclass(frozen=True)
class Collisions:
    """The result of a search for equal rows.

    Attributes:
        first: The first row that equals an earlier one, with that one before it: ``(earlier, later)``; None if no two
            rows are the same.
        distinct: Number of different rows.
    """

    first: tuple[int, int] | None
    distinct: int


def collisions(make_rows: MakeRows, length: int, hashed: Hash | None = None) -> Collisions:
    """The first collision of rows, and how many rows differ.

    Args:
        make_rows: Returns the rows ``start`` to ``stop - 1``, float64, float32, float16 or bfloat16 [rows, channels].
        length: Number of rows.
        hashed: A hash of rows' bits, uint32 words [rows, words] -> uint64 [rows]; `row_hashes` by default. A worse hash
            costs more work and gives the same answer.

    Memory: 32 bytes for each row, and blocks of a few megabytes.

    Raises:
        InvalidValue: The length is below 1.

    >>> collisions(lambda start, stop: np.arange(start, stop)[:, None] % 5 / 5.0, 20)
    Collisions(first=(0, 5), distinct=5)
    """
    if length < 1:
        raise InvalidValue(f"`length` must be at least 1, got {length}.", "Give the number of rows.")
    height = _height(make_rows(0, 1).shape[1])
    hashes = np.empty(length, np.uint64)
    for start in range(0, length, height):
        stop = min(start + height, length)
        hashes[start:stop] = (hashed or row_hashes)(_words(_bits(make_rows(start, stop))))
    first, distinct = None, length
    members, leaders = _candidates(np.arange(length), hashes)
    while len(members):
        same = _confirmed(make_rows, length, height, members, leaders)
        if same.any():
            found = np.flatnonzero(same)[0]
            pair = int(leaders[found]), int(members[found])
            first = pair if first is None or pair[1] < first[1] else first
            distinct -= int(same.sum())
        # Rows with the same hash and other numbers may still be equal to each other.
        left = members[~same]
        members, leaders = _candidates(left, hashes[left])
    return Collisions(first, distinct)


def row_hashes(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A hash of each row of words of 32 bits, uint64 [rows]; the sum of the module."""
    odd = np.random.default_rng(_SEED).integers(0, 2**64, words.shape[1], np.uint64) | np.uint64(1)
    return words.astype(np.uint64) @ odd


def _height(width: int) -> int:
    """Rows of a block: a multiple of the number that `clockhands.encodings.phases` computes together."""
    return max(64, min(1 << 15, _BLOCK // width // 64 * 64))


def _bits(rows: np.ndarray) -> np.ndarray:
    """The bits of numbers, -0.0 as 0.0, in the rows' shape."""
    kind = _UNSIGNED[rows.dtype.itemsize]
    bits = np.ascontiguousarray(rows).view(kind)
    minus = bits == kind(1 << (8 * rows.dtype.itemsize - 1))
    return np.where(minus, kind(0), bits) if minus.any() else bits


def _words(bits: np.ndarray) -> NDArray[np.uint32]:
    """Rows of bits in words of 32, filled up with zeros."""
    if bits.itemsize == 2 and bits.shape[1] % 2:
        bits = np.pad(bits, ((0, 0), (0, 1)))
    return bits.view(np.uint32)


def _candidates(rows: np.ndarray, hashes: NDArray[np.uint64]) -> tuple[np.ndarray, np.ndarray]:
    """Rows that have the same hash as an earlier one, ascending, and for each the first row with that hash."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    again = np.zeros(len(rows), bool)
    np.equal(ranked[1:], ranked[:-1], out=again[1:])
    if not again.any():
        return rows[:0], rows[:0]
    heads = np.maximum.accumulate(np.where(again, 0, np.arange(len(rows))))
    members, leaders = rows[order[again]], rows[order[heads[again]]]
    ascending = np.argsort(members, kind="stable")
    return members[ascending], leaders[ascending]


def _confirmed(
    make_rows: MakeRows, length: int, height: int, members: np.ndarray, leaders: np.ndarray
) -> NDArray[np.bool_]:
    """Whether each member's row equals its leader's row (the first with the same hash), number by number."""
    same = np.zeros(len(members), bool)
    different = np.unique(leaders)
    probe = _bits(make_rows(0, 1))
    capacity = max(1, _KEPT // probe.nbytes)
    for begin in range(0, len(different), capacity):
        kept = different[begin : begin + capacity]
        own = np.flatnonzero((leaders >= kept[0]) & (leaders <= kept[-1]))
        held = np.empty((len(kept), probe.shape[1]), probe.dtype)
        for block in np.unique(np.concatenate([kept, members[own]]) // height):
            start = int(block) * height
            stop = min(start + height, length)
            bits = _bits(make_rows(start, stop))
            low, high = np.searchsorted(kept, [start, stop])
            held[low:high] = bits[kept[low:high] - start]
            inside = own[np.searchsorted(members[own], start) : np.searchsorted(members[own], stop)]
            # Leaders come before their members, so they are stored already.
            same[inside] = (bits[members[inside] - start] == held[np.searchsorted(kept, leaders[inside])]).all(axis=1)
    return same
