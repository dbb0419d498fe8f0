"""Functions that add a position code, written by plain arithmetic: right ones pass, and each fault is named."""

import importlib
import math

import numpy as np
import pytest

import clockhands as ch
from clockhands.additive import (
    AxialSinusoidal,
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    Learned,
    NoPosition,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
)
from clockhands.errors import InvalidType, InvalidValue
from clockhands.faults.additive_rows import ADDITIVE
from clockhands.grids import Grid
from clockhands.ladders import EvenSteps, Geometric
from clockhands.testing import CannotCheck, CheckFailed, check_additive

LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}


def arrays(name):
    pytest.importorskip(name)
    return importlib.import_module(LIBRARIES[name])


def cast(xp, a, dtype):
    if xp.__name__ == "torch":
        return a.to(getattr(xp, dtype) if isinstance(dtype, str) else dtype)
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return a.astype(dtype)


def through(xp, a, dtype):
    """Rounded to a dtype, and back."""
    return a if dtype is None else cast(xp, cast(xp, a, dtype), "float32")


def rates(width, base=10_000.0, span=None):
    """As everybody writes it: ``exp(arange(0, d, 2) (-log(base) / d))``, in float32."""
    return np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(base) / (span or width)))


def wave_table(positions, width, xp=np, *, base=10_000.0, span=None, halves=False, cosine_first=False, **rounded):
    """The table at these positions [..., seq], float32; `rounded` says which numbers are rounded to which dtype."""
    ladder = through(xp, xp.asarray(rates(width, base, span)), rounded.get("rates_in"))
    t = through(xp, cast(xp, positions, "float32"), rounded.get("positions_in"))
    phases = through(xp, t[..., None] * ladder, rounded.get("phases_in"))
    waves = [xp.sin(phases), xp.cos(phases)][:: -1 if cosine_first else 1]
    table = xp.concatenate(waves, -1) if halves else xp.stack(waves, -1).reshape(*positions.shape, width)
    return through(xp, table, rounded.get("table_in"))


def adding(width=32, xp=np, **how):
    """``x + table``, in float32, rounded to x's dtype."""
    return lambda x, positions: cast(xp, cast(xp, x, "float32") + wave_table(positions, width, xp, **how), x.dtype)


