"""Sinusoids of several axes: exact on every axis, in every order of the channels, at every width."""

import itertools
import re
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal
from clockhands.encodings.additive.axial import Channels
from clockhands.encodings.additive.waves import Waves
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Geometric
from oracles import real_numbers, sentences
from oracles.real_numbers import FLOAT32, FLOAT64, worst_number
from oracles.rows import every

BOUNDS = {"float32": FLOAT32, "float64": FLOAT64}
ORDERS = get_args(Channels)
PLACES = st.integers(-(2**62), 2**62) | st.floats(-1e6, 1e6)


def channel_by_channel(ladders, place, channels, order="sin-cos", raw=None):
    """A row in real numbers, by loops in the order that the channels are said to run in."""
    waves = order.split("-")
    axes, longest = range(len(ladders)), max(map(len, ladders))
    ranges = {"axis": axes, "rate": range(longest), "wave": range(2)}
    names = channels.split("-")
    numbers, coordinates = [], [mpf(coordinate) for coordinate in place]
    for loop in itertools.product(*(ranges[name] for name in names)):
        at = dict(zip(names, loop, strict=True))
        axis, rate, wave = at["axis"], at["rate"], at["wave"]
        first_of_axis = names[0] == "axis" and loop[1:] == (0, 0)
        if raw == "before-each" and first_of_axis:
            numbers.append(coordinates[axis])
        if rate < len(ladders[axis]):
            cosine, sine = real_numbers.hands([ladders[axis][rate]], place[axis])[0]
            numbers.append(sine if waves[wave] == "sin" else cosine)
        if raw == "after-each" and loop[1:] == tuple(len(ranges[name]) - 1 for name in names[1:]):
            numbers.append(coordinates[axis])
    return {"before": [*coordinates, *numbers], "after": [*numbers, *coordinates]}.get(raw, numbers)


# --- against real numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("channels", ORDERS)
@given(st.lists(st.tuples(PLACES, PLACES, PLACES), min_size=1, max_size=3))
@settings(max_examples=8)
def test_every_order_of_channels_is_exact(dtype, channels, places):
    spec = AxialSinusoidal(16, (1, 2, 1), 100.0, channels=channels)
    ladders = [real_numbers.geometric(pairs, 100.0) for pairs in (2, 4, 2)]
    table = ch.table(spec, places, dtype)
    assert worst_number(table, [channel_by_channel(ladders, place, channels) for place in places]) <= BOUNDS[dtype]


def test_the_check_by_channels_can_fail():
    places = [(1, 2)]
    ladders = [real_numbers.geometric(2)] * 2
    table = ch.table(AxialSinusoidal(8), places)
    for channels in set(ORDERS) - {"axis-wave-rate"}:
        assert worst_number(table, [channel_by_channel(ladders, places[0], channels)]) > 0.01
    assert worst_number(table, [channel_by_channel(ladders, (2, 1), "axis-wave-rate")]) > 0.01


@every("order", get_args(Waves))
def test_every_wave_stands_where_it_is_said_to(order):
    first, second = re.fullmatch(r"(-?\w+)-(-?\w+)", order).groups()
    plain = ch.table(AxialSinusoidal(16), [[3, 0.5], [10**15, -7]])
    blocks = plain.reshape(2, 2, 2, 4)  # positions, axes, (sine, cosine), rates
    made = ch.table(AxialSinusoidal(16, order=order), [[3, 0.5], [10**15, -7]]).reshape(blocks.shape)
    for place, name in enumerate((first, second)):
        sign = -1 if name.startswith("-") else 1
        assert np.array_equal(made[:, :, place], sign * blocks[:, :, int(name.endswith("cos"))])


def test_widths_that_the_axes_do_not_divide():
    zeros = AxialSinusoidal(19, uneven="zero", spacing=Geometric(span="closed"))
    assert zeros.pairs == (4, 4)
    table = ch.table(zeros, [[3, 5]])
    assert not table[0, 16:].any()
    assert np.array_equal(table[0, :16], ch.table(AxialSinusoidal(16, spacing=Geometric(span="closed")), [[3, 5]])[0])
    cut = AxialSinusoidal(19, uneven="cut", channels="axis-rate-wave")
    assert cut.pairs == (5, 5)
    whole = ch.table(AxialSinusoidal(20, channels="axis-rate-wave"), [[3, 5]])
    assert np.array_equal(ch.table(cut, [[3, 5]]), whole[:, :19])
    for channels in ORDERS:  # cut in every order, also where single channels are lost
        grid = Grid((2, 3), start=0.5)
        cut = AxialSinusoidal(17, uneven="cut", channels=channels)
        whole = ch.table(AxialSinusoidal(20, channels=channels), grid)
        assert np.array_equal(ch.table(cut, grid), whole[:, :17])


def test_a_code_of_one_axis_is_a_sinusoid():
    for channels, layout in {"axis-rate-wave": "interleaved", "axis-wave-rate": "halves"}.items():
        one, other = AxialSinusoidal(8, (1,), channels=channels), ch.Sinusoidal(8, layout=layout)
        for positions in (5, [0.5, 10**18], [[1, 2], [3, 4]]):
            assert np.array_equal(ch.table(one, positions), ch.table(other, positions))
        assert np.array_equal(ch.shift(one, 3), ch.shift(other, 3))
        assert np.array_equal(ch.kernel(one, [1, 2]), ch.kernel(other, [1, 2]))


# --- grids, dtypes, batches ------------------------------------------------------------------------------------


