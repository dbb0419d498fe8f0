"""How far neighbours are apart."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest

from clockhands.encodings.additive import (
    Binary,
    Counter,
    EvenlySpaced,
    Learned,
    NormalizedCounter,
    SingleFrequency,
    Sinusoidal,
    table,
)
from clockhands.encodings.ladders import explicit, geometric
from clockhands.encodings.phases import DIRECT_FINE
from clockhands.encodings.presets import preset
from clockhands.encodings.rotary import Rotary
from clockhands.measures.subject import subject_of
from clockhands.measures.tokens.smooth import adjacent_distance, random_pair_distance, smooth, step_distances

DTYPES = ["float32", "float16", "bfloat16"]


def of(spec, length, dtype="float32", values=None):
    return smooth(subject_of(spec, length, dtype, values))


def exact_step(rates, k=1):
    """``sqrt(sum 4 sin^2(k rate / 2))`` in 50 digits; the rates are functions of mpmath."""
    with mpmath.workdps(50):
        return mpmath.sqrt(mpmath.fsum(4 * mpmath.sin(k * rate / 2) ** 2 for rate in rates))


def paper(width):
    with mpmath.workdps(50):
        return [mpmath.power(10_000, -mpmath.mpf(2 * pair) / width) for pair in range(width // 2)]


def test_the_adjacent_distance_is_exact(cases):
    for width, rounded in ((64, 1.472), (128, 1.953), (512, 3.714), (4096, 10.349)):
        with cases(width, rounded):
            exact, found = exact_step(paper(width)), adjacent_distance(geometric(width // 2))
            bound = math.sqrt(width) * DIRECT_FINE + (width / 2 + 3) * 2**-53 * found
            assert abs(found - exact) <= bound
            assert round(found, 3) == rounded
            assert abs(exact_step(paper(width)[1:]) - exact) > bound, "a ladder without its first hand would be noticed"


def test_a_step_of_several_tokens_is_exact_however_long(cases):
    for k in (1, 7, 1000, 10**15):
        with cases(k):
            found, exact = step_distances(geometric(32), [k])[0], exact_step(paper(64), k)
            assert abs(found - exact) <= 8 * DIRECT_FINE + 35 * 2**-53 * found


def test_the_paper_takes_steps_of_one_size(cases):
    for length, dtype in product((17, 2048), DTYPES):
        with cases(length, dtype):
            found = of(Sinusoidal(512), length, dtype)
            rows = table(Sinusoidal(512), length, "float64")
            steps = np.linalg.norm(np.diff(rows, axis=0), axis=1)
            assert found.holds
            assert found.numbers["same_everywhere"]
            assert steps == pytest.approx(found.numbers["adjacent_distance"], rel=1e-13)
            assert found.numbers["row_norm"] == 16
            assert found.numbers["relative_to_norm"] == pytest.approx(0.2321, abs=5e-5)
            assert found.numbers["cosine_of_neighbours"] == pytest.approx(0.97306, abs=5e-6)


def test_rounding_moves_a_step_by_no_more_than_it_says(cases):
    for dtype in DTYPES:
        with cases(dtype):
            spec = Sinusoidal(64, scale=0.7)
            found = of(spec, 300, dtype).numbers
            rows = table(spec, 300, dtype).astype(np.float64)
            off = np.abs(np.linalg.norm(np.diff(rows, axis=0), axis=1) - found["adjacent_distance"])
            assert off.max() <= found["rounding_moves_steps_by"]
            # And the bound is one: it is not larger than what all numbers off the same way would do, many times over.
            assert off.max() > found["rounding_moves_steps_by"] / 50


def test_the_random_pair_is_the_mean_of_all_pairs(cases):
    for spec in (Sinusoidal(8), Sinusoidal(64, scale=2.0), SingleFrequency(4), EvenlySpaced(16), Rotary(8), Counter(3)):
        for length in (3, 17, 300):
            with cases(spec, length):
                subject = subject_of(spec, length, "float64", None)
                rows = subject.rows(0, length)
                squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=-1)
                mean = math.sqrt(squares.sum() / (length * (length - 1)))
                assert smooth(subject).numbers["random_pair_distance"] == pytest.approx(mean, rel=1e-7)


def test_slow_hands_keep_their_digits():
    # n hands that turn by 1e-9 are on a line: the mean square of |i - j| rate is (n^2 - 1) / 12 x 2 n / (n - 1) / 2 ...
    rate, n = 1e-9, 100
    line = rate * math.sqrt(sum((i - j) ** 2 for i in range(n) for j in range(n)) / (n * (n - 1)))
    assert random_pair_distance(explicit([rate]), n) == pytest.approx(line, rel=1e-7)


def test_a_step_as_long_as_any_other_pair_is_not_small():
    # At 3 rad a token neighbours stand nearly opposite: 2 sin(1.5) = 1.995, and two random ones 1.414 apart.
    found = of(SingleFrequency(2, rate=3.0), 2048)
    assert found.holds is False
    assert found.numbers["same_everywhere"]
    assert found.numbers["adjacent_distance"] == pytest.approx(2 * math.sin(1.5), rel=1e-14)
    assert "as far as any pair" in found.brief


def test_binary_digits_jump_where_all_of_them_flip(cases):
    for (length, largest, place), dtype in product(((17, 5, 15), (300, 9, 255)), DTYPES):
        with cases(length, largest, place, dtype):
            found = of(Binary(12), length, dtype)
            assert found.holds is False
            assert found.numbers["largest_step"] == math.sqrt(largest)
            assert found.numbers["largest_step_from"] == place
            assert found.numbers["smallest_step"] == 1
            # From p to p + 1 as many digits flip as p has ones at its end, and one more.
            flips = [((p ^ (p + 1)) & 0xFFF).bit_count() for p in range(length - 1)]
            assert found.numbers["adjacent_distance"] == pytest.approx(np.mean(np.sqrt(flips)), rel=1e-14)


def test_a_counter_takes_even_steps_and_a_normalised_one_smaller_ones_in_a_longer_text(cases):
    for length in (17, 4096):
        with cases(length):
            found, normalised = of(Counter(4), length), of(NormalizedCounter(4, length=length), length)
            assert found.holds
            assert normalised.holds
            assert found.numbers["adjacent_distance"] == 2
            assert normalised.numbers["adjacent_distance"] == pytest.approx(2 / (length - 1), rel=1e-12)
            assert found.numbers["cosine_of_neighbours"] is None, "the first row is zero and has no direction"


def test_a_learned_table_is_measured_row_by_row(cases):
    for dtype in DTYPES:
        with cases(dtype):
            values = np.array([[9.0, 9], [0, 0], [3, 4], [3, 5], [6, 9], [6, 9]])
            found = of(Learned(2, rows=6, offset=1), 5, dtype, values)
            assert found.holds is False
            numbers = found.numbers
            assert (numbers["smallest_step"], numbers["largest_step"], numbers["largest_step_from"]) == (0, 5, 0)
            assert numbers["adjacent_distance"] == (5 + 1 + 5 + 0) / 4
            # Ten pairs, each both ways: the mean of their squares by hand.
            rows = values[1:]
            mean = np.mean([((rows[i] - rows[j]) ** 2).sum() for i in range(5) for j in range(5) if i != j])
            assert numbers["random_pair_distance"] == pytest.approx(math.sqrt(mean), rel=1e-14)
            assert "0 to 5" in found.says


def test_a_large_scale_leaves_the_shares_as_they_are():
    plain, large = of(Sinusoidal(64), 100).numbers, of(Sinusoidal(64, scale=1e300), 100, "float64").numbers
    for name in ("relative_to_norm", "cosine_of_neighbours", "of_random_pair"):
        assert large[name] == pytest.approx(plain[name], rel=1e-12)


def test_blocks_make_no_difference(monkeypatch):
    whole = of(Binary(7), 1000).numbers
    monkeypatch.setattr("clockhands.measures.tokens.smooth._BLOCK", 7 * 9)
    for name, number in of(Binary(7), 1000).numbers.items():
        assert number == (pytest.approx(whole[name], rel=1e-12) if isinstance(number, float) else whole[name])


def test_of_several_axes_the_worst_is_told(cases):
    for axis, name in ((0, "qwen2-vl"), (0, "mae"), (1, "wan")):
        with cases(axis, name):
            found = of(preset(name), 2048)
            assert found.numbers["axis"] == axis
            assert f"axis {axis}" in found.says


def test_a_row_of_zeros_is_a_step_and_a_text_of_one_step_is_none():
    found = of(Sinusoidal(64, zero_rows=(5,)), 100)
    assert found.holds is False
    assert found.numbers["largest_step"] == pytest.approx(math.sqrt(32), rel=1e-14)
    assert found.numbers["largest_step_from"] == 4
    assert [of(Sinusoidal(64), length).holds for length in (1, 2, 2**40)] == [None, None, True]
