"""What adding does to the token: the property of each code, and the figures of drawn tokens."""

import dataclasses
import json
import math
from itertools import product

import numpy as np
import pytest

from clockhands import table
from clockhands.encodings.additive import AxialSinusoidal, Counter, Learned, Sinusoidal
from clockhands.encodings.dtypes import output_dtype
from clockhands.errors import InvalidValue
from clockhands.measures import cosine_below, expected_offset_share, expected_share, expected_terms, pair_error
from clockhands.measures.adding._adding import adding
from clockhands.measures.adding.drawn_tokens import adding_measured
from clockhands.measures.subject import subject_of

DTYPES = ("float64", "float32", "float16", "bfloat16")
# Half a unit of the last of 53, 24, 11 and 8 bits: no number of a row is off by more than that share of 1.
ROUNDING = dict(zip(DTYPES, (2**-53, 2**-24, 2**-11, 2**-8), strict=True))


def of(spec, length, dtype="float32", values=None):
    return adding(subject_of(spec, length, dtype, values))


def test_the_papers_table(cases):
    """256 pairs of sin**2 + cos**2 = 1: every row is 16 long, a token of 512 channels sqrt(512)."""
    for length, dtype in product((64, 2048), DTYPES):
        with cases(length, dtype):
            found, rounding, first = of(Sinusoidal(width=512), length, dtype), ROUNDING[dtype], min(length, 128)
            numbers = found.numbers
            assert (found.state, found.holds) == ("measured", True)
            for name in ("row_norm_least", "row_norm_mean", "row_norm_largest"):
                assert numbers[name] == pytest.approx(16, abs=math.sqrt(512) * rounding + 1e-12)
            assert numbers["row_over_token"] == pytest.approx(math.sqrt(0.5), abs=1.01 * rounding + 1e-12)
            assert numbers["found_at_deviation_1"] == numbers["found_at_deviation_root_width"] == 1
            longest = numbers["row_norm_largest"]
            expected = pytest.approx(expected_share(512, longest, 512**-0.5), rel=1e-9)
            assert numbers["found_at_deviation_one_over_root_width"] == expected
            # A row that bfloat16 makes longer by up to 0.6 % drowns a few tokens more: of 0.31 % at most a hundredth.
            assert numbers["found_at_deviation_one_over_root_width"] == pytest.approx(0.003105, rel=0.02)
            assert numbers["deviation_needed"] == pytest.approx(0.2101, rel=0.01)
            assert numbers["cosine_deviation"] == pytest.approx(1 / math.sqrt(512), rel=1e-15)
            assert round(numbers["cosine_999"], 4) == 0.1449
            assert numbers["first_positions"] == first
            rows = table(Sinusoidal(width=512), first, dtype).astype(np.float64)
            assert numbers["offset_share"] == expected_offset_share(rows)
            assert numbers["position_position_share"] == expected_terms(rows).position_position
            assert numbers["offset_share_of_noise"] == 2 / (first + 1)
            assert numbers["positions_measured"] == (64 if length == 64 else 192)


def test_sixteen_channels_are_too_few_for_50000_tokens(cases):
    for length, dtype in product((64, 2048), DTYPES[1:]):
        with cases(length, dtype):
            found = of(Sinusoidal(width=16), length, dtype)
            assert found.holds is False
            # 0.3857 for rows of sqrt(8); a rounded row is off by up to 16 roundings, the share by 4 times that.
            within = 16 * ROUNDING[dtype] + 1e-5
            assert found.numbers["found_at_deviation_1"] == pytest.approx(0.38575, abs=within)
            assert found.brief.startswith("no: 3")


def test_a_counter_drowns_the_token(cases):
    """The last row is (length - 1) sqrt(64) long."""
    for length in (17, 2048):
        with cases(length):
            found = of(Counter(width=64), length)
            assert found.holds is False
            assert found.numbers["row_norm_largest"] == pytest.approx(8 * (length - 1), rel=1e-6)
            assert found.numbers["row_norm_least"] == 0
            assert found.numbers["found_at_deviation_1"] < 0.01
            assert found.numbers["deviation_needed"] > (length - 1) / 2
            assert "the largest norm of all positions" in found.says


