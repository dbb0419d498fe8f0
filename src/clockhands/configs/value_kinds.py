"""What the value of a key may be, by the quantity that a type reads from it.

A value that the audit needs is checked where it is read. A class checks the others as well, so those that nothing
needed are checked here: a config with a word for its number of heads is not correct.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clockhands.configs.fields import Fields, is_number, is_whole, shown
from clockhands.configs.model_types import model_type, table
from clockhands.configs.null_keys import REFUSED
from clockhands.configs.resolved import Fact


@dataclass(frozen=True)
class ValueKind:
    """What the values of some quantities may be: in words, as a test, and which quantities."""

    allowed: str
    fits: Callable[[Any], bool]
    quantities: tuple[str, ...]


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: is_whole(value, least)


def _finite(value: Any) -> bool:
    return is_number(value) and abs(value) <= sys.float_info.max


def _at_least_zero(value: Any) -> bool:
    return _finite(value) and value >= 0


def _above_zero(value: Any) -> bool:
    return _finite(value) and value > 0


def _flag(value: Any) -> bool:
    return isinstance(value, int | float) and value in (0, 1)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _by_part(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_whole(0), value.values()))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _many(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(fits, value))


def _either(*kinds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: any(fits(value) for fits in kinds)


KINDS = (
    ValueKind("a whole number of at least 1", _whole(1), ("hidden", "heads", "head_width")),
    ValueKind(
        "a whole number of at least 0",
        _whole(0),
        (
            "decoder_layers", "speech_layers", "context", "decoder_context", "original", "trained",
            "full_head_width", "local_head_width", "unrotated", "rotated", "local_unrotated", "local_rotated",
            "ladder_width", "index_width", "index_every", "index_offset", "window", "half_window",
            "window_from",
            "chunk", "area", "still_period", "score_length", "per_second", "merge", "tiles", "cells", "frames",
            "chunk_frames", "grid_rows", "grid_columns", "table_rows", "table_height", "table_width", "table_image",
            "norm_groups", "further_layers", "predicting",
        ),
    ),
    # LXMERT counts its layers by part.
    ValueKind("a whole number, or one for each part", _either(_whole(0), _by_part), ("layers",)),
    ValueKind("a whole number or a letter for each layer", _either(_whole(0), _text), ("window_period",)),
    # -1 says that there are none, or no padding.
    ValueKind("a whole number of at least -1", _whole(-1), ("pad", "buckets", "max_distance")),
    ValueKind("a whole number or a list of them", _either(_whole(0), _many(_whole(0))), ("image", "patch", "windows")),
    ValueKind("a finite number above 0", _above_zero, ("base", "local_base", "base_ratio")),
    ValueKind("a finite number of at least 0", _at_least_zero, ("share", "score_growth")),
    ValueKind(
        "true or false",
        _flag,
        ("window_on", "latent", "interleave", "biased", "switch", "shared", "symmetric", "alibi", "growing"),
    ),
    ValueKind("true, false or a number", _either(_flag, _at_least_zero), ("score_switch",)),
    ValueKind('true, false, "all" or "vision"', _either(_flag, ("all", "vision").__contains__), ("two_sided",)),
    ValueKind("a text", _text, ("style",)),
    ValueKind("a text or a list of texts", _either(_text, _many(_text)), ("layer_types", "cycle", "indexed", "terms")),
    ValueKind("a list of whole numbers", _many(_whole(0)), ("full_layers", "still_layers", "stages")),
    ValueKind(
        "a list of numbers", _many(_either(_flag, _at_least_zero)), ("rotating_layers", "layer_bases", "layer_shares"),
    ),
    ValueKind("a list", _many(lambda _: True), ("arrangements", "cycles", "window_flags", "layer_blocks")),
    ValueKind("an object", _object, ("blocks", "per_layer")),
)  # fmt: skip

_OF_QUANTITY = {quantity: kind for kind in KINDS for quantity in kind.quantities}


def parts_of_no_object(model: Mapping[str, Any], place: str) -> list[Fact]:
    """The facts that keys of a whole model, which stands at a place, have no object where its type has a part."""
    known = model_type(str(model.get("model_type")))
    parts = {} if known is None else known.sections
    keys = [key for key, part in table()["sections"].items() if part in parts and key in model]
    return [
        Fact("unreadable-field", {f"{place}{key}": shown(model[key]), "expected": "an object or null"})
        for key in keys
        if not isinstance(model[key], Mapping | None)
    ]


def check_values(fields: Fields) -> None:
    """Note the values of a type's keys that no reader of them has noted and that are of no kind that they may be of.

    A null is noted where the class refuses it. A key that is read for two quantities may be of the kind of either.
    """
    noted = {place for fact in fields.facts for place in fact.evidence}
    for key, kinds in _kinds_of_keys(fields):
        if key not in fields.values or fields.source(key) in noted:
            continue
        value = fields.values[key]
        if fields.nulls.get(key) == REFUSED:
            fields.null(key, REFUSED)
        elif value is not None and not any(kind.fits(value) for kind in kinds):
            fields.impossible(key, " or ".join(kind.allowed for kind in kinds))


def _kinds_of_keys(fields: Fields) -> Iterator[tuple[str, list[ValueKind]]]:
    """The keys that a type reads, each with what its value may be; none of those of which that is not known."""
    quantities: dict[str, list[str]] = {}
    for quantity, keys in fields.spellings.items():
        for key in keys if quantity != "unused" else ():
            quantities.setdefault(key, []).append(quantity)
    for key, names in quantities.items():
        if all(name in _OF_QUANTITY for name in names):
            yield key, [_OF_QUANTITY[name] for name in names]
