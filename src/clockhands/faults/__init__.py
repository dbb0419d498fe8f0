"""The ways to get a position code wrong.

A fault is a row: what it behaves like, what to do, and where it was met in public. Most can be tried: a suspect is an
implementation that has the fault, to be asked what somebody's implementation was asked.
"""

from collections.abc import Mapping

from clockhands.faults import rotary_rows
from clockhands.faults.fault import Fault, Suspect

FAULTS: Mapping[str, Fault] = {fault.code: fault for fault in rotary_rows.FAULTS}
"""Every fault by its code."""

__all__ = ["FAULTS", "Fault", "Suspect"]
