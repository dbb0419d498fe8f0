"""Known mistakes in implementations of encodings: each with a code, an explanation and a fix.

A fault is a row of a TOML file: what it behaves like, what to do, and public reports of it. For most faults there are
suspects: runnable implementations with the fault, which get the same inputs as the user's implementation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from clockhands.recognition.faults._additive_code import (
    ChannelWaves,
    SeenAdditive,
    StagedAdditive,
    additive_stateful,
    hands_of,
)
from clockhands.recognition.faults._additive_specs import additive_suspects, further_suspects
from clockhands.recognition.faults._bias_code import (
    Behind,
    GivenValues,
    SeenBias,
    StagedBias,
    alone,
    bias_stateful,
    table_of,
)
from clockhands.recognition.faults._bias_specs import bias_suspects
from clockhands.recognition.faults._fault import Fault, Suspect, faults_in, rows_in
from clockhands.recognition.faults._rotary_code import Samples, SeenRotary, StagedRotary, rotary_stateful, turning_of
from clockhands.recognition.faults._rotary_specs import axis_ladders, pairs_of_suspects, rotary_suspects, scaling_name

ROTARY: Mapping[str, Fault] = faults_in("rotary")
"""The faults of rotary codes, by code, with the sentences and cases for rotary codes."""
ADDITIVE: Mapping[str, Fault] = faults_in("additive")
"""The faults of additive codes."""
BIAS: Mapping[str, Fault] = faults_in("bias")
"""The faults of biases."""
MODULE: Mapping[str, Fault] = faults_in("module")
"""The faults of modules. They have no suspects: a treatment of the module shows each, and its tensors identify it."""
GENERATION: Mapping[str, Fault] = faults_in("generation")
"""The faults of models with a cache: a single pass with other positions or other visible keys gives the same output."""


def _joined(kinds: Iterable[Mapping[str, Fault]]) -> dict[str, Fault]:
    """Each code once: a fault of several kinds has the sentence of the first kind and the cases of all."""
    found: dict[str, Fault] = {}
    for fault in (fault for kind in kinds for fault in kind.values()):
        first = found.setdefault(fault.code, fault)
        if first is not fault:
            about, cases = (*first.about, *fault.about), (*first.cases, *fault.cases)
            found[fault.code] = replace(first, about=tuple(dict.fromkeys(about)), cases=tuple(dict.fromkeys(cases)))
    return found


FAULTS: Mapping[str, Fault] = _joined((ROTARY, ADDITIVE, BIAS, MODULE, GENERATION))
"""Every fault by its code."""

__all__ = [
    "ADDITIVE",
    "BIAS",
    "FAULTS",
    "GENERATION",
    "MODULE",
    "ROTARY",
    "Behind",
    "ChannelWaves",
    "Fault",
    "GivenValues",
    "Samples",
    "SeenAdditive",
    "SeenBias",
    "SeenRotary",
    "StagedAdditive",
    "StagedBias",
    "StagedRotary",
    "Suspect",
    "additive_stateful",
    "additive_suspects",
    "alone",
    "axis_ladders",
    "bias_stateful",
    "bias_suspects",
    "further_suspects",
    "hands_of",
    "pairs_of_suspects",
    "rotary_stateful",
    "rotary_suspects",
    "rows_in",
    "scaling_name",
    "table_of",
    "turning_of",
]
