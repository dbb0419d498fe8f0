"""Keys about position that a file holds and nothing read: whoever wrote them may have meant something by them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clockhands.sources.fields import MOST_FACTS, Fields, shown
from clockhands.sources.model_types import table

# What the names of such keys are made of, beyond those that the table knows.
ABOUT_POSITION = re.compile(
    r"rope|rotary|alibi|yarn|ntk|(^|[_.])position|(^|_)theta($|_)|sliding_window|mscale|^llama_4_scaling$"
)
# Quantities of a model that say nothing about position by themselves.
SHAPE = frozenset({"hidden", "heads", "head_width", "layers", "decoder_layers", "image", "patch"})
# Objects in objects: a block, one for each kind of layer, a list of numbers.
DEEPEST = 3


def unread(fields: Fields) -> dict[str, Any]:
    """Place to value of each key of an object, and of the rotary blocks in it, that is about position and was not read.

    A null, an empty object and an empty list say nothing and are left out.

    Raises:
        Unreadable: There are more than any config of a model has.
    """
    blocks = table()["spellings"]["config"]["blocks"]
    held = dict(_unread(fields.values, "", fields, family()))
    for key in blocks:
        block = fields.values.get(key)
        if isinstance(block, Mapping) and key in fields.read:
            held |= dict(_unread(block, f"{key}.", fields, None))
    if len(held) > MOST_FACTS:
        raise fields.too_many()
    return {f"{fields.file}:{fields.path}{key}": shown(value) for key, value in held.items()}


def beside(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The same for keys around the objects that hold the parts of a model, which nothing reads."""
    return {f"{file}:{key}": shown(value) for key, value in config.items() if _says(value) and _is_about(key, family())}


def family() -> frozenset[str]:
    """The keys about position that some type reads."""
    data = table()
    spelt = data["spellings"]["config"]
    return frozenset(
        (*data["position_keys"], *(key for name, keys in spelt.items() if name not in SHAPE for key in keys))
    )


def _unread(
    values: Mapping[str, Any], path: str, fields: Fields, known: frozenset[str] | None
) -> Iterator[tuple[str, Any]]:
    """Keys of one object by their path in it; of a block every key is about position."""
    read = fields.read_at.get(f"{fields.path}{path}", frozenset())
    for name, value in values.items():
        key = str(name)
        if key in read and isinstance(value, Mapping) and path and path.count(".") < DEEPEST:
            yield from _unread(value, f"{path}{key}.", fields, None)
        elif key not in read and _says(value) and (known is None or _is_about(key, known)):
            yield f"{path}{key}", value


def _is_about(key: Any, known: frozenset[str]) -> bool:
    return isinstance(key, str) and (key in known or ABOUT_POSITION.search(key) is not None)


def _says(value: Any) -> bool:
    return value is not None and value not in ({}, [], "")
