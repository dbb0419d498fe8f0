"""The ways to get a position code wrong.

A fault is a row: what it behaves like, what to do, and where it was met in public. Most can be tried: a suspect is an
implementation that has the fault, to be asked what somebody's implementation was asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from clockhands.faults import additive_rows, bias_rows, generation, modules, rotary_rows
from clockhands.faults.fault import Fault, Suspect


def _joined(faults: Iterable[Fault]) -> dict[str, Fault]:
    """Each code once: those of several kinds are in the words of the first, and hold the cases of all."""
    found: dict[str, Fault] = {}
    for fault in faults:
        first = found.setdefault(fault.code, fault)
        if first is not fault:
            about, cases = (*first.about, *fault.about), (*first.cases, *fault.cases)
            found[fault.code] = replace(first, about=tuple(dict.fromkeys(about)), cases=tuple(dict.fromkeys(cases)))
    return found


FAULTS: Mapping[str, Fault] = _joined(
    (*rotary_rows.FAULTS, *additive_rows.FAULTS, *bias_rows.FAULTS, *modules.FAULTS, *generation.FAULTS)
)
"""Every fault by its code."""

__all__ = ["FAULTS", "Fault", "Suspect"]
