"""Biases as people write them in PyTorch, NumPy and JAX, each with a slip of somebody's, or without it.

``xp`` is the module of arrays. A builder takes a spec, for its fields; T5's takes its trained table too.
"""

import functools
import math

import numpy as np

import clockhands as ch
from faults.rows import Row, arrays_of, cast, keywords

HEADS, ROWS_OF_T5 = 12, 32


def get_slopes(heads):
    """As in the paper's code."""

    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    below = 2 ** math.floor(math.log2(heads))
    return power_of_two(below) + get_slopes(2 * below)[0::2][: heads - below]


def slopes_of(spec, rule="right"):
    heads, below = spec.heads, 2 ** math.floor(math.log2(spec.heads))
    if rule == "first one":  # the series starts at exponent 0 (aprender#2143)
        return [2.0 ** (-8 * h / heads) for h in range(heads)]
    if rule == "one row":  # mlx#3071
        return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]
    if rule == "not strided":  # the first of the next power's slopes, not every other one
        return get_slopes(below) + get_slopes(2 * below)[: heads - below]
    if rule == "reversed":
        return get_slopes(heads)[::-1]
    if rule == "strided" or (rule == "right" and spec.series == "powers"):
        return get_slopes(heads)
    return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]


def alibi(spec, wrong=True, xp=np, *, rule="right", sign=1, slopes_in=None, distances_in=None, form=None, decode=None):
    """`forward(queries, keys)`, arrays of positions."""
    form = form if wrong and form else spec.form
    slopes = xp.asarray(np.asarray(slopes_of(spec, rule if wrong else "right"), np.float32))
    if wrong and slopes_in is not None:
        slopes = cast(xp, cast(xp, slopes, slopes_in), "float32")
    slopes = slopes[:, None, None]

    def forward(queries, keys):
        distances = cast(xp, queries[:, None] - keys[None, :], "float32")
        if wrong and distances_in is not None:
            distances = cast(xp, cast(xp, distances, distances_in), "float32")
        if form == "symmetric":
            distances = xp.abs(distances)
        elif form == "past":
            distances = xp.clip(distances, 0, None)
        out = -slopes * (-distances if wrong and sign < 0 else distances)
        return out * 0 if wrong and decode == "dropped" and len(queries) == 1 else out

    return forward


def counted(spec, wrong=True, xp=np, what="first rows"):
    """`forward(number of queries, number of keys)`, the last query at the last key."""
    slopes = xp.asarray(np.asarray(slopes_of(spec), np.float32))[:, None, None]
    longest = [0]

    def forward(queries, keys):
        # Once a cache exists there is a single query (HabanaAI vllm-fork#503).
        if wrong and what == "dropped" and queries == 1 and keys > 1:
            return xp.zeros((spec.heads, 1, keys), dtype=xp.float32)
        longest[0] = max(longest[0], keys)
        n = longest[0]
        distances = xp.arange(n)[:, None] - xp.arange(n)[None, :]
        # Of another row, -slope (q - k) is off by a constant, which softmax does not see; -slope |q - k| is not.
        full = -slopes * cast(xp, xp.abs(distances) if spec.form == "symmetric" else distances, "float32")
        if wrong and what == "first rows":  # OpenNMT-py
            return full[:, :queries, :keys]
        return full[:, keys - queries : keys, :keys]

    return forward


def bucketed(
    spec, wrong=True, xp=np, *, values=None, direction=1, sides=None, buckets=None, furthest=None, up=False, decode=None
):
    """T5's, with the trained table [buckets, heads]."""
    table = xp.asarray(np.asarray(values, np.float32))
    bidirectional = sides if wrong and sides is not None else spec.bidirectional
    number = buckets if wrong and buckets else spec.buckets
    furthest = furthest if wrong and furthest else spec.max_distance

    def bucket(relative):
        number_one_way, out = number, 0 * relative
        if bidirectional:
            number_one_way //= 2
            out = out + cast(xp, relative > 0, "int32") * number_one_way
            n = xp.abs(relative)
        else:
            n = xp.clip(-relative, 0, None)
        exact = number_one_way // 2
        ratio = xp.log(cast(xp, xp.clip(n, 1, None), "float32") / exact) / math.log(furthest / exact)
        large = ratio * (number_one_way - exact)
        large = xp.ceil(large) if wrong and up else xp.floor(large)
        large = xp.clip(exact + cast(xp, large, "int32"), None, number_one_way - 1)
        return out + xp.where(n < exact, cast(xp, n, "int32"), large)

    def forward(queries, keys):
        relative = keys[None, :] - queries[:, None]
        out = xp.moveaxis(table[bucket(-relative if wrong and direction < 0 else relative)], -1, 0)
        return out * 0 if wrong and decode == "dropped" and len(queries) == 1 else out

    return forward


