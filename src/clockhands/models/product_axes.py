"""The axes of queries, keys and scores in a product that is written as ``einsum``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clockhands.models.recorded_products import einsum_letters


@dataclass(frozen=True)
class ProductAxes:
    """The orders of axes in which a product is one of queries [batch, heads, tokens, channels] and keys.

    Attributes:
        queries: The axes of the first array in the order batch, heads, tokens, channels; there may be several of heads.
        keys: Those of the second array, likewise.
        scores: Those of the result in the order batch, heads, tokens, keys.

    Where both arrays share one axis alone, it is that of texts, of heads of one text, or of heads of all texts, as in
    a product of matrices.
    """

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    scores: tuple[int, ...]

    def queries_of(self, array: Tensor) -> Tensor:
        """Queries as [batch, heads, tokens, channels], or [batch x heads, tokens, channels]."""
        return _four(array.permute(self.queries))

    def keys_of(self, array: Tensor) -> Tensor:
        """Keys likewise; one head of keys for all of queries may have no axis."""
        keys = array.permute(self.keys)
        return _four(keys if keys.ndim == len(self.queries) or keys.ndim > 3 else keys[:, None])

    def scores_of(self, array: Tensor) -> Tensor:
        """Scores as [batch, heads, tokens, keys], or [batch x heads, tokens, keys]."""
        return _four(array.permute(self.scores))

    def back(self, queries: Tensor, keys: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """Both arrays in the shapes in which the product takes them."""
        made = []
        for array, order, shape in zip((queries, keys), (self.queries, self.keys), shapes, strict=True):
            inverse = [order.index(axis) for axis in range(len(order))]
            made.append(array.reshape([shape[axis] for axis in order]).permute(inverse))
        return made


def _four(array: Tensor) -> Tensor:
    """[batch, ..., tokens, channels] with one axis of heads, unless there is none."""
    if array.ndim == 3:
        return array
    return array.reshape(len(array), math.prod(array.shape[1:-2]), *array.shape[-2:])


def product_axes(equation: Any, *arrays: Any) -> ProductAxes | None:
    """The axes of a product of queries and keys, ``equation`` as ``einsum`` takes it; None for any other.

    One axis is summed over, the channels; the last one of the result is that of keys, and queries have another one of
    the same size, or of which there is only one. Of the axes that both share, the first one of the arrays is of texts.

    >>> import torch
    >>> product_axes("bshd,bthd->hbst", torch.ones(2, 5, 3, 4), torch.ones(2, 5, 3, 4))
    ProductAxes(queries=(0, 2, 1, 3), keys=(0, 2, 1, 3), scores=(1, 0, 2, 3))
    >>> product_axes("shd,thd->hst", torch.ones(5, 3, 4), torch.ones(5, 3, 4))
    ProductAxes(queries=(1, 0, 2), keys=(1, 0, 2), scores=(0, 1, 2))
    >>> product_axes("bhld,lrd->bhlr", torch.ones(2, 3, 5, 4), torch.ones(5, 5, 4))  # of distances
    """
    letters = einsum_letters(equation)
    if letters is None or len(arrays) != 2:
        return None
    first, second, made = letters
    summed = {*first} & {*second} - {*made}
    shared = [axis for axis in first if axis in second and axis in made]
    of_queries = [axis for axis in made if axis not in second]
    to = made[-1]
    if len(summed) != 1 or to in first or len({*second} - summed - {*shared}) != 1 or not of_queries:
        return None
    if made[0] not in shared:
        return None
    sizes = dict(zip(first + second, (*arrays[0].shape, *arrays[1].shape), strict=True))
    tokens = of_queries
    if len(of_queries) > 1:
        tokens = [axis for axis in of_queries if sizes[axis] == sizes[to]]
        tokens = [axis for axis in tokens if axis != "h"] if len(tokens) > 1 else tokens
    if len(tokens) != 1:
        return None
    groups = [axis for axis in of_queries if axis != tokens[0]]
    channels = min(summed)
    return ProductAxes(
        tuple(first.index(axis) for axis in (*shared, *groups, tokens[0], channels)),
        tuple(second.index(axis) for axis in (*shared, to, channels)),
        tuple(made.index(axis) for axis in (*shared, *groups, tokens[0], to)),
    )
