"""The slips of codes that are added, one row each, with the code that names it."""

import functools
import math

import numpy as np

import clockhands as ch
from clockhands.encodings.additive import AxialSinusoidal, Learned, Sinusoidal
from clockhands.encodings.ladders import EvenSteps, Geometric
from clockhands.encodings.specs import with_fields
from recognition.faults import written
from recognition.faults.rows import LOW, NO_JAX, cast, named, one_of, row
from recognition.faults.written import added, of_another, on_the_fly, other_layout, rows_of

WIDTH = 32

# --- builders that only these have ---


def table_only(spec, wrong, xp, **slip):
    """`forward(positions)` that gives the table."""
    return lambda positions: rows_of(spec, positions, xp, **(slip if wrong else {}))


def zeros(spec, wrong, xp):
    return lambda positions: rows_of(spec, positions, xp) * (0 if wrong else 1)


def exponents(spec, wrong, xp, doubled=False):
    """A rate of its own for each channel: ``base ** (-c / d)``, or the channel for the pair, ``base ** (-2 c / d)``."""
    channels = np.arange(spec.width)
    own = xp.asarray((spec.base ** (-channels * (2.0 if doubled else 1.0) / spec.width)).astype(np.float32))
    first = channels % 2 == 0 if spec.layout == "interleaved" else channels < spec.width // 2
    sine_here = xp.asarray(first == (spec.order == "sin-cos"))

    def forward(x, positions):
        if not wrong:
            return added(x, positions, spec, xp)
        phases = cast(xp, positions, "float32")[..., None] * own
        return cast(xp, cast(xp, x, "float32") + xp.where(sine_here, xp.sin(phases), xp.cos(phases)), x.dtype)

    return forward


def multiplied(spec, wrong, xp):
    return lambda x, p: x * cast(xp, rows_of(spec, p, xp), x.dtype) if wrong else added(x, p, spec, xp)


def scaled_positions(spec, wrong, xp, by=1.0):
    return lambda x, p: added(x, cast(xp, p, "float32") * (by if wrong else 1.0), spec, xp)


def ends_in_zeros(spec, wrong, xp, rows=1000):
    def forward(x, positions):
        out = added(x, positions, spec, xp)
        return xp.where((positions < rows)[..., None], out, x) if wrong else out

    return forward


def rows_given(spec, wrong, _, other):
    """The exact rows, or those of something else: of another code, on a grid, of an odd width."""
    table = other if wrong else ch.table
    return lambda x, positions: x + np.asarray(table(spec, positions), x.dtype)


def one_number(spec, wrong, xp, *, position=2_321, channel=5, by=0.01):
    its = xp.asarray(np.eye(spec.width, dtype=np.float32)[channel] * (by if wrong else 0))

    def forward(x, positions):
        here = cast(xp, positions == position, "float32")[..., None] * its
        return added(x, positions, spec, xp) + cast(xp, here, x.dtype)

    return forward


def keyed_rows(xp, key):
    """A table that all models share by what `key` says, cut to the width of whoever asks."""
    tables = {}

    def build(spec, wrong):
        held = tables.setdefault(key(spec), spec) if wrong else spec

        def forward(x, positions):
            return x + cast(xp, rows_of(held, positions, xp)[..., : spec.width], x.dtype)

        return forward

    return build


def learned(spec, wrong, xp, *, values=None, moved=0, resized=None):
    """Rows of a trained table: those of other positions, or of a table that was resized otherwise."""
    table = xp.asarray(resized(spec) if wrong and resized else values)
    first = spec.offset + (moved if wrong else 0)
    return lambda x, positions: cast(
        xp, cast(xp, x, "float32") + table[xp.clip(positions + first, 0, len(table) - 1)], x.dtype
    )


# --- what they should be ---


paper = named("paper", lambda layout: Sinusoidal(WIDTH, layout=layout))
cosine_first = named("cosine_first", lambda layout: Sinusoidal(WIDTH, layout=layout, order="cos-sin"))
whisper = named("whisper", lambda layout: Sinusoidal(WIDTH, spacing=Geometric(10000.0, span="closed"), layout=layout))
scaled = named("scaled", lambda layout: Sinusoidal(WIDTH, layout=layout, scale=0.125))
odd = named("odd", lambda _layout: Sinusoidal(9, odd="extra"))
padded = named("padded", lambda layout: Sinusoidal(WIDTH, layout=layout, zero_rows=(1,)))
on_a_grid = named("on_a_grid", lambda _layout: AxialSinusoidal(WIDTH))
by_wave = named("by_wave", lambda _layout: AxialSinusoidal(WIDTH, channels="wave-axis-rate"))
roberta = named("roberta", lambda _layout: Learned(WIDTH, rows=514, offset=2))
larger = named("larger", lambda _layout: Learned(WIDTH, rows=512))
smaller = named("smaller", lambda _layout: Learned(WIDTH, rows=128))


