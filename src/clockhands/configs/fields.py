"""Reads single values from a config, checks them, and records where they come from.

A *quantity* (``base``, ``layers``) is what a value means; its *spellings* are the keys under which files hold it.
`Fields` looks a quantity up, checks the value, records its source, and turns every irregularity into a `Fact` instead
of an exception: any config that can be parsed can be audited.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from clockhands.configs.composition import is_reference
from clockhands.configs.null_keys import FAILS, NOTHING, UNKNOWN
from clockhands.configs.resolved import Fact, LayerEncoding
from clockhands.errors import Unreadable

T = TypeVar("T")

# Above these limits a config describes no model, and a ladder or a list of layers would not fit in memory.
MOST_LAYERS = 10_000
WIDEST = 1 << 16
WIDEST_HEAD = 1 << 13  # the widest heads that are known have 512 channels
LONGEST = 1 << 53
MOST_FACTS = 300  # the published config with the most facts has 20

_NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,4})?\s*")


@dataclass(frozen=True)
class Sourced(Generic[T]):
    """A value and its source. ``value`` is None where the file holds something that cannot be used."""

    value: T | None
    source: str


def value_of(found: Sourced[T] | None) -> T | None:
    """The value; None if absent."""
    return None if found is None else found.value


def code_from(
    part: str, layers: str | None, kind: str | None, source: Mapping[str, str], /, **found: Sourced[Any] | None
) -> LayerEncoding:
    """A code from fields that were found, each with its source; ``context`` and ``axes`` only give a source."""
    values: dict[str, Any] = {
        name: value_of(each) for name, each in found.items() if name not in ("context", "axes", "layers")
    }
    sources = {name: each.source for name, each in found.items() if each is not None}
    return LayerEncoding(part, layers, kind, **values, source={**source, **sources})


def above_zero(value: float) -> bool:
    """Whether a number is positive."""
    return value > 0


def above_one(value: float) -> bool:
    """Whether a number can be the base of a ladder."""
    return value > 1


def shown(value: Any) -> Any:
    """A value as evidence: NaN and infinities as JSON can hold them, long lists as their length."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return f"a whole number of {int(math.log10(abs(value))) + 1} digits"
    if isinstance(value, str):
        return value if len(value) <= 200 else f"{value[:200]}…"
    if isinstance(value, Mapping):
        return f"an object of {len(value)} keys"
    if isinstance(value, list | tuple):
        return [shown(item) for item in value] if len(value) <= 8 else f"a list of {len(value)}"
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:200]


