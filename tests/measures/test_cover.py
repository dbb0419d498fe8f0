"""Distances that have a hand of their own, by counting each."""

import itertools
import math

import pytest

from clockhands.encodings.additive import EvenlySpaced, Sinusoidal
from clockhands.encodings.ladders import Explicit, evenly_spaced, geometric
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import Linear
from clockhands.measures.ladders.cover import cover, cover_of, stretches_covered
from clockhands.measures.subject import subject_of


def found(spec, length, dtype="float32"):
    return cover(subject_of(spec, length, dtype, None))


def covered(rates, length):
    """The same by the definition: over k tokens some hand turns by k w / (2 pi) of its circle, from 1/8 to 1/2."""
    return [k for k in range(1, length) if any(1 / 8 <= k * rate / (2 * math.pi) <= 1 / 2 for rate in rates)]


def test_every_distance_by_the_definition(cases):
    ladders = geometric(16), geometric(3, 1e5), geometric(8, 100.0), evenly_spaced(9, 1.0, 1e-3)
    for rates, length in itertools.product(
        (*(each.rates for each in ladders), (4.0, 3.0), (0.0, 0.01), (5.0,)), (2, 3, 50, 700)
    ):
        with cases(rates, length):
            expected, stretches = covered(rates, length), stretches_covered(rates, length)
            assert [k for first, last in stretches for k in range(first, last + 1)] == expected
            assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(stretches))
            numbers = cover_of(rates, length)
            missing = sorted(set(range(1, length)) - set(expected))
            assert numbers["covered_share"] == len(expected) / (length - 1)
            assert numbers["uncovered_distances"] == len(missing)
            assert numbers["first_uncovered_distance"] == (missing[0] if missing else None)
            assert numbers["longest_covered_distance"] == (expected[-1] if expected else None)
            assert numbers["shortest_covered_distance"] == (expected[0] if expected else None)
            assert numbers["wasted_pairs"] == sum(not covered([rate], length) for rate in rates)


def test_the_largest_ratio_is_of_those_that_a_distance_needs():
    """Wavelengths 1, 2, 6, 40 and 4,000 tokens: up to 4 tokens only 6 / 2 is asked for, up to 41 also 40 / 6."""
    rates = [2 * math.pi / wavelength for wavelength in (1, 2, 6, 40, 4000)]
    assert cover_of(rates, 4)["largest_ratio"] == pytest.approx(3)
    assert cover_of(rates, 21)["largest_ratio"] == pytest.approx(40 / 6)
    assert cover_of(rates, 22)["largest_ratio"] == pytest.approx(100)
    assert cover_of([1.0], 22)["largest_ratio"] is None


def test_llama_2_has_hands_for_27205_tokens():
    """Its slowest pair needs 2 pi 10,000**(63/64) = 54,410.1 tokens for a turn."""
    spec = Rotary(head_width=128)
    short, long = found(spec, 4096), found(spec, 131_072)
    assert long.numbers == found(spec, 131_072, "bfloat16").numbers
    assert (short.holds, short.brief) == (True, "every distance is resolved")
    assert (long.holds, long.brief) == (False, "none from 27,206 on")
    assert long.numbers["longest_covered_distance"] == math.floor(math.pi * 10_000 ** (63 / 64)) == 27_205
    assert long.numbers["uncovered_distances"] == 131_071 - 27_205
    assert long.numbers["covered_share"] == 27_205 / 131_071
    assert long.numbers["longest_wavelength"] == pytest.approx(54_410.1, abs=0.05)
    assert "The first unresolved distance is 27,206 tokens; the longest resolved distance is 27,205" in long.says


@pytest.mark.parametrize(("length", "pairs"), [(2048, 32), (8192, 64)])
def test_the_alternatives_by_the_definition(length, pairs):
    numbers = found(Rotary(head_width=2 * pairs, base=123.0), length).numbers
    others = {f"base_{base}": geometric(pairs, base).rates for base in (100, 8192, 10_000, 1_000_000)}
    others["evenly_spaced"] = [1 - pair * (1 - 1e-4) / (pairs - 1) for pair in range(pairs)]
    for name, rates in others.items():
        expected = covered(rates, length)
        assert numbers[f"{name}_covered_share"] == len(expected) / (length - 1)
        assert numbers[f"{name}_longest_covered_distance"] == expected[-1]
        assert numbers[f"{name}_pairs_beyond_the_length"] == sum(rate * length < 2 * math.pi for rate in rates)
    assert numbers["base_100_longest_covered_distance"] == math.floor(math.pi * 100 ** ((pairs - 1) / pairs))
    assert numbers["base_10000_covered_share"] == 1 > numbers["evenly_spaced_covered_share"]


def test_even_spacing_leaves_the_middle_out():
    """Of 64 rates from 1 to 1/10,000 the last but one turns in 394 tokens, the last in 62,832."""
    found_here = found(EvenlySpaced(width=128), 20_000)
    numbers = found_here.numbers
    assert (numbers["first_uncovered_distance"], numbers["longest_covered_distance"]) == (197, 19_999)
    assert numbers["uncovered_distances"] == math.ceil(2 * math.pi * 1e4 / 8) - 197
    assert found_here.brief == "38.3% are not, first 197"


def test_the_axis_that_covers_least_is_said():
    spec = Rotary(head_width=8, axes=(0, 0, 1, 1), spacing=Explicit((1.0, 0.3, 1.0, 0.5)))
    numbers = found(spec, 30).numbers
    assert (numbers["axis"], numbers["longest_covered_distance"], numbers["pairs"]) == (1, 6, 2)
    assert "29 distances along axis 1" in found(spec, 30).says


def test_distances_at_the_ends():
    """Four times slower, the fastest needs 25.1 tokens for a turn: 1, 2 and 3 are less than an eighth of it."""
    assert found(Sinusoidal(width=8), 2).holds
    assert found(Rotary(head_width=2, spacing=Explicit((4.0,))), 2).brief == "no distance is resolved"
    said = found(Rotary(head_width=128, scaling=Linear(factor=4.0)), 2048)
    assert (said.brief, said.numbers["uncovered_distances"]) == ("none below 4", 3)
    assert found(Rotary(head_width=4, spacing=Explicit((0.25, 0.01))), 80).brief.endswith("are not, first 1")
    for length, beyond in ((15, 2), (16, 1), (17, 1)):
        assert cover_of((2 * math.pi / 16, 2 * math.pi / 16.01 / 2), length)["pairs_beyond_the_length"] == beyond
