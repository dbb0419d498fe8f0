"""From the fields of a rotary config to its ladder, one for each group of layers."""

import re
from dataclasses import dataclass, replace
from typing import Any

from clockhands.ladders import Geometric
from clockhands.scaling import Dynamic, LongRope, Ntk, Yarn
from clockhands.sources.axis_fields import axes_of, in_grid
from clockhands.sources.block_fields import Blocks, completed, conflict
from clockhands.sources.fields import Fields, Found
from clockhands.sources.growth_fields import grown, multiplied
from clockhands.sources.head_fields import HeadReader
from clockhands.sources.ladder_fields import built
from clockhands.sources.layer_fields import Group, layer_groups
from clockhands.sources.model_types import ModelType, Row
from clockhands.sources.resolved import Code
from clockhands.sources.scaling_fields import Surroundings, read_scaling, scaling_type
from clockhands.sources.section_fields import inner_base

ANOTHER_BASE = re.compile(r"(rope|rotary)_?\w*(theta|base)")
SCALED_OUTSIDE = re.compile(r"rope_scaling_\w")
# Under this key a converted config says how its weights pair, where the type has no key of its own for that.
LAYOUT_KEY = "clockhands_layout"
SWITCHES = ("use_scaled_rope", "use_dynamic_ntk")
BASE_ALLOWED = "a finite number above 1"


