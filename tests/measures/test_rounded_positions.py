"""Positions that are rounded before a code is made from them."""

from itertools import product

import ml_dtypes
import numpy as np

from clockhands.measures.tokens._unique import distinct_positions, first_merged

KINDS = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)]


def test_counting_is_what_rounding_each_gives(cases):
    firsts, lengths = (0, 1, 2, 300, 5000, 65_000), (1, 2, 17, 256, 257, 258, 2049, 2050, 4096, 70_000)
    for dtype, first, length in product(KINDS, firsts, lengths):
        with cases(dtype, first, length), np.errstate(over="ignore"):
            positions = range(first, first + length)
            rounded = np.arange(first, first + length, dtype=np.float32).astype(dtype).astype(np.float64)
            merged = np.flatnonzero(rounded[1:] == rounded[:-1])
            assert distinct_positions(positions, dtype) == len(np.unique(rounded))
            pair = (first + merged[0], first + merged[0] + 1) if len(merged) else None
            assert first_merged(positions, dtype) == pair


def test_float32_holds_whole_positions_up_to_two_to_the_24():
    assert first_merged(range(2**24 + 1), KINDS[2]) is None
    assert first_merged(range(2**24 + 2), KINDS[2]) == (2**24, 2**24 + 1)
    assert distinct_positions(range(2**24 + 1), KINDS[2]) == 2**24 + 1
    assert distinct_positions(range(2**25 + 1), KINDS[2]) == 2**24 + 2**23 + 1


def test_float64_merges_past_two_to_the_53():
    double = np.dtype(np.float64)
    assert first_merged(range(2**53 + 1), double) is None
    assert first_merged(range(2**53 - 5, 2**53 + 9), double) == (2**53, 2**53 + 1)
    assert distinct_positions(range(2**53 - 5, 2**53 + 9), double) == 5 + 5
    assert distinct_positions(range(0), double) == 0
