"""Measures how far back attention heads look, and finds heads that look a fixed number of tokens back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clockhands.encodings.additive import AdditiveCode, table
from clockhands.encodings.heads import relative_head
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.models.attention_inputs import Attended, attended

REACH = 16
"""Distances that are looked at, before and after the query."""

FIXED = 0.5
"""A head looks a fixed number of tokens back where at least this share of its attention is at one distance."""


@dataclass
class HeadsSeen:
    """Attention of all heads of all layers, means over windows.

    Attributes:
        windows: Windows that were seen.
        at: Mean attention at each distance from -REACH (after the query) to REACH, [layers, heads, 2 REACH + 1].
        distance: Mean distance from the query to the key, tokens, [layers, heads].
        first: Mean attention to the first token, [layers, heads].
        example: Attention of layer 0 in the first window, [heads, length, length].
    """

    windows: int
    at: np.ndarray
    distance: np.ndarray
    first: np.ndarray
    example: Tensor | None = None


class Watching:
    """Collects the attention of the windows that run while it is active.

    Args:
        products: The products of queries and keys as they are seen; None where modules return their attention.
    """

    def __init__(self, products: list[Attended] | None) -> None:
        self.windows: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = []
        self.example: Tensor | None = None
        self._seen: list[Tensor] = []
        self._products = products

    def begin(self) -> None:
        """A new window."""
        self._take_products()
        self.windows.append([])
        self._seen = []

    def _take_products(self) -> None:
        for each in self._products or ():
            if each.scores is not None:
                self.take((None, each.scores.softmax(-1)))
        if self._products is not None:
            self._products.clear()

    def take(self, output: Any) -> None:
        """Keep the output of a module if it has attention probabilities, once."""
        if not isinstance(output, tuple) or len(output) < 2 or not isinstance(output[1], Tensor):
            return
        shares = output[1]
        if shares.ndim != 4 or shares.shape[-1] != shares.shape[-2] or any(shares is each for each in self._seen):
            return
        self._seen = [shares]  # a module around the attention hands on the same tensor
        own = shares[0].detach()
        if self.example is None:
            self.example = own
        self.windows[-1].append(_summary(own))

    def found(self) -> HeadsSeen | None:
        """The means over windows; None if no attention was seen."""
        self._take_products()
        if not self.windows or not self.windows[0]:
            return None
        at, distance, first = (
            np.mean([[layer[part] for layer in window] for window in self.windows], axis=0) for part in range(3)
        )
        return HeadsSeen(len(self.windows), at, distance, first, self.example)


def _summary(shares: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attention by distance, the mean distance, and the share of the first token, of queries from REACH on."""
    length = shares.shape[-1]
    rows = torch.arange(length)
    away = (rows[:, None] - rows).abs().to(shares.dtype)
    at = [
        torch.diagonal(shares, -k, dim1=1, dim2=2)[:, max(0, REACH - max(k, 0)) :].mean(1)
        for k in range(-REACH, REACH + 1)
    ]
    asked = shares[:, REACH:]
    distance = (asked * away[REACH:]).sum(-1).mean(1)
    return torch.stack(at, 1).double().numpy(), distance.double().numpy(), asked[..., 0].mean(1).double().numpy()


@contextmanager
def watching(module: nn.Module) -> Iterator[Watching]:
    """Watch the attention of a model; one of Transformers returns it, with its eager implementation on meanwhile."""
    config: Any = getattr(module, "config", None)
    before = getattr(config, "_attn_implementation", None)
    handles = []
    switch: Any = getattr(module, "set_attn_implementation", None)
    if switch is None:
        with attended(module, scores=True) as seen:
            yield Watching(seen)
        return
    found = Watching(None)
    switch("eager")
    try:
        handles += [each.register_forward_hook(lambda _, __, y: found.take(y)) for each in module.modules()]
        yield found
    finally:
        for handle in handles:
            handle.remove()
        if before is not None:
            switch(before)


@dataclass(frozen=True)
class FixedHead:
    """A head that looks a fixed number of tokens back.

    Attributes:
        layer, head: Which.
        back: Tokens back; below 0 ahead.
        share: Mean attention at that distance.
        beside: Mean attention one token nearer and one farther.
        without: Mean attention at that distance when all tokens have position 0.
        temperature: At which the head built by hand has the same share; None where it has none.
        beside_by_hand: Its attention one token nearer and one farther at that temperature.
    """

    layer: int
    head: int
    back: int
    share: float
    beside: float
    without: float
    temperature: float | None
    beside_by_hand: float | None


def fixed_heads(seen: HeadsSeen, frozen: HeadsSeen, spec: Any, length: int) -> list[FixedHead]:
    """The heads with at least `FIXED` of their attention at one distance other than 0, the largest share first.

    Args:
        seen: The heads as they are.
        frozen: The same with all tokens at position 0: what remains is not caused by positions.
        spec: The encoding of which a head is built by hand, a Rotary or a Sinusoidal; None for none.
        length: Tokens of a window.
    """
    found = []
    at = seen.at.copy()
    at[..., REACH] = 0
    for layer, head in np.argwhere(at.max(-1) >= FIXED):
        place = int(at[layer, head].argmax())
        back, share = place - REACH, float(at[layer, head, place])
        around = [each for each in (place - 1, place + 1) if 0 <= each < at.shape[-1]]
        beside = float(seen.at[layer, head, around].sum())
        by_hand = None if spec is None or back < 0 else temperature_of(spec, back, share, length)
        found.append(
            FixedHead(
                int(layer),
                int(head),
                back,
                share,
                beside,
                float(frozen.at[layer, head, place]),
                None if by_hand is None else by_hand[0],
                None if by_hand is None else by_hand[1],
            )
        )
    return sorted(found, key=lambda it: -it.share)


def temperature_of(spec: Any, back: int, share: float, length: int) -> tuple[float, float] | None:
    """The temperature at which the head built by hand gives the last token's share to the token ``back`` before.

    Returns:
        The temperature, and the share of the tokens on both sides of that one. None where no temperature gives the
        share.
    """
    head = relative_head(spec, back)
    if isinstance(spec, Rotary):
        tokens, spec = np.tile(np.asarray(head.constant), (length, 1)), spec.at_original
        scores = np.asarray(rotate(tokens @ head.query.T, spec))[-1] @ np.asarray(rotate(tokens @ head.key.T, spec)).T
    else:
        assert isinstance(spec, AdditiveCode)
        rows = table(spec, length, "float64")
        scores = rows[-1] @ head.query.T @ (rows @ head.key.T).T
    right = length - 1 - back

    def at(temperature: float) -> np.ndarray:
        e = np.exp((scores - scores.max()) / temperature)
        return e / e.sum()

    low, high = 1e-3, 1e3
    if not at(high)[right] < share < at(low)[right]:
        return None
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if at(middle)[right] > share else (low, middle)
    shares = at(low)
    return low, float(shares[right - 1] + (shares[right + 1] if back else 0.0))
