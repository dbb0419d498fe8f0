"""Functions that add a position code wrongly, written by plain arithmetic: each fault is named."""

import math

import ml_dtypes
import numpy as np
import pytest

import clockhands as ch
from clockhands.additive import (
    AxialSinusoidal,
    Learned,
    Sinusoidal,
)
from clockhands.faults import ADDITIVE
from clockhands.grids import Grid
from clockhands.ladders import EvenSteps, Geometric
from clockhands.testing import CheckFailed, check_additive
from testing.written_additive import TRAINED, adding, wave_table

# Each fault as somebody would write it: spec, builder of the wrong function, options of the check, codes.
SPEC = Sinusoidal(32)


def _codes_of(value):
    return "+".join(sorted(value)) if isinstance(value, set) else None


def summed(table):
    return lambda x, positions: x + table(positions).astype(x.dtype)


def exponent_of_channel(positions):
    c = np.arange(32)
    phases = positions[:, None] / 10_000.0 ** (c / 32)
    return np.where(c % 2 == 0, np.sin(phases), np.cos(phases))


def odd_table(positions, width):
    return np.concatenate([wave_table(positions, width - 1), np.zeros((len(positions), 1), np.float32)], axis=-1)


def grid_table(positions, exchanged=False, dropped=False):
    x, y = positions[..., 0], positions[..., 1]
    if exchanged:
        x, y = y, x
    if dropped:
        y = x
    return np.concatenate([wave_table(x, 16, halves=True), wave_table(y, 16, halves=True)], axis=-1)


def first_sequence_only(x, positions):
    y = x.copy()
    y[:1] += wave_table(positions, 32)
    return y


def of_first_sequence(x, positions):
    return x + wave_table(positions[:1], 32)


def remembering(key, dtype=False):
    """A builder whose models share a table by ``key(spec)``."""
    tables = {}

    def build(spec):
        def forward(x, positions):
            known = key(spec)
            if known not in tables:
                low = str(x.dtype) if dtype else None
                tables[known] = wave_table(
                    np.arange(12_000),
                    spec.width,
                    base=spec.base,
                    cosine_first=spec.order == "cos-sin",
                    table_in=low,
                )
            return (x + tables[known][positions][..., : spec.width]).astype(x.dtype)

        return forward

    return build


def keeping_dtype():
    """A builder: each model keeps a table in the dtype of its first tokens."""

    def build(spec):
        return remembering(lambda _: None, dtype=True)(spec)

    return build


def cached_by_length():
    tables = {}

    def forward(x, offset):
        rows = x.shape[-2]
        if rows not in tables:
            tables[rows] = wave_table(offset + np.arange(rows), 32)
        return x + tables[rows]

    return forward


def ended(how, rows=1000):
    table = wave_table(np.arange(rows), 32)
    index = {"last": lambda p: np.minimum(p, rows - 1), "again": lambda p: p % rows}

    def forward(x, positions):
        if how == "nothing":
            return x + np.where(positions[:, None] < rows, table[np.minimum(positions, rows - 1)], 0)
        return x + table[index[how](positions)]

    return forward


def rebuilt(rows=1024):
    def forward(x, positions):
        coarse = wave_table(positions, 32, positions_in="float16", rates_in="float16", phases_in="float16")
        if positions.max() < rows:
            return x + wave_table(positions, 32)
        return x + np.where(positions[:, None] >= rows, coarse, wave_table(positions, 32))

    return forward


def coarse_path(x, positions):
    if x.dtype == np.float16:
        return x + wave_table(positions, 32, base=9_000.0).astype(np.float16)
    return x + wave_table(positions, 32)


def one_number(x, positions):
    y = x + wave_table(positions, 32)
    y[..., 5] += np.where(positions == 2_321, 0.01, 0).astype(x.dtype)
    return y


def one_buffer():
    kept = {}

    def forward(x, positions):
        out = x + wave_table(positions, 32).astype(x.dtype)
        buffer = kept.setdefault((out.shape, out.dtype), out)
        buffer[...] = out
        return buffer

    return forward


def in_place(x, positions):
    x += wave_table(positions, 32).astype(x.dtype)
    return x.copy()


