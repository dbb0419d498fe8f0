"""Gives each attention the same input at every position, where layers without attention before it would change it.

A state of earlier tokens, as recurrent layers and convolutions keep it, makes hidden states of one repeated token
differ along a text; a recurrence that begins anew at position 0 also makes those of a text of one token depend on its
position. Neither is a rotation, so behind such layers the input of the attention's own layer is held.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from clockhands.models.attention_inputs import Attended, roundoff

_LAYER = re.compile(r"(.+?)\.(\d+)(?:\.|$)")
_ROUNDINGS = 16

Held = Callable[[str, Tensor], Tensor]
"""From the path of a layer and its hidden states [batch, tokens, width] to those of the first position, as often."""


@contextmanager
def held_inputs(module: nn.Module, known: Sequence[Attended], held: Held, allowed: float) -> Iterator[set[int]]:
    """Hold the inputs of attention layers while the context is open, and collect the numbers of those that were held.

    Only what a layer without attention changed is held: a position that is added to the input, or moved by an
    attention, stays as it is and is measured.

    Args:
        module: The model.
        known: An earlier pass, which says which layers have an attention.
        held: Makes the input that is the same at every position.
        allowed: How far an attention may move hidden states, as a share of their size.
    """
    attending: dict[str, dict[int, int]] = {}
    for each in known:
        if (found := _LAYER.match(each.path)) is not None:
            attending.setdefault(found[1], {})[int(found[2])] = each.layer
    holding: dict[str, bool] = {}
    numbers: set[int] = set()

    def hook_of(path: str, place: int) -> Any:
        own = attending[path]

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = {**dict(enumerate(args)), **kwargs}
            name = next((name for name, each in given.items() if _is_hidden(each)), None)
            if name is None:
                return None
            wanted = held(f"{path}.{place}", given[name])
            if path not in holding:
                after_state = place > 0 and place - 1 not in own
                far = float((given[name] - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
                if far > (_ROUNDINGS * roundoff(wanted.dtype) if after_state else allowed):
                    holding[path] = after_state
            if not holding.get(path) or place not in own:
                return None
            numbers.add(own[place])
            given[name] = wanted
            return tuple(given.pop(number) for number in range(len(args))), given

        return hook

    with ExitStack() as stack:
        for path in attending:
            for place, layer in enumerate(module.get_submodule(path).children()):
                stack.enter_context(layer.register_forward_pre_hook(hook_of(path, place), with_kwargs=True))
        yield numbers


def _is_hidden(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 3 and value.is_floating_point()
