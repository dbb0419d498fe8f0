"""What becomes of positions that are rounded to a dtype before a code is made from them.

A dtype of ``p`` significant bits holds every whole number up to ``2 ** p``, and ``2 ** (p - 1)`` of those between a
power of two and the next from there on; all beyond its largest number become infinite, which is one number more. So
what is left of positions ``0 … n - 1`` can be counted without making any.
"""

import numpy as np

from clockhands.dtypes import limits


def distinct_positions(positions: range, dtype: np.dtype) -> int:
    """How many different numbers whole positions, one after another, become in a dtype.

    Accuracy: exact, for positions of any size; to the nearest, and of two equally near to the even one.

    >>> distinct_positions(range(4096), np.dtype(np.float16))
    3073
    """
    if not positions:
        return 0
    bits, _ = limits(dtype)
    alone = range(positions.start, min(positions.stop, 2**bits + 1))
    rest = range(max(positions.start, 2**bits + 1), positions.stop)
    if not rest:
        return len(alone)
    before = _place(rest.start, dtype) - 1 if not alone else _place(2**bits, dtype)
    return len(alone) + _place(rest[-1], dtype) - before


def first_merged(positions: range, dtype: np.dtype) -> tuple[int, int] | None:
    """The first two neighbours that become one number in a dtype, or None.

    >>> first_merged(range(4096), np.dtype(np.float16))
    (2048, 2049)
    """
    later = max(positions.start + 1, 2 ** limits(dtype)[0] + 1)
    while later < positions.stop:  # of three neighbours past 2 ** p two are always one
        if _place(later - 1, dtype) == _place(later, dtype):
            return later - 1, later
        later += 1
    return None


def _place(position: int, dtype: np.dtype) -> int:
    """Which number of a dtype a position is rounded to, counted through the numbers from ``2 ** p`` on."""
    bits, largest = limits(dtype)
    octave = position.bit_length() - bits
    if octave <= 0:
        return position - 2**bits
    head, tail = divmod(position, 2**octave)
    half = 2 ** (octave - 1)
    head += tail > half or (tail == half and head % 2 == 1)
    # Each octave past 2 ** (p - 1) … 2 ** p has 2 ** (p - 1) numbers.
    place = (octave - 1) * 2 ** (bits - 1) + head - 2 ** (bits - 1)
    most = int(largest)
    above = most.bit_length() - bits
    infinite = (above - 1) * 2 ** (bits - 1) + (most >> above) - 2 ** (bits - 1) + 1
    return min(place, infinite)
