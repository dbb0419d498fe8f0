"""Lengths: how far a ladder reaches, lengths that disagree, rows before the first position, what a dtype holds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing.checks.subject import Case, Subject, declared, in_a_file
from clockhands.measures.ladders.base_bound import first_failing_distance
from clockhands.rotary import Rotary
from clockhands.sources.resolved import Code, Resolved

TEXT = ("text", "encoder", "decoder")
"""Parts whose positions are those of tokens."""

# Keys beside the context that say how long a text may be. What a model was trained at and what it serves may differ.
_CONTEXT_KEYS = (
    "max_position_embeddings", "model_max_length", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx",
)  # fmt: skip
# Keys of documents beside a config that say the same.
_BESIDE = {
    "tokenizer_config.json": ("model_max_length",),
    "generation_config.json": ("max_length",),
    "params.json": ("max_position_embeddings", "max_seq_len"),
}
# Tokenizers without a length of their own write int(1e30).
_NO_LENGTH = 10**15

# Families whose own releases give a longer length beside the context that is served without more memory or a scaling.
PUBLISHED_SO: Mapping[str, str] = {
    "cohere": "Command-R declares 8,192 positions beside a model_max_length of 131,072",
    "cohere2": "Command-R declares 8,192 positions beside a model_max_length of 131,072",
    "qwen": "Qwen gives the length of its training as seq_length",
}

# Qwen's maintainers: the tokenizer's length has nothing to do with what the model was trained to (QwenLM/Qwen3#342).
_LONGEST_OF_FAMILY = "qwen"

# The first whole number that a dtype does not hold.
_FIRST_LOST = {"bfloat16": 257, "float16": 2049}


def base_below_bound(subject: Subject) -> Iterator[Case]:
    """Ladders whose pairs, at a distance within the context, score a like token below a random one."""
    context = subject.resolved.context
    seen = set()
    for code in subject.resolved.codes:
        if context is None or code.kind != "rotary" or code.part not in TEXT or not code.rates:
            continue
        if isinstance(code.spec, Rotary) and code.spec.blocks:
            continue  # a token stands at two counters, which no single distance describes
        rates = with_still_pairs(code, context)
        reach = context if code.window is None else min(context, code.window)
        first = first_failing_distance(rates, reach)
        if first is None or (code.part, rates) in seen:
            continue
        seen.add((code.part, rates))
        evidence: dict[str, Any] = {"first failing distance": first, "reach": reach, "scaled": bool(code.scaling)}
        evidence |= declared(code, "base") or {"base": code.base}
        place = declared(subject.resolved, "context")
        if reach != context:
            key = code.source.get("window", "").split(", ")[0]
            place = {key: code.window} if in_a_file(key) else {}
        yield "base-below-bound", evidence | place, code.layers


def with_still_pairs(code: Code, length: int) -> tuple[float, ...]:
    """The rates of all pairs of a head at a length: channels that do not turn are pairs of rate 0.

    They score a like token alike at every distance: where half of a head stands still no distance fails.
    """
    rates = rates_at(code, length)
    still = 0 if code.width is None else max(code.width // 2 - len(rates), 0)
    return rates + (0.0,) * still


def rates_at(code: Code, length: int) -> tuple[float, ...]:
    """The rates that are in use at a length: those of dynamic scalings and of LongRoPE depend on it."""
    if (code.scaling or {}).get("type") in ("dynamic", "longrope") and isinstance(code.spec, Rotary):
        return replace(code.spec, length=length).rates
    return code.rates or ()


def lengths_differ(subject: Subject) -> Iterator[Case]:
    """Another length in the config or beside it than the context that is read."""
    resolved, opened = subject.resolved, subject.opened
    place = resolved.source.get("context", "").split(" ")[0]
    if resolved.context is None or not isinstance(opened.config, Mapping):
        return
    for where, other in _other_lengths(subject, place):
        if other == resolved.context or _counts_padding(resolved, other):
            continue
        evidence: dict[str, Any] = {"context": resolved.context, "other": other}
        if in_a_file(place):
            evidence[place] = resolved.context
        evidence[where] = other
        if other > resolved.context:
            evidence["leaves"] = "table" if _has_table(resolved) else "context"
            because = _published(resolved, where, other)
            evidence |= {"because": because} if because else {}
        yield "lengths-differ", evidence, None


def _other_lengths(subject: Subject, place: str) -> Iterator[tuple[str, int]]:
    opened = subject.opened
    file, _, path = place.partition(":")
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
                # What is generated by default is a few tokens: only a length past the context says something of it.
                if name != "generation_config.json" or other > (subject.resolved.context or 0):
                    yield where, other


def _length(place: str, value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value < _NO_LENGTH:
        yield place, int(value)


def _has_table(resolved: Resolved) -> bool:
    return any(code.kind == "learned" and code.part in TEXT for code in resolved.codes)


def _counts_padding(resolved: Resolved, other: int) -> bool:
    """Whether a length is the context with the rows before the first position."""
    offsets = {code.offset for code in resolved.codes if code.kind == "learned" and code.offset}
    return any(other == (resolved.context or 0) + offset for offset in offsets)


def _published(resolved: Resolved, where: str, other: int) -> str | None:
    """Why a longer length beside the context is no fault: the family is published so, or a scaling reaches it."""
    if resolved.model_type is not None and resolved.model_type in PUBLISHED_SO:
        return PUBLISHED_SO[resolved.model_type]
    if where.startswith("tokenizer_config.json:") and (resolved.model_type or "").startswith(_LONGEST_OF_FAMILY):
        return "Qwen's tokenizers give the length of the longest model of the family"
    for code in resolved.codes:
        factor = (code.scaling or {}).get("factor")
        if isinstance(factor, int | float) and math.isclose(other, factor * (resolved.context or 0), rel_tol=1e-6):
            return f"it is the context times the factor {factor:g} of the declared scaling"
    return None


def padding_offset(subject: Subject) -> Iterator[Case]:
    """Tables whose first rows belong to no position: fewer texts fit than the table has rows."""
    for code in subject.resolved.codes:
        if code.kind != "learned" or not code.offset or code.rows is None or code.rows <= code.offset:
            continue
        evidence: dict[str, Any] = {"rows": code.rows, "offset": code.offset, "usable": code.rows - code.offset}
        if code.part != "text":
            evidence["part"] = code.part  # both parts of a model have the same numbers
        yield "padding-offset", evidence | declared(code, "rows"), code.layers


def colliding_positions(subject: Subject) -> Iterator[Case]:
    """Positions that the checkpoint's dtype cannot tell apart, where a code is computed from them."""
    resolved, opened = subject.resolved, subject.opened
    computed = any(code.kind in ("rotary", "sinusoidal") and code.part in TEXT for code in resolved.codes)
    if resolved.context is None or not computed or opened.form == "gguf":
        return
    for place, value in _dtypes(opened.config or {}, opened.config_name or ""):
        first = _FIRST_LOST.get(str(value).removeprefix("torch."))
        if first is not None and resolved.context > first:
            evidence = {"dtype": str(value).removeprefix("torch."), "first": first, "context": resolved.context}
            yield "colliding-positions", {**evidence, place: value}, None
        return


def _dtypes(config: Mapping[str, Any], file: str, path: str = "") -> Iterator[tuple[str, Any]]:
    """The dtype that a config declares: at its top, else in its text part."""
    for key in ("dtype", "torch_dtype"):
        if isinstance(config.get(key), str):
            yield f"{file}:{path}{key}", config[key]
    inner = config.get("text_config")
    if isinstance(inner, Mapping) and not path:
        yield from _dtypes(inner, file, "text_config.")
