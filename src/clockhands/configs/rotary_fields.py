"""Computes RoPE frequencies from the fields of a rotary config, for each group of layers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clockhands.configs._block_fields import RotaryBlocks, completed, conflict_code
from clockhands.configs._head_fields import HeadShapeParser
from clockhands.configs._layer_fields import LayerGroup, layer_groups
from clockhands.configs._scaling_fields import DeclaredScaling, ScalingContext, read_scaling, scaling_type
from clockhands.configs._score_fields import score_scale_of, with_scores, with_softmax_scale
from clockhands.configs._table_fields import patches_along
from clockhands.configs.fields import LONGEST, WIDEST_HEAD, Fields, Sourced, above_one, above_zero, code_from, value_of
from clockhands.configs.layer_rules import area_of
from clockhands.configs.model_types import CodeOfType, ModelType
from clockhands.configs.resolved import INDEXER, LayerEncoding
from clockhands.configs.section_fields import inner_base
from clockhands.encodings.ladders import Explicit, Geometric, Joined, Spacing, geometric
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.axes import interleaved
from clockhands.encodings.scaling import Dynamic, Linear, LongRope, Ntk, Proportional, Yarn
from clockhands.errors import ClockhandsError

ANOTHER_BASE = re.compile(r"(rope|rotary)_?\w*(theta|base)")
SCALED_OUTSIDE = re.compile(r"rope_scaling_\w")
# The key by which a converted config declares the layout of its weights, if the type has no other key for that.
LAYOUT_KEY = "clockhands_layout"
SWITCHES = ("use_scaled_rope", "use_dynamic_ntk")
BASE_ALLOWED = "a finite number above 1"
# The prefix of a grid whose columns come before its rows.
COLUMNS_FIRST = "columns "
# Time, rows and columns; a list of more sections repeats them.
COORDINATES = 3


@dataclass(frozen=True)
class RotaryResolver:
    """Reads the rotary codes of one part.

    Attributes:
        fields: The config of the part.
        known: Its type, or None for one that is not in the table.
        row: The code of that type.
        part: The part.
        length: The length that the caller gave, or None.
        shown: The layout that the code beside the config shows, for a type that is not in the table.
    """

    fields: Fields
    known: ModelType | None
    row: CodeOfType | None
    part: str
    length: int | None
    shown: Sourced[str] | None = None

    @property
    def architecture(self) -> str:
        """The source text for what follows from the type."""
        return self.known.architecture_source if self.known else ""

    @property
    def _defaults(self) -> str:
        """The source text for class defaults."""
        return self.known.default_source if self.known else ""

    def codes(self) -> list[tuple[LayerEncoding, int | None]]:
        """The codes, each with the original length of its scaling."""
        groups = layer_groups(self.fields, self.row, self.architecture, self.part)
        blocks = RotaryBlocks(self.fields, self.known, self.row, groups)
        found = []
        for group in groups:
            if group.kind == "none":
                because = self.architecture or group.source.get("layers") or self._rotary_because()
                source = {"kind": because, **group.source}
                code = LayerEncoding(
                    self.part, group.layers, "none", window=group.window, two_sided=group.two_sided, source=source
                )
                found.append((self._with_scores(code, blocks.of(group)), None))
            else:
                reader = self if group.own is None else replace(self, fields=group.own, row=_without_widths(self.row))
                found.append(reader.code(group, blocks.of(group)))
        return found

    def code(self, group: LayerGroup, block: Fields | None) -> tuple[LayerEncoding, int | None]:
        """The code of a group of layers, with the original length of its scaling."""
        flat = block is not None and not block.path.removesuffix(".").endswith(group.labels)
        if flat and self.row is not None and self.row.scaled and group.kind not in self.row.scaled:
            block = None
        heads = HeadShapeParser(self.fields, self.known, self.row)
        shape = heads.shape(block, group.kind, group.share)
        indexer = None if self.row is None else self.row.heads
        if indexer is not None:
            shape = replace(shape, width=self.fields.whole(indexer, most=WIDEST_HEAD))
        base = self._base(group, block)
        around = ScalingContext(
            context=self.fields.whole("context"),
            original=self.fields.whole("original"),
            pairs=shape.pairs,
            share=shape.share,
            aliases=self.row.aliases if self.row else {},
            allowed=self.row.scalings if self.row else (),
            alpha=self.row is not None and self.row.alpha,
        )
        declared = read_scaling(block if self.row is None else completed(block, self.row, self._defaults), around)
        if self.row is not None and self.row.fragile and isinstance(declared.scaling, Dynamic | Ntk | Yarn | LongRope):
            self._without_width()
        declared = grown(self.fields, self.row, declared, self.length)
        if self.row is not None and self.row.fitted and group.kind == "full":
            declared = fitted_to_windows(self.fields, self.row, declared)
        if self.known is None and not self._switches_are_complete():
            declared = replace(declared, known=False)
        code = code_from(
            self.part,
            group.layers,
            "rotary",
            {"kind": self.architecture or self._rotary_because(), **group.source, **declared.source},
            layout=self._layout(group.layers),
            width=shape.width,
            rotated=shape.rotated,
            base=base,
            context=around.context,
        )
        code = replace(
            code,
            scaling=declared.summary,
            window=group.window,
            two_sided=group.two_sided,
            chunk=group.chunk,
            layer_kind=group.kind,
            window_area=group.area,
        )
        times = self.fields.whole("per_second")
        if times is not None:
            source = {**code.source, "positions_per_second": times.source}
            code = replace(code, positions_per_second=times.value, source=source)
        if self.row is not None:
            code = replace(code, rotating_heads=self.row.rotating_heads, coordinates=self.row.coordinates)
        elif not heads.is_latent() and not any(map(self.fields.declares, ("rotated", "share"))):
            code = replace(code, assumed=("rotated", "rates"))
        last = (heads.is_latent() and indexer is None) or (self.row is not None and self.row.turning == "last")
        more: dict[str, Any] = {"part": "last"} if last else {}
        if self.row is not None:
            more["direction"] = self.row.direction
        axes = None if self.row is None or not shape.pairs else axes_of(block, self.row, shape.pairs, self.architecture)
        if axes is not None:
            code = replace(code, source={**code.source, "axes": axes.source})
            more["axes"] = axes.value
        if self.row is not None and self.row.grid and shape.pairs and code.base is not None:
            if shape.pairs % 2:
                width = Sourced(code.width, code.source["width"])
                self.fields.impossible_together(
                    "a whole number of pairs for rows and columns", width, layers=group.layers
                )
                return code, declared.original
            more |= in_grid(self.row.grid, shape.pairs, code.base)
        # Without its axes, a code of several axes would be another code with the same frequencies.
        whole = axes is None or axes.value is not None
        spacing = None
        if shape.counted is not None and code.base is not None:
            spacing = Geometric(code.base, span=shape.counted / 2)
        made = built(code, declared, self.fields, self.length, spacing=spacing, assumed=whole, more=more)
        return self._with_scores(made, block), declared.original

    def _with_scores(self, code: LayerEncoding, block: Fields | None) -> LayerEncoding:
        """The code with the scale of its scores, if its type has one; an indexer only ranks the keys."""
        if self.part == INDEXER:
            return code
        says = {} if self.known is None else self.known.scores
        if self.known is not None and code.kind == "rotary":
            # A file without an object for a part has the model that the class makes for it.
            made = self.known.sections.get(code.part, self.known.name)
            code = with_softmax_scale(code, made, self.fields)
        return with_scores(code, score_scale_of(says, self.fields, block, rotating=code.kind != "none"))

    def _without_width(self) -> None:
        """Note classes that do not derive the head width: for these scalings they read it from its key only."""
        if self.known is None or self.fields.declares("head_width"):
            return
        without = f"{self.known.library} fails to build this scaling for {self.known.name} models that leave it out"
        needed = {"missing": self.known.reads["head_width"][0], "needed for": "the scaling", "without it": without}
        self.fields.note("missing-value", needed)

    def _layout(self, layers: str | None) -> Sourced[str] | None:
        known, said = self._layout_of_type(), self.fields.values.get(LAYOUT_KEY)
        if said is None or self.part == INDEXER:  # a conversion only moves the rows of the main attention
            return known
        where = self.fields.source(LAYOUT_KEY)
        if said not in ("interleaved", "halves"):
            self.fields.note("unreadable-field", {where: said, "expected": "halves or interleaved"})
            return known
        if known is not None and known.value != said:
            self.fields.note("converted-layout", {where: said, "type": known.source, "pairs": known.value}, layers)
        return Sourced(said, where)

    def _layout_of_type(self) -> Sourced[str] | None:
        """The layout of the class of this type, whatever a conversion did."""
        if self.row is None or self.row.layout is None:
            return self.shown
        flag = self.fields.flag("interleave")
        if flag is not None and flag.value is False:
            return Sourced("halves", flag.source)
        return Sourced(self.row.layout, self.architecture)

    def _rotary_because(self) -> str:
        for quantity in ("base", "local_base", "blocks", "share", "rotated"):
            found = self.fields.raw(quantity)
            if found is not None:
                return found.source
        return "the fields of the config"

    def _base(self, group: LayerGroup, block: Fields | None) -> Sourced[float] | None:
        quantity = (self.row.bases if self.row else {}).get(group.kind, "base")
        if self.known is None and self._further_bases():
            return None
        if self.known is None and self.fields.declares("local_base"):
            if group.pattern:
                quantity = "local_base" if group.kind == "sliding" else "base"
            else:
                self.fields.missing("layer_types", "which layers take which base")
                return None
        if group.base is not None:
            return group.base
        if self.known is not None and quantity in self.known.fixed:
            return multiplied(self.fields, Sourced(self.known.fixed[quantity], self.architecture))
        inner = None if block is None else block.number("base", above_one, BASE_ALLOWED)
        if inner is not None and not self.fields.declares(quantity):
            return inner
        outer = self.fields.number(quantity, above_one, BASE_ALLOWED)
        if inner is not None:
            if outer is not None and outer.value != inner.value:
                code = conflict_code(inner.source)
                self.fields.conflict(inner, outer, inner, code=code, layers=group.layers)
            return inner
        if outer is not None and self.row is not None and group.kind in self.row.lost:
            self._lost(group, quantity, outer)
        if outer is None and self.row is not None and not self.row.formula:
            return None  # such frequencies may need none
        if outer is None:
            missing = (self.fields.spellings.get(quantity) or ("base",))[0]
            self.fields.missing(missing, "the frequencies")
        elif not self.fields.declares(quantity) and self.known is not None and not inner_base(self.fields, self.known):
            evidence: dict[str, Any] = {self.fields.source(key): None for key in self.fields.written(quantity)}
            evidence |= {"used": outer.value, "default of": self.known.title}
            evidence |= self._plausible_for(quantity, block)
            layers = group.layers if quantity != "base" else None
            self.fields.note("default-base", {**evidence, "documented": True}, layers)
        return outer

    def _plausible_for(self, quantity: str, block: Fields | None) -> dict[str, Any]:
        """What a default base can be compared with: the length, the scaling and the window."""
        context, kind = self.fields.whole("context"), scaling_type(block)
        switch, window = self.fields.flag("window_on"), self.fields.whole("window", least=0)
        off = (switch is not None and switch.value is False) or (
            bool(self.fields.written("window"))
            and not self.fields.declares("window")  # null: no window, not even the default one
        )
        slides = window is not None and window.value and not off
        keys = self.fields.spellings.get(quantity, ())
        if not self.fields.declares("context"):
            context = None  # a length that the class has beside its base says nothing against that base
        if self.known is not None and self.known.trains:
            context = kind = None  # the base that is used is the one that is trained
        return {
            "belongs at": self.fields.source(keys[0]) if keys else None,
            "context": value_of(context),
            "scaling": value_of(kind),
            "window": value_of(window) if slides else None,
        }

    def _lost(self, group: LayerGroup, quantity: str, outer: Sourced[float]) -> None:
        """A base at the top level of a config that the class only gives to other layers; these get its default."""
        default = None if self.known is None else self.known.defaults.get(quantity)
        if self.known is None or not self.fields.declares(quantity) or default in (None, outer.value):
            return
        because = (
            f"{self.known.class_title} gives it to the layers that see all, and the class default to these; this audit"
            " gives it to both"
        )
        self.fields.ignored(outer.source, outer.value, because, f"{default:,.0f}", group.layers)

    def _further_bases(self) -> bool:
        """Bases under keys that no common parser knows: some layers use them, and which ones is not stated."""
        known = {key for name in ("base", "local_base") for key in self.fields.spellings.get(name, ())}
        further = [key for key in self.fields.values if key not in known and ANOTHER_BASE.search(str(key))]
        further = [key for key in further if isinstance(self.fields.values[key], int | float)]
        for key in further:
            value = {self.fields.source(key): self.fields.values[key]}
            self.fields.missing("which layers take this base", "the frequencies", **value)
        return bool(further)

    def _switches_are_complete(self) -> bool:
        """Whether no key outside the block switches on a scaling whose numbers the file lacks."""
        held = [key for key in SWITCHES if self.fields.values.get(key) is True]
        held += [key for key in self.fields.values if SCALED_OUTSIDE.match(str(key)) and self.fields.values[key]]
        for key in held:
            evidence = {self.fields.source(key): self.fields.values[key], "missing": "a scaling block with its numbers"}
            self.fields.note("incomplete-scaling", evidence)
        # A dynamic scaling does not change the frequencies at the trained length.
        return not held or (held == ["use_dynamic_ntk"] and self.length is None)


def _without_widths(row: CodeOfType | None) -> CodeOfType | None:
    """The code of a type in a file that declares the head width of each layer."""
    return None if row is None else replace(row, widths={})


def built(
    code: LayerEncoding,
    declared: DeclaredScaling,
    fields: Fields,
    length: int | None,
    *,
    spacing: Spacing | None = None,
    assumed: bool = True,
    more: Mapping[str, Any] | None = None,
) -> LayerEncoding:
    """The code with its frequencies, or without them and with a fact if they cannot be computed.

    Args:
        code: What is known about it.
        declared: Its scaling.
        fields: Where facts go.
        length: The length in tokens for which frequencies are computed.
        spacing: Its frequencies, if they are not the geometric ladder of its base.
        assumed: Whether everything in a spec is known.
        more: Further fields of the spec.
    """
    if code.width is None or code.rotated is None or (code.base is None and spacing is None):
        return code
    # Such a ladder covers the whole head, or the whole rotated part of a head of two parts.
    proportional = isinstance(declared.scaling, Proportional) and (more or {}).get("part") != "last"
    regimes = isinstance(declared.scaling, Dynamic | LongRope)
    try:
        spec = Rotary(
            code.width,
            "halves" if code.layout is None else code.layout,  # type: ignore[arg-type]
            rotated=code.width if proportional else code.rotated,
            scaling=declared.scaling,
            length=length if regimes and length is not None and length <= LONGEST else None,
            **{"base": code.base if spacing is None else None, "spacing": spacing, **(more or {})},
        )
    except ClockhandsError as error:
        if declared.known:
            evidence = {
                code.source[name]: getattr(code, name) for name in ("width", "rotated", "base") if name in code.source
            }
            fields.note("impossible-value", {**evidence, **declared.values, "allowed": error.message}, code.layers)
        return code
    if not declared.known:
        return replace(code, rotation=spec)
    whole = spec if code.layout is not None and assumed else None
    return replace(code, spec=whole, rotation=spec, rates=spec.rates, attention_factor=spec.attention_factor)


def grown(fields: Fields, row: CodeOfType | None, declared: DeclaredScaling, length: int | None) -> DeclaredScaling:
    """The declared scaling, or the one that the code of the type adds if a switch of the config is on.

    Two kinds are known. ``doubling`` (Qwen): NTK-aware scaling by ``2 ** ceil(log2(L / L0) + 1) - 1`` for a text of
    ``L`` tokens and a training length of ``L0``. ``other``: by a formula that this library does not have; beyond ``L0``
    the frequencies are then unknown.

    Args:
        fields: The config of the part.
        row: The code of its type.
        declared: The scaling of its block.
        length: The length in tokens for which frequencies are computed, or None.
    """
    if row is None or row.growth is None:
        return declared
    switch, trained = fields.flag("growing"), fields.whole("trained")
    if switch is None or switch.value is not True or trained is None or trained.value is None:
        return declared
    summary = {"type": "dynamic", "factor": None, "original": trained.value} if fields.declares("growing") else None
    source = {"scaling": ", ".join(dict.fromkeys((switch.source, trained.source)))}
    if length is None or length <= trained.value:
        return DeclaredScaling(None, summary, original=trained.value, source=source)
    if row.growth == "doubling":
        factor = 2.0 ** math.ceil(math.log2(length / trained.value) + 1) - 1
        return DeclaredScaling(Ntk(factor), summary, original=trained.value, source=source)
    missing = "the formula by which the model's code stretches longer texts"
    fields.missing(missing, "the frequencies", **{trained.source: trained.value})
    return DeclaredScaling(None, summary, known=False, original=trained.value, source=source)


def fitted_to_windows(fields: Fields, row: CodeOfType, declared: DeclaredScaling) -> DeclaredScaling:
    """The scaling of layers that see all of an image, if their positions go as far as those inside a window (SAM 3)."""
    area, across = area_of(fields, row), patches_along(fields)
    if area is None or across is None or area.value is None or across.value is None:
        return declared if area is None else replace(declared, known=False)
    factor = across.value[1] / area.value[1]
    if factor == 1:
        return declared
    summary = {"type": "linear", "factor": factor, "original": None}
    return DeclaredScaling(Linear(factor), summary, source={"scaling": f"{across.source} / {area.source}"})


def multiplied(fields: Fields, base: Sourced[float] | None) -> Sourced[float] | None:
    """A base times the ratio that the config gives for it (ChatGLM), if its type reads one."""
    ratio = fields.number("base_ratio", above_zero, "a number above 0")
    if base is None or base.value is None or ratio is None or ratio.value in (None, 1.0):
        return base
    return Sourced(base.value * ratio.value, f"{base.source} x {ratio.source}")


def axes_of(block: Fields | None, row: CodeOfType, pairs: int, type_source: str) -> Sourced[tuple[int, ...]] | None:
    """The axis of each pair, or None for a type whose tokens have one position.

    The value is None if the declared sections cannot be used, which is a fact.

    Args:
        block: The rotary block of the config.
        row: The code of the type: the order of its sections, and those that its class takes where none are declared.
        pairs: How many pairs are rotated.
        type_source: The source text for what follows from the type.
    """
    if row.sections is None:
        return None
    declared = None if block is None else block.items("sections")
    if declared is None or block is None:
        return Sourced(axes_in_order(row.section_sizes, row.sections, pairs), type_source)
    if declared.value is None:
        return Sourced(None, declared.source)
    axes = axes_in_order(declared.value, row.sections, pairs)
    if axes is None:
        if all(type(size) is int and size >= 0 for size in declared.value) and len(declared.value) >= COORDINATES:
            evidence = {declared.source: declared.value, "together": sum(declared.value), "pairs": pairs}
            block.note("mrope-sections", {**evidence, "order": row.sections})
        else:
            key = block.key_of(declared)
            order = "side by side" if row.sections == "chunked" else "interleaved"
            block.impossible(key, f"pairs of time, rows and columns, {order}, {pairs} together")
    return Sourced(axes, f"{declared.source}, {type_source}")


def in_grid(order: str, pairs: int, base: float) -> dict[str, Any]:
    """The fields of a rotary spec that rotates half of its pairs by rows, half by columns.

    Args:
        order: ``together``, where all pairs share one layout, ``apart``, where each half is a layout of its own, ``in
            turns``, where a pair of the rows and one of the columns follow each other, or ``dealt``, where rows take
            every other frequency of one ladder and columns the rest (Pixtral). After ``columns ``, columns come first.
        pairs: How many pairs are rotated, an even number.
        base: Base of both ladders.
    """
    rows, columns = (1, 0) if order.startswith(COLUMNS_FIRST) else (0, 1)
    half, order = pairs // 2, order.removeprefix(COLUMNS_FIRST)
    if order == "dealt":
        rates = geometric(pairs, base).rates
        return {"base": None, "spacing": Explicit(rates[::2] + rates[1::2]), "axes": (rows,) * half + (columns,) * half}
    if order == "in turns":
        each = Explicit(tuple(rate for rate in geometric(half, base).rates for _ in range(2)))
        return {"base": None, "spacing": each, "axes": (rows, columns) * half}
    spacing = Joined(((half, Geometric(base)), (half, Geometric(base))))
    blocks = (half, half) if order == "apart" else ()
    return {"base": None, "spacing": spacing, "axes": (rows,) * half + (columns,) * half, "blocks": blocks}


def axes_in_order(sizes: object, order: str, pairs: int) -> tuple[int, ...] | None:
    """The axis of each pair for sections of these sizes, ``chunked`` or ``interleaved``; None if they do not fit."""
    if not isinstance(sizes, list | tuple) or not all(type(size) is int and 0 <= size <= pairs for size in sizes):
        return None
    while len(sizes) > COORDINATES and sizes[-1] == 0:  # a fourth section, as in GGUF files
        sizes = sizes[:-1]
    if sum(sizes) != pairs or len(sizes) < COORDINATES or len(sizes) > pairs:
        return None
    if order == "chunked":
        axes = tuple(place % COORDINATES for place, size in enumerate(sizes) for _ in range(size))
    else:
        try:
            axes = interleaved(sizes[:COORDINATES]) if len(sizes) == COORDINATES else ()
        except ClockhandsError:
            return None
    return axes if set(axes) == set(range(COORDINATES)) else None
