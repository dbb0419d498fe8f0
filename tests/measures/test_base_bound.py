"""The bound of Men et al. by its definition, and the critical dimension of Liu et al. by its formula."""

import itertools
import math

import numpy as np
import pytest

from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.ladders import Explicit, Geometric, geometric
from clockhands.encodings.rotary import Rotary, XPos
from clockhands.encodings.scaling import Linear
from clockhands.errors import InvalidValue
from clockhands.measures.ladders.base_bound import (
    base_bound,
    critical_dimension,
    farthest_looked_at,
    first_failing_distance,
    smallest_sound_base,
    sound_bases,
)
from clockhands.measures.ladders.sound_bases import lowest_sums, product, search_step
from clockhands.measures.subject import subject_of

SMOLLM2 = Rotary(head_width=64, base=100_000.0)


def failing(rates, limit):
    """The same by the definition."""
    return next((m for m in range(1, limit) if math.fsum(math.cos(m * rate) for rate in rates) < 0), None)


def test_the_first_distance_at_which_a_ladder_fails(cases):
    for width, base, first in ((128, 1e4, 1707), (128, 5e5, 18438), (128, 1e6, 27115), (64, 1e4, 725)):
        with cases(width, base):
            rates = geometric(width // 2, base).rates
            assert first_failing_distance(rates, 40_000) == first_failing_distance(rates, first + 1) == first
            assert first_failing_distance(rates, first) is None
    for rates in ((1.0,), (3.0, 0.1), (0.01, 0.0001), geometric(32, 10.0).rates):
        with cases(rates):
            assert first_failing_distance(rates, 5000) == failing(rates, 5000)


def test_a_hostile_context_ends_and_how_far_was_looked_is_known():
    assert farthest_looked_at(64, 2**53) == 2**23
    assert farthest_looked_at(64, 4096) == 4096
    assert first_failing_distance((1e-30,) * 64, 2**53) is None
    assert first_failing_distance((1e-30,) * 2**19, 2**53) is None


# Sound bases


def holds(pairs, length, base, still=0):
    """The same by the definition, one sum of correctly rounded cosines for each distance."""
    rates = [base ** (-pair / pairs) for pair in range(pairs)]
    return all(math.fsum(math.cos(m * rate) for rate in rates) + still >= 0 for m in range(1, length))


def test_smallest_bases_by_hand():
    """Below 4 tokens cos 3 + cos(3 / sqrt(base)) decides: it is 0 where 3 / sqrt(base) is pi - 3."""
    exact = (3 / (math.pi - 3)) ** 2
    assert smallest_sound_base(2, 4) == pytest.approx(exact, rel=search_step(2, 4, exact) / 500)
    assert smallest_sound_base(2, 4) >= exact
    assert smallest_sound_base(2, 4, denominator=1) == pytest.approx(3 / (math.pi - 3), rel=1e-4)
    assert smallest_sound_base(64, 1) == smallest_sound_base(64, 2) == 1.0
    assert smallest_sound_base(3, 1000, still=3) == 1.0
    assert smallest_sound_base(1, 3) is None, "a single pair turns at rate 1 whatever the base is, and cos 2 is below 0"


def test_the_smallest_sound_base_is_sound_and_those_below_are_not(cases):
    for pairs, length, still in ((8, 40, 0), (5, 100, 0), (8, 200, 2), (64, 300, 0)):
        with cases(pairs, length, still):
            found = smallest_sound_base(pairs, length, still=still)
            step = search_step(pairs, length, found)
            assert holds(pairs, length, found, still)
            for below in (found * (1 - step / 100), found * (1 - step), found * 0.9, found / 2):
                assert not holds(pairs, length, below, still)


def test_the_smallest_sound_bases_that_were_published(cases):
    """Su Jianlin, "Transformer upgrade road 18", kexue.fm/archives/10122: head width 128, two digits."""
    published = {1024: 4.3e3, 2048: 1.2e4, 4096: 2.7e4, 8192: 8.4e4, 16384: 2.3e5, 32768: 6.3e5}
    for length, base in published.items():
        with cases(length):
            assert float(f"{smallest_sound_base(64, length):.1e}") == base


@pytest.mark.parametrize("length", [1024, 4096])
def test_finer_steps_find_no_smaller_base(length):
    found = smallest_sound_base(64, length)
    step = search_step(64, length, found)
    ((begin, _), *_) = sound_bases(64, length, found / 1.5, found * 1.001, step=step / 20)
    assert begin == pytest.approx(found, rel=step / 500)


def test_sound_bases_have_gaps():
    """At 1,024 tokens there are two between the smallest sound base and 20,000; each edge by the definition."""
    found = sound_bases(64, 1024, 4000, 20_000, step=0.001)
    assert [round(end) for stretch in found for end in stretch] == [4293, 4330, 5602, 5644, 6018, 20_000]
    for begin, end in found:
        assert holds(64, 1024, begin)
        assert holds(64, 1024, end)
        assert not holds(64, 1024, begin * 0.9999)
        assert end == 20_000 or not holds(64, 1024, end * 1.0001)


def test_the_lowest_sum_of_several_bases_at_once(cases):
    bases = np.array([10.0, 1234.5, 1e4, 1e6])
    for pairs, length, still, denominator in ((3, 2, 0, None), (20, 77, 1, 19), (64, 3000, 0, 64)):
        with cases(pairs, length):
            exponents, m = -np.arange(pairs) / (denominator or pairs), np.arange(1, length)
            sums = [np.cos(np.multiply.outer(m, base**exponents)).sum(axis=1).min() + still for base in bases]
            found = lowest_sums(bases, pairs, length, still=still, denominator=denominator)
            np.testing.assert_allclose(found, sums, rtol=0, atol=pairs * length * 2.0**-50)


def test_a_product_in_pieces_is_the_product():
    """One row at a time where a row alone is larger than a piece."""
    draw = np.random.default_rng(7)
    for one, other in (((3, 4), (4, 5)), ((1000, 128), (128, 1024)), ((2, 70, 300), (2, 300, 900)), ((0, 3), (3, 2))):
        left, right = draw.normal(size=one), draw.normal(size=other)
        np.testing.assert_allclose(product(left, right), left @ right, rtol=0, atol=1e-11, strict=True)
    assert (product(np.ones((3, 1)), np.ones((1, 2**19))) == 1).all()


def test_a_search_that_would_be_too_coarse_is_refused():
    with pytest.raises(InvalidValue, match="the search would take steps of more than 2%"):
        smallest_sound_base(64, 2**20)
    with pytest.raises(InvalidValue, match="call sound_bases with a `step`"):
        sound_bases(64, 2**20, 1e6, 2e6)
    with pytest.raises(InvalidValue, match="`high` must be above `low`"):
        sound_bases(64, 1024, 100.0, 100.0)


# The property


def bound(spec, length, dtype="float32"):
    return base_bound(subject_of(spec, length, dtype, None))


def test_smollm2_fails_at_3616(cases):
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        with cases(dtype):
            found = bound(SMOLLM2, 8192, dtype)
            assert (found.state, found.holds, found.brief) == ("measured", False, "no: fails at distance 3,616")
            assert found.numbers["first_failing_distance"] == failing(SMOLLM2.rates, 4000) == 3616
            assert "At a distance of 3,616 tokens" in found.says
            before = bound(SMOLLM2, 3616, dtype)
            assert (before.holds, before.brief) == (True, "yes")
            assert not bound(SMOLLM2, 3617, dtype).holds


def test_the_smallest_base_and_the_gaps_are_said():
    found = bound(SMOLLM2, 2048)
    numbers = found.numbers
    smallest, gaps = numbers["smallest_sound_base"], numbers["failing_above"]
    assert numbers["searched"]
    assert smallest == smallest_sound_base(32, 2048)
    assert gaps[-1][1] < numbers["searched_to"] / 2
    assert all(smallest < first < last for first, last in gaps)
    assert all(one[1] < two[0] for one, two in itertools.pairwise(gaps))
    middle = math.sqrt(math.prod(gaps[-1]))
    assert first_failing_distance(geometric(32, middle).rates, 2048) is not None
    assert f"{len(gaps)} ranges have a negative sum again" in found.says


def test_gaps_are_looked_for_until_the_upper_half_has_none():
    """At 8,192 tokens the last of them is at 5.9 times the smallest base."""
    numbers = bound(SMOLLM2, 8192).numbers
    assert numbers["searched_to"] == 16 * numbers["smallest_sound_base"]
    assert numbers["failing_above"][-1][1] / numbers["smallest_sound_base"] == pytest.approx(5.92, abs=0.005)
    assert first_failing_distance(geometric(32, 1_905_000.0).rates, 8192) is not None
    for gap, following in itertools.pairwise(numbers["failing_above"]):
        assert smallest_sound_base(32, 8192) < gap[0] < gap[1] < following[0]
        for base in gap:  # both ends are the sound bases beside it
            assert first_failing_distance(geometric(32, base).rates, 8192) is None
        inside = gap[0] * 1.0001, gap[1] / 1.0001
        assert all(first_failing_distance(geometric(32, base).rates, 8192) for base in inside)


def test_without_a_search_the_ladder_itself_is_judged_all_the_same():
    found = base_bound(subject_of(SMOLLM2, 8192, "float32", None), search=False)
    assert found.numbers["first_failing_distance"] == 3616
    assert (found.numbers["searched"], found.numbers["smallest_sound_base"]) == (False, None)
    assert "smallest base" not in found.says


def test_a_scaled_ladder_is_judged_by_its_own_rates():
    """Four times slower, it fails four times as far or farther: its sums at 4 m are those of the plain one at m."""
    slower = Rotary(head_width=64, base=100_000.0, scaling=Linear(factor=4.0))
    assert bound(slower, 3617 * 4).numbers["first_failing_distance"] == failing(slower.rates, 3617 * 4)
    assert bound(slower, 8192).holds
    assert bound(slower, 8192).numbers["smallest_sound_base"] == bound(SMOLLM2, 8192).numbers["smallest_sound_base"]


def test_channels_that_are_not_rotated_stand_still():
    half = Rotary(head_width=64, rotated=32)
    assert bound(half, 4096).holds
    assert bound(half, 4096).numbers["pairs_standing_still"] == 16
    assert bound(half, 4096).numbers["smallest_sound_base"] == 1.0
    most = Rotary(head_width=64, rotated=60, base=100.0)
    rates = [*most.rates, *(0.0,) * 2]
    first = failing(rates, 512)
    assert bound(most, 512).numbers["first_failing_distance"] == first
    assert first > failing(most.rates, 512)


def test_several_axes_by_all_offsets():
    spec = Rotary(head_width=8, axes=(0, 0, 1, 1), spacing=Explicit((1.0, 0.1, 0.7, 0.2)))

    def negative(one, two):
        return math.cos(one) + math.cos(0.1 * one) + math.cos(0.7 * two) + math.cos(0.2 * two) < 0

    first = next(m for m in range(100) if any(negative(a, b) for a in range(m + 1) for b in range(m + 1)))
    together = next(m for m in range(100) if negative(m, m))
    numbers = bound(spec, 100).numbers
    assert (numbers["first_failing_distance"], numbers["first_failing_distance_in_step"]) == (first, together)
    assert first < together
    assert bound(spec, first).holds


def test_the_decay_of_xpos_counts():
    plain, decaying = Rotary(head_width=16, base=100.0), Rotary(head_width=16, base=100.0, xpos=XPos(scale=4.0))
    zeta = (np.arange(0, 16, 2) / 16 + 0.4) / 1.4
    m = np.arange(400)[:, None]
    sums = (zeta ** (m / 4) * np.cos(m * np.array(plain.rates))).sum(axis=1)
    assert bound(decaying, 400).numbers["first_failing_distance"] == int(np.flatnonzero(sums < 0)[0])
    assert bound(plain, 400).numbers["first_failing_distance"] != bound(decaying, 400).numbers["first_failing_distance"]


def test_how_far_was_looked_is_said(monkeypatch):
    monkeypatch.setattr("clockhands.measures.ladders.base_bound._MOST_COSINES", 2**16)
    first_failing_distance.cache_clear()
    found = bound(Rotary(head_width=64, base=1e9), 10**6)
    assert (found.holds, found.brief) == (None, "yes, for 2,048 tokens")
    assert found.numbers["looked_to"] == 2048
    assert not found.numbers["searched"]


# The critical dimension


def critical(spec, length, dtype="float32"):
    return critical_dimension(subject_of(spec, length, dtype, None))


def test_the_critical_dimension_of_models(cases):
    """2 ceil(d / 2 log_base(T / 2 pi)) of Llama 2, Llama 1, Llama 3, Qwen 2.5 and a small Llama."""
    for width, base, length, expected in (
        (128, 1e4, 4096, 92), (128, 1e4, 2048, 82), (128, 5e5, 8192, 70), (128, 1e6, 32768, 80), (64, 1e4, 2048, 42),
    ):  # fmt: skip
        with cases(width, base, length):
            assert 2 * math.ceil(width / 2 * math.log(length / (2 * math.pi), base)) == expected
            found = critical(Rotary(head_width=width, base=base), length)
            assert found.numbers["critical_dimension"] == found.numbers["by_formula"] == expected
            assert found.brief == f"{expected} of {width} dimensions"


def test_counting_and_the_formula_agree():
    """Below seven tokens no pair of a plain ladder turns."""
    for pairs, base, length in itertools.product((1, 2, 31, 64, 128), (1.5, 100.0, 1e4, 1e6), (1, 2, 6, 7, 100, 10**6)):
        numbers = critical(Rotary(head_width=2 * pairs, base=base), length).numbers
        assert numbers["by_formula"] == numbers["critical_dimension"], (pairs, base, length)
        assert (numbers["critical_dimension"] == 0) is (length < 7)


def test_a_formula_for_plain_ladders_is_not_used_for_others():
    assert critical(Rotary(head_width=64, scaling=Linear(factor=4.0)), 2048).numbers["by_formula"] is None
    closed = critical(Sinusoidal(width=64, spacing=Geometric(span="closed")), 8192).numbers
    assert closed["by_formula"] is None
    assert closed["critical_dimension"] == 2 * math.ceil(31 * math.log(8192 / (2 * math.pi), 1e4)) == 50
    axes = critical(Rotary(head_width=8, axes=(0, 0, 1, 1), spacing=Explicit((1.0, 0.1, 0.5, 0.01))), 100).numbers
    assert (axes["by_formula"], axes["by_axis"]) == (None, [4, 2])
