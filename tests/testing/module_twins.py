"""Modules as people write them, each right, and wrong where it is told to be: the fault is the only difference.

Plain PyTorch: nothing of the package is used to make them.
"""

import copy
import math
from typing import Any

import torch
from torch import nn


def rates(width: int, base: float, factor: float = 1.0) -> torch.Tensor:
    """In float32 on the CPU whatever the default dtype and device are."""
    exponents = torch.arange(0, width, 2, dtype=torch.int64, device="cpu").to(torch.float32) / width
    return 1.0 / base**exponents / factor


def turned(x: torch.Tensor, phases: torch.Tensor, layout: str) -> torch.Tensor:
    """x [..., seq, width] turned by phases [seq, width / 2], in x's dtype."""
    cosine, sine = phases.cos().to(x.dtype), phases.sin().to(x.dtype)
    if layout == "halves":
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack((first * cosine - second * sine, second * cosine + first * sine), dim=-1).flatten(-2)


class Formula(nn.Module):
    """Holds numbers, not tensors, and makes the rates in each call."""

    def __init__(self, width: int = 32, base: float = 10_000.0, factor: float = 1.0, layout: str = "halves") -> None:
        super().__init__()
        self.width, self.base, self.factor, self.layout = width, base, factor, layout

    def rates(self) -> torch.Tensor:
        return rates(self.width, self.base, self.factor)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return turned(x, positions.float()[..., None] * self.rates(), self.layout)


class Guarded(Formula):
    """Keeps its rates in a buffer that casts leave alone, and fills it anew after `to_empty`."""

    resets = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.register_buffer("inv_freq", super().rates(), persistent=False)

    def rates(self) -> torch.Tensor:
        return self.inv_freq

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        kept = self.inv_freq
        super()._apply(fn, recurse)
        if not self.inv_freq.is_meta and not kept.is_meta:
            self.inv_freq = kept.to(self.inv_freq.device)
        return self

    def reset_parameters(self) -> None:
        if self.resets:
            self.inv_freq.copy_(rates(self.width, self.base, self.factor))


class NeverReset(Guarded):
    """D2 #1, #2."""

    resets = False


class ResetPlain(Guarded):
    """D2 #3: what fills it anew forgets the scaling."""

    def reset_parameters(self) -> None:
        self.inv_freq.copy_(rates(self.width, self.base))


class ResetZero(Guarded):
    """D2 #4."""

    def reset_parameters(self) -> None:
        self.inv_freq.zero_()


