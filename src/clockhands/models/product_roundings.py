"""Other roundings of the products of a running model, drawn at random: what rounding alone may do to its answers.

Two passes over the same numbers differ where sums come in another order, as they do in batches of other shapes, and
layers amplify that: by how much depends on their weights, and is not known before. So each product of matrices is made
as it is, and moved by as much as another order may move it. In a sum of ``K`` terms at random, partial sums grow with
the square root, and so do their roundings: the standard deviation is ``u sqrt(K / 6)`` of the sum's, which a uniform
number up to ``u sqrt(K / 2)`` has. ``u`` is that of float32 where a coarser dtype is summed, whose one rounding of the
result is added. It is Monte Carlo arithmetic (D. S. Parker, 1997), for products alone.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from clockhands.encodings.compiling import DispatchMode
from clockhands.models.attention_inputs import roundoff


def other_roundings(seed: int) -> AbstractContextManager[Any]:
    """While it is entered, products of matrices are rounded otherwise: those that PyTorch counts operations of."""
    return _OtherRoundings(seed)


class _OtherRoundings(DispatchMode):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._drawn: torch.Generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Make the product, and move it."""
        given = dict(kwargs or {})
        made = func(*args, **given)
        operations = flop_registry.get(func._overloadpacket)  # noqa: SLF001 - the key of the table
        product = made[0] if isinstance(made, tuple) else made
        if operations is None or not product.is_floating_point() or not product.numel():
            return made
        terms = operations(*args, **given, out_val=made) / (2 * product.numel())
        moved = self._moved(product, terms)
        return (moved, *made[1:]) if isinstance(made, tuple) else moved

    def _moved(self, product: Tensor, terms: float) -> Tensor:
        unit = roundoff(product.dtype)
        most = min(unit, roundoff(torch.float32)) * (terms / 2) ** 0.5 + (unit if product.dtype.itemsize < 4 else 0.0)
        exact = product if product.dtype.itemsize == 8 else product.float()
        size = exact.square().mean(dim=-1, keepdim=True).sqrt()
        drawn = torch.rand(product.shape, generator=self._drawn, dtype=exact.dtype).to(product.device)
        return (exact + most * size * (2 * drawn - 1)).to(product.dtype)
