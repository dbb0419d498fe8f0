"""Models and modules of PyTorch that the tests hold position codes in; it imports PyTorch, so they import it late."""

from collections.abc import Callable
from typing import Any

import torch

import clockhands as ch
from clockhands import torch as held
from clockhands.encodings import biases


class AnyCode(torch.nn.Module):
    """Two layers of attention, written once for all codes: no branch, no kind of code is named."""

    def __init__(self, spec: Any, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.code = held.module(spec)
        self.heads = heads

    def forward(self, x: Any) -> Any:
        x = self.code.embed(x)
        prepared = self.code.prepare(x.shape[-2], like=x)
        for index, block in enumerate(self.blocks):
            queries, keys, values = block(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            ready = prepared.layer(index)
            queries, keys = ready.turn(queries, keys)
            out = ready.attend(queries, keys, values)
            x = x + out.transpose(1, 2).flatten(-2)
        return x


class Usual(torch.nn.Module):
    """A rotary module as it is often written: a buffer of rates, a table kept by length, positions in x's dtype."""

    tables: dict[Any, Any] = {}  # noqa: RUF012 - shared between all modules: that is the fault

    def __init__(self, base: float = 10_000.0) -> None:
        super().__init__()
        self.register_buffer("inv_freq", base ** (-torch.arange(0, 16, 2).float() / 16), persistent=False)

    def forward(self, x: Any) -> Any:
        seq = x.shape[-2]
        if seq not in self.tables:
            phases = torch.outer(torch.arange(seq, dtype=x.dtype), self.inv_freq.to(x.dtype))
            self.tables[seq] = phases.cos(), phases.sin()
        cos, sin = (part.to(x.dtype) for part in self.tables[seq])
        first, second = x[..., :8], x[..., 8:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Several(torch.nn.Module):
    """Modules that are called with the same arguments: an export of one costs as much as one of all."""

    def __init__(self, modules: list[Any], call: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)
        self.call = call or (lambda part, *given: part(*given))

    def forward(self, *given: Any) -> Any:
        return tuple(self.call(part, *given) for part in self.parts)


class TurnedKeys(held.Rotary):
    """xPos turns queries and keys in different ways."""

    def forward(self, x: Any, positions: Any = None) -> Any:
        return super().forward(x, positions, role="key")


class Holding(torch.nn.Module):
    """A model with one position code."""

    def __init__(self, code: Any) -> None:
        super().__init__()
        self.position = code

    def forward(self, x: Any) -> Any:
        return self.position(x)


class Positions(torch.nn.Module):
    """A model with a code of each kind, for heads of 64 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary = held.Rotary(ch.Rotary(head_width=64))
        self.meta = held.Rotary(ch.Rotary(head_width=64, layout="interleaved"))
        self.sinusoid = held.Additive(ch.Sinusoidal(64))
        self.learned = held.Additive(ch.Learned(width=8, rows=16))
        self.alibi = held.Bias(ch.Alibi(heads=6))
        self.window = held.Bias(biases.Window(2, 3, 2))
        self.proj = torch.nn.Linear(2, 2)
