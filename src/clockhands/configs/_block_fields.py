"""Reads the rotary block of a config: old or new, flat or for each kind of layer, from the file or a class default."""

from collections.abc import Mapping
from typing import Any

from clockhands.configs._layer_fields import LayerGroup
from clockhands.configs._scaling_fields import scaling_type
from clockhands.configs.fields import Fields
from clockhands.configs.model_types import CodeOfType, ModelType, layer_labels, table
from clockhands.configs.released_code import line_of
from clockhands.configs.rope_blocks import NEW, OLD, layer_blocks

# The quantities by which the two shapes of a block are compared: all that change frequencies or their magnitude.
COMPARED = (
    "type", "factor", "original", "low", "high", "fast", "slow", "truncate", "mscale", "mscale_all", "attention_factor",
    "alpha", "short", "long", "base", "share",
)  # fmt: skip


class RotaryBlocks:
    """The rotary block of a config, old or new, flat or one for each kind of layer."""

    def __init__(
        self, fields: Fields, known: ModelType | None, row: CodeOfType | None, groups: list[LayerGroup]
    ) -> None:
        """Read both spellings of the block; if both exist, the old one is used, as in Transformers."""
        default_source = known.default_source if known is not None else ""
        self.fields = fields
        self.nested = row is not None and row.nested
        self.known = row is not None
        self.code = known.code if known is not None else None
        self.scaled = row.scaled if row is not None else ()
        self.labels = [label for group in groups for label in group.labels]
        spellings = table()["spellings"]["block"] | ({} if row is None else dict(row.block_keys))
        found = [fields.inside(key, spellings) for key in fields.spellings.get("blocks", ())]
        self.blocks = [block for block in found if block is not None]
        if row is not None and row.block and not fields.declares("blocks"):
            self.blocks = [_assumed(row.block, fields, spellings, default_source)]
            of = default_source.removeprefix("class default of ")
            fields.took_default(fields.spellings["blocks"][-1], _block_as_text(row.block), of)
        self.flat = next((block for block in self.blocks if not self._inner(block)), None)
        if self.nested:
            if row is None or not row.labels:  # a class with separate kinds of layers reads either spelling
                self._old_spelling()
            self._flat_beside_nested(groups, row)
        elif self.known:
            for block in self.blocks if self.code is not None else ():
                for key, value in layer_blocks(block.values).items():
                    fields.ignored(block.source(key), value, f"{self.code} reads one RoPE block for all layers")
            self.flat = self.blocks[0] if self.blocks else None
        self._compare()

    def of(self, group: LayerGroup) -> Fields | None:
        """The block for a group of layers."""
        if not (self.nested or not self.known):
            return self.flat
        for block in self.blocks:
            inner = self._inner(block)
            for label in group.labels:
                if label in inner:
                    return self._rounding(self._merged(inner[label], group), group)
        return self._rounding(self.flat, group)

    def _rounding(self, block: Fields | None, group: LayerGroup) -> Fields | None:
        """Transformers 5.23.0 looks for YaRN's ``truncate`` next to the objects of layer kinds, never inside."""
        layered = not self.scaled or group.kind in self.scaled
        if self.nested and block is not None and layered and block.values.get("truncate") is False:
            release = table()["library"]
            because = (
                f"{release}, {line_of(release, 'truncate')}, looks for it outside the objects of the layer types and "
                "so rounds the ends of YaRN's ramp; this audit does not"
            )
            self.fields.ignored(block.source("truncate"), False, because, "true", group.layers)
        return block

    def _merged(self, inner: Fields, group: LayerGroup) -> Fields:
        """A nested block, overridden by an old flat one for the layers that see all positions."""
        if not (self.nested and self.flat is not None and self.flat.path.endswith(f"{OLD}.")):
            return inner
        return inner if group.kind != "full" else Layered(self.flat, inner)

    def _inner(self, block: Fields) -> dict[str, Fields]:
        there = layer_blocks(block.values)
        held = {label: block.inside(label, block.spellings) for label in dict.fromkeys(self.labels) if label in there}
        return {label: inner for label, inner in held.items() if inner is not None}

    def _old_spelling(self) -> None:
        """Transformers 5.23.0 puts the old block over ``rope_type: default``, so ``type`` alone has no effect."""
        if self.flat is None or not self.flat.path.endswith(f"{OLD}.") or "rope_type" in self.flat.values:
            return
        held = self.flat.values.get("type")
        if held not in (None, "default") and self.flat.values.get("factor") != 1:
            release = table()["library"]
            because = (
                f"{release}, {line_of(release, 'type')}, takes it only where there is no rope_type, and applies no "
                "scaling; older releases and this audit do"
            )
            self.fields.ignored(self.flat.source("type"), held, because, 'rope_type "default"')

    def _flat_beside_nested(self, groups: list[LayerGroup], row: CodeOfType | None) -> None:
        """A type whose new block has one object for each kind of layer ignores flat keys in it."""
        if self.flat is None or not self.flat.path.endswith(f"{NEW}."):
            return
        values = {self.flat.source(key): value for key, value in self.flat.values.items() if value is not None}
        if any(value != "default" for value in values.values()):
            kinds = {group.kind: group.labels[0] for group in groups if group.labels}
            bases = row.bases if row is not None else {}
            evidence: dict[str, Any] = {"kinds of layers": list(kinds.values())}
            if self.code is not None:
                evidence["its class"] = f"{self.code.name}, {self.code.place}"
            for kind, label in kinds.items():
                # What replaces the flat base: its own key outside the block, else the class default.
                named = self.fields.raw(bases.get(kind, "base"))
                # A list has a base for each layer, and is read as one where the type has such lists.
                listed = named is not None and isinstance(named.value, list)
                base = None if listed else self.fields.number(bases.get(kind, "base"))
                evidence[f"base of {label}"] = None if base is None else base.value
            evidence["scaled"] = [kinds[kind] for kind in (row.scaled if row is not None else ()) if kind in kinds]
            self.fields.note("flat-layer-types", {**values, **evidence})
        self.blocks = [block for block in self.blocks if block is not self.flat]
        self.flat = next((block for block in self.blocks if not self._inner(block)), None)

    def _compare(self) -> None:
        """Note two blocks that differ: runtimes of different ages use different ones."""
        if len(self.blocks) < 2:
            return
        old, new = self.blocks[0], self.blocks[1]
        nested = self._inner(new)
        if nested and not self._inner(old):
            new = next((nested[label] for label in nested if label in layer_labels()["full"]), new)
        evidence: dict[str, Any] = {}
        for name in COMPARED:
            first, second = _comparable(old, name), _comparable(new, name)
            if name == "base":
                self._compare_bases(old, new, evidence)
            elif first != second:
                for block, other in ((old, new), (new, old)):
                    key = (block.present(name) or other.present(name))[0]
                    evidence[block.source(key)] = block.values.get(key)
        if evidence:
            self.fields.note("conflicting-shapes", {**evidence, "used": old.source("")[:-1].rstrip(".")})

    def _compare_bases(self, old: Fields, new: Fields, evidence: dict[str, Any]) -> None:
        """Compare the bases of the old shape: one may be inside its block, one outside."""
        first, second = old.raw("base") or self.fields.raw("base"), new.raw("base")
        if first is not None and second is not None and first.value != second.value:
            evidence |= {first.source: first.value, second.source: second.value}


