"""Finds the layers of any PyTorch model by one run, and skips layers whose outputs are known."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Run = Callable[[Tensor], Any]
"""Runs the model on token ids [1, tokens]."""


@dataclass(frozen=True, eq=False)
class LayerStack:
    """Layers that run one after the other on the same tokens.

    Attributes:
        path: Where the model keeps them.
        layers: The modules in order.
    """

    path: str
    layers: tuple[nn.Module, ...]


def hidden_states(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The input of a layer, [1, tokens, channels]; None for other inputs."""
    given = args[0] if args else kwargs.get("hidden_states")
    return given if isinstance(given, Tensor) and given.ndim == 3 and given.is_floating_point() else None


def with_hidden_states(args: tuple[Any, ...], kwargs: dict[str, Any], states: Tensor) -> tuple[Any, dict[str, Any]]:
    """The arguments of a layer with its hidden states replaced."""
    return ((states, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": states})


def first_tensor(output: Any) -> Tensor:
    """The hidden states that a layer returns, alone or as the first of several values."""
    return output if isinstance(output, Tensor) else output[0]


def stacks(model: nn.Module, run: Run, ids: Tensor) -> tuple[LayerStack, ...]:
    """The outermost lists of modules that each run once on hidden states, in the order in which they run."""
    called: dict[str, list[nn.Module]] = {}
    lists = {path: each for path, each in model.named_modules() if isinstance(each, nn.ModuleList) and len(each)}
    with ExitStack() as stack:
        for path, each in lists.items():
            for layer in each:

                def hook(module: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
                    if hidden_states(args, kwargs) is not None:
                        called.setdefault(path, []).append(module)

                stack.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        with torch.no_grad():
            run(ids)
    found = [
        LayerStack(path, tuple(modules))
        for path, modules in called.items()
        if [id(each) for each in modules] == [id(each) for each in lists[path]]
    ]
    paths = [each.path for each in found]
    return tuple(
        each for each in found if not any(each.path.startswith(f"{other}.") for other in paths if other != each.path)
    )


@contextmanager
def kept_outputs(stack: LayerStack) -> Iterator[list[Any]]:
    """Collect the outputs of each layer while the model runs."""
    kept: list[Any] = []
    with ExitStack() as hooks:
        for layer in stack.layers:
            hooks.enter_context(layer.register_forward_hook(lambda _, __, output: kept.append(_copied(output))))
        yield kept


@contextmanager
def begun_at(stack: LayerStack, number: int, kept: list[Any]) -> Iterator[None]:
    """Let layers before `number` return their previous outputs without computing them again."""
    before = stack.layers[:number]
    try:
        for layer, output in zip(before, kept, strict=False):
            layer.forward = lambda *_, output=output, **__: _copied(output)
        yield
    finally:
        for layer in before:
            vars(layer).pop("forward", None)


def _copied(output: Any) -> Any:
    """Copied, because later layers may add to their input in place."""
    if isinstance(output, Tensor):
        return output.clone()
    return type(output)(_copied(each) for each in output) if type(output) in (tuple, list) else output
