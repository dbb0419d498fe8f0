"""One part of a config as a reader sees it: keys that it drops, renames, fills in and refuses.

A reader is a function that changes a `View`; the project's own resolver then computes the frequencies from the result.
So every reader is as exact as the audit itself, and a difference always comes from reading, never from arithmetic.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from clockhands.configs.model_types import ModelType, model_type, table
from clockhands.configs.null_keys import NOTHING, REFUSED, SEES_ALL, meaning_of_null
from clockhands.configs.opened import Opened
from clockhands.configs.resolved import TEXT
from clockhands.configs.rope_blocks import NEW, OLD, RopeBlock, rope_blocks
from clockhands.configs.section_fields import Section, model_in, sections
from clockhands.encodings.scaling import longrope_magnitude, yarn_magnitude
from clockhands.packaged import packaged

PER_LAYER = "per_layer_config"
"""What Transformers 5 writes for single layers."""

ORIGINAL, CONTEXT = "original_max_position_embeddings", "max_position_embeddings"

AS_THE_CLASS = "as the class"
"""Sections of M-RoPE that are those of the type's class in Transformers, whatever the file says."""

# A number of a file above this is not accepted as a magnitude.
_LARGEST_MAGNITUDE = 1e6


class Refusal(Exception):
    """A reader does not load the file; the reason is a sentence."""


class NoSuchType(Refusal):
    """A reader does not have the model type or the architecture at all."""


class ModelFailure(Refusal):
    """A reader's config class accepts the file, and its model class, which uses that config, fails."""


class Undescribed(Exception):
    """What a reader does with such a file is not known here; the reason is a sentence."""


GROWTH = "llama_4_scaling_beta"
"""The key of a rotary block that says how much scores grow with the position."""


class View:
    """The text part of a config, changed as a reader reads it.

    Attributes:
        top: The object of the whole model, unchanged.
        path: The place of the part in it.
        values: The part, changed.
        part: Which part of the model it is.
        name: Its model type.
        not_read: Keys of the file that the reader drops, as ``file:key``.
        says: Further remarks on this reader and this file, in sentences.
        longest: The longest context that the reader allows, where that is not the declared one.
        length: The length in tokens for which frequencies are computed.
        sections: How the reader shares the pairs of M-RoPE among its axes: `AS_THE_CLASS`, ``consecutive``,
            ``interleaved``, or ``strided``, which is interleaved and ends with the pairs; None where that was not read.
        window_rule: How it treats windows, where that does not follow from the model type; see `_windows.py`.
    """

    def __init__(self, opened: Opened, section: Section, length: int | None) -> None:
        """Take a copy of the part; objects inside it are copied when they are changed."""
        place, top = model_in(opened.config or {})
        self.top: Mapping[str, Any] = top
        self.file: str = opened.config_name or "config.json"
        self.path: str = section.path
        self._place: str = f"{self.file}:{place}{section.path}"
        self._overridden: Mapping[str, str] = opened.overridden
        self.part: str = section.part
        self.values: dict[str, Any] = dict(section.values)
        self.name: str | None = _name(self.top, section)
        self.not_read: list[str] = []
        self.says: list[str] = []
        self.longest: float | None = None
        self.length = length
        self.sections: str | None = None
        self.window_rule: Mapping[str, Any] | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """The model type of the part, and that of the file around it."""
        return tuple(name for name in (self.name, self.top.get("model_type")) if isinstance(name, str))

    @property
    def known(self) -> ModelType | None:
        """What the table of model types says of its type; None if it has no such type."""
        return None if self.name is None else model_type(self.name)

    def lacks_growth(self, block: Mapping[str, Any]) -> bool:
        """Whether the code of the type reads `GROWTH` from the block, and the block does not have it."""
        scores = {} if self.known is None else self.known.scores
        return scores.get("formula") == "steps" and "layers" not in scores and GROWTH not in block

    def place(self, key: str) -> str:
        """The source of a key: ``config.json:text_config.rope_theta``."""
        return f"{self._place}{key}"

    def get(self, key: str) -> Any:
        """The value of a key; None where it is absent or null."""
        return self.values.get(key)

    def nulls(self) -> dict[str, str]:
        """What each null means to the class of the type, where that refuses it or has a default for the quantity.

        Where all RoPE blocks have the quantity, only readers that leave them out see the null: told if a null is known
        to be no default.
        """
        known = self.known
        found: dict[str, str] = {}
        if known is None:
            return found
        for quantity, keys in known.reads.items():
            values = {key: self.values[key] for key in keys if key in self.values}
            takes = known.defaults.get(quantity) is not None and quantity not in SEES_ALL
            unset = takes and not any(value is not None for value in values.values())
            alone = unset and not self._in_blocks(quantity)
            nulls = [key for key, value in values.items() if value is None and self.path + key not in self._overridden]
            meanings = {key: meaning_of_null(known, key) for key in nulls}
            counts = {REFUSED: True, NOTHING: unset}
            found |= {key: meaning for key, meaning in meanings.items() if counts.get(meaning, alone)}
        return found

    def _in_blocks(self, quantity: str) -> bool:
        """Whether every RoPE block has a value of its own for a quantity."""
        names, blocks = table()["spellings"]["block"].get(quantity, ()), self.blocks_that_count()
        return bool(blocks) and all(any(block.values.get(name) is not None for name in names) for block in blocks)

    def block(self, key: str) -> dict[str, Any] | None:
        """A copy of an object; None where there is none or it is empty."""
        value = self.values.get(key)
        return dict(value) if isinstance(value, Mapping) and value else None

    def blocks(self) -> list[RopeBlock]:
        """The RoPE blocks of the part, without empty objects that are not for one kind of layer."""
        return [block for block in rope_blocks(self.values, self.place("")) if block.values or block.label]

    def blocks_that_count(self) -> list[RopeBlock]:
        """Those of the old key, else those of the new one: the classes of Transformers read only one of the two."""
        blocks = self.blocks()
        return [block for block in blocks if block.key == blocks[0].key]

    def drop(self, key: str) -> None:
        """Remove a key that the reader does not read."""
        if self.values.pop(key, None) is not None:
            self.not_read.append(self.place(key))

    def drop_inside(self, block: dict[str, Any], under: str, *keys: str) -> None:
        """Remove keys of an object that the reader does not read."""
        for key in keys:
            if block.pop(key, None) is not None:
                self.not_read.append(self.place(f"{under}.{key}"))

    def put(self, key: str, value: Any) -> None:
        """Set a value."""
        self.values[key] = value

    def default(self, key: str, value: Any) -> None:
        """Fill in what a class takes where the key is absent."""
        self.values.setdefault(key, value)

    def number(self, key: str, block: Mapping[str, Any] | None = None) -> float | None:
        """A positive number that fits a model, from the part or from an object; None if there is none."""
        return positive_number((self.values if block is None else block).get(key))

    def original(self, block: Mapping[str, Any]) -> float | None:
        """The original length: from an object, else from the part around it."""
        inside = self.number(ORIGINAL, block)
        return self.number(ORIGINAL) if inside is None else inside


