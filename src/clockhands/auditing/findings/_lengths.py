"""Findings on lengths: context and trained length, lengths that disagree, padding rows, positions in the dtype."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing.findings._parts import AuditSubject, check, declared, first_place, in_a_file, places
from clockhands.auditing.findings._rules import Case, case_of
from clockhands.configs.dialects import set_lengths
from clockhands.configs.resolved import SECOND, TEXT, LayerEncoding, Resolved
from clockhands.configs.section_fields import model_in
from clockhands.encodings.rotary import Rotary
from clockhands.formats.files import file_and_key
from clockhands.measures.ladders.base_bound import first_failing_distance
from clockhands.measures.ladders.turning import incomplete
from clockhands.phrases import listed, spoken

# Encodings that scalings in a config do not change.
_WITHOUT_SCALING = ("alibi", "buckets", "relative", "sinusoidal", "none")


class BeyondContext(Case, code="beyond-context"):
    set_in = "The requested length"


class SetBeyondContext(Case, code="set-beyond-context"):
    length = 0
    context = 0

    def lengths(self) -> str:
        """The lengths that are set, and the context, as text."""
        set_to = list(self.named)
        # The context comes first, if it is in a file.
        key = None if sum(value for _, value in set_to) == self.length else set_to.pop(0)[0]
        said = listed([f"{name} is {spoken(value)}" for name, value in set_to])
        together = f", together {spoken(self.length)}" if len(set_to) > 1 else ""
        context = "the context length" if key is None else f"{key}, the context length,"
        return f"{said}{together}, but {context} is {spoken(self.context)}"


class SlowPairs(Case, code="never-turning"):
    pairs_that_stand_still_on_purpose = 0

    def count(self) -> int:
        """All of them: the number of the property `turning`."""
        return self.pairs_that_never_complete_a_turn + self.pairs_that_stand_still_on_purpose


@check
def slow_pairs(subject: AuditSubject) -> Iterator[Case]:
    """Pairs so slow that they complete no rotation within any training sequence.

    Counted at the length of the code, as its properties are; layers with a window reach no angle beyond it. Pairs of
    frequency 0 are intended (proportional RoPE): they are a separate entry of the evidence and not counted.
    """
    for code in subject.resolved.codes:
        length = code.length
        if not code.rates or length is None or length == code.farthest or code.part in SECOND:
            continue  # a query with a window reaches no angle beyond it; second parts have the pairs of the attention
        if code.kind == "sinusoidal" and getattr(code.spec, "number_of_axes", 1) > 1:
            continue  # the rows alone do not show how long a table is along each of several axes
        moving = [rate for rate in code.rates_at(length) if rate > 0]
        slow = incomplete(moving, length)
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
        yield case_of(
            "never-turning", evidence | declared(code, "base") | _length_place(code, subject.resolved), code.layers
        )


@check
def set_beyond_context(subject: AuditSubject) -> Iterator[Case]:
    """A length for training, building or generating, set in another program's file, that exceeds its context."""
    resolved, opened = subject.resolved, subject.opened
    if opened.form != "dialect" or resolved.context is None:
        return
    learned = any(code.kind == "learned" and code.part in TEXT for code in resolved.codes)
    for values, row in set_lengths(opened.config or {}, opened.config_name or ""):
        length, stops = sum(values.values()), bool(row.get("stops"))
        if length <= resolved.context or (not stops and not learned and _scaled_to(resolved, whole=True) >= length):
            continue
        evidence: dict[str, Any] = {**declared(resolved, "context"), **values}
        evidence |= {"length": length, "context": resolved.context, "then": row["then"], "stops": stops}
        yield case_of("set-beyond-context", evidence | ({"kind": "learned"} if learned else {}))


def _seeing(resolved: Resolved) -> list[LayerEncoding]:
    """The rotary layers without a window: only they reach new distances, with or without a scaling."""
    return [code for code in resolved.codes if code.part in TEXT and code.kind == "rotary" and code.farthest is None]


def _scaled_to(resolved: Resolved, *, whole: bool = False) -> int:
    """The length that the scalings of all these layers cover; 0 if one has none, or does not say.

    Args:
        resolved: The model.
        whole: Whether a scaling without an original length covers the context times its factor, as intended in a file
            that sets a longer length itself.
    """
    codes = _seeing(resolved)
    if whole:
        known = [{name: value for name, value in (code.scaling or {}).items() if value is not None} for code in codes]
        held = ({"original": resolved.context, **each} for each in known)
        codes = [replace(code, scaling=scaling) for code, scaling in zip(codes, held, strict=True)]
    return min((code.scaled_to or 0 for code in codes), default=0)