def test_the_sum_is_rounded_to_the_spacing_of_the_row(cases):
    """1,999 takes 11 bits: of 24, 11 and 8 there are 13 left behind the point, none, and 3 too few."""
    drawn = np.random.default_rng(0).standard_normal(200_000)
    for dtype, length, spacing in (
        ("float32", 2000, 2**-13),
        ("float16", 2000, 1),
        ("float16", 5000, 4),
        ("bfloat16", 301, 2),
        ("bfloat16", 2000, 8),
    ):
        with cases(dtype, length):
            found = of(Counter(width=64), length, dtype).numbers["sum_rounding"]
            total = float(np.array(length - 1.0).astype(output_dtype(dtype))) + drawn
            error = total.astype(output_dtype(dtype)).astype(np.float64) - total
            assert found == pytest.approx(np.sqrt((error**2).mean()), rel=0.01)
            if spacing <= 1:
                assert found == pytest.approx(spacing / math.sqrt(12), rel=1e-6)
            if spacing == 8:
                assert found == pytest.approx(1, abs=1e-3), "nothing of the token is left"
    # A sine is at most 1, and so is the spacing's scale: a short row's sum is rounded like the token.
    for dtype in ("float32", "bfloat16"):
        found = of(Sinusoidal(width=64), 64, dtype).numbers["sum_rounding"]
        assert found == pytest.approx(2 * ROUNDING[dtype] / math.sqrt(12), rel=1e-12)


def test_what_is_rounded_off_is_said():
    error = "rounding error of token + encoding is up to {} times the standard deviation of the token"
    assert error.format("1.00") + ": almost" in of(Counter(width=64), 2000, "bfloat16").says
    assert error.format("0.29") in of(Counter(64), 2000, "float16").says
    assert "rounding error" not in of(Counter(width=64), 2000, "float32").says


def test_every_row_of_a_learned_table_counts(cases):
    for length in (100, 300, 512):
        with cases(length):
            values = 0.02 * np.random.default_rng(1).standard_normal((512, 96))
            values[250] *= 500
            found = of(Learned(width=96, rows=512), length, values=values)
            lengths = np.linalg.norm(values[:length].astype(np.float32).astype(np.float64), axis=1)
            assert found.numbers["positions_measured"] == length
            assert found.numbers["row_norm_largest"] == pytest.approx(lengths.max(), rel=1e-12)
            assert found.numbers["row_norm_mean"] == pytest.approx(lengths.mean(), rel=1e-12)
            assert found.holds is (length == 100), "the row 250 is 100 long"


def test_one_of_several_axes_is_worst():
    spec = AxialSinusoidal(width=64, shares=(1, 1))
    found = of(spec, 40)
    along = [np.zeros((40, 2), np.int64) for _ in range(2)]
    for axis in range(2):
        along[axis][:, axis] = range(40)
    rows = [table(spec, places).astype(np.float64) for places in along]
    assert found.numbers["offset_share"] == min(expected_offset_share(each) for each in rows)
    assert found.numbers["row_norm_mean"] == pytest.approx(math.sqrt(32), rel=1e-6)
    assert found.numbers["positions_measured"] == 80


def test_rows_of_zeros_and_rows_at_the_last_positions_that_there_are():
    found = of(Learned(width=8, rows=5), 5, values=np.zeros((5, 8)))
    assert found.holds
    assert found.numbers["deviation_needed"] == 0
    assert found.numbers["offset_share"] is None
    assert "distance" not in found.says
    last = of(Counter(width=4), 2**63, "float64").numbers
    assert last["row_norm_largest"] == 2 * (2.0**63), "four channels of 2**63 - 1, as float64 rounds it"
    before = of(Counter(width=4), 2**62, "float64").numbers
    assert last["row_norm_mean"] / before["row_norm_mean"] == pytest.approx(2, rel=1e-15), "as far apart twice over"
    assert of(AxialSinusoidal(8, (1, 1)), 2**63).numbers["row_norm_largest"] == pytest.approx(2, rel=1e-6)


