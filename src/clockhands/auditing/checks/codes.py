"""What follows from the position codes themselves, whatever file they came from."""

import math
from collections.abc import Iterator
from typing import Any

from clockhands.auditing.checks.subject import Case, Subject, declared, in_a_file
from clockhands.measures.ladders.turning import completes
from clockhands.sources.resolved import Code, Resolved


def never_turning(subject: Subject) -> Iterator[Case]:
    """Pairs so slow that no training sequence showed the model their whole circle.

    Counted at the trained length, or at the length asked for where that is shorter. Pairs of rate 0 were stopped on
    purpose (a proportional ladder): they are told apart in the evidence and not counted.
    """
    resolved = subject.resolved
    for code in resolved.codes:
        length, place = _trained(code, resolved)
        if not code.rates or length is None or (code.kind == "sinusoidal" and _axes(code) > 1):
            continue  # how far a table goes along each of several axes, its rows alone do not say
        moving = [rate for rate in code.rates if rate > 0]
        slow = [rate for rate in moving if not completes(rate, length)]
        if not slow:
            continue
        evidence: dict[str, Any] = {
            "pairs that never complete a turn": len(slow),
            "pairs": len(code.rates),
            "length": length,
            "longest wavelength": 2 * math.pi / min(slow),
        }
        if code.part not in ("text", "other"):
            evidence["part"] = code.part  # the layers of two parts have the same numbers
        if len(moving) < len(code.rates):
            evidence["pairs that stand still on purpose"] = len(code.rates) - len(moving)
        yield "never-turning", evidence | declared(code, "base") | place, code.layers


def short_table(subject: Subject) -> Iterator[Case]:
    """Learned tables that end before the context that the file declares."""
    resolved = subject.resolved
    for code in resolved.codes:
        if code.kind != "learned" or code.rows is None or resolved.context is None or code.part not in _TEXT:
            continue
        offset = code.offset or 0
        if code.rows - offset < resolved.context:
            evidence = {"rows": code.rows, "offset": offset, "usable": code.rows - offset, "context": resolved.context}
            yield "short-table", evidence | declared(code, "rows") | declared(resolved, "context"), code.layers


def beyond_context(subject: Subject) -> Iterator[Case]:
    """A length that the caller asks for and that the file does not declare."""
    resolved = subject.resolved
    length, context = resolved.length, resolved.context
    originals = {(code.scaling or {}).get("original") for code in resolved.codes}
    if length is None or context is None or length <= context or length in originals:
        return  # an original length past the context is no wish of the caller's
    evidence: dict[str, Any] = {"length": length, "context": context}
    if any(code.kind == "learned" and code.part in _TEXT for code in resolved.codes):
        evidence["kind"] = "learned"
    yield "beyond-context", evidence | declared(resolved, "context"), None


_TEXT = ("text", "encoder", "decoder")


def _axes(code: Code) -> int:
    return getattr(code.spec, "number_of_axes", 1)


def _trained(code: Code, resolved: Resolved) -> tuple[int | None, dict[str, Any]]:
    """The length that a code was trained at, or the one asked for if that is shorter; and where it stands."""
    original = (code.scaling or {}).get("original")
    trained: int | None
    if original:
        places = [place for place in code.source.get("scaling", "").split(", ") if "original" in place]
        trained, place = original, {place: original for place in places[:1] if in_a_file(place)}
    elif code.rows is not None:
        trained, place = code.rows - (code.offset or 0), declared(code, "rows")
    elif code.part in _TEXT:
        trained, place = resolved.context, declared(resolved, "context")
    else:
        return None, {}
    # The length that was resolved is one that was asked for where the file itself does not lead to it.
    asked = None if resolved.length in (resolved.context, original) else resolved.length
    if asked is not None and code.part in _TEXT and (trained is None or asked < trained):
        return asked, declared(resolved, "length")
    return trained, place
