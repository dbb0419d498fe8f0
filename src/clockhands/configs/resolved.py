"""The result of resolving a target: one `LayerEncoding` for each group of layers, and the facts noted while reading."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scores import ScoreScale

# How the source of a derived value begins, which is in no key.
COMPUTED = "computed from "

BY_LENGTH = ("longrope", "dynamic")
"""Scalings whose rates are others at another length."""

REGISTERED = "clockhands_"
"""What stands before the type of a scaling that `clockhands.transformers.register` gives to Transformers."""

TEXT = ("text", "encoder", "decoder")
"""Parts whose positions are those of tokens."""

LONGEST_SCALED = 1e15
"""Beyond this a product of a factor and a length is no length of a text."""

INDEXER = "indexer"
"""The part that chooses the keys of a sparse attention: it rotates queries and keys of its own."""

MTP = "mtp"
"""The layers for multi-token prediction, which follow those of the model and draft further tokens."""

SECOND = (INDEXER, MTP)
"""Parts that rotate as the attention of the text does: what holds for its pairs holds for theirs."""

_TOWERS = ("vision", "audio")
_AXES = {2: ("height", "width"), 3: ("temporal", "height", "width")}  # of an image, and of M-RoPE and videos


@dataclass(frozen=True)
class LayerEncoding:
    """One position code in one group of layers.

    A field that does not apply, or that is not known from what was read, is None. No field is guessed: ``source`` has
    the source of each.

    Attributes:
        part: ``text``, ``encoder``, ``decoder``, ``vision``, ``audio``, ``indexer``, ``mtp`` or ``other``.
        layers: ``"0-4,6-10"``; ``"input"`` for a code that is added to the embeddings; None if their number is unknown.
        kind: ``sinusoidal``, ``learned``, ``rotary``, ``alibi``, ``buckets``, ``relative``, ``none`` or None.
        spec: The complete spec, if everything is known.
        rotation: The spec of a rotary code as far as it is known: as ``spec``, but with halves where the layout is not
            known, and without a scaling that is not known.
        layout: Which two channels form a pair.
        width: Channels of a head for rotary, of the model otherwise.
        rotated: How many of them are rotated (RoPE dimensions).
        base: RoPE base (``rope_theta``), before any scaling.
        rates: RoPE frequency of each pair in radians per token, at the requested length.
        attention_factor: The factor on cosine and sine.
        scaling: ``{"type", "factor", "original"}`` of the declared scaling.
        rows: Rows of a table.
        offset: Row of the first position.
        window: Tokens that a query of these layers can see: the last ones, or those around it.
        two_sided: Whether the window lies on both sides of the query, as in encoders.
        chunk: Tokens of each chunk of a text, if a query of these layers only sees its own chunk.
        softmax_scale: What the product of a query and a key is multiplied by: 1 / sqrt(width of a head) in most types,
            the value of a key or a fixed number in others; None where it is not known.
        score_scale: An additional factor on the scores of these layers, which may depend on the position of the query.
        usable_length: Number of usable positions: rows of a table from the first position on, else the declared
            context.
        length: The length in tokens for all figures of a report on this code, see `Resolved.with_lengths`.
        source: The source of each field, such as ``config.json:rope_theta``.
        layer_kind: ``full``, ``sliding`` or ``chunked``, as the type or the file names these layers, whatever they see;
            None if neither does.
        either: The code of the sliding layers among these, if a file has a window but not the layers that use it.
        component: The object of the config that describes this part, such as ``talker``, if ``part`` alone does not
            tell which of several parts it is.
        window_area: Height and width, in patches, of the window of an image that a query of these layers can see.
        rotating_heads: How many heads of a layer rotate, if not all do.
        coordinates: What is rotated by if not by numbers of tokens: ``{"factor", "first", "last"}``, a factor times a
            coordinate that goes from the first to the last value over an image, whatever its size.
        placement: How the rows of a table are placed: ``interpolated`` to the size of an image, ``repeated`` over it,
            ``per axis`` (one row for its row and one for its column), the same ``in each tile``, or one ``per tile`` or
            ``per patch of each tile`` of each arrangement of tiles.
        positions_per_second: How many positions a second of sound or of a video takes.
        relative: The numbers of a code of relative distances: ``{"buckets", "max_distance", "rows", "two_sided",
            "terms"}``, those that are known, and ``"heads"`` of biases that no spec describes.
        assumed: Fields that hold only if the model's code is like Llama's, as nothing that was read says so.
    """

    part: str
    layers: str | None
    kind: str | None
    spec: object | None = None
    rotation: Rotary | None = None
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
    two_sided: bool = False
    chunk: int | None = None
    softmax_scale: float | None = None
    score_scale: ScoreScale | None = None
    usable_length: int | None = None
    length: int | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    layer_kind: str | None = field(default=None, compare=False)
    either: "LayerEncoding | None" = None
    component: str | None = None
    window_area: tuple[int, int] | None = None
    rotating_heads: int | None = None
    coordinates: Mapping[str, float] | None = None
    placement: str | None = None
    positions_per_second: int | None = None
    relative: Mapping[str, Any] | None = None
    assumed: tuple[str, ...] = ()

    @property
    def sections(self) -> dict[str, Any] | None:
        """The pairs of each position axis, if a rotary code has several axes; else None.

        ``axes`` are their names, ``pairs`` how many each has, and ``order`` their arrangement among the pairs of a
        head: ``consecutive``, ``interleaved`` (in turns), or ``mixed``. The axis of the first pair comes first.

        >>> from clockhands.encodings.rotary import Rotary, chunked
        >>> LayerEncoding("text", "0-3", "rotary", Rotary(128, axes=chunked([16, 24, 24]))).sections["pairs"]
        (16, 24, 24)
        >>> LayerEncoding("vision", "0-3", "rotary", Rotary(8, axes=(1, 1, 0, 0))).sections["axes"]
        ('width', 'height')
        """
        if not isinstance(self.spec, Rotary) or self.spec.axes is None:
            return None
        axes, number = self.spec.axes, self.spec.number_of_axes
        if self.counts_apart:
            names: tuple[str, ...] = ("position", "place in the block")
        else:
            names = _AXES.get(number) or tuple(f"axis {axis}" for axis in range(number))
        first = tuple(dict.fromkeys((*axes, *range(number))))
        pairs = tuple(map(axes.count, first))
        runs = tuple(axis for axis, size in zip(first, pairs, strict=True) for _ in range(size))
        turns = first * min(pairs)
        order = "consecutive" if axes == runs else "interleaved" if axes[: len(turns)] == turns else "mixed"
        return {"axes": tuple(names[axis] for axis in first), "pairs": pairs, "order": order}

    @property
    def scaled_to(self) -> int | None:
        """The length that the declared scaling covers: factor times original length; None if one is missing.

        >>> LayerEncoding("text", "0-3", "rotary", scaling={"type": "yarn", "factor": 4.0, "original": 32768}).scaled_to
        131072
        """
        factor, original = ((self.scaling or {}).get(name) for name in ("factor", "original"))
        if not isinstance(factor, int | float) or not original or not factor < LONGEST_SCALED / original:
            return None
        return max(round(factor * original), 0) or None

    @property
    def farthest(self) -> int | None:
        """How many positions a query can see in one direction, including itself; no distance is larger."""
        if self.chunk is not None or self.window is None:
            return self.chunk
        return self.window // 2 + 1 if self.two_sided else self.window

    @property
    def seen(self) -> str:
        """The positions that a query of these layers can see, as text."""
        if self.farthest is None:
            return "all positions"
        if self.chunk is not None:
            return f"chunks of {self.chunk:,} positions"
        if self.two_sided:
            return f"{self.farthest - 1:,} positions on either side"
        return f"the last {self.window:,} positions"

    @property
    def counts_apart(self) -> bool:
        """Whether the axes of a text do not advance together: ChatGLM counts tokens before a block and inside it."""
        return isinstance(self.spec, Rotary) and bool(self.spec.blocks) and self.part in TEXT and not self.bare

    @property
    def bare(self) -> bool:
        """Whether it is from a preset or the file of a spec, and not from a model."""
        return any(place.startswith(("preset ", "the spec in ")) for place in self.source.values())

    def at_length(self, length: int) -> "LayerEncoding":
        """The encoding in use at a length: that of dynamic scalings and of LongRoPE depends on it."""
        if not self.by_length or self.rotation is None or self.rotation.length == length or self.rates is None:
            return self
        rotation = replace(self.rotation, length=length)
        spec = None if self.spec is None else rotation
        factor = rotation.attention_factor
        return replace(self, spec=spec, rotation=rotation, rates=rotation.rates, attention_factor=factor)

    def rates_at(self, length: int) -> tuple[float, ...]:
        """The frequencies in use at a length."""
        return self.at_length(length).rates or ()

    @property
    def by_length(self) -> bool:
        """Whether the frequencies depend on the length."""
        return (self.scaling or {}).get("type") in BY_LENGTH

    @property
    def order(self) -> str | None:
        """Whether sine or cosine comes first, for codes that write both into channels."""
        return getattr(self.spec, "order", None)

    def within(self, context: int | None, place: str | None) -> "LayerEncoding":
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

    def explained(self) -> "LayerEncoding":
        """The code with a source for derived values."""
        source = dict(self.source)
        if self.rates is not None and "rates" not in source:
            known = (source.get(name) for name in ("base", "rotated" if self.kind == "rotary" else "width", "scaling"))
            parts = dict.fromkeys(part for part in known if part)
            source["rates"] = COMPUTED + ", ".join(parts)
        if self.attention_factor is not None and "attention_factor" not in source:
            # A scaling without a factor says so by its type.
            source["attention_factor"] = COMPUTED + (source.get("scaling") or "no scaling: 1").split(", ")[0]
        return replace(self, source=source)


@dataclass(frozen=True)
class Fact:
    """Something noted while reading; the audit decides what it means.

    Attributes:
        code: A stable name.
        evidence: Values in files by ``file:key``, and computed or allowed values by plain words.
        layers: The layers that it concerns, or None for the whole model.
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
        length: The length in tokens for which the frequencies are computed.
        asked: The length that the caller gave, if any.
        codes: One for each group of layers that shares a code.
        facts: What was noted while reading.
        source: Where ``model_type``, ``context`` and ``length`` come from.
        ignored: The values of position keys that were not read, by source.
        idle: Those of them that change nothing: they repeat what the codes do anyway.
        remarks: What the types of parts do with positions besides the codes: the part, and a clause.
        notes: What the model types do with positions that this library does not read, and choices, in sentences.
        not_covered: What the model types do with positions that this library does not read, in clauses.
    """

    model_type: str | None
    context: int | None
    length: int | None
    codes: tuple[LayerEncoding, ...]
    facts: tuple[Fact, ...]
    source: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, Any] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    asked: int | None = None
    notes: tuple[str, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    not_covered: tuple[str, ...] = ()

    def with_lengths(self) -> "Resolved":
        """The same with one length for each code, so that a report uses one length for each code.

        It is the length that the caller gave, else the number of usable positions. A model that is extended by a
        scaling is measured at its declared context, with the frequencies in use there, since people serve it at that
        length; the original length is named with the scaling. Where no context is declared, as in a preset, the
        original length is the only one known. Layers with a window are measured over the window if it is shorter: no
        query attends further. Towers for images or sound keep their own lengths, whatever length is given for the text.
        None if nothing is declared.

        >>> code = LayerEncoding("text", "0-3", "rotary", window=512, usable_length=8192)
        >>> Resolved(None, 8192, 8192, (code, replace(code, window=None)), ()).with_lengths().codes[0].length
        512
        """
        return replace(self, codes=tuple(replace(code, length=self._length_of(code)) for code in self.codes))

    def _length_of(self, code: LayerEncoding) -> int | None:
        tower = code.part in _TOWERS
        asked = None if tower and any(other.part not in _TOWERS for other in self.codes) else self.asked
        rows = None if code.rows is None else code.rows - (code.offset or 0)
        length = asked or code.usable_length or rows or (None if tower else self.context)
        original = (code.scaling or {}).get("original")
        if length is None and isinstance(original, int) and original > 0:
            length = original
        return length if code.farthest is None or length is None else min(length, code.farthest)


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


def numbered_layers(layers: Sequence[int]) -> str:
    """``layer 2`` or ``layers 0-3``."""
    return f"layer{'s' if len(layers) > 1 else ''} {layer_ranges(layers)}"


def layer_numbers(ranges: str) -> frozenset[int]:
    """Layer numbers from the short form of the report; other words give none.

    >>> sorted(layer_numbers("0-2,6")), sorted(layer_numbers("input"))
    ([0, 1, 2, 6], [])
    """
    spans = [re.fullmatch(r"(\d+)(?:-(\d+))?", span) for span in ranges.split(",")]
    return frozenset(
        layer for span in spans if span is not None for layer in range(int(span[1]), int(span[2] or span[1]) + 1)
    )
