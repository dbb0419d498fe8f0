"""Rotary suspects that keep state: caches without their key, tables in the first dtype, counters."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.faults.fault import Suspect
from clockhands.faults.turning import Apply, Call, Turning, rounded
from clockhands.rotary import Rotary


def stateful(spec: Rotary) -> Iterator[Suspect]:
    """Suspects whose answers depend on what was asked before."""
    for code, key in _KEYS.items():
        yield Suspect((code,), {}, lambda key=key: _shared(key))
    for dtype in ("bfloat16", "float16"):
        for kept, first in itertools.product((_kept_table, _kept_positions, _kept_phases), (False, True)):
            yield Suspect(
                ("cache-keeps-first-dtype",),
                {"dtype": dtype},
                lambda kept=kept, dtype=dtype, first=first: lambda it: kept(it, _Coarse(dtype, first)),
            )
        for rows in (512, 1024, 2048, 4096, 8192):
            yield Suspect(
                ("table-rebuilt-rounded",),
                {"rows": rows, "dtype": dtype},
                lambda rows=rows, dtype=dtype: lambda it: _rebuilt(it, rows, dtype),
            )
    yield Suspect(("cache-keeps-offset",), {}, lambda: _first_of_each_length)
    yield Suspect(("cache-keeps-offset",), {}, lambda: _longest_kept)
    yield Suspect(("no-rotation",), {"when": " in every model but the first"}, _First)
    yield Suspect(("first-sequence-only",), {"when": ""}, lambda: lambda it: _first_only(it, always=True))
    yield Suspect(
        ("first-sequence-only",),
        {"when": " where each has one token"},
        lambda: lambda it: _first_only(it, always=False),
    )
    for least, cut in itertools.product((0, 2), (False, True)):
        yield Suspect(("shrinks-each-call",), {}, lambda least=least, cut=cut: lambda it: _Shrinking(it, least, cut))
    if spec.scaling is not None and hasattr(spec.scaling, "original"):
        yield Suspect(("remembers-longest",), {}, lambda: _Longest)


def _shared(key: Callable[[Rotary], Any]) -> Callable[[Rotary], Apply]:
    """A process whose models share what the first one of a key made."""
    models: dict[Any, Turning] = {}

    def build(spec: Rotary) -> Apply:
        def apply(x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
            # As caches do, it is filled by the first call, not when the model is built.
            held = models.setdefault(key(spec), Turning(spec))
            rates = held.rates
            own = spec.rotated // 2
            if len(rates) != own:
                rates = np.resize(rates, own)
            return Turning(spec, rates=rates, factor=held.factor)(x, *arguments, **more)

        return apply

    return build


def _without(*names: str) -> Callable[[Rotary], Any]:
    fields = [name for name in Rotary.__dataclass_fields__ if name not in names]
    return lambda spec: tuple(getattr(spec, name) for name in fields)


_KEYS = {
    "cache-without-base": _without("spacing"),
    "cache-without-scaling": _without("scaling", "length"),
    "cache-without-width": _without("head_width", "rotated"),
}


class _Coarse:
    """Whether a cache was made for tokens of a coarse dtype: for any of them, or by the first call for all."""

    def __init__(self, dtype: str, first: bool) -> None:
        self.dtype, self.first, self.kept = dtype, first, None

    def __call__(self, call: Call) -> bool:
        if self.kept is None or not (self.first or self.kept):
            self.kept = call.dtype == self.dtype
        return self.kept


def _kept_table(spec: Rotary, coarse: _Coarse) -> Apply:
    def waves(cosine: np.ndarray, sine: np.ndarray, call: Call) -> tuple[np.ndarray, np.ndarray]:
        return (rounded(cosine, coarse.dtype), rounded(sine, coarse.dtype)) if coarse(call) else (cosine, sine)

    return Turning(spec, waves=waves)


def _kept_positions(spec: Rotary, coarse: _Coarse) -> Apply:
    return Turning(spec, places=lambda at, call: rounded(at, coarse.dtype) if coarse(call) else at)


def _kept_phases(spec: Rotary, coarse: _Coarse) -> Apply:
    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        if not coarse(call):
            return call.turning.phases(at)
        rates = rounded(call.turning.rates, coarse.dtype)
        return rounded(call.turning.phases(rounded(at, coarse.dtype), rates), coarse.dtype)

    return Turning(spec, phases=phases)


def _rebuilt(spec: Rotary, rows: int, dtype: str) -> Apply:
    """A table of so many rows, made again in a coarse dtype when a later position is asked for, and kept so."""
    late = False

    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        nonlocal late
        late = late or bool(at.size and at.max() >= rows)
        if not late:
            return call.turning.phases(at)
        return rounded(call.turning.phases(rounded(at, dtype), rounded(call.turning.rates, dtype)), dtype)

    return Turning(spec, phases=phases)


class _First:
    """A process whose first model is right, and whose others turn nothing."""

    def __init__(self) -> None:
        self.models = 0

    def __call__(self, spec: Rotary) -> Apply:
        self.models += 1
        return Turning(spec) if self.models == 1 else lambda x, *_: np.array(x, np.float64)


def _first_of_each_length(spec: Rotary) -> Apply:
    kept: dict[tuple[int, ...], np.ndarray] = {}
    return Turning(spec, places=lambda at, _: kept.setdefault(at.shape, at))


def _first_only(spec: Rotary, *, always: bool) -> Apply:
    def apply(x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        y = Turning(spec)(x, *arguments, **more)
        if always or x.shape[-2] == 1:
            y = np.concatenate([y[:1], x[1:]])
        return y

    return apply


def _longest_kept(spec: Rotary) -> Apply:
    """The rows of the longest call so far serve all that are no longer, wherever they start."""
    kept = np.zeros(0)

    def places(at: np.ndarray, _: Call) -> np.ndarray:
        nonlocal kept
        if at.ndim != 1:
            return at
        if len(at) > len(kept):
            kept = at
        return kept[: len(at)]

    return Turning(spec, places=places)


class _Shrinking:
    """Half as many channels turn with each call, by a ladder of their own or by the first rates of the right one."""

    def __init__(self, spec: Rotary, least: int, cut: bool) -> None:
        self.spec, self.rotated, self.least, self.cut = spec, spec.rotated, least, cut

    def __call__(self, x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        if self.spec.axes is not None or self.spec.blocks:
            raise InvalidValue("Its pairs are given one by one.", "Try another suspect.")
        rotated, self.rotated = self.rotated, max(self.rotated // 2 // 2 * 2, self.least)
        if rotated < 2:
            return np.array(x, np.float64)
        now = replace(self.spec, rotated=rotated, scaling=None, length=None) if self.cut else None
        if now is None:
            return Turning(replace(self.spec, rotated=rotated))(x, *arguments, **more)
        rates = np.array(self.spec.rates)[: rotated // 2]
        return Turning(now, rates=rates, factor=self.spec.attention_factor)(x, *arguments, **more)


class _Longest:
    """The rates of a scaling that depends on the length, at the longest length seen."""

    def __init__(self, spec: Rotary) -> None:
        self.spec, self.longest = spec, spec.length or 0

    def __call__(self, x: np.ndarray, positions: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        self.longest = max(self.longest, int(np.max(positions, initial=-1)) + 1)
        return Turning(replace(self.spec, length=max(self.longest, 1)))(x, positions, *arguments, **more)
