"""Which distances a head tells apart: rounding by whole numbers and fractions, pairs one by one."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.biases import Alibi, Buckets, CeilingBuckets, Clipped, Decay, Fire, Kerple, Window
from clockhands.measures.biases.apart import distinct, told_apart
from clockhands.measures.subject import subject_of
from laws.bias_members import values_for
from oracles.real_numbers import bfloat16, float16


def told(spec, length=2048, dtype="float32", values=None):
    found = told_apart(subject_of(spec, length, dtype, values))
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.brief) <= 40
    return found


def merged(numbers):
    """The first two places with one number, one by one."""
    seen = {}
    for place, number in enumerate(numbers):
        if number in seen:
            return [seen[number], place]
        seen[number] = place
    return None


@pytest.mark.parametrize(("dtype", "rounded"), [("bfloat16", bfloat16), ("float16", float16)])
def test_other_slopes_merge_where_their_own_products_round_to_one_number(dtype, rounded):
    for spec, length in ((Alibi(12), 100), (Alibi(12), 700), (Decay(1), 300)):
        numbers = told(spec, length, dtype).numbers
        for head, slope in enumerate(spec.slopes):
            line = [rounded(float(Fraction(slope) * distance)) for distance in range(length)]
            assert numbers["distinct_by_head"][head] == len(set(line))
            assert numbers["first_merged_by_head"][head] == merged(line)


def test_in_float32_every_head_tells_every_distance():
    for dtype, length in product(("float32", "float64"), (1, 2, 2048)):
        found = told(Alibi(12), length, dtype)
        assert (found.holds, found.brief) == (True, f"yes: all {length:,}")
        assert found.numbers["first_merged_together"] is None


def test_the_key_form_merges_the_nearest_keys_of_a_late_token():
    # Slope 1/2, keys 0 to 2,047 in bfloat16: those of 1,024 and later lie 8 apart, and 2,047 rounds to 2,048.
    found = told(Alibi(8, "key"), 2048, "bfloat16")
    line = [bfloat16(0.5 * (2047 - distance)) for distance in range(2048)]
    assert found.numbers["first_merged_by_head"][0] == merged(line) == [0, 1]
    assert found.numbers["distinct_by_head"][0] == len(set(line)) == 641
    assert "gives the keys nearest to a late query equal values" in found.says
    for form in ("distance", "past", "last-key", "symmetric"):
        assert told(Alibi(8, form), 2048, "bfloat16").numbers["first_merged"] == [256, 257]


def test_what_shares_a_bucket_is_never_told_apart(cases):
    for spec, count, pair in (
        (Buckets(4), 16, [8, 9]),
        (Buckets(4, bidirectional=False), 32, [16, 17]),
        (CeilingBuckets(4), 256, [131, 132]),
        (Clipped(4, 8), 8, [7, 8]),
    ):
        for length in (5, 2048, 2**63):
            with cases(spec, length):
                found = told(spec, length)
                assert (found.numbers["values_known"], found.holds) == (False, length == 5)
                assert found.numbers["distinct_by_head"] == [min(count, length)]
                assert found.numbers["first_merged"] == (pair if length > 5 else None)


def test_learned_numbers_are_compared_distance_by_distance(cases):
    bucketed = Buckets(4), Buckets(4, bidirectional=False), CeilingBuckets(4, 8, 32), Clipped(4, 16)
    dtypes = ("float64", "float32", "float16", "bfloat16")
    for spec, dtype, length in product((*bucketed, Kerple(4), Fire(4)), dtypes, (17, 300)):
        with cases(spec, dtype, length):
            values = values_for(spec)
            numbers = told(spec, length, dtype, values).numbers
            line = ch.bias(spec, [length - 1], range(length), values=values, dtype=dtype)[:, 0, ::-1].astype(np.float64)
            for head, row in enumerate(line.tolist()):
                assert numbers["distinct_by_head"][head] == len(set(row))
                assert numbers["first_merged_by_head"][head] == merged(row)
            together = [tuple(column) for column in line.T.tolist()]
            assert numbers["distinct_together"] == len(set(together))
            assert numbers["first_merged_together"] == merged(together)


def test_two_learned_numbers_that_differ_by_less_than_bfloat16_tells():
    table = np.linspace(0, 1, 32)[:, None] * [[1.0, 1.0]]
    table[3, 1] = table[2, 1] * (1 + 2**-10)
    spec = Buckets(2, bidirectional=False)
    assert told(spec, 17, "float32", table).holds is True
    assert told(spec, 17, "bfloat16", table).numbers["first_merged_by_head"] == [None, [2, 3]]
    assert told(spec, 17, "bfloat16", table).numbers["first_merged_together"] is None, "the other head tells them"


def test_a_window_tells_steps_not_distances():
    found = told(Window(3, 7, 7), 2048)
    assert (found.holds, found.numbers["distances"]) == (True, 169)
    spec = Window(2, 2, 2)
    table = np.arange(18.0).reshape(9, 2)
    table[5, 0] = table[2, 0]
    known = told(spec, 4, values=table).numbers
    assert known["distinct_by_head"] == [8, 9]
    assert known["first_merged_by_head"] == [[2, 5], None]
    assert known["distinct_together"] == 9
    # Two tokens of a line take the rows 3, 4 and 5 alone: the merged one is not among pairs of them.
    assert told(spec, 2, values=table).numbers["distinct_by_head"] == [3, 3]


def test_counting_finds_the_first_two_and_not_any_two():
    numbers = np.array([[3.0, 1.0, 2.0, 1.0, 3.0], [0.0, -0.0, 1.0, 2.0, 3.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    assert distinct(numbers) == ([3, 4, 5], [[1, 3], [0, 1], None])
    assert distinct(np.zeros((2, 1))) == ([1, 1], [None, None])
