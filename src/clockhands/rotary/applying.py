"""The formula of a rotation, once for any array library, and the faster ways to do the same.

`plain` is the definition. A library with a better way has a row in `WAYS`; a law holds each row to `plain`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from clockhands.rotary.spec import Rotary
from clockhands.traces import library_of


def turned(x: Any, cosine: Any, sine: Any, spec: Rotary) -> Any:
    """``x`` turned by the way of its library.

    ``cosine`` and ``sine`` broadcast to its pairs: NumPy arrays, or the library's own where they were traced.
    """
    from array_api_compat import array_namespace, device

    way = WAYS.get(library_of(x))
    if way is not None:
        return way()(x, cosine, sine, spec)
    xp = array_namespace(x)
    if isinstance(cosine, np.ndarray):
        cosine, sine = xp.asarray(cosine, device=device(x)), xp.asarray(sine, device=device(x))
    return plain(x, cosine, sine, spec, xp)


def plain(x: Any, cosine: Any, sine: Any, spec: Rotary, xp: Any) -> Any:
    """``(a, b) -> (a cos - b sin, a sin + b cos)`` for each pair, in the dtype of cosine and sine, rounded once.

    Written in the common subset of the array API; ``cosine`` and ``sine`` are arrays of ``xp``.
    """
    work = xp.astype(x, cosine.dtype)
    pieces = [x[..., : spec.start]] if spec.start else []
    for channels, pairs in regions(spec):
        block, cos, sin = work[..., channels], cosine[..., pairs], sine[..., pairs]
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
    """The channels and the pairs of each block that has a layout of its own."""
    first = 0
    for pairs in spec.blocks or (spec.rotated // 2,):
        if pairs:
            begin = spec.start + 2 * first
            yield slice(begin, begin + 2 * pairs), slice(first, first + pairs)
        first += pairs


def members(block: Any, spec: Rotary) -> tuple[Any, Any]:
    """The first and the second channels of a block's pairs, as views."""
    if spec.layout == "interleaved":
        return block[..., 0::2], block[..., 1::2]
    half = block.shape[-1] // 2
    return block[..., :half], block[..., half:]


def _numpy_way() -> Callable[..., Any]:
    from clockhands.rotary.numpy_way import turned

    return turned


def _torch_way() -> Callable[..., Any]:
    from clockhands.rotary.torch_way import turned

    return turned


def _jax_way() -> Callable[..., Any]:
    from clockhands.rotary.jax_way import turned

    return turned


# Library -> what imports the faster way there; anything else goes by `plain`. An import statement is a thing that
# PyTorch's compiler follows, `import_module` is not.
WAYS = {"numpy": _numpy_way, "torch": _torch_way, "jax": _jax_way}
