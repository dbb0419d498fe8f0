"""Shifts: every row against the matrix, the rounding that explains the error, and the codes that no matrix moves."""

import dataclasses
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import (
    AxialSinusoidal,
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    Learned,
    NormalizedCounter,
    SineOnly,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.biases import Alibi, Buckets, Fire, Window, bias
from clockhands.encodings.rotary import Rotary, XPos, rotate
from clockhands.measures import judged
from clockhands.measures.biases._diagonals import along_diagonals
from clockhands.measures.shifts._kernels import kernel
from clockhands.measures.shifts._linear_maps import best_linear_map
from clockhands.measures.shifts._rotations import distances_tried, error_bound, shift
from clockhands.measures.subject import subject_of

DTYPES = ("float32", "float16", "bfloat16", "float64")


def told(spec, length, dtype="float32", values=None):
    return shift(subject_of(spec, length, dtype, values))


def test_every_row_is_moved_by_the_matrix_within_the_bound(cases):
    for spec in (
        Sinusoidal(width=32),
        Sinusoidal(width=32, layout="halves", order="cos-sin", first=3),
        Sinusoidal(width=32, order="-sin-cos", scale=3.0),
        Sinusoidal(width=33, odd="zero", scale=100.0),
        EvenlySpaced(16),
    ):
        for length, dtype in product((40, 600), DTYPES):
            with cases(spec, length, dtype):
                found = told(spec, length, dtype)
                rows = table(spec, range(spec.first, spec.first + length), dtype).astype(np.float64)
                bound = found.numbers["error_bound"]
                for k in found.numbers["distances"]:
                    everywhere = np.abs(rows[k:] - rows[: length - k] @ ch.shift(spec, k).T).max()
                    assert everywhere <= bound
                assert found.holds is True
                assert 0 < found.numbers["largest_error"] <= bound
                assert found.numbers["orthogonality_error"] <= 4 * 2.0**-52
                assert found.numbers["composition_error"] <= 8 * 2.0**-52


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_ladder_that_is_a_little_off_is_no_shift(dtype):
    # Rates off by 1 part in 10,000: at distance 599 the first hand is off by 0.06 rad.
    subject = subject_of(Sinusoidal(width=32), 600, dtype, None)
    wrong = Sinusoidal(width=32).ladder.mapped(lambda _, rate: rate * 10001 / 10000, "a wrong ladder")
    clock = subject.clock
    subject.__dict__["clock"] = dataclasses.replace(clock, ladder=wrong)
    found = shift(subject)
    assert found.holds is False
    assert found.numbers["largest_error"] > 0.04


def test_the_bound_and_the_distances_by_hand():
    # Numbers of at most 1 in float32 are within 2**-25 of the real ones: (1 + sqrt 2) of that, and 1 per cent.
    assert error_bound(1.0, "float32") == pytest.approx((1 + math.sqrt(2)) * 1.01 * 2.0**-25, rel=1e-5)
    assert error_bound(1.0, "bfloat16") == pytest.approx((1 + math.sqrt(2)) * 1.01 * 2.0**-9, rel=1e-5)
    assert error_bound(1.0, "float16") == pytest.approx((1 + math.sqrt(2)) * 1.01 * 2.0**-12, rel=1e-5)
    assert error_bound(3.0, "float32") == pytest.approx((1 + math.sqrt(2)) * 1.01 * 2.0**-23, rel=1e-5)
    assert error_bound(1.0, "float64") < 2.0**-44
    assert distances_tried(2) == [1]
    assert distances_tried(17) == [1, 7, 8, 16]
    assert distances_tried(2048) == [1, 7, 64, 1000, 1024, 2047]


def test_rotary_codes_are_the_rotation_itself(cases):
    for direction, dtype in product(("forward", "backward"), DTYPES):
        with cases(direction, dtype):
            found = told(Rotary(16, direction=direction), 300, dtype)
            assert found.holds is True
            assert found.numbers["hands"] == 8
            turned = Rotary(16, layout="interleaved", reordered=True)
            assert told(turned, 300, dtype).holds is True
            assert "order of the output" in told(turned, 300, dtype).says


def test_xpos_is_a_rotation_times_a_decay():
    # zeta_0 = 0.4 / 1.4 over 512 tokens; the last of 8 pairs (7/8 + 0.4) / 1.4.
    spec = Rotary(16, xpos=XPos())
    found = told(spec, 300)
    assert found.holds is False
    assert found.numbers["decay_per_token_most"] == pytest.approx((0.4 / 1.4) ** (1 / 512), rel=1e-14)
    assert found.numbers["decay_per_token_least"] == pytest.approx((1.275 / 1.4) ** (1 / 512), rel=1e-14)
    assert found.numbers["largest_error"] <= found.numbers["error_bound"], "with the decay it is met"
    query = np.random.default_rng(0).normal(size=(1, 16))
    at, later = (rotate(query, spec, [place], role="query") for place in (10, 74))
    decays = np.exp(64 * spec.xpos.logarithms(8))
    moved = at @ ch.shift(Rotary(16), 64).T * np.concatenate([decays, decays])
    np.testing.assert_allclose(moved, later, rtol=0, atol=1e-13)


def test_each_axis_is_moved_by_itself():
    for spec in (AxialSinusoidal(width=48, shares=(1, 2)), Rotary(16, axes=(0, 0, 0, 1, 1, 1, 2, 2))):
        found = told(spec, 100)
        assert found.holds is True
        assert found.numbers["axis"] in range(3)
        assert "along any of" in found.says


def test_a_row_of_zeros_is_left_out_and_said():
    found = told(Sinusoidal(width=16, first=2, zero_rows=(1, 5)), 30)
    assert found.holds is True
    assert "Position 5 is left out" in found.says
    assert "left out" not in told(Sinusoidal(width=16, first=2, zero_rows=(1,)), 30).says


def test_a_trained_scale_moves_with_the_rows():
    unknown = told(Sinusoidal(width=16, scaled=True), 30)
    assert unknown.holds is True
    known = told(Sinusoidal(width=16, scaled=True), 30, values=np.array(64.0))
    assert known.holds is True
    assert known.numbers["error_bound"] > 32 * unknown.numbers["error_bound"]


def test_what_the_best_map_leaves_of_a_count_by_hand(cases):
    for tokens in (5, 50):
        with cases(tokens):
            # t + 1 by the best multiple of t: m = sum t (t + 1) / sum t**2, worked out in fractions.
            counted = [Fraction(t) for t in range(tokens)]
            slope = sum(t * (t + 1) for t in counted) / sum(t * t for t in counted)
            left = sum((t + 1 - slope * t) ** 2 for t in counted)
            mean = sum(t + 1 for t in counted) / tokens
            share = left / sum((t + 1 - mean) ** 2 for t in counted)
            rows = np.arange(tokens + 1.0)[:, None]
            matrix, found = best_linear_map(rows[:-1], rows[1:])
            assert matrix[0, 0] == pytest.approx(float(slope), rel=1e-14)
            assert found == pytest.approx(float(share), rel=1e-12)


def test_as_many_channels_as_tokens_fit_anything_and_say_nothing():
    drawn = np.random.default_rng(0).normal(size=(101, 120))
    _, share = best_linear_map(drawn[:-1], drawn[1:])
    assert share < 1e-20, "every table has a map that fits the rows it was fitted to"
    assert judged(drawn, [1])[0].share > 0.9
    found = told(Learned(120, 101), 101, values=drawn)
    assert found.state == "not computed"
    assert "are too few to find a linear map" in found.says


def test_rows_left_out_tell_a_clock_from_what_is_none():
    clock = judged(table(Sinusoidal(width=64), 600, "float64"), [1, 64])
    sines = judged(table(SineOnly(64), 600, "float64"), [1, 64])
    noise = judged(np.random.default_rng(0).normal(size=(600, 64)), [1, 64])
    assert all(one.share < 1e-18 for one in clock)
    assert all(one.share > 0.05 for one in sines)
    assert all(one.share > 0.95 for one in noise)
    assert judged(np.ones((24, 3)), [1]) == [None], "too few rows to leave some out"


def test_a_count_is_shifted_by_an_addition(cases):
    for length, dtype in product((200, 1000), DTYPES[:3]):
        with cases(length, dtype):
            for spec in (Counter(4), NormalizedCounter(4, length), AxialSinusoidal(15, (1, 1, 1), raw="before")):
                found = told(spec, length, dtype)
                assert found.holds is False
                assert found.brief == "no: a step is an addition"
                assert max(found.numbers["residual_share_with_constant"]) < 1e-20
                assert found.numbers["residual_share"][1] > 1e9 * found.numbers["residual_share_with_constant"][1]


def test_a_step_of_a_warped_position_turns_by_another_angle_everywhere(cases):
    for warp, first, last in (
        ("square", 1.0, 997.0),  # (t + 1)**2 - t**2 at 0 and 498
        ("log", math.log(2), math.log(500 / 499)),
        ("reciprocal", -1 / 2, 1 / 500 - 1 / 499),
    ):
        with cases(warp, first, last):
            found = told(WarpedPosition(16, warp), 500)
            assert found.holds is False
            assert found.numbers["first_step_turns"] == pytest.approx(first, rel=1e-12)
            assert found.numbers["last_step_turns"] == pytest.approx(last, rel=1e-9)
            rows = table(WarpedPosition(16, warp), range(1, 4), "float64")
            turned = math.atan2(rows[1, 0], rows[1, 1]) - math.atan2(rows[0, 0], rows[0, 1])
            step = {"square": 3.0, "log": math.log(2), "reciprocal": -1 / 2}[warp]
            assert math.cos(turned - step) == pytest.approx(1, abs=1e-12)


def test_codes_that_lost_a_wave_have_no_matrix(cases):
    for spec in (Binary(8), SineOnly(16), Sinusoidal(width=16, order="sin-sin"), Sinusoidal(width=9, odd="cut")):
        with cases(spec):
            found = told(spec, 300)
            assert found.holds is False
            assert spec.why_no_shift() in found.says
            assert max(found.numbers["largest_error"]) > 1e-5
            assert told(spec, 17).holds is False, "at any length"


def test_rates_as_values_are_found_out():
    drawn = np.random.default_rng(3).normal(size=(2, 8))
    both = told(FourierFeatures(width=16, axes=2), 200, values=drawn)
    assert both.holds is True
    alone = told(FourierFeatures(width=8, axes=2, order="sin"), 200, values=drawn)
    assert alone.holds is False
    copied = told(Learned(16, 200), 200, values=table(Sinusoidal(width=16), 200))
    assert copied.holds is True


def test_biases_depend_on_the_distance_up_to_a_constant_in_each_row(cases):
    for length, form in product((30, 2048), ("distance", "past", "symmetric", "key", "last-key")):
        with cases(length, form):
            found = told(Alibi(heads=8, form=form), length)
            assert found.holds is True
            assert found.numbers["largest_difference_within_rows"] <= 1e-12
            if form in ("key", "last-key"):
                assert found.numbers["largest_difference"] == 0.5, "the steepest slope, for each token"
                assert "constant per row" in found.brief
            else:
                assert found.numbers["largest_difference"] == 0


def test_a_bias_of_the_key_is_rounded_where_it_is_large():
    rounded = [told(Alibi(heads=8, form="key"), 2048, dtype).numbers["largest_difference_rounded"] for dtype in DTYPES]
    # The steepest head has 1023.5 at the last key: halves of 4 in bfloat16, and exact in float32.
    assert rounded[0] == rounded[3] == 0
    assert rounded[2] >= 2
    assert (
        told(Alibi(heads=1, form="key", octaves=0.001), 1 << 18, "float16").numbers["largest_difference_rounded"]
        is None
    )


def test_buckets_depend_on_the_distance_whatever_is_learned():
    without = told(Buckets(heads=2), 300)
    assert (without.holds, without.numbers["largest_difference"]) == (True, 0.0)
    drawn = np.random.default_rng(0).normal(size=(32, 2))
    assert told(Buckets(heads=2), 300, values=drawn).holds is True


def test_windows_and_fire_depend_on_where_tokens_stand():
    assert told(Window(heads=1, height=7, width=7), 2048).holds is False
    drawn = np.random.default_rng(0).normal(size=(169, 1))
    found = told(Window(heads=1, height=7, width=7), 2048, values=drawn)
    assert found.holds is False
    assert found.numbers["tokens"] == 48
    fire = Fire(heads=2, hidden=4)
    assert told(fire, 100).holds is False
    shapes = np.random.default_rng(0)
    values = {name: shapes.normal(size=shape) for name, shape in fire.shapes.items()} | {
        "c": np.array(1.0),
        "threshold": np.array(8.0),
    }
    measured = told(fire, 100, values=values)
    assert measured.holds is False
    square = np.asarray(bias(fire, range(52, 100), range(52, 100), values=values, dtype="float64"))
    assert measured.numbers["largest_difference"] == along_diagonals(square) > 0


def test_of_long_texts_the_first_rows_are_looked_at():
    found = told(Counter(4), 1 << 20)
    assert found.numbers["tokens"] == 8192
    assert "only the first 8,192 tokens" in found.says
    assert "of the first 8,192 tokens" in kernel(subject_of(Counter(4), 1 << 20, "float32", None)).says
    clock = told(Sinusoidal(width=64), 1 << 40)
    assert clock.holds is True
    assert clock.numbers["distances"][-1] == (1 << 40) - 1
