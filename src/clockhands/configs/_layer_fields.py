"""Groups the layers that share a position code: windows, kinds of layers, layers without RoPE."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from clockhands.configs.fields import MOST_LAYERS, Fields, Sourced, value_of
from clockhands.configs.model_types import CodeOfType, table
from clockhands.configs.resolved import layer_ranges

# Window rules for windows on both sides of the query.
TWO_SIDED = ("both", "beyond", "radius", "shared")

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


def layer_groups(fields: Fields, row: CodeOfType | None, type_source: str, part: str) -> list[LayerGroup]:
    """The layers of one part, grouped by their position code.

    Args:
        fields: The config of the part.
        row: The code of its type, or None for a type that is not in the table.
        type_source: The source text for rules that follow from the type.
        part: The part.
    """
    sides = None if row is None else _sides(fields, row, part)
    count = fields.whole("layers", most=MOST_LAYERS)
    number = None if count is None else count.value
    window = _window(fields, row)
    still = _still_layers(fields, row, number, type_source)
    kinds, source = _kinds(fields, row, number, window, type_source, still)
    labels = _label_names() | ({} if row is None else {kind: tuple(names) for kind, names in row.labels.items()})
    if row is not None and row.windows.get("last") and kinds[-1] == "sliding" and number:
        kinds = [*kinds[:-1], "full"]
    if row is not None and row.windows.get("every") and window is not None and window.value:
        # The class uses its window in every layer that attends, whatever the list says.
        kinds = ["sliding" if kind == "full" else kind for kind in kinds]
    slides = [kind == "sliding" for kind in kinds]
    if still:
        kinds = [("none" if layer in still[0] else kind) for layer, kind in enumerate(kinds)]
    still_kinds = _still_kinds(fields, row, labels, window)
    kinds = ["none" if kind in still_kinds else kind for kind in kinds]
    chunk = _or_none(fields, "chunk")
    chunks = row is not None and row.windows.get("chunks") and not fields.declares("layer_types")
    if chunks and chunk is not None and chunk.value:
        # Unless they are listed, all rotary layers attend inside chunks.
        kinds = ["chunked" if kind == "full" else kind for kind in kinds]
    bases = _layer_bases(fields, number)
    if bases is not None:
        # A base of 0 stands for no rotation.
        kinds = [kind if base else "none" for kind, base in zip(kinds, bases.value or [], strict=True)]
    shares = _layer_shares(fields, number)
    nothing = [None] * len(kinds)
    of_layers = [nothing if found is None else found.value or nothing for found in (bases, shares)]
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
    for (kind, slide, own, turned, values), places in alike.items():
        known = {} if count is None or count.value is None else {"layers": _join(count.source, source)}
        if kind == "none" and still and not set(places) - still[0]:
            known["kind"] = still[1]
        of_group = fields
        if apart is not None and owns is not None:
            place = f"{fields.key_of(apart)}.{written.get(places[0])}."
            of_group = fields.with_values(dict(values or ()), place)
            window = _window(of_group, row)
        seen = None
        if slide and window is not None:
            seen = _seen(window.value or None, sides)
            known["window"] = _join(window.source, source)
        elif kind == "chunked" and chunk is not None and chunk.value:
            known["chunk"] = chunk.source
        layers = layer_ranges(places) if number is not None else None
        base = None if bases is None or not own else Sourced(own, bases.source)
        cut = chunk.value if "chunk" in known and chunk is not None else None
        share = None if shares is None or turned is None else Sourced(turned, shares.source)
        two_sided = seen is not None and sides in TWO_SIDED
        more = {"base": base, "chunk": cut, "share": share, "two_sided": two_sided, "own": of_group if owns else None}
        groups.append(LayerGroup(kind, labels.get(kind, ()), layers, seen, source is not None, known, **more))
    return groups


def _still_kinds(
    fields: Fields, row: CodeOfType | None, labels: Mapping[str, tuple[str, ...]], window: Sourced[int] | None
) -> set[str]:
    """Kinds of layers without RoPE: by the type, or because the file has null instead of their rotary block."""
    if row is None:
        return set()
    if (window is not None and window.value) or row.windowless == "same":
        still = set(row.unturned)
    else:
        still = set(labels) if row.windowless == "all" else set()
    for key in fields.spellings.get("blocks", ()) if row.nested else ():
        block = fields.values.get(key)
        named = block if isinstance(block, Mapping) else {}
        for kind, names in labels.items():
            held = [named[name] for name in names if name in named]
            if held:
                still = still | {kind} if held[0] is None else still - {kind}
    return still


def _sides(fields: Fields, row: CodeOfType, part: str) -> str | None:
    """Where the window of a type is, by its rule and the key that turns a decoder into an encoder.

    None stands for a window of the last tokens.
    """
    switch = fields.raw("two_sided")
    if switch is not None and switch.value in (True, "all"):
        return row.windows.get("switched", "both")
    held = {name: row.windows[name] for name in (*TWO_SIDED, "half") if name in row.windows}
    return next((name for name, parts in held.items() if parts is True or part in parts), None)


def _seen(window: int | None, sides: str | None) -> int | None:
    """How many tokens a window of this size covers."""
    if window is None or sides is None or sides == "shared":
        return window
    if sides in ("both", "beyond"):
        return 2 * (window // 2) + (1 if sides == "both" else 3)  # half of it on either side of the query, or one more
    return 2 * window + 1 if sides == "radius" else window // 2  # all of it on either side, or half before


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
    if len(listed.value) in (number, number + _further_layers(fields)) and all(map(fits, listed.value)):
        return Sourced([float(value) for value in listed.value[:number]], listed.source)
    fields.impossible(fields.key_of(listed), f"{allowed} for each of the {number} layers")
    return None


def _further_layers(fields: Fields) -> int:
    """The number of layers for multi-token prediction, after those of the model itself."""
    return value_of(fields.whole("further_layers", least=0, most=MOST_LAYERS)) or 0


def _is_share(share: Any) -> bool:
    return isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1


def _is_base(base: Any) -> bool:
    number = isinstance(base, int | float) and not isinstance(base, bool) and math.isfinite(base)
    return number and (base == 0 or base > 1)


def _window(fields: Fields, row: CodeOfType | None) -> Sourced[int] | None:
    """The window, unless a switch of the config turns it off."""
    switch = fields.flag("window_on")
    listed = row is not None and row.windows.get("switch") == "unlisted" and fields.declares("layer_types")
    if switch is not None and switch.value is False and not listed:
        for name in ("window", "window_from", "window_period"):
            fields.present(name)
        return None
    key = None if row is None else row.windows.get("before_query")
    before = None if key is None else fields.values.get(key)
    if key is not None and type(before) is int and before > 0:
        return Sourced(before + 1, fields.source(key))
    return _or_none(fields, "window")


def _check_window(fields: Fields, window: Sourced[int] | None, listed: Sourced[list[Any]] | None) -> None:
    """Note a window of 0, and listed layers that slide without one: Transformers 5 fails at both."""
    written = fields.written("window")
    if not written or (listed is None if window is None else window.value != 0):
        return
    at = window or Sourced(fields.values[written[0]], fields.source(written[0]))
    switch = fields.raw("window_on") if window is None else None
    allowed = "a window of 1 or more tokens" + (", which the listed layers need" if listed else ", or null for none")
    fields.impossible_together(allowed, at, *(each for each in (switch, listed) if each is not None))


def _or_none(fields: Fields, quantity: str) -> Sourced[int] | None:
    """How much a layer sees; null means all, while a missing key means the class default."""
    if fields.raw(quantity) is None and quantity in fields.defaults and fields.written(quantity):
        return None
    return fields.whole(quantity, least=0)


def _kinds(  # noqa: PLR0917 - what the kinds follow from
    fields: Fields,
    row: CodeOfType | None,
    number: int | None,
    window: Sourced[int] | None,
    type_source: str,
    still: tuple[frozenset[int], str] | None,
) -> tuple[list[str], str | None]:
    """The kind of each layer, and the source of the pattern; if their number is unknown, one layer of each kind."""
    listed = fields.items("layer_types")
    named = _named_kinds(fields, listed, number) if listed is not None else None
    if named is not None and listed is not None:
        _check_window(fields, window, listed if "sliding" in named else None)
        return named, listed.source
    _check_window(fields, window, None)
    marked = _marked_kinds(fields, number)
    if marked is not None:
        return marked
    rule = dict(row.windows) if row is not None else {"rule": "period" if fields.declares("window_period") else "all"}
    # Kinds that differ in more than their window remain different without one.
    apart = row is not None and bool(row.nested or row.bases or {"others", "always"} & set(row.windows))
    needed = row is not None and window is None and _has_a_window_always(fields, row)
    if "rule" not in rule or ((window is None or not window.value) and not apart and not needed):
        return ["full"] * (number or 1), None
    kinds, source = _kinds_by_rule(fields, row, number, rule, type_source, still)
    if needed and ("sliding" in kinds or rule.get("needed")):
        written = fields.written("window")[0]
        at = Sourced(fields.values[written], fields.source(written))
        fields.impossible_together("a window of 1 or more tokens, which layers of this type need", at)
        kinds = kinds if apart else ["full"] * len(kinds)
    return kinds, source


def _has_a_window_always(fields: Fields, row: CodeOfType) -> bool:
    """Whether null means the window of a type whose class always builds layers with a window."""
    rule = row.windows
    always = rule.get("needed") or (rule.get("rule") in ("period", "cycle") and not rule.get("until"))
    switch = fields.flag("window_on")
    off = switch is not None and not switch.value
    return bool(always and not off and fields.defaults.get("window") and fields.written("window"))


def _kinds_by_rule(  # noqa: PLR0917 - what the kinds follow from
    fields: Fields,
    row: CodeOfType | None,
    number: int | None,
    rule: Mapping[str, Any],
    type_source: str,
    still: tuple[frozenset[int], str] | None,
) -> tuple[list[str], str | None]:
    """The kind of each layer by the rule of a type, and the source of the pattern."""
    name = rule["rule"]
    if name == "all":
        return ["sliding"] * (number or 1), type_source if row else None
    if name == "unturned":
        inside, place = still or (frozenset(), type_source)
        return ["sliding" if layer in inside else "full" for layer in range(number or 1)], place
    if name == "cycle":
        cycle = fields.items("cycle")
        # Attention blocks have a window here; all others keep a recurrent state.
        marks = ["sliding" if each == "attention" else "none" for each in (cycle.value if cycle else None) or ()]
        every = len(marks) or 1
        of_all = [marks[layer % every] if marks else "full" for layer in range(number or every)]
        return of_all, cycle.source if cycle else type_source
    if name == "listed":
        numbers = fields.items("full_layers")
        if numbers is None:
            return [rule.get("absent", "full")] * (number or 1), type_source
        inside = {layer for layer in numbers.value or () if isinstance(layer, int)}
        of_these = rule.get("inside", "full")
        return [of_these if layer in inside else rule["others"] for layer in range(number or 1)], numbers.source
    if name == "from":
        first = fields.whole("window_from", least=0)
        if first is None or first.value is None:
            return ["full"] * (number or 1), None
        edge = first.value
        return ["sliding" if layer >= edge else "full" for layer in range(number or 1)], first.source
    written = fields.raw("window_period")
    letters: Any = rule.get("letters", {})
    if letters and written is not None and isinstance(written.value, str):
        if not written.value or set(written.value) - letters.keys():
            allowed = f"a number of layers, or a text of the letters {' and '.join(letters)}"
            fields.impossible(fields.key_of(written), allowed)
            return _unknown_kinds(row, number), None
        kinds = [letters[written.value[layer % len(written.value)]] for layer in range(number or len(written.value))]
        return [*kinds[:-1], "full"] if number else kinds, written.source
    period = fields.whole("window_period", most=MOST_LAYERS) or Sourced(
        row.windows.get("period") if row else None, type_source
    )
    every: int | None = period.value
    if every is None:
        return _unknown_kinds(row, number), None
    # One layer in each period sees all positions, the last one or the one that the rule numbers; the others slide.
    turn = rule.get("turn", every - 1)
    if rule.get("back") and number:
        turn = (number - 1) % every  # counted from the last layer
    others = rule.get("others", "sliding")
    kinds = ["full" if layer % every == turn else others for layer in range(number or every)]
    if rule.get("also"):
        kinds[0] = "full"
    if rule.get("until"):
        edge = fields.whole("window_from", least=0)
        kinds = [kind if edge and edge.value and layer < edge.value else "full" for layer, kind in enumerate(kinds)]
    return kinds, period.source


def _unknown_kinds(row: CodeOfType | None, number: int | None) -> list[str]:
    """Kinds of layers if the pattern of a file cannot be used: no layer is assumed to have no RoPE."""
    return ["sliding" if row is not None and "full" in row.unturned else "full"] * (number or 1)


def _marked_kinds(fields: Fields, number: int | None) -> tuple[list[str], str] | None:
    """Kinds by a number for each layer: 1 where it slides; or how much it compresses, 0 where it only slides."""
    for quantity, slides in (("window_flags", 1), ("compressions", 0)):
        listed = fields.items(quantity)
        # A list may continue with layers for multi-token prediction.
        if listed is None or not listed.value or number is None or len(listed.value) < number:
            continue
        return ["sliding" if mark == slides else "full" for mark in listed.value[:number]], listed.source
    return None


def _named_kinds(fields: Fields, listed: Sourced[list[Any]], number: int | None) -> list[str] | None:
    held = listed.value
    if not held:
        return None
    meaning = {name: kind for kind, names in table()["labels"].items() if kind != "says" for name in names}
    key = fields.key_of(listed)
    if number is not None and len(held) != number and key not in fields.values:
        # The default list of the class is for its default number of layers.
        if len(set(map(str, held))) == 1 and held[0] in meaning:
            return [meaning[held[0]]] * number
        missing = (fields.spellings.get("layer_types") or ("layer_types",))[0]
        fields.missing(missing, "the kinds of the layers")
        return None
    if number is not None and len(held) == number + _further_layers(fields):
        held = held[:number]
    if number is not None and len(held) != number:
        fields.impossible(key, f"one name for each of the {number} layers, not {len(held)}")
        return None
    if len(held) > MOST_LAYERS:
        fields.impossible(key, f"at most {MOST_LAYERS:,} layers")
        return None
    names = [name if isinstance(name, str) else str(name) for name in held]
    unknown = sorted({name for name in names if name not in meaning})
    if unknown:
        fields.unreadable(key, f"names such as {', '.join(sorted(meaning)[:6])}; not {', '.join(unknown[:4])}")
        return None
    return [meaning[name] for name in names]


def _label_names() -> dict[str, tuple[str, ...]]:
    return {kind: tuple(names) for kind, names in table()["labels"].items() if kind != "says"}


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
