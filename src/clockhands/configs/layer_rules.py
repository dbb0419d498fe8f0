"""What the layers of a model see: a function for each family of models, which a row of the table names as its ``rule``.

A function is given what the layers of one part follow from. It returns the kind of each layer (``full``, ``sliding``,
``chunked``, or ``none`` for one without rotation) and the source of the pattern, which is None where all layers are
alike. The kinds that a file lists come before those of its class. If the number of layers is unknown, there is one
layer of each kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from clockhands.configs.fields import LONGEST, MOST_LAYERS, Fields, Sourced, value_of
from clockhands.configs.model_types import CodeOfType, layer_labels

Kinds = tuple[list[str], str | None]


@dataclass(frozen=True)
class Layers:
    """What the kinds of layers follow from.

    Attributes:
        fields: The config of the part.
        row: The code of its type, or None for a type that is not in the table.
        number: How many layers there are, or None if that is unknown.
        window: The window, or None if there is none.
        still: The layers without RoPE, with the source of that; None if all rotate.
        type_source: The source text for what follows from the type.
    """

    fields: Fields
    row: CodeOfType | None
    number: int | None
    window: Sourced[int] | None
    still: tuple[frozenset[int], str] | None
    type_source: str


def kinds_of_layers(layers: Layers) -> Kinds:
    """The kinds by the rule of the type, or by the keys of the file if the type is not in the table."""
    if layers.row is not None:
        return all_full(layers) if layers.row.rule is None else RULES[layers.row.rule](layers)
    listed = _listed(layers)
    if listed is not None:
        return listed
    by_keys = _one_in_each if layers.fields.declares("window_period") else _each_slides
    return _in_windows(layers, by_keys, needed=False)


def all_full(layers: Layers) -> Kinds:
    """All layers see all positions, unless the file lists kinds."""
    return _listed(layers) or _alike(layers)


def all_slide(layers: Layers) -> Kinds:
    """All layers slide."""
    return _listed(layers) or _in_windows(layers, _each_slides, needed=False)


def last_full(layers: Layers) -> Kinds:
    """The last layer of each period sees all positions, the others slide."""
    return _listed(layers) or _in_windows(layers, _one_in_each)


def first_full(layers: Layers) -> Kinds:
    """The first layer of each period sees all positions, the others slide."""
    return _listed(layers) or _in_windows(layers, partial(_one_in_each, turn=0))


def last_attends(layers: Layers) -> Kinds:
    """The last layer of each period attends, the others have linear attention."""
    return _listed(layers) or _one_in_each(layers, others="none")


def slide_from(layers: Layers) -> Kinds:
    """Layers slide from a number on."""

    def pattern(layers: Layers) -> Kinds:
        first = layers.fields.whole("window_from", least=0)
        if first is None or first.value is None:
            return _alike(layers)
        return ["sliding" if layer >= first.value else "full" for layer in range(layers.number or 1)], first.source

    return _listed(layers) or _in_windows(layers, pattern, needed=False)


def listed_attend(layers: Layers) -> Kinds:
    """The layers of a list of numbers attend, the others are convolutions; without a list all attend."""
    return _listed(layers) or _by_numbers(layers, "full", "none", "full")


def bamba(layers: Layers) -> Kinds:
    """The layers of a list of numbers attend, the others are Mamba; without a list all are."""
    return _listed(layers) or _by_numbers(layers, "full", "none", "none")


def listed_slide(layers: Layers) -> Kinds:
    """The layers of a list of numbers slide."""
    return _listed(layers) or _by_numbers(layers, "sliding", "full", "full")


def deepseek_v4(layers: Layers) -> Kinds:
    """All layers see all positions unless they are listed; the class needs a window in any case."""
    listed = _listed(layers)
    if listed is None and _null_in_place_of_window(layers):
        _note_the_null(layers)
    return listed or _alike(layers)


def exaone4(layers: Layers) -> Kinds:
    """The period may be a text of the letters L (slides) and G (sees all); then the last layer sees all as well."""
    letters = {"L": "sliding", "G": "full"}

    def pattern(layers: Layers) -> Kinds:
        written = layers.fields.raw("window_period")
        if written is None or not isinstance(written.value, str):
            return _one_in_each(layers)
        if not written.value or set(written.value) - letters.keys():
            allowed = f"a number of layers, or a text of the letters {' and '.join(letters)}"
            layers.fields.impossible(layers.fields.key_of(written), allowed)
            return _unknown(layers), None
        kinds = _repeated(layers, [letters[each] for each in written.value])
        return [*kinds[:-1], "full"] if layers.number else kinds, written.source

    return _listed(layers) or _in_windows(layers, pattern)


def flint(layers: Layers) -> Kinds:
    """The second layer of each period sees all positions, and so do the first and the last of all."""
    return _last_too(layers, _listed(layers) or _in_windows(layers, partial(_first_too, turn=1)))


def gemma4(layers: Layers) -> Kinds:
    """The last layer of each period sees all positions, and so does the last of all, whatever is listed."""
    return _last_too(layers, last_full(layers))


def beam(layers: Layers) -> Kinds:
    """Kinds are listed; otherwise the last layer of each period sees all positions, and so does the last of all."""
    return _listed(layers) or _last_too(layers, last_full(layers))


def gpt_neo(layers: Layers) -> Kinds:
    """Kinds are listed, or written as lists that are repeated; those of the class are for its number of layers."""
    listed, cycles = _listed(layers), layers.fields.items("cycles")
    if listed is not None or cycles is None:
        return listed or _alike(layers)
    meaning = {name: kind for kind, names in layer_labels().items() for name in names}
    try:
        names = [name for cycle, times in cycles.value or () for _ in range(min(times, MOST_LAYERS)) for name in cycle]
        kinds = [meaning[name] for name in names]
    except (TypeError, ValueError, KeyError):
        kinds = []
    if layers.number is not None and len(kinds) == layers.number:
        return kinds, cycles.source
    if layers.fields.declares("cycles"):
        layers.fields.impossible(layers.fields.key_of(cycles), f"lists of global and local for {layers.number} layers")
    return _alike(layers)


def own_windows(layers: Layers) -> Kinds:
    """All layers slide, and each may have a window of its own."""
    return ["sliding"] * (layers.number or 1), None


def listed_see_all(layers: Layers) -> Kinds:
    """The layers of a list of numbers see all of an image, the others a window of it, if there is one."""
    if area_of(layers.fields, layers.row) is None:
        return _alike(layers)
    return _by_numbers(layers, "full", "sliding", "sliding")


def llama4(layers: Layers) -> Kinds:
    """Unless kinds are listed, all layers that rotate attend inside chunks of the text."""
    kinds, source = all_full(layers)
    chunk = None if layers.fields.declares("layer_types") else size_seen(layers.fields, "chunk")
    return ["chunked" if kind == "full" and value_of(chunk) else kind for kind in kinds], source


def mimo_v2_flash(layers: Layers) -> Kinds:
    """The last layer of each period sees all positions, and so does the first of all."""
    return _listed(layers) or _in_windows(layers, _first_too)


def minimax(layers: Layers) -> Kinds:
    """The first layer of each period attends, in a window if there is one, whatever is listed."""
    return _attending_slide(layers, _listed(layers) or _one_in_each(layers, turn=0, others="none"))


def ministral(layers: Layers) -> Kinds:
    """All layers slide, and the class needs a window."""
    return _listed(layers) or _in_windows(layers, _each_slides)


def muse_glimmer(layers: Layers) -> Kinds:
    """The last layer of each period sees all positions, where periods are counted back from the last layer."""
    return _listed(layers) or _in_windows(layers, partial(_one_in_each, turn=(layers.number or 0) - 1))


def qwen2_moe(layers: Layers) -> Kinds:
    """The first layer of each period slides if its number is below a limit."""

    def pattern(layers: Layers) -> Kinds:
        kinds, source = _one_in_each(layers)
        edge = value_of(layers.fields.whole("window_from", least=0)) or 0
        return [kind if layer < edge else "full" for layer, kind in enumerate(kinds)], source

    return _listed(layers) or _in_windows(layers, pattern, needed=False)


def qwen3_moe(layers: Layers) -> Kinds:
    """All layers slide, whatever is listed."""
    return _attending_slide(layers, all_slide(layers))


def recurrent_gemma(layers: Layers) -> Kinds:
    """A list of blocks is repeated: those that attend slide, the others keep a recurrent state."""

    def pattern(layers: Layers) -> Kinds:
        cycle = layers.fields.items("cycle")
        marks = ["sliding" if each == "attention" else "none" for each in (cycle.value if cycle else None) or ()]
        return _repeated(layers, marks or ["full"]), cycle.source if cycle else layers.type_source

    return _listed(layers) or _in_windows(layers, pattern)


def smollm3(layers: Layers) -> Kinds:
    """The layers that do not rotate slide."""
    inside, place = layers.still or (frozenset(), layers.type_source)
    kinds = ["sliding" if layer in inside else "full" for layer in range(layers.number or 1)]
    return _listed(layers) or _in_windows(layers, lambda _: (kinds, place), needed=False)


RULES: Mapping[str, Callable[[Layers], Kinds]] = {
    rule.__name__: rule
    for rule in (
        all_slide, last_full, first_full, last_attends, slide_from, listed_attend, bamba, beam, listed_slide,
        deepseek_v4, exaone4, flint, gemma4, gpt_neo, own_windows, listed_see_all, llama4, mimo_v2_flash, minimax,
        ministral, muse_glimmer, qwen2_moe, qwen3_moe, recurrent_gemma, smollm3,
    )
}  # fmt: skip


def window_of(fields: Fields, row: CodeOfType | None) -> Sourced[int] | None:
    """The window, unless a switch of the config turns it off."""
    switch = fields.flag("window_on")
    # The switch of SmolLM3 is for files without a list of kinds alone.
    listed = row is not None and row.rule == "smollm3" and fields.declares("layer_types")
    if switch is not None and switch.value is False and not listed:
        for name in ("window", "window_from", "window_period"):
            fields.present(name)
        return None
    if row is not None and row.rule == "mimo_v2_flash":
        before = fields.values.get("sliding_window_size")  # counts the tokens of the window without the query
        if type(before) is int and before > 0:
            return Sourced(before + 1, fields.source("sliding_window_size"))
    if fields.written("half_window"):
        half = fields.whole("half_window", least=0)
        return None if half is None else Sourced(half.value and 2 * half.value, half.source)
    return size_seen(fields, "window")


def size_seen(fields: Fields, quantity: str) -> Sourced[int] | None:
    """How much a layer sees; null means all, while a missing key means the class default."""
    if fields.raw(quantity) is None and quantity in fields.defaults and fields.written(quantity):
        return None
    return fields.whole(quantity, least=0)


def area_of(fields: Fields, row: CodeOfType | None) -> Sourced[tuple[int, int]] | None:
    """Height and width, in patches, of the windows of an image; None if it has none."""
    size = None if row is None or row.area is None else fields.whole("area", least=0)
    if row is None or size is None or not size.value:
        return None
    if row.area == "patches":
        return Sourced((size.value, size.value), size.source)
    # The window holds whole groups of the patches that are merged afterwards.
    patch, merge = fields.whole("patch"), fields.whole("merge")
    if patch is None or merge is None or not patch.value or not merge.value:
        return None
    side = size.value // merge.value // patch.value * merge.value
    return Sourced((side, side), f"{size.source} / {patch.source}") if side else None


def windows_of_layers(fields: Fields, number: int | None) -> Sourced[list[int]] | None:
    """The window of each layer, where a type has a list of them or one number for all."""
    found = fields.raw("windows")
    held = fields.defaults.get("windows") if found is None else found.value
    if held is None or number is None:
        return None
    sizes = list(held) if isinstance(held, list | tuple) else [held] * number
    if len(sizes) == number and all(type(size) is int and 0 < size <= LONGEST for size in sizes):
        return Sourced(sizes, fields.default_source if found is None else found.source)
    if found is not None:
        fields.impossible(fields.key_of(found), f"a window of 1 or more tokens for each of the {number} layers")
    return None


# How many tokens a window of a size covers, by where it lies; those of ``half`` are all before the query.
COVERED: Mapping[str, Callable[[int], int]] = {
    "both": lambda size: 2 * (size // 2) + 1,
    "beyond": lambda size: 2 * (size // 2) + 3,
    "radius": lambda size: 2 * size + 1,
    "shared": lambda size: size,
    "half": lambda size: size // 2,
}


def sides_of_window(fields: Fields, row: CodeOfType | None, part: str) -> str | None:
    """Where the window of a type lies, a name in `COVERED`; None stands for a window of the last tokens."""
    if row is None:
        return None
    if row.sides == "encoder":
        return "radius" if part == "encoder" else None
    if not fields.spellings.get("two_sided"):
        return row.sides
    switch = fields.raw("two_sided")  # makes an encoder of a decoder
    return (row.sides or "both") if switch is not None and switch.value in (True, "all") else None


def further_layers(fields: Fields) -> int:
    """The number of layers for multi-token prediction, after those of the model itself."""
    return value_of(fields.whole("further_layers", least=0, most=MOST_LAYERS)) or 0


def _in_windows(layers: Layers, pattern: Callable[[Layers], Kinds], needed: bool = True) -> Kinds:
    """The kinds of a pattern of windows; ``needed`` says that the class fails without one."""
    # Kinds that differ in more than their window remain different without one.
    apart = layers.row is not None and bool(layers.row.nested or layers.row.bases)
    null = needed and _null_in_place_of_window(layers)
    if not (value_of(layers.window) or apart or null):
        return _alike(layers)
    kinds, source = pattern(layers)
    if null and "sliding" in kinds:
        _note_the_null(layers)
        kinds = kinds if apart else ["full"] * len(kinds)
    return kinds, source


def _null_in_place_of_window(layers: Layers) -> bool:
    """Whether a file has null in place of the window that the class has by default."""
    fields, switch = layers.fields, layers.fields.flag("window_on")
    off = switch is not None and not switch.value
    return layers.window is None and bool(not off and fields.defaults.get("window") and _keys_of_window(fields))


def _keys_of_window(fields: Fields) -> list[str]:
    """The keys of the window that the file has, the one that counts first."""
    return [*fields.written("half_window"), *fields.written("window")]


def _note_the_null(layers: Layers) -> None:
    written = _keys_of_window(layers.fields)[0]
    at = Sourced(layers.fields.values[written], layers.fields.source(written))
    layers.fields.impossible_together("a window of 1 or more tokens, which layers of this type need", at)


def _alike(layers: Layers) -> Kinds:
    return ["full"] * (layers.number or 1), None


def _each_slides(layers: Layers) -> Kinds:
    return ["sliding"] * (layers.number or 1), layers.type_source if layers.row else None


def _one_in_each(layers: Layers, turn: int = -1, others: str = "sliding") -> Kinds:
    """One layer of each period sees all positions, by default the last."""
    of_type = Sourced(layers.row.period if layers.row else None, layers.type_source)
    period = layers.fields.whole("window_period", most=MOST_LAYERS) or of_type
    every: int | None = period.value
    if every is None:
        return _unknown(layers), None
    return [others if (layer - turn) % every else "full" for layer in range(layers.number or every)], period.source


def _first_too(layers: Layers, turn: int = -1) -> Kinds:
    kinds, source = _one_in_each(layers, turn)
    return ["full", *kinds[1:]], source


def _last_too(layers: Layers, found: Kinds) -> Kinds:
    kinds, source = found
    return [*kinds[:-1], "full"] if layers.number and kinds[-1] == "sliding" else kinds, source


def _attending_slide(layers: Layers, found: Kinds) -> Kinds:
    """The class uses its window in every layer that attends, whatever the list says."""
    kinds, source = found
    return ["sliding" if kind == "full" and value_of(layers.window) else kind for kind in kinds], source


def _by_numbers(layers: Layers, inside: str, others: str, absent: str) -> Kinds:
    """Kinds by a list of the numbers of layers."""
    numbers = layers.fields.items("full_layers")
    if numbers is None:
        return [absent] * (layers.number or 1), layers.type_source
    listed = {layer for layer in numbers.value or () if isinstance(layer, int)}
    return [inside if layer in listed else others for layer in range(layers.number or 1)], numbers.source


def _repeated(layers: Layers, kinds: list[str]) -> list[str]:
    return [kinds[layer % len(kinds)] for layer in range(layers.number or len(kinds))]


def _unknown(layers: Layers) -> list[str]:
    """Kinds of layers if the pattern of a file cannot be used: no layer is assumed to have no RoPE."""
    return ["sliding" if layers.row is not None and layers.row.unturned else "full"] * (layers.number or 1)


def _listed(layers: Layers) -> Kinds | None:
    """The kinds that a file lists: by name, or by a number for each layer."""
    fields, number = layers.fields, layers.number
    listed = fields.items("layer_types")
    named = _named_kinds(fields, listed, number) if listed is not None else None
    if named is not None and listed is not None:
        _check_window(fields, layers.window, listed if "sliding" in named else None)
        return named, listed.source
    _check_window(fields, layers.window, None)
    # 1 where a layer slides; or how much it compresses, 0 where it only slides.
    for quantity, slides in (("window_flags", 1), ("compressions", 0)):
        marks = fields.items(quantity)
        # A list may continue with layers for multi-token prediction.
        if marks is not None and marks.value and number is not None and len(marks.value) >= number:
            return ["sliding" if mark == slides else "full" for mark in marks.value[:number]], marks.source
    return None


def _named_kinds(fields: Fields, listed: Sourced[list[Any]], number: int | None) -> list[str] | None:
    held = listed.value
    if not held:
        return None
    meaning = {name: kind for kind, names in layer_labels().items() for name in names}
    key = fields.key_of(listed)
    if number is not None and len(held) != number and key not in fields.values:
        # The default list of the class is for its default number of layers.
        if len(set(map(str, held))) == 1 and held[0] in meaning:
            return [meaning[held[0]]] * number
        missing = (fields.spellings.get("layer_types") or ("layer_types",))[0]
        fields.missing(missing, "the kinds of the layers")
        return None
    if number is not None and len(held) == number + further_layers(fields):
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


def _check_window(fields: Fields, window: Sourced[int] | None, listed: Sourced[list[Any]] | None) -> None:
    """Note a window of 0, and listed layers that slide without one: Transformers 5 fails at both."""
    written = fields.written("window")
    if not written or (listed is None if window is None else window.value != 0):
        return
    at = window or Sourced(fields.values[written[0]], fields.source(written[0]))
    switch = fields.raw("window_on") if window is None else None
    allowed = "a window of 1 or more tokens" + (", which the listed layers need" if listed else ", or null for none")
    fields.impossible_together(allowed, at, *(each for each in (switch, listed) if each is not None))
