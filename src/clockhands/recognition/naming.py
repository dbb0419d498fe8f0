"""Which presets are the code that was found, by what they say and not by their numbers."""

import dataclasses

import numpy as np

from clockhands.additive import Sinusoidal
from clockhands.errors import ClockhandsError
from clockhands.presets import presets
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic

# Of several names of one code the plain convention comes first.
_FIRST = ("roformer", "llama2", "vaswani2017", "tensor2tensor")


def rotary_names(spec: Rotary, bounds: np.ndarray | None = None) -> tuple[str, ...]:
    """Presets that turn heads as this spec does: the plain conventions first, then those of its width.

    Two specs are the same where all fields but the ladder's own are, and all rates and the attention factor are, so a
    base that was raised and a base that is higher have one name. ``bounds`` are what the rates are known to, rad/token.
    """
    slack = 1e-9 * np.array(spec.rates) if bounds is None else bounds
    same, resized = [], []
    for preset in presets():
        other = preset.spec
        if not isinstance(other, Rotary) or _kind(other) != _kind(spec):
            continue
        spec = spec if other.length is None else dataclasses.replace(spec, length=other.length)
        if (other.head_width, other.rotated) == (spec.head_width, spec.rotated):
            if _same_ladder(other, spec, slack):
                same.append(preset.name)
        elif other.rotated * spec.head_width == spec.rotated * other.head_width:
            try:
                moved = dataclasses.replace(other, head_width=spec.head_width, rotated=spec.rotated)
            except ClockhandsError:  # its numbers are for one width
                continue
            if _same_ladder(moved, spec, slack):
                resized.append(preset.name)
    return tuple(sorted([*same, *resized], key=lambda name: (name not in _FIRST, name not in same, name)))


def sinusoidal_names(spec: Sinusoidal, bounds: np.ndarray) -> tuple[str, ...]:
    """Presets that are this code at its width, those first that say no more: no zero rows, no other first position."""
    found = []
    for preset in presets():
        other = preset.spec
        if not isinstance(other, Sinusoidal) or other.scaled or other.standardised is not None:
            continue
        if (other.layout, other.order, other.scale) != (spec.layout, spec.order, spec.scale):
            continue
        try:
            moved = dataclasses.replace(other, width=spec.width)
        except ClockhandsError:  # its numbers are for one width
            continue
        if len(moved.rates) == len(spec.rates) and (np.abs(np.array(moved.rates) - spec.rates) <= bounds).all():
            plain = preset.name in _FIRST
            found.append((bool(other.zero_rows), other.first, not plain, other.odd != "refuse", preset.name))
    return tuple(name for *_, name in sorted(found))


def _kind(spec: Rotary) -> tuple[object, ...]:
    by_length = isinstance(spec.scaling, Dynamic)
    return spec.layout, spec.part, spec.axes, spec.blocks, spec.direction, spec.reordered, spec.xpos, by_length


def _same_ladder(one: Rotary, other: Rotary, slack: np.ndarray) -> bool:
    return bool(
        (np.abs(np.array(one.rates) - other.rates) <= slack).all()
        and abs(one.attention_factor - other.attention_factor) <= 1e-6 * one.attention_factor
    )
