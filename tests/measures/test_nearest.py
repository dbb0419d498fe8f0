"""The nearest two tokens, by exact phases and by all pairs."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest

from clockhands.encodings.ladders import evenly_spaced, explicit, geometric
from clockhands.encodings.phases import DIRECT_FINE
from clockhands.errors import InvalidValue
from clockhands.measures.tokens.nearest import LARGEST_TABLE, near_period, nearest_offset, nearest_rows, period
from clockhands.measures.tokens.smooth import step_distances
from memory_peaks import traced


def distance(pairs, k, base=10_000):
    """``sqrt(sum 4 sin^2(k rate / 2))`` of a geometric ladder, in 50 digits."""
    with mpmath.workdps(50):
        rates = [mpmath.power(base, -mpmath.mpf(pair) / pairs) for pair in range(pairs)]
        return mpmath.sqrt(mpmath.fsum(4 * mpmath.sin(k * rate / 2) ** 2 for rate in rates))


def close(found, exact, pairs):
    """Within the bound that `step_distances` states."""
    return abs(found - float(exact)) <= math.sqrt(2 * pairs) * DIRECT_FINE + (pairs + 3) * 2**-53 * found


def test_eight_channels_come_near_at_169646():
    k, apart = nearest_offset(geometric(4), 200_001)
    assert k == 169_646
    assert close(apart, distance(4, k), 4)
    assert round(apart, 4) == 0.0033


def test_it_is_the_smallest_of_all_distances(cases):
    for pairs, length in product((1, 2, 5), (2, 3, 44, 45, 710, 711, 4096)):
        with cases(pairs, length):
            ladder = geometric(pairs)
            every = step_distances(ladder, range(1, length)).tolist()
            assert nearest_offset(ladder, length) == (1 + int(np.argmin(every)), min(every))


def test_one_hand_comes_round_at_the_convergents_of_two_pi():
    # 2 pi is nearly 6/1, 25/4, 44/7, 333/53 and 710/113, each as near as no whole number of turns before it.
    for length, k in [(8, 6), (26, 25), (44, 25), (45, 44), (333, 44), (710, 333), (711, 710), (30_000, 710)]:
        found, apart = nearest_offset(geometric(1), length)
        assert found == k
        assert close(apart, distance(1, k), 1)


def test_a_wrong_distance_would_be_noticed():
    assert not close(nearest_offset(geometric(4), 1000)[1], distance(4, 2), 4)
    assert not close(nearest_offset(geometric(4), 200_001)[1] * (1 + 1e-12), distance(4, 169_646), 4)


def test_hands_that_never_turn_are_all_alike():
    assert nearest_offset(explicit([0.0, 0.0]), 100) == (1, 0.0)


def test_the_nearest_rows_are_those_of_a_look_at_every_pair():
    for seed, shape in enumerate([(2, 1), (7, 3), (300, 5), (2100, 4)]):
        rows = np.random.default_rng(seed).standard_normal(shape) * 10.0 ** (3 * seed) + 1e3
        best = min(
            (float(np.sqrt(((rows[i + 1 :] - rows[i]) ** 2).sum(axis=1)).min()), i) for i in range(len(rows) - 1)
        )
        earlier, later, apart = nearest_rows(rows)
        assert apart == pytest.approx(best[0], rel=8 * 2**-53)
        assert np.linalg.norm(rows[earlier] - rows[later]) == pytest.approx(apart, rel=8 * 2**-53)
        assert earlier < later


def test_of_equally_near_rows_the_first_are_named():
    assert nearest_rows(np.arange(3000.0)[:, None]) == (0, 1, 1.0)


def test_too_many_rows_or_none_are_refused():
    with pytest.raises(InvalidValue, match="16,384"):
        nearest_rows(np.zeros((LARGEST_TABLE + 1, 1)))
    with pytest.raises(InvalidValue, match="at least 2"):
        nearest_offset(geometric(2), 1)


def test_rates_in_whole_ratios_have_a_period():
    # The slowest of 8 channels turns by 1/1,000 rad a token, and the others by 1/100, 1/10 and 1.
    assert period(geometric(4)) == pytest.approx(2000 * math.pi, rel=1e-15)
    assert period(geometric(2)) == pytest.approx(200 * math.pi, rel=1e-15)
    assert period(geometric(1)) == pytest.approx(2 * math.pi, rel=1e-15)
    # 2 pi / gcd(3/4, 1/2) = 8 pi.
    assert period(explicit([0.75, 0.5, 0.0])) == pytest.approx(8 * math.pi, rel=1e-15)
    assert period(geometric(3)) is None
    assert period(explicit([0.0])) is None


def test_evenly_spaced_hands_nearly_come_round():
    # 2 pi x 255 / (1 - 1e-4)
    assert near_period(evenly_spaced(256, 1.0, 1e-4)) == pytest.approx(2 * math.pi * 255 / (1 - 1e-4), rel=1e-14)
    assert near_period(geometric(256)) is None
    assert near_period(explicit([0.5, 0.5, 0.5])) is None


def test_pairs_that_products_cannot_tell_apart_are_told_by_their_differences(cases):
    for nearest in (0, 17, 39):
        with cases(nearest):
            # Squares are near 1e-12, and products of rows 1e3 long are rounded by 1e-10: which is smallest is noise.
            rows = np.repeat(np.random.default_rng(nearest).normal(scale=400.0, size=(40, 6)), 2, axis=0)
            rows[1::2, 0] += 1e-6
            rows[2 * nearest + 1, 0] = rows[2 * nearest, 0] + 0.9e-6
            earlier, later, apart = nearest_rows(rows)
            assert (earlier, later) == (2 * nearest, 2 * nearest + 1)
            assert apart == rows[later, 0] - rows[earlier, 0]


def test_rows_of_any_two_blocks_are_compared(cases):
    for earlier, later in ((10, 5000), (1500, 2600), (4099, 4100), (0, 5099)):
        with cases(earlier, later):
            rows = np.random.default_rng(1).normal(size=(5100, 12))
            rows[later] = rows[earlier]
            rows[later, 3] += 2.0**-9
            assert nearest_rows(rows)[:2] == (earlier, later)


def test_a_wide_table_is_compared_block_by_block():
    table = np.random.default_rng(0).normal(size=(2_500, 256)).astype(np.float32)
    with traced() as peak:
        found = nearest_rows(table)
        assert peak() < 11 * table.nbytes, "products of blocks and their halves, and no copy of all rows as float64"
    assert found[:2] == nearest_rows(table.astype(np.float64))[:2]
