"""Explaining a failure: every suspect is asked what the implementation was asked, and those that answer alike remain.

A suspect fits where every answer of the implementation, right or wrong, is within what rounding explains of the
suspect's. Where none does, the one that leaves least of the difference is told, if it leaves next to nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.faults import Fault, Suspect
from clockhands.testing.experiments import Answer, Experiment, Unasked, shares
from clockhands.testing.reports import Explanation

# Its own rounding, and that of the suspect's parameters where they were measured.
_ROOM = 2.0
# Where no suspect fits altogether: the part of the squared difference, or of the wrong numbers, that the best one may
# leave, and how much more the next best one must leave. A coarse rounding falls to the other side where an honest error
# comes before it, so a tenth of the numbers may.
_LEFT, _MISSED, _APART = 0.02, 0.1, 4.0


@dataclass(frozen=True)
class Asked:
    """An experiment that was made, and what came back."""

    experiment: Experiment
    answers: Sequence[Answer]

    @cached_property
    def wrong(self) -> bool:
        """Whether some number is further off than rounding explains."""
        return any(bool((each.shares > 1).any()) for each in self.answers)


def failed_of(asked: Iterable[Asked]) -> dict[str, Asked]:
    """The experiments that failed, by their names."""
    return {one.experiment.name: one for one in asked if one.wrong}


def fitting(
    asked: Sequence[Asked], suspects: Iterable[Suspect], build: Callable[[Suspect], object]
) -> tuple[list[Suspect], str | None]:
    """The suspects that give these answers, and how well the best one does where none gives them to rounding."""
    found: list[Suspect] = []
    partial: list[tuple[float, Suspect]] = []
    for suspect in suspects:
        try:
            left, fits = _compared(asked, lambda suspect=suspect: build(suspect), bool(found))
        except ClockhandsError:  # a code that does not exist is no suspect
            continue
        if fits:
            found.append(suspect)
        elif left is not None:
            partial.append((left, suspect))
    if found or not partial:
        return found, None
    partial.sort(key=lambda one: one[0])
    best, others = partial[0], [one for one in partial if one[1].codes != partial[0][1].codes]
    if best[0] > 1 or (others and others[0][0] < _APART * best[0]):
        return [], None
    return [best[1]], "most of what is wrong, not all of it"


def _compared(asked: Sequence[Asked], build: Callable[[], object], only_whole: bool) -> tuple[float | None, bool]:
    """What a suspect leaves, 1 where it is as much as may be, and whether it leaves nothing but rounding."""
    left, whole, fits, explains = 0.0, 0.0, True, False
    wrong = missed = right = lost = 0
    implementation = build()
    for one in asked:
        try:
            answers = one.experiment.run(implementation)
        except Unasked:
            return None, False
        for seen, made in zip(one.answers, answers, strict=True):
            if seen.got.shape != made.got.shape:
                return None, False
            close = shares(seen.got, made.got, _ROOM * np.maximum(seen.allowed, made.allowed)) <= 1
            # NaN answers NaN.
            close |= np.isnan(seen.got) & np.isnan(made.got)
            if not close.all():
                fits = False
                if only_whole:
                    return None, False
            finite = np.isfinite(seen.got) & np.isfinite(made.got)
            with np.errstate(invalid="ignore"):  # a mask beside a mask
                over = np.where(finite, np.abs(seen.got - made.got), 0.0)
                off = np.where(finite, np.abs(seen.got - seen.wanted), 0.0)
            bad = seen.shares > 1
            # What is right where the implementation is wrong explains nothing, however near that is.
            explains = explains or bool((bad & (shares(made.got, seen.wanted, seen.allowed) > 1)).any())
            left += float(np.sum(np.where(close, 0.0, over) ** 2))
            whole += float(np.sum(np.where(bad, off, 0.0) ** 2))
            wrong += int(bad.sum())
            right += int((~bad).sum())
            missed += int((bad & ~close).sum())
            lost += int((~bad & ~close).sum())
        # It gives neither what is wrong nor what is right: no more of it will make it fit.
        if (missed > wrong / 2 + 8 and left > whole / 2) or lost > right / 2 + 8:
            return None, False
    if not explains:
        return None, False
    if not wrong or not whole:
        return None, fits
    # Numbers that were right and are none of the suspect's count as much.
    return min(left / whole / _LEFT, (missed / wrong + lost / max(right, 1)) / _MISSED), fits


def explanations(found: Sequence[Suspect], faults: Mapping[str, Fault], note: str | None) -> tuple[Explanation, ...]:
    """What the suspects that remain are called; those of different faults are told together."""
    if not found:
        return ()
    codes = tuple(dict.fromkeys(code for suspect in found for code in suspect.codes))
    told: dict[str, Suspect] = {}
    for suspect in found:
        told.setdefault(suspect.codes[0], suspect)
    said = [_said(suspect, faults) for suspect in told.values()]
    message = said[0] if len(said) == 1 else " or ".join(said[:3]) + "; no experiment tells these apart"
    first = found[0]
    cases = tuple(dict.fromkeys(case for code in told for case in faults[code].cases))
    return (
        Explanation(
            codes,
            f"{message}{f' ({note})' if note else ''}.",
            faults[first.codes[0]].hint,
            cases,
            dict(first.parameters) | ({"tells apart": "not all"} if len(said) > 1 else {}),
        ),
    )


def told_of(fault: Fault, parameters: Mapping[str, Any], further: str = "") -> Explanation:
    """What one fault behaves like with these parameters, and what else is to be said of it."""
    message = f"{fault.sentence.format(**parameters)}{further}."
    return Explanation((fault.code,), message, fault.hint, fault.cases, parameters)


def _said(suspect: Suspect, faults: Mapping[str, Fault]) -> str:
    """What a suspect behaves like; where it has several faults at once, all of them."""
    first, *others = (faults[code].sentence.format(**suspect.parameters) for code in suspect.codes)
    return " and ".join([first, *(other.removeprefix("behaves ") for other in others)])
