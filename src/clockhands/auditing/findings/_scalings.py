"""Findings on scalings that are unknown, incomplete, or contradict the lengths and lists beside them."""

from collections.abc import Iterator
from typing import Any

from clockhands.auditing._edits import Edit, moved, replaced, together
from clockhands.auditing.findings._kind import EXPECTED, Kind, listed, nearest, spoken
from clockhands.auditing.findings._parts import Audited, check, declared, in_a_file, rotary_parts
from clockhands.auditing.findings._releases import OfRelease, scaled_as_released
from clockhands.configs.resolved import Code
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling import LongRope
from clockhands.measures.ladders.base_bound import first_failing_distance

_BY_ITSELF = "a scaling block with its numbers"


class UnknownScaling(Kind, code="unknown-scaling"):
    title = "Unknown RoPE scaling type"
    severity = "error"
    hint = "Correct the name of the scaling, or use a release of clockhands that knows this scaling."
    blames = "file"
    known: str = ""
    meant: str | None = None

    def message(self) -> str:
        if self.meant is not None:
            return (
                f"{self.said()}, but the name of this scaling is {spoken(self.meant)}: runtimes that compare names"
                " letter by letter refuse the file or ignore the scaling."
            )
        known = f" (known scalings: {self.known})" if self.known else ""
        near = self._nearest_scaling()
        meant = f" Did you mean {spoken(near)}?" if near else ""
        return f"{self.said()}, which is not a known scaling{known}. No RoPE frequencies can be computed.{meant}"

    def edit(self) -> Edit | None:
        place, near = self.place, self.meant or self._nearest_scaling()
        sure = "" if self.meant else ", if this scaling was meant"
        return replaced(place, near, f"Write {spoken(near)}{sure}.") if place and near else None

    def _nearest_scaling(self) -> str | None:
        """The known scaling whose name is spelt most like the unknown one, if one is similar."""
        return nearest(next((str(value).lower() for _, value in self.stated), ""), self.known)


class IncompleteScaling(OfRelease, code="incomplete-scaling"):
    title = "RoPE scaling lacks required values"
    hint = (
        "Copy the whole scaling block from the model's original release. Runtimes fill in missing values differently."
    )
    blames = "file"
    missing: str = "a required key"

    def severity(self) -> str:
        return "note" if self.missing == _BY_ITSELF else "error"

    def message(self) -> str:
        if self.missing == _BY_ITSELF:
            numbers = "only the model's original code knows the numbers of this scaling"
            return f"{self.said()}: {numbers}. The audit did not compute the RoPE frequencies."
        return f"The scaling block ({self.said()}) lacks {self.missing}."


class MissingOriginal(OfRelease, code="missing-original"):
    title = "RoPE scaling lacks the original length"
    severity = "warning"
    hint = "Add original_max_position_embeddings with the length that the model was trained on before the scaling."
    blames = "file"
    used: Any = None

    def message(self) -> str:
        return (
            f"The scaling lacks the original length, so runtimes use {spoken(self.used)}"
            f" ({self.said()}). If the model was trained on shorter texts, every scaled RoPE frequency is wrong."
        )


class FactorTimesOriginal(Kind, code="factor-times-original"):
    title = "Factor x original length is not the declared context length"
    scaling: str | None = None
    switched_on_in: str | None = None
    factor_x_original: Any = None
    declared: Any = None
    declared_in: str = ""

    def hint(self) -> str:
        return (
            EXPECTED
            if self.severity() == "note"
            else "Copy factor, original length and context length from the model's original release."
        )

    def blames(self) -> str | None:
        return None if self.severity() == "note" else "ambiguous"

    def severity(self) -> str:
        return "note" if self.scaling == "llama3" or self.switched_on_in else "warning"

    def message(self) -> str:
        product = self.factor_x_original
        reach = (
            f"Factor x original length is {spoken(product)}, which differs"
            if product is not None
            else "Factor x original length differs"
        )
        if self.scaling == "llama3":
            tail = (
                "Models of the Llama-3 family are published with such a difference: their factor is tuned, not a ratio"
                " of lengths."
            )
        elif self.switched_on_in:
            tail = (
                f"The declared length is that of {self.switched_on_in}, which has no scaling, so the scaling was added"
                " by hand. Runtimes that use the declared length do not accept texts of the extended length."
            )
        else:
            tail = (
                "Runtimes that compute one of these numbers from the two others use another number than the file has."
            )
        told = [self.said()] if self.stated else []
        told += [f"{spoken(self.declared)} in {self.declared_in}"] if self.declared else []
        return f"{reach} from the declared length ({', '.join(told)}). {tail}"


