"""Known mistakes in implementations of encodings: each with a code, an explanation and a fix.

A fault is a row of a TOML file: what it behaves like, what to do, and where it was met in public. Most can be tried: a
suspect is an implementation that has the fault, to be asked what somebody's implementation was asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from clockhands.faults._additive_code import ChannelWaves, SeenAdditive, StagedAdditive, additive_stateful, hands_of
from clockhands.faults._additive_specs import additive_suspects, further_suspects
from clockhands.faults._bias_code import Behind, GivenValues, SeenBias, StagedBias, alone, bias_stateful, table_of
from clockhands.faults._bias_specs import bias_suspects
from clockhands.faults._fault import Fault, Suspect, faults_in
from clockhands.faults._rotary_code import Samples, SeenRotary, StagedRotary, rotary_stateful, turning_of
from clockhands.faults._rotary_specs import pairs_of_suspects, rotary_suspects, scaling_name

ROTARY: Mapping[str, Fault] = faults_in("rotary")
"""The faults of rotary codes by their codes, in the words and with the cases of rotary codes."""
ADDITIVE: Mapping[str, Fault] = faults_in("additive")
"""The faults of additive codes."""
BIAS: Mapping[str, Fault] = faults_in("bias")
"""The faults of biases."""
MODULE: Mapping[str, Fault] = faults_in("module")
"""The faults of modules. There is nothing to try: a treatment of the module shows each, and its tensors say which."""
GENERATION: Mapping[str, Fault] = faults_in("generation")
"""The faults of models that keep a cache: what one pass with other positions, or seeing other keys, gives as well."""


def _joined(kinds: Iterable[Mapping[str, Fault]]) -> dict[str, Fault]:
    """Each code once: those of several kinds are in the words of the first, and hold the cases of all."""
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
    "bias_stateful",
    "bias_suspects",
    "further_suspects",
    "hands_of",
    "pairs_of_suspects",
    "rotary_stateful",
    "rotary_suspects",
    "scaling_name",
    "table_of",
    "turning_of",
]
