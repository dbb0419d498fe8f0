"""What each fault of positions costs a trained model, in nats per token."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from clockhands.probes._changes import (
    Change,
    Rotating,
    adjacent,
    first_half,
    of_channels,
    of_positions,
    of_rates,
    queries_late,
    rotating,
    together,
)
from clockhands.probes._statistics import Difference, difference


@dataclass(frozen=True)
class Price:
    """What one fault costs.

    Attributes:
        fault: Its name.
        nats: The paired difference in nats per token.
    """

    fault: str
    nats: Difference

    def to_dict(self) -> dict[str, Any]:
        """One element of ``prices`` in the JSON of a probe."""
        found = self.nats
        return {
            "fault": self.fault, "nats": found.mean, "interval": [found.low, found.high], "visible": found.visible,
        }  # fmt: skip


def _another_base(rates: torch.Tensor) -> torch.Tensor:
    """Base 10,000; 500,000 where that is the model's own."""
    pairs = len(rates)
    base = float(rates[-1]) ** (-pairs / max(pairs - 1, 1))
    other = 500_000.0 if abs(base / 10_000.0 - 1) < 0.01 else 10_000.0
    return other ** (-torch.arange(pairs, dtype=torch.float64) / pairs)


def _slow_off(rates: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.arange(len(rates)) < len(rates) // 2, rates, 0.0)


def _half_width(rates: torch.Tensor) -> torch.Tensor:
    """The frequencies of a head of half the width in the first half of the pairs; the others do not rotate."""
    pairs = len(rates)
    half = torch.zeros_like(rates)
    half[: pairs // 2] = rates[::2][: pairs // 2]
    return half


FAULTS: Mapping[str, Change] = {
    "rotation-off": of_rates(torch.zeros_like),
    "layout-swapped": of_channels(adjacent),
    "another-base": of_rates(_another_base),
    "half-width": together(of_rates(_half_width), of_channels(first_half)),
    "slow-pairs-off": of_rates(_slow_off),
    "scaled-twice": of_rates(lambda rates: rates / 2),
    "positions-shifted": of_positions(lambda at: at + 1000),
    "queries-late": queries_late(1.0),
}
"""Every fault that a rotary model can be given, by name."""


def losses(model: nn.Module, windows: torch.Tensor) -> np.ndarray:
    """Nats of each token but the first, [windows, tokens - 1]; one window at a time, without gradients."""
    found = []
    with torch.no_grad():
        for window in windows:
            logits = model(input_ids=window[None], use_cache=False).logits[0, :-1].float()
            found.append(nn.functional.cross_entropy(logits, window[1:], reduction="none"))
    return torch.stack(found).double().numpy()


def prices(
    model: nn.Module, windows: torch.Tensor, faults: Mapping[str, Change] = FAULTS,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Price]:  # fmt: skip
    """The price of each fault, as soon as it is measured.

    Args:
        model: A causal language model of Transformers in which every layer rotates.
        windows: Token ids, [windows, tokens].
        faults: Name to change.
        progress: Called with the name of what is measured next.
    """
    at: Rotating = rotating(model)
    progress("sound")
    sound = losses(model, windows)
    for name, change in faults.items():
        progress(name)
        with change(at):
            yield Price(name, difference(losses(model, windows), sound))
