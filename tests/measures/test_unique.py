"""Whether every token has numbers of its own."""

import math
import subprocess
import sys
from itertools import product

import mpmath
import numpy as np
import pytest

from clockhands.encodings.additive import (
    AxialSinusoidal,
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    Learned,
    NoPosition,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.presets import preset
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Yarn
from clockhands.measures.subject import channel_pairs, rounding_distance, subject_of
from clockhands.measures.tokens._unique import unique
from memory_peaks import AT_HAND

with mpmath.workdps(50):
    HALF_TURNS = float(2 * abs(mpmath.sin(mpmath.mpf(355))))  # what 710 tokens are short of 113 turns, as a chord

DTYPES = ["float32", "float16", "bfloat16"]


def of(spec, length, dtype="float32", values=None):
    return unique(subject_of(spec, length, dtype, values))


def test_the_paper_gives_each_position_its_own(cases):
    for dtype, length in product(DTYPES, (17, 4096)):
        with cases(dtype, length):
            found = of(Sinusoidal(512), length, dtype)
            numbers = found.numbers
            assert found.holds
            assert (numbers["distinct"], numbers["first_collision"]) == (length, None)
            assert (numbers["nearest_offset"], numbers["nearest_pair"]) == (1, [0, 1])
            assert round(numbers["nearest_distance"], 3) == 3.714
            assert numbers["comes_round_after"] is None


def test_two_channels_collide_in_half_precision(cases):
    for dtype, pair, distinct in (("float32", None, 2048), ("float16", [2, 712], 1222), ("bfloat16", [1, 711], 815)):
        with cases(dtype):
            found, rows = of(Sinusoidal(2), 2048, dtype), table(Sinusoidal(2), 2048, dtype)
            assert (found.holds, found.numbers["first_collision"]) == (pair is None, pair)
            assert found.numbers["distinct"] == distinct == len({row.tobytes() for row in rows})
            # In real numbers, whatever the dtype: 710 is 113 turns less 6.03e-5 rad.
            assert found.numbers["nearest_offset"] == 710
            assert found.numbers["nearest_distance"] == pytest.approx(HALF_TURNS, rel=1e-11)
            assert found.numbers["comes_round_after"] == pytest.approx(2 * math.pi)
            assert "710 tokens apart" in found.says


def test_positions_that_are_rounded_first_are_fewer(cases):
    for dtype, left, pair in (("bfloat16", 769, [256, 257]), ("float16", 3073, [2048, 2049])):
        with cases(dtype):
            found = of(Sinusoidal(512), 4096, dtype)
            assert found.holds, "the table itself has a row for each"
            assert found.numbers["positions_distinct_in_dtype"] == left
            assert found.numbers["first_positions_merged"] == pair
            assert f"4,096 positions become only {left:,} different numbers:" in found.says
            # What the sentence is about, done: a table of rounded positions.
            rounded = table(Counter(1), 4096, dtype).astype(np.float64)[:, 0].tolist()
            assert len({row.tobytes() for row in table(Sinusoidal(512), rounded, dtype)}) == left


def test_rounding_moves_distances_by_no_more_than_it_says(cases):
    for dtype, scale in product(DTYPES, (1.0, 3.0, 0.25)):
        with cases(dtype, scale):
            spec = Sinusoidal(8, scale=scale)
            subject = subject_of(spec, 400, dtype, None)
            tables = table(spec, 400, "float64"), table(spec, 400, dtype).astype(np.float64)
            moved = max(
                np.abs(np.subtract(*(np.linalg.norm(rows[k:] - rows[:-k], axis=1) for rows in tables))).max()
                for k in (1, 44, 355)
            )
            bound = rounding_distance(subject, channel_pairs(subject))
            assert bound / 10 < moved <= bound


def test_binary_digits_start_again(cases):
    for dtype, length in product(DTYPES, (17, 2048)):
        with cases(dtype, length):
            found, wide = of(Binary(4), length, dtype), of(Binary(12), length, dtype)
            assert (found.numbers["first_collision"], found.numbers["distinct"]) == ([0, 16], 16)
            assert found.brief == "no: 0 and 16 are equal"
            assert (wide.holds, wide.numbers["nearest_distance"]) == (True, 1)


def test_numbers_that_outgrow_the_dtype_are_named():
    # 65,504 is the largest number of float16, and all from 65,520 on are rounded to infinity.
    found = of(Counter(3), 70_000, "float16")
    assert found.holds is False
    assert found.numbers["does_not_fit_from"] == 65_520
    assert (
        "From position 65,520 on, the encoding has no values: The value 65520 is too large for float16." in found.says
    )
    assert found.numbers["first_collision"] == [2048, 2049]
    # A code that collides nowhere before it ends.
    raw = AxialSinusoidal(6, (1,), raw="before", scale=50_000.0, uneven="zero")
    found = of(raw, 17, "float16")
    assert found.numbers["does_not_fit_from"] == 2
    assert found.brief == "no: no values from 2 on"


def test_hands_in_whole_ratios_come_round_and_evenly_spaced_ones_nearly():
    found = of(SingleFrequency(8, rate=0.5), 2048)
    assert found.holds
    assert found.numbers["comes_round_after"] == pytest.approx(4 * math.pi)
    assert found.numbers["nearest_offset"] == 1420, "twice 710: half as fast"
    found = of(EvenlySpaced(512), 2048)
    assert found.numbers["nearest_offset"] == 1602
    assert found.numbers["nearly_comes_round_after"] == pytest.approx(1602.4, abs=0.1)


def test_hands_that_turn_half_a_turn_are_told_apart_by_rounding_alone():
    found = of(preset("nerf-paper"), 512)
    assert found.numbers["nearest_offset"] == 2
    assert found.numbers["nearest_distance"] < 1e-9
    assert found.brief.startswith(("no", "yes, but by rounding alone"))


def test_rotations_are_measured_as_their_hands(cases):
    for dtype, length in product(DTYPES, (17, 2048)):
        with cases(dtype, length):
            ours, sinusoid = of(Rotary(64), length, dtype), of(Sinusoidal(64), length, dtype)
            assert ours.holds
            assert "same rotation" in ours.says
            assert ours.numbers == sinusoid.numbers
    assert of(Rotary(2), 2048, "float16").numbers["first_collision"] == [2, 712]


def test_an_attention_factor_scales_the_distance():
    spec = Rotary(64, scaling=Yarn(factor=4, original=2048))
    plain = Rotary(64, spacing=spec.spacing)
    assert spec.attention_factor > 1
    found = of(spec, 2048).numbers
    steps = np.linalg.norm(np.diff(subject_of(spec, 2048, "float64", None).rows(0, 3), axis=0), axis=1)
    assert found["nearest_distance"] == pytest.approx(steps[0], rel=1e-13)
    assert found["nearest_distance"] != of(plain, 2048).numbers["nearest_distance"]


def test_xpos_shrinks_is_measured_row_by_row_and_ends_where_its_growth_leaves_the_range_of_float32():
    found = of(preset("xpos"), 512)
    assert found.holds
    rows = subject_of(preset("xpos"), 512, "float32", None).rows(0, 512).astype(np.float64)
    earlier, later = found.numbers["nearest_pair"]
    assert found.numbers["nearest_distance"] == pytest.approx(np.linalg.norm(rows[earlier] - rows[later]), rel=1e-12)
    assert earlier > 400, "where queries have shrunk most"
    found = of(preset("xpos"), 40_000)
    assert found.holds is False
    # 85 scale / ln(1 / zeta) = 85 x 512 / ln 3.5 tokens from the centre.
    assert found.numbers["does_not_fit_from"] == math.floor(85 * 512 / math.log(3.5)) + 1
    assert "xPos" in found.says


def test_rows_of_zeros_among_the_tokens_are_alike():
    found = of(Sinusoidal(64, zero_rows=(3, 5)), 100)
    assert found.numbers["first_collision"] == [3, 5]
    assert found.numbers["distinct"] == 99
    assert "The encodings of positions 3 and 5 are all zeros" in found.says
    one = of(Sinusoidal(64, zero_rows=(5,)), 100)
    assert one.holds
    earlier, later = one.numbers["nearest_pair"]
    assert later - earlier == 1, "neighbours, which of them is a question of rounding"
    assert round(one.numbers["nearest_distance"], 3) == 1.472
    # That of fairseq is at position 1, and its tokens begin at 2.
    found = of(preset("fairseq"), 512)
    assert (found.holds, found.numbers["nearest_pair"]) == (True, [2, 3])
    assert "zero" not in found.says


def test_a_learned_table_is_compared_row_by_row(cases):
    spec, values = Learned(8, rows=40, offset=2), np.random.default_rng(0).standard_normal((40, 8))
    values[:2] = 7.0  # before position 0
    near = values.copy()
    near[30] = near[12] + 1e-9
    for dtype in DTYPES:
        with cases(dtype):
            found = of(spec, 38, dtype, values)
            assert found.holds
            rounded = table(spec, 38, dtype, values=values).astype(np.float64)
            best = min((np.linalg.norm(rounded[i] - rounded[j]), i, j) for j in range(38) for i in range(j))
            assert found.numbers["nearest_distance"] == pytest.approx(best[0], rel=1e-14)
            assert found.numbers["nearest_pair"] == list(best[1:])
            assert f"are those of positions {best[1]} and {best[2]}, at a distance of" in found.says
            found = of(spec, 38, dtype, near)
            assert (found.numbers["first_collision"], found.numbers["nearest_distance"]) == ([10, 28], 0)
    assert of(spec, 38, "float64", near).holds


def test_beyond_16384_rows_without_a_rule_the_nearest_pair_is_not_looked_for():
    found = of(Counter(2), 16_385)
    assert found.holds
    assert found.numbers["nearest_distance"] is None
    assert "the search is limited to 16,384 positions" in found.says


def test_of_several_axes_the_worst_is_told():
    found = of(preset("qwen2-vl"), 2048)
    assert found.numbers["axis"] == 2
    assert "axis 2" in found.says
    # The slowest pairs are the third axis': its neighbours are the nearest.
    spec = AxialSinusoidal(10, (4, 1))
    found = of(spec, 2048, "float16")
    assert (found.numbers["axis"], found.numbers["first_collision"]) == (1, [2, 712])
    assert of(AxialSinusoidal(8, (1, 1)), 17).numbers["axis"] == 0
    spec = FourierFeatures(4, axes=1)
    # A quarter of a turn and half a turn a token: after four tokens all is as it was.
    found = of(spec, 17, "float32", np.array([0.25, 0.5]))
    assert found.numbers["nearest_distance"] < 1e-6
    assert "share" not in found.says
    rates = np.random.default_rng(0).standard_normal((2, 4))
    assert "The axes of this encoding share their dimensions" in of(FourierFeatures(8), 17, "float32", rates).says


def test_codes_that_say_nothing_a_single_token_and_a_learned_scale():
    nothing = of(NoPosition(8), 16)
    assert (nothing.state, nothing.holds, nothing.numbers["distinct"]) == ("measured", False, 1)
    scaled = of(preset("speecht5"), 16, "float32", np.array(0.5))
    assert scaled.numbers["nearest_distance"] == pytest.approx(of(Sinusoidal(768), 16).numbers["nearest_distance"] / 2)
    for spec in (Sinusoidal(64), Counter(4), Rotary(8), WarpedPosition(4)):
        found = of(spec, 1, "bfloat16")
        assert (found.holds, found.numbers["distinct"]) == (True, 1)
        assert "A text of one token" in found.says


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_million_tokens_of_512_channels_are_compared_in_a_gigabyte(dtype):
    program = f"""{AT_HAND}
from clockhands.encodings.additive import Sinusoidal
from clockhands.measures.subject import subject_of
from clockhands.measures.tokens._unique import unique
found = unique(subject_of(Sinusoidal(512), 2**20, "{dtype}", None))
print(found.holds, found.numbers["distinct"], peak_bytes())
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert said[:2] == ["True", str(2**20)]
    assert int(said[2]) < 2**30, "the table alone would take a gigabyte or two"
