"""Wrong functions, drawn at random: a spec, one fault with a parameter, a framework and a dtype.

Each is a `Drawn`: the codes that name it, and the keywords of the check. A fault that would change nothing that can be
seen (a scaling that leaves every rate as it is) is not a fault, and drawn again.
"""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

import clockhands as ch
from clockhands.specs import with_fields
from faults import drawn_specs, wrong_additive, wrong_biases
from faults.rates import factor_of, plain, rates_of
from faults.right_functions import fly, turned
from faults.rows import arrays_of, cast, low_dtype
from faults.wrong_rotary import builder_of

# Positions that are asked, and what a phase must be off by there to be more than rounding, in a tenth of the pairs.
LENGTH, SEEN = 10_000, 0.1


@dataclass(frozen=True)
class Drawn:
    fault: str
    codes: frozenset[str]
    kind: str
    spec: Any
    options: dict[str, Any]
    about: str


def drawn(draw, framework):
    """A wrong function of any kind."""
    while True:
        kind = draw.choices(("rotary", "additive", "bias"), (6, 2, 2))[0]
        found = {"rotary": _rotary, "additive": _additive, "bias": _bias}[kind](draw, framework)
        if found is not None:
            return found


def _visible(right, wrong, by=1.0):
    """Whether rates differ enough to be seen."""
    return float(np.max(np.abs(np.asarray(right, float) - np.asarray(wrong, float)))) * LENGTH > SEEN * by


def _wrong(name, framework, **slip):
    """A wrong builder of this framework, spec -> function."""

    class Named:
        builder = name

    if framework != "torch":
        slip["xp"] = arrays_of(framework)
    slip = {
        key: low_dtype(value, framework) if value in ("bfloat16", "float16") else value for key, value in slip.items()
    }
    return functools.partial(builder_of(Named, framework), **slip)


def _of_rates(rates, spec, framework, factor=None):
    """A function that turns by these rates."""
    xp = arrays_of(framework)
    held = xp.asarray(np.asarray(rates, np.float32))
    factor = factor_of(spec) if factor is None else factor

    def forward(x, positions):
        phases = cast(xp, positions, "float32")[..., None] * held
        return turned(x, xp.cos(phases) * factor, xp.sin(phases) * factor, spec.layout, xp)

    return forward


def _rotary(draw, framework):
    fault = draw.choice(tuple(ROTARY))
    made = ROTARY[fault](draw, framework)
    if made is None:
        return None
    codes, spec, options = made
    if "dtype" not in options and fault not in FINE and draw.random() < 0.2:
        options["dtype"] = "bfloat16"
    about = f"{fault} {framework} {options.get('dtype', 'float32')} {spec.layout} {spec.head_width}/{spec.rotated} "
    return Drawn(fault, frozenset(codes), "rotary", spec, options, f"{about}{spec.base:g} {spec.scaling}")


def _fields(codes, make, **limits):
    """A fault of fields: the right rates and the wrong ones, computed and compared."""

    def build(draw, framework):
        spec = drawn_specs.rotary(draw, framework, **limits)
        other = make(draw, spec)
        if other is None:
            return None
        right, wrong = rates_of(spec, np.float64), rates_of(other, np.float64)
        if len(right) == len(wrong) and not _visible(right, wrong, 10):
            return None
        return codes, spec, {"fn": _of_rates(wrong, other, framework)}

    return build


def _another_base(draw, spec):
    return with_fields(spec, base=spec.base * 10.0 ** (draw.choice((-1, 1)) * draw.uniform(0.1, 1.5)))


def _scaled_otherwise(**change):
    def make(draw, spec):
        values = {key: value(draw, getattr(spec.scaling, key)) for key, value in change.items()}
        return with_fields(spec, scaling=dataclasses.replace(spec.scaling, **values))

    return make


def _another_factor(draw, spec):
    return _scaled_otherwise(factor=lambda d, old: d.choice([f for f in (2.0, 3.0, 8.0, 32.0, 64.0) if f != old]))(
        draw, spec
    )