def test_the_shortest_lengths(cases):
    for length in (1, 2, 3):
        with cases(length):
            found = of(Counter(width=1), length)
            assert found.state == "measured"
            assert (found.numbers["offset_share"] is None) == (length < 3)
            assert found.holds is (length == 1), "only the row of 0 adds nothing"
            assert found.numbers["cosine_999"] is None


# ------------------------------------------------------------------------------------------------------ drawn figures


@pytest.fixture(scope="module")
def figures():
    return adding_measured(widths=(16, 32), vocabularies=(200, 2000), seed=3)


def test_figures_are_plain_json_and_the_same_again(figures):
    told = figures.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    small, again, other = (adding_measured((16,), (2000,), seed).to_dict() for seed in (3, 3, 4))
    assert small == again != other
    assert small["pairs"] == told["pairs"][:3], "each width has a generator of its own"
    assert {name: len(each) for name, each in told.items() if isinstance(each, list)} == {
        "found": 2 * 2 * 3,
        "pairs": 2 * 3,
        "angles": 2,
        "terms": 2 * 3,  # heads of 16 channels, none of 64
        "offsets": 2,
    }


def test_drawn_figures_are_what_is_expected(figures):
    for each in figures.pairs:
        assert each.expected == pair_error(each.width, math.sqrt(each.width / 2), each.token_deviation)
        assert each.low - 0.02 < each.expected < each.high + 0.02
    inside = [each.low <= each.expected <= each.high for each in figures.pairs]
    assert sum(inside) >= 5
    for each in figures.found:
        assert each.expected == expected_share(each.width, each.row_norm, each.token_deviation, each.vocabulary)
        assert each.known == 1
    assert sum(each.low <= each.expected <= each.high for each in figures.found) >= 10
    for each in figures.angles:
        # A deviation of n draws has itself the deviation 1 / sqrt(2 n), and the draws are nearly normal.
        assert each.deviation == pytest.approx(each.expected_deviation, rel=4 / math.sqrt(2 * each.trials))
        assert each.below_999 == pytest.approx(0.999, abs=4 * math.sqrt(0.001 / each.trials))
        assert each.below_a_quarter == cosine_below(each.width, 0.25)
    for each in figures.terms:
        for name, expected in each.expected.to_dict().items():
            mean, deviation = (getattr(part, name) for part in (each.mean, each.deviation))
            assert sum(getattr(each.mean, field.name) for field in dataclasses.fields(each.mean)) == pytest.approx(1)
            # Four standard errors, and what a ratio of means differs from a mean of ratios by.
            assert abs(mean - expected) < 4 * deviation / math.sqrt(each.draws) + 2 * deviation**2
    for each in figures.offsets:
        assert abs(each.mean - each.expected) < 4 * each.deviation / math.sqrt(each.draws) + 2 * each.deviation**2
        assert min(each.commuting_interleaved, each.commuting_halves) > 1 - 1e-12
        assert each.mean > 5 * each.chance


def test_the_sentences_name_their_own_numbers(figures):
    found, angle, terms, offset = figures.sentences()
    largest = [each for each in figures.found if (each.width, each.vocabulary) == (32, 2000)]
    assert f"{largest[1].expected:.1%} are still the nearest" in found
    assert "2,000 random tokens of width 32" in found
    assert f"{1 / math.sqrt(32):.4f}" in angle
    shares = next(each.expected for each in figures.terms if (each.width, each.token_scale) == (32, "1"))
    assert f"content-content makes {shares.content_content:.1%}" in terms
    assert f"position-position {shares.position_position:.1%}" in terms
    assert f"{figures.offsets[-1].expected:.1%}" in offset
    assert "commute with the rotations, it explains 100.0%." in offset


def test_impossible_figures_are_refused():
    for given, word in (({"widths": (8,)}, "widths"), ({"widths": (17,)}, "width"), ({"vocabularies": (100,)}, "voc")):
        with pytest.raises(InvalidValue, match=word):
            adding_measured(**given)
