"""The table of tensor names by model type, and functions to query it.

``tensors.json`` lists for each model type the modules whose tensors are indexed by a query's or key's channel, and for
all types what the tensors of such a module are. A name without an entry is never guessed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, cast

from clockhands.encodings.layouts import Layout
from clockhands.packaged import packaged

Part = Literal["first", "last"]

# How the slots of a tensor follow one another: heads alone; one head's channels, shared by all; groups of query heads
# with their key and value; all queries, all keys, all values; four parts, in each queries, values, keys.
Arrangement = Literal["heads", "head", "groups", "stacked", "quarters"]


@dataclass(frozen=True)
class Tensors:
    """The tensors of one model type.

    Attributes:
        name: The type.
        modules: The arrangement of rows for each module pattern; a pattern captures the ``layer``, and in ``of``
            whether it is a query's or a key's, if it is not both.
        stays: Patterns of tensors that are named like a query's or key's but whose rows are not rotated channels.
        part: Which channels of a head are rotated.
        latent: Whether keys are computed from one latent vector beside the rotated channels.
        layout: The layout, for a type that is not in the table of configs.
        defaults: The class defaults, for such a type.
        keys: Key of the config that counts key heads; None if no key does so reliably.
        switch: Key of the config that declares the layout, and its value for each layout.
    """

    name: str
    modules: Mapping[str, Arrangement]
    stays: Sequence[str] = ()
    part: Part = "first"
    latent: bool = False
    layout: Layout | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keys: str | None = "num_key_value_heads"
    switch: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class NamedTensor:
    """A tensor of a module that is in the table.

    Attributes:
        layer: Its layer.
        of: ``q``, ``k``, or None for one that is both, or is neither's alone.
        arrangement: How the rows of its module are arranged.
        module: The name of the module.
        leaf: The rest of the tensor's name.
        role: ``rows``, ``scale``, ``stays``, or None for a leaf that is in no row.
    """

    layer: int
    of: str | None
    arrangement: Arrangement
    module: str
    leaf: str
    role: str | None


def table() -> Mapping[str, Any]:
    """The whole table, as data."""
    return packaged(__file__, "tensors.json")


@cache
def tensors_of(name: str) -> Tensors | None:
    """The tensors of the type of that name, or None where the table has no row for it."""
    if name not in table()["types"]:
        return None
    entry = _filled(name)
    entry.pop("notes", None)
    return Tensors(name, **entry)


def type_names() -> tuple[str, ...]:
    """All names in the table."""
    return tuple(table()["types"])


def _filled(name: str) -> dict[str, Any]:
    entry = dict(table()["types"][name])
    return {**_filled(entry.pop("like")), **entry} if "like" in entry else entry


def held(name: str, known: Tensors) -> NamedTensor | None:
    """What the table says about a tensor of this name; None if it belongs to no module in it."""
    for pattern, arrangement in known.modules.items():
        found = _module(pattern).fullmatch(name)
        if found is not None:
            of, leaf = found.groupdict().get("of"), found["leaf"]
            module = name.removesuffix(f".{leaf}")
            return NamedTensor(int(found["layer"]), of, arrangement, module, leaf, _of_leaf(leaf, "leaves"))
    return None


def stays(name: str, known: Tensors) -> bool:
    """Whether the table says that a tensor of this name is not indexed by rotated channels."""
    return any(re.fullmatch(table()["prefix"] + pattern, name) for pattern in known.stays)


def quantisation(leaf: str) -> str | None:
    """The quantisation that this part of a name belongs to, if its tensors cannot be permuted."""
    return _of_leaf(leaf, "refused")


def looks_like_query_or_key(name: str) -> bool:
    """Whether the name of a tensor is used for queries or keys in some model.

    >>> looks_like_query_or_key("h.0.attn.q_proj.weight"), looks_like_query_or_key("mlp.up_proj.weight")
    (True, False)
    """
    looks = table()["looks"]
    pieces = name.lower().split(".")
    return any(piece in looks["names"] or not set(piece.split("_")).isdisjoint(looks["words"]) for piece in pieces)


def _of_leaf(leaf: str, where: str) -> str | None:
    rows = table()[where]
    return cast("str | None", next((rows[each] for each in rows if each != "says" and re.fullmatch(each, leaf)), None))


@cache
def _module(pattern: str) -> re.Pattern[str]:
    # The leaf is the shortest rest, so that a pattern ends where a name in the file does.
    return re.compile(f"{table()['prefix']}{pattern}\\.(?P<leaf>.+)")


def slots_of(arrangement: Arrangement, slots: int, heads: int | None) -> str | None:
    """A letter for each slot of a tensor, query, key or value; None if the number of slots does not fit.

    The slots of a tensor that holds heads alone are all ``q``, whichever of the two they are.

    Args:
        arrangement: How the slots follow one another.
        slots: How many there are.
        heads: Query heads of the model; only fused tensors need them.

    >>> slots_of("groups", 8, heads=4)  # two groups of two queries, a key and a value
    'qqkvqqkv'
    """
    if arrangement in ("head", "heads"):
        return "q" * slots if slots and (slots == 1 or arrangement == "heads") else None
    if heads is None or slots <= heads or (slots - heads) % 2:
        return None
    keys = (slots - heads) // 2
    if heads % keys:
        return None
    if arrangement == "groups":
        return ("q" * (heads // keys) + "kv") * keys
    if arrangement == "stacked":
        return "q" * heads + "k" * keys + "v" * keys
    quarter = heads // 4
    return ("q" * quarter + "v" * quarter + "k" * quarter) * 4 if keys == heads and heads % 4 == 0 else None