class CastAlong(Guarded):
    """D2 #7: the buffer is cast with the module."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return nn.Module._apply(self, fn, recurse)


class DefaultDtype(Guarded):
    """The buffer is made in whatever dtype is the default."""

    def __init__(self, width: int = 32, base: float = 10_000.0, factor: float = 1.0, layout: str = "halves") -> None:
        super().__init__(width, base, factor, layout)
        steps = torch.linspace(0, 1 - 2 / width, width // 2)
        self.inv_freq = torch.exp(-math.log(base) * steps) / factor


class SharedTable(Formula):
    """D2 #13: a table of the class, by a key that may lack what it follows from."""

    key: tuple[str, ...] = ("width",)

    def __init__(self, *arguments: Any, tables: dict[Any, torch.Tensor], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.tables = tables

    def rates(self) -> torch.Tensor:
        key = tuple(getattr(self, name) for name in self.key)
        if key not in self.tables:
            self.tables[key] = super().rates()
        return self.tables[key][: self.width // 2]

    def __deepcopy__(self, memo: Any) -> "SharedTable":
        return type(self)(self.width, self.base, self.factor, self.layout, tables=self.tables)


class WholeKey(SharedTable):
    """The right twin."""

    key = ("width", "base", "factor")


class Known(Guarded):
    """D2 #14: one object for each key, given out again after it was moved away; it then leaves tokens as they are."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return x if self.inv_freq.is_meta else super().forward(x, positions)


class HalvedConfig(Formula):
    """D2 #15: each layer that is built writes to the config that all share."""

    writes = True

    def __init__(self, config: dict[str, Any], layout: str = "halves") -> None:
        super().__init__(config["width"], layout=layout)
        self.rotated = config["rotated"]
        if self.writes:
            config["rotated"] //= 2

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        phases = positions.float()[..., None] * rates(self.rotated, self.base)
        return torch.cat((turned(x[..., : self.rotated], phases, self.layout), x[..., self.rotated :]), dim=-1)


class ReadConfig(HalvedConfig):
    """The right twin."""

    writes = False


class HalvedCalls(Formula):
    """D2 #15: one object that all layers call."""

    writes = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.rotated = self.width

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rotated = self.rotated
        if self.writes:
            self.rotated = max(rotated // 2, 2)
        phases = positions.float()[..., None] * rates(rotated, self.base)
        return torch.cat((turned(x[..., :rotated], phases, self.layout), x[..., rotated:]), dim=-1)


class Counted(Formula):
    """Each call goes on where the last one stopped."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.seen = 0

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        start, self.seen = self.seen, self.seen + len(positions)
        return super().forward(x, positions + start)


class DefaultWhenCopied(Formula):
    """A copy takes the default base."""

    def __deepcopy__(self, memo: Any) -> "DefaultWhenCopied":
        return type(self)(self.width, factor=self.factor, layout=self.layout)


class BaseWrittenOff(Formula):
    """What is pickled lacks the base."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.base = 10_000.0


class GrowingTable(Formula):
    """A table of phases that is written with the weights and grows with what is asked."""

    persistent = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.register_buffer("phases", torch.empty(0, self.width // 2), persistent=self.persistent)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows = int(positions.max()) + 1
        if len(self.phases) < rows or self.phases.is_meta or self.phases.dtype != torch.float32:
            self.phases = torch.arange(rows).float()[:, None] * self.rates()
        return turned(x, self.phases[positions], self.layout)

    def reset_parameters(self) -> None:
        self.phases = torch.empty(0, self.width // 2)


class HiddenTable(GrowingTable):
    """The right twin."""

    persistent = False


class CoarseWhenTrained(Formula):
    """Another path while it trains."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        used = self.rates().bfloat16().float() if self.training else self.rates()
        return turned(x, positions.float()[..., None] * used, self.layout)


class MatrixProduct(Formula):
    """Phases by a matrix product, which autocast makes in bfloat16."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return turned(x, (positions.float()[..., None] @ self.rates()[None]).float(), self.layout)


class GuardedProduct(Formula):
    """The right twin."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return turned(x, positions.float()[..., None] @ self.rates()[None], self.layout)


class OtherWhenCompiled(Formula):
    """Another path while it is traced."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        used = self.rates() / 2 if torch.compiler.is_compiling() else self.rates()
        return turned(x, positions.float()[..., None] * used, self.layout)


class FirstDtype(Formula):
    """A table of cosines and sines in the dtype of the first tokens."""

    key_has_dtype = False

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.kept: dict[Any, torch.Tensor] = {}

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        key = x.dtype if self.key_has_dtype else None
        if key not in self.kept or len(self.kept[key]) <= int(positions.max()):
            phases = torch.arange(10_000).float()[:, None] * self.rates()
            self.kept[key] = torch.polar(torch.ones_like(phases), phases)
            if x.dtype == torch.bfloat16:
                self.kept[key] = torch.complex(phases.cos().to(x.dtype).float(), phases.sin().to(x.dtype).float())
        return turned(x, self.kept[key][positions].angle(), self.layout)


class EachDtype(FirstDtype):
    """The right twin."""

    key_has_dtype = True


class Longest(Formula):
    """The base of the longest sequence seen (D2 #24)."""

    remembers = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.longest = 512

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        longest = max(self.longest, int(positions.max()) + 1)
        if self.remembers:
            self.longest = longest
        base = self.base * (longest / 512) ** (self.width / (self.width - 2))
        return turned(x, positions.float()[..., None] * rates(self.width, base), self.layout)


class Recomputed(Longest):
    """The right twin."""

    remembers = False


class FloatIds(Formula):
    """Numbers its rows by a buffer (D3 #3), of floats or of whole numbers."""

    dtype = torch.float32

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.register_buffer("position_ids", torch.arange(4096, dtype=self.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return turned(x, self.position_ids[: x.shape[-2]].float()[:, None] * self.rates(), self.layout)


class WholeIds(FloatIds):
    """The right twin."""

    dtype = torch.int64


class Deaf(Formula):
    """Ignores what it is told."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return super().forward(x, torch.arange(len(positions)))


class Waves(Guarded):
    """Gives cosines and sines, as Transformers does."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        phases = positions.float()[..., None] * self.rates()
        both = torch.cat((phases, phases), -1) if self.layout == "halves" else phases.repeat_interleave(2, -1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


class CastWaves(Waves):
    """The buffer is cast with the module."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return nn.Module._apply(self, fn, recurse)


class Slopes(nn.Module):
    """ALiBi of 12 heads: half of its slopes are no powers of two."""

    guarded = True

    def __init__(self, heads: int = 12) -> None:
        super().__init__()
        near = 2 ** math.floor(math.log2(heads))
        first = [2 ** (-8 * (place + 1) / near) for place in range(near)]
        others = [2 ** (-4 * (place + 1) / near) for place in range(0, 2 * (heads - near), 2)]
        self.plain = [*first, *others]
        self.register_buffer("slopes", torch.tensor(self.plain, dtype=torch.float32), persistent=False)

    def reset_parameters(self) -> None:
        self.slopes.copy_(torch.tensor(self.plain))

    def forward(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        slopes = torch.tensor(self.plain, dtype=torch.float32) if self.guarded else self.slopes.float()
        return -slopes[:, None, None] * (queries[:, None] - keys[None]).abs()


class CastSlopes(Slopes):
    """flash-attention#845: the cast rounds the slopes."""

    guarded = False


class Sinusoids(nn.Module):
    """A table that is added, made when it is first needed."""

    def __init__(self, width: int = 32, base: float = 10_000.0) -> None:
        super().__init__()
        self.width, self.base = width, base

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        phases = positions.float()[..., None] * rates(self.width, self.base)
        return x + torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(-2).to(x.dtype)


class CastSinusoids(Sinusoids):
    """The rates are a buffer that is cast along."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.register_buffer("frequencies", rates(self.width, self.base))

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        phases = positions.float()[..., None] * self.frequencies.float()
        return x + torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(-2).to(x.dtype)


class Rows(nn.Module):
    """A learned table: its numbers are the caller's affair."""

    def __init__(self, width: int = 32, rows: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return x + self.table(positions).to(x.dtype)


def deep(module: nn.Module) -> nn.Module:
    """A module two levels down."""
    return nn.ModuleDict({"attention": nn.ModuleDict({"rotary": copy.deepcopy(module)})})
