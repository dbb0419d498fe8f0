"""Equal rows among many: found by a hash, decided number by number."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from clockhands.encodings.additive import table
from clockhands.errors import InvalidValue
from clockhands.measures.tokens.collisions import Collisions, collisions, row_hashes

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


def given(rows):
    return lambda start, stop: rows[start:stop]


def rows_of(spec, dtype):
    return lambda start, stop: table(spec, range(start, stop), dtype)


def by_hand(rows):
    """The same answer by looking at every pair."""
    seen, first = {}, None
    for place, row in enumerate((rows.astype(np.float64) + 0.0).tolist()):
        key = tuple(row)
        if key in seen and first is None:
            first = seen[key], place
        seen.setdefault(key, place)
    return Collisions(first, len(seen))


def test_it_finds_what_a_look_at_every_pair_finds(cases):
    for width, dtype in product((1, 2, 3, 5, 8), DTYPES):
        with cases(width, dtype):
            for seed in range(6):
                rows = np.random.default_rng(seed).integers(-2, 3, (150, width)).astype(dtype)
                assert collisions(given(rows), 150) == by_hand(rows)


def test_the_exact_comparison_decides_and_not_the_hash():
    rows = np.random.default_rng(3).integers(-2, 3, (300, 4)).astype(np.float32)
    right = by_hand(rows)
    assert right.first is not None

    def one_for_all(words):
        return np.zeros(len(words), np.uint64)

    def few(words):
        return row_hashes(words) % np.uint64(7)

    assert collisions(given(rows), 300, one_for_all) == right
    assert collisions(given(rows), 300, few) == right
    different = np.arange(40.0)[:, None]
    assert collisions(given(different), 40, one_for_all) == Collisions(None, 40)


def test_minus_zero_is_zero():
    for dtype in DTYPES:
        rows = np.array([[1.0, 0.0], [0.0, 0.5], [-0.0, 0.5]]).astype(dtype)
        assert collisions(given(rows), 3).first == (1, 2)


def test_equal_rows_far_apart_are_found_across_blocks():
    # Blocks of rows this wide are 512 long.
    rows = np.random.default_rng(0).standard_normal((3000, 2048)).astype(np.float32)
    rows[2900] = rows[17]
    rows[2901] = rows[1800]
    assert collisions(given(rows), 3000) == Collisions((17, 2900), 2998)


def test_many_equal_rows_are_compared_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr("clockhands.measures.tokens.collisions._KEPT", 64)  # four rows at once
    rows = np.tile(np.random.default_rng(0).standard_normal((40, 2)), (3, 1))
    assert collisions(given(rows), 120) == Collisions((0, 40), 40)


def test_sign_bits_alone_tell_rows_apart():
    # All signs of 12 channels: differences in the uppermost bits, which products modulo 2**64 can lose.
    signs = 1.0 - 2.0 * ((np.arange(4096)[:, None] >> np.arange(12)) & 1)
    for dtype in DTYPES:
        words = np.ascontiguousarray(signs.astype(dtype)).view(np.uint32)
        assert len(np.unique(row_hashes(words))) > 4000
        assert collisions(given(signs.astype(dtype)), 4096) == Collisions(None, 4096)


def test_no_rows_are_refused():
    with pytest.raises(InvalidValue, match="at least 1"):
        collisions(given(np.zeros((1, 1))), 0)
