"""Published encodings by name, as data: the JSON files beside this one hold each with its source."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from clockhands.encodings.specs import Spec, from_dict, with_fields
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import did_you_mean, shown


@dataclass(frozen=True)
class Preset:
    """A published convention.

    Attributes:
        name: What it is called by.
        spec: The convention at its usual width.
        says: What it is and how it differs, one sentence.
        source: Where it was published, with version.
    """

    name: str
    spec: Spec
    says: str
    source: str


_FILES = ("additive", "biases", "naive", "rotary")


@cache
def _data() -> dict[str, dict[str, Any]]:
    parts = (json.loads(files(__name__).joinpath(f"{name}.json").read_text("utf-8")) for name in _FILES)
    return {name: entry for part in parts for name, entry in part.items()}


def names() -> tuple[str, ...]:
    """The names of all presets, in their order, without making any."""
    return tuple(sorted(_data()))


@cache
def presets() -> tuple[Preset, ...]:
    """All published conventions that have a name, in the order of their names."""
    return tuple(_preset(name) for name in names())


def _preset(name: str) -> Preset:
    entry = _data()[name]
    return Preset(name, from_dict(entry["spec"]), entry["says"], entry["source"])


def preset(name: str, **fields: Any) -> Spec:
    """The spec of a published convention, any field overridden.

    Raises:
        InvalidValue: There is no such preset or field, or a value cannot be used.
        InvalidType: The name is not a string, or a value is of a kind that cannot be used.

    >>> preset("vaswani2017").width, preset("vaswani2017", width=4).rates
    (512, (1.0, 0.01))
    """
    if not isinstance(name, str):
        raise InvalidType(f"`name` must be a preset's name, got {shown(name)}.", "See clockhands.presets().")
    if name not in _data():
        raise InvalidValue(
            f"There is no preset {shown(name)}.",
            did_you_mean(name, _data(), f"Presets are {', '.join(names())}."),
        )
    spec = _preset(name).spec
    return with_fields(spec, **fields) if fields else spec