def text_sections(config: Mapping[str, Any]) -> tuple[Section, ...]:
    """The parts of a config that read or write text."""
    return tuple(section for section in sections(config) if section.part in TEXT)


def put_back(config: Mapping[str, Any], section: Section, values: Mapping[str, Any]) -> dict[str, Any]:
    """The config with a part replaced; the objects around the part are copied, not changed."""
    path = [name for name in section.path.split(".") if name]
    if not path:
        return dict(values)
    whole: dict[str, Any] = dict(config)
    here = whole
    for name in path[:-1]:
        here[name] = dict(here[name])
        here = here[name]
    here[path[-1]] = dict(values)
    return whole


def positive_number(value: Any) -> float | None:
    """A value if it is a positive number below 10**15 (no length or factor is larger); else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return None
    return value


def named(block: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The block with its type under the new key only."""
    return {"rope_type": name, **{key: value for key, value in block.items() if key not in ("type", "rope_type")}}


def canonical(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config in which the old spelling of a block's type is replaced by the new one, to compare two readings."""
    made = dict(config)
    for key, value in config.items():
        if isinstance(value, Mapping) and (key in (OLD, NEW) or key in table()["sections"]):
            inner = canonical(value)
            if key in (OLD, NEW) and "rope_type" not in inner and "type" in inner:
                inner["rope_type"] = inner.pop("type")
            made[key] = inner
    return made


def _name(top: Mapping[str, Any], section: Section) -> str | None:
    """The model type of a part: its own, else the one that the type around it has in that place."""
    name = section.values.get("model_type")
    if isinstance(name, str):
        return name
    around = top.get("model_type")
    known = model_type(around) if isinstance(around, str) else None
    return known.sections.get(section.part) if known is not None else None


@cache
def facts() -> Mapping[str, Any]:
    """All of ``runtimes.json``."""
    return packaged(__file__, "runtimes.json")


@cache
def names(reader: str, key: str = "names") -> frozenset[str]:
    """A list of names that a reader knows."""
    return frozenset(facts()[reader][key])


def ratio(factor: float, block: Mapping[str, Any]) -> float:
    """DeepSeek's ``g(mscale) / g(mscale_all_dim)``; absent values count as 1 and 0."""
    return yarn_magnitude(factor, _magnitude_in(block, "mscale", 1.0)) / yarn_magnitude(
        factor, _magnitude_in(block, "mscale_all_dim", 0.0)
    )


def longrope(context: float, original: float) -> dict[str, float]:
    """What LongRoPE derives from the two lengths: the factor on cosine and sine, and the scaling factor."""
    stretch = context / original
    return {"attention_factor": longrope_magnitude(stretch, original), "factor": max(stretch, 1.0)}


def _magnitude_in(block: Mapping[str, Any], key: str, default: float) -> float:
    value = block.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LARGEST_MAGNITUDE:
        return default
    return float(value)
