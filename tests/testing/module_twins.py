"""Modules as people write them, each right, and wrong where it is told to be: the fault is the only difference.

Plain PyTorch: nothing of the package is used to make them.
"""

import copy
import math

import numpy as np
import torch
from torch import nn

BASE, FACTOR = 500_000.0, 8.0


def rates(width, base, factor=1.0):
    """In float32 on the CPU whatever the default dtype and device are."""
    exponents = torch.arange(0, width, 2, dtype=torch.int64, device="cpu").to(torch.float32) / width
    return 1.0 / base**exponents / factor


def turned(x, phases, layout):
    """x [..., seq, width] turned by phases [seq, width / 2], in x's dtype."""
    cosine, sine = phases.cos().to(x.dtype), phases.sin().to(x.dtype)
    if layout == "halves":
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack((first * cosine - second * sine, second * cosine + first * sine), dim=-1).flatten(-2)


class Formula(nn.Module):
    """Holds numbers, not tensors, and makes the rates in each call."""

    def __init__(self, width=32, base=10_000.0, factor=1.0, layout="halves"):
        super().__init__()
        self.width, self.base, self.factor, self.layout = width, base, factor, layout

    def rates(self):
        return rates(self.width, self.base, self.factor)

    def forward(self, x, positions):
        return turned(x, positions.float()[..., None] * self.rates(), self.layout)


class Guarded(Formula):
    """Keeps its rates in a buffer that casts leave alone, and fills it anew after `to_empty`."""

    resets = True

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.register_buffer("inv_freq", super().rates(), persistent=False)

    def rates(self):
        return self.inv_freq

    def _apply(self, fn, recurse=True):
        kept = self.inv_freq
        super()._apply(fn, recurse)
        if not self.inv_freq.is_meta and not kept.is_meta:
            self.inv_freq = kept.to(self.inv_freq.device)
        return self

    def reset_parameters(self):
        if self.resets:
            self.inv_freq.copy_(rates(self.width, self.base, self.factor))


class NeverReset(Guarded):
    """D2 #1, #2."""

    resets = False


class ResetPlain(Guarded):
    """D2 #3: what fills it anew forgets the scaling."""

    def reset_parameters(self):
        self.inv_freq.copy_(rates(self.width, self.base))


class ResetZero(Guarded):
    """D2 #4."""

    def reset_parameters(self):
        self.inv_freq.zero_()


class CastAlong(Guarded):
    """D2 #7: the buffer is cast with the module."""

    def _apply(self, fn, recurse=True):
        return nn.Module._apply(self, fn, recurse)


