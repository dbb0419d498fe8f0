"""Functions that add a position code, written by plain arithmetic: right ones pass, and each fault is named."""

import math

import numpy as np
import pytest

import clockhands as ch
from clockhands.encodings.additive import (
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
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import EvenSteps
from clockhands.errors import InvalidType, InvalidValue
from clockhands.testing import CannotCheck, CheckFailed, check_additive
from recognition.faults.rates import geometric
from recognition.faults.rows import arrays_of as arrays
from testing.written_additive import TRAINED, adding, kept, table_of, wave_table


def test_a_right_function_passes(cases):
    ways = [
        ("numpy", make, dtype) for make in (adding, kept) for dtype in ("float32", "bfloat16", "float16", "float64")
    ]
    # JAX compiles for every shape and dtype.
    ways += [("torch", adding, "float64"), ("torch", kept, "bfloat16"), ("jax", kept, "bfloat16")]
    for name, make, dtype in ways:
        with cases(name, make.__name__, dtype):
            report = check_additive(make(xp=arrays(name)), Sinusoidal(32), dtype=dtype, backend=name)
            assert report.sound
            assert report.worst <= 1
            assert "every position" in report.experiments
            assert report.called["library"] == name


SPEC = Sinusoidal(32)
DRAWN = np.random.default_rng(2).standard_normal((2, 8)).astype(np.float32)
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


def test_every_code_can_be_asked_for(cases):
    for spec, values in CODES:
        with cases(spec):
            right = table_of(spec, values)
            assert check_additive(right, spec, values=values, length=LENGTHS.get(type(spec))).sound


# The suspects of these are made by code of their own.
OWN = [
    row
    for row in CODES
    if isinstance(row[0], (Binary, Counter, NormalizedCounter, WarpedPosition))
    or (isinstance(row[0], Sinusoidal) and (row[0].scaled or isinstance(row[0].spacing, EvenSteps)))
]


@pytest.mark.parametrize("number", [3, pytest.param(len(CODES), marks=pytest.mark.slow)])
def test_every_code_can_be_wrong(number, cases, draw):
    """Off by one hundredth at one position and channel."""
    for spec, values in [*OWN, *draw([row for row in CODES if row not in OWN], number)]:
        right = table_of(spec, values)

        def forward(x, positions, right=right):
            y = right(x, positions)
            here = positions if positions.ndim == 1 else positions[..., 0]
            y[..., 3] += np.where(here == 77, 0.01 * max(1, abs(y[..., 3]).max()), 0).astype(x.dtype)
            return y

        with cases(spec):
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
    assert "several sequences" in report.experiments
    assert ("separate positions per sequence" in report.experiments) == ("positions" in options)


def test_a_function_of_one_sequence_is_asked_all_that_needs_no_second_one():
    """No question takes more sequences or heads than it needs: those would leave it out here."""
    report = check_additive(lambda x, p: x + wave_table(p, 16), Sinusoidal(16), axes="seq width")
    assert report.sound
    lacking = {name for name, why in report.left_out.items() if "without an axis" in why}
    assert lacking == {"several sequences", "separate positions per sequence", "one token for each sequence"}
    assert "repeated call" in report.experiments


def test_rows_that_are_counted_begin_where_the_code_begins():
    report = check_additive(lambda x: x + wave_table(np.arange(x.shape[-2]), 16), Sinusoidal(16), call="x")
    assert report.sound
    assert "counts its rows" in report.left_out["packed equals separate"]
    spec = Sinusoidal(16, first=2, zero_rows=(1,))
    table = wave_table(np.arange(600), 16)
    table[1] = 0
    assert check_additive(lambda x: x + table[2 : 2 + x.shape[-2]], spec, call="x", length=500).sound
    report = check_additive(lambda x: x + table[: x.shape[-2]], spec, call="x", length=500, raises=False)
    assert report.codes == {"positions-offset"}
    assert "-2" in report.explanations[0].message


def test_a_table_alone():
    report = check_additive(lambda positions: wave_table(positions, 16), Sinusoidal(16), call="positions")
    assert report.sound
    assert "no tokens" in report.left_out["tokens are kept"]
    batched = check_additive(
        lambda positions: wave_table(positions, 16),
        Sinusoidal(16),
        call="positions",
        axes="batch seq width",
        positions="batch seq",
    )
    assert "separate positions per sequence" in batched.experiments


def test_tokens_may_be_scaled_first():
    def forward(x, positions):
        return x * np.float32(4) + wave_table(positions, 16)

    assert check_additive(forward, Sinusoidal(16), token_scale=4.0).sound
    report = check_additive(forward, Sinusoidal(16), raises=False)
    assert report.codes == {"tokens-scaled"}
    assert "4; expected 1" in report.explanations[0].message
    assert check_additive(adding(16), Sinusoidal(16), token_scale=4.0, raises=False).codes == {"tokens-scaled"}
    both = check_additive(lambda x, p: 3 * (x + wave_table(p, 16)), Sinusoidal(16), token_scale=3.0, raises=False)
    assert both.codes == {"sum-scaled"}


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


def test_one_channel_at_one_position_is_caught():
    right, its = adding(32), (np.arange(32) == 11).astype(np.float32)

    def forward(x, positions):
        return right(x, positions) + (np.float32(0.003) * (positions == 7_654)[..., None] * its).astype(x.dtype)

    report = check_additive(forward, Sinusoidal(32), raises=False)
    assert report.codes == {"one-number-wrong"}
    assert "position 7,654, in dimension 11" in report.explanations[0].message


@pytest.mark.parametrize(
    ("dtype", "spec"),
    [
        ("float32", Sinusoidal(32, scale=0.1)),
        ("float16", Sinusoidal(32)),
        pytest.param("float64", Sinusoidal(32), marks=pytest.mark.slow),
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


def test_what_coarse_tokens_hide_is_not_said_of_them(cases):
    """A table of float16 is what tokens of float16 get; phases and positions of float16 are not."""
    for how in ("phases", "table", "at_dtype"):
        with cases(how):
            report = check_additive(adding(rounded={how: "float16"}), SPEC, dtype="float16", raises=False)
            assert report.sound == (how == "table")


def test_numbers_that_are_nan_are_a_failure():
    def forward(x, positions):
        y = x + wave_table(positions, 32)
        y[positions == 300] = np.nan
        return y

    report = check_additive(forward, SPEC, raises=False)
    assert not report.sound
    assert report.worst == math.inf


def test_a_function_that_ends_says_so():
    def forward(x, positions):
        if positions.max() >= 512:
            raise IndexError("index 512 is out of bounds")
        return x + wave_table(positions, 32)

    report = check_additive(forward, SPEC)
    assert report.sound
    assert "index 512 is out of bounds" in report.left_out["positions from 512 on"]
    assert check_additive(forward, SPEC, length=512).sound
    with pytest.raises(CannotCheck, match="length="):
        check_additive(forward, SPEC, length=600)


def test_a_module_that_counts_its_rows_takes_tokens_alone(cases):
    torch = pytest.importorskip("torch")

    class Encoding(torch.nn.Module):  # as in tutorials
        def __init__(self, first, axis):
            super().__init__()
            self.register_buffer(
                "rows", torch.tensor(wave_table(np.arange(first, first + 900), 32), dtype=torch.float32)
            )
            self.axis, self.drop = axis, torch.nn.Dropout(0.1)

        def forward(self, x):
            rows = self.rows[: x.shape[self.axis]]
            return self.drop(x + (rows[:, None] if self.axis == 0 else rows[None]))

    for axis in (0, 1):
        with cases(axis):
            assert check_additive(lambda axis=axis: Encoding(0, axis), SPEC).sound
            report = check_additive(lambda axis=axis: Encoding(1, axis), SPEC, raises=False)
            assert report.codes == {"positions-offset"}, str(report)
    drawing = Encoding(0, 1)
    with pytest.raises(CannotCheck, match="draws them at random"):
        check_additive(drawing.train(), SPEC)


LONGER = {"values": TRAINED[:64].repeat(2, 1), "length": 65}
UNUSABLE = [
    (ch.Rotary(32), {}, InvalidType, "additive encoding"),
    (Learned(32, rows=64), {}, InvalidValue, "its rows were not given"),
    (SPEC, {"resized": {"rows": 3}}, InvalidValue, "`resized` needs a learned table"),
    (Learned(32, rows=64), LONGER, InvalidValue, "at most 64, the number of positions"),
    (SPEC, {"call": "q, k, positions"}, InvalidValue, "must take tokens"),
    (SPEC, {"grid": Grid(5)}, InvalidValue, "functions that count their rows"),
    (SPEC, {"grid": Grid((5, 3)), "call": "x"}, InvalidValue, "must be 1, as in the encoding"),
    (SPEC, {"grid": (2, 3), "call": "x"}, InvalidType, "must be a grid"),
    (SPEC, {"token_scale": 0.0}, InvalidValue, "token_scale"),
]


def test_arguments_that_cannot_be_used(cases):
    for like, options, error, words in UNUSABLE:
        with cases(words), pytest.raises(error, match=words):
            check_additive(adding(), like, **options)
    with pytest.raises(InvalidType, match="Neither a function nor make="):
        check_additive(None, SPEC)


def test_a_preset_is_named_by_its_name():
    report = check_additive(adding(32), "vaswani2017:width=32", length=300)
    assert report.sound
    assert report.kind == "additive"
    assert "width 32" in report.like
    assert report.to_dict()["sound"] is True


def test_laws_that_are_broken_are_among_the_failures():
    wrong = check_additive(lambda x, p: x + 3 * wave_table(p, 32), SPEC, raises=False)
    assert {"bounded", "scores depend on distance only"} <= {one.experiment for one in wrong.failures}
    rounded = check_additive(adding(rounded={"at_dtype": "float16"}), SPEC, raises=False)
    assert "bounded" not in {one.experiment for one in rounded.failures}


def test_any_library_of_the_array_api_can_be_asked():
    xp = pytest.importorskip("array_api_strict")

    def forward(x, positions):
        phases = xp.astype(positions, xp.float32)[:, None] * xp.asarray(geometric(16, 1e4, 16))[None, :]
        waves = xp.stack([xp.sin(phases), xp.cos(phases)], axis=-1)
        return x + xp.reshape(waves, (positions.shape[0], 16))

    report = check_additive(forward, Sinusoidal(16), backend=xp, length=600)
    assert report.called["library"] == "array_api_strict"
    wrong = check_additive(lambda x, p: forward(x, p + 1), Sinusoidal(16), backend=xp, length=600, raises=False)
    assert wrong.codes == {"positions-offset"}


def test_the_hint_for_a_table_that_cannot_be_called_is_a_table():
    def build(rows, columns, cells):
        return np.zeros((rows, columns, cells))

    with pytest.raises(CannotCheck) as caught:
        check_additive(build, SPEC)
    assert "def table(positions): return" in caught.value.hint
    assert "rotated" not in caught.value.hint
    table = np.random.default_rng(0).normal(size=(16, 8))
    with pytest.raises(CannotCheck) as caught:
        check_additive(build, ch.Learned(8, 64), values=table, resized={"rows": (8, 8), "grid": (4, 4)})
    assert "def resized(table, size): return" in caught.value.hint
