"""Biases in real numbers: mpmath, fractions and whole numbers, sharing nothing with the library."""

import math
from decimal import Context, DefaultContext, Inexact, Rounded, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clockhands as ch
from clockhands.encodings.biases import (
    Alibi,
    Buckets,
    CeilingBuckets,
    Clipped,
    Decay,
    Fire,
    Kerple,
    LogWindow,
    Window,
    row_numbers,
)
from oracles.real_numbers import bfloat16, float16, mp, mpf
from oracles.rows import every

FAR = 2**63
# Slope, distance and their product are each the nearest float64.
LINE = 3 * 2.0**-53


def relative(got, wanted):
    return float(max(abs(mpf(float(a)) / b - 1) if b else abs(mpf(float(a))) for a, b in zip(got, wanted, strict=True)))


def real_slopes(heads, octaves=8.0, series="powers"):
    """The slopes by the paper's own recursion."""

    def power(n):
        return [mpf(2) ** (-mpf(octaves) * (head + 1) / n) for head in range(n)]

    below = 2 ** (len(bin(heads)) - 3)
    if below == heads or series == "plain":
        return power(heads)
    return power(below) + power(2 * below)[0::2][: heads - below]


# --- slopes -----------------------------------------------------------------------------------------------------


@every("series", ["powers", "plain"])
def test_slopes_are_the_nearest_float64(series, draw):
    for octaves in (8.0, 4.0, 16.0, 0.1, 300.0):
        # All numbers of heads for what is published, a third of them for each other number of octaves.
        for heads in (*(range(1, 34) if octaves == 8.0 else draw(range(1, 34), 11)), 40, 71, 112, 128, 129):
            real = real_slopes(heads, octaves, series)
            assert relative(Alibi(heads, series=series, octaves=octaves).slopes, real) <= 2.0**-53


def test_the_oracle_of_slopes_can_fail():
    wrong = [math.nextafter(slope, 1) for slope in Alibi(12).slopes]
    assert relative(wrong, real_slopes(12)) > 2.0**-53


def test_decays_are_the_nearest_float64():
    for first in (1, 5, 50):
        with mp.workdps(120):
            real = [-mp.log(1 - mpf(2) ** (-first - head)) for head in range(80)]
        assert relative(Decay(80, first).slopes, real) <= 2.0**-53


def test_nothing_depends_on_the_callers_decimal_context():
    wanted = Alibi(12).slopes, Decay(9).slopes, Buckets(1).boundaries, CeilingBuckets(1).boundaries
    traps = dict.fromkeys(DefaultContext.traps, False) | {Inexact: True, Rounded: True}
    with localcontext(Context(prec=3, traps=[trap for trap, on in traps.items() if on])):
        fresh = Alibi(12), Decay(9), Buckets(1), CeilingBuckets(1)
        assert (fresh[0].slopes, fresh[1].slopes, fresh[2].boundaries, fresh[3].boundaries) == wanted


# --- straight lines at any distance -----------------------------------------------------------------------------

POSITIONS = st.integers(-FAR, FAR)
WHOLE = st.lists(POSITIONS, min_size=1, max_size=6)


def tokens(form, query, key, last):
    """What each form multiplies a slope by, in whole numbers."""
    forms = {
        "distance": key - query,
        "past": -max(query - key, 0),
        "symmetric": -abs(query - key),
        "key": key,
        "last-key": key - last,
    }
    return forms[form]


@pytest.mark.parametrize("form", ["distance", "past", "symmetric", "key", "last-key"])
@given(queries=WHOLE, keys=WHOLE)
def test_lines_are_exact_at_any_position(form, queries, keys):
    spec = Alibi(3, form)
    made = ch.bias(spec, queries, keys, dtype="float64")
    for head, slope in enumerate(real_slopes(3)):
        real = [slope * tokens(form, q, k, keys[-1]) for q in queries for k in keys]
        assert relative(made[head].ravel(), real) <= LINE


@given(queries=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), keys=WHOLE)
def test_real_positions_mean_the_numbers_they_hold(queries, keys):
    made = ch.bias(Alibi(1, "symmetric"), queries, keys, dtype="float64")[0]
    for row, query in zip(made, queries, strict=True):
        for number, key in zip(row, keys, strict=True):
            real = -abs(Fraction(query) - key) / 256
            # The distance within 2**-53 of its size plus 2**-53, and one product.
            assert abs(Fraction(float(number)) - real) <= Fraction(1, 2**52) * abs(real) + Fraction(1, 2**61)


