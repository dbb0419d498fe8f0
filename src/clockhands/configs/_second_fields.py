"""Reads rotations besides the main attention: indexers of sparse attention, layers for multi-token prediction.

Layers for multi-token prediction follow those of the model and continue their numbers, as in vLLM and llama.cpp. Their
position code is that of the model's layers if these have only one; if they have several, it is known for some types,
see ``multi_token_prediction`` in ``config_keys.json``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from clockhands.configs.fields import MOST_LAYERS, Fields, Sourced, value_of
from clockhands.configs.model_types import CodeOfType, ModelType, layer_labels, table
from clockhands.configs.opened import Opened
from clockhands.configs.resolved import MTP, LayerEncoding, layer_numbers, layer_ranges

# More layers than any model has.
_MOST_PREDICTING = 64
# Weights of such layers have a separate prefix, or are beside those of the model, with a projection of two inputs.
_OWN_NAME = re.compile(r"(?:^|\.)mtp(?:_layers|_block)?\.(?:layers\.)?(?:(\d+)\.)?")
_JOINING = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:eh_proj|enorm|hnorm|shared_head)\.")


def in_own_layers(code: LayerEncoding, fields: Fields, row: CodeOfType) -> LayerEncoding | None:
    """The code, restricted to the layers that have it in this type; None if there are none.

    The other layers reuse the keys that an earlier layer chose, or attend to all.
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
    """A mark for each layer, from a list or letters; it may continue with layers for multi-token prediction."""
    found = fields.raw(quantity)
    held = fields.defaults.get(quantity) if found is None else found.value
    return held[:number] if isinstance(held, list | str) and number is not None and len(held) >= number else None


def _counted(says: Mapping[str, Any], fields: Fields, number: int) -> set[int] | None:
    """The layers that have the code if a file lists none: none of them, or those by the rule of the type."""
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


# Multi-token prediction


def for_further_tokens(
    opened: Opened,
    fields: Fields,
    known: ModelType | None,
    codes: Sequence[LayerEncoding],
    longer: Callable[[Fields], Iterable[LayerEncoding]],
    *,
    top: str | None,
) -> tuple[list[LayerEncoding], list[str], list[str]]:
    """The codes of the layers for multi-token prediction of a text, remarks on them, and those without known codes.

    Args:
        opened: The target, whose weights may hold such layers that its config does not declare.
        fields: The config of the part.
        known: Its type, or None for one that is not in the table.
        codes: The codes of its layers.
        longer: The codes by the table of a config like this one with another number of layers.
        top: The type of the whole model, if it is known.
    """
    own = [code for code in codes if code.part == "text" and code.layers not in (None, "input")]
    number = value_of(fields.whole("layers", most=MOST_LAYERS)) if own else None
    count = None if number is None else _declared(fields) or _in_weights(opened, number)
    if count is None or number is None:
        return [], [], []
    names = (None if known is None else known.name, top)
    says = next((held for name, held in table()["multi_token_prediction"].items() if name in names), {})
    # Contradicting keys leave the number open.
    further = range(number, number + (count.value or 1))
    layers = None if count.value is None else layer_ranges(further)
    title = "the layers for multi-token prediction" + ("" if layers is None else f" ({layers})")
    notes = _built(says, known, title)
    found = _likened(says, fields, own, further, longer)
    if not found:
        return [], [*notes, f"clockhands does not know the position encoding of {title}."], [title]
    codes = []
    for code in found:
        because = says.get("source") or f"as the other layers ({code.source.get('kind', '')})"
        source = {**code.source, "layers": count.source, "kind": because}
        codes.append(replace(code, part=MTP, layers=layers if len(found) == 1 else code.layers, source=source))
    return codes, notes, []


def _declared(fields: Fields) -> Sourced[int] | None:
    """How many layers the config declares; no number if its keys contradict each other, None for no layers."""
    counts = {key: fields.values[key] for key in fields.present("predicting") if type(fields.values[key]) is int}
    counts = {key: count for key, count in counts.items() if 0 < count <= _MOST_PREDICTING}
    numbers = set(counts.values())
    return (
        Sourced(numbers.pop() if len(numbers) == 1 else None, ", ".join(map(fields.source, counts))) if counts else None
    )