class DefaultDtype(Guarded):
    """The buffer is made in whatever dtype is the default."""

    def __init__(self, width=32, base=10_000.0, factor=1.0, layout="halves"):
        super().__init__(width, base, factor, layout)
        steps = torch.linspace(0, 1 - 2 / width, width // 2)
        self.inv_freq = torch.exp(-math.log(base) * steps) / factor


class SharedTable(Formula):
    """D2 #13: a table of the class, by a key that may lack what it follows from."""

    key = ("width",)

    def __init__(self, *arguments, tables, **more):
        super().__init__(*arguments, **more)
        self.tables = tables

    def rates(self):
        key = tuple(getattr(self, name) for name in self.key)
        if key not in self.tables:
            self.tables[key] = super().rates()
        return self.tables[key][: self.width // 2]

    def __deepcopy__(self, memo):
        return type(self)(self.width, self.base, self.factor, self.layout, tables=self.tables)


class Known(Guarded):
    """D2 #14: one object for each key, given out again after it was moved away; it then leaves tokens as they are."""

    def forward(self, x, positions):
        return x if self.inv_freq.is_meta else super().forward(x, positions)


class Lost(Formula):
    """D2 #14: the table of the first one, which all later ones find empty: nothing turns."""

    def __init__(self, *arguments, models, **more):
        super().__init__(*arguments, **more)
        self.first = not models
        models.append(self.width)

    def forward(self, x, positions):
        return super().forward(x, positions) if self.first else x.clone()


class HalvedConfig(Formula):
    """D2 #15: each layer that is built writes to the config that all share."""

    writes = True

    def __init__(self, config, layout="halves"):
        super().__init__(config["width"], layout=layout)
        self.rotated = config["rotated"]
        if self.writes:
            config["rotated"] //= 2

    def forward(self, x, positions):
        phases = positions.float()[..., None] * rates(self.rotated, self.base)
        return torch.cat((turned(x[..., : self.rotated], phases, self.layout), x[..., self.rotated :]), dim=-1)


class HalvedCalls(Formula):
    """D2 #15: one object that all layers call."""

    writes = True

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.rotated = self.width

    def forward(self, x, positions):
        rotated = self.rotated
        if self.writes:
            self.rotated = max(rotated // 2, 2)
        phases = positions.float()[..., None] * rates(rotated, self.base)
        return torch.cat((turned(x[..., :rotated], phases, self.layout), x[..., rotated:]), dim=-1)


class Counted(Formula):
    """Each call goes on where the last one stopped."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.seen = 0

    def forward(self, x, positions):
        start, self.seen = self.seen, self.seen + len(positions)
        return super().forward(x, positions + start)


class DefaultWhenCopied(Formula):
    """A copy takes the default base."""

    def __deepcopy__(self, memo):
        return type(self)(self.width, factor=self.factor, layout=self.layout)


class BaseWrittenOff(Formula):
    """What is pickled lacks the base."""

    def __setstate__(self, state):
        super().__setstate__(state)
        self.base = 10_000.0


class GrowingTable(Formula):
    """A table of phases that is written with the weights and grows with what is asked."""

    persistent = True

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.register_buffer("phases", torch.empty(0, self.width // 2), persistent=self.persistent)

    def forward(self, x, positions):
        rows = int(positions.max()) + 1
        if len(self.phases) < rows or self.phases.is_meta or self.phases.dtype != torch.float32:
            self.phases = torch.arange(rows).float()[:, None] * self.rates()
        return turned(x, self.phases[positions], self.layout)

    def reset_parameters(self):
        self.phases = torch.empty(0, self.width // 2)


class CoarseWhenTrained(Formula):
    """Another path while it trains."""

    def forward(self, x, positions):
        used = self.rates().bfloat16().float() if self.training else self.rates()
        return turned(x, positions.float()[..., None] * used, self.layout)


class MatrixProduct(Formula):
    """Phases by a matrix product, which autocast makes in bfloat16."""

    def forward(self, x, positions):
        return turned(x, (positions.float()[..., None] @ self.rates()[None]).float(), self.layout)


class GuardedProduct(Formula):
    """The right twin."""

    def forward(self, x, positions):
        with torch.autocast("cpu", enabled=False):
            return turned(x, positions.float()[..., None] @ self.rates()[None], self.layout)


class OtherWhenCompiled(Formula):
    """Another path while it is traced."""

    def forward(self, x, positions):
        used = self.rates() / 2 if torch.compiler.is_compiling() else self.rates()
        return turned(x, positions.float()[..., None] * used, self.layout)


class FirstDtype(Formula):
    """A table of cosines and sines in the dtype of the first tokens."""

    key_has_dtype = False

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.kept = {}

    def forward(self, x, positions):
        key = x.dtype if self.key_has_dtype else None
        if key not in self.kept or len(self.kept[key]) <= int(positions.max()):
            phases = torch.arange(10_000).float()[:, None] * self.rates()
            self.kept[key] = torch.polar(torch.ones_like(phases), phases)
            if x.dtype == torch.bfloat16:
                self.kept[key] = torch.complex(phases.cos().to(x.dtype).float(), phases.sin().to(x.dtype).float())
        return turned(x, self.kept[key][positions].angle(), self.layout)


class Longest(Formula):
    """The base of the longest sequence seen (D2 #24)."""

    remembers = True

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.longest = 512

    def forward(self, x, positions):
        longest = max(self.longest, int(positions.max()) + 1)
        if self.remembers:
            self.longest = longest
        base = self.base * (longest / 512) ** (self.width / (self.width - 2))
        return turned(x, positions.float()[..., None] * rates(self.width, base), self.layout)


class FloatIds(Formula):
    """Numbers its rows by a buffer (D3 #3), of floats or of whole numbers."""

    dtype = torch.float32

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.register_buffer("position_ids", torch.arange(4096, dtype=self.dtype))

    def forward(self, x):
        return turned(x, self.position_ids[: x.shape[-2]].float()[:, None] * self.rates(), self.layout)


class Deaf(Formula):
    """Ignores what it is told."""

    def forward(self, x, positions):
        return super().forward(x, torch.arange(len(positions)))


class Waves(Guarded):
    """Gives cosines and sines, as Transformers does."""

    def forward(self, x, positions):
        phases = positions.float()[..., None] * self.rates()
        both = torch.cat((phases, phases), -1) if self.layout == "halves" else phases.repeat_interleave(2, -1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


class CastWaves(Waves):
    """The buffer is cast with the module."""

    def _apply(self, fn, recurse=True):
        return nn.Module._apply(self, fn, recurse)


class Slopes(nn.Module):
    """ALiBi of 12 heads: half of its slopes are no powers of two."""

    guarded = True

    def __init__(self, heads=12):
        super().__init__()
        near = 2 ** math.floor(math.log2(heads))
        first = [2 ** (-8 * (place + 1) / near) for place in range(near)]
        others = [2 ** (-4 * (place + 1) / near) for place in range(0, 2 * (heads - near), 2)]
        self.plain = [*first, *others]
        self.register_buffer("slopes", torch.tensor(self.plain, dtype=torch.float32), persistent=False)

    def reset_parameters(self):
        self.slopes.copy_(torch.tensor(self.plain))

    def forward(self, queries, keys):
        slopes = torch.tensor(self.plain, dtype=torch.float32) if self.guarded else self.slopes.float()
        return -slopes[:, None, None] * (queries[:, None] - keys[None]).abs()


class CastSlopes(Slopes):
    """flash-attention#845: the cast rounds the slopes."""

    guarded = False


class Sinusoids(nn.Module):
    """A table that is added, made when it is first needed."""

    def __init__(self, width=32, base=10_000.0):
        super().__init__()
        self.width, self.base = width, base

    def forward(self, x, positions):
        phases = positions.float()[..., None] * rates(self.width, self.base)
        return x + torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(-2).to(x.dtype)


class CastSinusoids(Sinusoids):
    """The rates are a buffer that is cast along."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.register_buffer("frequencies", rates(self.width, self.base))

    def forward(self, x, positions):
        phases = positions.float()[..., None] * self.frequencies.float()
        return x + torch.stack((phases.sin(), phases.cos()), dim=-1).flatten(-2).to(x.dtype)


class Rows(nn.Module):
    """A learned table: its numbers are the caller's affair."""

    def __init__(self, width=32, rows=64):
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, x, positions):
        return x + self.table(positions).to(x.dtype)


class Kept(Formula):
    """Its rates are a plain attribute, which no move takes along."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.kept = rates(self.width, self.base)

    def rates(self):
        return self.kept


class Elsewhere(Kept):
    """The right twin: they follow the tokens."""

    def forward(self, x, positions):
        return turned(x, positions.float()[..., None] * self.kept.to(x.device), self.layout)


class Nudged(Formula):
    """Off by a little while it trains."""

    def __init__(self, off, **more):
        super().__init__(**more)
        self.off = off

    def forward(self, x, positions):
        return super().forward(x, positions) + (self.off if self.training else 0)


class KeptPhases(Formula):
    """Keeps what the first call made, wherever that was."""

    outside = True

    def forward(self, x):
        if not hasattr(self, "made"):
            with torch.inference_mode(self.outside and torch.is_inference_mode_enabled()):
                self.made = (torch.arange(512.0)[:, None] * self.rates()).cos().repeat_interleave(2, dim=-1)
        return x * self.made[: len(x)]


class KeptNumbers(KeptPhases):
    """The right twin."""

    outside = False


def twin(name, kind, **fields):
    """A class that differs by these fields: the right one of a wrong one."""
    return type(name, (kind,), fields)


WholeKey = twin("WholeKey", SharedTable, key=("width", "base", "factor"))
ReadConfig = twin("ReadConfig", HalvedConfig, writes=False)
HiddenTable = twin("HiddenTable", GrowingTable, persistent=False)
EachDtype = twin("EachDtype", FirstDtype, key_has_dtype=True)
Recomputed = twin("Recomputed", Longest, remembers=False)
WholeIds = twin("WholeIds", FloatIds, dtype=torch.int64)


def deep(module):
    """A module two levels down."""
    return nn.ModuleDict({"attention": nn.ModuleDict({"rotary": copy.deepcopy(module)})})


def built(kind, layout="halves", **more):
    kind = globals()[kind] if isinstance(kind, str) else kind
    return kind(32, BASE, layout=layout, **more)


def garbage():
    numbers = torch.from_numpy(np.random.default_rng(1).standard_normal(16).astype(np.float32)) ** 9
    numbers[0] = 6.93e-18
    return numbers


# What the rates of a module are before anything is done, as they should be -> as they are.
HELD = {
    "zeros": torch.zeros_like,
    "garbage": lambda _: garbage(),
    "no numbers": lambda right: right * torch.nan,
    "rounded": lambda right: right.bfloat16().float(),
    "another base": lambda _: rates(32, 10_000.0),
    "no scaling": lambda right: right * FACTOR,
    "scaled twice": lambda right: right / FACTOR,
    "bytes of bfloat16": lambda right: right.view(torch.bfloat16)[: right.numel()].float(),
}


def holding(what, **more):
    """A right module whose buffer holds something else."""
    module = built(Guarded, **more)
    with torch.no_grad():
        module.inv_freq.copy_(HELD[what](module.inv_freq))
    return module
