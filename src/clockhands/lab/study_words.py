"""Arms and gates in words, with what was measured of a gate."""

import math
from collections.abc import Mapping
from typing import Any

from clockhands.lab.drops import rise_of
from clockhands.lab.result_words import MEASURES, Line, bounds_in_words, effect_in_words
from clockhands.lab.results import GateResult, Results, bracket
from clockhands.lab.study import Arm, AtTest, Gate
from clockhands.measures.claims import Estimate
from clockhands.phrases import listed, number_of


def duration(seconds: float) -> str:
    """A duration as text.

    >>> duration(4.2), duration(95), duration(4000)
    ('4 s', '1 min 35 s', '1 h 6 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def gate_in_numbers(results: Results, each: GateResult) -> str:
    """The measured and the required value."""
    gate = each.gate
    what = gate.arm + (f" {gate.variant}" if gate.variant else "")
    if gate.minus:
        what += f" minus {gate.minus}" + (f" {gate.minus_variant}" if gate.minus_variant else "")
    where = f" at {gate.length:,} tokens" if gate.length else ""
    found = number(each.value)
    if gate.measure == "spike" and not gate.minus and each.value is not None:
        found = rise_of(results, gate.task, gate.arm)
    measure = {"spike": "rise at the drop", "won_back": "recovered share of the rise"}.get(gate.measure, gate.measure)
    effect = effect_in_words(each)
    chance = "" if each.chance is None else f"; chance: {_digits(each.chance)}, effect: {effect}"
    return f"{measure.replace('_', ' ')} of {what}{where}: {found} (required: {bounds_in_words(gate.bounds)}{chance})"


def _digits(chance: float) -> str:
    return "below 0.0001" if chance < 0.0001 else f"{chance:.2g}"


def number(value: Estimate | None, digits: int = 3) -> str:
    """An estimate with its interval or the range of its seeds (`bracket`).

    >>> number(Estimate(0.5, 0.4, 0.61, {})), number(None)
    ('0.500 [0.400, 0.610]', '-')
    """
    if value is None:
        return "-"
    if not math.isfinite(value.mean):
        return "never" if math.isinf(value.mean) else "not a number"
    ends = bracket(value)
    interval = "" if ends is None else f" [{', '.join(f'{end:.{digits}f}' for end in ends)}]"
    return f"{value.mean:.{digits}f}{interval}"


def measured_in_words(gate: Gate) -> str:
    """The measure of a gate, as text."""
    minus = f" minus {Line(gate.minus, gate.minus_variant)}" if gate.minus else ""
    length = f" at {gate.length:,} tokens" if gate.length else ""
    protocol = f" under {gate.protocol}" if gate.protocol != "whole" else ""
    paired = ", paired by seed" if gate.minus else ""
    return f"{Line(gate.arm, gate.variant)}{minus} on {gate.task}{length}{protocol}{paired}: {MEASURES[gate.measure]}"


def arm_in_words(arm: Arm) -> str:
    """An arm as text: the description in the study file, and settings that its encoding does not show."""
    parts = [arm.says]
    if arm.channels:
        parts.append(f"The encoding uses {number_of(arm.channels, 'dimension')} of a token.")
    if arm.times != 1:
        parts.append(f"The encoding is multiplied by {arm.times:g}.")
    if arm.slopes != "own":
        parts.append("The slopes are random.")
    if arm.frequencies != "own":
        parts.append("The frequencies are learned.")
    for what, value in (("Attention window", arm.window), ("Attention chunks", arm.chunk)):
        if isinstance(value, tuple):
            sizes = ", ".join(f"{each:,}" if each else "whole" for each in value)
            parts.append(f"{what} by layer, from the first: {sizes}.")
        elif value:
            parts.append(f"{what}: {value:,} tokens.")
    if isinstance(arm.scores, tuple):
        scales = ("as they are" if each is None else each.words for each in arm.scores)
        parts.append(f"Attention scores by layer, from the first: {'; '.join(scales)}.")
    elif arm.scores is not None:
        parts.append(f"Attention scores are {arm.scores.words}.")
    if arm.fault:
        parts.append(f"Fault: {arm.fault}.")
    if arm.drop is not None:
        rate = f", then learning rate {arm.drop.learning_rate:g}" if arm.drop.learning_rate else ""
        norm = ", with normalised queries and keys from then on" if arm.drop.qk_norm else ""
        parts.append(f"The encoding is dropped at {arm.drop.at[0]:g} {arm.drop.at[1]}{rate}{norm}.")
    if arm.positions is not None:
        draw, largest = arm.positions.draw, arm.positions.largest
        parts.append(f"Training positions are {draw}, below {largest:,}." if draw == "randomised" else
                     f"Training positions are {draw}: the first is below {largest:,}.")  # fmt: skip
    parts += [f"Model: {_fields(arm.model)}."] if arm.model else []
    parts += [f"Training: {_fields(arm.training)}."] if arm.training else []
    parts += [f"At test time, {name}: {_change(change)}." for name, change in arm.at_test.items()]
    return " ".join(filter(None, parts))


def _change(change: AtTest) -> str:
    """A change at test time, as a short text."""
    parts = []
    if change.code is not None:
        parts.append("no position encoding" if change.code == "none" else f"position encoding {_fields(change.code)}")
    if change.scaling is not None:
        parts.append(f"RoPE scaling {_fields(change.scaling)}")
    if change.logit_scale:
        parts.append(f"attention scores times 1 + {change.logit_scale:g} ln(length / trained length)")
    if change.fault:
        parts.append(f"fault {change.fault}")
    return ", ".join(parts) or "no change"


_TERMS = {
    "qk_norm true": "queries and keys normalised", "Yarn": "YaRN", "Ntk": "NTK-aware", "Dynamic": "dynamic NTK",
    "Linear": "linear", "LongRope": "LongRoPE", "Llama3": "llama3", "Rotary": "RoPE", "Alibi": "ALiBi",
}  # fmt: skip


def _fields(value: Any) -> str:
    """A value or a table of a study file without the marks of TOML and JSON.

    >>> _fields({"type": "Yarn", "factor": 4.0}), _fields({"qk_norm": True}), _fields({"layers": 4})
    ('YaRN, factor 4', 'queries and keys normalised', 'layers 4')
    """
    if isinstance(value, Mapping):
        kind = [_fields(value["type"])] if "type" in value else []
        said = [f"{name} {_fields(each)}" for name, each in value.items() if name != "type"]
        return ", ".join([*kind, *(_TERMS.get(each, each.replace("_", " ", 1)) for each in said)])
    if isinstance(value, list | tuple):
        return listed(map(_fields, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else _TERMS.get(str(value), str(value))
