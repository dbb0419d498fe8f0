"""Measures the content of each dimension pair in a rotary model, and the loss when pairs are switched off."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.layouts import pair_channels
from clockhands.models.rotation_changes import (
    Rotating,
    Waves,
    before_rotation,
    of_waves,
    without_pairs,
)
from clockhands.probes._paired_differences import PairedDifference, difference
from clockhands.probes.pricing import losses
from clockhands.probes.results import Progress

GROUPS = 4


@dataclass(frozen=True, eq=False)
class PairShares:
    """What is in each pair.

    Attributes:
        shares: Share of each pair in the product of the lengths of query and key, [layers, heads, pairs].
        rates: Frequency of each pair, rad per token.
        groups: Pairs that are switched off together, from the fastest to the slowest.
        removed: What is lost where the pairs of a group add nothing to scores.
        unrotated: What is lost where they are kept and not rotated.
    """

    shares: np.ndarray
    rates: tuple[float, ...]
    groups: tuple[tuple[int, ...], ...]
    removed: tuple[PairedDifference, ...]
    unrotated: tuple[PairedDifference, ...]


def pair_shares(module: nn.Module, at: Rotating, windows: Tensor, progress: Progress, *, predicts: bool) -> PairShares:
    """Measure the pairs of a model in which all layers rotate the same way; losses only if it predicts tokens."""
    (waves,) = at.waves.values()
    pairs = len(waves.rates)
    groups = tuple(tuple(each.tolist()) for each in np.array_split(np.arange(pairs), min(GROUPS, pairs)))
    removed, unrotated = [], []
    sound = np.empty(0)
    with _products(at, pairs) as kept:
        if predicts:
            sound = losses(module, windows)
        else:
            with torch.no_grad():
                for window in windows:
                    module(window[None])
    shares = np.stack([np.mean(kept[layer], axis=0) for layer in range(len(at.attentions))])
    if predicts:
        for group in groups:
            progress(f"pairs {group[0]} to {group[-1]} off", 0.6)
            for found, change in ((removed, without_pairs(group)), (unrotated, of_waves(_without_rotation(group)))):
                with change(at):
                    found.append(difference(losses(module, windows), sound))
    return PairShares(shares, tuple(waves.rates.tolist()), groups, tuple(removed), tuple(unrotated))


def _without_rotation(group: tuple[int, ...]) -> Callable[[Waves], Waves]:
    def changed(waves: Waves) -> Waves:
        rates = waves.rates.clone()
        rates[list(group)] = 0
        return Waves(rates, waves.factor)

    return changed


@contextmanager
def _products(at: Rotating, pairs: int) -> Iterator[dict[int, list[np.ndarray]]]:
    """Shares of the pairs in |q| |k| of the windows that are run, for each layer: [heads, pairs] a window."""
    kept: dict[int, list[np.ndarray]] = {layer: [] for layer in range(len(at.attentions))}
    held: dict[int, Tensor] = {}
    channels = torch.from_numpy(pair_channels(pairs, at.layout))
    hooks: list[tuple[nn.Module, Any]] = []

    def lengths(y: Tensor, width: int) -> Tensor:
        heads = y[0].detach()
        heads = heads if heads.ndim == 3 else heads.unflatten(-1, (-1, width))
        return heads[..., channels].square().sum(-1).sqrt().mean(0)  # [heads, pairs]

    for layer, (attention, width) in enumerate(at.attentions):

        def query(_: nn.Module, __: Any, y: Tensor, layer: int = layer, width: int = width) -> None:
            held[layer] = lengths(y, width)

        def key(_: nn.Module, __: Any, y: Tensor, layer: int = layer, width: int = width) -> None:
            q, k = held[layer], lengths(y, width)
            product = q * k.repeat_interleave(len(q) // len(k), dim=0)
            kept[layer].append((product / product.sum(-1, keepdim=True)).double().numpy())

        hooks.append((before_rotation(attention, "q"), query))
        hooks.append((before_rotation(attention, "k"), key))
    with ExitStack() as stack:
        for module, hook in hooks:
            stack.enter_context(module.register_forward_hook(hook))
        yield kept
