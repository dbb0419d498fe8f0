"""Tests whether a model uses positions, and in which layers, from its outputs and not from its config.

Attention without positions does not depend on the order of the tokens that a query attends to. So the hidden states
that go into one layer are permuted, except the last, and the last token's output is compared. This works with and
without a causal mask. It must be done layer by layer: with a causal mask, outputs of two or more layers depend on the
order even without positions (Haviv et al. 2022, arXiv:2203.16634), because each token attends to those before it.

Codes that are added to tokens are seen before the first layer: in a model without positions, one repeated token has the
same hidden state at every position.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.models.layer_stacks import (
    LayerStack,
    Run,
    begun_at,
    first_tensor,
    hidden_states,
    kept_outputs,
    stacks,
    with_hidden_states,
)

TOKENS, PERMUTATIONS = 24, 3
ROUNDING = 1e-5
"""Share of a hidden state up to which a difference is rounding: 84 times the spacing of float32 at 1."""


@dataclass(frozen=True)
class PositionsUsed:
    """How a model depends on the order of its tokens.

    Attributes:
        added: Largest difference of the hidden states of one repeated token before the first layer, as a share.
        layers: For each layer, the largest change of the last token's output when earlier inputs are permuted.
        paths: The path of each layer.
        whole: The same for the outputs of the whole model; None with a causal mask, and with encoder and decoder.
        causal: Whether outputs depend on earlier tokens alone.
    """

    added: float
    layers: tuple[float, ...]
    paths: tuple[str, ...]
    whole: float | None
    causal: bool

    @property
    def in_layers(self) -> tuple[str, ...]:
        """The layers whose attention depends on the order."""
        return tuple(path for path, share in zip(self.paths, self.layers, strict=True) if share > ROUNDING)

    @property
    def uses(self) -> bool | None:
        """Whether there is a position code; None if no layers can be found."""
        if self.added > ROUNDING or self.in_layers or (self.whole or 0.0) > ROUNDING:
            return True
        return False if self.layers or self.whole is not None else None


def positions_used(model: nn.Module, ids: Tensor, run: Run | None = None) -> PositionsUsed:
    """Test whether a model has a position code.

    Args:
        model: In evaluation mode.
        ids: Token ids, [tokens]; the first 24 are used.
        run: Runs the model on ids [1, tokens] and gives its outputs [1, tokens, ...]; None for a model of Transformers.
    """
    run = run or (lambda given: model(input_ids=given, use_cache=False))
    given = ids[:TOKENS][None]
    with torch.no_grad():
        found = stacks(model, run, given)
        layers = _permuted(found, run, given)
        causal, whole = _whole(run, given)
        if len(found) > 1:  # the mask of a decoder is causal although an encoder sees every token
            whole = None
        return PositionsUsed(
            max((_added(stack, run, given) for stack in found), default=0.0),
            tuple(layers),
            tuple(f"{stack.path}.{number}" for stack in found for number in range(len(stack.layers))),
            whole,
            causal,
        )


def outputs_of(result: Any) -> Tensor:
    """Logits, else the last hidden states, from the output of a model."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(result, name, None), Tensor):
            return getattr(result, name)
    return first_tensor(result)


def share(changed: Tensor, sound: Tensor) -> float:
    """The largest change of a row as a share of its norm."""
    return float(((changed - sound).norm(dim=-1) / sound.norm(dim=-1).clamp_min(1e-30)).max())


class _Stop(Exception):
    """Ends a run after the layer of interest."""


def _permuted(found: tuple[LayerStack, ...], run: Run, ids: Tensor) -> list[float]:
    """For each layer the change of the last token's output; earlier layers run once, later ones not at all."""
    with ExitStack() as hooks:
        kept = [hooks.enter_context(kept_outputs(stack)) for stack in found]
        run(ids)
    shares = []
    for place, stack in enumerate(found):
        for number, layer in enumerate(stack.layers):
            with ExitStack() as skipped:
                for before, outputs in zip(found[:place], kept, strict=False):
                    skipped.enter_context(begun_at(before, len(before.layers), outputs))
                skipped.enter_context(begun_at(stack, number, kept[place]))
                sound = first_tensor(kept[place][number])[0, -1]
                shares.append(max(share(each, sound) for each in _of_layer(layer, run, ids)))
    return shares


def _of_layer(layer: nn.Module, run: Run, ids: Tensor) -> Iterator[Tensor]:
    """The last token's output of a layer for each permutation of the earlier tokens that go into it."""
    for number in range(PERMUTATIONS):
        order, last = _order(ids.shape[1] - 1, number, fixed=1), []

        def before(_: nn.Module, args: Any, kwargs: Any, order: Tensor = order) -> Any:
            states = hidden_states(args, kwargs)
            return None if states is None else with_hidden_states(args, kwargs, states[:, order])

        def after(_: nn.Module, __: Any, output: Any, last: list[Tensor] = last) -> None:
            last.append(first_tensor(output)[0, -1].clone())
            raise _Stop

        hooks = layer.register_forward_pre_hook(before, with_kwargs=True), layer.register_forward_hook(after)
        with hooks[0], hooks[1], suppress(_Stop):
            run(ids)
        yield last[0]


def _order(tokens: int, seed: int, fixed: int) -> Tensor:
    """A permutation of tokens; the last `fixed` tokens keep their places."""
    drawn = torch.randperm(tokens, generator=torch.Generator().manual_seed(seed))
    return torch.cat((drawn, torch.arange(tokens, tokens + fixed)))


def _added(stack: LayerStack, run: Run, ids: Tensor) -> float:
    seen: list[Tensor] = []

    def before(_: nn.Module, args: Any, kwargs: Any) -> None:
        states = hidden_states(args, kwargs)
        if states is not None:
            seen.append(states[0].clone())

    with stack.layers[0].register_forward_pre_hook(before, with_kwargs=True):
        run(ids[:, -1:].expand_as(ids).contiguous())
    return share(seen[0], seen[0][:1])


def _whole(run: Run, ids: Tensor) -> tuple[bool, float | None]:
    sound = outputs_of(run(ids))[0]
    if len(sound) != ids.shape[1]:
        return False, None
    other = ids.clone()
    other[0, -1] = ids[0, 0] if ids[0, 0] != ids[0, -1] else (ids[0, -1] + 1) % (int(ids.max()) + 1)
    if share(outputs_of(run(other))[0][:-1], sound[:-1]) <= ROUNDING:
        return True, None
    order = _order(ids.shape[1], 1, fixed=0)
    return False, share(outputs_of(run(ids[:, order]))[0], sound[order])