@check
def beyond_context(subject: AuditSubject) -> Iterator[Case]:
    """A length from the caller or a training file that the config does not declare."""
    resolved = subject.resolved
    length, context = resolved.length, resolved.context
    originals = {(code.scaling or {}).get("original") for code in resolved.codes}
    if length is None or context is None or length <= context or length in originals:
        return  # an original length beyond the context is not a request of the caller
    reached = _scaled_to(resolved)
    if length == subject.opened.length and _scaled_to(resolved, whole=True) >= length:
        return  # a training file or a Modelfile that declares the scaling for its own length
    evidence: dict[str, Any] = {"length": length, "context": context}
    kinds = {code.kind for code in resolved.codes if code.part in TEXT}
    kinds = kinds - {"none"} or kinds
    if "learned" in kinds:
        evidence["kind"] = "learned"
    elif len(kinds) == 1 and not kinds.isdisjoint(_WITHOUT_SCALING):
        evidence["kind"] = kinds.pop()
    scaling = {(code.scaling or {}).get("type") for code in _seeing(resolved)}
    # Only for a linear scaling may a file include the factor in its context or not.
    perhaps = _scaled_to(resolved, whole=True) if not reached and scaling == {"linear"} else 0
    if max(reached, perhaps) > context:
        evidence |= {"scaling": next(iter(scaling)), "scaled to" if reached else "unless counted": reached or perhaps}
    if length == subject.opened.length and subject.opened.length_place:
        evidence["set in"] = subject.opened.length_place
    yield case_of("beyond-context", evidence | declared(resolved, "context"))


def _length_place(code: LayerEncoding, resolved: Resolved) -> dict[str, Any]:
    """The source of a code's length; empty if the caller gave it."""
    if code.length == code.farthest:
        return first_place(code, "window" if code.chunk is None else "chunk", code.farthest)
    if resolved.asked is not None and code.length == resolved.asked:
        return {}
    if code.rows is not None:
        return declared(code, "rows")
    if code.length == (code.scaling or {}).get("original") != resolved.context:
        return dict.fromkeys([place for place in places(code, "scaling") if "original" in place][:1], code.length)
    return declared(resolved, "context")


# Keys besides the context that give a text length. The trained length and the served length may differ.
_CONTEXT_KEYS = (
    "max_position_embeddings", "model_max_length", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx",
)  # fmt: skip
# Keys of documents beside a config with the same meaning.
_BESIDE = {
    "tokenizer_config.json": ("model_max_length",),
    "generation_config.json": ("max_length",),
    "params.json": ("max_position_embeddings", "max_seq_len"),
}
# Tokenizers without a length write int(1e30).
_NO_LENGTH = 10**15

# Families whose own releases declare a longer length next to the context that is served without extra memory or
# scaling.
PUBLISHED_SO: Mapping[str, str] = {
    "cohere": "Command-R declares 8,192 positions and a model_max_length of 131,072",
    "cohere2": "Command-R declares 8,192 positions and a model_max_length of 131,072",
    "qwen": "Qwen gives its training length as seq_length",
}

# Qwen's maintainers: the tokenizer's length is unrelated to the trained length (QwenLM/Qwen3#342).
_LONGEST_OF_FAMILY = "qwen"

# The first whole number that a dtype cannot represent.
_FIRST_LOST = {"bfloat16": 257, "float16": 2049}


@check
def base_below_bound(subject: AuditSubject) -> Iterator[Case]:
    """Ladders that score a matching token below a random one at a distance within the length of the code."""
    seen = set()
    for code in subject.resolved.codes:
        reach = code.length
        if reach is None or code.kind != "rotary" or code.part not in TEXT or not code.rates:
            continue
        if isinstance(code.spec, Rotary) and code.spec.blocks:
            continue  # a token has two position counters here, and no single distance describes them
        rates = with_still_pairs(code, reach)
        first = first_failing_distance(rates, reach)
        if first is None or (code.part, rates) in seen:
            continue
        seen.add((code.part, rates))
        evidence: dict[str, Any] = {"first failing distance": first, "reach": reach, "scaled": bool(code.scaling)}
        evidence |= declared(code, "base") or {"base": code.base}
        yield case_of("base-below-bound", evidence | _length_place(code, subject.resolved), code.layers)


