"""Scalings held against the lengths beside them, and their lists against each other."""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing.checks.parts import rotary_parts
from clockhands.auditing.checks.subject import Case, Subject, declared, in_a_file
from clockhands.measures.ladders.base_bound import first_failing_distance
from clockhands.rotary import Rotary
from clockhands.scaling import LongRope
from clockhands.sources.resolved import Code

# How many times longer than the first distance that a ladder fails at no training is known to have been.
_PAST_BOUND = 20


def wrong_original(subject: Subject) -> Iterator[Case]:
    """An original length that cannot be the length of the training."""
    resolved = subject.resolved
    context = resolved.context
    for code in resolved.codes:
        scaling = code.scaling or {}
        original, factor, kind = (scaling.get(name) for name in ("original", "factor", "type"))
        places = [
            place for place in code.source.get("scaling", "").split(", ") if place != resolved.source.get("context")
        ]
        place = next((place for place in places if "original" in place and in_a_file(place)), None)
        if context is None or place is None or not original or code.part not in ("text", "decoder"):
            continue
        if kind not in ("yarn", "llama3", "longrope") or not factor or original < context:
            continue
        evidence: dict[str, Any] = {place: original, **declared(resolved, "context")}
        evidence |= {"original": original, "context": context, "factor": factor}
        if original == context and kind == "yarn":
            first = first_failing_distance(_plain(code), original // _PAST_BOUND + 1)
            if first is None:
                continue
            evidence |= {"first bad distance": first, "base": code.base, "pairs": (code.rotated or 0) // 2}
        elif original == context and kind == "longrope":
            scaling = code.spec.scaling if isinstance(code.spec, Rotary) else None
            if not isinstance(scaling, LongRope) or scaling.long == scaling.short:
                continue  # lists that agree are a ladder of their own
            evidence["long list"] = max(scaling.long)
        elif factor <= 1:
            continue
        yield "wrong-original", evidence, code.layers


def _plain(code: Code) -> tuple[float, ...]:
    """The ladder before its scaling; empty where its base is not known."""
    pairs = (code.rotated or 0) // 2
    return () if code.base is None else tuple(code.base ** (-pair / pairs) for pair in range(pairs))


def longrope_swapped(subject: Subject) -> Iterator[Case]:
    """A short list that stretches more than the long one."""
    for part in rotary_parts(subject):
        for block in part.blocks():
            short, long = (_numbers(block.values.get(name)) for name in ("short_factor", "long_factor"))
            if not short or not long or len(short) != len(long):
                continue
            # Pair by pair the two may cross: the first numbers of Phi-3's long list are below those of its short one.
            if max(short) > max(long) and sum(short) > sum(long):
                evidence = block.said("short_factor", "long_factor")
                yield "longrope-swapped", {**evidence, "largest short": max(short), "largest long": max(long)}, None


def _numbers(value: object) -> list[float]:
    # Whole numbers may have more digits than a float holds.
    if not isinstance(value, list) or not all(type(item) in (int, float) and abs(item) < 1e300 for item in value):
        return []
    return [float(item) for item in value]