@every("dtype", ["float64", "float32", "float16", "bfloat16"])
@every("channels", ORDERS)
def test_a_grid_is_its_cells_one_by_one(dtype, channels):
    grid = Grid((3, 4, 2), start=(-1, 0.25, 10**9), step=(Fraction(1, 3), 1, -7), order=(2, 0, 1))
    at = grid.as_positions().as_float64().reshape(-1, 3)
    for further in ({}, {"raw": "before"}, {"scale": 0.3}):
        spec = AxialSinusoidal(24 + 3 * ("raw" in further), (1, 1, 1), channels=channels, **further)
        made = ch.table(spec, grid, "float32" if further and dtype == "float16" else dtype)
        one_by_one = ch.table(spec, at, made.dtype)
        assert made.dtype == one_by_one.dtype
        assert np.array_equal(made, one_by_one)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_coordinates_that_come_again_are_made_once(dtype, monkeypatch):
    from clockhands.encodings.additive import axial

    places = np.random.default_rng(6).integers(-5, 5, (200, 3))
    places[7] = 2**62, -(2**62), 2**31
    for spec in (
        AxialSinusoidal(27, (1, 2, 1), raw="after", uneven="zero"),
        AxialSinusoidal(23, (1, 2, 1), uneven="cut"),
    ):
        for at in (places, places.reshape(4, 50, 3), places.tolist(), np.abs(places)):
            fast = ch.table(spec, at, dtype)
            monkeypatch.setattr(axial, "_FEW", 10**9)
            assert np.array_equal(ch.table(spec, at, dtype), fast)
            monkeypatch.undo()
    # The two positions that no doubled number holds.
    ends = np.array([[2**63, -(2**63)]] * 100, object)
    assert np.array_equal(ch.table(AxialSinusoidal(8), ends), np.repeat(ch.table(AxialSinusoidal(8), ends[:1]), 100, 0))


@given(st.data())
@settings(max_examples=60)
def test_any_code_is_its_loops(data):
    shares = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    channels = data.draw(st.sampled_from(ORDERS))
    raws = [None, "before", "after", *(["before-each", "after-each"] if channels.startswith("axis") else [])]
    raw = data.draw(st.sampled_from(raws))
    uneven = data.draw(st.sampled_from(["zero"] if raw else ["zero", "cut"]))
    order = data.draw(st.sampled_from(["sin-cos", "cos-sin"]))
    least = 2 * sum(shares) + len(shares)
    width = data.draw(st.integers(least, 3 * least))
    spec = AxialSinusoidal(width, shares, 10.0, channels=channels, raw=raw, uneven=uneven, order=order)
    place = data.draw(st.tuples(*[PLACES] * len(shares)))
    ladders = [real_numbers.geometric(pairs, 10.0) for pairs in spec.pairs]
    row = channel_by_channel(ladders, place, channels, order, raw)
    row = [*row, *[mpf(0)] * (width - len(row))][:width]
    table = ch.table(spec, [place] if len(shares) > 1 else list(place), "float64")
    assert worst_number(table, [row]) <= FLOAT64 * max(
        1, *(abs(float(coordinate)) if raw else 1 for coordinate in place)
    )


def test_grids_without_cells():
    for spec in (AxialSinusoidal(8), AxialSinusoidal(10, raw="before"), AxialSinusoidal(9, uneven="cut")):
        assert ch.table(spec, Grid((0, 3))).shape == (0, spec.width)
        assert ch.table(spec, Grid((3, 0), prefix=2)).tolist() == np.zeros((2, spec.width)).tolist()
        assert ch.add(np.ones((2, 0, spec.width)), spec, Grid((0, 0))).shape == (2, 0, spec.width)
        assert ch.table(spec, np.zeros((0, 2))).shape == (0, spec.width)


def test_batches_of_places(backend):
    spec = AxialSinusoidal(8)
    places = np.random.default_rng(3).uniform(-1, 1, (2, 5, 2))
    x = np.random.default_rng(4).standard_normal((2, 3, 5, 8)).astype(np.float32)
    got = backend.to_numpy(ch.add(backend.asarray(x), spec, places))
    assert np.array_equal(got, x + ch.table(spec, places)[:, None])
    assert np.array_equal(backend.to_numpy(ch.add(backend.asarray(x), spec, places[:1])), x + ch.table(spec, places[0]))


# --- shift and kernel ------------------------------------------------------------------------------------------


def test_a_shift_is_a_distance_along_each_axis():
    spec = AxialSinusoidal(24, (1, 2, 1), channels="wave-rate-axis")
    step = np.array([2, -3, 0.5])
    places = np.random.default_rng(5).integers(-1_000, 1_000, (7, 3)).astype(float)
    before, after = (ch.table(spec, at, "float64") for at in (places, places + step))
    assert np.abs(before @ ch.shift(spec, step).T - after).max() < 1e-14
    assert np.abs(ch.kernel(spec, step[None]) - (before * after).sum(axis=1)).max() < 1e-13
    assert ch.kernel(spec, np.zeros((2, 4, 3))).tolist() == [[12.0] * 4] * 2
    assert ch.shift(spec, [0, 0, 0]).tolist() == np.eye(24).tolist()
    # Axes that move alone turn hands of their own.
    alone = [ch.shift(spec, [k if axis == a else 0 for a in range(3)]) for axis, k in enumerate(step)]
    assert np.abs(alone[0] @ alone[1] @ alone[2] - ch.shift(spec, step)).max() < 1e-15


# --- refusals --------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_words(cases):
    sentences.hold("axial", cases)
