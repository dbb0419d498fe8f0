"""Calls the attention of each layer of a built class, without memory for its numbers, and notes what it does.

Of tensors on the meta device only the shapes exist, but the positions are real numbers, and so is what the code makes
of positions alone. A layer rotates if it uses the cosines that it is given. Its scores are multiplied by the scale that
it hands to the attention function of the library, and its queries by the numbers that follow from the positions.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from clockhands.models.class_readings import SCORED, LayerAttention

_ATTENTION = "clockhands"
"""The name under which the library finds the attention function of this file: the ``attn_implementation``."""

_PRODUCTS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.div, Tensor.div, Tensor.__truediv__)
_FROM_MEMORY = (torch.arange, torch.tensor)
_SETTINGS = (bool, int, float, str, type(None), tuple, list)
_MOST_CALLS = 2_000
"""Calls of PyTorch in one attention; softmax attention makes a few hundred, linear attention some for every chunk."""


@dataclass
class _WatchedCall(TorchFunctionMode):
    """Watches the calls of PyTorch's functions while one attention runs."""

    waves: Sequence[Tensor]
    used: bool = False
    scale: float | None = None
    growth: list[Tensor] = field(default_factory=list)
    scaled_elsewhere: bool = False
    calls: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        self.calls += 1
        if self.calls > _MOST_CALLS:
            raise RuntimeError(f"an attention made more than {_MOST_CALLS:,} calls")
        if func in _FROM_MEMORY:
            return func(*args, **{**kwargs, "device": "cpu"})
        self.used = self.used or any(each is wave for each in args for wave in self.waves)
        if func in _PRODUCTS and self.scale is None:
            self._product(func, *args[:2])
        if any(_on_meta(each) for each in args):
            args = [each.to("meta") if isinstance(each, Tensor) else each for each in args]
        return func(*args, **kwargs)

    def _product(self, func: Any, one: Any, other: Any) -> None:
        """A product of something with a number, or of something with what follows from the positions."""
        known = other if _on_meta(one) else one if _on_meta(other) else None
        if isinstance(known, Real) or (isinstance(known, Tensor) and not _on_meta(known) and known.ndim == 0):
            self.scaled_elsewhere = True
        elif isinstance(known, Tensor) and not _on_meta(known):
            self.growth.append(1 / known if "div" in func.__name__ else known)

    def attention(self, _: nn.Module, query: Tensor, *others: Any, **values: Any) -> tuple[Tensor, None]:
        """The attention function that the library calls, which notes the scale."""
        scale = values.get("scaling")
        self.scale = 1.0 if scale is None else float(scale) * query.shape[-1] ** 0.5
        batch, heads, tokens = query.shape[:3]
        return query.new_empty(batch, tokens, heads, others[1].shape[-1]), None

    def factors(self) -> tuple[float, ...] | None:
        """The factor on the scores of all positions, or of each of them."""
        if self.scale is None or self.scaled_elsewhere or len(self.growth) > 1:
            return None
        if not self.growth:
            return (self.scale,)
        grown = self.growth[0].double().flatten()
        if len(grown) != SCORED[-1] + 1:
            return None
        return tuple(self.scale * float(grown[place]) for place in SCORED)


def _on_meta(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def layer_attentions(
    model: Any, modules: Sequence[nn.Module], kinds: Sequence[str], waves: Mapping[str, Sequence[Tensor]]
) -> dict[int, LayerAttention]:
    """What the attention of each layer does, by the layer's number.

    Args:
        model: One part of a model; its config names our attention function from now on.
        modules: Its modules.
        kinds: The kind of each layer, if the config lists them.
        waves: What the rotary module returns at one position, by kind of layer; under ``""`` for all layers.
    """
    ALL_ATTENTION_FUNCTIONS[_ATTENTION] = _WatchedCall(()).attention
    with suppress(Exception):  # a class that has only its own attention
        model.set_attn_implementation(_ATTENTION)
    found: dict[int, LayerAttention] = {}
    called: dict[Any, LayerAttention] = {}
    for module in modules:
        layer = getattr(module, "layer_idx", None)
        if isinstance(layer, int) and "Attention" in type(module).__name__ and layer not in found:
            kind = kinds[layer] if layer < len(kinds) else ""
            alike = (kind, _settings(module))
            if alike not in called:
                called[alike] = _called(module, waves.get(kind) or waves.get("") or ())
            found[layer] = called[alike]
    return found


def _settings(module: nn.Module) -> tuple[Any, ...]:
    """What tells one layer's attention from another's: its settings, without its number if the code does not use it.

    The number of a layer is also the place of its keys in a cache, which none of these calls has.
    """
    code = re.sub(r"\.update\([^)]*\)", "", _forward_code(type(module)))
    own = [getattr(module, "layer_idx", None)] if "layer_idx" in code else []
    for name, each in module.named_modules():
        kept = {key: value for key, value in vars(each).items() if isinstance(value, _SETTINGS) and key != "layer_idx"}
        own.append((name, type(each), repr(sorted(kept.items()))))
    return tuple(own)


@cache
def _forward_code(kind: type[nn.Module]) -> str:
    return inspect.getsource(kind.forward)


def _called(module: nn.Module, waves: Sequence[Tensor]) -> LayerAttention:
    projection = next((each for each in module.modules() if isinstance(each, nn.Linear)), None)
    parameters = inspect.signature(module.forward).parameters
    if projection is None or getattr(module, "is_cross_attention", False):
        return LayerAttention()
    tokens = SCORED[-1] + 1
    meta = [each.to("meta").expand(1, tokens, *each.shape[2:]) for each in waves if each.shape[:2] == (1, 1)]
    positions = torch.arange(tokens)
    given: dict[str, Any] = {"position_ids": positions[None], "cache_position": positions, "attention_mask": None}
    if meta:
        given["position_embeddings"] = tuple(meta) if len(meta) > 1 else meta[0]
    given |= {name: None for name in parameters if name.startswith("past_key_value")}
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    given = {name: value for name, value in given.items() if open_ended or name in parameters}
    call = _WatchedCall(meta)
    ALL_ATTENTION_FUNCTIONS[_ATTENTION] = call.attention
    with torch.no_grad(), call:
        try:
            module(torch.empty(1, tokens, projection.in_features, device="meta"), **given)
        except Exception:  # noqa: BLE001 - the library's own code, on an attention that takes something else
            if call.scale is None:
                return LayerAttention()
    # An attention that also runs without cosines leaves it to its model whether a layer rotates.
    left_open = re.search(r"position_embeddings is (not )?None", _forward_code(type(module)))
    rotates = call.used if meta and "position_embeddings" in parameters and not left_open else None
    # So does one that takes a scale from it.
    scaled = any("scal" in name for name in parameters)
    return LayerAttention(rotates, None if scaled else call.factors())
