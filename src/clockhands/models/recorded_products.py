"""What one call of a model computes on its way to attention, in any library: products of queries and keys, and tables.

A product is written as ``einsum`` writes it. It is one of queries and keys if its result goes into a softmax, or into
an exponential where that is written out: keys are then along the axis of the softmax, and queries in the other array.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class ScoreProduct:
    """A product of queries and keys of one call, of all texts of its batch.

    Attributes:
        queries: [heads, tokens, channels].
        keys: [heads of keys, keys, channels].
        scores: The input of the softmax, [heads, tokens, keys].
        reads: How many reads of tables came before it.
        dtype: In which it was computed.
    """

    queries: np.ndarray
    keys: np.ndarray
    scores: np.ndarray
    reads: int = 0
    dtype: str = "float32"

    def of_one_text(self) -> "ScoreProduct":
        """The product of one text whose keys are in blocks, as in a paged cache, with all keys in one row.

        Its one query then stands once for each block. Any other product is returned as it is.
        """
        rows = len(self.queries)
        periods = (each for each in range(1, rows) if rows % each == 0 and len(self.keys) % (rows // each) == 0)
        heads = next((each for each in periods if (self.queries[each:] == self.queries[:-each]).all()), rows)
        blocks = rows // max(heads, 1)
        if blocks < 2 or self.queries.shape[1] != 1:
            return self

        def joined(rows: np.ndarray, axis: int) -> np.ndarray:
            return np.concatenate([*rows.reshape(blocks, -1, *rows.shape[1:])], axis)

        return replace(self, queries=self.queries[:heads], keys=joined(self.keys, 1), scores=joined(self.scores, 2))


@dataclass(frozen=True, eq=False)
class TableRead:
    """Rows of a table that a call read.

    Attributes:
        table: It; kept so that its identity stays its own.
        rows: Their numbers, in order.
        shape: Of the array of these numbers.
    """

    table: Any
    rows: tuple[int, ...]
    shape: tuple[int, ...] = ()


@dataclass(eq=False)
class RecordedCall:
    """What one call computed on its way to attention.

    Attributes:
        products: Of queries and keys, in order.
        reads: Of tables, in order.
        waves: The shapes of cosines and sines that it computed.
    """

    products: list[ScoreProduct] = field(default_factory=list)
    reads: list[TableRead] = field(default_factory=list)
    waves: list[tuple[int, ...]] = field(default_factory=list)


def joined_parts(products: Sequence[ScoreProduct], tokens: int) -> list[ScoreProduct]:
    """The products of a call that reads its tokens in parts, with those of each attention as one; itself for any other.

    Each part has the keys of the parts before it as well.
    """
    products = [each.of_one_text() for each in products]
    queries = sum(each.queries.shape[1] for each in products)
    layers = queries // tokens if tokens and queries % tokens == 0 else 0
    if not layers or len(products) == layers or len(products) % layers:
        return [*products]
    parts = [products[start : start + layers] for start in range(0, len(products), layers)]
    made = []
    for same in zip(*parts, strict=True):
        keys = same[-1].keys
        widths = [keys.shape[1] - each.keys.shape[1] for each in same]
        ends = np.cumsum([each.queries.shape[1] for each in same])
        if any(each.keys.shape[1] < end for each, end in zip(same, ends, strict=True)):
            return [*products]
        alike = {(each.queries.shape[0], *each.queries.shape[2:], len(each.keys)) for each in same}
        if min(widths) < 0 or len(alike) > 1:
            return [*products]
        scores = [np.pad(each.scores, ((0, 0), (0, 0), (0, more)), constant_values=-np.inf)
                  for each, more in zip(same, widths, strict=True)]  # fmt: skip
        rows = np.concatenate([each.queries for each in same], 1)
        made.append(replace(same[-1], queries=rows, scores=np.concatenate(scores, 1)))
    return made


@dataclass(frozen=True, eq=False)
class Product:
    """A sum over products of two arrays.

    Attributes:
        letters: Of the axes of both arrays and of the result, as ``einsum`` has them.
        arrays: Both.
        shape: Of the result.
    """

    letters: tuple[str, str, str]
    arrays: tuple[Any, Any]
    shape: tuple[int, ...]

    def permuted(self, order: Sequence[int]) -> "Product":
        """The product whose result has its axes in another order."""
        result = "".join(self.letters[2][axis] for axis in order)
        return Product((*self.letters[:2], result), self.arrays, tuple(self.shape[axis] for axis in order))

    def goes_into(self, shape: Sequence[int]) -> bool:
        """Whether scores of this shape may be its result: texts and heads may be one axis, and a sink is a key."""
        if not self.shape or not len(shape) >= 2 or shape[-1] - self.shape[-1] not in {0, 1}:
            return False
        same = tuple(shape[:-1]) == self.shape[:-1]
        return same or (not self._is_of_one_token() and shape[-2] == self.shape[-2])

    def _is_of_one_token(self) -> bool:
        """Whether its result has no axis of tokens: all but that of keys are of both arrays."""
        return all(each in self.letters[0] and each in self.letters[1] for each in self.letters[2][:-1])

    def _of_one_key(self) -> "Product":
        """The product of one key, whose axis both arrays have: as if the first had none."""
        own, axis = self.letters[0], self.letters[0].index(self.letters[2][-1])
        shape = [size for number, size in enumerate(self.arrays[0].shape) if number != axis]
        one = self.arrays[0].reshape(shape)
        return Product((own[:axis] + own[axis + 1 :], *self.letters[1:]), (one, self.arrays[1]), self.shape)

    def with_scores(self, scores: Any, convert: Callable[[Any], np.ndarray], reads: int) -> ScoreProduct | None:
        """It as one of queries and keys, with the input of a softmax over the last axis; None if it is none.

        Without an axis of tokens it is that of one token.
        """
        result = self.letters[2]
        key = result[-1]
        if self.shape[-1] == 1 and all(key in each for each in self.letters[:2]):
            return self._of_one_key().with_scores(scores, convert, reads)
        of_keys = next((number for number in (0, 1) if key in self.letters[number]), None)
        if of_keys is None or key in self.letters[1 - of_keys]:
            return None
        own, other = self.letters[1 - of_keys], self.letters[of_keys]
        summed = [each for each in own if each in other and each not in result]
        tokens = [each for each in result[-2:-1] if each in own and each not in other]
        if not summed or not (tokens or self._is_of_one_token()):
            return None
        before = result[: -1 - len(tokens)]
        arrays: list[np.ndarray] = []
        for number, row in ((1 - of_keys, tokens), (of_keys, [key])):
            order = [*(each for each in before if each in self.letters[number]), *row, *summed]
            if sorted(order) != sorted(self.letters[number]):
                return None
            array = convert(self.arrays[number]).transpose([self.letters[number].index(each) for each in order])
            arrays.append(of_three_axes(array, len(row), len(summed)))
        own_scores = of_three_axes(convert(scores)[..., : self.shape[-1]], len(tokens), 1)
        dtype = str(self.arrays[1 - of_keys].dtype).removeprefix("torch.")
        return ScoreProduct(arrays[0], arrays[1], own_scores, reads, dtype)


def of_three_axes(array: np.ndarray, rows: int = 1, last: int = 1) -> np.ndarray:
    """[heads, rows, last] of an array with one axis of rows, or none, and some last ones."""
    cut = array.ndim - last
    heads = array.shape[: cut - rows]
    return array.reshape(math.prod(heads), math.prod(array.shape[cut - rows : cut]), math.prod(array.shape[cut:]))


def product_of_matrices(one: Any, other: Any, shape: Sequence[int]) -> Product | None:
    """A product of matrices [..., rows, channels] and [..., channels, columns], of which one may serve several others.

    None where texts are not alike.
    """
    if min(one.ndim, other.ndim) < 2 or len(shape) < 2:
        return None
    texts = ascii_lowercase[: len(shape) - 2]
    letters, arrays = [], []
    for array, matrix in ((one, "yx"), (other, "xz")):
        held = [axis for axis in range(-len(shape), -2) if array.ndim + axis >= 0]
        kept = [axis for axis in held if array.shape[axis] == shape[axis]]
        if any(array.shape[axis] != 1 for axis in held if axis not in kept):
            return None
        letters.append("".join(texts[axis + len(shape)] for axis in kept) + matrix)
        arrays.append(array.reshape([array.shape[axis] for axis in (*kept, -2, -1)]))
    return Product((*letters, f"{texts}yz"), tuple(arrays), tuple(shape))


def einsum_letters(equation: Any) -> tuple[str, str, str] | None:
    """The axes of both arrays and of the result of ``einsum`` of two arrays; None for any other equation."""
    text = equation.replace(" ", "") if isinstance(equation, str) else ""
    given, arrow, result = text.partition("->")
    first, comma, second = given.partition(",")
    letters = first, second, result
    known = all(each.isalpha() and len({*each}) == len(each) for each in letters)
    return letters if arrow and comma and known else None


def product_of_einsum(equation: Any, arrays: Sequence[Any], shape: Sequence[int]) -> Product | None:
    """That of ``einsum`` of two arrays; None for any other."""
    letters = einsum_letters(equation)
    if letters is None or len(arrays) != 2:
        return None
    return Product(letters, (arrays[0], arrays[1]), tuple(shape))


def product_of_sum(one: Any, other: Any) -> Product | None:
    """The sum over the last axis of two arrays that were multiplied number by number; None where channels differ.

    An axis of which an array has one number is left out of it.
    """
    size = max(one.ndim, other.ndim)
    shape = np.broadcast_shapes(tuple(one.shape), tuple(other.shape))
    if size < 3 or one.ndim != other.ndim or one.shape[-1] != other.shape[-1]:
        return None
    letters, arrays = [], []
    for array in (one, other):
        kept = [axis for axis in range(size) if array.shape[axis] == shape[axis]]
        letters.append("".join(ascii_lowercase[axis] for axis in kept))
        arrays.append(array.reshape([shape[axis] for axis in kept]))
    return Product((letters[0], letters[1], ascii_lowercase[: size - 1]), (arrays[0], arrays[1]), tuple(shape[:-1]))
