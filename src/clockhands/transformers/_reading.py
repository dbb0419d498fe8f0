"""Reads the position spec of a model or config, as its audit does."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing import audit
from clockhands.configs.resolved import TEXT, LayerEncoding, layer_numbers
from clockhands.encodings.mixtures import LayerCode, LayerMixture
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidValue


def spec_of(
    target: str | os.PathLike[str] | Mapping[str, Any] | object,
    *,
    part: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> LayerCode | LayerMixture:
    """The position encoding of a model, as `clockhands.audit` reads it.

    Args:
        target: A config of Transformers (``LlamaConfig()``), its dict, a model, a pipeline, or whatever else
            `clockhands.audit` takes.
        part: The part of a model with several: ``"encoder"``, ``"decoder"``, ``"vision"``, …; None for the text. Needed
            where encoder and decoder differ.
        overrides: Values that replace those of the config, as for `clockhands.audit`.

    Returns:
        The spec where all layers have the same; a `clockhands.mixtures.LayerMixture` where they differ, with one entry
        for each layer; None where no layer has a position encoding. For codes with learned values (a table, relative
        biases) it describes their shape. Windows do not belong to a spec: ``ch.audit(target).layers`` has them.

    Raises:
        InvalidValue: The config does not determine the encoding, and the message says what is missing; there is no such
            part; or codes are added to tokens and used in the layers at once.
        Unreadable: The target cannot be read.

    Source: the class of the type in Transformers 5.23 (``docs/runtimes.md``).

    >>> spec_of({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 5e5,
    ...          "num_hidden_layers": 2}).base
    500000.0
    """
    audited = audit(target, overrides=overrides)
    codes = _of_part(audited.layers, part)
    open_ones = [code for code in codes if not _decided(code)]
    if open_ones or not codes:
        raise InvalidValue(*_undecided(audited, codes, open_ones))
    specs = [(code, _spec(code)) for code in codes]
    alike = list(dict.fromkeys(spec for _, spec in specs))
    if len(alike) == 1:
        return alike[0]
    parts = list(dict.fromkeys(code.part for code in codes))
    if len(parts) > 1:
        raise InvalidValue(
            f"The parts of {audited.target} have different position encodings: {', '.join(parts)}.",
            f"Name one of them: part={parts[0]!r}.",
        )
    if any(code.layers in (None, "input") for code in codes):
        told = ", ".join(f"{code.kind} ({code.part}, {code.layers or 'all layers'})" for code in codes)
        raise InvalidValue(
            f"{audited.target} has several position encodings that no single spec holds: {told}.",
            "Read each from `ch.audit(target).layers`.",
        )
    layers = [layer_numbers(code.layers or "") for code in codes]
    place = {number: alike.index(spec) for numbers, (_, spec) in zip(layers, specs, strict=True) for number in numbers}
    missing = sorted(set(range(max(place) + 1)) - set(place))
    if missing or sum(map(len, layers)) != len(place):
        raise InvalidValue(
            f"{audited.target} does not say one encoding for each layer: {missing or 'some have several'}.",
            "`ch.audit(target).layers` has what each group of layers declares.",
        )
    return LayerMixture(tuple(alike), tuple(place[number] for number in range(len(place))))


def _of_part(codes: Iterable[LayerEncoding], part: str | None) -> list[LayerEncoding]:
    if part is not None:
        return [code for code in codes if code.part == part]
    codes = list(codes)
    text = [code for code in codes if code.part in TEXT]
    return text or [code for code in codes if code.part == "other"] or codes


def _decided(code: LayerEncoding) -> bool:
    return code.kind == "none" or (code.kind is not None and code.spec is not None)


def _spec(code: LayerEncoding) -> Any:
    """The spec at the trained length, for codes that do not depend on a length."""
    spec = code.spec
    if isinstance(spec, Rotary) and spec.length is not None:
        return replace(spec, length=None)
    return spec


def _undecided(audited: Any, codes: list[LayerEncoding], open_ones: list[LayerEncoding]) -> tuple[str, str]:
    if not codes:
        parts = sorted({code.part for code in audited.layers})
        return (
            f"{audited.target} declares no position encoding for this part; its parts are {parts or 'none'}.",
            "Leave `part` out, or name one of these.",
        )
    why = next((each for each in audited.findings if each.severity == "error"), None)
    why = why or next((each for each in audited.findings if each.code == "missing-value"), None)
    names = ("layout", "width", "rotated", "base", "rows", "offset")
    of_kind = {"rotary": names[:4], "learned": ("width", "rows", "offset"), "sinusoidal": ("width", "layout", "base")}
    code = open_ones[0]
    lacking = [name for name in of_kind.get(code.kind or "", ()) if getattr(code, name) is None]
    unknown = "kind" if code.kind is None else ", ".join(lacking) or "scaling"
    more = "" if why is None else f" {why.code}: {why.message}"
    return (
        f"The position encoding of {audited.target} is undecided in the part {code.part}: its {unknown} is not known."
        f"{more}",
        "Add what is missing to the config, or pass it as overrides={key: value}.",
    )
