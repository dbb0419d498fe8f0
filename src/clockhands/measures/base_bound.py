"""How far a base reaches: the bound of Men et al. 2024 and the critical dimension of Liu et al. 2023."""

from functools import lru_cache

import numpy as np

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject

# Cosines that are added up at most: a context without bounds would take hours. Ladders in use fail or hold long before.
_MOST_COSINES = 2**29
_ROW = 1024  # distances of a row; each row is one vector times a matrix that is made once
_ROWS = 64  # rows that are looked at together
_MOST_AT_ONCE = 2**22  # cosines of that matrix


@lru_cache(maxsize=64)
def first_failing_distance(rates: tuple[float, ...], limit: int) -> int | None:
    """The first distance ``m`` from 1 below ``limit`` at which ``sum_i cos(m rate_i)`` is below 0, if there is one.

    A query that looks for a key like itself scores it in proportion to this sum, and a random one to 0 on average:
    where the sum is negative, likeness counts against a key. It need not stay negative; the first such distance is
    what the bound asks for. A shift by ``a + b`` is a product of two turns, so the sums over ``a`` rows of ``b``
    distances are a product of two matrices, and nothing past the first negative block is computed.

    Args:
        rates: Radians per token of each pair.
        limit: Distances from 1 to ``limit - 1`` are looked at, but no farther than `farthest_looked_at`.

    Returns:
        The distance, or None where no sum is negative as far as was looked.

    Source: Men et al. 2024, arXiv:2405.14591, section 4.
    """
    if 2 * rates.count(0.0) >= len(rates):
        return None  # the other cosines cannot outweigh those of pairs that stand still
    turning = np.array(rates)
    limit = farthest_looked_at(len(rates), limit)
    row = max(min(_ROW, _MOST_AT_ONCE // len(rates)), 1)
    fine = np.outer(turning, np.arange(row))
    by_distance = np.concatenate([np.cos(fine), -np.sin(fine)])
    for begin in range(0, limit, row * _ROWS):
        starts = np.outer(np.arange(begin, min(begin + row * _ROWS, limit), row), turning)
        sums = (np.concatenate([np.cos(starts), np.sin(starts)], axis=1) @ by_distance).ravel()
        below = np.flatnonzero(sums[: limit - begin] < 0)
        if below.size:
            return begin + int(below[0])
    return None


def farthest_looked_at(pairs: int, limit: int) -> int:
    """How far distances are looked at: to the limit, or until about 2**29 cosines are added up."""
    # Of very many pairs only short rows fit, and the start of each row costs as much as 100 cosines within it.
    dear = max(pairs * _ROW // _MOST_AT_ONCE, 1)
    return min(limit, max(_MOST_COSINES // (max(pairs, 1) * dear), 2))


def base_bound(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")


def critical_dimension(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
