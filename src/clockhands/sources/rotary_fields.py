"""From the fields of a rotary config to its ladder, one for each group of layers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clockhands.errors import ClockhandsError
from clockhands.ladders import Spacing
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic, LongRope, Proportional
from clockhands.sources.axis_fields import axes_of, in_grid
from clockhands.sources.fields import LONGEST, WIDEST, Fields, Found
from clockhands.sources.layer_fields import Group, layer_groups
from clockhands.sources.model_types import ModelType, Row, table
from clockhands.sources.resolved import Code
from clockhands.sources.scaling_fields import Declared, Surroundings, read_scaling, scaling_type

ANOTHER_BASE = re.compile(r"(rope|rotary)_?\w*(theta|base)")
SCALED_OUTSIDE = re.compile(r"rope_scaling_\w")
# Under this key a converted config says how its weights pair, where the type has no key of its own for that.
LAYOUT_KEY = "clockhands_layout"
SWITCHES = ("use_scaled_rope", "use_dynamic_ntk")
BASE_ALLOWED = "a finite number above 1"
SHARE_ALLOWED = "a number above 0 and at most 1"


@dataclass(frozen=True)
class Shape:
    """Channels of a head, and how many of them turn."""

    width: Found[int] | None
    rotated: Found[int] | None
    share: float | None = None

    @property
    def pairs(self) -> int | None:
        """How many pairs turn."""
        return None if self.rotated is None or self.rotated.value is None else self.rotated.value // 2


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

    def codes(self) -> list[tuple[Code, int | None]]:
        """The codes, each with the original length of its scaling."""
        groups = layer_groups(self.fields, self.row, self.architecture)
        blocks = Blocks(self.fields, self.row, groups, self.known.default_source if self.known else "")
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
        shape = self._shape(block, group.kind)
        base = self._base(group, block)
        around = Surroundings(
            context=self.fields.whole("context"),
            original=self.fields.whole("original"),
            pairs=shape.pairs,
            share=shape.share,
            aliases=self.row.aliases if self.row else {},
            allowed=self.row.scalings if self.row else (),
        )
        declared = read_scaling(block, around)
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
        more: dict[str, Any] = {"part": "last"} if self._is_latent() else {}
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
        return built(code, declared, self.fields, self.length, assumed=whole, more=more), declared.original

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
        if self.known is not None and quantity in self.known.fixed:
            return Found(self.known.fixed[quantity], self.architecture)
        outer = self.fields.number(quantity, _above_one, BASE_ALLOWED)
        inner = None if block is None else block.number("base", _above_one, BASE_ALLOWED)
        if inner is not None:
            if outer is not None and self.fields.declares(quantity) and outer.value != inner.value:
                both = {outer.source: outer.value, inner.source: inner.value}
                self.fields.note("conflicting-keys", {**both, "used": inner.source}, group.layers)
            return inner
        if outer is None:
            missing = (self.fields.spellings.get(quantity) or ("base",))[0]
            self.fields.note("missing-value", {"missing": missing, "needed for": "the rates"})
        elif not self.fields.declares(quantity) and self.known is not None:
            evidence: dict[str, Any] = {self.fields.source(key): None for key in self._nulled(quantity)}
            evidence |= {"used": outer.value, "default of": f"{self.known.name} ({self.known.library})"}
            layers = group.layers if quantity != "base" else None
            self.fields.note("default-base", {**evidence, "documented": True}, layers)
        return outer

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
            self.fields.note("missing-value", {**evidence, "needed for": "the rates"})
        # A dynamic scaling leaves the ladder as it is at the trained length.
        return not held or (held == ["use_dynamic_ntk"] and self.length is None)

    def _nulled(self, quantity: str) -> list[str]:
        return [key for key in self.fields.spellings.get(quantity, ()) if key in self.fields.values]

    def _shape(self, block: Fields | None, kind: str) -> Shape:
        if self._is_latent():
            rotated = self.fields.whole("rotated", most=WIDEST)
            unrotated = self.fields.whole("unrotated", least=0, most=WIDEST)
            if rotated is None or unrotated is None or rotated.value is None or unrotated.value is None:
                return Shape(None, rotated)
            together = dict.fromkeys((unrotated.source, rotated.source))
            return Shape(Found(unrotated.value + rotated.value, " + ".join(together)), rotated)
        width = self._width(kind)
        return self._rotated(width, block)

    def _is_latent(self) -> bool:
        if self.known is not None and self.row is not None:
            switch = self.fields.flag("latent")
            return self.row.latent and not (switch is not None and switch.value is False)
        pieces = [self.fields.raw(name) for name in ("unrotated", "rotated")]
        return all(piece is not None and isinstance(piece.value, int) and piece.value > 0 for piece in pieces)

    def _width(self, kind: str) -> Found[int] | None:
        named = self.row.widths if self.row else {"full": "full_head_width"}
        declared = None
        if kind in named:
            declared = self.fields.whole(named[kind], most=WIDEST)
        if declared is None:
            declared = self.fields.whole("head_width", most=WIDEST)
        if declared is not None:
            return declared
        return divided(self.fields)

    def _rotated(self, width: Found[int] | None, block: Fields | None) -> Shape:
        """How much of a head turns: a number of channels before a share, the block's share before the outer one."""
        named = self.fields.raw("rotated")
        # Where heads are not made of two parts, the width of the rotated part is written as 0, or not meant.
        unmeant = self.row.latent if self.row else named is not None and named.value == 0
        channels = None if unmeant else self.fields.whole("rotated", most=WIDEST)
        reads_share = self.known is None or "share" in self.known.reads
        share = self._share(block) if reads_share else None
        kind = None if block is None else scaling_type(block, {})
        if kind is not None and kind.value == "proportional" and width is not None and width.value:
            part = 1.0 if share is None else share.value
            rotated = None if part is None else 2 * int(part * width.value / 2)
            return Shape(width, Found(rotated, share.source if share else width.source), part)
        of_share = None
        if share is not None and width is not None:
            turned = None if width.value is None or share.value is None else int(width.value * share.value)
            of_share = Found(turned, f"{share.source} x {width.source}")
        if channels is not None:
            if share is not None and self._disagree(channels, of_share):
                both = {channels.source: channels.value, share.source: share.value}
                self.fields.note("conflicting-keys", {**both, "used": channels.source})
            return Shape(width, channels)
        if share is not None:
            return Shape(width, of_share, share.value)
        if width is None:
            return Shape(None, None)
        says = self.architecture or "no key says that less than the whole head turns"
        return Shape(width, Found(width.value, f"{width.source}, {says}"))

    def _disagree(self, channels: Found[int], of_share: Found[int] | None) -> bool:
        if of_share is None or of_share.value is None or channels.value is None:
            return False
        return self.fields.declares("share") and of_share.value != channels.value

    def _share(self, block: Fields | None) -> Found[float] | None:
        inner = None if block is None else block.number("share", _share_fits, SHARE_ALLOWED)
        outer = self.fields.number("share", _share_fits, SHARE_ALLOWED)
        if inner is not None:
            if outer is not None and self.fields.declares("share") and outer.value != inner.value:
                both = {outer.source: outer.value, inner.source: inner.value}
                self.fields.note("conflicting-keys", {**both, "used": inner.source})
            return inner
        if outer is not None and self.known is not None and not self.fields.declares("share") and outer.value != 1:
            field = self.known.reads["share"][0]
            of = f"{self.known.name} ({self.known.library})"
            evidence = {"field": field, "used": outer.value, "default of": of, "documented": True}
            self.fields.note("default-value", evidence)
        return outer


