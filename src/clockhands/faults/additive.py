"""Additive suspects: every known fault of an additive code with the parameters that it may have here."""

from collections.abc import Callable, Iterator

from clockhands.additive import AdditiveCode
from clockhands.errors import ClockhandsError
from clockhands.faults.additive_code import wrong_arithmetic, wrong_places, wrong_sums
from clockhands.faults.additive_grids import other_cells
from clockhands.faults.additive_learned import resized_otherwise
from clockhands.faults.additive_measured import measured
from clockhands.faults.additive_seen import Seen
from clockhands.faults.additive_specs import other_exponents, other_specs, recognised
from clockhands.faults.additive_state import stateful
from clockhands.faults.fault import Suspect


def additive_suspects(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Suspects to try, the simple ones first."""
    return _of(
        spec,
        seen,
        other_specs,
        other_exponents,
        wrong_sums,
        measured,
        wrong_places,
        other_cells,
        wrong_arithmetic,
        resized_otherwise,
        stateful,
    )


def further_suspects(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """Suspects of odd parameters, by what was measured or recognised, to be tried where no plain one fits."""
    return _of(spec, seen, recognised) if seen.specs else _of(spec, seen, measured, other_cells)


def _of(
    spec: AdditiveCode, seen: Seen, *sources: Callable[[AdditiveCode, Seen], Iterator[Suspect]]
) -> Iterator[Suspect]:
    for source in sources:
        try:
            yield from source(spec, seen)
        except ClockhandsError:  # a spec that does not exist is no suspect
            continue


__all__ = ["Seen", "additive_suspects", "further_suspects"]