class Fields:
    """The position fields of one config, or of one object inside it.

    Attributes:
        values: Keys and values, as parsed.
        file: Name of the file, for sources.
        path: The place of the object in the file, such as ``"text_config."``.
        spellings: Quantity to the keys that hold it, the one that wins first.
        defaults: The default of each quantity whose key is absent.
        default_source: Where those values come from.
        facts: Irregularities that were noted; shared by all objects of a target.
        read: Keys that were looked up.
        read_at: The keys that were looked up, by path; shared by an object and those inside it.
        places: The sources of keys (with dots into objects) that are not from this object; a text is the source of all
            keys.
        nulls: What the keys that are null mean to the class, see `null_keys`.
        of_class: The class, with its release.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        file: str,
        spellings: Mapping[str, Sequence[str]],
        facts: list[Fact],
        *,
        path: str = "",
        defaults: Mapping[str, Any] | None = None,
        default_source: str = "",
        read_at: dict[str, set[str]] | None = None,
        places: Mapping[str, str] | str = "",
        nulls: Mapping[str, str] | None = None,
        of_class: str = "",
    ) -> None:
        """Store the object; nothing is read yet."""
        self.values = values
        self.file = file
        self.path = path
        self.spellings = spellings
        self.facts = facts
        self.defaults: Mapping[str, Any] = defaults or {}
        self.default_source = default_source
        self.read_at: dict[str, set[str]] = {} if read_at is None else read_at
        self.read: set[str] = self.read_at.setdefault(path, set())
        self.places = places
        self.nulls: Mapping[str, str] = nulls or {}
        self.of_class = of_class

    def with_quantities(self, names: Mapping[str, str]) -> "Fields":
        """The same object with other quantities; one whose name is empty counts as absent."""
        if not names:
            return self
        spellings, defaults = dict(self.spellings), dict(self.defaults)
        for quantity, name in names.items():
            spellings[quantity] = self.spellings.get(name, ())
            defaults.pop(quantity, None)
            if name in self.defaults:
                defaults[quantity] = self.defaults[name]
        return self._with(spellings=spellings, defaults=defaults)

    def with_values(self, values: Mapping[str, Any], place: str) -> "Fields":
        """The same object with other values for some keys, whose source is ``place`` inside it."""
        if not values:
            return self
        places = self.places
        if not isinstance(places, str):
            places = {**places, **{key: self.source(f"{place}{key}") for key in values}}
        return self._with(values={**self.values, **values}, places=places)

    def with_computed(self, values: Mapping[str, Sourced[Any]], instead: Sequence[str]) -> "Fields":
        """The same object with values that code computes, each with its source, in place of some keys."""
        kept = {key: value for key, value in self.values.items() if key not in instead}
        places = self.places if isinstance(self.places, Mapping) else {}
        computed = {key: found.value for key, found in values.items()}
        sources = {key: found.source for key, found in values.items()}
        return self._with(values={**kept, **computed}, places={**places, **sources})

    def apart(self, values: Mapping[str, Any]) -> "Fields":
        """The same object with other values for some keys; facts about it are not recorded here."""
        return Fields(
            {**self.values, **values}, self.file, self.spellings, [],
            path=self.path, defaults=self.defaults, default_source=self.default_source, places=self.places,
            nulls=self.nulls, of_class=self.of_class,
        )  # fmt: skip

    def _with(self, **changed: Any) -> "Fields":
        names = ("path", "defaults", "default_source", "read_at", "places", "nulls", "of_class")
        held = {name: changed.get(name, getattr(self, name)) for name in names}
        values, spellings = changed.get("values", self.values), changed.get("spellings", self.spellings)
        return Fields(values, self.file, spellings, self.facts, **held)

    def source(self, key: str) -> str:
        """The source of a key, for people: ``config.json:text_config.rope_theta``."""
        place = self.places if isinstance(self.places, str) else self.places.get(key)
        return place or f"{self.file}:{self.path}{key}"

    def note(self, code: str, evidence: Mapping[str, Any], layers: str | None = None) -> None:
        """Remember a fact, once.

        Raises:
            Unreadable: There are more facts than any model's config causes.
        """
        fact = Fact(code, {name: shown(value) for name, value in evidence.items()}, layers)
        if fact in self.facts:
            return
        if len(self.facts) >= MOST_FACTS:
            raise self.too_many()
        self.facts.append(fact)

    def too_many(self) -> Unreadable:
        """The error for a config with more irregularities than any model's."""
        return Unreadable(
            f"{self.file} holds more than {MOST_FACTS} unknown keys and values.",
            "Check that this is the config of a model.",
        )

    def present(self, quantity: str) -> list[str]:
        """The keys of a quantity that have a value other than null."""
        keys = self.written(quantity)
        self.read.update(keys)
        return [key for key in keys if self.values[key] is not None]

    def written(self, quantity: str) -> list[str]:
        """The keys of a quantity that the object has, null or not."""
        return [key for key in self.spellings.get(quantity, ()) if key in self.values]

    def key_of(self, found: Sourced[Any]) -> str:
        """The key of this object that a value was found under."""
        return found.source.rsplit(":", 1)[-1].removeprefix(self.path)

    def declares(self, quantity: str) -> bool:
        """Whether the file itself has the quantity."""
        return bool(self.present(quantity))

    def raw(self, quantity: str) -> Sourced[Any] | None:
        """The value as written, unchecked."""
        keys = self.present(quantity)
        return Sourced(self.values[keys[0]], self.source(keys[0])) if keys else None

    def number(
        self, quantity: str, fits: Callable[[float], bool] = math.isfinite, allowed: str = "a finite number"
    ) -> Sourced[float] | None:
        """A real number, or the default; None if absent, a `Sourced` without value if unusable."""
        return self._quantity(quantity, lambda key: self._number(key, fits, allowed))

    def whole(self, quantity: str, least: int = 1, most: int = LONGEST) -> Sourced[int] | None:
        """A whole number, however it is written (4096, 4096.0, "4096")."""
        allowed = f"a whole number from {least:,} to {most:,}"

        def convert(key: str) -> int | None:
            number = self._number(key, lambda value: is_whole(value, least, most), allowed)
            return None if number is None else int(number)

        return self._quantity(quantity, convert)

    def flag(self, quantity: str) -> Sourced[bool] | None:
        """A true or false value."""

        def convert(key: str) -> bool | None:
            value = self.values[key]
            if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
                return bool(value)
            return self.impossible(key, "true or false")

        return self._quantity(quantity, convert)

    def text(self, quantity: str) -> Sourced[str] | None:
        """A word."""

        def convert(key: str) -> str | None:
            value = self.values[key]
            return value if isinstance(value, str) else self.unreadable(key, "a text")

        return self._quantity(quantity, convert)

    def items(self, quantity: str) -> Sourced[list[Any]] | None:
        """A list, its items unchecked."""

        def convert(key: str) -> list[Any] | None:
            value = self.values[key]
            return list(value) if isinstance(value, list | tuple) else self.unreadable(key, "a list or null")

        return self._quantity(quantity, convert)

    def numbers(self, quantity: str, length: int | None, code: str) -> Sourced[tuple[float, ...]] | None:
        """A list of positive numbers, as many as ``length`` says; ``code`` is the fact that it has another number."""

        def convert(key: str) -> tuple[float, ...] | None:
            value = self.values[key]
            if not isinstance(value, list | tuple):
                return self.unreadable(key, "a list of numbers")
            if not all(is_number(item) and 0 < item <= sys.float_info.max for item in value):
                return self.impossible(key, "a list of positive finite numbers")
            if length is not None and len(value) != length:
                return self.note(code, {self.source(key): value, "numbers": len(value), "pairs": length})
            return tuple(float(item) for item in value)

        return self._quantity(quantity, convert)

    def inside(self, key: str, spellings: Mapping[str, Sequence[str]]) -> "Fields | None":
        """The object under a key; None if it is absent, null, empty, or not an object (which is a fact)."""
        self.read.add(key)
        value = self.values.get(key)
        if value is None or value == {}:
            return None
        if not isinstance(value, Mapping):
            self.unreadable(key, "an object or null")
            return None
        places = self.places
        if not isinstance(places, str):
            places = {name.removeprefix(f"{key}."): at for name, at in places.items() if name.startswith(f"{key}.")}
        path = f"{self.path}{key}."
        return Fields(value, self.file, spellings, self.facts, path=path, read_at=self.read_at, places=places)

    def impossible(self, key: str, allowed: str) -> None:
        """Note a value that no code can have; a reference such as ``${model.width}`` counts as a value not read."""
        if is_reference(self.values[key]):
            self.read.discard(key)
            return
        self.note("impossible-value", {self.source(key): self.values[key], "allowed": allowed})

    def impossible_together(self, allowed: str, *found: Sourced[Any], layers: str | None = None) -> None:
        """Note values that no code can have together."""
        self.note("impossible-value", {**{each.source: each.value for each in found}, "allowed": allowed}, layers)

    def conflict(
        self, used: Sourced[Any], *found: Sourced[Any], code: str = "conflicting-keys", layers: str | None = None
    ) -> None:
        """Note values that contradict each other."""
        self.note(code, {**{each.source: each.value for each in found}, "used": used.source}, layers)

    def ignored(
        self, source: str, value: Any, because: str, instead: str | None = None, layers: str | None = None
    ) -> None:
        """Note a value that is not read, and what is read instead."""
        evidence = {source: value, "because": because}
        self.note("ignored-key", evidence | ({} if instead is None else {"read instead": instead}), layers)

    def missing(self, what: str, needed_for: str, **more: Any) -> None:
        """Note a missing key."""
        self.note("missing-value", {**more, "missing": what, "needed for": needed_for})

    def took_default(self, field: str, used: Any, of: str, **more: Any) -> None:
        """Note the default for a missing key."""
        self.note("default-value", {"field": field, "used": used, "default of": of, "documented": True, **more})

    def null(self, key: str, meaning: str, used: Any = None) -> None:
        """Note a null that the class does not take as its default, and the default that is used in its place."""
        more = {} if used is None else {"used": used}
        self.note("null-value", {self.source(key): None, "means": meaning, "class": self.of_class, **more})

    def unreadable(self, key: str, expected: str) -> None:
        """Note a value in an unknown form."""
        self.note("unreadable-field", {self.source(key): self.values[key], "expected": expected})

    def _quantity(self, quantity: str, convert: Callable[[str], T | None]) -> Sourced[T] | None:
        keys = self.present(quantity)
        if not keys:
            return self._default(quantity)
        first, value = keys[0], convert(keys[0])
        others = [key for key in keys[1:] if convert(key) != value]
        # Files have several lengths, for training and serving, which may differ; and several names of one scaling,
        # which the scaling's own parser checks.
        if others and value is not None and quantity not in ("context", "type"):
            evidence = {self.source(key): self.values[key] for key in keys}
            self.note("conflicting-keys", {**evidence, "used": self.source(first)})
        return Sourced(value, self.source(first))

    def _default(self, quantity: str) -> Sourced[Any] | None:
        """What the class takes for a quantity that is absent or null; a null that it does not take so is a fact."""
        if quantity not in self.defaults:
            return None
        default = self.defaults[quantity]
        null = next(iter(self.written(quantity)), None)
        meaning = None if null is None or default is None else self.nulls.get(null)
        if meaning == NOTHING:
            return None
        if null is not None and meaning in (FAILS, UNKNOWN):
            self.null(null, meaning, default)
        return Sourced(default, self.default_source)

    def _number(self, key: str, fits: Callable[[float], bool], allowed: str) -> float | None:
        value = self.values[key]
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            number = float(value)
            if math.isfinite(number):
                self.note("text-number", {self.source(key): value, "read as": number})
        elif is_number(value):
            try:
                number = float(value)
            except OverflowError:
                return self.impossible(key, allowed)
        else:
            return self.impossible(key, allowed)  # a word is no better as a base than zero
        if not math.isfinite(number) or not fits(number):
            return self.impossible(key, allowed)
        return number


def is_number(value: Any) -> bool:
    """Whether a value is a number, and neither true nor false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any, least: int, most: int = LONGEST) -> bool:
    """Whether a value is a whole number in a range, with or without a decimal point."""
    return is_number(value) and least <= value <= most and value == int(value)


def is_count(value: Any, least: int) -> bool:
    """Whether a value is a whole number without a decimal point: classes take no other number of heads."""
    return isinstance(value, int) and is_whole(value, least)