class Blocks:
    """The rotary block of a config, old or new, flat or one for each kind of layer."""

    def __init__(self, fields: Fields, row: Row | None, groups: list[Group], default_source: str) -> None:
        """Look at both spellings of the block; where both stand, the old one is used, as Transformers does."""
        self.fields = fields
        self.nested = row is not None and row.nested
        self.known = row is not None
        self.labels = [label for group in groups for label in group.labels]
        spellings = table()["spellings"]["block"]
        found = [fields.inside(key, spellings) for key in fields.spellings.get("blocks", ())]
        self.blocks = [block for block in found if block is not None]
        if row is not None and row.block and not fields.declares("blocks"):
            self.blocks = [Assumed(row.block, fields, spellings, default_source)]
            evidence = {"field": fields.spellings["blocks"][-1], "used": _in_words(row.block)}
            of = default_source.removeprefix("class default of ")
            fields.note("default-value", {**evidence, "default of": of, "documented": True})
        self.flat = next((block for block in self.blocks if not self._inner(block)), None)
        if self.nested:
            self._old_spelling()
            self._flat_beside_nested()
        elif self.known:
            for block in self.blocks:
                self._ignored_inner(block)
            self.flat = self.blocks[0] if self.blocks else None
        self._compare()

    def of(self, group: Group) -> Fields | None:
        """The block for a group of layers."""
        if not (self.nested or not self.known):
            return self.flat
        for block in self.blocks:
            inner = self._inner(block)
            for label in group.labels:
                if label in inner:
                    return self._merged(inner[label], group)
        return self.flat

    def _merged(self, inner: Fields, group: Group) -> Fields:
        """A nested block, over which an old flat one stands for the layers that see all."""
        if not (self.nested and self.flat is not None and self.flat.path.endswith("rope_scaling.")):
            return inner
        return inner if group.kind != "full" else Layered(self.flat, inner)

    def _inner(self, block: Fields) -> dict[str, Fields]:
        spellings = block.spellings
        held = {}
        for label in dict.fromkeys(self.labels):
            inner = block.inside(label, spellings) if isinstance(block.values.get(label), Mapping) else None
            if inner is not None:
                held[label] = inner
        return held

    def _ignored_inner(self, block: Fields) -> None:
        for key, value in block.values.items():
            if isinstance(value, Mapping):
                self.fields.note("ignored-key", {block.source(key): value, "because": "this type reads the block flat"})

    def _old_spelling(self) -> None:
        """Transformers 5.23.0 lays the old block over ``rope_type: default``, where ``type`` alone changes nothing."""
        if self.flat is None or not self.flat.path.endswith("rope_scaling.") or "rope_type" in self.flat.values:
            return
        held = self.flat.values.get("type")
        if held not in (None, "default") and self.flat.values.get("factor") != 1:
            because = (
                "transformers 5.23.0 looks at rope_type only and applies no scaling; older releases and this audit do"
            )
            evidence = {self.flat.source("type"): held, "because": because, "read instead": 'rope_type "default"'}
            self.fields.note("ignored-key", evidence)

    def _flat_beside_nested(self) -> None:
        """A type whose new block has one object for each kind of layer drops what stands flat in it."""
        if self.flat is None or not self.flat.path.endswith("rope_parameters."):
            return
        because = "this type reads one object for each kind of layer"
        for key, value in self.flat.values.items():
            if value is not None and not (key in ("rope_type", "type") and value == "default"):
                self.fields.note("ignored-key", {self.flat.source(key): value, "because": because})
        self.blocks = [block for block in self.blocks if block is not self.flat]
        self.flat = next((block for block in self.blocks if not self._inner(block)), None)

    def _compare(self) -> None:
        """Two blocks that say different things: readers of different ages take different ones."""
        if len(self.blocks) < 2:
            return
        old, new = self.blocks[0], self.blocks[1]
        nested = self._inner(new)
        if nested and not self._inner(old):
            new = next((nested[label] for label in nested if label in table()["labels"]["full"]), new)
        evidence: dict[str, Any] = {}
        for name in ("type", "factor", "original", "low", "high", "fast", "slow", "attention_factor", "base"):
            first, second = _comparable(old, name), _comparable(new, name)
            if first != second and (name != "base" or (first is not None and second is not None)):
                key = (old.present(name) or new.present(name))[0]
                evidence |= {old.source(key): first, new.source(key): second}
        if evidence:
            self.fields.note("conflicting-keys", {**evidence, "used": old.source("")[:-1].rstrip(".")})


