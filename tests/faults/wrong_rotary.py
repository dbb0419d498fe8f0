"""The slips of rotary codes, one row each, with the code that names it."""

import dataclasses
import functools
import importlib

import clockhands as ch
from clockhands.rotary import chunked, interleaved
from clockhands.scaling import Linear, Llama3, LongRope, Ntk, Yarn
from clockhands.specs import with_fields
from faults.rows import Row, arrays_of, keywords

HEAD = 64


def plain(layout):
    return ch.Rotary(HEAD, layout)


def large_base(layout):
    return ch.Rotary(HEAD, layout, base=1e6)


def partial(layout):
    return ch.Rotary(HEAD, layout, rotated=32)


def mrope(layout):
    return ch.Rotary(HEAD, layout, base=1e6, axes=chunked([12, 10, 10]))


def mrope_interleaved(layout):
    return ch.Rotary(HEAD, layout, base=1e6, axes=interleaved([12, 10, 10]))


def llama3(layout):
    return ch.Rotary(HEAD, layout, base=5e5, scaling=Llama3(8.0, 8192))


def yarn(layout):
    return ch.Rotary(HEAD, layout, scaling=Yarn(4.0, 4096))


def linear(layout):
    return ch.Rotary(HEAD, layout, scaling=Linear(4.0))


def longrope(layout):
    short = tuple(1 + pair / 64 for pair in range(32))
    long = tuple(1 + pair * 1.5 for pair in range(32))
    return ch.Rotary(HEAD, layout, scaling=LongRope(short, long, 4096, 32.0), length=4096)


def first_sixteen_last(layout):
    return ch.Rotary(HEAD, layout, rotated=32, part="last")


def changed(**fields):
    """A reader that takes these fields for the right ones."""

    def change(spec):
        return with_fields(spec, **fields)

    change.__name__ = "-".join(fields)
    return change


def scaling(**fields):
    """A reader that takes these fields of the scaling for the right ones."""

    def change(spec):
        return with_fields(spec, scaling=dataclasses.replace(spec.scaling, **fields))

    change.__name__ = "-".join(fields)
    return change


def as_if_longer(spec):
    """`seq_len >= original` where `>` is meant."""
    return with_fields(spec, length=4097)


def _row(case, builder, *codes, spec=plain, slip=None, options=None, **more):
    return Row(case, builder, frozenset(codes), spec, slip or {}, options or {}, **more)


PACKED = {"axes": "batch heads seq width", "positions": "batch seq"}
BATCHED = {"axes": "batch heads seq width"}
HEADS_LAST = {"axes": "batch seq heads width"}
OFFSET = {"call": "x, offset"}
SEVERAL = {"positions": "seq axes"}
LOW_PRODUCT = ("phases-rounded", "rates-rounded", "positions-rounded")
NO_JAX = ("torch", "numpy")


def by_width(spec):
    return spec.rotated


def by_base(spec):
    return spec.base


D2 = (
    _row("D2#1", "uninitialised", "rates-uninitialised"),
    _row("D2#3", "of_another", "scaling-dropped", spec=llama3, slip={"change": changed(scaling=None)}),
    _row("D2#4", "uninitialised", "no-rotation", slip={"what": "zero"}),
    _row("D2#7", "on_the_fly", "rates-rounded", slip={"rates": "bfloat16"}),
    _row("D2#8", "product_in", *LOW_PRODUCT, slip={"dtype": "bfloat16"}),
    _row("D2#9", "on_the_fly", "positions-rounded", slip={"positions": "bfloat16"}),
    _row("D2#10", "on_the_fly", "phases-rounded", slip={"phases": "float16"}),
    _row("D2#10", "product_in", *LOW_PRODUCT, slip={"dtype": "float16"}),
    _row("D2#11", "rebuilt", "table-rebuilt-rounded"),
    _row("D2#12", "coarse_path", "coarse-path-differs"),
    _row("D2#13", "keyed_cache", "cache-without-base", slip={"key": by_width}, factory=True),
    _row("D2#13", "keyed_rates", "cache-without-width", factory=True),
    _row("D2#14", "freed_cache", "no-rotation", factory=True),
    _row("D2#15", "shrinking", "shrinks-each-call", factory=True),
    _row("D2#16", "on_the_fly", "positions-offset", slip={"moved": 1}),
    _row("D2#17", "of_another", "another-base", spec=large_base, slip={"change": changed(base=10000.0)}),
    _row("D2#18", "ignoring", "positions-of-first-sequence", slip={"what": "first sequence"}, options=PACKED),
    _row("D2#19", "ignoring", "positions-ignored", slip={"what": "ignored"}),
    _row("D2#19", "ignoring", "positions-ignored", slip={"what": "ignored"}, options=PACKED),
    _row("D2#20", "restarting", "positions-ignored", options=OFFSET),
    _row("D2#20", "ignoring", "positions-from-first", slip={"what": "from first"}),
    _row("D2#21", "evicting", "table-ends", "eviction-stops-positions", options=OFFSET),
    _row("D2#23", "of_another", "lists-swapped", spec=longrope, slip={"change": as_if_longer}),
    _row("D2#24", "dynamic", "remembers-longest"),
    _row("D2#25", "several_axes", "axis-dropped", spec=mrope, slip={"what": "dropped"}, options=SEVERAL),
    _row("D2#26", "several_axes", "other-axes-order", spec=mrope_interleaved, slip={"what": "order"}, options=SEVERAL),
    _row("D2#26", "several_axes", "other-axes-order", spec=mrope, slip={"what": "order"}, options=SEVERAL),
    _row("D2#27", "layout_swapped", "other-layout"),
    _row("D2#28", "polar", "turns-other-axis", slip={"what": "heads"}, options=HEADS_LAST),
    _row("D2#29", "one_token_kernel", "first-sequence-only", options={"axes": "batch seq width"}),
    _row("D2#29", "first_sequence", "first-sequence-only", options={"axes": "batch seq width"}),
    _row("D2#30", "fused", "queries-and-keys-crossed", options={"call": "q, k, positions"}),
    _row("D2#30", "padded_sine", "unrotated-channels-turned", spec=partial),
    _row("D2#30", "table_ends", "table-ends", slip={"past": "repeat"}),
)

