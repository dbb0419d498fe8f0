"""Faults of grids, resized tables and tables without waves are named; those of one axis: tests/recognition/faults."""

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, Learned, Sinusoidal
from clockhands.encodings.grids import Grid
from clockhands.testing import check_additive
from testing.written_additive import TRAINED, wave_table


@pytest.mark.parametrize(("dtype", "first"), [(ml_dtypes.bfloat16, 257), (np.float16, 2049)])
def test_rounded_positions_are_told_of_a_table_without_waves(dtype, first):
    """The first whole number that the dtype lacks is the first row that is another one."""
    rows = np.random.default_rng(3).standard_normal((2500, 8)).astype(np.float32)

    def rounded(x, p):
        return x + rows[np.minimum(p.astype(dtype).astype(int), 2499)]

    report = check_additive(rounded, Learned(8, rows=2500), values=rows, raises=False)
    assert report.codes == {"positions-rounded"}, report
    assert dict(report.explanations[0].evidence) == {"dtype": np.dtype(dtype).name, "first": first}


def grid_sum(positions_x, positions_y):
    """A function that counts its rows: their x and y are here."""
    table = np.concatenate([wave_table(p, 16, halves=True) for p in (positions_x, positions_y)], axis=-1)
    return lambda x: x + table[: x.shape[-2]]


# A grid of 5 columns and 3 rows, row by row.
ACROSS, DOWN = np.tile(np.arange(5), 3), np.repeat(np.arange(3), 5)
GRID = Grid((5, 3), order=(1, 0))


ELSEWHERE = "cells-elsewhere"


@pytest.mark.parametrize(
    ("x", "y", "code", "said"),
    [
        (np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5), "rows-in-another-order", "axis 1 runs fastest"),
        (ACROSS, 2 - DOWN, "rows-in-another-order", "axis 1 from its end"),
        (DOWN, ACROSS, "axes-exchanged", "coordinate 1 is used as coordinate 0"),
        (ACROSS, ACROSS, "axis-dropped", "coordinate"),
        (ACROSS + 0.5, DOWN + 0.5, ELSEWHERE, "axis 0 from 0.5 in steps of 1 and axis 1 from 0.5 in steps of 1"),
        (ACROSS * 3.2, DOWN * 16 / 3, ELSEWHERE, "from 0 in steps of 3.2 and axis 1 from 0 in steps of 5.33333"),
        (ACROSS / 4, DOWN / 2, ELSEWHERE, "axis 0 from 0 in steps of 0.25 and axis 1 from 0 in steps of 0.5"),
    ],
)
def test_rows_and_cells_of_a_grid(x, y, code, said):
    report = check_additive(grid_sum(x, y), AxialSinusoidal(32), call="x", grid=GRID, raises=False)
    assert report.codes == {code}
    assert said in report.explanations[0].message


def test_a_right_grid_passes_and_its_class_tokens_stand_nowhere():
    assert check_additive(grid_sum(ACROSS, DOWN), AxialSinusoidal(32), call="x", grid=GRID).sound
    spec, grid = AxialSinusoidal(32), Grid((4, 4), order=(1, 0), prefix=1)
    table = np.concatenate([np.zeros((1, 32), np.float32), ch.table(spec, Grid((4, 4), order=(1, 0)))])
    assert check_additive(lambda x: x + table[: len(x)], spec, call="x", grid=grid).sound
    last = np.roll(table, -1, axis=0)
    report = check_additive(lambda x: x + last[: len(x)], spec, call="x", grid=grid, raises=False)
    assert report.codes == {"rows-in-another-order"}


def test_positions_that_are_no_whole_numbers():
    """A timestep between 0 and 1, in 50 steps."""
    spec, grid = Sinusoidal(32), Grid.between(50, 0, 1)
    steps = np.arange(50, dtype=np.float32)
    assert check_additive(lambda x: x + wave_table(steps / 49, 32)[: len(x)], spec, call="x", grid=grid).sound
    report = check_additive(lambda x: x + wave_table(steps, 32)[: len(x)], spec, call="x", grid=grid, raises=False)
    assert report.codes == {"positions-scaled"}
    assert "49" in report.explanations[0].message


# A learned table, made for other positions than it was trained for.
HERE = {"rows": 96, "kind": "linear", "align_corners": True}


def resized(given, **how):
    rows = ch.additive.resize(given, **how)
    return lambda x, positions: x + rows[positions]


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ({"align_corners": False}, "rows-moved", "align_corners=False; expected align_corners=True"),
        ({"kind": "cubic"}, "rows-rescaled", "kind='cubic'; expected kind='linear'"),
        ({"rows": 96, "kind": "cubic", "align_corners": False}, "rows-moved", "align_corners=False"),
    ],
)
def test_a_table_that_is_resized_otherwise_is_named(how, code, said):
    given = TRAINED[:64]
    spec = Learned(16, rows=96)
    assert check_additive(resized(given, **HERE), spec, values=given, resized=HERE).sound
    report = check_additive(resized(given, **(HERE | how)), spec, values=given, resized=HERE, raises=False)
    assert report.codes == {code}
    assert said in report.explanations[0].message


def test_a_grid_that_is_resized_without_antialias_is_named():
    given, how = TRAINED[:196], {"rows": (8, 9), "grid": (14, 14), "antialias": True, "kind": "cubic"}
    spec = Learned(16, rows=72)
    assert check_additive(resized(given, **how), spec, values=given, resized=how).sound
    for wrong, code in (({"antialias": False}, "rows-rescaled"), ({"kind": "linear"}, "rows-rescaled")):
        report = check_additive(resized(given, **(how | wrong)), spec, values=given, resized=how, raises=False)
        assert report.codes == {code}
    turned = np.swapaxes(ch.additive.resize(given, **how).reshape(8, 9, 16), 0, 1).reshape(72, 16)
    assert not check_additive(lambda x, p: x + turned[p], spec, values=given, resized=how, raises=False).sound


def test_rows_that_were_moved_are_told_without_the_table_before():
    """As trained tables are: neighbours alike."""
    trained = np.cumsum(np.random.default_rng(5).standard_normal((400, 16)), axis=0).astype(np.float32)
    slow = ch.additive.resize(trained, 100, antialias=True)
    right, wrong = (ch.additive.resize(slow, 400, align_corners=corners) for corners in (True, False))
    report = check_additive(lambda x, p: x + wrong[p], Learned(16, rows=400), values=right, raises=False)
    assert report.codes == {"rows-moved"}
    assert "row p is that of position" in report.explanations[0].message


def test_a_table_that_ends_is_told():
    table = TRAINED[:200]
    report = check_additive(
        lambda x, p: x + table[np.minimum(p, 199)], Learned(16, rows=300), values=TRAINED, raises=False
    )
    assert report.codes == {"table-ends"}
    assert "200 rows" in report.explanations[0].message


def test_the_layout_of_a_table_of_a_length_is_named_and_rows_may_fall():
    rates = 10000.0 ** (-np.arange(8) / 8)

    def table(seq_len):
        angles = np.arange(seq_len)[:, None] * rates
        return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(seq_len, -1).astype(np.float32)

    for length in (100, 3000):
        report = check_additive(table, Sinusoidal(16, layout="halves"), length=length, raises=False)
        assert report.codes == {"other-layout"}
    assert check_additive(lambda seq_len: table(seq_len)[::-1], Sinusoidal(16), length=500).sound
