"""Runs a part of a model up to its first attention: which token is which patch, and what reaches each module before."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.errors import InvalidValue
from clockhands.models.attention_inputs import Attended, attended
from clockhands.models.layer_rotations import tolerance
from clockhands.models.tower_inputs import SmallInput, reason

NO_PATCH = -1
"""In the place of the number of a patch, for a token that stands for none."""


class _PassEnded(Exception):
    """What is needed of the forward pass has run."""


def first_attention(part: nn.Module, run: Callable[[int], Any]) -> Attended | None:
    """What the first attention of a part is given; None where none is seen. The pass ends behind it."""
    with attended(part) as seen, ExitStack() as stack:

        def ends(_: nn.Module, __: Any, ___: Any) -> None:
            if seen:
                raise _PassEnded

        for each in part.modules():
            stack.enter_context(each.register_forward_hook(ends))
        with suppress(_PassEnded), torch.no_grad():
            run(0)
    return seen[0] if seen else None


def accepted(part: nn.Module, sizes: Sequence[SmallInput]) -> SmallInput:
    """The first of these inputs with which a part gets to its first attention.

    Raises:
        InvalidValue: It accepts none; the message is that of the part for the first one.
    """
    refused: list[Exception] = []
    for each in sizes:
        try:
            first_attention(part, lambda seed, each=each: part(**each.given(seed)))
        except Exception as error:  # noqa: BLE001 - a part may refuse an input in any way
            refused.append(error)
        else:
            return each
    if not refused:
        raise InvalidValue("its config does not say the size of an input", "")
    raise InvalidValue(reason(refused[0]), "") from refused[0]


def tokens_before(part: nn.Module, stop: nn.Module, run: Callable[[], Any], width: int) -> list[Tensor]:
    """All arrays of this width that modules of a part take or give until one is entered, as [tokens, width]."""
    found: list[Tensor] = []

    def keep(*arrays: Any) -> None:
        floats = (each for each in arrays if isinstance(each, Tensor) and each.is_floating_point() and each.ndim > 1)
        found.extend(each.double().cpu().reshape(-1, width).clone() for each in floats if each.shape[-1] == width)

    def enters(module: nn.Module, args: Any, kwargs: Any) -> None:
        keep(*args, *kwargs.values())
        if module is stop:
            raise _PassEnded

    def leaves(_: nn.Module, __: Any, output: Any) -> None:
        keep(*(output if isinstance(output, tuple) else (output,)))

    with ExitStack() as stack, torch.no_grad():
        for each in part.modules():
            if each is not part:
                stack.enter_context(each.register_forward_pre_hook(enters, with_kwargs=True))
                stack.enter_context(each.register_forward_hook(leaves))
        with suppress(_PassEnded):
            run()
    return found


@dataclass(frozen=True, eq=False)
class PatchTokens:
    """What the first attention of a tower gets.

    Attributes:
        order: Which of the given patches each token is, or `NO_PATCH`.
        alike: Whether equal patches are equal tokens there.
    """

    order: np.ndarray
    alike: bool


def patch_tokens(part: nn.Module, given: SmallInput, attention: nn.Module) -> PatchTokens | None:
    """The tokens of an image; None where they are not its patches.

    Images of two kinds of patches are embedded, one for each binary digit of the number of a patch, from 1 on: a token
    that differs from that of an image of equal patches is a patch with this digit.
    """
    assert given.image is not None
    assert given.of_patches is not None
    count, arguments = given.image.rows * given.image.columns, given.of_patches
    one, other = (given.image.noise(part, seed) for seed in (0, 1))
    numbers = torch.arange(1, count + 1, device=one.device)
    digits = [1 << digit for digit in range(count.bit_length())]
    entered: list[Tensor] = []

    def enters(_: nn.Module, args: Any, kwargs: Any) -> None:
        states = args[0] if args else next(iter(kwargs.values()))
        entered.append(states.detach().reshape(-1, states.shape[-1]).clone())
        raise _PassEnded

    hook = attention.register_forward_pre_hook(enters, with_kwargs=True)
    try:
        for digit in (0, *digits):
            patches = torch.where((numbers & digit > 0)[:, None], other, one)
            with suppress(_PassEnded), torch.no_grad():
                part(**arguments(patches))
    finally:
        hook.remove()
    plain, *others = entered
    changed = [(each != plain).any(dim=-1).cpu().numpy() for each in others]
    places = np.array(digits) @ np.array(changed) - 1
    order = np.where(places < 0, NO_PATCH, places)
    if sorted(order[order != NO_PATCH]) != list(range(count)):
        return None
    rows = plain[torch.from_numpy(order != NO_PATCH).to(plain.device)]
    alike = float((rows - rows[:1]).abs().max()) <= tolerance(plain.dtype) * float(rows.abs().max())
    return PatchTokens(order, alike)