def _another_original(draw, spec):
    if spec.scaling is None or not hasattr(spec.scaling, "beta_fast" if draw.random() < 0.5 else "low_freq_factor"):
        return None
    return _scaled_otherwise(original=lambda d, old: old * d.choice((2, 4, 8, 16)))(draw, spec)


def _unscaled(_, spec):
    return with_fields(spec, scaling=None)


def _scaling_twice(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled="linear")
    rates = rates_of(spec, np.float64) / spec.scaling.factor
    return ("scaling-twice", "another-factor"), spec, {"fn": _of_rates(rates, spec, framework)}


def _factor_dropped(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled="yarn")
    if factor_of(spec) < 1.05 or spec.rotated < 8:
        return None
    return ("attention-factor",), spec, {"fn": _of_rates(rates_of(spec), spec, framework, 1.0)}


def _closed(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled=False)
    wrong = plain(spec.base, spec.rotated, np.float64) ** (spec.rotated / (spec.rotated - 2))
    if not _visible(rates_of(spec, np.float64), wrong, 10):
        return None
    return ("closed-span",), spec, {"fn": _of_rates(wrong, spec, framework)}


def _other_denominator(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled=False, partial=True)
    wrong = plain(spec.base, spec.head_width, np.float64)[: spec.rotated // 2]
    if spec.rotated < 8:
        return None
    return ("other-denominator",), spec, {"fn": _of_rates(wrong, spec, framework)}


def _other_rotated(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled=False, partial=True)
    rotated = draw.choice((spec.rotated // 2, 2 * spec.rotated, spec.head_width))
    if rotated < 4 or rotated % 4 or rotated > spec.head_width or rotated == spec.rotated:
        return None
    other = with_fields(spec, rotated=rotated)
    return ("other-rotated-width",), spec, {"fn": fly(other, arrays_of(framework))}


def _other_part(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled=False, partial=True)
    right = fly(spec, arrays_of(framework))
    xp = arrays_of(framework)

    def forward(x, positions):  # the last channels turned in place of the first
        rest = spec.head_width - spec.rotated
        moved = right(xp.concatenate([x[..., rest:], x[..., :rest]], axis=-1), positions)
        return xp.concatenate([moved[..., spec.rotated :], moved[..., : spec.rotated]], axis=-1)

    return ("other-part",), spec, {"fn": forward}


def _backward(draw, framework):
    spec = drawn_specs.rotary(draw, framework)
    right = fly(spec, arrays_of(framework))
    return ("other-direction",), spec, {"fn": lambda x, positions: right(x, -positions)}


def _slip(name, *codes, slip=None, options=None, **limits):
    """A builder of `wrong_rotary_*`, with a slip that is drawn."""
    limits.setdefault("scaled", False)

    def build(draw, framework):
        spec = drawn_specs.rotary(draw, framework, **limits)
        words = slip(draw, spec) if slip else {}
        if words is None:
            return None
        return codes, spec, {"fn": _wrong(name, framework, **words)(spec), **(options or {})}

    return build


def _low(key):
    def slip(draw, spec):
        dtype = draw.choice(("bfloat16", "float16"))
        if key == "rates":
            exact = rates_of(spec, np.float64)
            rounded = exact.astype(low_dtype(dtype, "numpy")).astype(float)
            if not _visible(exact, rounded, 10):
                return None
        return {key: dtype}

    return slip


def _offset(draw, _):
    return {"moved": draw.choice((-1, 1, 2, 3, 7, 16, 64, 100))}


def _stretch(draw, _):
    return {"stretched": draw.choice((0.125, 0.25, 0.5, 2.0, 4.0))}


def _rows(draw, _):
    return {"rows": draw.choice((512, 1000, 1024, 2048, 4096)), "past": draw.choice(("repeat", "wrap"))}


def _grown(draw, _):
    return {"rows": draw.choice((512, 1024, 2048, 4096))}


def _place(draw, spec):
    return {
        "pair": draw.randrange(spec.rotated // 2),
        "position": draw.randrange(1, LENGTH),
        "by": draw.choice((0.3, 1.0)),
    }


def _factory(name, *codes, **slip):
    def build(draw, framework):
        spec = drawn_specs.rotary(draw, framework, scaled=False, partial=False)
        if spec.rotated < 8:
            return None
        return codes, spec, {"make": _wrong(name, framework, **slip)()}

    return build


def _factory_of(name, *codes):
    """A builder that shares nothing among what it builds."""

    def build(draw, framework):
        spec = drawn_specs.rotary(draw, framework, scaled=False)
        return codes, spec, {"make": _wrong(name, framework)}

    return build


def _by_width(spec):
    return spec.rotated


def _dropped_after(draw, framework):
    codes, spec, options = _factory("freed_cache", "no-rotation")(draw, framework) or (None, None, None)
    return codes and (codes, spec, options)


def _padded(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled=False, partial=True)
    if spec.head_width == spec.rotated:
        return None
    return ("unrotated-channels-turned",), spec, {"fn": _wrong("padded_sine", framework)(spec)}


def _tiled(draw, framework):
    spec = drawn_specs.rotary(draw, framework, scaled=False, partial=False)
    return ("table-and-pairs-disagree",), spec, {"fn": _wrong("tiled", framework)(spec)}


def _another_layout(draw, framework):
    spec = drawn_specs.rotary(draw, framework)
    other = {"halves": "interleaved", "interleaved": "halves"}[spec.layout]
    if spec.rotated < 4:
        return None
    return ("other-layout",), spec, {"fn": fly(with_fields(spec, layout=other), arrays_of(framework))}


def _offset_call(name, *codes):
    return _slip(name, *codes, options={"call": "x, offset"})


PACKED = {"axes": "batch heads seq width", "positions": "batch seq"}
LOW_PRODUCT = ("phases-rounded", "rates-rounded", "positions-rounded")

ROTARY = {
    "another-base": _fields(("another-base",), _another_base, scaled=False),
    "another-base scaled": _fields(("another-base",), _another_base, scaled="linear"),
    "scaling-dropped": _fields(("scaling-dropped",), _unscaled, scaled=True),
    "scaling-twice": _scaling_twice,
    "another-factor": _fields(("another-factor",), _another_factor, scaled="llama3"),
    "another-factor linear": _fields(("another-factor",), _another_factor, scaled="linear"),
    "another-original-length": _fields(("another-original-length",), _another_original, scaled=True),
    "attention-factor": _factor_dropped,
    "closed-span": _closed,
    "other-denominator": _other_denominator,
    "other-rotated-width": _other_rotated,
    "other-part": _other_part,
    "other-direction": _backward,
    "other-layout": _another_layout,
    "table-and-pairs-disagree": _tiled,
    "positions-rounded": _slip("on_the_fly", "positions-rounded", slip=_low("positions")),
    "rates-rounded": _slip("on_the_fly", "rates-rounded", slip=_low("rates")),
    "phases-rounded": _slip("on_the_fly", "phases-rounded", slip=_low("phases")),
    "table-rounded": _slip("on_the_fly", "table-rounded", slip=_low("table")),
    "product": _slip("product_in", *LOW_PRODUCT, slip=_low("dtype")),
    "positions-offset": _slip("on_the_fly", "positions-offset", slip=_offset),
    "positions-scaled": _slip("on_the_fly", "positions-scaled", slip=_stretch),
    "positions-ignored": _slip("ignoring", "positions-ignored"),
    "positions-from-first": _slip("ignoring", "positions-from-first", slip=lambda *_: {"what": "from first"}),
    "positions-of-first-sequence": _slip(
        "ignoring", "positions-of-first-sequence", slip=lambda *_: {"what": "first sequence"}, options=PACKED
    ),
    "turns-other-axis": _slip("polar", "turns-other-axis", options={"axes": "batch seq heads width"}, partial=False),
    "first-sequence-only": _slip("first_sequence", "first-sequence-only", options={"axes": "batch seq width"}),
    "queries-and-keys-crossed": _slip("fused", "queries-and-keys-crossed", options={"call": "q, k, positions"}),
    "unrotated-channels-turned": _padded,
    "one-half-only": _slip("half_turned", "one-half-only"),
    "table-ends": _slip("table_ends", "table-ends", slip=_rows),
    "table-rebuilt-rounded": _slip("rebuilt", "table-rebuilt-rounded", slip=_grown),
    "cache-without-base": _factory("keyed_cache", "cache-without-base", key=_by_width),
    "cache-without-width": _factory("keyed_rates", "cache-without-width"),
    "no-rotation": _dropped_after,
    "shrinks-each-call": _factory("shrinking", "shrinks-each-call"),
    "cache-keeps-first-dtype": _factory_of("first_dtype", "cache-keeps-first-dtype"),
    "cache-keeps-offset": _offset_call("offset_cache", "cache-keeps-offset"),
    "restarting": _offset_call("restarting", "positions-ignored"),
    "remembers-longest": _slip("dynamic", "remembers-longest", partial=False),
    "rates-uninitialised": _slip("uninitialised", "rates-uninitialised"),
    "rates-zero": _slip("uninitialised", "no-rotation", slip=lambda *_: {"what": "zero"}),
    "coarse-path-differs": _slip("coarse_path", "coarse-path-differs"),
    "one-number-wrong": _slip("one_number", "one-number-wrong", slip=_place),
}
# Not seen, or not the same fault, in a coarser dtype.
FINE = {
    "table-rounded", "attention-factor", "coarse-path-differs", "cache-keeps-first-dtype", "one-number-wrong",
    "positions-rounded", "rates-rounded", "phases-rounded", "product", "table-rebuilt-rounded",
}  # fmt: skip

ADDITIVE = {
    "another-base": (("another-base",), lambda *_: None),
    "closed-span": (("closed-span", "open-span"), lambda *_: {"turn_ends": True}),
    "sine-and-cosine-swapped": (("sine-and-cosine-swapped",), lambda *_: {"swap": True}),
    "other-layout": (("other-layout",), lambda *_: {"other": True}),
    "positions-offset": (("positions-offset",), lambda draw, _: {"moved": draw.choice((-2, -1, 1, 2, 5, 50))}),
    "positions-rounded": (("positions-rounded",), lambda draw, _: {"positions_in": _coarse(draw)}),
    "phases-rounded": (("phases-rounded",), lambda draw, _: {"phases_in": _coarse(draw)}),
    "rates-rounded": (("rates-rounded",), lambda draw, _: {"rates_in": _coarse(draw)}),
    "table-rounded": (("table-rounded",), lambda draw, _: {"table_in": _coarse(draw)}),
    "scale": (("scale-forgotten", "another-scale"), lambda draw, _: {"scale": draw.choice((2.0, 8.0, 0.25))}),
    "added-twice": (("added-twice",), lambda _, spec: {"scale": 2 * spec.scale}),
    "not-added": (("not-added",), lambda *_: {"scale": 0.0}),
    "sign": (("sign-for-negative-positions",), lambda *_: {"mirrored": True}),
}


def _coarse(draw):
    return draw.choice(("bfloat16", "float16"))


def _additive(draw, framework):
    fault = draw.choice(tuple(ADDITIVE))
    codes, slip = ADDITIVE[fault]
    spec, xp = drawn_specs.sinusoidal(draw, framework), arrays_of(framework)
    if fault == "another-base":
        other = ch.Sinusoidal(
            spec.width,
            spacing=dataclasses.replace(spec.spacing, base=spec.base * draw.choice((0.1, 0.5, 2.0, 10.0, 50.0))),
            layout=spec.layout, order=spec.order, scale=spec.scale,
        )  # fmt: skip
        fn = wrong_additive.on_the_fly(other, wrong=False, xp=xp)
    else:
        words = {
            key: low_dtype(value, framework) if value in ("bfloat16", "float16") else value
            for key, value in slip(draw, spec).items()
        }
        if fault == "scale" and words["scale"] in (spec.scale, 2 * spec.scale):
            return None
        if fault == "scale" and spec.scale != 1 and draw.random() < 0.5:
            words["scale"] = 1.0
        if words.get("scale") == 2 * spec.scale and fault == "scale":
            return None
        fn = wrong_additive.on_the_fly(spec, xp=xp, **words)
    about = f"{fault} {framework} {spec.width} {spec.spacing} {spec.layout} {spec.order} {spec.scale}"
    return Drawn(f"additive {fault}", frozenset(codes), "additive", spec, {"fn": fn}, about)


def _bias(draw, framework):
    fault = draw.choice(
        ("first one", "one row", "not strided", "reversed", "slopes", "sign", "dropped", "first rows", "distances",
         "up", "sides", "number", "furthest", "direction", "dropped buckets")
    )  # fmt: skip
    xp, options = arrays_of(framework), {}
    if fault in ("up", "sides", "number", "furthest", "direction", "dropped buckets"):
        spec = drawn_specs.buckets(draw)
        values = wrong_biases.trained(spec)
        codes, slip = {
            "up": (("buckets-rounded-up",), {"up": True}),
            "sides": (
                ("one-sided-buckets",) if spec.bidirectional else ("two-sided-buckets",),
                {"sides": not spec.bidirectional},
            ),
            "number": (("another-number-of-buckets",), {"buckets": spec.buckets // 2}),
            "furthest": (("another-max-distance",), {"furthest": 2 * spec.max_distance}),
            "direction": (("other-direction",), {"direction": -1}),
            "dropped buckets": (("bias-dropped",), {"decode": "dropped"}),
        }[fault]
        fn, options = wrong_biases.bucketed(spec, xp=xp, values=values, **slip), {"values": values}
    else:
        odd = draw.choice((3, 6, 12, 20, 24, 40))
        heads = odd if fault in ("one row", "not strided", "slopes") else draw.choice((4, 8, 16, 32))
        # The first rows of -slope (q - k) differ from the last ones by a constant, which softmax does not see.
        form = "symmetric" if fault == "first rows" else "distance"
        spec = dataclasses.replace(drawn_specs.alibi(draw, heads), form=form)
        low = low_dtype(_coarse(draw), framework)
        codes, slip = {
            "first one": (("first-slope-one",), {"rule": "first one"}),
            "one row": (("slopes-rule",), {"rule": "one row"}),
            "not strided": (("slopes-rule",), {"rule": "not strided"}),
            "reversed": (("slopes-rule",), {"rule": "reversed"}),
            "slopes": (("slopes-rounded",), {"slopes_in": low}),
            "sign": (("slope-sign", "other-direction"), {"sign": -1}),
            "dropped": (("bias-dropped",), {"decode": "dropped"}),
            "first rows": (("bias-of-first-rows",), {}),
            "distances": (("distances-rounded",), {"distances_in": low}),
        }[fault]
        if fault == "not strided" and heads == 3:  # below 4, one slope is taken: the same one by either rule
            return None
        if fault == "slopes" and _rounding_of(spec) == 0:
            return None
        if fault == "first rows":
            fn, options = wrong_biases.counted(spec, xp=xp, what="first rows"), {"call": "counts"}
        else:
            fn = wrong_biases.alibi(spec, xp=xp, **slip)
    return Drawn(f"bias {fault}", frozenset(codes), "bias", spec, {"fn": fn, **options}, f"{fault} {framework} {spec}")


def _rounding_of(spec):
    """How far float16 moves these slopes: powers of two not at all."""
    slopes = np.asarray(wrong_biases.get_slopes(spec.heads))
    return float(np.max(np.abs(slopes.astype(np.float16) - slopes) / slopes))
