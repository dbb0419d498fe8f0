"""Findings on scalings that are unknown, incomplete, or contradict the lengths and lists beside them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clockhands.auditing._edits import Edit, moved, replaced, together
from clockhands.auditing.findings._parts import AuditSubject, check, declared, places
from clockhands.auditing.findings._releases import OfRelease, scaled_as_released
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import LongRope
from clockhands.measures.ladders.base_bound import first_failing_distance
from clockhands.phrases import listed, nearest, spoken

_BY_ITSELF = "a scaling block with its numbers"


class UnknownScaling(Case, code="unknown-scaling"):
    known = ""

    def near(self) -> str | None:
        """The known scaling whose name is spelt most like the unknown one, if one is similar."""
        return nearest(next((str(value).lower() for _, value in self.stated), ""), self.known.split(", "), 0.7)

    def edit(self) -> Edit | None:
        place, near = self.place, self.meant or self.near()
        sure = "" if self.meant else ", if this scaling was meant"
        return replaced(place, near, f"Write {spoken(near)}{sure}.") if place and near else None


class IncompleteScaling(OfRelease, code=("incomplete-scaling", "missing-original")):
    missing = "a required key"


class FactorTimesOriginal(Case, code="factor-times-original"):
    declared_in = ""

    def lengths(self) -> str:
        """What is declared, as text."""
        told = [self.said()] if self.stated else []
        return ", ".join(told + ([f"{spoken(self.declared)} in {self.declared_in}"] if self.declared else []))


class LongropeSwapped(Case, code="longrope-swapped"):
    def keys(self) -> str:
        """The two keys."""
        return listed([name for name, _ in self.named])

    def edit(self) -> Edit | None:
        places = [name for name, _ in self.stated]
        if len(places) != 2:
            return None
        short, long = places
        aside = f"{short.rpartition('.')[0]}.swapped"
        steps = (moved(short, aside), moved(long, short), moved(aside, long))
        return together("Swap the two lists.", *steps)


# The largest known ratio of a trained length to the first failing distance of its ladder.
_PAST_BOUND = 20


@check
def wrong_original(subject: AuditSubject) -> Iterator[Case]:
    """An original length that cannot be the trained length."""
    resolved = subject.resolved
    context = resolved.context
    for code in resolved.codes:
        scaling = code.scaling or {}
        original, factor, kind = (scaling.get(name) for name in ("original", "factor", "type"))
        own = (place for place in places(code, "scaling") if place != resolved.source.get("context"))
        place = next((place for place in own if "original" in place), None)
        if context is None or place is None or not original or code.part not in ("text", "decoder"):
            continue
        if kind not in ("yarn", "llama3", "longrope") or not factor or original < context:
            continue
        if kind != "longrope" and scaled_as_released(subject):
            continue  # it is the context that was changed; only LongRoPE computes its magnitude from that
        evidence: dict[str, Any] = {place: original, **declared(resolved, "context")}
        evidence |= {"original": original, "context": context, "factor": factor}
        if original == context and kind == "yarn":
            first = first_failing_distance(_unscaled_rates(code), original // _PAST_BOUND + 1)
            if first is None:
                continue
            evidence |= {"first bad distance": first, "base": code.base, "pairs": (code.rotated or 0) // 2}
        elif original == context and kind == "longrope":
            scaling = code.spec.scaling if isinstance(code.spec, Rotary) else None
            if not isinstance(scaling, LongRope) or scaling.long == scaling.short:
                continue  # equal lists define a ladder of their own
            evidence["long list"] = max(scaling.long)
        elif factor <= 1:
            continue
        yield case_of("wrong-original", evidence, code.layers)


def _unscaled_rates(code: LayerEncoding) -> tuple[float, ...]:
    """The frequencies before scaling; empty if the base is not known."""
    pairs = (code.rotated or 0) // 2
    return () if code.base is None else tuple(code.base ** (-pair / pairs) for pair in range(pairs))


@check
def longrope_swapped(subject: AuditSubject) -> Iterator[Case]:
    """A short list with larger factors than the long one."""
    for part in subject.rotary_parts:
        for block in part.blocks():
            short, long = (_numbers(block.values.get(name)) for name in ("short_factor", "long_factor"))
            yield from swapped(short, long, block.said("short_factor", "long_factor"))


def swapped(short: Sequence[float], long: Sequence[float], said: Mapping[str, Any]) -> Iterator[Case]:
    """The finding that two lists are swapped, if the short one has the larger factors.

    Single pairs may be the other way round: the first numbers of Phi-3's long list are below those of its short one.
    """
    if short and len(short) == len(long) and max(short) > max(long) and sum(short) > sum(long):
        yield case_of("longrope-swapped", {**said, "largest short": max(short), "largest long": max(long)})


def _numbers(value: object) -> list[float]:
    # Integers may be too large for a float.
    if not isinstance(value, list) or not all(type(item) in (int, float) and abs(item) < 1e300 for item in value):
        return []
    return [float(item) for item in value]