class Assumed(Fields):
    """A block that no file holds: the one that a class takes where there is none."""

    def __init__(
        self, values: Mapping[str, Any], fields: Fields, spellings: Mapping[str, Any], default_source: str
    ) -> None:
        """Take the block in the place where the file's would stand."""
        super().__init__(values, fields.file, spellings, fields.facts, path=fields.path, default_source=default_source)

    def source(self, key: str) -> str:
        """Where the values come from."""
        return self.default_source

    def inside(self, key: str, spellings: Mapping[str, Any]) -> "Fields | None":
        """The object under a key, which is assumed too."""
        inner = super().inside(key, spellings)
        return None if inner is None else Assumed(inner.values, self, spellings, self.default_source)


class Layered(Fields):
    """Two objects seen as one, the first before the second."""

    def __init__(self, over: Fields, under: Fields) -> None:
        """Put one over the other."""
        super().__init__({**under.values, **over.values}, over.file, over.spellings, over.facts, path=under.path)
        self.over = over
        self.under = under

    def source(self, key: str) -> str:
        """Where the key stands that is seen."""
        return (self.over if key in self.over.values else self.under).source(key)


def built(
    code: Code,
    declared: Declared,
    fields: Fields,
    length: int | None,
    *,
    spacing: Spacing | None = None,
    assumed: bool = True,
    more: Mapping[str, Any] | None = None,
) -> Code:
    """The code with its ladder, or without rates and with a fact where no ladder can be made.

    Args:
        code: What is known of it.
        declared: Its scaling.
        fields: Where facts go.
        length: Tokens at which the rates shall hold.
        spacing: Its rates, where they are no geometric ladder of its base.
        assumed: Whether all that a spec says is known.
        more: Further fields of the spec.
    """
    if not declared.known or code.width is None or code.rotated is None:
        return code
    if code.base is None and spacing is None:
        return code
    proportional = isinstance(declared.scaling, Proportional)
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
        evidence = {
            code.source[name]: getattr(code, name) for name in ("width", "rotated", "base") if name in code.source
        }
        fields.note("impossible-value", {**evidence, **declared.values, "allowed": error.message}, code.layers)
        return code
    whole = spec if code.layout is not None and assumed else None
    return replace(code, spec=whole, rates=spec.rates, attention_factor=spec.attention_factor)


