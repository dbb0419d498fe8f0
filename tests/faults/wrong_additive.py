"""Additive functions as people write them in PyTorch, NumPy and JAX, each with a slip of somebody's, or without it.

``xp`` is the module of arrays: `torch`, `numpy` or `jax.numpy`. Beside the functions stand the rows that name them.
"""

import functools

import numpy as np

import clockhands as ch
from clockhands.ladders import Geometric
from faults.rows import Row, arrays_of, cast, keywords

WIDTH = 64


def rates(width, base, xp, *, denominator=None, channel_wise=False, doubled=False):
    """``exp(-ln(base) 2 i / width)``, as everybody writes it in float32."""
    steps = cast(xp, xp.arange(0, width if not channel_wise else 2 * width, 2), "float32")
    if channel_wise:
        steps = steps / (1 if doubled else 2)
    return xp.exp(steps * float(-np.log(base) / (denominator or width)))


def placed(sine, cosine, layout, order, xp):
    """The two waves [seq, pairs] in their channels."""
    first, second = (sine, cosine) if order == "sin-cos" else (cosine, sine)
    if layout == "halves":
        return xp.concatenate([first, second], axis=-1)
    return xp.stack([first, second], axis=-1).reshape(*first.shape[:-1], 2 * first.shape[-1])


def waves(spec, positions, xp, **slip):
    """The table at these positions [..., seq], float32; each slip is a keyword."""
    closed = getattr(spec.spacing, "span", "open") == "closed"
    if slip.get("turn_ends"):
        closed = not closed
    ladder = rates(spec.width, spec.base, xp, denominator=spec.width - 2 if closed else None)
    ladder = _through(xp, ladder, slip.get("rates_in"))
    t = cast(xp, positions, "float32") + slip.get("moved", 0)
    if slip.get("mirrored"):
        t = xp.abs(t)
    t = _through(xp, t, slip.get("positions_in"))
    phases = _through(xp, t[..., None] * ladder, slip.get("phases_in"))
    sine, cosine = xp.sin(phases), xp.cos(phases)
    order, layout = spec.order, spec.layout
    if slip.get("swap"):
        order = {"sin-cos": "cos-sin", "cos-sin": "sin-cos"}[order]
    if slip.get("other"):
        layout = {"halves": "interleaved", "interleaved": "halves"}[layout]
    return _through(xp, placed(sine, cosine, layout, order, xp), slip.get("table_in"))


def _through(xp, a, dtype):
    return a if dtype is None else cast(xp, cast(xp, a, dtype), "float32")


def added(x, table, xp, scale=1.0):
    return cast(xp, cast(xp, x, "float32") + scale * table, x.dtype)


def on_the_fly(spec, wrong=True, xp=np, **slip):
    slip = slip if wrong else {}
    scale = slip.get("scale", spec.scale)
    return lambda x, positions: added(x, waves(spec, positions, xp, **slip), xp, scale)


def counted(spec, wrong=True, xp=np, moved=2):
    """`forward(x)` that counts its rows, from 0 or from padding + 1 (sentence-transformers#3879, ANEForge#257)."""
    start = moved if wrong else 0
    return lambda x: added(x, waves(spec, start + xp.arange(x.shape[-2]), xp), xp)


def table_only(spec, wrong=True, xp=np, **slip):
    """`forward(positions)` that gives the table."""
    return lambda positions: waves(spec, positions, xp, **(slip if wrong else {}))


def exponents(spec, wrong=True, xp=np, doubled=False):
    """A rate of its own for each channel: ``base ** (-c / d)``, or the channel for the pair, ``base ** (-2 c / d)``."""
    own = rates(spec.width, spec.base, xp, channel_wise=True, doubled=doubled)

    def forward(x, positions):
        if not wrong:
            return added(x, waves(spec, positions, xp), xp)
        phases = cast(xp, positions, "float32")[..., None] * own
        channels = np.arange(spec.width)
        first = channels % 2 == 0 if spec.layout == "interleaved" else channels < spec.width // 2
        sine_here = xp.asarray(first == (spec.order == "sin-cos"))
        return added(x, xp.where(sine_here, xp.sin(phases), xp.cos(phases)), xp)

    return forward