class WrongOriginal(Kind, code="wrong-original"):
    title = "The original length of the RoPE scaling is wrong"
    severity = "warning"
    hint = "Write the length that the model was trained on before the scaling. The original release has this length."
    blames = "file"
    original: int
    context: int
    base: float
    pairs: int
    factor: float
    long_list: float | None = None
    first_bad_distance: int | None = None

    def message(self) -> str:
        original, context = spoken(self.original), spoken(self.context)
        if self.original > self.context:
            return (
                f"The original length of the scaling is {original}, more than the context length of {context}"
                f" ({self.said()}). The original length cannot be longer than the extended length."
            )
        if self.long_list:
            return (
                f"The original length of the scaling is {original}, equal to the context length ({self.said()}), so"
                f" the long list, with numbers up to {spoken(self.long_list)}, is never used, and the attention factor"
                " is 1. One of the two lengths is wrong."
            )
        if self.first_bad_distance:
            return (
                f"The original length of the scaling is {original}, equal to the context length. But with a base of"
                f" {spoken(self.base)} and {spoken(self.pairs)} pairs, a query scores a matching token below a random"
                f" token from distance {spoken(self.first_bad_distance)} on, so the true original length must be far"
                " shorter. With the wrong original length, the scaling changes the wrong pairs."
            )
        return (
            f"The original length of the scaling is {original}, equal to the context length ({self.said()}), but"
            f" the factor of the scaling is {spoken(self.factor)}. Either the context was not extended, or the"
            " extended length was written in place of the original length."
        )


class LongropeLists(Kind, code="longrope-lists"):
    title = "A LongRoPE list has the wrong number of entries"
    severity = "error"
    hint = "Copy the list from the model's original release. The list needs one number for each RoPE pair."
    blames = "file"
    numbers: int
    pairs: int

    def message(self) -> str:
        place, _ = self.stated[0]
        return (
            f"{place.rpartition(':')[2]} has {spoken(self.numbers)} numbers for {spoken(self.pairs)} RoPE pairs."
            " The list needs one number for each pair, so no RoPE frequencies can be computed."
        )


class LongropeSwapped(Kind, code="longrope-swapped"):
    title = "LongRoPE's short and long lists are swapped"
    severity = "warning"
    hint = "Swap the two lists: the long list must have the larger numbers."
    blames = "file"
    largest_short: float
    largest_long: float

    def message(self) -> str:
        places = listed([name for name, _ in self.named])
        return (
            f"The largest number of the short list is {spoken(self.largest_short)}, and the largest number of the long"
            " list"
            f" is {spoken(self.largest_long)}. The long list must have the larger numbers, so {places} are swapped."
        )

    def edit(self) -> Edit | None:
        places = [name for name, _ in self.stated]
        if len(places) != 2:
            return None
        short, long = places
        aside = f"{short.rpartition('.')[0]}.swapped"
        steps = (moved(short, aside, ""), moved(long, short, ""), moved(aside, long, ""))
        return together("Swap the two lists.", *steps)


# The largest known ratio of a trained length to the first failing distance of its ladder.
_PAST_BOUND = 20


@check
def wrong_original(subject: Audited) -> Iterator[Kind]:
    """An original length that cannot be the trained length."""
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
        yield WrongOriginal(evidence, code.layers)


def _unscaled_rates(code: Code) -> tuple[float, ...]:
    """The frequencies before scaling; empty if the base is not known."""
    pairs = (code.rotated or 0) // 2
    return () if code.base is None else tuple(code.base ** (-pair / pairs) for pair in range(pairs))


@check
def longrope_swapped(subject: Audited) -> Iterator[Kind]:
    """A short list with larger factors than the long one."""
    for part in rotary_parts(subject):
        for block in part.blocks():
            short, long = (_numbers(block.values.get(name)) for name in ("short_factor", "long_factor"))
            if not short or not long or len(short) != len(long):
                continue
            # Single pairs may be the other way round: the first numbers of Phi-3's long list are below those of its
            # short one.
            if max(short) > max(long) and sum(short) > sum(long):
                evidence = block.said("short_factor", "long_factor")
                yield LongropeSwapped({**evidence, "largest short": max(short), "largest long": max(long)})


def _numbers(value: object) -> list[float]:
    # Integers may be too large for a float.
    if not isinstance(value, list) or not all(type(item) in (int, float) and abs(item) < 1e300 for item in value):
        return []
    return [float(item) for item in value]
