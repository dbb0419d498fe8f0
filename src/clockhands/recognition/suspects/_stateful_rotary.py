"""Rotary suspects with state between calls: caches with an incomplete key, the first call's dtype, counters."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.usual_values import FIRST_TABLES
from clockhands.errors import InvalidValue
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._rotary_code import RotaryObservations, StagedRotary, unrotated
from clockhands.recognition.suspects._stages import (
    COARSE,
    Apply,
    Call,
    coarse_caches,
    first_sequence_only,
    kept_by_length,
    phase_rounding,
    shared,
)

_CACHES = {
    "cache-without-base": ("spacing",),
    "cache-without-scaling": ("scaling", "length"),
    "cache-without-width": ("head_width", "rotated"),
}


def rotary_stateful(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """Suspects with state between calls: caches with an incomplete key, the first call's dtype, counters."""
    for code, without in _CACHES.items():
        yield FaultModel((code,), {}, lambda without=without: shared(without, StagedRotary, _with_held_rates))
    for dtype in COARSE:
        yield from coarse_caches(seen, dtype, ("waves", "places", "phases"), (False, True))
        for rows in FIRST_TABLES:

            def rebuilt(it: Rotary, rows: int = rows, dtype: str = dtype) -> Apply:
                return StagedRotary(it, phases=phase_rounding(dtype, "prf", _RebuiltTable(rows)))

            yield seen.built("table-rebuilt-rounded", {"rows": rows, "dtype": dtype}, rebuilt)
    yield seen.built("cache-keeps-offset", {}, lambda it: StagedRotary(it, places=kept_by_length()))
    yield seen.built("cache-keeps-offset", {}, _longest_kept)
    yield FaultModel(("no-rotation",), {"when": " in every model but the first"}, _first_model_rotates)
    yield from first_sequence_only(seen, lambda others: others)
    for least, cut in itertools.product((0, 2), (False, True)):
        yield seen.built("shrinks-each-call", {}, lambda it, least=least, cut=cut: _Shrinking(it, least, cut))
    if spec.scaling is not None and hasattr(spec.scaling, "original"):
        yield seen.built("remembers-longest", {}, _LongestSeen)


def _with_held_rates(held: StagedRotary, spec: Rotary) -> Apply:
    rates = held.rates if len(held.rates) == spec.rotated // 2 else np.resize(held.rates, spec.rotated // 2)
    return StagedRotary(spec, rates=rates, factor=held.factor)


class _RebuiltTable:
    """Whether a table of ``rows`` rows was rebuilt, in a low-precision dtype, for a later position, and kept."""

    def __init__(self, rows: int) -> None:
        self.rows, self.late = rows, False

    def __call__(self, call: Call) -> bool:
        self.late = self.late or bool((call.positions >= self.rows).any())
        return self.late


def _first_model_rotates() -> Callable[[Rotary], Apply]:
    """A process whose first model is correct and whose other models rotate nothing."""
    models = itertools.count()
    return lambda spec: unrotated if next(models) else StagedRotary(spec)


def _longest_kept(spec: Rotary) -> Apply:
    """The rows of the longest call so far are reused for calls of at most that length, with any start."""
    kept = np.zeros(0)

    def places(at: np.ndarray, _: Call) -> np.ndarray:
        nonlocal kept
        if at.ndim != 1:
            return at
        if len(at) > len(kept):
            kept = at
        return kept[: len(at)]

    return StagedRotary(spec, places=places)


class _Shrinking:
    """Each call halves the RoPE dimensions, with a new ladder or with the first rates of the correct one."""

    def __init__(self, spec: Rotary, least: int, cut: bool) -> None:
        self.spec, self.rotated, self.least, self.cut = spec, spec.rotated, least, cut

    def __call__(self, x: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        if self.spec.axes is not None or self.spec.blocks:
            raise InvalidValue("The spec gives its pairs one by one.", "Try another fault.")
        rotated, self.rotated = self.rotated, max(self.rotated // 2 // 2 * 2, self.least)
        if rotated < 2:
            return np.array(x, np.float64)
        now = replace(self.spec, rotated=rotated, scaling=None, length=None) if self.cut else None
        if now is None:
            return StagedRotary(replace(self.spec, rotated=rotated))(x, *arguments, **more)
        rates = np.array(self.spec.rates)[: rotated // 2]
        return StagedRotary(now, rates=rates, factor=self.spec.attention_factor)(x, *arguments, **more)


class _LongestSeen:
    """The rates of a scaling that depends on the length, at the longest length seen."""

    def __init__(self, spec: Rotary) -> None:
        self.spec, self.longest = spec, spec.length or 0

    def __call__(self, x: np.ndarray, positions: np.ndarray, *arguments: Any, **more: Any) -> np.ndarray:
        self.longest = max(self.longest, int(np.max(positions, initial=-1)) + 1)
        return StagedRotary(replace(self.spec, length=max(self.longest, 1)))(x, positions, *arguments, **more)
