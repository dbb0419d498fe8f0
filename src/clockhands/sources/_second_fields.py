"""Second rotations beside the attention of a model: the indexers of a sparse attention."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.sources.fields import MOST_LAYERS, Fields, value_of
from clockhands.sources.model_types import CodeOfType
from clockhands.sources.resolved import Code, layer_numbers, layer_ranges


def in_own_layers(code: Code, fields: Fields, row: CodeOfType) -> Code | None:
    """The code in those of its layers that have it by its type; None where it has it in none of them.

    The other layers take the keys that an earlier layer chose, or attend to all.
    """
    says = row.only
    if not says or code.layers is None:
        return code
    if code.kind not in says.get("kinds", (code.kind,)):
        return None
    number = value_of(fields.whole("layers", most=MOST_LAYERS))
    source: list[str] = []
    chosen: set[int] | None = None
    for quantity, marks in says.get("marks", {}).items():
        listed = _listed(fields, quantity, number)
        if listed is not None:
            held = {layer for layer, mark in enumerate(listed) if mark in marks}
            chosen = held if chosen is None else chosen & held
            found = fields.raw(quantity)
            source.append(fields.default_source if found is None else found.source)
    if chosen is None and number is not None:
        chosen = _counted(says, fields, number)
    if chosen is None:
        return code
    layers = sorted(layer_numbers(code.layers) & chosen)
    if not layers:
        return None
    places = {"layers": ", ".join(dict.fromkeys(source))} if source else {}
    return replace(code, layers=layer_ranges(layers), source={**code.source, **places})


def _listed(fields: Fields, quantity: str, number: int | None) -> Sequence[Any] | None:
    """A mark for each layer, as a list or as letters; the list may go on with layers that predict further tokens."""
    found = fields.raw(quantity)
    held = fields.defaults.get(quantity) if found is None else found.value
    whole = isinstance(held, list | str) and number is not None and len(held) >= number
    return held[:number] if whole else None


def _counted(says: Mapping[str, Any], fields: Fields, number: int) -> set[int] | None:
    """The layers that have the code where a file lists none: none of them, or as the type counts them."""
    if "every" not in says:
        return set() if "marks" in says else None
    every = _number(says["every"], fields)
    if "first" in says:
        return set(range(says["first"], number, every or 1))
    leading = _number(says["leading"], fields)
    if every is None or leading is None:
        return None
    return set(range(min(leading, number))) | set(range(leading - 1 + max(every, 1), number, max(every, 1)))


def _number(held: int | str, fields: Fields) -> int | None:
    """A number of the type, or the one of a quantity."""
    return value_of(fields.whole(held, least=0, most=MOST_LAYERS)) if isinstance(held, str) else held
