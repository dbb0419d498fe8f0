"""Where buckets begin, against the formula in whole numbers and against every pair of a square."""

import math
from itertools import product

import numpy as np

from clockhands.encodings.biases import Buckets, CeilingBuckets, Clipped, LogWindow, Window, row_numbers
from clockhands.measures.biases.edges import edges, rows_of_window, sides
from clockhands.measures.subject import subject_of

BUCKETED = [
    Buckets(2),
    Buckets(2, bidirectional=False),
    Buckets(1, 4, 2),
    Buckets(2, bidirectional=False, epsilon=2.0**-23),
    CeilingBuckets(2, 8, 64),
    CeilingBuckets(1, 4, 4),
    CeilingBuckets(1, 9, 64),
    Clipped(2, 8),
    Clipped(1, 1),
]


def told(spec, length=512, dtype="float32"):
    return edges(subject_of(spec, length, dtype, None))


def bucket(distance, exact, steps, last):
    """T5's bucket in whole numbers: the largest step k with ``exact (last / exact) ** (k / steps) <= distance``."""
    if distance < exact:
        return distance
    return exact + max(k for k in range(steps) if distance**steps >= last**k * exact ** (steps - k))


def begins(exact, steps, last):
    rows = [bucket(distance, exact, steps, last) for distance in range(last + 50)]
    return [distance for distance in range(last + 50) if not distance or rows[distance] != rows[distance - 1]]


def test_the_encoder_of_t5_has_one_bucket_from_91_on_and_the_decoder_from_113(cases):
    for length, dtype in product((17, 2048), ("float32", "float16", "bfloat16")):
        with cases(length, dtype):
            both, one = (told(Buckets(12, bidirectional=each), length, dtype) for each in (True, False))
            assert both.numbers["first_distances_before"] == begins(8, 8, 128)
            assert both.numbers["first_distances_before"][8:] == [8, 12, 16, 23, 32, 46, 64, 91]
            assert both.numbers["first_distances_after"] == both.numbers["first_distances_before"]
            assert one.numbers["first_distances_before"] == begins(16, 16, 128)
            assert one.numbers["first_distances_after"] == [0]
            assert (both.numbers["last_from_before"], one.numbers["last_from_before"]) == (91, 113)
            assert (both.numbers["exact_through_before"], one.numbers["exact_through_before"]) == (7, 15)
            assert one.brief == "each to 15, then wider, one from 113"
            assert (both.state, both.holds) == ("measured", None)


def test_a_formula_that_is_off_by_one_step_would_be_noticed():
    assert begins(8, 8, 129) != begins(8, 8, 128)
    assert told(Buckets(12, max_distance=129)).numbers["first_distances_before"] == begins(8, 8, 129)


def test_rows_at_the_edges_of_t5_and_of_clipped_distances():
    # It would be a key after the query at the distance 0.
    assert told(Buckets(12)).numbers["rows_never_used"] == [16]
    assert "row 16 is used at no length" in told(Buckets(12)).says
    assert told(Buckets(12, bidirectional=False)).numbers["rows_never_used"] == []
    numbers = told(Clipped(1, 8)).numbers
    assert (numbers["last_from_before"], numbers["last_from_after"]) == (7, 8)
    assert numbers["first_distances_after"] == list(range(9))


def test_the_rows_used_are_those_of_every_pair_of_a_square(cases):
    for spec, length in product(BUCKETED, (1, 2, 17, 150)):
        with cases(spec, length):
            taken = set(row_numbers(spec, range(length), range(length)).reshape(-1).tolist())
            numbers = told(spec, length).numbers
            assert set(range(spec.rows)) - taken == set(numbers["rows_unused"])
            assert numbers["rows_used"] == len(taken)


def test_each_side_begins_where_the_row_of_a_distance_changes(cases):
    for spec in BUCKETED:
        before, after = row_numbers(spec, range(300), [0])[:, 0], row_numbers(spec, [0], range(300))[0]
        for side, rows in zip(sides(spec), (before, after), strict=True):
            with cases(spec):
                changes = [at for at in range(300) if not at or rows[at] != rows[at - 1]]
                assert list(side.firsts) == changes
                assert list(side.rows) == rows[changes].tolist()
                alone = [at for at in range(299) if rows[at] not in rows[at + 1 :] and rows[at] not in rows[:at]]
                assert side.exact_through == next(at for at in range(300) if at not in alone) - 1


def test_the_buckets_of_deberta_keep_three_distances_more_apart_than_half_of_the_span():
    # ceil(128 + 127 ln(d / 128) / ln(511 / 128)) for d = 129, 130, … by hand: the formula of the paper in floats.
    rounded_up = [math.ceil(128 + 127 * math.log(d / 128) / math.log(511 / 128) - 1e-9) for d in range(128, 140)]
    assert rounded_up[:6] == [128, 129, 130, 131, 131, 132] or rounded_up[3] == rounded_up[4]
    shared = 128 + next(at for at in range(11) if rounded_up[at] == rounded_up[at + 1])
    found = told(CeilingBuckets(24))
    assert found.numbers["exact_through_before"] == shared - 1 == 130
    assert found.numbers["last_from_after"] == 512


def test_the_rows_of_a_window_are_those_that_its_first_tokens_take(cases):
    windows = Window(1, 3, 4), Window(1, 3, 4, class_token=True), Window(1, 1, 5), Window(1, 1, 1, True)
    for spec in (*windows, LogWindow(1, 4, 2)):
        with cases(spec):
            for length in range(1, spec.tokens + 1):
                taken = np.zeros(spec.rows, bool)
                taken[np.unique(row_numbers(spec, range(length), range(length)))] = True
                assert (taken == rows_of_window(spec, length)).all()
            assert rows_of_window(spec, 10**6).all(), "of a window that is full, every row is taken"


def test_a_window_has_a_row_for_each_step_and_three_for_its_class_token():
    numbers = told(Window(12, 14, 14, class_token=True)).numbers
    assert (numbers["rows"], numbers["tokens"], numbers["rows_used"]) == (27 * 27 + 3, 197, 732)
    assert told(Window(3, 7, 7), 8).numbers["rows_used"] == 13 + 2 * 7, "one line, and one token of the next"
