"""Explanation of a failure: every suspect gets the same inputs as the implementation, and those with equal output fit.

A suspect fits if every output of the implementation, right or wrong, is within the rounding bound of the suspect's. If
none fits, the suspect that leaves the smallest difference is reported, if that is almost nothing.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.calling import Refused
from clockhands.errors import ClockhandsError
from clockhands.faults import ROTARY, Fault, Suspect
from clockhands.testing._experiments import Answer, Asked, Unasked, failed_of, shares
from clockhands.testing.reports import UNDECIDED, Explanation

# Its own rounding, and that of the suspect's parameters where they were measured.
_ROOM = 2.0
# Where no suspect fits altogether: the part of the squared difference, or of the wrong numbers, that the best one may
# leave, and how much more the next best one must leave. A coarse rounding falls to the other side where an honest error
# comes before it, so a tenth of the numbers may.
_LEFT, _MISSED, _APART = 0.02, 0.1, 4.0


def fitting(
    asked: Sequence[Asked], suspects: Iterable[Suspect], build: Callable[[Suspect], object], *, whole: bool = False
) -> tuple[list[Suspect], str | None]:
    """The suspects that give these answers, and how well the best one does where none gives them to rounding.

    Where only the ``whole`` counts, none is told that leaves more than rounding.
    """
    found: list[Suspect] = []
    partial: list[tuple[float, Suspect]] = []
    for suspect in suspects:
        try:
            left, fits = _compared(asked, lambda suspect=suspect: build(suspect), whole or bool(found))
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
    return [best[1]], "this fault explains most of the errors, not all of them"


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
    # What the sentence of a second fault names stands under its code.
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


def _in_order(suspect: Suspect, faults: Mapping[str, Fault]) -> Sequence[_Told]:
    """The faults that a suspect has at once, in the order of the table of faults."""
    places = {code: place for place, code in enumerate(faults)}
    return sorted(suspect.each, key=lambda one: places[one[0][0]])


def told_of(fault: Fault, parameters: Mapping[str, Any], further: str = "") -> Explanation:
    """What one fault behaves like with these parameters, and what else is to be said of it."""
    message = f"{fault.sentence.format(**parameters)}{further}."
    return Explanation((fault.code,), message, fault.hint, fault.cases, parameters)


def _sentence_of(each: Sequence[_Told], faults: Mapping[str, Fault]) -> str:
    """What faults behave like that a suspect has at once."""
    said = []
    for codes, parameters in each:
        first, *others = (faults[code].sentence.format(**parameters) for code in codes)
        said.append(" and ".join([first, *(other.removeprefix("behaves ") for other in others)]))
    return ", and ".join(said)


# What asks of coarser tokens leave behind.
AFTER_COARSER = {"after low-precision tokens", "a model of low-precision tokens first"}


def of_any_code(it: Any, asked: Sequence[Asked], faults: Mapping[str, Fault]) -> tuple[Explanation, ...]:
    """What is told of a code of any kind by which experiments failed, in the words of its faults."""
    failed = failed_of(asked)
    if told := not_finite(asked):
        return told
    if it.called.changed:
        return (told_of(faults["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    if it.called.overwrites:
        return (told_of(faults["overwrites-its-answers"], {}),)
    after, coarse = AFTER_COARSER & failed.keys(), {"dtype": it.coarse}
    if not failed or not failed.keys() <= {*after, "low-precision tokens"}:
        return ()
    # Right before coarser tokens came, wrong after them.
    codes = ["cache-keeps-first-dtype"] * bool(after) + ["coarse-path-differs"] * ("low-precision tokens" in failed)
    return tuple(told_of(faults[code], coarse) for code in codes)


def not_finite(asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """Whether it gives back NaN or infinite numbers for tokens that are finite."""
    bad = [each for one in asked for each in one.answers if not np.isfinite(each.got).all()]
    if not bad:
        return ()
    longest = max(bad, key=lambda each: each.got.size)  # which says best where it begins
    what = "NaN" if np.isnan(longest.got).any() else "infinite numbers"
    where = _from_where(np.asarray(~np.isfinite(longest.got)).any(axis=-1), longest.positions)
    return (told_of(ROTARY["not-finite"], {"what": what, "where": where}),)


def _from_where(rows: Any, positions: np.ndarray | None) -> str:
    """Where bad rows begin, or which they are, in words; nothing where all are bad."""
    if positions is None or rows.all():
        return ""
    at = np.broadcast_to(positions, rows.shape)
    first = int(at[rows].min())
    if at[rows].size == 1 or not rows[at >= first].all():
        return f" at position {first:,}" if np.ptp(at[rows]) == 0 else f" at positions {first:,} and others"
    return f" from position {first:,} on"


def only_coarse(told: tuple[Explanation, ...], asked: Sequence[Asked], dtype: str | None) -> tuple[Explanation, ...]:
    """What was told, with the word that it is so for coarser tokens only, where it is."""
    failed = failed_of(asked)
    if not told or failed.keys() - {"low-precision tokens"} or "coarse-path-differs" in told[0].codes:
        return told
    first = told[0]
    message = f"{first.message[:-1]}, but only for {dtype} tokens: float32 tokens are correct."
    return (replace(first, codes=(*first.codes, "coarse-path-differs"), message=message), *told[1:])


def few_numbers(answer: Answer) -> str:
    """The few positions at which a code is wrong that is right elsewhere, in words."""
    wrong = answer.shares[0, 0] > 1
    rows = np.flatnonzero(wrong.any(axis=-1))
    if not len(rows) or len(rows) > max(8, len(wrong) // 200):
        return ""
    places = rows if answer.positions is None else np.broadcast_to(answer.positions, (1, 1, len(wrong)))[0, 0, rows]
    where = f"position {places[0]:,}" if len(rows) == 1 else f"{len(rows)} positions (the first is {places[0]:,})"
    channels = np.flatnonzero(wrong.any(axis=0))
    return f"{where}, in dimension{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels[:6]))}"


# Positions that become the first one of their row, and one before that stays what it is. Those in the middle of two
# numbers of the dtype go to the even one, which is the first of the row, as they do where they are cut off.
MERGED: Mapping[str, tuple[int, tuple[tuple[int, ...], ...]]] = {
    "bfloat16": (255, ((256, 257), (512, 513, 514))),
    "float16": (2047, ((2048, 2049), (4096, 4097, 4098))),
}


def collided(it: Any, faults: Mapping[str, Fault]) -> tuple[Explanation, ...]:
    """Whether the same token gets the same numbers at positions that a coarse dtype holds as one."""
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
        # A table that ends gives all of these the same numbers.
        apart = not any(np.array_equal(one, next_one) for one, next_one in itertools.pairwise(kept))
        if apart and all(np.array_equal(rows[row[0]], rows[place]) for row in merged for place in row[1:]):
            same = f": a token gets the same values at {_pairs(merged)}. The rounding may hide other errors"
            return (told_of(faults["positions-rounded"], {"dtype": dtype, "first": merged[0][1]}, same),)
    return ()


def _pairs(merged: tuple[tuple[int, ...], ...]) -> str:
    return " and at ".join(f"{row[0]:,} as at {row[-1]:,}" for row in merged)