def _in_weights(opened: Opened, number: int) -> Sourced[int] | None:
    """How many layers the names of the weights show."""
    held: dict[str, str] = {}
    for name, tensor in opened.tensors.items():
        own, joining = _OWN_NAME.search(name), _JOINING.search(name)
        if own is not None:
            held.setdefault(own[1] or "0", f"{tensor.declared_in.name}:{name}")
        elif joining is not None and int(joining[1]) >= number:
            held.setdefault(joining[1], f"{tensor.declared_in.name}:{name}")
    if not 0 < len(held) <= _MOST_PREDICTING:
        return None
    return Sourced(len(held), next(iter(held.values())))


def _built(says: Mapping[str, Any], known: ModelType | None, title: str) -> list[str]:
    """What Transformers does with such layers, for classes that were read."""
    if known is None or "ignored" not in says:
        return []
    if says.get("built"):
        return [f"{known.library.capitalize()} makes {title} for generate(use_mtp=True) only."]
    code = f" ({known.code.name}, {known.code.place})" if known.code is not None else ""
    return [f"{known.library.capitalize()} does not make {title} of {known.name}, and ignores their weights{code}."]


def _likened(
    says: Mapping[str, Any],
    fields: Fields,
    own: Sequence[LayerEncoding],
    further: range,
    longer: Callable[[Fields], Iterable[LayerEncoding]],
) -> list[LayerEncoding]:
    """The codes of such layers; empty if not known."""
    different = _different(own)
    like = says.get("as")
    if like == "listed":
        return _listed_on(fields, further, longer)
    if len(different) == 1:
        return different
    if like == "rotary":
        fit = [code for code in different if code.kind == "rotary"]
    elif like is not None:
        kinds = fields.values.get(like) or [says["absent"]]
        slides = {str(kind) in layer_labels()["sliding"] for kind in kinds} if isinstance(kinds, list) else set()
        fit = [code for code in different if slides == {code.window is not None}]
    else:
        fit = []
    return fit if len(fit) == 1 else []


def _listed_on(
    fields: Fields, further: range, longer: Callable[[Fields], Iterable[LayerEncoding]]
) -> list[LayerEncoding]:
    """The codes of the further layers, if the lists of a config continue with them."""
    (key,) = fields.written("layers")[:1] or ("",)
    lists = [each for each in fields.values.values() if isinstance(each, list) and len(each) == further.stop]
    if not key or not lists:
        return []
    made = [
        (code, layer_numbers(code.layers or "") & set(further)) for code in longer(fields.apart({key: further.stop}))
    ]
    return [replace(code, layers=layer_ranges(sorted(layers))) for code, layers in made if layers]


def _different(codes: Iterable[LayerEncoding]) -> list[LayerEncoding]:
    """The codes without those that say the same of other layers."""
    found: list[LayerEncoding] = []
    for code in codes:
        if not any(_bare(code) == _bare(other) for other in found):
            found.append(code)
    return found


def _bare(code: LayerEncoding) -> LayerEncoding:
    return replace(code, layers=None, source={})


def counted_apart(code: LayerEncoding, fields: Fields) -> Iterable[LayerEncoding]:
    """A code of a GGUF file whose layer count includes multi-token prediction: split off those layers, if any."""
    count, predicting = fields.whole("layers", most=MOST_LAYERS), fields.raw("predicting")
    further = None if predicting is None else predicting.value
    number = value_of(count)
    if count is None or number is None or predicting is None or type(further) is not int or not 0 < further < number:
        return [code]
    last, layers = set(range(number - further, number)), layer_numbers(code.layers or "")
    source = {**code.source, "layers": f"{count.source} - {predicting.source}"}
    made = [replace(code, layers=layer_ranges(sorted(layers - last)), source=source)] if layers - last else []
    if layers & last:
        own = {**code.source, "layers": predicting.source}
        made.append(replace(code, part=MTP, layers=layer_ranges(sorted(layers & last)), source=own))
    return made or [code]
