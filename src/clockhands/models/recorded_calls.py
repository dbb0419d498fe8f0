"""Records what reaches attention in one call of any code that is made of PyTorch: products, tables and waves.

No module and no name is needed, so a function or a closure is recorded like a model. A product of queries and keys is
one whose result goes into a softmax over keys, or into an exponential where that is written out. A table is an array of
floats that was there before the call and of which the call reads rows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clockhands.models.attention_inputs import (
    FUSED,
    MULTIPLICATIONS,
    PRODUCTS,
    PRODUCTS_WITH_SUM,
    SOFTMAX,
    fused_arguments,
    fused_scores,
)
from clockhands.models.recorded_products import (
    Product,
    RecordedCall,
    ScoreProduct,
    TableRead,
    of_three_axes,
    product_of_einsum,
    product_of_matrices,
    product_of_sum,
)

_READS = (Tensor.__getitem__, torch.index_select, Tensor.index_select)
_WAVES = (torch.cos, Tensor.cos, torch.sin, Tensor.sin, torch.polar)
_EXPONENTIALS = (torch.exp, Tensor.exp)
_SUMS = (torch.sum, Tensor.sum)
_SUMS_OF_PRODUCTS = (torch.einsum, *PRODUCTS)


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
        self.products: list[Product] = []
        self.multiplied: dict[int, tuple[Tensor, Tensor]] = {}  # number by number, by the identity of the result

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
        elif func in MULTIPLICATIONS and len(args) == 2 and all(isinstance(each, Tensor) for each in args):
            self.multiplied[id(made)] = args
        elif func in _SUMS and args and id(args[0]) in self.multiplied and made.ndim == args[0].ndim - 1:
            self._summed(args, kwargs)
        elif func in _WAVES:
            self.call.waves.append(tuple(made.shape))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor):
                self.made[id(each)] = each
        return made

    def _fused(self, given: Mapping[str, Any]) -> None:
        arrays = given["query"], given["key"], fused_scores(given)
        if arrays[2].ndim >= 3:  # one head of keys may serve several of queries
            queries, keys, scores = (of_three_axes(_converted(each)) for each in arrays)
            dtype = str(arrays[0].dtype).removeprefix("torch.")
            self.call.products.append(ScoreProduct(queries, keys, scores, len(self.call.reads), dtype))

    def _product(self, func: Any, args: Any, made: Any) -> None:
        if func is torch.einsum and len(args) == 2 and isinstance(args[1], list | tuple):
            args = (args[0], *args[1])
        if not isinstance(made, Tensor) or not all(isinstance(each, Tensor) for each in args[-2:]) or made.ndim < 2:
            return
        if func is torch.einsum:
            product = product_of_einsum(args[0], args[1:], made.shape)
        else:
            product = None if isinstance(args[1], nn.Parameter) else product_of_matrices(args[0], args[1], made.shape)
        if product is not None:
            self.products.append(product)

    def _summed(self, args: Any, kwargs: Any) -> None:
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        one, other = self.multiplied[id(args[0])]
        last = isinstance(axis, int) and axis in {-1, args[0].ndim - 1}
        if last and (product := product_of_sum(one, other)) is not None:
            self.products.append(product)

    def _softmax(self, args: Any, kwargs: Any, func: Any) -> None:
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim", -1)
        if not isinstance(scores, Tensor) or scores.ndim < 2 or not isinstance(axis, int):
            return
        order = [*range(scores.ndim)]
        if func in SOFTMAX:
            order.append(order.pop(axis))
        scores = scores.permute(order)
        for number in reversed(range(len(self.products))):
            product = self.products[number]
            product = product.permuted(order) if len(product.shape) == scores.ndim else product
            if product.goes_into(scores.shape) and self._note(product, scores):
                del self.products[number:]
                return

    def _note(self, product: Product | None, scores: Tensor) -> bool:
        made = None if product is None else product.with_scores(scores, _converted, len(self.call.reads))
        if made is not None:
            self.call.products.append(made)
        return made is not None

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


def _converted(array: Tensor) -> np.ndarray:
    return array.detach().double().cpu().numpy()


def _first_index(index: Any) -> tuple[int, Any]:
    """The first axis of which an index takes a part, and that part."""
    for axis, each in enumerate(index if isinstance(index, tuple) else (index,)):
        if each is None or each is Ellipsis:
            return 0, None
        if each != slice(None) if isinstance(each, slice | int) else True:
            return axis, each
    return 0, None