FAULTS = [
    (SPEC, adding(base=1234.5), {}, {"another-base"}),
    (SPEC, adding(base=500.0), {}, {"another-base"}),
    (SPEC, adding(span=30), {}, {"closed-span"}),
    (Sinusoidal(32, spacing=Geometric(span="closed")), adding(), {}, {"open-span"}),
    (SPEC, adding(span=64), {}, {"other-denominator", "another-base"}),
    (SPEC, adding(cosine_first=True), {}, {"sine-and-cosine-swapped"}),
    (SPEC, adding(halves=True), {}, {"other-layout"}),
    (SPEC, adding(halves=True, span=30), {}, {"other-layout", "closed-span"}),
    (SPEC, summed(exponent_of_channel), {}, {"exponent"}),
    (SPEC, lambda x, p: x + np.float32(0.75) * wave_table(p, 32), {}, {"another-scale"}),
    (Sinusoidal(32, scale=0.125), adding(), {}, {"scale-forgotten"}),
    (SPEC, lambda x, p: x + 2 * wave_table(p, 32), {}, {"added-twice"}),
    (SPEC, lambda x, _: x.copy(), {}, {"not-added"}),
    (SPEC, lambda p: np.zeros((len(p), 32), np.float32), {"call": "positions"}, {"not-added"}),
    (SPEC, lambda x, p: x * np.float32(math.sqrt(32)) + wave_table(p, 32), {}, {"tokens-scaled"}),
    (SPEC, adding(), {"token_scale": math.sqrt(32)}, {"tokens-scaled"}),
    (SPEC, lambda x, p: 3 * (x + wave_table(p, 32)), {}, {"sum-scaled"}),
    (SPEC, lambda x, p: 3 * (x + wave_table(p, 32)), {"token_scale": 3.0}, {"sum-scaled"}),
    (SPEC, lambda x, p: x * wave_table(p, 32), {}, {"code-multiplied"}),
    (Sinusoidal(9, odd="extra"), summed(lambda p: odd_table(p, 9)), {}, {"odd-width"}),
    (Sinusoidal(32, zero_rows=(1,)), adding(), {}, {"padding-row"}),
    (AxialSinusoidal(32), summed(lambda p: grid_table(p, exchanged=True)), {}, {"axes-exchanged"}),
    (AxialSinusoidal(32), summed(lambda p: grid_table(p, dropped=True)), {}, {"axis-dropped"}),
    (AxialSinusoidal(32, channels="wave-axis-rate"), summed(grid_table), {}, {"other-layout"}),
    (SPEC, summed(lambda p: ch.table(Sinusoidal(32, spacing=EvenSteps(1.0, 1e-4)), p)), {}, {"another-code"}),
    (SPEC, adding(positions_in="float16"), {}, {"positions-rounded"}),
    (SPEC, adding(rates_in="float16"), {}, {"rates-rounded"}),
    (SPEC, adding(phases_in="float16"), {}, {"phases-rounded"}),
    (SPEC, adding(table_in="float16"), {}, {"table-rounded"}),
    (SPEC, lambda x, p: adding()(x, p - 2), {}, {"positions-offset"}),
    (SPEC, lambda x, p: adding()(x, p + 4096), {}, {"positions-offset"}),
    (SPEC, lambda x, p: adding()(x, p / 2), {}, {"positions-scaled"}),
    (SPEC, lambda x, p: adding()(x, p * np.float32(1000 / 999)), {}, {"positions-scaled"}),
    (SPEC, lambda x, p: adding()(x, np.arange(len(p))), {}, {"positions-ignored"}),
    (SPEC, lambda x, p: adding()(x, np.arange(len(p)) + 2), {}, {"positions-ignored"}),
    (SPEC, lambda x, p: adding()(x, p - p[..., :1]), {}, {"positions-from-first"}),
    (SPEC, of_first_sequence, {"axes": "batch seq width", "positions": "batch seq"}, {"positions-of-first-sequence"}),
    (SPEC, first_sequence_only, {"axes": "batch seq width"}, {"first-sequence-only"}),
    (SPEC, lambda x, p: adding()(x, abs(p)), {}, {"sign-for-negative-positions"}),
    (SPEC, ended("last"), {}, {"table-ends"}),
    (SPEC, ended("again"), {}, {"table-ends"}),
    (SPEC, ended("nothing"), {}, {"table-ends"}),
    (SPEC, rebuilt(), {}, {"table-rebuilt-rounded"}),
    (SPEC, cached_by_length(), {"call": "x, offset"}, {"cache-keeps-offset"}),
    (SPEC, in_place, {}, {"changes-its-arguments"}),
    (SPEC, one_buffer(), {}, {"overwrites-its-answers"}),
    (SPEC, coarse_path, {}, {"coarse-path-differs"}),
    (SPEC, one_number, {}, {"one-number-wrong"}),
]
BUILT = [
    (remembering(lambda spec: (spec.width, spec.order)), {"cache-without-base"}),
    (remembering(lambda spec: (spec.base, spec.order)), {"cache-without-width"}),
    (remembering(lambda spec: (spec.base, spec.width)), {"cache-without-order"}),
    (remembering(lambda spec: spec.width), {"cache-without-base", "cache-without-order"}),
    (keeping_dtype(), {"cache-keeps-first-dtype"}),
]


