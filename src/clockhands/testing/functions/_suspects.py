"""Explanation of a failure: every suspect gets the same inputs as the implementation, and those with equal output fit.

A suspect fits if every output of the implementation, right or wrong, is within the rounding bound of the suspect's
output. If none fits, the suspect with the smallest remaining difference is reported, if that is small enough.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import ROTARY, Fault
from clockhands.recognition.suspects import FaultModel
from clockhands.testing._experiments import Answer, ExperimentRun, Unasked, failed_of, shares
from clockhands.testing.reports import UNDECIDED, Explanation

# Twice the bound: for the rounding of the implementation, and for that of measured parameters of the suspect.
_ROOM = 2.0
# If no suspect fits: the share of the squared error, and of the wrong numbers, that the best suspect may leave
# unexplained, and the factor by which the next best one must leave more. A tenth of the numbers may differ, because a
# small earlier error can change the direction in which a number is rounded to a coarse dtype.
_LEFT, _MISSED, _APART = 0.02, 0.1, 4.0


def exact_fits(
    asked: Sequence[ExperimentRun], suspects: Iterable[FaultModel], build: Callable[[FaultModel], object]
) -> list[FaultModel]:
    """The suspects whose every answer is, within rounding, that of the implementation."""
    # Failed experiments reject a suspect sooner; one that keeps state gets all in the order of the implementation.
    telling_first = sorted(asked, key=lambda one: not one.wrong)
    found = []
    for suspect in suspects:
        with suppress(ClockhandsError, Unasked):  # a spec that cannot be built is no suspect
            if _fits(asked if suspect.parts is None else telling_first, build(suspect)):
                found.append(suspect)
    return found


def nearest_fit(
    asked: Sequence[ExperimentRun], suspects: Iterable[FaultModel], build: Callable[[FaultModel], object]
) -> list[FaultModel]:
    """The suspect that explains most of the errors, where none explains all; empty if no one is clearly the nearest."""
    partial: list[tuple[float, FaultModel]] = []
    for suspect in (each for each in suspects if not each.whole):
        with suppress(ClockhandsError, Unasked):
            left = _unexplained_part(asked, build(suspect))
            if left is not None:
                partial.append((left, suspect))
    partial.sort(key=lambda one: one[0])
    if not partial or partial[0][0] > 1:
        return []
    left, best = partial[0]
    others = [other for other, suspect in partial if suspect.codes != best.codes]
    return [] if others and others[0] < _APART * left else [best]


MOST = "this fault explains most of the errors, not all of them"
"""The note on a `nearest_fit`."""


def fitting(
    asked: Sequence[ExperimentRun], suspects: Sequence[FaultModel], build: Callable[[FaultModel], object]
) -> tuple[list[FaultModel], str | None]:
    """The suspects that explain all errors, or the one that explains most of them, with a note."""
    found = exact_fits(asked, suspects, build)
    return (found, None) if found else (nearest_fit(asked, suspects, build), MOST)


def _fits(asked: Sequence[ExperimentRun], implementation: object) -> bool:
    """Whether an implementation gives these answers, and is wrong somewhere."""
    explains = False
    for one in asked:
        for seen, made in zip(one.answers, one.experiment.run(implementation), strict=True):
            if seen.got.shape != made.got.shape or not _close(seen, made)[0].all():
                return False
            explains = explains or _is_wrong(seen, made)
    return explains


def _is_wrong(seen: Answer, made: Answer) -> bool:
    """Whether a suspect is wrong where the implementation is; else it explains nothing, however small the errors."""
    return bool((shares(made.got, seen.wanted, seen.allowed)[seen.wrong] > 1).any())


def _close(seen: Answer, made: Answer) -> tuple[np.ndarray, np.ndarray]:
    """Which numbers of a suspect are those of the implementation within rounding, and the differences."""
    with np.errstate(invalid="ignore"):  # the difference of two infinities (masks)
        over = np.abs(seen.got - made.got)
        close = over <= _ROOM * np.maximum(seen.allowed, made.allowed)
    if not np.isfinite(over.sum()):  # NaN matches NaN
        close &= np.isfinite(over)
        close |= (seen.got == made.got) | (np.isnan(seen.got) & np.isnan(made.got))
    return close, over


def _unexplained_part(asked: Sequence[ExperimentRun], implementation: object) -> float | None:
    """The unexplained part of the errors: 1 is the largest that may be reported. None if the suspect is rejected."""
    left, whole, explains = 0.0, 0.0, False
    wrong = missed = right = lost = 0
    for one in asked:
        for seen, made in zip(one.answers, one.experiment.run(implementation), strict=True):
            if seen.got.shape != made.got.shape:
                return None
            close, over = _close(seen, made)
            finite = np.isfinite(over)
            explains = explains or _is_wrong(seen, made)
            left += float(np.sum(np.where(finite & ~close, over, 0.0) ** 2))
            whole += float(np.sum(np.where(finite & seen.wrong, seen.off, 0.0) ** 2))
            wrong += int(np.count_nonzero(seen.wrong))
            right += int(np.count_nonzero(~seen.wrong))
            missed += int(np.count_nonzero(seen.wrong & ~close))
            lost += int(np.count_nonzero(~(seen.wrong | close)))
        # It matches neither the wrong nor the right numbers, and further answers cannot change that.
        if (missed > wrong / 2 + 8 and left > whole / 2) or lost > right / 2 + 8:
            return None
    if not explains or not wrong or not whole:
        return None
    # Right numbers that the suspect does not give count as much as wrong ones.
    return min(left / whole / _LEFT, (missed / wrong + lost / max(right, 1)) / _MISSED)


def explanations(found: Sequence[FaultModel], faults: Mapping[str, Fault], note: str | None) -> tuple[Explanation, ...]:
    """One explanation of the suspects that fit, naming all their faults; empty without suspects."""
    if not found:
        return ()
    told: dict[tuple[str, ...], Sequence[_Told]] = {}
    codes: dict[str, None] = {}
    for suspect in found:
        each = _in_order(suspect, faults)
        codes |= dict.fromkeys(code for own, _ in each for code in own)
        told.setdefault(tuple(own[0] for own, _ in each), each)
    said = [_sentence_of(each, faults) for each in told.values()]
    message = said[0] if len(said) == 1 else ", or ".join(said[:3]) + UNDECIDED
    (first, parameters), *others = next(iter(told.values()))
    cases = tuple(dict.fromkeys(case for each in told for code in each for case in faults[code].cases))
    # The parameters of a second fault are stored under its code.
    evidence = {**parameters, **{own[0]: dict(more) for own, more in others}}
    return (
        Explanation(
            tuple(codes),
            f"{message}{f' ({note})' if note else ''}.",
            " ".join(dict.fromkeys(faults[own[0]].hint for own in (first, *(own for own, _ in others)))),
            cases,
            evidence | ({"tells apart": "not all"} if len(said) > 1 else {}),
        ),
    )


_Told = tuple[tuple[str, ...], Mapping[str, Any]]


def _in_order(suspect: FaultModel, faults: Mapping[str, Fault]) -> Sequence[_Told]:
    """The faults that a suspect combines, as (codes, parameters), in the order of the table of faults."""
    places = {code: place for place, code in enumerate(faults)}
    return sorted(suspect.each, key=lambda one: places[one[0][0]])


def explanation_of(fault: Fault, parameters: Mapping[str, Any], further: str = "") -> Explanation:
    """The explanation of one fault with these parameters; ``further`` is appended to its sentence."""
    message = f"{fault.sentence.format(**parameters)}{further}."
    return Explanation((fault.code,), message, fault.hint, fault.cases, parameters)


def _sentence_of(each: Sequence[_Told], faults: Mapping[str, Fault]) -> str:
    """The sentences of the faults that a suspect combines, joined."""
    said = []
    for codes, parameters in each:
        first, *others = (faults[code].sentence.format(**parameters) for code in codes)
        said.append(" and ".join([first, *(other.removeprefix("behaves ") for other in others)]))
    return ", and ".join(said)


# The experiments that show what low-precision tokens leave behind.
AFTER_COARSER = {"after low-precision tokens", "a model of low-precision tokens first"}


def of_any_code(it: Any, asked: Sequence[ExperimentRun], faults: Mapping[str, Fault]) -> tuple[Explanation, ...]:
    """Explanations that hold for every kind of encoding, found from which experiments failed; empty if none applies."""
    failed = failed_of(asked)
    if told := not_finite(asked):
        return told
    if it.called.changed:
        return (explanation_of(faults["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    if it.called.overwrites:
        return (explanation_of(faults["overwrites-its-answers"], {}),)
    after, coarse = AFTER_COARSER & failed.keys(), {"dtype": it.coarse}
    if not failed or not failed.keys() <= {*after, "low-precision tokens"}:
        return ()
    # Only answers with or after low-precision tokens are wrong.
    codes = ["cache-keeps-first-dtype"] * bool(after) + ["coarse-path-differs"] * ("low-precision tokens" in failed)
    return tuple(explanation_of(faults[code], coarse) for code in codes)


def not_finite(asked: Sequence[ExperimentRun]) -> tuple[Explanation, ...]:
    """The explanation that finite tokens give NaN or infinite numbers; empty if all output is finite."""
    bad = [each for one in asked for each in one.answers if not np.isfinite(each.got).all()]
    if not bad:
        return ()
    longest = max(bad, key=lambda each: each.got.size)  # which locates best where the numbers begin
    what = "NaN" if np.isnan(longest.got).any() else "infinite numbers"
    where = _from_where(np.asarray(~np.isfinite(longest.got)).any(axis=-1), longest.positions)
    return (explanation_of(ROTARY["not-finite"], {"what": what, "where": where}),)


def _from_where(rows: Any, positions: np.ndarray | None) -> str:
    """Where bad rows begin, or which they are, as a phrase; empty if all rows are bad."""
    if positions is None or rows.all():
        return ""
    at = np.broadcast_to(positions, rows.shape)
    first = int(at[rows].min())
    if at[rows].size == 1 or not rows[at >= first].all():
        return f" at position {first:,}" if np.ptp(at[rows]) == 0 else f" at positions {first:,} and others"
    return f" from position {first:,} on"


def only_coarse(
    told: tuple[Explanation, ...], asked: Sequence[ExperimentRun], dtype: str | None
) -> tuple[Explanation, ...]:
    """The explanations, with the remark that only low-precision tokens are affected, if that is so."""
    failed = failed_of(asked)
    if not told or failed.keys() - {"low-precision tokens"} or "coarse-path-differs" in told[0].codes:
        return told
    first = told[0]
    message = f"{first.message[:-1]}, but only for {dtype} tokens: float32 tokens are correct."
    return (replace(first, codes=(*first.codes, "coarse-path-differs"), message=message), *told[1:])


def few_numbers(answer: Answer) -> str:
    """The positions and dimensions that are wrong, as a phrase, if they are few; else empty.

    Few means at most 8 rows, or 0.5 % of them.
    """
    wrong = answer.wrong[0, 0]
    rows = np.flatnonzero(wrong.any(axis=-1))
    if not len(rows) or len(rows) > max(8, len(wrong) // 200):
        return ""
    places = rows if answer.positions is None else np.broadcast_to(answer.positions, (1, 1, len(wrong)))[0, 0, rows]
    where = f"position {places[0]:,}" if len(rows) == 1 else f"{len(rows)} positions (the first is {places[0]:,})"
    channels = np.flatnonzero(wrong.any(axis=0))
    return f"{where}, in dimension{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels[:6]))}"


# For each dtype a position that it represents exactly, and rows of positions that it rounds to the first of the row.
# Positions half-way between two numbers of the dtype are rounded to even, which is the first of the row; truncation
# gives the same.
MERGED: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]] = {
    "bfloat16": (255, ((256, 257), (512, 513, 514))),
    "float16": (2047, ((2048, 2049), (4096, 4097, 4098))),
}


def collided(it: Any, faults: Mapping[str, Fault]) -> tuple[Explanation, ...]:
    """The explanation that positions are rounded to a coarse dtype, so that several give the same output; or empty."""
    for dtype, (before, merged) in MERGED.items():
        at = np.array([before, *(place for row in merged for place in row)])
        if at[-1] >= it.length:
            continue
        width = getattr(it.spec, "head_width", None) or it.spec.width
        token = np.random.default_rng(23).standard_normal(width).astype(np.float32).astype(np.float64)
        try:
            y = it(np.broadcast_to(token, (1, 1, len(at), width)).copy(), at)[0, 0]
        except (Refused, Unasked):
            continue
        rows = dict(zip(at.tolist(), y, strict=True))
        kept = [rows[place] for place in (before, *(row[0] for row in merged))]
        # A table that ends gives the same numbers at all of these positions, which is another fault.
        apart = not any(np.array_equal(one, next_one) for one, next_one in itertools.pairwise(kept))
        if apart and all(np.array_equal(rows[row[0]], rows[place]) for row in merged for place in row[1:]):
            same = f": a token gets the same values at {_pairs(merged)}. The rounding may hide other errors"
            return (explanation_of(faults["positions-rounded"], {"dtype": dtype, "first": merged[0][1]}, same),)
    return ()


def _pairs(merged: tuple[tuple[int, ...], ...]) -> str:
    return " and at ".join(f"{row[0]:,} as at {row[-1]:,}" for row in merged)