def with_still_pairs(code: LayerEncoding, length: int) -> tuple[float, ...]:
    """The frequencies of all pairs of a head at a length: channels that are not rotated are pairs of frequency 0.

    They score a matching token the same at every distance: if they are half of a head, no distance fails.
    """
    rates = code.rates_at(length)
    still = 0 if code.width is None else max(code.width // 2 - len(rates), 0)
    return rates + (0.0,) * still


@check
def lengths_differ(subject: AuditSubject) -> Iterator[Case]:
    """Another length in the config or beside it than the context that is read."""
    resolved, opened = subject.resolved, subject.opened
    place = resolved.source.get("context", "").split(" ")[0]
    if resolved.context is None or not isinstance(opened.config, Mapping):
        return
    tables = [code for code in resolved.codes if code.kind == "learned"]
    # Rows before the first position are counted by some lengths.
    padded = {resolved.context + (code.offset or 0) for code in tables}
    told = {where for values, _ in set_lengths(opened.config, opened.config_name or "") for where in values}
    for where, other in _other_lengths(subject, place):
        if other > resolved.context and where in told:
            continue  # the program that the file is for decides what happens then
        if other in (resolved.context, *padded):
            continue
        evidence: dict[str, Any] = {"context": resolved.context, "other": other}
        if in_a_file(place):
            evidence[place] = resolved.context
        evidence[where] = other
        if other > resolved.context:
            evidence["leaves"] = "table" if any(code.part in TEXT for code in tables) else "context"
            because = _published(resolved, where, other)
            evidence |= {"because": because} if because else {}
        yield case_of("lengths-differ", evidence)


def _other_lengths(subject: AuditSubject, place: str) -> Iterator[tuple[str, int]]:
    opened = subject.opened
    file, path = file_and_key(place)
    if opened.form != "gguf" and file == opened.config_name:
        *outer, own = path.split(".")
        holder: Any = opened.config
        for key in outer:
            holder = holder.get(key) if isinstance(holder, Mapping) else None
        at = f"{file}:{''.join(f'{key}.' for key in outer)}"
        for key in _CONTEXT_KEYS:
            if key != own and isinstance(holder, Mapping):
                yield from _length(f"{at}{key}", holder.get(key))
    for name, keys in _BESIDE.items():
        document = opened.beside.get(name)
        for key in keys if document else ():
            for where, other in _length(f"{name}:{key}", (document or {}).get(key)):
                # The default generation length is short: only a length beyond the context is informative.
                if name != "generation_config.json" or other > (subject.resolved.context or 0):
                    yield where, other


def _length(place: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value < _NO_LENGTH:
        yield place, int(value)


def _published(resolved: Resolved, where: str, other: int) -> str | None:
    """Why a longer length next to the context is correct: the family is published so, or a scaling reaches it."""
    if resolved.model_type is not None and resolved.model_type in PUBLISHED_SO:
        return PUBLISHED_SO[resolved.model_type]
    if where.startswith("tokenizer_config.json:") and (resolved.model_type or "").startswith(_LONGEST_OF_FAMILY):
        return "Qwen's tokenizers give the length of the longest model of the family"
    for code in resolved.codes:
        factor = (code.scaling or {}).get("factor")
        if isinstance(factor, int | float) and math.isclose(other, factor * (resolved.context or 0), rel_tol=1e-6):
            return f"it is the context length times the factor {factor:g} of the declared scaling"
        if code.scaled_to == other:
            return f"it is the original length times the factor {factor:g} of the declared scaling"
    return None


@check
def padding_offset(subject: AuditSubject) -> Iterator[Case]:
    """Tables whose first rows belong to no position: texts must be shorter than the table."""
    for code in subject.resolved.codes:
        if code.kind != "learned" or not code.offset or code.rows is None or code.rows <= code.offset:
            continue
        evidence: dict[str, Any] = {"rows": code.rows, "offset": code.offset, "usable": code.rows - code.offset}
        if code.part != "text":
            evidence["part"] = code.part  # both parts of a model have the same numbers
        yield case_of("padding-offset", evidence | declared(code, "rows"), code.layers)


@check
def colliding_positions(subject: AuditSubject) -> Iterator[Case]:
    """Positions that are equal in the checkpoint's dtype, if a code is computed from them."""
    resolved, opened = subject.resolved, subject.opened
    computed = any(code.kind in ("rotary", "sinusoidal") and code.part in TEXT for code in resolved.codes)
    if resolved.context is None or not computed or opened.form == "gguf":
        return
    # The dtype that a config declares: at its top level, else in its text part.
    top, model = model_in(opened.config or {})
    held = {top: model, f"{top}text_config.": model.get("text_config")}
    declares = (
        (f"{opened.config_name}:{path}{key}", str(values[key]).removeprefix("torch."), values[key])
        for path, values in held.items()
        for key in ("dtype", "torch_dtype")
        if isinstance(values, Mapping) and isinstance(values.get(key), str)
    )
    place, dtype, value = next(declares, ("", "", None))
    first = _FIRST_LOST.get(dtype)
    if first is not None and resolved.context > first:
        evidence = {"dtype": dtype, "first": first, "context": resolved.context}
        yield case_of("colliding-positions", {**evidence, place: value})