def conflict_code(source: str) -> str:
    """The code of the fact that two keys disagree: of the two shapes of a config, or of one shape."""
    return "conflicting-shapes" if f"{NEW}." in source else "conflicting-keys"


def completed(block: Fields | None, row: CodeOfType, default_source: str) -> Fields | None:
    """A block completed with the class defaults for missing keys of its scaling."""
    kind = scaling_type(block, row.aliases)
    held = row.assumed.get(kind.value or "") if kind is not None else None
    if block is None or held is None:
        return block
    return Layered(block, _assumed(held, block, block.spellings, default_source))


def _assumed(values: Mapping[str, Any], like: Fields, spellings: Mapping[str, Any], source: str) -> Fields:
    """A block that is not in the file: the class default."""
    return Fields(values, like.file, spellings, like.facts, path=like.path, places=source)


class Layered(Fields):
    """Two objects seen as one, the first before the second."""

    def __init__(self, over: Fields, under: Fields) -> None:
        """Put one over the other."""
        seen = {**under.values, **over.values}
        places = {key: (over if key in over.values else under).source(key) for key in seen}
        super().__init__(
            seen, over.file, over.spellings, over.facts, path=under.path, read_at=under.read_at, places=places
        )
        self.over = over
        self.under = under

    def present(self, quantity: str) -> list[str]:
        """The keys of a quantity that have a value, read in both objects."""
        for each in (self.over, self.under):
            each.present(quantity)
        return super().present(quantity)


def _block_as_text(block: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} ({_block_as_text(value)})" if isinstance(value, Mapping) else f"{key} {value}"
        for key, value in block.items()
    )


def _comparable(block: Fields, name: str) -> Any:
    keys = block.present(name)
    value = block.values[keys[0]] if keys else None
    return None if name == "type" and value == "default" else value