def twelve(_layout):
    return ch.Alibi(heads=HEADS)


def eight(_layout):
    return ch.Alibi(heads=8)


def plain_series(_layout):
    return ch.Alibi(heads=HEADS, series="plain")


def symmetric(_layout):
    return ch.Alibi(heads=8, form="symmetric")


def encoder(_layout):
    return ch.Buckets(heads=4, buckets=ROWS_OF_T5)


def decoder(_layout):
    return ch.Buckets(heads=4, buckets=ROWS_OF_T5, bidirectional=False)


def trained(spec):
    """A table as training leaves one: every row of its own."""
    return np.random.default_rng(11).standard_normal((spec.buckets, spec.heads)).astype(np.float32)


def _row(case, builder, *codes, spec=twelve, slip=None, options=None, **more):
    if builder == "bucketed":
        more["values"] = trained
    return Row(case, builder, frozenset(codes), spec, slip or {}, options or {}, layouts=("halves",), **more)


COUNTS = {"call": "counts"}

D3 = (
    _row("D3#4", "alibi", "first-slope-one", spec=eight, slip={"rule": "first one"}),
    _row("D3#5", "alibi", "slopes-rule", slip={"rule": "one row"}),
    _row("D3#6", "alibi", "slopes-rule", spec=plain_series, slip={"rule": "strided"}),
    _row("D3#7", "alibi", "slopes-rule", slip={"rule": "not strided"}),
    _row("D3#8", "counted", "bias-dropped", spec=eight, slip={"what": "dropped"}, options=COUNTS),
    _row("D3#8", "alibi", "bias-dropped", spec=eight, slip={"decode": "dropped"}),
    _row("D3#9", "alibi", "slopes-rounded", slip={"slopes_in": "float16"}),
    _row("D3#9", "alibi", "slopes-rounded", slip={"slopes_in": "bfloat16"}),
    _row("D3#12", "bucketed", "bias-dropped", spec=decoder, slip={"decode": "dropped"}),
    _row("D3#13", "bucketed", "buckets-rounded-up", spec=encoder, slip={"up": True}),
    _row("D3#13", "bucketed", "one-sided-buckets", spec=encoder, slip={"sides": False}),
    _row("D3#13", "bucketed", "two-sided-buckets", spec=decoder, slip={"sides": True}),
    _row("D3#13", "bucketed", "another-number-of-buckets", spec=encoder, slip={"buckets": 16}),
    _row("D3#13", "bucketed", "another-max-distance", spec=encoder, slip={"furthest": 256}),
)

FURTHER = (
    _row("OpenNMT-py", "counted", "bias-of-first-rows", spec=symmetric, slip={"what": "first rows"}, options=COUNTS),
    _row("sign", "alibi", "slope-sign", "other-direction", spec=eight, slip={"sign": -1}),
    _row("sign", "alibi", "slope-sign", spec=symmetric, slip={"sign": -1}),
    _row("order", "alibi", "slopes-rule", spec=eight, slip={"rule": "reversed"}),
    _row("falcon", "alibi", "distances-rounded", spec=eight, slip={"distances_in": "bfloat16"}),
    _row("direction", "bucketed", "other-direction", spec=encoder, slip={"direction": -1}),
)

ROWS = D3 + FURTHER


def made(row, framework, wrong):
    """spec -> function."""
    slip = dict(keywords(row, framework), xp=arrays_of(framework))

    def build(spec):
        more = {"values": row.values(spec)} if row.values else {}
        return globals()[row.builder](spec, wrong=wrong, **slip, **more)

    return functools.wraps(globals()[row.builder])(build)
