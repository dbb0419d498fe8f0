"""What a target says about position: one `Code` for each group of layers, and what was noticed on the way."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# How the source of a value begins that no key holds, because it follows from others.
COMPUTED = "computed from "


@dataclass(frozen=True)
class Code:
    """One position code in one group of layers.

    A field that does not apply, or that cannot be known from what was read, is None. No field is guessed: ``source``
    says for each where it comes from.

    Attributes:
        part: ``text``, ``encoder``, ``decoder``, ``vision``, ``audio`` or ``other``.
        layers: ``"0-4,6-10"``; ``"input"`` for what is added once at the bottom; None if their number is unknown.
        kind: ``sinusoidal``, ``learned``, ``rotary``, ``alibi``, ``buckets``, ``relative``, ``none`` or None.
        spec: The spec that says all of it, where everything is known.
        layout: Which two channels form a pair.
        width: Channels of a head for rotary, of the model otherwise.
        rotated: How many of them turn.
        base: Ratio that spans the ladder, before any scaling.
        rates: Radians per token of each pair, at the length that was asked for.
        attention_factor: What cosine and sine are multiplied by.
        scaling: ``{"type", "factor", "original"}`` of the declared scaling.
        rows: Rows of a table.
        offset: Row of the first position.
        window: Tokens that a query of these layers can see.
        usable_length: Positions that the code can be asked for: rows of a table from the first position on, else the
            context that is declared.
        source: Field to where its value stands, such as ``config.json:rope_theta``.
    """

    part: str
    layers: str | None
    kind: str | None
    spec: object | None = None
    layout: str | None = None
    width: int | None = None
    rotated: int | None = None
    base: float | None = None
    rates: tuple[float, ...] | None = None
    attention_factor: float | None = None
    scaling: Mapping[str, Any] | None = None
    rows: int | None = None
    offset: int | None = None
    window: int | None = None
    usable_length: int | None = None
    source: Mapping[str, str] = field(default_factory=dict)

    @property
    def order(self) -> str | None:
        """Whether sine or cosine stands first, where the two are written into channels."""
        return getattr(self.spec, "order", None)

    def within(self, context: int | None, place: str | None) -> "Code":
        """The code with its usable length, in a part whose context is declared at a place."""
        if self.usable_length is not None or self.kind is None:
            return self
        if self.rows is not None and self.offset is not None and self.rows > self.offset:
            places = [self.source[name] for name in ("rows", "offset") if name in self.source]
            source = {"usable_length": " - ".join(dict.fromkeys(places))}
            return replace(self, usable_length=self.rows - self.offset, source={**self.source, **source})
        if context is None or self.rows is not None or place is None:
            return self
        return replace(self, usable_length=context, source={**self.source, "usable_length": place})

    def explained(self) -> "Code":
        """The code with a source for the values that follow from others."""
        source = dict(self.source)
        if self.rates is not None and "rates" not in source:
            known = (source.get(name) for name in ("base", "rotated" if self.kind == "rotary" else "width", "scaling"))
            parts = dict.fromkeys(part for part in known if part)
            source["rates"] = COMPUTED + ", ".join(parts)
        if self.attention_factor is not None and "attention_factor" not in source:
            # A scaling that has no factor of its own says so by its type.
            source["attention_factor"] = COMPUTED + (source.get("scaling") or "no scaling: 1").split(", ")[0]
        return replace(self, source=source)


@dataclass(frozen=True)
class Fact:
    """Something noticed while reading. What it means is for the audit to judge.

    Attributes:
        code: A stable name.
        evidence: ``file:key`` to the value that stands there, and plain words to what was computed or is allowed.
        layers: The layers that it is about, or None for the whole model.
    """

    code: str
    evidence: Mapping[str, Any]
    layers: str | None = None


@dataclass(frozen=True)
class Resolved:
    """All position codes of a target.

    Attributes:
        model_type: The type that the files name.
        context: Usable positions that the files declare.
        length: Tokens at which the rates hold.
        codes: One for each group of layers that shares a code.
        facts: What was noticed.
        source: Where ``model_type``, ``context`` and ``length`` come from.
        ignored: Place to value of the keys about position that nothing read.
    """

    model_type: str | None
    context: int | None
    length: int | None
    codes: tuple[Code, ...]
    facts: tuple[Fact, ...]
    source: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, Any] = field(default_factory=dict)


def layer_ranges(layers: Iterable[int]) -> str:
    """Layer numbers in the short form of the report.

    >>> layer_ranges([0, 1, 2, 3, 4, 6, 8, 9])
    '0-4,6,8-9'
    """
    spans: list[list[int]] = []
    for layer in layers:
        if spans and layer == spans[-1][1] + 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def layer_numbers(ranges: str) -> frozenset[int]:
    """Layer numbers out of the short form of the report; what is no number of a layer is none.

    >>> sorted(layer_numbers("0-2,6")), sorted(layer_numbers("input"))
    ([0, 1, 2, 6], [])
    """
    spans = [re.fullmatch(r"(\d+)(?:-(\d+))?", span) for span in ranges.split(",")]
    return frozenset(
        layer for span in spans if span is not None for layer in range(int(span[1]), int(span[2] or span[1]) + 1)
    )