@dataclass(frozen=True)
class Reader:
    """What reads the rotary codes of one part.

    Attributes:
        fields: The config of the part.
        known: Its type, or None for one that is not in the table.
        row: The code of that type.
        part: The part.
        length: The length that the caller asks for, or None.
    """

    fields: Fields
    known: ModelType | None
    row: Row | None
    part: str
    length: int | None

    @property
    def architecture(self) -> str:
        """The source of what follows from the type."""
        return self.known.architecture_source if self.known else ""

    @property
    def _defaults(self) -> str:
        """The source of what the class takes for what is absent."""
        return self.known.default_source if self.known else ""

    def codes(self) -> list[tuple[Code, int | None]]:
        """The codes, each with the original length of its scaling."""
        groups = layer_groups(self.fields, self.row, self.architecture)
        blocks = Blocks(self.fields, self.row, groups, self._defaults)
        found = []
        for group in groups:
            if group.kind == "none":
                source = {
                    "kind": self.architecture or group.source.get("layers") or self._rotary_because(),
                    **group.source,
                }
                found.append((Code(self.part, group.layers, "none", source=source), None))
            else:
                found.append(self._code(group, blocks.of(group)))
        return found

    def _code(self, group: Group, block: Fields | None) -> tuple[Code, int | None]:
        flat = block is not None and not block.path.removesuffix(".").endswith(group.labels)
        if flat and self.row is not None and self.row.scaled and group.kind not in self.row.scaled:
            block = None
        heads = HeadReader(self.fields, self.known, self.row)
        shape = heads.shape(block, group.kind)
        base = self._base(group, block)
        around = Surroundings(
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
        if self.known is None and not self._switches_are_complete():
            declared = replace(declared, known=False)
        layout = self._layout(group.layers)
        source = {"kind": self.architecture or self._rotary_because(), **group.source, **declared.source}
        for name, value in (("layout", layout), ("width", shape.width), ("rotated", shape.rotated), ("base", base)):
            if value is not None:
                source[name] = value.source
        if around.context is not None:
            source["context"] = around.context.source
        code = Code(
            self.part,
            group.layers,
            "rotary",
            layout=_value(layout),
            width=_value(shape.width),
            rotated=_value(shape.rotated),
            base=_value(base),
            scaling=declared.summary,
            window=group.window,
            source=source,
        )
        last = heads.is_latent() or (self.row is not None and self.row.turning == "last")
        more: dict[str, Any] = {"part": "last"} if last else {}
        axes = None if self.row is None or not shape.pairs else axes_of(block, self.row, shape.pairs, self.architecture)
        if axes is not None:
            code = replace(code, source={**code.source, "axes": axes.source})
            more["axes"] = axes.value
        if self.row is not None and self.row.grid and shape.pairs and code.base is not None:
            if shape.pairs % 2:
                evidence = {code.source["width"]: code.width, "allowed": "a whole number of pairs for rows and columns"}
                self.fields.note("impossible-value", evidence, group.layers)
                return code, declared.original
            more |= in_grid(self.row.grid, shape.pairs, code.base)
        # Without its axes a code of several is another code, with the same ladder.
        whole = axes is None or axes.value is not None
        spacing = None
        if shape.counted is not None and code.base is not None:
            spacing = Geometric(code.base, span=shape.counted / 2)
        made = built(code, declared, self.fields, self.length, spacing=spacing, assumed=whole, more=more)
        return made, declared.original

    def _without_width(self) -> None:
        """Some classes divide nothing: at these scalings they take the width of a head from its key alone."""
        if self.known is None or self.fields.declares("head_width"):
            return
        without = f"{self.known.library} fails to build this scaling for {self.known.name} models that leave it out"
        needed = {"missing": self.known.reads["head_width"][0], "needed for": "the scaling", "without it": without}
        self.fields.note("missing-value", needed)

    def _layout(self, layers: str | None) -> Found[str] | None:
        known, said = self._layout_of_type(), self.fields.values.get(LAYOUT_KEY)
        if said is None:
            return known
        where = self.fields.source(LAYOUT_KEY)
        if said not in ("interleaved", "halves"):
            self.fields.note("unreadable-field", {where: said, "expected": "halves or interleaved"})
            return known
        if known is not None and known.value != said:
            self.fields.note("converted-layout", {where: said, "type": known.source, "pairs": known.value}, layers)
        return Found(said, where)

    def _layout_of_type(self) -> Found[str] | None:
        """How the class of this type pairs channels, whatever a conversion did."""
        if self.row is None or self.row.layout is None:
            return None
        flag = self.fields.flag("interleave")
        if flag is not None and flag.value is False:
            return Found("halves", flag.source)
        return Found(self.row.layout, self.architecture)

    def _rotary_because(self) -> str:
        for quantity in ("base", "local_base", "blocks", "share", "rotated"):
            found = self.fields.raw(quantity)
            if found is not None:
                return found.source
        return "the fields of the config"

    def _base(self, group: Group, block: Fields | None) -> Found[float] | None:
        quantity = (self.row.bases if self.row else {}).get(group.kind, "base")
        if self.known is None and self._further_bases():
            return None
        if self.known is None and self.fields.declares("local_base"):
            if group.pattern:
                quantity = "local_base" if group.kind == "sliding" else "base"
            else:
                self.fields.note(
                    "missing-value", {"missing": "layer_types", "needed for": "which layers take which base"}
                )
                return None
        if group.base is not None:
            return group.base
        if self.known is not None and quantity in self.known.fixed:
            return multiplied(self.fields, Found(self.known.fixed[quantity], self.architecture))
        outer = self.fields.number(quantity, _above_one, BASE_ALLOWED)
        inner = None if block is None else block.number("base", _above_one, BASE_ALLOWED)
        if inner is not None:
            if outer is not None and self.fields.declares(quantity) and outer.value != inner.value:
                both = {outer.source: outer.value, inner.source: inner.value}
                self.fields.note(conflict(inner.source), {**both, "used": inner.source}, group.layers)
            return inner
        if outer is not None and self.row is not None and group.kind in self.row.lost:
            self._lost(group, quantity, outer)
        if outer is None:
            missing = (self.fields.spellings.get(quantity) or ("base",))[0]
            self.fields.note("missing-value", {"missing": missing, "needed for": "the rates"})
        elif not self.fields.declares(quantity) and self.known is not None and not inner_base(self.fields, self.known):
            evidence: dict[str, Any] = {self.fields.source(key): None for key in self._nulled(quantity)}
            evidence |= {"used": outer.value, "default of": f"{self.known.name} ({self.known.library})"}
            evidence |= self._plausible_for(quantity, block)
            layers = group.layers if quantity != "base" else None
            self.fields.note("default-base", {**evidence, "documented": True}, layers)
        return outer

    def _plausible_for(self, quantity: str, block: Fields | None) -> dict[str, Any]:
        """What a default base can be held against: the length, the scaling and the window beside it."""
        context, kind = self.fields.whole("context"), None if block is None else scaling_type(block, {})
        switch, window = self.fields.flag("window_on"), self.fields.whole("window", least=0)
        off = (switch is not None and switch.value is False) or (
            bool(self._nulled("window")) and not self.fields.declares("window")  # null: no window, not the default's
        )
        slides = window is not None and window.value and not off
        keys = self.fields.spellings.get(quantity, ())
        return {
            "belongs at": self.fields.source(keys[0]) if keys else None,
            "context": _value(context),
            "scaling": _value(kind),
            "window": _value(window) if slides else None,
        }

    def _lost(self, group: Group, quantity: str, outer: Found[float]) -> None:
        """A base at the top of a config that the class gives to other layers only; these get its default."""
        default = None if self.known is None else self.known.defaults.get(quantity)
        if self.known is None or not self.fields.declares(quantity) or default in (None, outer.value):
            return
        because = (
            f"{self.known.library} gives it to the layers that see all, and the class default to these; this audit"
            " gives it to both"
        )
        evidence = {outer.source: outer.value, "because": because, "read instead": f"{default:,.0f}"}
        self.fields.note("ignored-key", evidence, group.layers)

    def _further_bases(self) -> bool:
        """Bases under keys that no common reader knows: some layers take them, and nothing says which."""
        known = {key for name in ("base", "local_base") for key in self.fields.spellings.get(name, ())}
        further = [key for key in self.fields.values if key not in known and ANOTHER_BASE.search(str(key))]
        further = [key for key in further if isinstance(self.fields.values[key], int | float)]
        for key in further:
            evidence = {self.fields.source(key): self.fields.values[key], "missing": "which layers take this base"}
            self.fields.note("missing-value", {**evidence, "needed for": "the rates"})
        return bool(further)

    def _switches_are_complete(self) -> bool:
        """Whether no key outside the block turns a scaling on whose numbers the file does not hold."""
        held = [key for key in SWITCHES if self.fields.values.get(key) is True]
        held += [key for key in self.fields.values if SCALED_OUTSIDE.match(str(key)) and self.fields.values[key]]
        for key in held:
            evidence = {self.fields.source(key): self.fields.values[key], "missing": "a scaling block with its numbers"}
            self.fields.note("incomplete-scaling", evidence)
        # A dynamic scaling leaves the ladder as it is at the trained length.
        return not held or (held == ["use_dynamic_ntk"] and self.length is None)

    def _nulled(self, quantity: str) -> list[str]:
        return [key for key in self.fields.spellings.get(quantity, ()) if key in self.fields.values]


def _above_one(value: float) -> bool:
    return value > 1


def _value(found: Found[Any] | None) -> Any:
    return None if found is None else found.value
