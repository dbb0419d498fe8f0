"""The bound of Men et al. by its definition, and the critical dimension of Liu et al. by its formula."""

import math

import pytest

from clockhands.ladders import geometric
from clockhands.measures.base_bound import farthest_looked_at, first_failing_distance


def failing(rates, limit):
    """The same by the definition."""
    return next((m for m in range(1, limit) if math.fsum(math.cos(m * rate) for rate in rates) < 0), None)


@pytest.mark.parametrize(
    ("width", "base", "first"), [(128, 1e4, 1707), (128, 5e5, 18438), (128, 1e6, 27115), (64, 1e4, 725)]
)
def test_the_first_distance_at_which_a_ladder_fails(width, base, first):
    rates = geometric(width // 2, base).rates
    assert first_failing_distance(rates, 40_000) == first
    assert first_failing_distance(rates, first + 1) == first
    assert first_failing_distance(rates, first) is None


@pytest.mark.parametrize("rates", [(1.0,), (3.0, 0.1), (0.01, 0.0001), geometric(32, 10.0).rates])
def test_it_is_the_first_by_the_definition(rates):
    assert first_failing_distance(rates, 5000) == failing(rates, 5000)


def test_the_bound_has_gaps():
    """At 8,192 positions base 84,099 holds and a larger one, 90,000, does not."""
    assert first_failing_distance(geometric(64, 84_099.0).rates, 8192) is None
    assert first_failing_distance(geometric(64, 90_000.0).rates, 8192) == 6581
    assert first_failing_distance(geometric(64, 124_000.0).rates, 8192) is None


def test_half_a_head_that_stands_still_never_fails():
    rates = (0.1,) * 8
    assert first_failing_distance((*rates, *(0.0,) * 7), 1000) == 27
    assert first_failing_distance((*rates, *(0.0,) * 8), 1000) is None
    assert first_failing_distance((), 1000) is None


def test_a_hostile_context_ends_and_how_far_was_looked_is_known():
    assert farthest_looked_at(64, 2**53) == 2**23
    assert farthest_looked_at(64, 4096) == 4096
    assert first_failing_distance((1e-30,) * 64, 2**53) is None
    assert first_failing_distance((1e-30,) * 2**19, 2**53) is None
