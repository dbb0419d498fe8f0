"""Changes of a running rotary model: each puts one fault in place by hooks of PyTorch and takes it out again.

A rotation reaches a decoder of Transformers in two places: one module makes cosine and sine for the positions
(`forward(x, position_ids) -> (cosine, sine)`), and every attention turns the outputs of its query and key projections
with them. A fault of frequencies or positions is a change of the first; another layout is the same as a permutation of
the channels of each head before the rotation, since attention scores do not depend on the order of channels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.errors import InvalidValue

Waves = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From the angles [batch, positions, pairs] and what cosine and sine are multiplied by, to both."""


@dataclass(frozen=True)
class Rotating:
    """Where a model rotates.

    Attributes:
        model: The model.
        rotary: The module that makes cosine and sine.
        attentions: The attention modules in order, with their number of channels per head.
        rates: Radians per token of each pair, as the module holds them, [pairs].
        factor: What cosine and sine are multiplied by.
    """

    model: nn.Module
    rotary: nn.Module
    attentions: tuple[tuple[nn.Module, int], ...]
    rates: Tensor
    factor: float


def rotating(model: nn.Module) -> Rotating:
    """Where a model rotates.

    Raises:
        InvalidValue: It has no module with ``inv_freq`` that makes cosine and sine once for all layers, or its
            attention has no ``q_proj`` and ``k_proj``.
    """
    held: list[Any] = [each for each in model.modules() if isinstance(getattr(each, "inv_freq", None), Tensor)]
    attentions: list[Any] = [each for each in model.modules() if hasattr(each, "q_proj") and hasattr(each, "k_proj")]
    if len(held) != 1 or not attentions:
        raise InvalidValue(
            f"The rotation of {type(model).__name__} cannot be reached: it has {len(held)} modules with inv_freq and"
            f" {len(attentions)} attention modules with q_proj and k_proj.",
            "Pass a decoder with one rotary module for all layers, such as Llama, Mistral or Qwen2.",
        )
    (rotary,) = held
    rates = rotary.inv_freq.detach().to(torch.float64)
    sized = tuple((each, int(each.head_dim)) for each in attentions)
    return Rotating(model, rotary, sized, rates, float(getattr(rotary, "attention_scaling", 1.0)))


Change = Callable[[Rotating], Any]
"""From where a model rotates to a context in which it is changed."""


@contextmanager
def _waves(at: Rotating, make: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Cosine and sine made from the positions [batch, positions], in float64, for halves."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any) -> tuple[Tensor, Tensor]:
        positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        cosine, sine = make(positions.to(torch.float64))
        both = (torch.cat((each, each), dim=-1) * at.factor for each in (cosine, sine))
        cosine, sine = (each.to(made[0].dtype) for each in both)
        return cosine, sine

    handle = at.rotary.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def of_rates(change: Callable[[Tensor], Tensor]) -> Change:
    """Other frequencies."""

    def made(at: Rotating) -> Any:
        rates = change(at.rates)

        def waves(positions: Tensor) -> tuple[Tensor, Tensor]:
            angles = positions[..., None] * rates
            return angles.cos(), angles.sin()

        return _waves(at, waves)

    return made


def together(*changes: Change) -> Change:
    """Several changes at once."""

    @contextmanager
    def made(at: Rotating) -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change(at))
            yield

    return made


def of_positions(change: Callable[[Tensor], Tensor]) -> Change:
    """Other positions."""

    def made(at: Rotating) -> Any:
        def waves(positions: Tensor) -> tuple[Tensor, Tensor]:
            angles = change(positions)[..., None] * at.rates
            return angles.cos(), angles.sin()

        return _waves(at, waves)

    return made


def of_channels(order: Callable[[int], Tensor], only: Sequence[int] | None = None) -> Change:
    """Queries and keys with the channels of each head in another order before the rotation."""

    @contextmanager
    def made(at: Rotating) -> Iterator[None]:
        with ExitStack() as stack:
            for number, (attention, width) in enumerate(at.attentions):
                if only is not None and number not in only:
                    continue
                moved = order(width)

                def hook(_: nn.Module, __: Any, y: Tensor, moved: Tensor = moved, width: int = width) -> Tensor:
                    return y.unflatten(-1, (-1, width))[..., moved].flatten(-2)

                for projection in (attention.q_proj, attention.k_proj):
                    stack.callback(projection.register_forward_hook(hook).remove)  # type: ignore[union-attr]
            yield

    return made


def queries_late(by: float) -> Change:
    """Queries turned by some positions more than keys: one more rotation of their projection."""

    @contextmanager
    def made(at: Rotating) -> Iterator[None]:
        cosine, sine = (torch.cat((each, each)).float() for each in ((by * at.rates).cos(), (by * at.rates).sin()))

        def hook(_: nn.Module, __: Any, y: Tensor) -> Tensor:
            heads = y.unflatten(-1, (-1, len(cosine)))
            first, second = heads.chunk(2, dim=-1)
            turned = torch.cat((-second, first), dim=-1)
            return (heads * cosine.to(y.dtype) + turned * sine.to(y.dtype)).flatten(-2)

        with ExitStack() as stack:
            for attention, _ in at.attentions:
                stack.callback(attention.q_proj.register_forward_hook(hook).remove)  # type: ignore[union-attr]
            yield

    return made


def adjacent(width: int) -> Tensor:
    """The order in which halves turn what are neighbours: channels 0, 2, 4, ... and then 1, 3, 5, ..."""
    return torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))


def first_half(width: int) -> Tensor:
    """The order in which halves turn the pairs (i, i + width / 4) of the first half of the channels."""
    one, two, three, four = torch.arange(width).view(4, -1)
    return torch.cat((one, three, two, four))
