"""What of an encoding is new past the length, held to what all positions and distances of a longer text really have."""

from itertools import product

import mpmath
import numpy as np

import clockhands as ch
from clockhands.encodings.additive import Binary, Counter, FourierFeatures, NormalizedCounter, SineOnly, WarpedPosition
from clockhands.encodings.biases import Buckets, Clipped, Decay, Fire, Kerple, row_numbers
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.rotary import XPos
from clockhands.encodings.scaling import Linear, Proportional
from clockhands.measures import longer_texts
from clockhands.measures.subject import subject_of


def found(spec, length, values=None):
    return longer_texts(subject_of(spec, length, "float32", values))


def arcs_that_grow(rates, length, longest):
    """How many pairs turn, past the length, to an angle that is outside of the arc from 0 to the last one within it."""
    grown = 0
    with mpmath.workdps(40):
        for rate in map(mpmath.mpf, rates):
            arc = rate * length  # up to the position that comes next, which is where the next angle is
            turned = (rate * position % (2 * mpmath.pi) for position in range(length, longest))
            grown += rate > 0 and arc < 2 * mpmath.pi and any(angle >= arc - rate / 2 for angle in turned)
    return grown


def test_pairs_that_reach_new_angles_are_those_whose_arc_grows(cases):
    turning = ch.Rotary(16), ch.Rotary(16, base=500.0), ch.Rotary(16, scaling=Linear(4.0)), ch.Sinusoidal(16)
    for spec, length in product(turning, (7, 64, 700)):
        with cases(spec, length):
            told = found(spec, length)
            rates = spec.rates if isinstance(spec, ch.Rotary) else spec.ladder.rates
            assert told.numbers["new"] == arcs_that_grow(rates, length, 2 * length)
            assert told.numbers["total"] == len(rates)
            assert told.holds == (told.numbers["new"] == 0)
            assert told.numbers["first_new"] == (length if told.numbers["new"] else None)
            assert told.numbers["defined"]


def test_a_pair_that_never_rotates_is_not_new():
    spec = ch.Rotary(8, spacing=Explicit((2.0, 1.0, 0.001, 0.0)))
    assert (found(spec, 100).numbers["new"], found(spec, 6284).numbers["new"]) == (1, 0)
    assert found(spec, 6284).holds
    assert "1 of 4 never rotate." in found(spec, 6284).says
    assert found(ch.Rotary(128, scaling=Proportional(0.25)), 2048).holds is True


def test_buckets_past_the_length_are_those_of_the_row_numbers(cases):
    t5 = Buckets(heads=2), Buckets(heads=2, buckets=8, max_distance=16), Buckets(heads=2, bidirectional=False)
    for spec in (*t5, ch.preset("deberta-v2", heads=2), Clipped(heads=2, span=20)):
        rows = row_numbers(spec, range(3000), [0])[:, 0]
        for length in (1, 3, 12, 100, 300):
            with cases(spec, length):
                new = length + np.flatnonzero(~np.isin(rows[length:], rows[:length]))
                told = found(spec, length)
                assert told.numbers["first_new"] == (new[0] if len(new) else None)
                assert told.holds == (not len(new))


def test_a_bias_without_buckets_is_new_at_every_distance_past_the_length(cases):
    kernel, length = {"p": np.array([1.0, 0.5]), "a": np.array([1.0, 2.0])}, 40
    alibi = [(ch.Alibi(4, form), None) for form in ("distance", "symmetric", "key")]
    for spec, values in (*alibi, (Decay(4), None), (Kerple(2), kernel)):
        with cases(spec):
            told = found(spec, length, values)
            assert (told.holds, told.numbers["first_new"], told.numbers["new"]) == (False, length, spec.heads)
            row = ch.bias(spec, [2 * length - 1], range(2 * length), values=values, dtype="float64")[:, 0, ::-1]
            falls = row[:, :1] - row
            assert (falls[:, length:] > falls[:, :length].max(axis=1, keepdims=True)).all()


def test_fire_sees_all_shares_where_a_query_reaches_its_threshold(cases):
    spec, drawn = Fire(2, hidden=4), np.random.default_rng(3)
    values = {name: drawn.normal(size=shape) for name, shape in spec.shapes.items()} | {"c": np.array(1.0)}
    for threshold, holds in ((16.0, True), (63.0, True), (64.0, False), (1000.0, False)):
        with cases(threshold):
            told = found(spec, 64, values | {"threshold": np.array(threshold)})
            assert told.holds is holds
            share = [np.log1p(place) / (np.log1p(max(place, threshold)) + spec.epsilon) for place in range(128)]
            assert (max(share[64:]) > max(share[:64]) + 1e-6) is not holds


def test_binary_digits_are_new_where_a_longer_number_begins():
    """Past 9 the next digit begins at 16. Four digits start again there: nothing past it is new, if not unique."""
    for length, first in ((5, 8), (8, 8), (9, 16), (100, 128)):
        told = found(Binary(width=10), length)
        assert (told.numbers["first_new"], told.numbers["new"]) == (first, 1)
        assert told.brief == "no: 1 of 10 channels new"
    assert found(Binary(width=4), 16).holds is True


def test_counters_are_new_in_every_channel():
    numbers = found(Counter(width=3), 50).numbers
    assert (numbers["first_new"], numbers["new"]) == (50, 3)
    shares = found(NormalizedCounter(width=3, length=50), 50)
    assert (shares.holds, shares.numbers["new"]) == (False, 3)
    assert "a size that did not occur" in shares.says


def test_a_learned_table_ends_or_has_rows_that_no_short_text_uses():
    assert found(ch.Learned(width=8, rows=64), 64).numbers | {"total": 0} == {
        "defined": False, "last_position": 63, "of": "rows", "total": 0, "new": 0, "first_new": None, "looked_to": None,
    }  # fmt: skip
    told = found(ch.Learned(width=8, rows=66, offset=2), 60)
    assert (told.holds, told.numbers["new"], told.numbers["first_new"], told.numbers["last_position"]) == (
        False, 4, 60, 63,
    )  # fmt: skip


def test_others():
    assert found(ch.NoPosition(width=8), 10).holds is True
    assert found(ch.Rotary(16, xpos=XPos()), 10**4).numbers["new"] == 8
    assert found(SineOnly(width=4), 10**6).brief == "yes: all angles seen"
    assert found(WarpedPosition(width=8, warp="log"), 100).numbers["first_new"] == 101
    assert found(ch.preset("swin"), 49).numbers["defined"] is False
    beside = FourierFeatures(width=7, axes=1, raw="before")
    assert found(beside, 100, np.ones(3)).brief == "no: raw coordinates grow"


def test_every_answer_says_that_models_have_to_be_measured_or_that_nothing_is_there():
    for spec in (ch.Rotary(16), ch.Alibi(4), Buckets(heads=2), ch.Sinusoidal(8), ch.NoPosition(8), Counter(8)):
        assert found(spec, 100).says.endswith("Whether a model works there has to be measured.")