def ignoring(spec, wrong=True, xp=np):
    def forward(x, positions):
        return added(x, waves(spec, xp.arange(positions.shape[-1]) if wrong else positions, xp), xp)

    return forward


def ending(spec, wrong=True, xp=np, rows=512):
    """A table made for the new tokens alone, whose index is clamped once there is a past (transformers#15444)."""
    table = waves(spec, xp.arange(rows if wrong else 16384), xp)
    return lambda x, positions: added(x, table[xp.clip(positions, 0, len(table) - 1)], xp)


def first_dtype(spec, wrong=True, xp=np):
    kept = []

    def forward(x, positions):
        if not kept:
            low = x.dtype if wrong else None
            kept.append(waves(spec, xp.arange(16384), xp, positions_in=low))
        return added(x, kept[0][positions], xp)

    return forward


def offset_cache(spec, wrong=True, xp=np):
    kept = {}

    def forward(x, offset):
        key = x.shape[-2] if wrong else (x.shape[-2], offset)
        if key not in kept:
            kept[key] = waves(spec, offset + xp.arange(x.shape[-2]), xp)
        return added(x, kept[key], xp)

    return forward


def times(spec, wrong=True, xp=np, number=2):
    """Added twice, by the embedding and by the first layer, or not at all."""
    return lambda x, positions: added(x, waves(spec, positions, xp), xp, number if wrong else 1)


def in_place(spec, wrong=True, xp=np):
    def forward(x, positions):
        out = added(x, waves(spec, positions, xp), xp)
        if wrong:
            x[...] = out
            return x
        return out

    return forward


def one_buffer(spec, wrong=True, xp=np):
    """What one call returns is written again by the next one of its shape."""
    kept = {}

    def forward(x, positions):
        out = added(x, waves(spec, positions, xp), xp)
        if not wrong:
            return out
        buffer = kept.setdefault((tuple(out.shape), str(out.dtype)), out)
        buffer[...] = out
        return buffer

    return forward


def keyed_cache(xp=np):
    """A table that all models share, by their width alone."""
    tables = {}

    def build(spec, wrong=True):
        known = spec.width if wrong else spec
        if known not in tables:
            tables[known] = waves(spec, xp.arange(16384), xp)
        return lambda x, positions: added(x, tables[known][positions], xp)

    return build


def of_another(spec, wrong=True, xp=np, change=None):
    return on_the_fly(change(spec) if wrong else spec, xp=xp)


def learned(spec, wrong=True, xp=np, *, values=None, moved=0, resized=None):
    """Rows of a trained table: those of other positions, or of a table that was resized otherwise."""
    table = xp.asarray(resized(spec) if wrong and resized else values)
    first = spec.offset + (moved if wrong else 0)
    return lambda x, positions: added(x, table[xp.clip(positions + first, 0, len(table) - 1)], xp)


def paper(layout):
    return ch.Sinusoidal(WIDTH, layout=layout)


def cosine_first(layout):
    return ch.Sinusoidal(WIDTH, layout=layout, order="cos-sin")


def whisper(layout):
    return ch.Sinusoidal(WIDTH, spacing=Geometric(10000.0, span="closed"), layout=layout)


def scaled(layout):
    return ch.Sinusoidal(WIDTH, layout=layout, scale=0.125)


def of_base(base):
    def change(spec):
        return ch.Sinusoidal(spec.width, base, layout=spec.layout, order=spec.order)

    change.__name__ = f"base{base:g}"
    return change


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


def roberta(_layout):
    return ch.Learned(WIDTH, rows=514, offset=2)


def roberta_values(spec):
    return trained(spec.rows)


def larger(_layout):
    return ch.Learned(WIDTH, rows=512)


def smaller(_layout):
    return ch.Learned(WIDTH, rows=128)


