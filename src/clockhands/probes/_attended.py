"""Queries and keys as attention gets them, after the rotation, in every layer of a running model.

Transformers lets a caller register an attention function (``AttentionInterface.register``, with a mask function of the
same name) and choose it by the config. The function here notes queries, keys and the mask, lets the caller change
queries and keys, and calls the function that the model used before.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.errors import InvalidValue

_NAME = "clockhands_observed_"
FAMILIES = "Llama, Mistral, Qwen 2, Qwen 3, Gemma 3, Phi-3, GPT-NeoX, GPT-2 or OLMo 2"


@dataclass(frozen=True, eq=False)
class Attended:
    """What one layer's attention was given.

    Attributes:
        layer: Its number.
        path: The path of the attention module.
        queries: [batch, heads, tokens, channels].
        keys: [batch, heads of keys, tokens, channels].
        biased: Whether the mask adds finite numbers other than zero to scores, as ALiBi does.
    """

    layer: int
    path: str
    queries: Tensor
    keys: Tensor
    biased: bool


Turn = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""From a layer's number, queries and keys to others."""


def inner(module: nn.Module) -> nn.Module:
    """What was compiled, or wrapped by PEFT: the model of Transformers inside."""
    found: Any = getattr(module, "_orig_mod", module)
    base: Any = getattr(found, "get_base_model", None)
    return found if base is None else base()


def _configs(module: nn.Module) -> dict[int, Any]:
    """The configs that say which attention function is used."""
    found = (getattr(each, "config", None) for each in module.modules())
    return {id(each): each for each in found if getattr(each, "_attn_implementation_internal", None) is not None}


@contextmanager
def attended(module: nn.Module, turn: Turn | None = None) -> Iterator[list[Attended]]:
    """Note what attention is given in all passes while this lasts.

    Args:
        module: A model of Transformers.
        turn: Changes queries and keys before attention.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    seen: list[Attended] = []
    paths = {id(each): path for path, each in module.named_modules()}

    def observed(one: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, *more: Any, **named: Any) -> Any:
        layer = getattr(one, "layer_idx", None)
        path = paths.get(id(one))
        if layer is not None and path is not None and not getattr(one, "is_cross_attention", False):
            biased = isinstance(mask, Tensor) and mask.is_floating_point() and _finite_bias(mask)
            seen.append(Attended(int(layer), path, query.detach(), key.detach(), biased))
            if turn is not None:
                query, key = turn(int(layer), query, key)
        before = one.config._attn_implementation.removeprefix(_NAME)  # noqa: SLF001 - Transformers has no other word
        return _function(one, before)(one, query, key, value, mask, *more, **named)

    configs = _configs(module)
    kept = {each: config._attn_implementation_internal for each, config in configs.items()}  # noqa: SLF001
    masks = AttentionMaskInterface()
    for name in {str(each) for each in kept.values()}:
        AttentionInterface.register(f"{_NAME}{name}", observed)
        if name in masks:
            AttentionMaskInterface.register(f"{_NAME}{name}", masks[name])
    try:
        for each, config in configs.items():
            config._attn_implementation_internal = f"{_NAME}{kept[each]}"  # noqa: SLF001
        yield seen
    finally:
        for each, config in configs.items():
            config._attn_implementation_internal = kept[each]  # noqa: SLF001


def _function(one: nn.Module, name: str) -> Any:
    """The attention function of a name, as the model's own file has it where it is its own."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for kind in type(one).__mro__:
        file = sys.modules.get(kind.__module__)
        interface = getattr(file, "ALL_ATTENTION_FUNCTIONS", None)
        if interface is not None:
            eager = getattr(file, "eager_attention_forward", None)
            return interface.get_interface(name, eager)
    return ALL_ATTENTION_FUNCTIONS[name]


def _finite_bias(mask: Tensor) -> bool:
    least = torch.finfo(mask.dtype).min / 2
    return bool(((mask > least) & (mask != 0)).any())


def attended_once(module: nn.Module, ids: Tensor) -> list[Attended]:
    """What attention is given in one pass.

    Raises:
        InvalidValue: No attention goes through the interface of Transformers.
    """
    seen: list[Attended] = []
    if _configs(module):
        try:
            with attended(module) as seen, torch.no_grad():
                module(input_ids=ids, use_cache=False)
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidValue(
                f"{type(module).__name__} cannot be run on token ids alone: {str(error).splitlines()[0][:200]}.",
                "Probe its decoder, or a model that reads one text.",
            ) from error
    if not seen:
        raise InvalidValue(
            f"The attention of {type(module).__name__} cannot be reached: it does not call the attention interface of "
            "Transformers with queries and keys.",
            f"It is reached in families such as {FAMILIES}; a module of your own is checked by "
            "clockhands.testing.check_generation and check_module.",
        )
    return seen
