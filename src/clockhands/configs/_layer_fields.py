"""Groups the layers that share a position code: kinds, windows, layers without RoPE, values of single layers."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from clockhands.configs import layer_rules
from clockhands.configs.fields import MOST_LAYERS, Fields, Sourced, value_of
from clockhands.configs.model_types import CodeOfType, layer_labels
from clockhands.configs.resolved import layer_ranges

# Position quantities for which single layers may have other values.
OF_ONE_LAYER = ("head_width", "rotated", "unrotated", "window")


@dataclass(frozen=True)
class LayerGroup:
    """Layers that share a code.

    Attributes:
        kind: ``full``, ``sliding``, ``chunked`` or ``none`` (no rotation).
        labels: The names that the file uses for such layers, as keys of a nested block.
        layers: Their numbers in the short form; None if the number of layers is unknown.
        window: Tokens that they see, or None for all.
        two_sided: Whether these are on both sides of the query.
        chunk: Tokens of a chunk, if a layer only sees the query's own chunk; else None.
        pattern: Whether it is known which layers are of which kind.
        base: Their own base, if the file has one for each layer.
        share: Their own partial rotary factor, likewise.
        own: The config with the values of these layers, if single layers have other values; else None.
        area: Height and width of the window of an image that they see, in patches; None for all of it.
        source: The source of each field.
    """

    kind: str
    labels: tuple[str, ...]
    layers: str | None
    window: int | None
    pattern: bool
    source: Mapping[str, str]
    base: Sourced[float] | None = None
    chunk: int | None = None
    two_sided: bool = False
    share: Sourced[float] | None = None
    own: Fields | None = None
    area: tuple[int, int] | None = None


def layer_groups(fields: Fields, row: CodeOfType | None, type_source: str, part: str) -> list[LayerGroup]:
    """The layers of one part, grouped by their position code.

    Args:
        fields: The config of the part.
        row: The code of its type, or None for a type that is not in the table.
        type_source: The source text for rules that follow from the type.
        part: The part.
    """
    sides = layer_rules.sides_of_window(fields, row, part)
    count = fields.whole("layers", most=MOST_LAYERS)
    number = None if count is None else count.value
    window, area = layer_rules.window_of(fields, row), layer_rules.area_of(fields, row)
    windows = layer_rules.windows_of_layers(fields, number)
    still = _still_layers(fields, row, number, type_source)
    kinds, source = layer_rules.kinds_of_layers(layer_rules.Layers(fields, row, number, window, still, type_source))
    labels = layer_labels(row)
    slides = [kind == "sliding" for kind in kinds]
    if still:
        kinds = [("none" if layer in still[0] else kind) for layer, kind in enumerate(kinds)]
    still_kinds = _still_kinds(fields, row, labels, window)
    kinds = ["none" if kind in still_kinds else kind for kind in kinds]
    chunk = layer_rules.size_seen(fields, "chunk")
    bases = _layer_bases(fields, number)
    if bases is not None:
        # A base of 0 stands for no rotation.
        kinds = [kind if base else "none" for kind, base in zip(kinds, bases.value or [], strict=True)]
    shares = _layer_shares(fields, number)
    nothing = [None] * len(kinds)
    of_layers = [nothing if found is None else found.value or nothing for found in (bases, shares, windows)]
    apart = fields.raw("per_layer")
    owns = None if apart is None else _own_values(fields, fields.key_of(apart), number)
    # For an unknown type, what layers without RoPE see is not known.
    slides = [slide and (kind == "sliding" or row is not None) for slide, kind in zip(slides, kinds, strict=True)]
    each = list(zip(kinds, slides, *of_layers, owns or nothing, strict=True))
    alike: dict[Any, list[int]] = {}
    for layer, mark in enumerate(each):
        alike.setdefault(mark, []).append(layer)
    # Layer numbers as they are written, such as "5" or "05".
    written = (
        {} if apart is None or owns is None else {int(layer): layer for layer in fields.values[fields.key_of(apart)]}
    )
    groups: list[LayerGroup] = []
    for (kind, slide, own, turned, single, values), places in alike.items():
        known = {} if count is None or count.value is None else {"layers": _join(count.source, source)}
        if kind == "none" and still and not set(places) - still[0]:
            known["kind"] = still[1]
        of_group = fields
        if apart is not None and owns is not None:
            place = f"{fields.key_of(apart)}.{written.get(places[0])}."
            of_group = fields.with_values(dict(values or ()), place)
            window = layer_rules.window_of(of_group, row)
        if windows is not None:
            window = Sourced(single, windows.source)
        seen = None
        if slide and window is not None:
            size = window.value or None
            seen = size if size is None or sides is None else layer_rules.COVERED[sides](size)
            known["window"] = _join(window.source, source)
        elif kind == "chunked" and chunk is not None and chunk.value:
            known["chunk"] = chunk.source
        if slide and area is not None:
            known["window_area"] = _join(area.source, source)
        layers = layer_ranges(places) if number is not None else None
        base = None if bases is None or not own else Sourced(own, bases.source)
        cut = chunk.value if "chunk" in known and chunk is not None else None
        share = None if shares is None or turned is None else Sourced(turned, shares.source)
        two_sided = seen is not None and sides not in (None, "half")
        more = {"base": base, "chunk": cut, "share": share, "two_sided": two_sided, "own": of_group if owns else None}
        more["area"] = area.value if "window_area" in known and area is not None else None
        groups.append(LayerGroup(kind, labels.get(kind, ()), layers, seen, source is not None, known, **more))
    return groups


def _still_kinds(
    fields: Fields, row: CodeOfType | None, labels: Mapping[str, tuple[str, ...]], window: Sourced[int] | None
) -> set[str]:
    """Kinds of layers without RoPE: by the type, or because the file has null instead of their rotary block."""
    if row is None:
        return set()
    still: set[str] = set()
    if row.unturned is not None and (value_of(window) or row.unturned == "always"):
        still = {"full"}
    elif row.unturned == "windowless":
        still = set(labels)
    for key in fields.spellings.get("blocks", ()) if row.nested else ():
        block = fields.values.get(key)
        named = block if isinstance(block, Mapping) else {}
        for kind, names in labels.items():
            held = [named[name] for name in names if name in named]
            if held:
                still = still | {kind} if held[0] is None else still - {kind}
    return still


def _own_values(fields: Fields, key: str, number: int | None) -> list[tuple[tuple[str, int | None], ...]] | None:
    """The keys that have other values in single layers, by layer, as in Transformers 5; None if there are none."""
    held = fields.values[key]
    if number is None:
        return None
    if not isinstance(held, Mapping):
        fields.unreadable(key, "an object of layer numbers")
        return None
    keys = {name for quantity in OF_ONE_LAYER for name in fields.spellings.get(quantity, ())}
    own: list[tuple[tuple[str, int | None], ...]] = [()] * number
    for layer, values in held.items():
        whole = isinstance(values, Mapping) and all(type(values[name]) in (int, NoneType) for name in keys & {*values})
        if not whole or not re.fullmatch(r"\d{1,6}", str(layer)) or int(layer) >= number:
            fields.unreadable(key, f"objects of whole numbers under the numbers of the {number} layers")
            return None
        fields.read_at.setdefault(f"{fields.path}{key}.{layer}.", set()).update(values)
        own[int(layer)] = tuple(sorted((name, values[name]) for name in keys & {*values}))
    return own


def _layer_bases(fields: Fields, number: int | None) -> Sourced[list[float]] | None:
    """The base of each layer, if the file lists them."""
    return _of_layers(fields, "layer_bases", number, _is_base, "a base above 1, or 0 for no rotation,")


def _layer_shares(fields: Fields, number: int | None) -> Sourced[list[float]] | None:
    """The partial rotary factor of each layer, if the file lists them."""
    return _of_layers(fields, "layer_shares", number, _is_share, "a share above 0 and at most 1")


def _of_layers(
    fields: Fields, quantity: str, number: int | None, fits: Callable[[Any], bool], allowed: str
) -> Sourced[list[float]] | None:
    """A number for each layer; the list may continue with layers for multi-token prediction."""
    held = fields.raw(quantity)
    if (
        held is not None
        and not isinstance(held.value, list)
        and fields.key_of(held) in fields.spellings.get("base", ())
    ):
        return None  # one base for all layers, under the key that may also list them
    listed = fields.items(quantity)
    if listed is None or not listed.value or number is None:
        return None
    if len(listed.value) in (number, number + layer_rules.further_layers(fields)) and all(map(fits, listed.value)):
        return Sourced([float(value) for value in listed.value[:number]], listed.source)
    fields.impossible(fields.key_of(listed), f"{allowed} for each of the {number} layers")
    return None


def _is_share(share: Any) -> bool:
    return isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1


def _is_base(base: Any) -> bool:
    number = isinstance(base, int | float) and not isinstance(base, bool) and math.isfinite(base)
    return number and (base == 0 or base > 1)


def _still_layers(
    fields: Fields, row: CodeOfType | None, number: int | None, type_source: str
) -> tuple[frozenset[int], str] | None:
    """Layers without RoPE, by a list of flags (1 rotates), a list of numbers, or a period."""
    if number is None:
        return None
    flags = fields.items("rotating_layers")
    if flags is not None and flags.value:
        if len(flags.value) != number or not all(flag in (0, 1) for flag in flags.value):
            key = fields.key_of(flags)
            if key in fields.values:
                fields.impossible(key, f"0 or 1 for each of the {number} layers")
            else:  # the default list of the class is for its default number of layers
                missing = (fields.spellings.get("rotating_layers") or ("rotating_layers",))[0]
                fields.missing(missing, "the layers without rotation")
            return None
        return frozenset(layer for layer, flag in enumerate(flags.value) if not flag), flags.source
    numbers = fields.items("still_layers")
    if numbers is not None and numbers.value:
        return frozenset(layer for layer in numbers.value if isinstance(layer, int)), numbers.source
    described = fields.items("layer_blocks")
    if described is not None and described.value:
        without = [layer for layer, block in enumerate(described.value) if _attends_not(block)]
        return (frozenset(without), described.source) if without else None
    period = fields.whole("still_period", most=MOST_LAYERS)
    if period is None and row is not None and row.still:
        period = Sourced(row.still, type_source)
    if period is None or not period.value:
        return None
    every = period.value
    return frozenset(layer for layer in range(number) if (layer + 1) % every == 0), period.source


def _attends_not(block: Any) -> bool:
    """Whether a layer has no attention, or linear attention, by the object that describes it."""
    attention = block.get("attention") if isinstance(block, Mapping) else None
    return isinstance(attention, Mapping) and bool(attention.get("no_op") or attention.get("replace_with_linear"))


def _join(*sources: str | None) -> str:
    return ", ".join(dict.fromkeys(source for source in sources if source))
