"""Tokens that are found again after a position was added: closed forms, mpmath, and searches in drawn vocabularies."""

import math
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest

from clockhands.encodings.dtypes import output_dtype
from clockhands.errors import InvalidValue
from clockhands.measures import (
    cosine_below,
    cosine_deviation,
    cosine_quantile,
    deviation_needed,
    expected_share,
    pair_error,
)
from clockhands.measures.adding._recoverable import ball_share, recovered, wilson


def normal(z):
    return mpmath.erfc(-mpmath.mpf(z) / mpmath.sqrt(2)) / 2


def density(z):
    return mpmath.exp(-(mpmath.mpf(z) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi)


def ball_of_three(radius, c):
    """In three channels the integral is elementary."""
    return normal(radius - c) - normal(-radius - c) - (density(radius - c) - density(radius + c)) / c


def test_one_channel_is_an_interval_of_the_normal(cases):
    for c in (0.0, 0.3, 2.0, 9.0):
        with cases(c):
            with mpmath.workdps(40):
                expected = float(normal(1.5 - c) - normal(-1.5 - c))
            assert ball_share(1, 1.5, [c])[0] / expected == pytest.approx(1, abs=1e-9)


def test_three_channels_are_elementary(cases):
    for c, radius in product((0.2, 1.5, 6.0, 12.0), (0.1, 1.5, 6.0)):
        with cases(c, radius):
            with mpmath.workdps(60):
                expected = float(ball_of_three(mpmath.mpf(radius), mpmath.mpf(c)))
            assert ball_share(3, radius, [c])[0] / expected == pytest.approx(1, abs=1e-8)
            assert ball_share(4, radius, [c])[0] / expected < 1 - 1e-7, "the oracle can fail"


def test_of_two_tokens_of_two_channels_the_wrong_one_is_nearer_by_a_bessel_function(cases):
    for ratio in (0.2, 1.0, 4.0, 30.0):
        with cases(ratio):
            square = ratio**2 / 2
            expected = float((1 - mpmath.exp(-square) * mpmath.besseli(0, square)) / 2)
            assert pair_error(2, ratio) / expected == pytest.approx(1, abs=1e-8)
            assert pair_error(2, 3 * ratio, token_deviation=3.0) / expected == pytest.approx(1, abs=1e-8)


def test_two_tokens_are_a_vocabulary(cases):
    """Another integral for the same: over one token and then the other, or over their difference."""
    for width, ratio in ((1, 0.5), (1, 40.0), (2, 1.0), (3, 2.0), (16, 2.83), (64, 45.3), (512, 362.0), (512, 1e5)):
        with cases(width, ratio):
            assert expected_share(width, ratio, vocabulary=2) == pytest.approx(1 - pair_error(width, ratio), abs=1e-6)


def kept_of_three(ratio, vocabulary):
    """The share of tokens of three channels that stay the nearest to themselves, by an integral of mpmath."""
    with mpmath.workdps(20):
        r = mpmath.mpf(ratio)

        def kept(c):
            chance = c / r * (density(c - r) - density(c + r))
            return chance * (1 - ball_of_three(r, c)) ** (vocabulary - 1)

        return float(mpmath.quad(kept, mpmath.linspace(mpmath.mpf("1e-9"), ratio + 8, 20)))


def test_three_channels_by_mpmath(cases):
    for ratio, vocabulary in ((0.05, 50), (0.8, 3), (0.8, 50_000), (5.0, 50)):
        with cases(ratio, vocabulary):
            expected = kept_of_three(ratio, vocabulary)
            assert expected_share(3, ratio, vocabulary=vocabulary) == pytest.approx(expected, abs=1e-6)
            assert expected_share(3, ratio, vocabulary=2 * vocabulary) < expected - 1e-6 or expected < 1e-4


def test_the_ends():
    assert deviation_needed(8, 0.0) == deviation_needed(8, 1.0, vocabulary=1) == 0, "nothing is added or to be told"
    assert expected_share(64, 0.0) == 1
    assert expected_share(64, 5.0, vocabulary=1) == 1
    for width in (1, 2, 64, 512):  # far away only the token that lies farthest that way is near itself
        assert 100 * expected_share(width, 1e9, vocabulary=100) == pytest.approx(1, abs=1e-4)
        assert expected_share(width, 1e30, vocabulary=100) == expected_share(width, 1e9, vocabulary=100)


def test_shares_that_are_nearly_all_join_those_of_the_integral():
    """Below a hundred millionth the union bound is given; it is the same to its own square."""
    row = math.sqrt(32)
    shares = [expected_share(64, row, deviation) for deviation in np.linspace(0.93, 1.03, 41)]
    assert min(shares) < 1 - 1e-8 < max(shares), "both ways are taken"
    lost = [1 - share for share in shares]
    assert all(0.7 < later / earlier < 1 for earlier, later in pairwise(lost))


def test_the_deviation_that_is_needed_is_where_99_of_100_are_found(cases):
    for width in (1, 2, 4, 16, 128, 1920):
        with cases(width):
            row = math.sqrt(width / 2)
            needed = deviation_needed(width, row)
            assert expected_share(width, row, needed) == pytest.approx(0.99, abs=5e-6)
            assert expected_share(width, row, needed * 1.01) > 0.99 > expected_share(width, row, needed * 0.99)
            assert deviation_needed(width, 7 * row) == pytest.approx(7 * needed, rel=1e-9)


def test_cosines_of_few_channels(cases):
    for cosine in (0.0, 0.01, 0.3, 0.999, 1.0):
        with cases(cosine):
            angle = math.asin(cosine)
            assert cosine_below(2, cosine) == pytest.approx(2 * angle / math.pi, abs=1e-12)
            assert cosine_below(3, cosine) == pytest.approx(cosine, abs=1e-12)
            assert cosine_below(4, cosine) == pytest.approx(2 / math.pi * (angle + cosine * math.cos(angle)), abs=1e-12)


def test_cosines_of_many_channels_are_beta(cases):
    for share, width in product((0.1, 0.9, 0.999), (16, 512, 4096)):
        with cases(share, width):
            cosine = cosine_quantile(width, share)
            expected = mpmath.betainc(0.5, (width - 1) / 2, 0, mpmath.mpf(cosine) ** 2, regularized=True)
            assert share == pytest.approx(float(expected), abs=1e-11)
            assert cosine_deviation(width) == 1 / math.sqrt(width)


def test_wilsons_ends_are_where_the_count_is_z_deviations_away():
    for successes, trials in ((3, 10), (0, 7), (200, 200), (77, 200)):
        for end in wilson(successes, trials):
            if 0 < end < 1:
                away = abs(successes / trials - end) / math.sqrt(end * (1 - end) / trials)
                assert away == pytest.approx(1.959964, abs=1e-6)
    assert wilson(0, 7)[0] == 0
    assert wilson(7, 7)[1] == pytest.approx(1, abs=1e-15)


def unit_rows(width, number=8):
    rows = np.random.default_rng(5).standard_normal((number, width))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_search_is_that_of_all_distances():
    rows, sizes, scales = 3 * unit_rows(6), (40, 5000), (0.5, 1.0, 4.0)
    found = recovered(rows, scales, sizes, trials=40, seed=11)
    vocabulary = np.random.default_rng(11).standard_normal((5000, 6), np.float32).astype(np.float64)
    told = {(each.vocabulary, each.token_deviation): each for each in found}
    assert len(told) == len(found) == 6
    for size, scale in product(sizes, scales):
        tokens = scale * vocabulary[:size]
        sums = tokens[:40] + rows[np.arange(40) % 8]
        nearest = ((sums[:, None] - tokens) ** 2).sum(-1).argmin(-1)
        each = told[size, scale]
        assert each.share == (nearest == np.arange(40)).mean()
        assert (each.low, each.high) == wilson(round(40 * each.share), 40)
        assert each.row_norm == pytest.approx(3)
        assert each.expected == expected_share(6, each.row_norm, scale, size)


def test_a_known_position_is_taken_away_again_in_bfloat16():
    rows, coarse = math.sqrt(32) * unit_rows(64), output_dtype("bfloat16")
    for scale in (0.125, 1.0):
        (each,) = recovered(rows, (scale,), (3000,), trials=60, seed=2)
        vocabulary = scale * np.random.default_rng(2).standard_normal((3000, 64), np.float32).astype(np.float64)
        row = rows[np.arange(60) % 8].astype(coarse).astype(np.float64)
        total = (vocabulary[:60].astype(coarse).astype(np.float64) + row).astype(coarse).astype(np.float64)
        nearest = ((((total - row)[:, None] - vocabulary) ** 2).sum(-1)).argmin(-1)
        assert (nearest == np.arange(60)).all()
        assert each.known == 1


def test_tokens_below_the_rounding_of_the_row_are_not_promised():
    """The sum of a channel of 1e-4 and one near 1 is rounded to a multiple of 2**-8."""
    (each,) = recovered(8 * unit_rows(64), (1e-4,), (3000,), trials=60)
    assert each.known == 0


def test_impossible_arguments_are_refused():
    with pytest.raises(InvalidValue, match="token_deviation"):
        expected_share(8, 1.0, 0.0)
    with pytest.raises(InvalidValue, match="width"):
        cosine_below(1, 0.5)
    with pytest.raises(InvalidValue, match="vocabulary"):
        recovered(unit_rows(4), (1.0,), (10,), trials=11)