@pytest.mark.parametrize(("spec", "wrong", "options", "codes"), FAULTS, ids=_codes_of)
def test_a_fault_is_named(spec, wrong, options, codes):
    with pytest.raises(CheckFailed) as failed:
        check_additive(wrong, spec, length=2500, **options)
    report = failed.value.report
    assert report.codes == codes, report
    assert all(code in str(failed.value) for code in codes)


@pytest.mark.parametrize(("dtype", "first"), [(ml_dtypes.bfloat16, 257), (np.float16, 2049)])
def test_rounded_positions_are_told_of_a_table_without_waves(dtype, first):
    """The first whole number that the dtype lacks is the first row that is another one."""
    rows = np.random.default_rng(3).standard_normal((2500, 8)).astype(np.float32)
    report = check_additive(
        lambda x, p: x + rows[np.minimum(p.astype(dtype).astype(int), 2499)],
        Learned(8, rows=2500),
        values=rows,
        raises=False,
    )
    assert report.codes == {"positions-rounded"}, report
    assert dict(report.explanations[0].evidence) == {"dtype": np.dtype(dtype).name, "first": first}


@pytest.mark.parametrize(("build", "codes"), BUILT, ids=_codes_of)
def test_a_fault_of_two_models_is_named(build, codes):
    report = check_additive(make=build, like=SPEC, length=600, raises=False)
    assert report.codes == codes, report


def test_two_models_that_share_nothing_pass():
    report = check_additive(make=remembering(lambda spec: spec), like=SPEC, length=600)
    assert {"two models of different bases", "two models of different widths"} <= set(report.experiments)


def test_every_fault_has_a_function_that_shows_it():
    shown = set().union(*(codes for *_, codes in FAULTS), *(codes for _, codes in BUILT))
    below = {"rows-moved", "rows-rescaled", "rows-in-another-order", "cells-elsewhere"}
    assert set(ADDITIVE) - shown == below, "those of learned tables and of grids are shown below"


def grid_sum(positions_x, positions_y):
    """A function that counts its rows: their x and y are here."""
    table = np.concatenate([wave_table(p, 16, halves=True) for p in (positions_x, positions_y)], axis=-1)
    return lambda x: x + table[: x.shape[-2]]


# A grid of 5 columns and 3 rows, row by row.
ACROSS, DOWN = np.tile(np.arange(5), 3), np.repeat(np.arange(3), 5)
GRID = Grid((5, 3), order=(1, 0))


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        (
            grid_sum(np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5)),
            "rows-in-another-order",
            "axis 1 runs fastest",
        ),
        (grid_sum(ACROSS, 2 - DOWN), "rows-in-another-order", "axis 1 from its end"),
        (grid_sum(DOWN, ACROSS), "axes-exchanged", "coordinate 1 is used as coordinate 0"),
        (grid_sum(ACROSS, ACROSS), "axis-dropped", "coordinate"),
    ],
)
def test_rows_of_a_grid(wrong, code, said):
    spec = AxialSinusoidal(32)
    assert check_additive(grid_sum(ACROSS, DOWN), spec, call="x", grid=GRID).sound
    report = check_additive(wrong, spec, call="x", grid=GRID, raises=False)
    assert report.codes == {code}
    assert said in report.explanations[0].message


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (ACROSS + 0.5, DOWN + 0.5, "axis 0 from 0.5 in steps of 1 and axis 1 from 0.5 in steps of 1"),
        (ACROSS * 16 / 5, DOWN * 16 / 3, "axis 0 from 0 in steps of 3.2 and axis 1 from 0 in steps of 5.33333"),
        (ACROSS / 4, DOWN / 2, "axis 0 from 0 in steps of 0.25 and axis 1 from 0 in steps of 0.5"),
    ],
)
def test_cells_that_stand_elsewhere_are_measured(x, y, said):
    report = check_additive(grid_sum(x, y), AxialSinusoidal(32), call="x", grid=GRID, raises=False)
    assert report.codes == {"cells-elsewhere"}
    assert said in report.explanations[0].message


def test_class_tokens_of_a_grid_stand_nowhere():
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
