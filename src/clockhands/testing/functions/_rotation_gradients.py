"""The gradient of a rotary function of PyTorch: what a rotation does to a gradient is to rotate it back."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clockhands.encodings.rotary import rotate
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.functions._rotary_subject import CheckedRotary, holds_tokens

_TOKENS = 64


def rotated_gradient(it: CheckedRotary) -> tuple[Answer, np.ndarray]:
    """The gradient of a function along its own tokens x, rotated, beside ``factor ** 2 x``; and these tokens, rotated.

    With ``y = c R x``, the gradient of ``w . y`` is ``c R^T w``, so that ``c R`` times it is ``c^2 w``. The function
    has the rounding errors of a rotation, and they are rotated once more.

    Raises:
        Unasked: Its output has no gradient, or the encoding is no rotation alone.
        Refused: It raised an error.
    """
    if it.called.shape.is_table or it.spec.xpos is not None or it.spec.reordered:
        raise Unasked("it is no rotation of tokens alone")
    at = it.few_positions(_TOKENS)
    x = it.tokens(1, 1, len(at), seed=27)
    called = copy.copy(it.called)
    called.function = _gradient_of(called.function, x)
    got = called(x, it.at_axes(at))
    spec, factor = it.spec, it.spec.attention_factor
    back = rotate(got, spec.at_original, it.at_axes(at))
    stays = np.ones(x.shape[-1])
    stays[spec.channels.ravel()] = factor**2
    allowed = 2 * max(factor, 1.0) * it.compared(x, it.at_axes(at), None, None)[2]
    where = np.broadcast_to(at, (1, 1, len(at)))
    return Answer("the gradient of its tokens, rotated", back, stays * x, allowed, where), rotate(
        x, spec.at_original, it.at_axes(at)
    )


def _gradient_of(function: Callable[..., Any], x: np.ndarray) -> Callable[..., Any]:
    """A function that returns the gradient, along its tokens, of each output's product with them."""

    def gradient(*arguments: Any, **named: Any) -> Any:
        tokens: list[Tensor] = []

        def tracked(value: Any) -> Any:
            if tokens or not isinstance(value, Tensor) or not value.is_floating_point() or not holds_tokens(value, x):
                return value
            tokens.append(value.detach().clone().requires_grad_())
            return tokens[0] * 1  # no leaf, so that a function may write to it

        with torch.enable_grad():
            made = function(*map(tracked, arguments), **{name: tracked(value) for name, value in named.items()})
            if not tokens:
                raise Unasked("its tokens are not passed as they are")
            found: list[Tensor] = []
            answer = _mapped(made, tokens[0], found)
            if not found:
                raise Unasked("its output has no gradient")
            return answer

    return gradient


def _mapped(made: Any, tokens: Tensor, found: list[Tensor]) -> Any:
    """Each output of the shape of the tokens as its gradient along them, zeros where it has none; these are found."""
    if isinstance(made, tuple | list):
        return type(made)(_mapped(each, tokens, found) for each in made)
    if isinstance(made, Mapping):
        return {name: _mapped(each, tokens, found) for name, each in made.items()}
    if not isinstance(made, Tensor) or not made.is_floating_point() or made.shape != tokens.shape:
        return made
    if not made.requires_grad:
        return torch.zeros_like(made)
    (own,) = torch.autograd.grad(made, tokens, tokens.detach().to(made), retain_graph=True, allow_unused=True)
    if own is None:
        return torch.zeros_like(made)
    found.append(own)
    return own