def kept(width=32, xp=np, rows=16_384, **how):
    """A table that is made once in float32, cast to x's dtype and added there."""
    table = wave_table(xp.arange(rows), width, xp, **how)
    return lambda x, positions: x + cast(xp, table[positions], x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("make", [adding, kept])
def test_a_right_function_passes(make, name, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    report = check_additive(make(xp=arrays(name)), Sinusoidal(32), dtype=dtype, backend=name)
    assert report.sound
    assert report.worst <= 1
    assert "every position" in report.experiments
    assert report.called["library"] == name


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize(
    ("how", "spec"),
    [
        ({"halves": True}, Sinusoidal(16, layout="halves")),
        ({"cosine_first": True, "halves": True}, Sinusoidal(16, layout="halves", order="cos-sin")),
        ({"span": 14}, Sinusoidal(16, spacing=Geometric(span="closed"))),
        ({"base": 50.0}, Sinusoidal(16, base=50.0)),
        ({"base": 1e8}, Sinusoidal(16, base=1e8)),
    ],
)
def test_conventions_pass_as_themselves(how, spec, name):
    assert check_additive(adding(16, arrays(name), **how), spec, backend=name, length=3000).sound


def table_of(spec, values=None):
    """Exact rows, in float32: what a right function of any code adds."""

    def forward(x, positions):
        return x + ch.table(spec, positions, values=values)

    return forward


DRAWN = np.random.default_rng(2).standard_normal((2, 8)).astype(np.float32)
TRAINED = np.random.default_rng(3).standard_normal((300, 16)).astype(np.float32)
CODES = [
    (Sinusoidal(9, odd="zero"), None),
    (Sinusoidal(9, odd="extra"), None),
    (Sinusoidal(9, odd="cut", layout="halves"), None),
    (Sinusoidal(16, order="-sin-cos"), None),
    (Sinusoidal(16, first=2, zero_rows=(1,)), None),
    (Sinusoidal(16, scale=0.1), None),
    (Sinusoidal(16, scaled=True), np.float32(0.3)),
    (Sinusoidal(16, standardised=200, scale=0.1), None),
    (Sinusoidal(16, spacing=EvenSteps(1.0, 0.01, multiplier=math.pi)), None),
    (AxialSinusoidal(16), None),
    (AxialSinusoidal(24, (1, 1, 1), channels="wave-axis-rate"), None),
    (AxialSinusoidal(18, raw="before"), None),
    (FourierFeatures(16), DRAWN),
    (FourierFeatures(16, axes=1, offsets=True, layout="interleaved"), DRAWN),
    (Learned(16, rows=300), TRAINED),
    (Learned(16, rows=300, offset=2, padding_row=1), TRAINED),
    (NoPosition(8), None),
    (Counter(8), None),
    (NormalizedCounter(8, length=100), None),
    (Binary(8), None),
    (SineOnly(8), None),
    (SingleFrequency(8), None),
    (EvenlySpaced(8), None),
    (WarpedPosition(8), None),
    (WarpedPosition(8, "log"), None),
]


# As far as a table, or what is counted, goes; the others are asked a part of what they are asked unless said.
LENGTHS = (
    dict.fromkeys((Sinusoidal, Learned, NormalizedCounter))
    | dict.fromkeys(
        (AxialSinusoidal, FourierFeatures, NoPosition, Counter, Binary, SineOnly, SingleFrequency, EvenlySpaced), 600
    )
    | {WarpedPosition: 300}
)


@pytest.mark.parametrize(("spec", "values"), CODES, ids=lambda value: type(value).__name__)
def test_every_code_can_be_asked_for(spec, values):
    assert check_additive(table_of(spec, values), spec, values=values, length=LENGTHS.get(type(spec))).sound


@pytest.mark.parametrize(("spec", "values"), CODES, ids=lambda value: type(value).__name__)
def test_every_code_can_be_wrong(spec, values):
    """Off by one hundredth at one position and channel."""
    right = table_of(spec, values)

    def forward(x, positions):
        y = right(x, positions)
        here = positions if positions.ndim == 1 else positions[..., 0]
        y[..., 3] += np.where(here == 77, 0.01 * max(1, abs(y[..., 3]).max()), 0).astype(x.dtype)
        return y

    report = check_additive(forward, spec, values=values, length=LENGTHS.get(type(spec)), raises=False)
    assert not report.sound
    assert report.failures[-1].experiment == "every position"


@pytest.mark.parametrize(
    "options",
    [
        {"axes": "batch seq width"},
        {"axes": "batch seq width", "positions": "batch seq"},
        {"axes": "batch heads seq width"},
        {"axes": "seq batch width"},
    ],
)
def test_axes_may_stand_in_any_order(options):
    def forward(x, positions):
        table = wave_table(positions, 16)
        if options["axes"].startswith("seq"):
            return x + table[:, None]
        return x + (table[:, None] if x.ndim == 4 and positions.ndim == 2 else table)

    report = check_additive(forward, Sinusoidal(16), **options)
    assert report.sound
    assert "sequences beside each other" in report.experiments
    assert ("positions of their own" in report.experiments) == ("positions" in options)


def test_a_function_that_counts_its_rows():
    report = check_additive(lambda x: x + wave_table(np.arange(x.shape[-2]), 16), Sinusoidal(16), call="x")
    assert report.sound
    assert "counts its rows" in report.left_out["packed equals separate"]


def test_rows_that_are_counted_begin_where_the_code_begins():
    spec = Sinusoidal(16, first=2, zero_rows=(1,))
    table = wave_table(np.arange(600), 16)
    table[1] = 0
    assert check_additive(lambda x: x + table[2 : 2 + x.shape[-2]], spec, call="x", length=500).sound
    report = check_additive(lambda x: x + table[: x.shape[-2]], spec, call="x", length=500, raises=False)
    assert report.codes == {"positions-offset"}
    assert "-2" in report.explanations[0].message


def test_a_function_that_is_told_where_it_starts():
    def forward(x, offset):
        return x + wave_table(offset + np.arange(x.shape[-2]), 16)

    assert check_additive(forward, Sinusoidal(16), call="x, offset").sound


def test_a_table_alone():
    report = check_additive(lambda positions: wave_table(positions, 16), Sinusoidal(16), call="positions")
    assert report.sound
    assert "no tokens" in report.left_out["tokens come through"]
    batched = check_additive(
        lambda positions: wave_table(positions, 16),
        Sinusoidal(16),
        call="positions",
        axes="batch seq width",
        positions="batch seq",
    )
    assert "positions of their own" in batched.experiments


def test_tokens_may_be_scaled_first():
    def forward(x, positions):
        return x * np.float32(4) + wave_table(positions, 16)

    assert check_additive(forward, Sinusoidal(16), token_scale=4.0).sound
    report = check_additive(forward, Sinusoidal(16), raises=False)
    assert report.codes == {"tokens-scaled"}
    assert "4, where 1 is right" in report.explanations[0].message


def test_rows_below_zero_are_asked_where_they_are_taken():
    asked = check_additive(adding(16), Sinusoidal(16))
    assert "positions below zero" in asked.experiments
    indexed = check_additive(kept(16), Sinusoidal(16))
    assert "end of a table" in indexed.left_out["positions below zero"]
    with pytest.raises(CheckFailed, match="positions below zero"):
        check_additive(kept(16), Sinusoidal(16), negative=True)
    assert (
        "negative=False" in check_additive(adding(16), Sinusoidal(16), negative=False).left_out["positions below zero"]
    )


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


@pytest.mark.parametrize(("build", "codes"), BUILT, ids=_codes_of)
def test_a_fault_of_two_models_is_named(build, codes):
    report = check_additive(make=build, like=SPEC, length=600, raises=False)
    assert report.codes == codes, report


def test_two_models_that_share_nothing_pass():
    report = check_additive(make=remembering(lambda spec: spec), like=SPEC, length=600)
    assert {"two models of another base", "two models of another width"} <= set(report.experiments)


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
        (grid_sum(DOWN, ACROSS), "axes-exchanged", "coordinate 1 stands where 0 belongs"),
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
        ({"align_corners": False}, "rows-moved", "align_corners=False, where align_corners=True is right"),
        ({"kind": "cubic"}, "rows-rescaled", "kind='cubic', where kind='linear'"),
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


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_one_channel_at_one_position_is_caught(name):
    xp = arrays(name)
    right = adding(32, xp)
    its = xp.asarray((np.arange(32) == 11).astype(np.float32))

    def forward(x, positions):
        return right(x, positions) + cast(
            xp, xp.asarray(0.003) * cast(xp, positions == 7_654, "float32")[..., None] * its, x.dtype
        )

    report = check_additive(forward, Sinusoidal(32), backend=name, raises=False)
    assert report.codes == {"one-number-wrong"}
    assert "position 7,654, in channel 11" in report.explanations[0].message


@pytest.mark.parametrize(
    ("dtype", "spec"),
    [
        ("float32", Sinusoidal(32)),
        ("float32", Sinusoidal(32, scale=0.1)),
        ("float16", Sinusoidal(32)),
        ("float64", Sinusoidal(32)),
    ],
)
def test_half_of_what_is_allowed_passes_and_twice_is_caught(dtype, spec):
    """What is allowed is read from a report: an error of 1, as a share of it."""

    def off(by):
        def forward(x, positions):
            y = x.astype(np.float64) + ch.table(spec, positions, "float64")
            y[..., 5] += by * (positions == 4_321)
            return y.astype(x.dtype) if dtype != "float16" else y.astype(np.float16)

        return check_additive(forward, spec, dtype=dtype, raises=False)

    large = 1.0
    allowed = large / off(large).worst
    assert 0 < allowed < 0.01
    assert not off(2.1 * allowed).sound
    if dtype != "float16":  # there the answer itself is rounded by as much
        assert off(allowed / 2).sound


@pytest.mark.parametrize("how", [{"phases_in": "float16"}, {"table_in": "float16"}, {"positions_in": "float16"}])
def test_what_coarse_tokens_hide_is_not_said_of_them(how):
    """A table of float16 is what tokens of float16 get; phases and positions of float16 are not."""
    report = check_additive(adding(**how), SPEC, dtype="float16", raises=False)
    assert report.sound == ("table_in" in how)


def test_numbers_that_are_nan_are_a_failure():
    def forward(x, positions):
        y = x + wave_table(positions, 32)
        y[positions == 300] = np.nan
        return y

    report = check_additive(forward, SPEC, raises=False)
    assert not report.sound
    assert report.worst == math.inf


CANNOT = [
    (lambda x: x, {}, "it raised TypeError"),
    (lambda x, _: x[:1], {}, "it gave back shape [1, 32] for x of shape [4, 32]"),
    (lambda *_: None, {}, "it gave back nothing, not an array"),
    (lambda x, _: x.astype(int), {}, "not real numbers"),
    (lambda *_: 1 / 0, {}, "it raised ZeroDivisionError: division by zero"),
    (lambda positions: wave_table(positions, 16), {"call": "positions"}, "it gave back shape [4, 16]"),
]


@pytest.mark.parametrize(("function", "options", "said"), CANNOT)
def test_what_cannot_be_called_is_one_sentence(function, options, said):
    with pytest.raises(CannotCheck) as refused:
        check_additive(function, SPEC, backend="numpy", **options)
    assert said in str(refused.value)
    assert "was called as function(" in str(refused.value)


def test_a_function_that_ends_says_so():
    def forward(x, positions):
        if positions.max() >= 512:
            raise IndexError("index 512 is out of bounds")
        return x + wave_table(positions, 32)

    with pytest.raises(CannotCheck, match="length="):
        check_additive(forward, SPEC)
    assert check_additive(forward, SPEC, length=512).sound


def test_arguments_that_cannot_be_used():
    right = adding()
    with pytest.raises(InvalidType, match="additive code"):
        check_additive(right, ch.Rotary(32))
    with pytest.raises(InvalidType, match="neither a function nor a make="):
        check_additive(None, SPEC)
    with pytest.raises(InvalidValue, match="needs its rows"):
        check_additive(right, Learned(32, rows=64))
    with pytest.raises(InvalidValue, match="`resized` is for a learned table"):
        check_additive(right, SPEC, resized={"rows": 3})
    with pytest.raises(InvalidValue, match="at most the 64 positions"):
        check_additive(right, Learned(32, rows=64), values=TRAINED[:64].repeat(2, 1), length=65)
    with pytest.raises(InvalidValue, match="must be of tokens"):
        check_additive(right, SPEC, call="q, k, positions")
    with pytest.raises(InvalidValue, match="functions that count their rows"):
        check_additive(right, SPEC, grid=Grid(5))
    with pytest.raises(InvalidValue, match="as many axes as the code, 1"):
        check_additive(right, SPEC, grid=GRID, call="x")
    with pytest.raises(InvalidType, match="must be a grid"):
        check_additive(right, SPEC, grid=(2, 3), call="x")
    with pytest.raises(InvalidValue, match="token_scale"):
        check_additive(right, SPEC, token_scale=0.0)


def test_a_preset_is_named_by_its_name():
    report = check_additive(adding(32), "vaswani2017:width=32", length=300)
    assert report.sound
    assert report.kind == "additive"
    assert "width 32" in report.like
    assert report.to_dict()["sound"] is True


def test_laws_that_are_broken_are_among_the_failures():
    wrong = check_additive(lambda x, p: x + 3 * wave_table(p, 32), SPEC, raises=False)
    assert {"bounded", "scores depend on distance only"} <= {one.experiment for one in wrong.failures}
    rounded = check_additive(adding(positions_in="float16"), SPEC, raises=False)
    assert "bounded" not in {one.experiment for one in rounded.failures}


def test_any_library_of_the_array_api_can_be_asked():
    xp = pytest.importorskip("array_api_strict")

    def forward(x, positions):
        phases = xp.astype(positions, xp.float32)[:, None] * xp.asarray(rates(16))[None, :]
        waves = xp.stack([xp.sin(phases), xp.cos(phases)], axis=-1)
        return x + xp.reshape(waves, (positions.shape[0], 16))

    report = check_additive(forward, Sinusoidal(16), backend=xp, length=600)
    assert report.called["library"] == "array_api_strict"
    wrong = check_additive(lambda x, p: forward(x, p + 1), Sinusoidal(16), backend=xp, length=600, raises=False)
    assert wrong.codes == {"positions-offset"}
