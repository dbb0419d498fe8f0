"""Biases written by plain arithmetic, as published code has them, each with a slip or without."""

import functools
import math

import numpy as np

from clockhands.testing import check_bias
from recognition.faults.rows import cast


def paper_slopes(heads):
    """As the paper's code has them."""

    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    below = 2 ** math.floor(math.log2(heads))
    return power_of_two(below) + ([] if below == heads else paper_slopes(2 * below)[0::2][: heads - below])


def linear(heads, xp=np, *, form="distance", slopes=paper_slopes, dtype="float32", tokens=None, made=None):
    """ALiBi of positions, with a slip in the slopes, the tokens or what comes back."""
    factors = cast(xp, xp.asarray(np.array(slopes(heads), np.float64)), dtype)[:, None, None]

    def forward(queries, keys):
        apart = queries[:, None] - keys[None, :]
        at = {
            "distance": lambda: -apart,
            "past": lambda: -xp.clip(apart, 0, None),
            "symmetric": lambda: -xp.abs(apart),
            "key": lambda: keys[None, :] + 0 * apart,
            "last-key": lambda: keys[None, :] - keys.max() + 0 * apart,
        }[form]()
        at = cast(xp, at, dtype)
        out = factors * (at if tokens is None else tokens(at))
        return out if made is None else made(out, queries, keys)

    return forward


def t5_buckets(apart, xp=np, *, bidirectional=True, buckets=32, furthest=128, up=False):
    """The row of each distance, as Transformers has it: key minus query, the logarithm in float32."""
    relative, rows = -apart, 0 * apart
    if bidirectional:
        buckets //= 2
        rows = rows + cast(xp, relative > 0, "int32") * buckets
        sizes = xp.abs(relative)
    else:
        sizes = xp.clip(-relative, 0, None)
    first = buckets // 2
    large = xp.log(cast(xp, xp.clip(sizes, first, None), "float32") / first) / math.log(furthest / first)
    large = large * (buckets - first)
    large = first + cast(xp, xp.ceil(large) if up else large, "int32")
    return rows + xp.where(sizes < first, sizes, xp.clip(large, None, buckets - 1))


def deberta_rows(apart, *, span=256, furthest=512, rounded=np.ceil):
    """As Transformers has them."""
    middle = span // 2
    sizes = np.where((apart < middle) & (apart > -middle), middle - 1, np.abs(apart))
    log = rounded(np.log(np.float32(sizes) / np.float32(middle)) / math.log((furthest - 1) / middle) * (middle - 1))
    found = np.where(sizes <= middle, apart, (log + middle) * np.sign(apart)).astype(np.int64)
    return np.clip(found + span, 0, 2 * span - 1)


def table(rows, heads=4, seed=3):
    """As training leaves one: every row of its own."""
    return np.random.default_rng(seed).standard_normal((rows, heads)).astype(np.float32)


def looked_up(values, rows, xp=np, made=None):
    held = xp.asarray(values)

    def forward(queries, keys):
        out = xp.moveaxis(held[rows(queries[:, None] - keys[None, :])], -1, 0)
        return out if made is None else made(out, queries, keys)

    return forward


def asked(fn, like, **options):
    return check_bias(fn, like, raises=False, **options)


def counting(of_positions):
    """The same called with numbers, the last query at the last key."""
    return lambda queries, keys: of_positions(np.arange(keys - queries, keys), np.arange(keys))


def codes(report):
    assert not report.sound
    assert report.explanations, report
    return report.explanations[0].codes


def geometric(heads, octaves=8.0, start=1):
    return 2.0 ** (-octaves * (start + np.arange(heads)) / heads)


VALUES = table(32)
SYMMETRIC = linear(8, form="symmetric")
T5 = looked_up(VALUES, t5_buckets)


def t5(**slip):
    return looked_up(VALUES, functools.partial(t5_buckets, **slip))
