"""PyTorch modules that apply a rotary code, each with the slip that somebody made, or without it.

Every class takes a spec, for its fields, and ``wrong``; ``forward(x, positions)`` turns x [..., seq, width]. A right
module keeps its rates in float32 whatever it is cast to, and makes them again when it is asked to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

import clockhands as ch
from clockhands.scaling import Llama3
from clockhands.specs import with_fields
from faults.rates import plain, rates_of

torch = pytest.importorskip("torch")

from faults.wrong_rotary_torch import BF16, apply, doubled  # noqa: E402


class Rope(torch.nn.Module):
    """The right one."""

    def __init__(self, spec, wrong=True):
        super().__init__()
        self.spec, self.wrong = spec, wrong
        self.register_buffer("inv_freq", torch.from_numpy(rates_of(spec)).clone(), persistent=False)

    def reset_parameters(self):
        """Made again where the buffer lies now."""
        self.inv_freq = torch.from_numpy(rates_of(self.spec)).to(self.inv_freq.device)

    def _apply(self, fn, recurse=True):
        """Casts go past the rates; moves do not."""
        kept = self.inv_freq
        super()._apply(fn, recurse)
        if self.inv_freq.dtype != kept.dtype and not kept.is_meta:
            self.inv_freq = kept.to(self.inv_freq.device)
        return self

    def turn(self, x, positions, rates):
        emb = doubled(positions.float()[..., None] * rates.float(), self.spec.layout)
        return apply(x, emb.cos(), emb.sin(), self.spec.layout)

    def forward(self, x, positions):
        return self.turn(x, positions, self.inv_freq)


class NeverInitialised(Rope):
    """Nothing makes the rates again after `to_empty` (torchtitan#4783)."""

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        if wrong:
            self.reset_parameters = None


class Garbage(Rope):
    """As it came out of a loader: whatever lay in that memory (unsloth#4112, FastPLMs#47)."""

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        if wrong:
            generator = np.random.default_rng(3)
            rates = (10.0 ** generator.uniform(-38, 5, len(self.inv_freq))).astype(np.float32)
            rates[0] = 6.93e-18
            self.inv_freq = torch.from_numpy(rates)


class RepairedPlain(Rope):
    """The repair writes the rates without their scaling (unsloth#6907)."""

    def reset_parameters(self):
        super().reset_parameters()
        if self.wrong:
            self.inv_freq = torch.from_numpy(plain(self.spec.base, self.spec.rotated))


class Zero(Rope):
    """All rates 0: cosine 1, sine 0 (chronos-forecasting#491)."""

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        if wrong:
            self.inv_freq = torch.zeros_like(self.inv_freq)


class SetTooLate(Rope):
    """The scaling came into the config after the module was built (Soup#793)."""

    def __init__(self, spec, wrong=True):
        super().__init__(with_fields(spec, scaling=None) if wrong else spec, wrong)


class CastAlong(Rope):
    """`.to(bfloat16)` rounds the rates (NeMo Automodel#2549)."""

    def _apply(self, fn, recurse=True):
        return torch.nn.Module._apply(self, fn, recurse) if self.wrong else super()._apply(fn, recurse)


class SharedTable(Rope):
    """One table for all models of a process, by the width (aprender#1607)."""

    tables: ClassVar[dict[Any, Any]] = {}

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        key = spec.rotated if wrong else spec
        self.inv_freq = self.tables.setdefault(key, self.inv_freq).clone()

    def reset_parameters(self):
        if not self.wrong:
            super().reset_parameters()
        else:
            self.inv_freq = self.tables[self.spec.rotated].clone()


class LostTable(Rope):
    """A table of the first model, which a second one finds empty: nothing turns (sglang#33575)."""

    models: ClassVar[list[Any]] = []

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        self.lost = wrong and bool(self.models)
        if wrong:
            self.models.append(spec)

    def forward(self, x, positions):
        return x.clone() if self.lost else super().forward(x, positions)


class Shrinks(Rope):
    """All layers share the object, and each halves its width (vllm#16904)."""

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        self.rotary_dim = spec.rotated

    def forward(self, x, positions):
        rates = self.inv_freq[: self.rotary_dim // 2]
        if self.wrong:
            self.rotary_dim = max(2, self.rotary_dim // 2)
        return self.turn(x, positions, rates)


class KeyedByItself(Rope):
    """A table outside of the module, found by its `id`: a copy has none."""

    tables: ClassVar[dict[Any, Any]] = {}

    def __init__(self, spec, wrong=True):
        super().__init__(spec, wrong)
        self.tables[id(self)] = self.inv_freq

    def forward(self, x, positions):
        if not self.wrong:
            return super().forward(x, positions)
        table = self.tables.get(id(self))
        return x.clone() if table is None else self.turn(x, positions, table)


class CompiledCoarse(Rope):
    """A path of its own for the compiler, in bfloat16."""

    def forward(self, x, positions):
        if self.wrong and torch.compiler.is_compiling():
            phases = (positions.to(BF16)[..., None] * self.inv_freq.to(BF16)).float()
            emb = doubled(phases, self.spec.layout)
            return apply(x, emb.cos(), emb.sin(), self.spec.layout)
        return super().forward(x, positions)


class CountsItself(Rope):
    """Positions are taken, and not looked at."""

    def forward(self, x, positions):
        return super().forward(x, torch.arange(x.shape[-2], device=x.device) if self.wrong else positions)


class OfAutocast(Rope):
    """Under autocast the product is made in its dtype: a matrix product of positions and rates."""

    def forward(self, x, positions):
        if not self.wrong:
            return super().forward(x, positions)
        freqs = positions.float()[..., :, None] @ self.inv_freq.float()[None, :]
        emb = doubled(freqs.float(), self.spec.layout)
        return apply(x, emb.cos(), emb.sin(), self.spec.layout)


@dataclass(frozen=True)
class ModuleRow:
    """One slip of a module; as `faults.rows.Row`."""

    case: str
    module: type
    codes: frozenset[str]
    spec: Any = None
    factory: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.case}-{self.module.__name__}"


def plain_spec(layout):
    return ch.Rotary(32, layout)


def scaled_spec(layout):
    return ch.Rotary(64, layout, base=5e5, scaling=Llama3(8.0, 1024))


def _row(case, module, *codes, spec=plain_spec, factory=False, **options):
    return ModuleRow(case, module, frozenset(codes), spec, factory, options)


ROWS = (
    _row("D2#1", NeverInitialised, "lost-by-to-empty", "buffer-uninitialised"),
    _row("D2#2", Garbage, "buffer-uninitialised", "rates-uninitialised"),
    _row("D2#3", RepairedPlain, "buffer-unscaled", "scaling-dropped", spec=scaled_spec),
    _row("D2#4", Zero, "buffer-zero", "no-rotation"),
    _row("D2#5", Garbage, "buffer-uninitialised", "rates-uninitialised", spec=scaled_spec),
    _row("D2#6", SetTooLate, "scaling-inert", "scaling-dropped", "buffer-unscaled", spec=scaled_spec),
    _row("D2#7", CastAlong, "cast-changes-numbers", "buffer-rounded"),
    _row("D2#13", SharedTable, "shared-table", "cache-without-base", factory=True),
    _row("D2#14", LostTable, "shared-table", "no-rotation", factory=True),
    _row("D2#15", Shrinks, "shared-object-mutated", "shrinks-each-call"),
    _row("copies", KeyedByItself, "lost-by-deepcopy"),
    _row("compilers", CompiledCoarse, "compile-changes-numbers", compile=True),
    _row("D2#19", CountsItself, "position-argument-ignored", "positions-ignored"),
    _row("autocast", OfAutocast, "cast-changes-numbers", "phases-rounded", "autocast-changes-numbers"),
)


def built(row, wrong):
    """spec -> module, with nothing left of other experiments in what the class shares."""
    for shared in ("tables", "models"):
        if hasattr(row.module, shared):
            getattr(row.module, shared).clear()
    return lambda spec: row.module(spec, wrong)
