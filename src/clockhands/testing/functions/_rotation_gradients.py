"""The gradient of a rotary function of PyTorch: what a rotation does to a gradient is to rotate it back."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.encodings.rotary import rotate
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.functions._rotary_subject import CheckedRotary

_TOKENS = 64


def rotated_gradient(it: CheckedRotary) -> Answer:
    """The gradient of a function along its own tokens x, rotated, beside ``factor ** 2 x``.

    With ``y = c R x``, the gradient of ``w . y`` is ``c R^T w``, so that ``c R`` times it is ``c^2 w``. The function
    has the rounding errors of a rotation, and they are rotated once more.

    Raises:
        Unasked: Its output has no gradient, or the encoding is no rotation alone.
        Refused: It raised an error.
    """
    if it.called.library.name != "torch" or it.called.shape.is_table or it.spec.xpos is not None or it.spec.reordered:
        raise Unasked("it is no rotation of tokens of PyTorch")
    at = it.places(_TOKENS)
    x = it.tokens(1, 1, len(at), seed=27)
    called = copy.copy(it.called)
    called.function = _gradient_of(called.function)
    got = called(x, it.at_axes(at))
    spec, factor = it.spec, it.spec.attention_factor
    back = rotate(got, spec.at_original, it.at_axes(at))
    stays = np.ones(x.shape[-1])
    stays[spec.channels.ravel()] = factor**2
    allowed = 2 * max(factor, 1.0) * it.compared(x, it.at_axes(at), None, None)[2]
    return Answer("the gradient of its tokens, rotated", back, stays * x, allowed, np.broadcast_to(at, (1, 1, len(at))))


def _gradient_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns, for each output, the gradient of its product with the input of its shape."""

    def gradient(*arguments: Any, **named: Any) -> Any:
        leaves: list[Tensor] = []

        def tracked(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            leaves.append(value.detach().clone().requires_grad_())
            return leaves[-1] * 1  # no leaf, so that a function may write to it

        with torch.enable_grad():
            made = function(*map(tracked, arguments), **{name: tracked(value) for name, value in named.items()})
            return _mapped(made, iter(range(len(leaves))), leaves)

    return gradient


def _mapped(made: Any, order: Any, leaves: list[Tensor]) -> Any:
    if isinstance(made, tuple | list):
        return type(made)(_mapped(each, order, leaves) for each in made)
    if isinstance(made, Mapping):
        return {name: _mapped(each, order, leaves) for name, each in made.items()}
    if not isinstance(made, Tensor) or not made.is_floating_point():
        return made
    number = next(order, 0)
    alike = [each for each in leaves if each.shape == made.shape]
    if not made.requires_grad or not alike:
        raise Unasked("its output has no gradient")
    source = alike[min(number, len(alike) - 1)]
    (found,) = torch.autograd.grad(made, source, source.detach().to(made), retain_graph=True, allow_unused=True)
    if found is None:
        raise Unasked("its output has no gradient")
    return found
