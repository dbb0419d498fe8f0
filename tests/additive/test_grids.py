"""Grids: where their cells stand, in which order, and what is made of rows that stand nowhere."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal
from clockhands.encodings.grids import Grid
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import chunked, rotate
from clockhands.errors import InvalidValue, TooLarge
from oracles import sentences

NUMBERS = st.integers(-50, 50) | st.floats(-50, 50) | st.fractions(-50, 50)


def places(given):
    at = positions_of(given)
    return at.as_float64().reshape(at.shape)


# --- where cells stand -----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), NUMBERS, NUMBERS), min_size=1, max_size=3), st.randoms())
def test_every_cell_is_the_real_number(axes, random):
    sizes, start, step = zip(*axes, strict=True)
    order = list(range(len(axes)))
    random.shuffle(order)
    made = Grid(sizes, start=start, step=step, order=order)
    at = positions_of(made)
    wanted = []
    for cell in np.ndindex(*(sizes[axis] for axis in order)):
        index = dict(zip(order, cell, strict=True))
        wanted.append([Fraction(start[axis]) + Fraction(step[axis]) * index[axis] for axis in range(len(axes))])
    flat = [number for row in wanted for number in row]
    assert at.size == len(flat) == made.cells * len(axes)
    limbs = at.sizes(0, at.size)
    for number, real in enumerate(flat):
        size = Fraction(int(limbs.whole[number])) + Fraction(limbs.part[number] if limbs.part is not None else 0)
        held = -size if limbs.negative is not None and limbs.negative[number] else size
        # Its whole part exactly, its fraction to the nearest float64.
        assert abs(held - real) <= Fraction(1, 2**54)


def test_a_grid_is_a_value():
    one, same, other = (Grid((2, 3), start=start, step=(0.5, 1), order=(1, 0)) for start in (1, 1.0, 2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len(one) == one.cells == 6
    assert len(Grid((2, 3), prefix=5)) == 11
    assert repr(one) == "Grid((2, 3), start=(1, 1), step=(0.5, 1), order=(1, 0))"
    assert repr(Grid(3, step=Fraction(1, 3), prefix=1)) == "Grid((3,), step=(Fraction(1, 3),), prefix=1)"
    for back in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert back == one
        assert np.array_equal(places(back), places(one))


# --- rows that stand nowhere -----------------------------------------------------------------------------------


def test_rows_that_stand_nowhere_are_zeros(backend):
    spec, cells = AxialSinusoidal(16), Grid((2, 3), order=(1, 0))
    led = Grid((2, 3), order=(1, 0), prefix=2)
    for dtype in ("float64", "float32", "bfloat16"):
        table = ch.table(spec, led, dtype)
        assert table.shape == (8, 16)
        assert not table[:2].any()
        assert np.array_equal(table[2:], ch.table(spec, cells, dtype))
    x = np.random.default_rng(0).standard_normal((2, 8, 16)).astype(np.float32)
    got = backend.to_numpy(ch.add(backend.asarray(x), spec, led))
    assert np.array_equal(got, x + ch.table(spec, led))
    one = ch.Sinusoidal(16)
    assert np.array_equal(ch.table(one, Grid(4, prefix=1))[1:], ch.table(one, 4))


def test_rotations_leave_them_as_they_are(backend):
    spec = ch.Rotary(16, axes=chunked([4, 4]))
    x = np.random.default_rng(1).standard_normal((2, 8, 16)).astype(np.float32)
    got = backend.to_numpy(rotate(backend.asarray(x), spec, Grid((2, 3), start=0.5, prefix=2)))
    assert np.array_equal(got[:, :2], x[:, :2])
    alone = backend.to_numpy(rotate(backend.asarray(x[:, 2:]), spec, Grid((2, 3), start=0.5)))
    assert np.array_equal(got[:, 2:], alone)
    places = np.array([[row + 0.5, column + 0.5] for row in range(2) for column in range(3)])
    assert np.array_equal(alone, backend.to_numpy(rotate(backend.asarray(x[:, 2:]), spec, places)))


def test_tokens_may_keep_the_axes_of_a_grid(backend, cases):
    """[batch, rows, columns, channels], as images are kept, in the order in which the grid lists its cells."""
    code, x = AxialSinusoidal(8), np.random.default_rng(1).standard_normal((2, 3, 4, 8)).astype(np.float32)
    for grid in (Grid((3, 4), start=0.5), Grid((4, 3), order=(1, 0))):
        with cases(backend.name, grid):
            flat = x.reshape(2, 12, 8) + ch.table(code, grid)
            assert np.array_equal(backend.to_numpy(ch.add(backend.asarray(x), code, grid)).reshape(2, 12, 8), flat)
    narrow = backend.asarray(x[..., :4])
    with cases("other axes"), pytest.raises(InvalidValue, match=r"for x of shape \[2, 3, 4, 4\], got \[12, 2\]"):
        ch.add(narrow, AxialSinusoidal(4), Grid((4, 3)))


def test_learned_rows_are_led_by_zeros_too(backend):
    spec, values = ch.Learned(4, rows=5), np.arange(20.0).reshape(5, 4)
    x = np.zeros((4, 4), np.float32)
    got = backend.to_numpy(
        ch.add(backend.asarray(x), spec, Grid(3, prefix=1), values=backend.asarray(values, "float32"))
    )
    assert np.array_equal(got, [[0] * 4, *values[:3]])


# --- refusals --------------------------------------------------------------------------------------------------


def test_what_is_no_grid_is_refused_in_words(cases):
    sentences.hold("grids", cases)


def test_a_grid_that_does_not_fit_is_refused_before_it_is_made():
    for grid, words in ((Grid((10**7, 10**7)), "A grid of shape"), (Grid(10**13, step=0.5), "An axis of shape")):
        with pytest.raises(TooLarge, match=words):
            positions_of(grid)
