"""Right functions, drawn at random: as people write them, with a spec, a dtype and honest float32 arithmetic.

Each is ``(name, kind, spec, keywords of the check)``, the function or its builder among the keywords.
"""

import functools
import importlib

import numpy as np

from faults import drawn_specs, wrong_additive, wrong_biases
from faults.rates import factor_of, rates_of
from faults.rows import arrays_of, cast


def part(name, framework):
    """A builder of the right code, from the file of its framework."""
    if framework != "torch":
        return functools.partial(
            getattr(importlib.import_module("faults.wrong_rotary_arrays"), name), wrong=False, xp=arrays_of(framework)
        )
    for module in ("faults.wrong_rotary_torch", "faults.wrong_rotary_torch_kept"):
        if hasattr(importlib.import_module(module), name):
            return functools.partial(getattr(importlib.import_module(module), name), wrong=False)
    raise AttributeError(name)


def wave_table(spec, positions, xp, double=False):
    """Cosine and sine [..., seq, pairs], from float32 rates and phases, or from float64 ones in NumPy."""
    kind = "float64" if double else "float32"
    rates = xp.asarray(rates_of(spec, np.float64 if double else np.float32))
    phases = cast(xp, positions, kind)[..., None] * rates
    factor = factor_of(spec)
    return cast(xp, xp.cos(phases) * factor, "float32"), cast(xp, xp.sin(phases) * factor, "float32")


def turned(x, cos, sin, layout, xp, *, inside=None):
    """The first channels turned; in float32 and rounded once, or with cosine and sine cast to x's dtype first."""
    pairs = cos.shape[-1]
    if inside:
        cos, sin, wide = cast(xp, cos, x.dtype), cast(xp, sin, x.dtype), x
    else:
        wide = cast(xp, x, "float32")
    if layout == "halves":
        a, b = wide[..., :pairs], wide[..., pairs : 2 * pairs]
        out = xp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    else:
        a, b = wide[..., 0 : 2 * pairs : 2], wide[..., 1 : 2 * pairs : 2]
        out = xp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(*x.shape[:-1], 2 * pairs)
    return xp.concatenate([cast(xp, out, x.dtype), x[..., 2 * pairs :]], axis=-1)


def placed(wave, ndim, seq_axis, batch=False):
    """[seq, pairs] or [batch, seq, pairs] beside x of so many axes."""
    shape = [1] * ndim
    shape[seq_axis], shape[-1] = wave.shape[-2], wave.shape[-1]
    if batch:
        shape[0] = wave.shape[0]
    return wave.reshape(*shape)


def fly(spec, xp, inside=False, double=False, seq_axis=-2):
    def forward(x, positions):
        cos, sin = wave_table(spec, positions, xp, double)
        batch = positions.ndim == 2
        cos, sin = (placed(wave, x.ndim, seq_axis, batch) for wave in (cos, sin))
        return turned(x, cos, sin, spec.layout, xp, inside=inside)

    return forward


def counting(spec, xp, inside=False):
    def forward(x):
        return turned(x, *wave_table(spec, xp.arange(x.shape[-2]), xp), spec.layout, xp, inside=inside)

    return forward


def from_offset(spec, xp, inside=False):
    kept = {}

    def forward(x, offset):
        rows = x.shape[-2]
        if (offset, rows) not in kept:
            kept[offset, rows] = wave_table(spec, offset + xp.arange(rows), xp)
        return turned(x, *kept[offset, rows], spec.layout, xp, inside=inside)

    return forward


def pair(spec, xp, inside=False):
    def forward(q, k, positions):
        cos, sin = wave_table(spec, positions, xp)
        return turned(q, cos, sin, spec.layout, xp, inside=inside), turned(k, cos, sin, spec.layout, xp, inside=inside)

    return forward


def growing(spec, xp, inside=False):
    """A table that doubles when it is too short."""
    kept = {"rows": 0}

    def forward(x, positions):
        needed = int(positions.max()) + 1
        if needed > kept["rows"]:
            kept["rows"] = max(2 * kept["rows"], needed, 64)
            kept["table"] = wave_table(spec, xp.arange(kept["rows"]), xp)
        cos, sin = kept["table"]
        return turned(x, cos[positions], sin[positions], spec.layout, xp, inside=inside)

    return forward