@every("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_each_dtype_is_rounded_to_once(dtype):
    import ml_dtypes

    exact = ch.bias(Alibi(12), 1, 300, dtype="float64")
    made = ch.bias(Alibi(12), 1, 300, dtype=dtype)
    assert made.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    once = {"bfloat16": bfloat16, "float16": float16}.get(dtype, np.dtype(made.dtype).type)
    assert all(float(a) == float(once(float(b))) for a, b in zip(made.ravel(), exact.ravel(), strict=True))


# --- buckets ----------------------------------------------------------------------------------------------------


def t5_bucket(relative_position, buckets, most, bidirectional):
    """The bucket of ``key - query``, by whole numbers alone."""
    row = 0
    if bidirectional:
        buckets //= 2
        row = buckets if relative_position > 0 else 0
        distance = abs(relative_position)
    else:
        distance = max(-relative_position, 0)
    exact = buckets // 2
    if distance < exact:
        return row + distance
    steps, bucket = buckets - exact, 0
    # The largest k with exact (most / exact) ** (k / steps) <= distance.
    while bucket < steps - 1 and distance**steps >= most ** (bucket + 1) * exact ** (steps - bucket - 1):
        bucket += 1
    return row + exact + bucket


@given(
    half=st.integers(2, 40),
    most=st.integers(1, 5_000),
    bidirectional=st.booleans(),
    positions=st.lists(st.integers(-6_000, 6_000), min_size=1, max_size=20),
)
def test_t5_buckets_by_whole_numbers(half, most, bidirectional, positions):
    spec = Buckets(1, 2 * half, most + half, bidirectional)
    made = row_numbers(spec, [0], positions)[0].tolist()
    assert made == [t5_bucket(position, 2 * half, most + half, bidirectional) for position in positions]


def deberta_row(distance, span, most):
    """The row of ``query - key``, by whole numbers alone."""
    middle = span // 2
    if abs(distance) <= middle:
        return distance + span
    steps, bucket = middle - 1, 0
    # The smallest k with |distance| <= middle ((most - 1) / middle) ** (k / steps); span - middle is cut off anyway.
    while bucket < span - middle and abs(distance) ** steps > (most - 1) ** bucket * middle ** (steps - bucket):
        bucket += 1
    signed = (middle + bucket) * (1 if distance > 0 else -1)
    return max(0, min(signed + span, 2 * span - 1))


@given(
    span=st.integers(4, 80),
    most=st.integers(2, 3_000),
    distances=st.lists(st.integers(-4_000, 4_000), min_size=1, max_size=20),
)
def test_deberta_buckets_by_whole_numbers(span, most, distances):
    spec = CeilingBuckets(1, span, most + span // 2)
    made = row_numbers(spec, distances, [0])[:, 0].tolist()
    assert made == [deberta_row(distance, span, most + span // 2) for distance in distances]


def test_the_oracle_of_buckets_can_fail():
    assert t5_bucket(-54, 48, 81, False) == 40
    assert t5_bucket(-53, 48, 81, False) == 39
    assert deberta_row(12, 18, 17) == 13 + 18
    assert [deberta_row(distance, 5, 8) - 5 for distance in (7, 8, 24, 25, -25)] == [3, 4, 4, 4, -5]


@every("spec", [Buckets(2), Buckets(2, bidirectional=False), CeilingBuckets(2), Clipped(2)])
def test_buckets_at_the_ends_of_the_positions(spec):
    rows = row_numbers(spec, [-FAR, 0, FAR], [-FAR, FAR])
    near = row_numbers(spec, [-5_000, 0, 5_000], [-5_000, 5_000])
    assert np.array_equal(rows, near)  # all beyond the last boundary, or 0
    wide = Buckets(1, 64, FAR, bidirectional=False)
    assert row_numbers(wide, [FAR, FAR - 1], [0])[:, 0].tolist() == [63, 63]
    assert row_numbers(wide, [FAR], [-FAR])[0, 0] == 63


@every("spec", [Buckets(3, 16, 64), CeilingBuckets(3, 8, 32), CeilingBuckets(3, 9, 32), Clipped(3, 6)])
def test_every_row_is_some_distances(spec):
    rows = row_numbers(spec, range(-5_000, 5_000), 1)
    missing = set(range(spec.rows)) - set(rows.ravel().tolist())
    # T5 counts the distance 0 with the keys before, so the first bucket of the other half stays empty.
    assert missing == ({8} if isinstance(spec, Buckets) else set())


def test_a_scale_multiplies_what_is_looked_up():
    table = np.random.default_rng(0).standard_normal((32, 2))
    plain, scaled = (ch.bias(Buckets(2, scale=scale), 9, 9, values=table, dtype="float64") for scale in (1.0, 8.0))
    assert np.array_equal(scaled, 8 * plain)
    assert np.array_equal(plain, table[row_numbers(Buckets(2), 9, 9)].transpose(2, 0, 1))


# --- kernels ----------------------------------------------------------------------------------------------------


@every("kernel", ["log", "power"])
@every("symmetric", [False, True])
def test_kerple_in_real_numbers(kernel, symmetric):
    p, a = np.array([0.02, 0.7, 2.0]), np.array([0.01, 0.9, 5.0])
    queries, keys = [0, 5, 10**6, 10**18], [0, 7, 999_999, 10**18 - 1]
    made = ch.bias(Kerple(3, kernel, symmetric), queries, keys, values={"p": p, "a": a}, dtype="float64")
    for head in range(3):
        for row, query in zip(made[head], queries, strict=True):
            for number, key in zip(row, keys, strict=True):
                d = mpf(abs(query - key) if symmetric else max(query - key, 0))
                power, factor = mpf(p[head]), mpf(a[head])
                real = -power * mp.log(1 + factor * d) if kernel == "log" else -factor * d**power
                bound = (4 + 2 * abs(float(power * mp.log(d)) if d else 0)) * 2.0**-53
                assert abs(mpf(float(number)) - real) <= bound * abs(real)


def test_fire_in_real_numbers():
    draw = np.random.default_rng(3)
    spec = Fire(2, hidden=4)
    values = {name: draw.standard_normal(shape) for name, shape in spec.shapes.items()} | {"threshold": np.float64(6)}
    queries, keys = [0, 3, 40, 10**12], [0, 3, 11, 10**12 + 4]
    made = ch.bias(spec, queries, keys, values=values, dtype="float64")
    rate = abs(mpf(float(values["c"])))
    for i, query in enumerate(queries):
        below = mp.log(1 + rate * max(query, 6)) + mpf(spec.epsilon)
        for j, key in enumerate(keys):
            share = mp.log(1 + rate * max(query - key, 0)) / below
            hidden = [
                max(mpf(w) * share + mpf(b), mpf(0)) for w, b in zip(values["w1"][:, 0], values["b1"], strict=True)
            ]
            for head in range(2):
                terms = [mpf(w) * h for w, h in zip(values["w2"][head], hidden, strict=True)] + [
                    mpf(values["b2"][head])
                ]
                size = float(sum(map(abs, terms)))
                assert abs(float(mpf(float(made[head, i, j])) - sum(terms))) <= 40 * 2.0**-53 * (1 + size)


# --- windows ----------------------------------------------------------------------------------------------------


@every("height, width", [(1, 1), (1, 5), (4, 5), (7, 7)])
@every("class_token", [False, True])
def test_window_rows_by_hand(height, width, class_token):
    spec = Window(2, height, width, class_token)
    tokens = height * width + class_token
    made = row_numbers(spec, tokens, tokens)
    rows = (2 * height - 1) * (2 * width - 1)
    places = [None] * class_token + [(y, x) for y in range(height) for x in range(width)]
    for i, query in enumerate(places):
        for j, key in enumerate(places):
            if query is None or key is None:
                wanted = rows + (2 if query is key else 0 if query is None else 1)
            else:
                down, across = query[0] - key[0], query[1] - key[1]
                wanted = (down + height - 1) * (2 * width - 1) + across + width - 1
            assert made[i, j] == wanted
    assert set(made.ravel().tolist()) == set(range(spec.rows)) - (set() if tokens > 1 or not class_token else {0})


def test_log_window_in_real_numbers():
    draw = np.random.default_rng(4)
    spec = LogWindow(2, 3, 4, (7, 9), hidden=5)
    values = {name: draw.standard_normal(shape) for name, shape in spec.shapes.items()}
    made = ch.bias(spec, 12, 12, values=values, dtype="float64")
    for query in range(12):
        for key in range(12):
            steps = [(query // 4 - key // 4, 6), (query % 4 - key % 4, 8)]
            given_to = [mp.sign(step) * mp.log(1 + mpf(8) * abs(step) / size, 2) / 3 for step, size in steps]
            hidden = [
                max(sum(mpf(w) * x for w, x in zip(row, given_to, strict=True)) + mpf(b), mpf(0))
                for row, b in zip(values["w1"], values["b1"], strict=True)
            ]
            for head in range(2):
                real = 16 / (1 + mp.exp(-sum(mpf(w) * h for w, h in zip(values["w2"][head], hidden, strict=True))))
                assert abs(float(made[head, query, key] - real)) < 1e-13
    whole = LogWindow(1, 1, 1).coordinates()
    assert whole.tolist() == [[[0.0, 0.0]]]
