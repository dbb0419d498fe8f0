"""Positions that a coarse dtype cannot tell apart: a sign of rounding that shows whatever else is rounded on the way.

Whoever makes positions in bfloat16 mostly makes rates, phases and waves in it too, each library by operations of its
own, so that no one model of the arithmetic gives the same numbers. But 257 is 256 in bfloat16 then, by any of them.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from clockhands.calling import Refused
from clockhands.faults.fault import Fault
from clockhands.testing.experiments import Unasked
from clockhands.testing.explaining import told_of
from clockhands.testing.reports import Explanation

# Positions that become the first one of their row, and one before that stays what it is. Those in the middle of two
# numbers of the dtype go to the even one, which is the first of the row, as they do where they are cut off.
MERGED: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]] = {
    "bfloat16": (255, ((256, 257), (512, 513, 514))),
    "float16": (2047, ((2048, 2049), (4096, 4097, 4098))),
}


def collided(it: Any, faults: Mapping[str, Fault]) -> tuple[Explanation, ...]:
    """Whether the same token gets the same numbers at positions that a coarse dtype holds as one.

    Args:
        it: The implementation, of one coordinate.
        faults: The faults of its kind.
    """
    for dtype, (before, merged) in MERGED.items():
        at = np.array([before, *(place for row in merged for place in row)])
        if at[-1] >= it.length:
            continue
        width = getattr(it.spec, "head_width", None) or it.spec.width
        token = np.random.default_rng(23).standard_normal(width).astype(np.float32).astype(np.float64)
        try:
            y = it(np.broadcast_to(token, (1, 1, len(at), width)).copy(), at)[0, 0]
        except (Refused, Unasked):
            continue
        rows = dict(zip(at.tolist(), y, strict=True))
        kept = [rows[place] for place in (before, *(row[0] for row in merged))]
        # A table that ends gives all of these the same numbers.
        apart = not any(np.array_equal(one, next_one) for one, next_one in itertools.pairwise(kept))
        if apart and all(np.array_equal(rows[row[0]], rows[place]) for row in merged for place in row[1:]):
            same = f": a token gets the same numbers at {_pairs(merged)}. Other roundings may hide behind it"
            return (told_of(faults["positions-rounded"], {"dtype": dtype, "first": merged[0][1]}, same),)
    return ()


def _pairs(merged: tuple[tuple[int, ...], ...]) -> str:
    return " and at ".join(f"{row[0]:,} as at {row[-1]:,}" for row in merged)
