"""The layers of a model type that no table has, as the class of the installed Transformers makes them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from clockhands.auditing.class_comparison import section_of
from clockhands.configs.resolved import LayerEncoding, Resolved, layer_ranges
from clockhands.models.class_readings import LAYER_KINDS, ClassLadder, ClassPart, ClassReading


def with_layers_of_class(resolved: Resolved, reading: ClassReading) -> Resolved:
    """The same with the codes of the class, for a type that no table has."""
    codes = tuple(code for part in reading.parts for code in _layers_of_part(part, reading.source))
    facts = [
        replace(fact, evidence={**fact.evidence, "of class": reading.source})
        if fact.code == "unknown-model-type"
        else fact
        for fact in resolved.facts
    ]
    return replace(resolved, codes=codes, facts=tuple(facts))


def _layers_of_part(part: ClassPart, source: str) -> Iterator[LayerEncoding]:
    name = section_of(part) or part.inputs
    for path, rows, width in part.tables:
        place = f"{source}, {path}"
        sources = {"kind": place, "rows": place, "width": place}
        yield LayerEncoding(name, "input", "learned", rows=rows, width=width, source=sources)
    for relative in part.relative:
        yield LayerEncoding(name, None, "relative", source={"kind": f"{source}: {relative}"})
    count = part.layers or 0
    held: dict[tuple[ClassLadder, int | None], list[int]] = {}
    still = {layer for layer, each in enumerate(part.attention) if part.ladders and each.rotates is False}
    for ladder in part.ladders:
        for layer in range(count):
            kind = "" if part.layer_types is None else part.layer_types[layer]
            window = None if part.windows is None else part.windows[layer]
            if ladder.layer_type in ("", kind) and LAYER_KINDS.get(kind) != "none" and layer not in still:
                held.setdefault((ladder, window), []).append(layer)
        if not count:
            held[ladder, None] = []
    for (ladder, window), layers in held.items():
        fields = ("kind", "rates", "rotated", "attention_factor", *(["layout"] if ladder.layout else []))
        yield LayerEncoding(
            name,
            layer_ranges(layers) or None,
            "rotary",
            layout=ladder.layout,
            rotated=2 * len(ladder.rates),
            rates=ladder.rates,
            attention_factor=ladder.factor,
            window=window,
            source=dict.fromkeys(fields, source),
        )
    windows = part.windows or (None,) * (max(still, default=-1) + 1)
    for window, layers in groupby(sorted(still), key=lambda layer: windows[layer]):
        yield LayerEncoding(name, layer_ranges([*layers]), "none", window=window, source={"kind": source})
