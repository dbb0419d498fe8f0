"""Rotary suspects: every known fault of a rotary code with the parameters that it may have here."""

from collections.abc import Iterator

from clockhands.errors import ClockhandsError
from clockhands.faults.fault import Suspect
from clockhands.faults.rotary_code import wrong_arithmetic, wrong_pairs, wrong_places
from clockhands.faults.rotary_measured import Seen, measured
from clockhands.faults.rotary_specs import other_specs
from clockhands.faults.rotary_state import stateful
from clockhands.rotary import Rotary

__all__ = ["Seen", "rotary_suspects"]


def rotary_suspects(spec: Rotary, seen: Seen) -> Iterator[Suspect]:
    """Suspects to try, the simple ones first."""
    sources = (
        lambda: other_specs(spec, seen.length),
        lambda: measured(spec, seen),
        lambda: wrong_places(spec, seen),
        lambda: wrong_arithmetic(seen),
        lambda: wrong_pairs(spec),
    )
    for source in sources:
        try:
            yield from source()
        except ClockhandsError:  # a spec that does not exist is no suspect
            continue
    yield from stateful(spec)
