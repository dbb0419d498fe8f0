"""The position codes that a module without a config shows by what it holds and does."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.configs.resolve import code_of
from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.biases import Alibi
from clockhands.encodings.layouts import Layout
from clockhands.encodings.rotary import Rotary
from clockhands.models.declared_parts import joined
from clockhands.models.held_tensors import WHERE, HeldTensor, Walked, parameters_of, slopes_of
from clockhands.models.measured_rotations import input_rotation, recognised_in, without_numbers
from clockhands.recognition.diagnosis import (
    ROUNDED,
    SLOPES,
    cosines_of,
    fits,
    measured_rates,
    of_table,
    recognised_spec,
    reference_of,
)

# Attribute names under which modules keep the base of their table.
_BASES = ("base", "rope_theta", "theta")
_LARGEST_BASE = 1e15

# Widths of heads, the usual ones first, that a part without frequencies is called with.
_WIDTHS = (64, 128, 32, 96, 16, 80, 256)


def codes_of(walked: Walked) -> list[LayerEncoding]:
    """All codes that a module shows."""
    codes = [*ladder_codes(walked), *wave_codes(walked)]
    shown = {held.paths[0] for held in (*walked.of("rates"), *(walked.of("waves") if codes else ()))}
    return [*codes, *function_codes(walked, shown), *slope_codes(walked)]


def _code(group: list[HeldTensor], base: float | None, **fields: Any) -> LayerEncoding:
    """The code of the parts that hold these tensors: its fields, in the order of their sources."""
    place = group[0].place
    source = {name: place for name, value in fields.items() if value is not None}
    if base is not None:
        source["base"] = f"{place} (recognised)"
    return LayerEncoding("text", base=base, source=source, **fields)


def _layers(group: list[HeldTensor]) -> str | None:
    return joined(held.in_layers for held in group)


def ladder_codes(walked: Walked) -> list[LayerEncoding]:
    """One code for all layers with the same frequencies."""
    alike: dict[tuple[float, ...], list[HeldTensor]] = {}
    for held in walked.of("rates"):
        numbers = held.numbers()
        if held.which is None and numbers is not None and numbers.ndim == 1 and numbers.size and numbers.any():
            alike.setdefault(tuple(map(float, numbers)), []).append(held)
    codes = []
    for rates, group in alike.items():
        if not np.isfinite(rates).all():
            continue
        kind, dtype = kind_of(group[0]), group[0].dtype
        channels = {"rotary": "rotated", "sinusoidal": "width"}.get(kind or "")
        slack = 2 * ROUNDED[dtype] if dtype in ROUNDED else 2.0**-20
        spec = recognised_spec(np.array(rates), slack) if min(rates) >= 0 else None
        sizes = {} if channels is None else {channels: 2 * len(rates)}
        codes.append(
            _code(group, None if spec is None else spec.base, rates=rates, **sizes, kind=kind, layers=_layers(group))
        )
    return codes


def wave_codes(walked: Walked) -> list[LayerEncoding]:
    """The rotary codes that give the tables of cosines and sines, such as those of vLLM."""
    holding_rates = {id(held.owner) for held in walked.of("rates")}
    alike: dict[tuple[Rotary, float, Layout | None, int | None], list[HeldTensor]] = {}
    for held in walked.of("waves"):
        made = None if id(held.owner) in holding_rates else _made_by(held)
        if made is not None:
            alike.setdefault((*made, _layout(held.owner), _head_width(held.owner, made[0])), []).append(held)
    return [_wave_code(*key, group) for key, group in alike.items()]


def _made_by(held: HeldTensor) -> tuple[Rotary, float] | None:
    """The code that gives every row of a table, and the factor on it; the base is stated by the module, or measured."""
    array = held.numbers()
    if array is None or array.ndim < 2 or array.size < 2:
        return None
    # Pairs are on the last axis, or before a last axis of two; if cosines and sines are concatenated, each has one
    # half.
    whole = array.shape[-2] if array.shape[-1] == 2 else array.shape[-1]
    pairs = whole if np.iscomplexobj(array) or array.shape[-1] == 2 else whole // 2
    waves = cosines_of(array, held.name, held.dtype, pairs)
    measured = None if waves is None else measured_rates(waves)
    if waves is None or waves.cos is None or measured is None:
        return None
    rates, bound = measured
    factor = float(waves.cos[0, 0])
    stated: list[Any] = [getattr(held.owner, name, None) for name in _BASES]
    bases = [float(base) for base in stated if type(base) in (int, float) and 1 < base < _LARGEST_BASE]
    seen = np.isfinite(bound)
    measured_spec = recognised_spec(rates, float((bound[seen] / rates[seen]).max()))
    for spec in (*(Rotary(2 * len(rates), base=base) for base in bases), measured_spec):
        if spec is not None and of_table(waves, reference_of(spec), factor).code in (None, "buffer-rounded"):
            return spec, factor
    return None


def _wave_code(
    spec: Rotary, factor: float, layout: Layout | None, width: int | None, group: list[HeldTensor]
) -> LayerEncoding:
    fields: dict[str, Any] = {
        "layers": _layers(group),
        "kind": "rotary",
        "layout": layout,
        "width": width,
        "rotated": spec.rotated,
        "rates": spec.rates,
    }
    code = _code(group, spec.base, **fields, attention_factor=factor)
    stated = {"layout": "is_neox_style", "width": "head_size"}
    places = {name: replace(group[0], name=key).place for name, key in stated.items() if name in code.source}
    return replace(code, source={**code.source, **places})


def _layout(owner: Any) -> Layout | None:
    """The layout that a module states, as vLLM and SGLang modules do."""
    stated = getattr(owner, "is_neox_style", None)
    return ("halves" if stated else "interleaved") if isinstance(stated, bool) else None


def _head_width(owner: Any, spec: Rotary) -> int | None:
    """The width of a head that a module states."""
    stated = getattr(owner, "head_size", None)
    return stated if type(stated) is int and stated >= spec.rotated else None


def slope_codes(walked: Walked) -> list[LayerEncoding]:
    """The bias whose slopes are as published for that number of heads."""
    for held in walked.of("slopes"):
        slopes = slopes_of(held)
        if slopes is not None and fits(slopes, np.array(Alibi(len(slopes)).slopes), SLOPES, held.dtype) is not None:
            return [
                LayerEncoding("text", None, "alibi", Alibi(len(slopes)), source={"kind": f"{held.place} (recognised)"})
            ]
    return []


def function_codes(walked: Walked, known: set[str]) -> list[LayerEncoding]:
    """Codes of parts that rotate their input themselves."""
    codes = []
    for path, owner in walked.turning.items():
        if path in known or without_numbers(owner):
            continue
        functions = ((input_rotation(owner, width), width) for width in _WIDTHS)
        found = (recognised_in(function, width) for function, width in functions if function is not None)
        spec = next((match.spec for match in found if match is not None and isinstance(match.spec, Rotary)), None)
        if spec is not None:
            code = code_of(spec, None, None)
            where = f"{WHERE}:{path or type(owner).__name__} (recognised)"
            fields = ("kind", "layout", "rotated", "base", "rates", "scaling")
            source = dict.fromkeys((name for name in fields if getattr(code, name) is not None), where)
            codes.append(replace(code, source=source))
    return codes


def kind_of(held: HeldTensor) -> str | None:
    """What frequencies are used for, by the name and the arguments of their module; None if neither shows it."""
    name = f"{held.paths[0].rpartition('.')[2]} {type(held.owner).__name__}".lower()
    if re.search(r"rotary|rope", name):
        return "rotary"
    if re.search(r"sinus|posit\w*_?enc|timestep", name):
        return "sinusoidal"
    return "rotary" if parameters_of(held.owner) & {"position_ids", "seq_len"} else None
