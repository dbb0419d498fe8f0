"""The order of the rows of a query or key projection in the other layout.

A row is an output channel of the projection. Rows come in slots of one head width, each the query, key or value of a
head. In every query and key slot the RoPE dimensions are reordered in the same way; all other rows stay.
"""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from clockhands.arguments import count
from clockhands.configs.tensor_names import Part
from clockhands.encodings.layouts import Layout, layout_of, permutation
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown


def convert_rows(  # noqa: PLR0917 - a head's numbers, then the way
    tensor: Any, heads: int, head_width: int, rotated: int | None, part: Part, from_: Layout, to: Layout
) -> Any:
    """The same projection for code that uses the other layout: its rows reordered, none changed.

    ``converted[h w + j] = tensor[h w + order[j]]`` for head ``h`` of width ``w``, where ``order`` permutes the RoPE
    dimensions only. Scores do not change if queries and keys are converted alike, because a score sums over channels.
    Converting back restores the tensor bit for bit.

    Args:
        tensor: [heads * head_width, ...]: a weight with output channels as rows, a bias, a norm over all heads; a
            NumPy or PyTorch array, which is not changed.
        heads: Number of heads in the rows; for a key projection, the number of key heads.
        head_width: Channels of a head.
        rotated: Number of RoPE dimensions of a head; None means all.
        part: Whether these are the first or the last of a head: the last in multi-head latent attention.
        from_: The present layout.
        to: The new layout.

    Raises:
        InvalidValue, InvalidType: The number of rows does not fit the heads, the number of RoPE dimensions is odd, or
            a layout is unknown.

    Source: Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.4.2, and GPT-NeoX's code: one rotation, two orders.

    >>> convert_rows(np.arange(8), 2, 4, None, "first", "interleaved", "halves").tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    shape = getattr(tensor, "shape", None)
    if shape is None or not len(shape):
        raise InvalidType(
            f"`tensor` must be an array with rows, got {type(tensor).__name__}.", "Pass a NumPy or PyTorch array."
        )
    heads = count("heads", heads)
    order = row_order([True] * heads, head_width, rotated, part, from_=from_, to=to)
    if shape[0] != len(order):
        raise InvalidValue(
            f"`tensor` has {shape[0]} rows, but {heads} heads of width {head_width} have {len(order)}.",
            "Rows are output dimensions: for a key projection, pass the number of key heads; transpose a Conv1D "
            "weight first.",
        )
    return tensor[order]


def row_order(
    slots: Sequence[bool], head_width: int, rotated: int | None, part: Part, *, from_: Layout, to: Layout
) -> np.ndarray:
    """Order of all rows, int64 of shape [len(slots) * head_width]: ``converted = tensor[row_order(...)]``.

    Args:
        slots: For each slot of ``head_width`` rows whether it is reordered (a query or a key) or stays (a value).
        head_width: Channels of a head.
        rotated: Number of RoPE dimensions of a head; None means all.
        part: Whether these are the first or the last of a head.
        from_: The present layout.
        to: The new layout.

    Raises:
        InvalidValue, InvalidType: ``rotated`` is above ``head_width`` or odd, or a layout or part is unknown.

    >>> row_order([True, False], 4, 4, "first", from_="halves", to="interleaved").tolist()
    [0, 2, 1, 3, 4, 5, 6, 7]
    """
    width = count("head_width", head_width)
    turning = width if rotated is None else count("rotated", rotated)
    if turning > width or turning % 2:
        raise InvalidValue(
            f"`rotated` must be even and at most the head's width {width}, got {turning}.",
            "It is the number of RoPE dimensions per head, two for each pair.",
        )
    if part not in get_args(Part):
        raise InvalidValue(
            f'`part` must be "first" or "last", got {shown(part)}.',
            "It selects which dimensions of a head are rotated.",
        )
    start = 0 if part == "first" else width - turning
    channels = np.arange(width)
    channels[start : start + turning] = start + permutation(turning // 2, layout_of(from_), layout_of(to))
    order = np.arange(len(slots) * width).reshape(-1, width)
    turns = np.asarray(slots, dtype=bool)
    order[turns] = order[turns][:, channels]
    return order.reshape(-1)
