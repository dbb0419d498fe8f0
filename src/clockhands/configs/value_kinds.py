"""What the value of a key may be, by the quantity that a type reads from it.

A value that the audit needs is checked where it is read. A class checks the others as well, so those that nothing
needed are checked here: a config with a word for its number of heads is not correct.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from clockhands.configs.fields import Fields, is_number, is_whole, shown
from clockhands.configs.model_types import model_type, table
from clockhands.configs.null_keys import REFUSED
from clockhands.configs.resolved import Fact


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


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "a whole number of at least 1": _whole(1),
    "a whole number of at least 0": _whole(0),
    "a whole number, or one for each part": _either(_whole(0), _by_part),
    "a whole number or a letter for each layer": _either(_whole(0), _text),
    "a whole number of at least -1": _whole(-1),
    "a whole number or a list of them": _either(_whole(0), _many(_whole(0))),
    "a finite number above 0": _above_zero,
    "a finite number of at least 0": _at_least_zero,
    "true or false": _flag,
    "true, false or a number": _either(_flag, _at_least_zero),
    'true, false, "all" or "vision"': _either(_flag, ("all", "vision").__contains__),
    "a text": _text,
    "a text or a list of texts": _either(_text, _many(_text)),
    "a list of whole numbers": _many(_whole(0)),
    "a list of numbers": _many(_either(_flag, _at_least_zero)),
    "a list": _many(lambda _: True),
    "an object": _object,
}
"""Which values fit what is allowed, by its words in ``config_keys.json``."""


@cache
def _allowed() -> Mapping[str, str]:
    """What the values of each quantity may be, in words."""
    kinds: Mapping[str, list[str]] = table()["values"]["kinds"]
    return {quantity: allowed for allowed, quantities in kinds.items() for quantity in quantities}


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
    for key, allowed in _allowed_of_keys(fields):
        if key not in fields.values or fields.source(key) in noted:
            continue
        value = fields.values[key]
        if fields.nulls.get(key) == REFUSED:
            fields.null(key, REFUSED)
        elif value is not None and not any(_FITS[each](value) for each in allowed):
            fields.impossible(key, " or ".join(allowed))


def _allowed_of_keys(fields: Fields) -> Iterator[tuple[str, list[str]]]:
    """The keys that a type reads, each with what its value may be; none of those of which that is not known."""
    quantities: dict[str, list[str]] = {}
    for quantity, keys in fields.spellings.items():
        for key in keys if quantity != "unused" else ():
            quantities.setdefault(key, []).append(quantity)
    for key, names in quantities.items():
        if all(name in _allowed() for name in names):
            yield key, [_allowed()[name] for name in names]
