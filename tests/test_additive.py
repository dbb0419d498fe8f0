"""Tables of sinusoids and learned rows: exact everywhere, however a range is cut."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mpf

import clockhands as ch
from clockhands.encodings.ladders import Explicit, Geometric
from clockhands.errors import InvalidValue
from late import Late
from oracles import real_numbers, sentences
from oracles.real_numbers import FLOAT32, FLOAT64, worst_entry
from oracles.rows import every

torch = Late("torch")

NANOSECONDS = 1_790_000_000_123_456_789  # Unix time, September 2026
FAST = (7.0, 65.3, 1_000.0)
INTEGERS = st.integers(-(2**63), 2**63)
REALS = st.floats(-(2.0**63), 2.0**63, allow_nan=False)
BOUNDS = {"float32": FLOAT32, "float64": FLOAT64}
both = pytest.mark.parametrize("dtype", BOUNDS)
every_channel_order = pytest.mark.parametrize(
    ("layout", "order"), [(layout, order) for layout in ("interleaved", "halves") for order in ("sin-cos", "cos-sin")]
)


def test_the_table_of_the_paper():
    wanted = [
        [0, 1, 0, 1],
        [0.8415, 0.5403, 0.0100, 0.9999],
        [0.9093, -0.4161, 0.0200, 0.9998],
        [0.1411, -0.9900, 0.0300, 0.9996],
        [-0.7568, -0.6536, 0.0400, 0.9992],
    ]
    table = ch.table(ch.preset("vaswani2017", width=4), 5)
    assert table.dtype == np.float32
    assert np.abs(table - wanted).max() < 1e-4


# --- against real numbers --------------------------------------------------------------------------------------


@both
@every_channel_order
@given(st.lists(INTEGERS, min_size=1, max_size=4))
@example([NANOSECONDS, NANOSECONDS + 1])
@example([2**63, -(2**63), 0, -1])
@settings(max_examples=40)
def test_integers_are_exact(dtype, layout, order, positions):
    spec = ch.Sinusoidal(8, layout=layout, order=order)
    table = ch.table(spec, positions, dtype)
    assert worst_entry(table, real_numbers.geometric(4), positions, layout, order) <= BOUNDS[dtype]


@both
@given(st.lists(REALS, min_size=1, max_size=4))
@example([0.5, 0.25, -1e-300, 1_000_000.5])
@settings(max_examples=40)
def test_reals_are_exact(dtype, positions):
    spec = ch.Sinusoidal(6, spacing=Geometric(500_000.0, "closed"))
    table = ch.table(spec, positions, dtype)
    assert worst_entry(table, real_numbers.geometric(3, 500_000.0, 2), positions) <= BOUNDS[dtype]


@every("dtype", BOUNDS)
@every("position", [0.25, 0.5, 1_000_000.5, -0.75, 1e15 + 0.5])
def test_rates_above_one_turn_a_token_are_exact_at_reals(dtype, position):
    table = ch.table(ch.Sinusoidal(6, spacing=Explicit(FAST)), [position], dtype)
    assert worst_entry(table, [mpf(rate) for rate in FAST], [position]) <= BOUNDS[dtype]


@every("dtype", BOUNDS)
@every("layout, order", [(layout, order) for layout in ("interleaved", "halves") for order in ("sin-cos", "cos-sin")])
@every("run", [range(5_000), range(-300, 300), range(NANOSECONDS, NANOSECONDS + 300), range(10**6, -(10**6), -999)])
def test_runs_are_exact(dtype, layout, order, run):
    table = ch.table(ch.Sinusoidal(8, layout=layout, order=order), run, dtype)
    chosen = sorted({0, 1, 63, 64, 65, len(run) // 2, len(run) - 2, len(run) - 1, *range(0, len(run), 299)})
    at = [run[i] for i in chosen]
    assert worst_entry(table[chosen], real_numbers.geometric(4), at, layout, order) <= BOUNDS[dtype]


def test_the_check_of_entries_can_fail():
    rates = real_numbers.geometric(4)
    right = ch.table(ch.Sinusoidal(8), [3, 5], "float64")
    assert worst_entry(right, rates, [3, 5]) <= FLOAT64
    assert worst_entry(right, rates, [3, 6]) > 0.1
    assert worst_entry(right, rates, [3, 5], "halves") > 0.1
    assert worst_entry(right, rates, [3, 5], order="cos-sin") > 0.1
    assert worst_entry(right + 1e-15, rates, [3, 5]) > FLOAT64
    assert worst_entry(np.nextafter(right.astype(np.float32), np.float32(2)), rates, [3, 5]) > FLOAT32


# --- cuts ------------------------------------------------------------------------------------------------------


def test_positions_may_come_in_anything(backend):
    spec = ch.Sinusoidal(6)
    wanted = ch.table(spec, list(range(300)))
    integers = backend.asarray(np.arange(300), "int32")
    for given_ in (300, range(300), tuple(range(300)), integers, backend.asarray(np.arange(300), "float32")):
        assert np.abs(ch.table(spec, given_).astype(np.float64) - wanted).max() <= 2 * FLOAT32
    assert np.array_equal(ch.table(spec, integers), ch.table(spec, range(300)))
    grid = ch.table(spec, backend.asarray([[0, 1, 2], [7, 8, 9]], "int32"))
    assert np.array_equal(grid, ch.table(spec, [[0, 1, 2], [7, 8, 9]]))
    assert grid.shape == (2, 3, 6)


def test_no_position_and_one():
    spec = ch.Sinusoidal(6)
    for nothing in (0, [], range(5, 5), np.zeros(0), np.zeros((2, 0), int)):
        table = ch.table(spec, nothing)
        assert table.size == 0
        assert table.shape[-1] == 6
    assert np.array_equal(ch.table(spec, 1), [[0, 1, 0, 1, 0, 1]])
    assert np.array_equal(ch.table(spec, [7]), ch.table(spec, 8)[7:])


def test_arguments_are_not_changed(backend):
    positions = backend.asarray([3, 1, 2], "int32")
    values = backend.asarray(np.arange(20.0).reshape(5, 4), "float32")
    ch.table(ch.Sinusoidal(4), positions)
    table = ch.table(ch.Learned(4, 5), positions, values=values)
    table[:] = -1
    assert backend.to_numpy(positions).tolist() == [3, 1, 2]
    assert backend.to_numpy(values).tolist() == np.arange(20.0).reshape(5, 4).tolist()
    ch.table(ch.Sinusoidal(4), 5)[:] = 9  # it is the caller's
    assert ch.table(ch.Sinusoidal(4), 5)[0].tolist() == [0, 1, 0, 1]


# --- widths ----------------------------------------------------------------------------------------------------


def test_odd_widths():
    rows = [3, 1_000_003]
    zero = ch.table(ch.Sinusoidal(7, odd="zero", layout="halves", spacing=Geometric(span="closed")), rows, "float64")
    assert worst_entry(zero[:, :6], real_numbers.geometric(3, den=2), rows, "halves") <= FLOAT64
    assert not zero[:, 6].any()
    for layout in ("interleaved", "halves"):
        extra = ch.table(ch.Sinusoidal(7, odd="extra", layout=layout), rows, "float64")
        padded = np.insert(extra, 7, np.nan, axis=1)
        for row, position in zip(padded, rows, strict=True):
            wanted = real_numbers.sinusoid(real_numbers.geometric(4, den=3.5), position, layout)
            assert np.abs(row - np.array(wanted, float))[:7].max() <= 2 * FLOAT64
        cut = ch.table(ch.Sinusoidal(7, odd="cut", layout=layout), rows, "float64")
        assert np.array_equal(cut, ch.table(ch.Sinusoidal(8, layout=layout), rows, "float64")[:, :7])
    for odd in ("zero", "extra", "cut"):
        assert ch.Sinusoidal(8, odd=odd).rates == ch.Sinusoidal(8).rates
    assert np.array_equal(ch.table(ch.Sinusoidal(1, odd="extra"), [0, 5]), ch.table(ch.Sinusoidal(2), [0, 5])[:, :1])


@every("positions", [range(200), range(-3, 150), [1, 0.5, 1.0, -1, 7], np.array([7, 7, 1]), [[1, 2]]])
def test_rows_of_zeros(positions):
    spec, plain = ch.Sinusoidal(6, zero_rows=(7, 1, 7)), ch.Sinusoidal(6)
    assert spec.zero_rows == (1, 7)
    wanted = ch.table(plain, positions)
    wanted[np.isin(np.asarray(positions, float), [1, 7])] = 0
    assert np.array_equal(ch.table(spec, positions), wanted)


# --- shift and kernel ------------------------------------------------------------------------------------------


@given(INTEGERS | REALS)
@example(0)
@example(NANOSECONDS)
@settings(max_examples=30)
def test_entries_of_shifts_are_exact(k):
    for order, sign in (("sin-cos", 1), ("cos-sin", -1)):
        matrix = ch.shift(ch.Sinusoidal(4, order=order, layout="halves"), k)
        hands = real_numbers.hands(real_numbers.geometric(2), k)
        wanted = np.zeros((4, 4), object)
        for pair, (cosine, sine) in enumerate(hands):
            wanted[pair, pair] = wanted[pair + 2, pair + 2] = cosine
            wanted[pair, pair + 2], wanted[pair + 2, pair] = sign * sine, -sign * sine
        assert max(abs(mpf(float(a)) - b) for a, b in zip(matrix.flat, wanted.flat, strict=True)) <= 0.78 * 2.0**-52


@given(st.lists(INTEGERS | REALS, min_size=1, max_size=3))
@settings(max_examples=30)
def test_kernels_are_exact(distances):
    got = ch.kernel(ch.Sinusoidal(8), distances)
    assert got.dtype == np.float64
    for value, distance in zip(got, distances, strict=True):
        wanted = sum(cosine for cosine, _ in real_numbers.hands(real_numbers.geometric(4), distance))
        assert abs(mpf(float(value)) - wanted) <= 4 * 0.78 * 2.0**-52 + 3 * 2.0**-51


def test_kernels_keep_the_shape_and_are_made_in_parts(monkeypatch):
    from clockhands.encodings import clocks

    spec, distances = ch.Sinusoidal(8), np.arange(-50, 50).reshape(4, 25)
    whole = ch.kernel(spec, distances)
    assert whole.shape == (4, 25)
    monkeypatch.setattr(clocks, "_CHUNK", 7)
    assert np.array_equal(ch.kernel(spec, distances), whole)
    assert ch.kernel(spec, []).shape == (0,)
    assert ch.kernel(spec, 3)[0] == 4.0
    assert np.array_equal(ch.kernel(spec, [5, -5])[:1], ch.kernel(spec, [-5]))


# --- learned tables --------------------------------------------------------------------------------------------

VALUES = np.arange(20.0).reshape(5, 4)


def test_learned_rows_of_any_library(backend):
    values = backend.asarray(VALUES, "float32")
    assert np.array_equal(ch.table(ch.Learned(4, 5), range(4, -1, -1), values=values), VALUES[::-1])
    half = backend.asarray(VALUES, "bfloat16")
    assert np.array_equal(ch.table(ch.Learned(4, 5), 5, values=half), VALUES)


# --- errors ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("additive", cases)


def test_codes_of_others_need_only_write_and_learned_ones_are_not_written():
    from clockhands.encodings.positions import positions_of

    with pytest.raises(AssertionError, match="written from its values"):
        ch.Learned(4, 5).write(np.zeros((1, 4)), positions_of(1))
    from clockhands.encodings.additive import AdditiveCode

    class Ones(AdditiveCode):
        width = 3

        def write(self, out, positions, threads=None):
            out[...] = 1

    assert ch.table(Ones(), 2).tolist() == [[1, 1, 1]] * 2
    assert ch.add(np.zeros((2, 3)), Ones()).tolist() == [[1, 1, 1]] * 2
    with pytest.raises(InvalidValue, match="its rows are not sines and cosines"):
        ch.shift(Ones(), 1)