def by_corners(spec):
    return resized_to(spec.rows, 128, "corners")


def by_edges(spec):
    return resized_to(spec.rows, 128, "edges")


def smooth(spec):
    return resized_to(spec.rows, 512, "antialias")


def skipping(spec):
    return resized_to(spec.rows, 512, "edges")


def _row(case, builder, *codes, spec=paper, slip=None, options=None, **more):
    return Row(case, builder, frozenset(codes), spec, slip or {}, options or {}, **more)


LOW_PRODUCT = ("phases-rounded", "rates-rounded", "positions-rounded")

D3 = (
    _row("D3#1", "counted", "positions-offset", options={"call": "x"}),
    _row("D3#2", "on_the_fly", "positions-offset", slip={"moved": -2}),
    _row("D3#14", "on_the_fly", "closed-span", slip={"turn_ends": True}),
    _row("D3#15", "on_the_fly", "sine-and-cosine-swapped", slip={"swap": True}),
    _row("D3#16", "table_only", "sine-and-cosine-swapped", spec=cosine_first, slip={"swap": True},
         options={"call": "positions"}),
    _row("D3#17", "exponents", "exponent"),
    _row("D3#17", "exponents", "exponent", slip={"doubled": True}),
    _row("D3#18", "on_the_fly", "other-layout", slip={"other": True}),
    _row("D3#18", "on_the_fly", "open-span", spec=whisper, slip={"turn_ends": True}),
    _row("D3#1", "learned", "positions-offset", "rows-moved", spec=roberta, slip={"moved": -2},
         values=roberta_values, layouts=("halves",)),
    _row("D3#19", "learned", "rows-moved", "rows-rescaled", spec=larger, slip={"resized": by_edges},
         values=by_corners, layouts=("halves",)),
    _row("D3#20", "learned", "rows-moved", "rows-rescaled", spec=smaller, slip={"resized": skipping},
         values=smooth, layouts=("halves",)),
    _row("D3#21", "ending", "table-ends"),
)  # fmt: skip

FURTHER = (
    _row("keras-hub", "on_the_fly", "positions-rounded", slip={"positions_in": "bfloat16"}),
    _row("rates", "on_the_fly", "rates-rounded", slip={"rates_in": "bfloat16"}),
    _row("Pegasus-X", "on_the_fly", "phases-rounded", slip={"phases_in": "bfloat16"}),
    _row("table", "on_the_fly", "table-rounded", slip={"table_in": "bfloat16"}),
    _row("table", "on_the_fly", "table-rounded", slip={"table_in": "float16"}),
    _row("positions", "ignoring", "positions-ignored"),
    _row("base", "of_another", "another-base", slip={"change": of_base(1000.0)}),
    _row("positional-encodings", "first_dtype", "cache-keeps-first-dtype", fresh=True),
    _row("offsets", "offset_cache", "cache-keeps-offset", options={"call": "x, offset"}),
    _row("scale", "on_the_fly", "scale-forgotten", "another-scale", spec=scaled, slip={"scale": 1.0}),
    _row("twice", "times", "added-twice", slip={"number": 2}),
    _row("never", "times", "not-added", slip={"number": 0}),
    _row("speechbrain", "on_the_fly", "sign-for-negative-positions", slip={"mirrored": True}),
    _row("in place", "in_place", "changes-its-arguments", frameworks=("torch", "numpy")),
    _row("one buffer", "one_buffer", "overwrites-its-answers", frameworks=("torch", "numpy")),
    _row("cache", "keyed_cache", "cache-without-base", factory=True),
)

ROWS = D3 + FURTHER


def made(row, framework, wrong):
    """spec -> function."""
    slip = dict(keywords(row, framework), xp=arrays_of(framework))
    builder = globals()[row.builder]
    if row.factory:
        return functools.partial(builder(**slip), wrong=wrong)
    if row.values:
        return lambda spec: builder(spec, wrong=wrong, values=row.values(spec), **slip)
    return functools.partial(builder, wrong=wrong, **slip)