# What libraries do, or files make a reader do, beyond that list.
FURTHER = (
    _row("pegainfer", "table_ends", "table-ends", slip={"past": "wrap"}),
    _row("open_lm", "polar", "turns-other-axis", slip={"what": "batch"}, options=HEADS_LAST),
    _row("mmpretrain", "tiled", "table-and-pairs-disagree"),
    _row("half", "half_turned", "one-half-only"),
    _row("table", "on_the_fly", "table-rounded", slip={"table": "bfloat16"}),
    _row("table", "on_the_fly", "table-rounded", slip={"table": "float16"}),
    _row("rates", "on_the_fly", "rates-rounded", slip={"rates": "float16"}),
    _row("positions", "on_the_fly", "positions-rounded", slip={"positions": "float16"}),
    _row("phases", "on_the_fly", "phases-rounded", slip={"phases": "bfloat16"}),
    _row("stretched", "on_the_fly", "positions-scaled", "scaling-dropped", "another-scaling", slip={"stretched": 0.25}),
    _row("in place", "in_place", "changes-its-arguments", frameworks=NO_JAX),
    _row("one buffer", "one_buffer", "overwrites-its-answers", frameworks=NO_JAX),
    _row("rotary-embedding-torch", "first_dtype", "cache-keeps-first-dtype", fresh=True),
    _row("rotary-embedding-torch", "offset_cache", "cache-keeps-offset", options=OFFSET),
    _row("one number", "one_number", "one-number-wrong"),
    _row("D1#14", "of_another", "another-original-length", spec=yarn, slip={"change": scaling(original=16384)}),
    _row("D1#18", "of_another", "another-factor", spec=llama3, slip={"change": scaling(factor=32.0)}),
    _row("D1#20", "on_the_fly", "attention-factor", spec=yarn, slip={"factor": 1.0}),
    _row("D1#31", "of_another", "other-rotated-width", spec=partial, slip={"change": changed(rotated=64)}),
    _row("D1#11", "of_another", "scaling-dropped", spec=linear, slip={"change": changed(scaling=None)}),
    _row("D1#16", "of_another", "scaling-twice", "another-factor", spec=linear, slip={"change": scaling(factor=16.0)}),
    _row(
        "keras-hub", "of_another", "another-scaling", spec=lambda layout: ch.Rotary(HEAD, layout, scaling=Ntk(4.0)),
        slip={"change": changed(scaling=Linear(4.0))},
    ),
)  # fmt: skip

ROWS = D2 + FURTHER


def builder_of(row, framework):
    if framework == "torch":
        for name in ("wrong_rotary_torch", "wrong_rotary_torch_kept"):
            module = importlib.import_module(f"faults.{name}")
            if hasattr(module, row.builder):
                return getattr(module, row.builder)
    return getattr(importlib.import_module("faults.wrong_rotary_arrays"), row.builder)


def made(row, framework, wrong):
    """spec -> function; what several functions share is new with each call of `made`."""
    arrays_of(framework)
    if row.factory:
        return functools.partial(builder_of(row, framework)(**keywords(row, framework)), wrong=wrong)
    return functools.partial(builder_of(row, framework), wrong=wrong, **keywords(row, framework))