def divided(fields: Fields) -> Found[int] | None:
    """The width of a head where only the model's width and the number of heads stand."""
    hidden, heads = fields.whole("hidden", most=WIDEST), fields.whole("heads", most=WIDEST)
    if hidden is None or heads is None:
        names = [name for name, found in (("hidden", hidden), ("heads", heads)) if found is None]
        missing = ", ".join((fields.spellings.get(name) or (name,))[0] for name in names)
        fields.note("missing-value", {"missing": missing, "needed for": "the width of a head"})
        return None
    source = f"{hidden.source} / {heads.source}" if hidden.source != heads.source else hidden.source
    if hidden.value is None or heads.value is None:
        return Found(None, source)
    if hidden.value % heads.value:
        evidence = {hidden.source: hidden.value, heads.source: heads.value}
        fields.note("impossible-value", {**evidence, "allowed": "a width that the heads divide evenly"})
        return Found(None, source)
    return Found(hidden.value // heads.value, source)


def _above_one(value: float) -> bool:
    return value > 1


def _share_fits(value: float) -> bool:
    return 0 < value <= 1


def _value(found: Found[Any] | None) -> Any:
    return None if found is None else found.value


def _in_words(block: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} ({_in_words(value)})" if isinstance(value, Mapping) else f"{key} {value}"
        for key, value in block.items()
    )


def _comparable(block: Fields, name: str) -> Any:
    keys = block.present(name)
    value = block.values[keys[0]] if keys else None
    return None if name == "type" and value == "default" else value
