"""Records what reaches attention in one call of code that is made of JAX: products of queries and keys.

Functions that are compiled run uncompiled meanwhile, so that each of their operations is seen with its numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from string import ascii_lowercase
from typing import Any

import jax
import numpy as np
from jax.extend.core import primitives

from clockhands.models.recorded_products import Product, RecordedCall


@contextmanager
def recorded_into(calls: list[RecordedCall]) -> Iterator[None]:
    """Record one call, and append it."""
    watch = _JaxRecorder()
    watched = {
        primitives.dot_general_p: watch.multiplied,
        primitives.transpose_p: watch.transposed,
        primitives.exp_p: watch.raised,
    }
    own = {primitive: primitive.impl for primitive in watched}
    for primitive, saw in watched.items():
        primitive.impl = _watched(own[primitive], saw)
    try:
        with jax.disable_jit():
            yield
    finally:
        for primitive, run in own.items():
            primitive.impl = run
    calls.append(watch.call)


def _watched(run: Callable[..., Any], saw: Callable[..., None]) -> Callable[..., Any]:
    def runs(*arrays: Any, **parameters: Any) -> Any:
        made = run(*arrays, **parameters)
        saw(made, *arrays, **parameters)
        return made

    return runs


class _JaxRecorder:
    def __init__(self) -> None:
        self.call = RecordedCall()
        self.products: list[tuple[Any, Product]] = []  # with the result, held so that its identity stays its own

    def multiplied(self, made: Any, one: Any, other: Any, *, dimension_numbers: Any, **_: Any) -> None:
        (summed, of_other), (shared, shared_of_other) = dimension_numbers
        letters = ascii_lowercase[: one.ndim]
        rest = iter(ascii_lowercase[one.ndim :])
        same = dict(zip((*of_other, *shared_of_other), (letters[axis] for axis in (*summed, *shared)), strict=True))
        others = "".join(same[axis] if axis in same else next(rest) for axis in range(other.ndim))
        result = [letters[axis] for axis in shared]
        result += [letters[axis] for axis in range(one.ndim) if axis not in {*shared, *summed}]
        result += [others[axis] for axis in range(other.ndim) if axis not in same]
        self.products.append((made, Product((letters, others, "".join(result)), (one, other), tuple(made.shape))))

    def transposed(self, made: Any, array: Any, *, permutation: Any, **_: Any) -> None:
        for result, product in self.products[-1:]:
            if result is array:
                self.products.append((made, product.permuted(permutation)))

    def raised(self, _: Any, scores: Any, **__: Any) -> None:
        if scores.ndim < 2:
            return
        for number in reversed(range(len(self.products))):
            _, product = self.products[number]
            if len(product.shape) == scores.ndim and product.goes_into(scores.shape):
                made = product.with_scores(scores, lambda array: np.asarray(array, np.float64), 0)
                if made is not None:
                    self.call.products.append(made)
                    del self.products[number:]
                    return
