"""Suspects with two faults of a rotary function that its measurements do not exclude."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError
from clockhands.recognition.suspects import FaultModel, RotaryObservations, StagedRotary, rotary_suspects

_ROUNDINGS = {"positions-rounded", "rates-rounded", "phases-rounded", "table-rounded", "table-rebuilt-rounded"}

_ALONE = {"pairs-unturned"}
"""Faults by measurement that a fault of partial RoPE, which leaves pairs as they are, gives as well."""


class AppliedFault(NamedTuple):
    """What a suspect does to a spec: the spec that it applies in its place, and the stages that it replaces."""

    suspect: FaultModel
    spec: Rotary
    stages: Mapping[str, Any]

    @property
    def code(self) -> str:
        """The code of the fault."""
        return self.suspect.codes[0]

    def moves_channels(self, declared: Rotary) -> bool:
        """Whether other channels than those declared are multiplied by one complex factor, or none are."""
        one, other = self.spec, declared
        same = np.array_equal(one.channels, other.channels) and one.reordered == other.reordered
        return not same or "rotation" in self.stages


def suspects_with_two_faults(spec: Rotary, seen: RotaryObservations) -> Iterator[Iterator[FaultModel]]:
    """Suspects with two faults, grouped by the first one.

    The second is a fault of the spec that the first one gives: the base is measured again if the first fault removed
    the scaling, and the pairs if it changed the layout. Faults that depend on earlier calls are not combined.
    """
    singles = list(_applied(spec, seen))
    impossible = _ImpossibleSecond(spec, singles)
    excluded: set[Rotary] = set()
    tried = {spec}
    for place, one in enumerate(singles):
        between = seen.of(one.spec)
        but = impossible.codes(one, between)
        if one.spec == spec:  # the order of two such faults does not matter, so each pair is tried once
            later = singles[place + 1 :]
            others = (other for other in later if other.spec == spec and other.code not in but)
        elif one.spec not in tried or one.stages:
            tried.add(one.spec)
            others = _applied(one.spec, between, but)
            if not one.stages and _differs_early(one.spec, seen):
                others = _but_roundings(others, one.spec)
        else:
            continue
        yield (both for other in others if (both := _together(one, other, spec, seen, excluded)) is not None)


class _ImpossibleSecond:
    """Which faults cannot come second, by what the measurements say of the spec that the first one gives."""

    def __init__(self, spec: Rotary, singles: Sequence[AppliedFault]) -> None:
        self.keeping = {one.code for one in singles} - {one.code for one in singles if one.moves_channels(spec)}
        self.of_spec = self.keeping - {one.code for one in singles if one.stages}

    def codes(self, one: AppliedFault, seen: RotaryObservations) -> set[str]:
        """The codes of the faults that cannot come after this one, given the measurements of its pairs."""
        if not seen.samples or "rotation" in one.stages:
            return {one.code}
        if not seen.pairwise:  # no frequency and no position multiplies the channels of a pair by one factor
            return self.keeping | {one.code}
        if not one.stages and one.spec.xpos is None and seen.dtype in _FINE and not seen.evenly():
            return self.of_spec | {one.code}  # no frequencies give these rotations
        return {one.code}


_FINE = ("float32", "float64")  # in which each measured factor is that of the pair, whatever its tokens


def _applied(spec: Rotary, seen: RotaryObservations, but: Container[str] = ()) -> Iterator[AppliedFault]:
    """The changes of all suspects that keep no state, but those of some codes."""
    for suspect in rotary_suspects(spec, seen):
        if suspect.parts is not None and suspect.codes[0] not in but and suspect.codes[0] not in _ALONE:
            try:
                with np.errstate(all="ignore"):
                    changed, stages = suspect.parts(spec)
            except ClockhandsError:  # a spec that cannot be built is no suspect
                continue
            yield AppliedFault(suspect, changed, stages)


def _differs_early(spec: Rotary, seen: RotaryObservations) -> bool:
    """Whether a spec excludes the measurements at positions 0 to 2, also if its numbers are rounded to any dtype.

    A rounding to bfloat16 changes a phase by at most ``2**-8`` of it, and a cosine or sine by ``2**-9``: by less than
    0.03 of the largest token for phases up to 2.
    """
    early = seen.positions <= 2
    if spec.axes is not None or not seen.samples or not early.any():
        return False
    (x, y), *_ = seen.samples
    made = StagedRotary(spec)(x[None, None, early], seen.positions[early], seen.dtype, seen.role)[0, 0]
    rounding = 0.05 * float(np.abs(x).max()) * spec.attention_factor * max(1.0, 2 * max(map(abs, spec.rates)))
    return bool(np.abs(made - y[early]).max() > 0.1 * max(np.abs(y).max(), 1.0) + rounding)


def _but_roundings(faults: Iterable[AppliedFault], spec: Rotary) -> Iterator[AppliedFault]:
    return (one for one in faults if one.spec != spec or not set(one.suspect.codes) <= _ROUNDINGS)


def _together(
    one: AppliedFault, other: AppliedFault, spec: Rotary, seen: RotaryObservations, excluded: set[Rotary]
) -> FaultModel | None:
    """The suspect with both faults, if they can be combined and the measurements do not exclude it.

    Args:
        one: The first fault.
        other: The second one, of the spec that the first one gives.
        spec: The expected encoding.
        seen: The measurements.
        excluded: Specs that the measurements exclude; those that are found to be excluded are added.
    """
    stages = {**one.stages, **other.stages}
    if not stages and other.spec in excluded:
        return None
    if clash := one.stages.keys() & other.stages.keys():
        if clash != {"places"}:
            return None
        here, there = one.stages["places"], other.stages["places"]
        stages["places"] = lambda at, call: there(here(at, call), call)
    # The spec is changed already, and need not be for every pair.
    both = FaultModel(one.suspect.codes, {}, one.suspect.make, parts=lambda _: (other.spec, stages))
    try:
        if seen.may_be(both, spec):
            return seen.together(one.suspect, other.suspect)
    except ClockhandsError:
        return None
    if not stages:
        excluded.add(other.spec)
    return None
