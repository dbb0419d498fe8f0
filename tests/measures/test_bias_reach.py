"""How far a head looks: slopes by hand, formulas by mpmath, learned numbers by looking at every distance."""

import json
import math
from itertools import product

import numpy as np
import pytest
from mpmath import mp, mpf

import clockhands as ch
from clockhands.encodings.biases import Alibi, Buckets, CeilingBuckets, Clipped, Decay, Fire, Kerple, LogWindow, Window
from clockhands.measures.biases.reach import reach
from clockhands.measures.subject import subject_of
from laws.bias_members import values_for

U = 2.0**-53
FALLS = {"half_weight": mp.log(2), "fall_of_one": mpf(1), "hundredth_weight": mp.log(100)}


def told(spec, length=2048, dtype="float32", values=None):
    found = reach(subject_of(spec, length, dtype, values))
    json.dumps(found.to_dict(), allow_nan=False)
    assert len(found.brief) <= 40
    return found


def relative(got, wanted):
    return float(abs(mpf(got) / wanted - 1))


def test_eight_heads_of_alibi_look_9_to_1179_tokens_back(cases):
    for dtype, length in product(("float32", "float16", "bfloat16"), (64, 2048)):
        with cases(dtype, length):
            found = told(Alibi(8), length, dtype)
            numbers = found.numbers
            for each, fall in FALLS.items():
                for head, distance in enumerate(numbers[f"{each}_distance_by_head"]):
                    assert relative(distance, fall * 2 ** (head + 1)) <= 3.01 * U
            # ln 100 = 4.60517: twice that is 9.21 tokens, 256 times that 1,179.
            assert found.brief == "9.21 to 1,179 tokens"
            assert (numbers["shortest_reach_head"], numbers["longest_reach_head"]) == (0, 7)
            for head, weight in enumerate(numbers["farthest_weight_by_head"]):
                fall = mpf(length - 1) / 2 ** (head + 1)
                assert relative(weight, mp.exp(-fall)) <= (3 + 5 * fall) * U or (weight == 0 and fall > 746)
            # Head 3 falls by 63 / 16 = 3.94 within 64 tokens, head 2 by 7.9: above and below ln 100 = 4.61.
            assert numbers["heads_seeing_all"] == {64: 5, 2048: 0}[length]


def test_heads_that_are_no_power_of_two_are_in_the_order_of_their_slopes():
    numbers = told(Alibi(12)).numbers
    slopes = [2.0**-head for head in range(1, 9)] + [2.0 ** -(head + 0.5) for head in range(4)]
    assert np.allclose(numbers["slopes_by_head"], slopes, rtol=1e-15)
    assert numbers["shortest_reach_head"] == 8, "the steepest of twelve is the ninth"


def test_all_forms_of_alibi_look_as_far(cases):
    for form in ("distance", "past", "symmetric", "key", "last-key"):
        with cases(form):
            found = told(Alibi(4, form))
            assert found.numbers["hundredth_weight_distance_by_head"] == [
                math.log(100) * 4.0**head for head in range(1, 5)
            ]
            # Below a causal mask a row of each is that of the distances, but for a constant.
            row = ch.bias(Alibi(4, form), 1, 9, dtype="float64")[:, 0]
            plain = ch.bias(Alibi(4), 1, 9, dtype="float64")[:, 0]
            assert (row - row[:, -1:] == plain).all()


def test_what_keys_after_the_query_get_is_what_the_bias_gives_them(cases):
    for form in ("past", "symmetric"):
        with cases(form):
            said = told(Alibi(2, form)).numbers["keys_after"]
            after = ch.bias(Alibi(2, form), [5], range(5, 9))[0, 0].tolist()
            before = ch.bias(Alibi(2, form), [5], range(5, 1, -1))[0, 0].tolist()
            assert (after == before) == (said == "as before")
            assert (after == [0.0] * 4) == (said == "as itself")


def test_retention_decays_by_its_gamma(cases):
    for length in (100, 4096):
        with cases(length):
            numbers = told(Decay(8), length).numbers
            for head in range(8):
                gamma = 1 - mpf(2) ** (-5 - head)
                assert (
                    relative(numbers["hundredth_weight_distance_by_head"][head], -mp.log(100) / mp.log(gamma))
                    <= 3.01 * U
                )
                wanted = gamma ** (length - 1)
                assert relative(numbers["farthest_weight_by_head"][head], wanted) <= (3 - 5 * mp.log(wanted)) * U


