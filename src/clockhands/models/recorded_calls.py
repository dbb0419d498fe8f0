"""Records what reaches attention in one call of any code that is made of PyTorch: products, tables and waves.

No module and no name is needed, so a function or a closure is recorded like a model. A product of queries and keys is
one whose result goes into a softmax over keys, or into an exponential where that is written out. A table is an array of
floats that was there before the call and of which the call reads rows.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clockhands.models.attention_inputs import (
    FUSED,
    PRODUCTS,
    PRODUCTS_WITH_SUM,
    SOFTMAX,
    fused_arguments,
    fused_scores,
)

_READS = (Tensor.__getitem__, torch.index_select, Tensor.index_select)
_WAVES = (torch.cos, Tensor.cos, torch.sin, Tensor.sin, torch.polar)
_EXPONENTIALS = (torch.exp, Tensor.exp)
_SUMS_OF_PRODUCTS = (torch.einsum, *PRODUCTS)


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


@dataclass(frozen=True, eq=False)
class TableRead:
    """Rows of a table that a call read.

    Attributes:
        table: It; kept so that its identity stays its own.
        rows: Their numbers, in order.
        shape: Of the array of these numbers.
    """

    table: Tensor
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


@contextmanager
def recorded_into(calls: list[RecordedCall]) -> Iterator[None]:
    """Record one call in this thread, and append it."""
    watch = _Recorder()
    with watch:
        yield
    calls.append(watch.call)


class _Recorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.call = RecordedCall()
        self.made: dict[int, Tensor] = {}  # held, so that no other tensor gets the same identity
        self.products: list[tuple[Tensor, Tensor, tuple[int, int]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is FUSED:
            self._fused(fused_arguments(args, kwargs))
        elif func in SOFTMAX or func in _EXPONENTIALS:  # a softmax may be written out
            self._softmax(args, kwargs, func)
        elif func is nn.functional.embedding or func in _READS:
            self._read(func, args, kwargs)
        made = func(*args, **kwargs)
        if func in _SUMS_OF_PRODUCTS:
            self._product(func, args, made)
        elif func in PRODUCTS_WITH_SUM:
            given = dict(zip(("input", "batch1", "batch2"), args, strict=False)) | kwargs
            self._product(torch.bmm, (given["batch1"], given["batch2"]), made)
        elif func in _WAVES:
            self.call.waves.append(tuple(made.shape))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor):
                self.made[id(each)] = each
        return made

    def _fused(self, given: Mapping[str, Any]) -> None:
        self._note(given["query"], given["key"], fused_scores(given))

    def _product(self, func: Any, args: Any, made: Any) -> None:
        pair = _of_einsum(*args) if func is torch.einsum else _of_matmul(*args)
        if pair is not None and isinstance(made, Tensor) and made.ndim >= 3:
            self.products.append((*pair, (made.shape[-2], made.shape[-1])))

    def _softmax(self, args: Any, kwargs: Any, func: Any) -> None:
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim", -1)
        axis = -1 if func in _EXPONENTIALS else axis
        if not isinstance(scores, Tensor) or scores.ndim < 3 or axis not in {-1, scores.ndim - 1}:
            return
        tokens, keys = scores.shape[-2:]
        for number in reversed(range(len(self.products))):
            queries, of_keys, shape = self.products[number]
            if shape[0] == tokens and keys - shape[1] in {0, 1}:  # one more: a sink
                self._note(queries, of_keys, scores[..., : shape[1]])
                del self.products[number:]
                return

    def _note(self, queries: Tensor, keys: Tensor, scores: Tensor) -> None:
        arrays = (_rows(each) for each in (queries, keys, scores))
        dtype = str(queries.dtype).removeprefix("torch.")
        self.call.products.append(ScoreProduct(*arrays, reads=len(self.call.reads), dtype=dtype))

    def _read(self, func: Any, args: Any, kwargs: Any) -> None:
        if func is nn.functional.embedding:
            given = dict(zip(("input", "weight"), args, strict=False)) | kwargs
            table, axis, index = given["weight"], 0, given["input"]
        elif func is Tensor.__getitem__:
            table, (axis, index) = args[0], _first_index(args[1])
        else:
            given = dict(zip(("input", "dim", "index"), args, strict=False)) | kwargs
            table, axis, index = given["input"], given["dim"], given["index"]
        floats = isinstance(table, Tensor) and (table.is_floating_point() or table.is_complex())
        new = id(table) in self.made and not isinstance(table, nn.Parameter)  # a model may be made in the call
        if not floats or new or table.ndim < 2 or axis >= table.ndim:
            return
        shape = None
        if isinstance(index, Tensor) and index.dtype != torch.bool and not index.is_floating_point():
            shape = tuple(index.shape)
            rows = index.detach().cpu().flatten().tolist()
        elif isinstance(index, slice):
            rows = list(range(*index.indices(table.shape[axis])))
        elif isinstance(index, int):
            rows = [index]
        else:
            return
        self.call.reads.append(TableRead(table, tuple(rows), (len(rows),) if shape is None else shape))


def _rows(array: Tensor) -> np.ndarray:
    """[heads, rows, channels] of all texts."""
    array = array.detach()
    return array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:]).double().cpu().numpy()


def _first_index(index: Any) -> tuple[int, Any]:
    """The first axis of which an index takes a part, and that part."""
    for axis, each in enumerate(index if isinstance(index, tuple) else (index,)):
        if each is None or each is Ellipsis:
            return 0, None
        if each != slice(None) if isinstance(each, slice | int) else True:
            return axis, each
    return 0, None


def _of_matmul(one: Any, other: Any) -> tuple[Tensor, Tensor] | None:
    both = isinstance(one, Tensor) and isinstance(other, Tensor)
    if not both or one.ndim < 3 or other.ndim < 3 or isinstance(other, nn.Parameter):
        return None
    return one, other.transpose(-1, -2)


def _of_einsum(equation: Any, *operands: Any) -> tuple[Tensor, Tensor] | None:
    """Queries and keys of a sum over products of two arrays whose result has tokens and keys last."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if not isinstance(equation, str) or "->" not in equation or "." in equation or len(operands) != 2:
        return None
    inputs, result = equation.replace(" ", "").split("->")
    letters = inputs.split(",")
    if len(result) < 3 or len(letters) != 2:
        return None
    token, key = result[-2:]
    of_queries = next((number for number, each in enumerate(letters) if token in each and key not in each), None)
    if of_queries is None or key not in letters[1 - of_queries] or token in letters[1 - of_queries]:
        return None
    summed = [each for each in letters[0] if each in letters[1] and each not in result]
    found = []
    for number, row in ((of_queries, token), (1 - of_queries, key)):
        order = [*(each for each in result[:-2] if each in letters[number]), row, *summed]
        if sorted(order) != sorted(letters[number]) or not summed:
            return None
        array = operands[number].permute([letters[number].index(each) for each in order])
        found.append(array.flatten(-len(summed)))
    return found[0], found[1]
