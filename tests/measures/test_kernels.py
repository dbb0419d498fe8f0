"""Kernels by distance: mpmath, the published course of the paper's kernel, and dot products counted one by one."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import (
    AxialSinusoidal,
    Counter,
    FourierFeatures,
    Learned,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.ladders import Explicit, Geometric
from clockhands.encodings.rotary import Rotary, XPos, rotate
from clockhands.encodings.scaling import Yarn
from clockhands.measures import kernel_bound, kernel_by_distance, out_of_order
from clockhands.measures.shifts._kernels import dot_products_by_distance, kernel
from clockhands.measures.subject import subject_of

DTYPES = ("float32", "float16", "bfloat16", "float64")


def paper(width):
    return Sinusoidal(width=width).ladder


def told(spec, length, dtype="float32", values=None):
    return kernel(subject_of(spec, length, dtype, values))


def exactly(pairs, distance):
    with mpmath.workdps(60):
        return mpmath.fsum(mpmath.cos(mpmath.power(10000, -mpmath.mpf(i) / pairs) * distance) for i in range(pairs))


def test_the_kernel_at_every_distance_is_the_real_one_within_its_bound(cases):
    for length in (2048, 1 << 20):
        with cases(length):
            found = kernel_by_distance(paper(512), length)
            assert found.shape == (length,)
            for distance in (0, 1, 10, 999, length // 3, length - 1):
                with mpmath.workdps(60):
                    assert abs(mpmath.mpf(float(found[distance])) - exactly(256, distance)) <= kernel_bound(256)


def test_the_bound_is_not_so_wide_that_rates_of_float32_pass():
    rates = tuple(float(np.float32(rate)) for rate in paper(512).rates)
    found = kernel_by_distance(Explicit(rates).ladder(256, 512), 4096)
    assert np.abs(found - kernel_by_distance(paper(512), 4096)).max() > 1000 * kernel_bound(256)


def test_every_length_has_its_distances(cases):
    for length in (1, 2, 3, 5, 63, 64, 65, 1000):
        with cases(length):
            found = kernel_by_distance(paper(64), length)
            np.testing.assert_allclose(
                found, ch.kernel(Sinusoidal(width=64), range(length)), rtol=0, atol=kernel_bound(32)
            )


def test_a_single_hand_is_a_cosine_by_hand():
    # cos 1, cos 2, … falls to cos 3 = -0.990, and rises to cos 4 = -0.654; cos 2 = -0.416 is the first below 0.
    found = told(Sinusoidal(width=2), 5).numbers
    assert (found["at_zero"], found["first_rise"], found["first_negative"]) == (1.0, 3, 2)
    assert found["share_of_steps_rising"] == 1 / 4
    assert found["share_out_of_order"] == 1 / 10, "cos 4 is above cos 3, and below cos 2"
    assert found["at_the_length"] == pytest.approx(math.cos(4), abs=1e-15)
    assert found["octaves"] == [1, 2, 4]
    means = (math.cos(1), (math.cos(2) + math.cos(3)) / 2, math.cos(4))
    assert found["mean_by_octave"] == pytest.approx(means, abs=1e-15)


def test_a_kernel_does_not_depend_on_the_dtype_but_on_the_length(cases):
    for length in (17, 2048):
        with cases(length):
            each = [told(Sinusoidal(width=64), length, dtype).numbers for dtype in DTYPES]
            assert all(one == each[0] for one in each)
            assert each[0] != told(Sinusoidal(width=64), length + 1).numbers


def test_a_kernel_that_only_falls_never_rises():
    spec = SingleFrequency(width=2, rate=1e-4)
    found = told(spec, 1000)
    assert found.numbers["first_rise"] is None
    assert found.numbers["share_out_of_order"] == 0
    assert found.brief == "falls at every step"
    assert told(spec, 40_000).numbers["first_rise"] == 31416, "half a turn is 31,415.93 tokens"


def test_pairs_out_of_order_are_counted_one_by_one():
    assert out_of_order(np.array([3.0, 2.0, 1.0])) == 0
    assert out_of_order(np.array([1.0, 2.0, 3.0, 4.0])) == 6
    assert out_of_order(np.array([1.0, 1.0, 1.0])) == 0
    assert out_of_order(np.array([1.0])) == 0
    drawn = np.random.default_rng(0)
    for size in (2, 3, 64, 65, 301):
        values = drawn.integers(0, size, size).astype(float)
        assert out_of_order(values) == sum(one < other for one, other in itertools.combinations(values, 2))


def test_a_rotary_kernel_is_what_a_key_like_the_query_scores():
    spec = Rotary(head_width=16, base=1e4, scaling=Yarn(factor=4, original=64))
    numbers = told(spec, 100).numbers
    ones = np.zeros((100, 16))
    ones[:, :8] = 1  # pairs of length 1
    turned = rotate(ones, spec)
    factor = numbers["attention_factor_squared"]
    np.testing.assert_allclose(turned @ turned[0], kernel_by_distance(spec.ladder, 100) * factor, rtol=0, atol=1e-12)
    assert factor > 1.2
    assert "the square of the attention factor" in told(spec, 100).says
    assert "attention factor" not in told(Rotary(head_width=16), 100).says


def test_xpos_decays_as_its_scores_do():
    spec = Rotary(head_width=16, xpos=XPos(scale=64.0))
    ones = np.zeros((50, 16))
    ones[:, :8] = 1
    queries, keys = rotate(ones, spec, role="query"), rotate(ones, spec, role="key")
    found = kernel_by_distance(spec.ladder, 50, spec.xpos.logarithms(8))
    np.testing.assert_allclose(queries @ keys[0], found, rtol=0, atol=1e-12)
    plain = told(Rotary(head_width=16), 50).numbers
    assert told(spec, 50).numbers["at_the_length"] != plain["at_the_length"]
    assert told(spec, 50).numbers["even"] is False


def test_of_several_axes_the_worst_is_told():
    spec = AxialSinusoidal(width=48, shares=(1, 2), base=100.0)
    found = told(spec, 64).numbers
    shares = [
        out_of_order(kernel_by_distance(Geometric(100.0).ladder(pairs, 2 * pairs), 64)) / (64 * 63 / 2)
        for pairs in (8, 16)
    ]
    assert found["axis"] == int(np.argmax(shares))
    assert found["share_out_of_order"] == max(shares)
    assert told(Rotary(8, axes=(0, 0, 1, 1)), 64).numbers["at_zero"] == 2.0


def test_dot_products_are_averaged_over_the_pairs_of_each_distance(cases):
    for tokens in (2, 3, 40, 200):
        with cases(tokens):
            rows = np.random.default_rng(tokens).normal(size=(tokens, 7)) + 1
            means, explained = dot_products_by_distance(rows)
            dots = rows @ rows.T
            diagonals = [np.diagonal(dots, offset=k) for k in range(tokens)]
            np.testing.assert_allclose(means, [each.mean() for each in diagonals], rtol=0, atol=1e-12 * dots.max())
            every = np.concatenate(diagonals[1:])
            within = sum(((each - each.mean()) ** 2).sum() for each in diagonals[1:])
            if tokens < 3:
                assert explained is None
            else:
                assert explained == pytest.approx(1 - within / ((every - every.mean()) ** 2).sum(), abs=1e-9)


def test_codes_without_a_kernel_depend_on_where_tokens_stand():
    for length, dtype in ((64, "float32"), (300, "float16"), (300, "bfloat16")):
        for spec in (Counter(4), SineOnly(16), WarpedPosition(16)):
            assert 0 <= told(spec, length, dtype).numbers["explained_by_distance"] < 0.9, spec
        clock = told(Learned(16, 300), length, dtype, table(Sinusoidal(width=16), 300, "float64")).numbers
        assert clock["explained_by_distance"] > 1 - 1e-9


def test_rows_in_another_order_and_rows_all_the_same_are_no_kernel():
    rows = table(Sinusoidal(width=16), 300, "float64")
    shuffled = np.random.default_rng(0).permutation(rows)
    assert told(Learned(16, 300), 300, values=shuffled).numbers["explained_by_distance"] < 0.05
    cosine = told(Learned(16, 300), 300, values=rows).numbers["cosine_of_neighbours"]
    assert cosine == pytest.approx(float(ch.kernel(Sinusoidal(width=16), [1])[0]) / 8, abs=1e-12)
    assert told(Learned(2, 20), 20, values=np.ones((20, 2))).numbers["explained_by_distance"] is None


def test_fourier_features_of_any_phases_have_a_kernel():
    drawn = np.random.default_rng(1).normal(size=(2, 16))
    spec = FourierFeatures(width=32, axes=1, offsets=True)
    found = told(spec, 100, values=drawn)
    assert found.brief == "by distance alone"
    assert found.numbers["even"] is True
    raw = FourierFeatures(width=33, axes=1, offsets=True, raw="after")
    assert told(raw, 100, values=drawn).numbers["explained_by_distance"] < 0.2