def test_kerple_reaches_where_its_kernel_in_real_numbers_has_fallen_so_far(cases):
    for length, kernel in product((10, 2048), ("log", "power")):
        with cases(length, kernel):
            values = {"p": np.array([0.5, 1.0, 2.0, 0.05]), "a": np.array([0.25, 1.0, 0.001, 3.0])}
            numbers = told(Kerple(4, kernel), length, values=values).numbers
            for head, (p, a) in enumerate(zip(map(mpf, values["p"]), map(mpf, values["a"]), strict=True)):
                for each, fall in FALLS.items():
                    got = numbers[f"{each}_distance_by_head"][head]
                    real = (mp.exp(fall / p) - 1) / a if kernel == "log" else (fall / a) ** (1 / p)
                    if real >= mpf(2) ** 63:
                        assert got is None
                        continue
                    bound = 5 + 2 * fall / p if kernel == "log" else 4 + (2 + abs(mp.log(fall / a))) / p
                    assert relative(got, real) <= bound * U
                far = mpf(length - 1)
                fall = p * mp.log(1 + a * far) if kernel == "log" else a * far**p
                weight = numbers["farthest_weight_by_head"][head]
                assert relative(weight, mp.exp(-fall)) <= (3 + 5 * fall) * U or (weight == 0 and fall > 746)


def test_a_kernel_that_takes_more_tokens_than_there_are_positions_has_no_reach():
    values = {"p": np.array([0.01]), "a": np.array([1.0])}
    numbers = told(Kerple(1), values=values).numbers
    assert numbers["hundredth_weight_distance_by_head"] == [None], "exp(461) - 1 tokens"
    assert told(Kerple(1), values=values).brief == "to any distance"


def test_learned_numbers_reach_the_first_distance_that_has_fallen_so_far(cases):
    bucketed = Buckets(4), Buckets(4, bidirectional=False, scale=8.0), CeilingBuckets(4, 8, 32), Clipped(4, 16)
    for spec, length in product((*bucketed, Fire(4)), (1, 2, 17, 600)):
        with cases(spec, length):
            values = values_for(spec)
            numbers = told(spec, length, values=values).numbers
            # Every distance, one by one: of tables past the last bucket, of FIRE within the length from its last token.
            number = length if isinstance(spec, Fire) else 200
            line = ch.bias(spec, [number - 1], range(number), values=values, dtype="float64")[:, 0, ::-1]
            last = min(length, number) - 1
            for head, row in enumerate(line):
                for each, fall in FALLS.items():
                    fallen = [at for at in range(number) if row[0] - row[at] >= float(fall)]
                    assert numbers[f"{each}_distance_by_head"][head] == (fallen[0] if fallen else None)
                assert numbers["farthest_fall_by_head"][head] == row[0] - row[last]
                assert numbers["strongest_distance_by_head"][head] == row[: last + 1].argmax()


def test_windows_reach_by_the_mean_of_all_steps_of_one_size():
    # 3 x 3: one step of size 0, eight of size 1, sixteen of size 2.
    sizes = np.array([[max(abs(y), abs(x)) for x in range(-2, 3)] for y in range(-2, 3)])
    table = np.stack([-3.0 * sizes, -1.0 * sizes, np.where(sizes == 1, 5.0, 0.0)], axis=-1).reshape(25, 3)
    numbers = told(Window(3, 3, 3), 9, values=table).numbers
    assert numbers["hundredth_weight_distance_by_head"] == [2, None, None]
    assert numbers["fall_of_one_distance_by_head"] == [1, 1, None]
    assert numbers["farthest_fall_by_head"] == [6.0, 2.0, 0.0]
    assert numbers["strongest_distance_by_head"] == [0, 0, 1]
    assert numbers["farthest_distance"] == 2
    assert told(Window(3, 3, 3), 2, values=table).numbers["farthest_distance"] == 1, "two tokens of a line"
    spec = Window(1, 2, 2, class_token=True)
    assert told(spec, 1, values=values_for(spec)).state == "not computed"
    assert told(spec, 2, values=values_for(spec)).numbers["farthest_distance"] == 0


def test_what_follows_from_the_spec_is_said_without_values_at_any_length():
    assert told(Buckets(2, bidirectional=False)).numbers == {"one_number_from": 113}
    assert told(LogWindow(2, 3, 3)).numbers["least_weight"] == pytest.approx(1.125e-7, rel=1e-3)
    assert told(Alibi(8, "key"), 2**63).numbers["smallest_farthest_weight"] == 0.0
    assert told(Alibi(1, octaves=5000.0), 5).brief == "to any distance"
