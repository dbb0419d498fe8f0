"""The reference formula of a rotation, for any array library; tests hold every faster implementation to it."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from clockhands.encodings.rotary._spec import Rotary

_WORTH = 1 << 14  # size below which splitting costs more than it saves


def plain(x: Any, cosine: Any, sine: Any, spec: Rotary, xp: Any) -> Any:
    """``(a, b) -> (a cos - b sin, a sin + b cos)`` for each pair, in the dtype of cosine and sine, rounded once.

    Written in the common subset of the array API; ``cosine`` and ``sine`` are arrays of ``xp``.
    """
    work = xp.astype(x, cosine.dtype)
    pieces = [x[..., : spec.start]] if spec.start else []
    for channels, pairs in regions(spec):
        block, cos, sin = cut(work, channels), cut(cosine, pairs), cut(sine, pairs)
        first, second = members(block, spec)
        moved = (first * cos - second * sin, first * sin + second * cos)
        if spec.layout == "interleaved" and not spec.reordered:
            block = xp.reshape(xp.stack(moved, axis=-1), block.shape)
        else:
            block = xp.concat(moved, axis=-1)
        pieces.append(xp.astype(block, x.dtype))
    if spec.start + spec.rotated < spec.head_width:
        pieces.append(x[..., spec.start + spec.rotated :])
    return xp.concat(pieces, axis=-1) if len(pieces) > 1 else pieces[0]


def regions(spec: Rotary) -> Iterator[tuple[slice, slice]]:
    """The channels and the pairs of each block in which the layout applies separately."""
    first = 0
    for pairs in spec.blocks or (spec.rotated // 2,):
        if pairs:
            begin = spec.start + 2 * first
            yield slice(begin, begin + 2 * pairs), slice(first, first + pairs)
        first += pairs


def cut(array: Any, part: slice) -> Any:
    """A part of the last axis; the array itself if that is all of it, because some transforms do not support views."""
    return array if (part.start, part.stop) == (0, array.shape[-1]) else array[..., part]


def members(block: Any, spec: Rotary) -> tuple[Any, Any]:
    """The first and the second channels of a block's pairs, as views."""
    if spec.layout == "interleaved":
        return block[..., 0::2], block[..., 1::2]
    half = block.shape[-1] // 2
    return block[..., :half], block[..., half:]


def in_cache(shape: tuple[int, ...]) -> Iterator[tuple[int, ...] | slice]:
    """Indices that split heads of this shape into parts that stay in the CPU cache over several passes.

    One part per index of the axes before the last two if such parts are large enough; else a single part.
    """
    lead, rest = shape[:-2], math.prod(shape[-2:])
    if math.prod(lead) > 1 and rest >= _WORTH:
        yield from itertools.product(*map(range, lead))
    else:
        yield slice(None)