def keyed(xp, inside=False):
    """One table for all models of a process, by all that it depends on."""
    kept = {}

    def build(spec):
        key = (spec.rotated, spec.base, repr(spec.scaling))
        if key not in kept:
            kept[key] = wave_table(spec, xp.arange(16384), xp)
        cos, sin = kept[key]
        return lambda x, positions: turned(x, cos[positions], sin[positions], spec.layout, xp, inside=inside)

    return build


ROTARY_STYLES = ("fly", "fly", "double", "counting", "offset", "pair", "growing", "keyed", "batch", "heads", "twin")


def drawn_rotary(draw, framework):
    xp = arrays_of(framework)
    spec = drawn_specs.rotary(draw, framework)
    style = draw.choice(ROTARY_STYLES)
    dtypes = ("float32", "float32", "bfloat16", "float16") + (("float64",) if framework != "jax" else ())
    dtype = draw.choice(dtypes)
    inside = draw.random() < 0.5
    options = {"dtype": dtype}
    if style == "double" and framework == "jax":
        style = "fly"
    if style in ("fly", "double"):
        options["fn"] = fly(spec, xp, inside, double=style == "double")
    elif style == "counting":
        options |= {"fn": counting(spec, xp, inside), "call": "x"}
    elif style == "offset":
        options |= {"fn": from_offset(spec, xp, inside), "call": "x, offset"}
    elif style == "pair":
        options |= {"fn": pair(spec, xp, inside), "call": "q, k, positions"}
    elif style == "growing":
        options["fn"] = growing(spec, xp, inside)
    elif style == "keyed":
        options["make"] = keyed(xp, inside)
    elif style == "batch":
        options |= {"fn": fly(spec, xp, inside), "axes": "batch heads seq width", "positions": "batch seq"}
    elif style == "heads":
        options |= {"fn": fly(spec, xp, inside, seq_axis=1), "axes": "batch seq heads width"}
    else:
        options["fn"] = part("on_the_fly", framework)(spec)
    name = f"rotary {style} {framework} {dtype}{' inside' if inside else ''} {spec.head_width} {spec.scaling}"
    return name, "rotary", spec, options


def drawn_additive(draw, framework):
    xp = arrays_of(framework)
    spec = drawn_specs.sinusoidal(draw, framework)
    dtype = draw.choice(("float32", "bfloat16", "float16") + (("float64",) if framework != "jax" else ()))
    style = draw.choice(("fly", "counting", "table", "offset", "kept"))
    right, scale = functools.partial(wrong_additive.waves, spec, xp=xp), spec.scale
    options = {"dtype": dtype}
    if style == "fly":
        options["fn"] = lambda x, positions: wrong_additive.added(x, right(positions), xp, scale)
    elif style == "counting":
        options |= {"fn": lambda x: wrong_additive.added(x, right(xp.arange(x.shape[-2])), xp, scale), "call": "x"}
    elif style == "table":
        options = {"fn": lambda positions: right(positions) * scale, "call": "positions"}
    elif style == "offset":
        options |= {
            "fn": lambda x, offset: wrong_additive.added(x, right(offset + xp.arange(x.shape[-2])), xp, scale),
            "call": "x, offset",
        }
    else:
        kept = right(xp.arange(16384)) * scale
        options["fn"] = lambda x, positions: x + cast(xp, kept[positions], x.dtype)
    return f"additive {style} {framework} {dtype} {spec.width}", "additive", spec, options


def drawn_bias(draw, framework):
    xp = arrays_of(framework)
    if draw.random() < 0.5:
        spec = drawn_specs.alibi(draw)
        if draw.random() < 0.3 and spec.form == "distance":
            return f"alibi counts {framework}", "bias", spec, {
                "fn": wrong_biases.counted(spec, wrong=False, xp=xp), "call": "counts"
            }  # fmt: skip
        return f"alibi {spec.heads} {spec.form} {framework}", "bias", spec, {
            "fn": wrong_biases.alibi(spec, wrong=False, xp=xp)
        }  # fmt: skip
    spec = drawn_specs.buckets(draw)
    values = wrong_biases.trained(spec)
    fn = wrong_biases.bucketed(spec, wrong=False, xp=xp, values=values)
    return f"buckets {spec} {framework}", "bias", spec, {"fn": fn, "values": values}
