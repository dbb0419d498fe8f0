"""Layouts: which two channels form a pair (interleaved or half-split), and the channel order of a table.

A dimension pair has a first and a second channel (sine and cosine in a table, the two rotated channels of a head).

* ``interleaved``: pair ``i`` is channels (2i, 2i + 1);
* ``halves``: pair ``i`` is channels (i, i + d/2).

Trained weights work with one of the two layouts. Run with the other one, a model is right at position 0 only, and its
output degrades within a few tokens.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

Layout = Literal["interleaved", "halves"]
# What other libraries call them, in small letters.
_ELSEWHERE = {
    "halves": "half halved halfsplit split rotatehalf neox gptneox isneoxstyle concat concatenated blockwise block",
    "interleaved": "interleave gptj pairs paired pairwise adjacent consecutive alternating evenodd traditional",
}
# The names used in messages.
LAYOUTS = {"interleaved": "interleaved", "halves": "half-split"}


def layout_of(name: object) -> Layout:
    """The layout with this name.

    Raises:
        InvalidValue: The name is unknown.
    """
    if not isinstance(name, str) or name not in get_args(Layout):
        said = "".join(filter(str.isalnum, name)).lower() if isinstance(name, str) else ""
        here = next((layout for layout, theirs in _ELSEWHERE.items() if said in theirs.split()), None)
        raise InvalidValue(
            f'`layout` must be "interleaved" or "halves", got {shown(name)}.',
            'Use "interleaved" for pairs (2i, 2i + 1), "halves" for (i, i + d/2).'
            if here is None
            else f'Write "{here}", which is the same.',
        )
    return name  # type: ignore[return-value]


def pair_channels(pairs: int, layout: Layout) -> np.ndarray:
    """The two channels of each pair, int64 of shape [pairs, 2].

    Raises:
        InvalidValue: The layout is unknown or ``pairs`` is below 1.

    >>> pair_channels(3, "halves").tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    channels = np.arange(2 * count("pairs", pairs))
    return channels.reshape(-1, 2) if layout_of(layout) == "interleaved" else channels.reshape(2, -1).T.copy()


def permutation(pairs: int, from_: Layout, to: Layout) -> np.ndarray:
    """The channel order that converts one layout into the other: ``x_to = x_from[..., permutation]``.

    Raises:
        InvalidValue: A layout is unknown or ``pairs`` is below 1.

    >>> permutation(2, "interleaved", "halves").tolist()
    [0, 2, 1, 3]
    """
    order = np.empty(2 * count("pairs", pairs), np.int64)
    order[pair_channels(pairs, to)] = pair_channels(pairs, from_)
    return order


def place(out: np.ndarray, block: NDArray[np.complexfloating], pairs: slice, layout: Layout) -> None:
    """Write real and imaginary parts of ``block`` [rows, pairs] into the two channels of each pair of ``out``.

    ``out`` is [rows, width], and ``pairs`` says which pairs ``block`` holds. If the width is one channel less than the
    pairs need, the last pair has no second channel; channels beyond the pairs are not changed.
    """
    seconds = min(out.shape[1] // 2, pairs.stop) - pairs.start
    complex_pairs = as_complex_pairs(out, layout)
    if complex_pairs is not None:
        complex_pairs[:, pairs] = block
    elif layout == "interleaved":
        out[:, 2 * pairs.start : 2 * pairs.stop : 2] = block.real
        out[:, 2 * pairs.start + 1 : 2 * pairs.stop : 2] = block.imag[:, :seconds]
    else:
        half = -(-out.shape[1] // 2)
        out[:, pairs] = block.real
        out[:, half + pairs.start : half + pairs.start + seconds] = block.imag[:, :seconds]


def as_complex_pairs(out: np.ndarray, layout: Layout) -> NDArray[np.complexfloating] | None:
    """A view of ``out`` [rows, width] as complex numbers, one per pair; None where its memory does not allow one."""
    fits = layout == "interleaved" and out.flags.c_contiguous and out.shape[1] % 2 == 0 and out.dtype in _COMPLEX_OF
    return out.view(_COMPLEX_OF[out.dtype]) if fits else None


_COMPLEX_OF = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}
