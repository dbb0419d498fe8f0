"""Spectra: the published figures of width 512, tables worked out by hand, and a plain decomposition beside each."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest

from clockhands.encodings.additive import (
    AxialSinusoidal,
    Binary,
    Learned,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.ladders import Explicit
from clockhands.measures.subject import subject_of
from clockhands.measures.tokens._spectrum import rank_of_real_numbers, spectrum, spread_of_clock, spread_of_rows

DTYPES = ("float32", "float16", "bfloat16", "float64")


def told(spec, length, dtype="float32", values=None):
    return spectrum(subject_of(spec, length, dtype, values))


def test_the_published_figures_of_width_512():
    found = told(Sinusoidal(width=512), 512).numbers
    assert (found["directions_of_90_percent"], found["directions_of_99_percent"]) == (80, 111)
    assert round(found["participation_ratio"]) == 24
    assert round(found["mean_share"], 2) == 0.65
    assert told(Sinusoidal(width=512), 256).numbers["directions_of_99_percent"] != 111


def test_a_clock_counted_from_the_middle_has_the_spectrum_of_its_table(cases):
    for spec in (Sinusoidal(width=64, first=5), Sinusoidal(width=10, base=7.0), SingleFrequency(6)):
        for tokens in (2, 3, 40, 201, 300):
            with cases(spec, tokens):
                rows = table(spec, range(spec.first, spec.first + tokens), "float64")
                plain, halved = spread_of_rows(rows), spread_of_clock(spec.ladder, tokens)
                centred = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
                whole = np.linalg.svd(rows, compute_uv=False)
                for found in (plain, halved):
                    most, within = min(len(found.values), len(whole)), {"rtol": 0, "atol": 4e-15 * whole[0] ** 2}
                    np.testing.assert_allclose(found.values[:most] ** 2, whole[:most] ** 2, **within)
                    np.testing.assert_allclose(found.centred[:most] ** 2, centred[:most] ** 2, **within)
                    assert found.mean == pytest.approx((rows.mean(axis=0) ** 2).sum(), abs=1e-12)
                by_pair = rows.var(axis=0)[spec.clock().channels if spec.clock().channels is not None else slice(None)]
                np.testing.assert_allclose(halved.parts, by_pair.reshape(-1, 2).sum(axis=1), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("width", "tokens"), [(256, 2048), pytest.param(1024, 8192, marks=pytest.mark.slow)])
def test_eigenvalues_are_as_near_as_the_module_says(width, tokens):
    found = spread_of_clock(Sinusoidal(width=width).ladder, tokens).values
    sizes = np.linalg.svd(table(Sinusoidal(width=width), tokens, "float64"), compute_uv=False)
    np.testing.assert_allclose(found**2, sizes**2, rtol=0, atol=4e-15 * sizes[0] ** 2)
    assert (found > 2.0**-23 * found[0]).sum() == (sizes > 2.0**-23 * sizes[0]).sum()


def test_the_mean_row_is_what_a_hand_leaves_going_round(cases):
    for tokens in (17, 512):
        with cases(tokens):
            # The mean of exp(i r t) over n tokens has the size sin(n r / 2) / (n sin(r / 2)).
            found = told(Sinusoidal(width=64), tokens).numbers
            with mpmath.workdps(40):
                rates = [mpmath.power(10000, -mpmath.mpf(pair) / 32) for pair in range(32)]
                sizes = [mpmath.sin(tokens * rate / 2) / (tokens * mpmath.sin(rate / 2)) for rate in rates]
                share = mpmath.sqrt(mpmath.fsum(size**2 for size in sizes) / 32)
                variances = [float(1 - size**2) for size in sizes]
            assert found["mean_share"] == pytest.approx(float(share), abs=1e-14)
            np.testing.assert_allclose(found["variance_by_pair"], variances, rtol=0, atol=1e-14)
            assert found["variance"] == pytest.approx(sum(variances), abs=1e-12)


def test_digits_in_base_2_are_as_many_equal_directions_by_hand(cases):
    for digits in (3, 5):
        with cases(digits):
            # Every digit is 0 and 1 equally often, whatever the others are: variances of 1/4, a mean row of halves.
            found = told(Binary(digits + 2), 2**digits).numbers
            assert found["rank"] == digits
            assert found["participation_ratio"] == pytest.approx(digits, abs=1e-12)
            assert found["directions_of_99_percent"] == digits
            assert found["variance_by_channel"] == pytest.approx([0.25] * digits + [0, 0], abs=1e-15)
            assert found["mean_share"] == pytest.approx(math.sqrt(0.5), abs=1e-15)


def test_the_rank_is_what_stands_out_of_the_rounding_of_the_dtype():
    rows = table(Sinusoidal(width=192), 192, "float64")
    sizes = np.linalg.svd(rows, compute_uv=False)
    ranks = []
    for dtype, step in zip(DTYPES, (2.0**-23, 2.0**-10, 2.0**-7, 2.0**-23), strict=True):
        found = told(Sinusoidal(width=192), 192, dtype).numbers
        assert found["threshold"] == step
        assert found["rank"] == (sizes > step * sizes[0]).sum()
        ranks.append(found["rank"])
    assert ranks[2] < ranks[1] < ranks[0] == ranks[3] < 192 == found["rank_of_real_numbers"]


def test_without_rounding_rates_that_are_the_same_at_whole_positions_count_once():
    def rank(*rates):
        return rank_of_real_numbers(Explicit(rates).ladder(len(rates), 2 * len(rates)))

    assert rank(1.0) == 2
    assert rank(1.0, 1.0) == 2
    assert rank(1.0, 0.5, 0.25) == 6
    assert rank(0.0, 1.0) == 3, "a hand that stands still is one direction"
    assert rank_of_real_numbers(SingleFrequency(8).ladder) == 2
    assert rank_of_real_numbers(Sinusoidal(width=512).ladder) == 512
    assert told(Sinusoidal(width=512), 100).numbers["rank_of_real_numbers"] == 100


def test_a_scale_is_in_the_variance_and_in_no_share():
    plain, scaled = told(Sinusoidal(width=32), 64).numbers, told(Sinusoidal(width=32, scale=3.0), 64).numbers
    assert scaled["variance"] == pytest.approx(9 * plain["variance"], rel=1e-14)
    assert scaled["mean_share"] == pytest.approx(plain["mean_share"], rel=1e-14)
    trained = told(Sinusoidal(width=32, scaled=True), 64, values=np.array(0.5)).numbers
    assert trained["variance"] == pytest.approx(plain["variance"] / 4, rel=1e-14)


def test_other_codes_are_decomposed_as_they_are(cases):
    for length, dtype in product((30, 200), DTYPES):
        with cases(length, dtype):
            spec = WarpedPosition(16, "log")
            rows = table(spec, range(1, length + 1), "float64")
            variances = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1].clip(0)
            found = told(spec, length, dtype).numbers
            assert found["participation_ratio"] == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-9)
            running = np.cumsum(variances) / variances.sum()
            assert found["directions_of_90_percent"] == (running < 0.9).sum() + 1
            assert found["variance_by_channel"] == pytest.approx(rows.var(axis=0).tolist(), abs=1e-13)


def test_learned_tables_and_axes_are_told_by_their_own_rows():
    drawn = np.random.default_rng(0).normal(size=(50, 8))
    found = told(Learned(8, 50), 50, values=drawn).numbers
    assert found["rank"] == 8
    assert found["mean_share"] < 0.4
    one = np.outer(np.arange(50.0), np.ones(8))
    assert told(Learned(8, 50), 50, values=one).numbers["rank"] == 1
    assert told(Learned(8, 50), 50, values=np.ones((50, 8))).brief == "every row is the same"
    found = told(AxialSinusoidal(width=24, shares=(1, 2), base=100.0), 64).numbers
    assert (found["channels"], found["axis"]) == (8, 0)
    alone = told(Sinusoidal(width=8, base=100.0), 64).numbers
    assert found["participation_ratio"] == alone["participation_ratio"]
    raw = told(AxialSinusoidal(width=26, shares=(1, 2), base=100.0, raw="before"), 64).numbers
    assert raw["channels"] == 9, "the axis' own hands and its coordinate"
