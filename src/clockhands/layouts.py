"""Layouts: which two channels form a pair (interleaved or half-split), and the channel order of a table.

A pair is a first and a second number (sine and cosine in a table, the two turned channels in a head).

* ``interleaved``: pair ``i`` is channels (2i, 2i + 1);
* ``halves``: pair ``i`` is channels (i, i + d/2).

Trained weights know one of the two; read with the other, a model is right for a token or two and
garbage after that.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, shown
from clockhands.errors import InvalidValue

Layout = Literal["interleaved", "halves"]
# What the field calls them.
LAYOUTS = {"interleaved": "interleaved", "halves": "half-split"}


def layout_of(name: object) -> Layout:
    """The layout of this name.

    Raises:
        InvalidValue: There is none.
    """
    if not isinstance(name, str) or name not in get_args(Layout):
        raise InvalidValue(
            f'`layout` must be "interleaved" or "halves", got {shown(name)}.',
            'Use "interleaved" for pairs (2i, 2i + 1), "halves" for (i, i + d/2).',
        )
    return name  # type: ignore[return-value]


def pair_channels(pairs: int, layout: Layout) -> np.ndarray:
    """The two channels of each pair, int64 of shape [pairs, 2].

    Raises:
        InvalidValue: The layout is unknown or there is no pair.

    >>> pair_channels(3, "halves").tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    channels = np.arange(2 * count("pairs", pairs))
    return channels.reshape(-1, 2) if layout_of(layout) == "interleaved" else channels.reshape(2, -1).T.copy()


def permutation(pairs: int, from_: Layout, to: Layout) -> np.ndarray:
    """Channel order that turns one layout into another: ``x_to = x_from[..., permutation]``.

    Raises:
        InvalidValue: A layout is unknown or there is no pair.

    >>> permutation(2, "interleaved", "halves").tolist()
    [0, 2, 1, 3]
    """
    order = np.empty(2 * count("pairs", pairs), np.int64)
    order[pair_channels(pairs, to)] = pair_channels(pairs, from_)
    return order


def place(out: np.ndarray, block: NDArray[np.complexfloating], pairs: slice, layout: Layout) -> None:
    """Put the two parts of complex numbers [rows, pairs] into the channels of ``out`` [rows, width].

    ``pairs`` says which of the pairs these are. A width of one channel less than the pairs have is a
    last pair without its second channel; further channels are left alone.
    """
    seconds = min(out.shape[1] // 2, pairs.stop) - pairs.start
    if layout == "interleaved":
        if out.flags.c_contiguous and out.shape[1] % 2 == 0 and out.dtype in _COMPLEX_OF:
            out.view(_COMPLEX_OF[out.dtype])[:, pairs] = block
            return
        out[:, 2 * pairs.start : 2 * pairs.stop : 2] = block.real
        out[:, 2 * pairs.start + 1 : 2 * pairs.stop : 2] = block.imag[:, :seconds]
    else:
        half = -(-out.shape[1] // 2)
        out[:, pairs] = block.real
        out[:, half + pairs.start : half + pairs.start + seconds] = block.imag[:, :seconds]


_COMPLEX_OF = {np.dtype(np.float32): np.complex64, np.dtype(np.float64): np.complex128}