def trained(rows):
    """Numbers as training leaves them: neighbouring rows alike."""
    steps = np.random.default_rng(3).standard_normal((rows, WIDTH))
    return (np.cumsum(steps, axis=0) / np.sqrt(rows)).astype(np.float32)


def resized_to(rows, old, rule):
    """A trained table of `old` rows for `rows` positions; linear, where the new rows stand by the rule."""
    table, new = trained(old), np.arange(rows)
    if rule == "antialias":  # triangles as wide as the step, their weights summing to 1
        step = old / rows
        away = np.abs(np.arange(old)[None] - ((new + 0.5) * step - 0.5)[:, None]) / step
        weights = np.clip(1 - away, 0, None)
        return (weights / weights.sum(axis=1, keepdims=True) @ table).astype(np.float32)
    where = new * (old - 1) / (rows - 1) if rule == "corners" else (new + 0.5) * old / rows - 0.5
    columns = [np.interp(where, np.arange(old), column) for column in table.T]
    return np.stack(columns, axis=-1).astype(np.float32)


def resized(old, rule):
    def rows(spec):
        return resized_to(spec.rows, old, rule)

    rows.__name__ = rule
    return rows


# --- fields that are read wrongly ---


def of_base(base):
    def change(spec):
        return with_fields(spec, spacing=Geometric(base, span=spec.spacing.span))

    change.__name__ = f"base{base:g}"
    return change


def other_span(spec):
    span = {"open": "closed", "closed": "open"}[spec.spacing.span]
    return with_fields(spec, spacing=Geometric(spec.base, span=span))


def other_order(spec):
    return with_fields(spec, order={"sin-cos": "cos-sin", "cos-sin": "sin-cos"}[spec.order])


layout_and_span = named("layout_and_span", lambda spec: other_span(other_layout(spec)))


def of_steps(spec, positions):
    return ch.table(Sinusoidal(spec.width, spacing=EvenSteps(1.0, 1e-4)), positions)


def one_narrower(spec, positions):
    rows = ch.table(Sinusoidal(spec.width - 1), positions)
    return np.concatenate([rows, np.zeros((len(positions), 1))], axis=-1)


unpadded = named("unpadded", lambda spec, positions: ch.table(Sinusoidal(spec.width, layout=spec.layout), positions))


