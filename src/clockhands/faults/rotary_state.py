"""Rotary suspects that keep state: caches without their key, tables in the first dtype, counters."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.faults.fault import Suspect
from clockhands.faults.turning import Apply, Call, Turning, rounded
from clockhands.rotary import Rotary


def stateful(spec: Rotary) -> Iterator[Suspect]:
    """Suspects whose answers depend on what was asked before."""
    for code, key in _KEYS.items():
        yield Suspect((code,), {}, lambda key=key: _shared(key))
    for dtype in ("bfloat16", "float16"):
        for kept in (_kept_table, _kept_positions, _kept_phases):
            yield Suspect(
                ("cache-keeps-first-dtype",),
                {"dtype": dtype},
                lambda kept=kept, dtype=dtype: lambda it: kept(it, dtype),
            )
    yield Suspect(("cache-keeps-offset",), {}, lambda: _first_of_each_length)
    yield Suspect(("first-sequence-only",), {"when": ""}, lambda: lambda it: _first_only(it, always=True))
    yield Suspect(
        ("first-sequence-only",),
        {"when": " where each has one token"},
        lambda: lambda it: _first_only(it, always=False),
    )
    yield Suspect(("shrinks-each-call",), {}, lambda: _Shrinking)
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


def _kept_table(spec: Rotary, dtype: str) -> Apply:
    coarse = False

    def waves(cosine: np.ndarray, sine: np.ndarray, call: Call) -> tuple[np.ndarray, np.ndarray]:
        nonlocal coarse
        coarse = coarse or call.dtype == dtype
        return (rounded(cosine, dtype), rounded(sine, dtype)) if coarse else (cosine, sine)

    return Turning(spec, waves=waves)


def _kept_positions(spec: Rotary, dtype: str) -> Apply:
    coarse = False

    def places(at: np.ndarray, call: Call) -> np.ndarray:
        nonlocal coarse
        coarse = coarse or call.dtype == dtype
        return rounded(at, dtype) if coarse else at

    return Turning(spec, places=places)


def _kept_phases(spec: Rotary, dtype: str) -> Apply:
    coarse = False

    def phases(at: np.ndarray, call: Call) -> np.ndarray:
        nonlocal coarse
        coarse = coarse or call.dtype == dtype
        if not coarse:
            return call.turning.phases(at)
        return rounded(call.turning.phases(rounded(at, dtype), rounded(call.turning.rates, dtype)), dtype)

    return Turning(spec, phases=phases)


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


class _Shrinking:
    def __init__(self, spec: Rotary) -> None:
        self.spec, self.rotated = spec, spec.rotated

    def __call__(self, x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        if self.rotated < 2 or self.spec.axes is not None or self.spec.blocks:
            return np.array(x, np.float64)
        now = replace(self.spec, rotated=self.rotated)
        self.rotated = self.rotated // 2 // 2 * 2
        return Turning(now)(x, *arguments, **more)


class _Longest:
    """The rates of a scaling that depends on the length, at the longest length seen."""

    def __init__(self, spec: Rotary) -> None:
        self.spec, self.longest = spec, spec.length or 0

    def __call__(self, x: np.ndarray, positions: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        self.longest = max(self.longest, int(np.max(positions, initial=-1)) + 1)
        return Turning(replace(self.spec, length=max(self.longest, 1)))(x, positions, *arguments, **more)