def grid(*axes):
    """Which coordinate each half of the channels is of."""

    def rows(spec, positions):
        half = Sinusoidal(spec.width // 2, layout="halves")
        return np.concatenate([ch.table(half, positions[..., axis]) for axis in axes], axis=-1)

    rows.__name__ = "of_" + "_".join(map(str, axes))
    return rows


def another_base(draw, spec):
    return {"change": of_base(spec.base * draw.choice((0.1, 0.5, 2.0, 10.0, 50.0)))}


def another_scale(draw, spec):
    scale = draw.choice((1.0, 2.0, 8.0, 0.25))
    return None if scale in (spec.scale, 2 * spec.scale) else {"scale": scale}


LOW_PRODUCT = ("phases-rounded", "rates-rounded", "positions-rounded")
BATCH = {"axes": "batch seq width"}
TABLE = {"call": "positions"}
ONE = {"layouts": ("halves",)}
NUMPY = {"frameworks": ("numpy",), "layouts": ("interleaved",)}
SQRT = math.sqrt(WIDTH)

_row = functools.partial(row, spec=paper)

D3 = (
    _row("D3#1", written.counting, "positions-offset", options={"call": "x"}),
    _row("D3#2", on_the_fly, "positions-offset", slip={"moved": -2}, drawn=one_of(moved=(-2, -1, 1, 2, 5, 50))),
    _row("D3#14", of_another, "closed-span", slip={"change": other_span}, drawn="spec", limits={"span": "open"}),
    _row("D3#15", of_another, "sine-and-cosine-swapped", slip={"change": other_order}, drawn="spec"),
    _row("D3#16", of_another, "sine-and-cosine-swapped", spec=cosine_first, slip={"change": other_order}),
    _row("D3#17", exponents, "exponent"),
    _row("D3#17", exponents, "exponent", slip={"doubled": True}),
    _row("D3#18", of_another, "other-layout", slip={"change": other_layout}, drawn="spec"),
    _row("D3#18", of_another, "open-span", spec=whisper, slip={"change": other_span}, drawn="spec",
         limits={"span": "closed"}),
    _row("D3#1", learned, "positions-offset", "rows-moved", spec=roberta, slip={"moved": -2},
         values=lambda spec: trained(spec.rows), **ONE),
    _row("D3#19", learned, "rows-moved", "rows-rescaled", spec=larger, slip={"resized": resized(128, "edges")},
         values=resized(128, "corners"), **ONE),
    _row("D3#20", learned, "rows-moved", "rows-rescaled", spec=smaller, slip={"resized": resized(512, "edges")},
         values=resized(512, "antialias"), **ONE),
    _row("D3#21", written.table_ends, "table-ends", slip={"rows": 512}),
)  # fmt: skip

FURTHER = (
    _row("keras-hub", on_the_fly, "positions-rounded", slip={"at_dtype": "bfloat16"}, drawn=one_of(at_dtype=LOW)),
    _row("rates", on_the_fly, "rates-rounded", slip={"rates": "bfloat16"}, drawn=one_of(rates=LOW)),
    _row("Pegasus-X", on_the_fly, "phases-rounded", slip={"phases": "bfloat16"}, drawn=one_of(phases=LOW)),
    _row("table", on_the_fly, "table-rounded", slip={"table": "bfloat16"}, drawn=one_of(table=LOW)),
    _row("table", table_only, "table-rounded", slip={"table": "float16"}, options=TABLE),
    _row("positions", written.ignoring, "positions-ignored"),
    _row("positions", written.ignoring, "positions-ignored", slip={"start": 2}),
    _row("positions", written.ignoring, "positions-from-first", slip={"what": "less the first"}),
    _row("positions", written.ignoring, "positions-of-first-sequence", slip={"what": "first sequence"},
         options={**BATCH, "positions": "batch seq"}),
    _row("sequences", written.first_sequence, "first-sequence-only", options=BATCH),
    _row("stretched", scaled_positions, "positions-scaled", slip={"by": 0.5}),
    _row("stretched", scaled_positions, "positions-scaled", slip={"by": 1000 / 999}),
    _row("far", on_the_fly, "positions-offset", slip={"moved": 4096}),
    _row("base", of_another, "another-base", slip={"change": of_base(1234.5)}, drawn=another_base),
    _row("both", of_another, "other-layout", "closed-span", slip={"change": layout_and_span}, every=True,
         layouts=("interleaved",)),
    _row("positional-encodings", written.first_dtype, "cache-keeps-first-dtype", fresh=True),
    _row("offsets", written.offset_cache, "cache-keeps-offset", options={"call": "x, offset"}),
    _row("scale", on_the_fly, "scale-forgotten", "another-scale", spec=scaled, slip={"scale": 1.0},
         drawn=another_scale),
    _row("scale", on_the_fly, "another-scale", slip={"scale": 0.75}),
    _row("twice", on_the_fly, "added-twice", slip={"scale": 2.0}),
    _row("never", on_the_fly, "not-added", slip={"scale": 0.0}, drawn="spec"),
    _row("never", zeros, "not-added", options=TABLE),
    _row("tokens", on_the_fly, "tokens-scaled", slip={"tokens": SQRT}),
    _row("sum", on_the_fly, "sum-scaled", slip={"total": 3.0}),
    _row("product", multiplied, "code-multiplied"),
    _row("speechbrain", on_the_fly, "sign-for-negative-positions", slip={"mirrored": True}, drawn="spec"),
    _row("zeros", ends_in_zeros, "table-ends"),
    _row("wraps", written.table_ends, "table-ends", slip={"rows": 1000, "past": "wrap"}),
    _row("rebuilt", written.rebuilt, "table-rebuilt-rounded", slip={"rows": 1024}, exact=False),
    _row("kernel", written.coarse_path, "coarse-path-differs"),
    _row("one number", one_number, "one-number-wrong"),
    _row("in place", written.in_place, "changes-its-arguments", frameworks=NO_JAX),
    _row("one buffer", written.one_buffer, "overwrites-its-answers", frameworks=NO_JAX),
    _row("cache", keyed_rows, "cache-without-base", slip={"key": lambda spec: (spec.width, spec.order)}, factory=True),
    _row("cache", keyed_rows, "cache-without-width", slip={"key": lambda spec: (spec.base, spec.order)}, factory=True),
    _row("cache", keyed_rows, "cache-without-order", slip={"key": lambda spec: (spec.base, spec.width)}, factory=True),
    _row("cache", keyed_rows, "cache-without-base", "cache-without-order", slip={"key": lambda spec: spec.width},
         factory=True, every=True),
    _row("steps", rows_given, "another-code", slip={"other": of_steps}, **NUMPY),
    _row("odd", rows_given, "odd-width", spec=odd, slip={"other": one_narrower}, **NUMPY),
    _row("padding", rows_given, "padding-row", spec=padded, slip={"other": unpadded}, **NUMPY),
    _row("grid", rows_given, "axes-exchanged", spec=on_a_grid, slip={"other": grid(1, 0)}, **NUMPY),
    _row("grid", rows_given, "axis-dropped", spec=on_a_grid, slip={"other": grid(0, 0)}, **NUMPY),
    _row("grid", rows_given, "other-layout", spec=by_wave, slip={"other": grid(0, 1)}, **NUMPY),
    _row("span", of_another, "other-denominator", "another-base", slip={"change": of_base(100.0)}, every=True),
)  # fmt: skip

ROWS = D3 + FURTHER
