"""Compares two readings of a model: which layers differ, and how."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from clockhands.configs.resolved import MTP, LayerEncoding, layer_numbers, layer_ranges
from clockhands.encodings.layouts import LAYOUTS
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import to_dict
from clockhands.measures import LadderDifference, difference
from clockhands.recognition.diagnosis import Verdict, judged, reference_of, reference_of_rates


@dataclass(frozen=True)
class LayerDifference:
    """Layers that have one code in the first reading and one in the second.

    Attributes:
        part: The part of the model.
        layers: Which layers, in the short form; None where their number is not known.
        ours: Their code in the first reading; None where it has no such layers.
        theirs: Their code in the second.
        ladder: How the two ladders differ, where both have as many pairs.
        says: What else differs, in words: kinds, widths, pairing, tables, slopes.
    """

    part: str
    layers: str | None
    ours: LayerEncoding | None
    theirs: LayerEncoding | None
    ladder: LadderDifference | None
    says: tuple[str, ...]

    @cached_property
    def verdict(self) -> Verdict | None:
        """How the frequencies of the second compare with the first's, if both have as many pairs; cached."""
        if self.ladder is None or self.ours is None or self.theirs is None:
            return None
        return _verdict(self.ours, np.array(self.theirs.rates))

    @property
    def same(self) -> bool:
        """Whether both compute the same."""
        return not self.says and (self.ladder is None or self.ladder.same)

    def alike(self, *, exact: bool) -> bool:
        """Whether this is no difference: `same` where exact numbers are asked for, else `equivalent`."""
        return self.same if exact else self.equivalent

    @property
    def layout_changed(self) -> bool:
        """Whether a GGUF file pairs neighbours where a file of another format pairs halves.

        Converters reorder the weights of some types, Llama's among them, so both can be right.
        """
        codes = [code for code in (self.ours, self.theirs) if code is not None]
        layouts = {code.layout: "GGUF" in code.source.get("layout", "") for code in codes}
        return layouts == {"halves": False, "interleaved": True}

    @property
    def equivalent(self) -> bool:
        """Whether both compute the same, apart from float32 rounding and a layout that a conversion changes.

        Rates are within the bound of `clockhands.recognition.diagnosis`, attention factors within 1e-6.
        """
        alike = not self.says or (self.layout_changed and self.says == (_layouts(self.ours, self.theirs),))
        if self.ladder is None or self.verdict is None:
            return self.same or (alike and self.ladder is None and self.layout_changed)
        return alike and self.verdict.code is None and self.ladder.same_factor


def compared(
    ours: Sequence[LayerEncoding], theirs: Sequence[LayerEncoding], *, windows: bool = True, scores: bool = False
) -> tuple[LayerDifference, ...]:
    """Every group of layers that has one code in each reading, with the two codes compared.

    Args:
        ours: The first reading.
        theirs: The second.
        windows: Whether windows and chunks are compared; not every reading knows them.
        scores: Whether scales of attention scores are compared; not every reading knows them.

    Layers for multi-token prediction that only one reading has are left out: the model runs without them.
    """
    if any(code.part == MTP for code in ours) != any(code.part == MTP for code in theirs):
        ours, theirs = ([code for code in side if code.part != MTP] for side in (ours, theirs))
    also = {name for name, asked in (("windows", windows), ("scores", scores)) if asked}
    places = [(code.part, code.layers) for code in ours]
    if places == [(code.part, code.layers) for code in theirs] and len(set(places)) == len(places):
        # The usual case, without going through every layer.
        pairs = zip(ours, theirs, strict=True)
        return tuple(_parted(mine.part, mine.layers, mine, other, also) for mine, other in pairs)
    first, second = _placed(ours), _placed(theirs)
    _spread(first, second)
    _spread(second, first)
    groups: dict[tuple[str, int | None, int | None], list[Any]] = {}
    for place in dict.fromkeys((*first, *second)):
        mine, other = first.get(place), second.get(place)
        known = (place[0], None if mine is None else id(mine), None if other is None else id(other))
        groups.setdefault(known, [mine, other, []])[2].append(place[1])
    return tuple(
        _parted(part, _named(places), mine, other, also) for (part, _, _), (mine, other, places) in groups.items()
    )


def _placed(codes: Sequence[LayerEncoding]) -> dict[tuple[str, Any], LayerEncoding]:
    """Map (part, layer) to its code; several codes at one place are distinguished by their order."""
    made: dict[tuple[str, Any], LayerEncoding] = {}
    for code in codes:
        for layer in _layers(code.layers):
            place, number = (code.part, layer), 0
            while place in made:
                number += 1
                place = (code.part, (layer, number))
            made[place] = code
    return made


def _spread(first: dict[tuple[str, Any], LayerEncoding], second: dict[tuple[str, Any], LayerEncoding]) -> None:
    """Give a code that applies to all layers of a part of unknown size the layers that the other reading lists."""
    for part in {place[0] for place in first}:
        places, others = ([place for place in side if place[0] == part] for side in (first, second))
        if len(places) == len(others) == 1 and not isinstance(places[0][1], int) and not isinstance(others[0][1], int):
            # One code in each reading: added to the embeddings in one, and in every layer in the other.
            first[others[0]] = first.pop(places[0])
            continue
        layers = [place for place in others if isinstance(place[1], int)]
        if [layer for _, layer in places] == [None] and layers:
            code = first.pop(places[0])
            first.update(dict.fromkeys(layers, code))


def _layers(layers: str | None) -> list[Any]:
    """The layer numbers, or a word such as "all" where there are no numbers."""
    if layers is None or not all(piece and piece in "0123456789,-" for piece in layers):
        return [layers]
    return sorted(layer_numbers(layers))


def _named(places: list[Any]) -> str | None:
    bare = [place[0] if isinstance(place, tuple) else place for place in places]
    numbers = {place for place in bare if isinstance(place, int)}
    return layer_ranges(sorted(numbers)) if numbers else bare[0]


def _parted(
    part: str, layers: str | None, ours: LayerEncoding | None, theirs: LayerEncoding | None, also: Collection[str]
) -> LayerDifference:
    """Two codes compared; a code with an undecided window is not different from either possibility."""
    first, *others = itertools.product(_either(ours), _either(theirs))
    found = side_by_side(part, layers, *first, also)
    for one, other in others:
        if not found.equivalent:
            maybe = side_by_side(part, layers, one, other, also)
            found = maybe if maybe.equivalent else found
    return found


def _either(code: LayerEncoding | None) -> tuple[LayerEncoding | None, ...]:
    return (code,) if code is None or code.either is None else (code, code.either)


def side_by_side(
    part: str, layers: str | None, ours: LayerEncoding | None, theirs: LayerEncoding | None, also: Collection[str]
) -> LayerDifference:
    """Two codes of the same layers; ``also`` are ``windows`` and ``scores`` where these are compared too."""
    if ours is None or theirs is None:
        which = "second" if theirs is None else "first"
        return LayerDifference(part, layers, ours, theirs, None, (f"the {which} has no such layers",))
    says = list(_apart(ours, theirs, also))
    ladder = None
    turning = ours.kind == theirs.kind and ours.kind in ("rotary", "sinusoidal")
    # Otherwise pair i of one code does not correspond to pair i of the other.
    if turning and ours.rates and theirs.rates and (len(ours.rates), ours.width) == (len(theirs.rates), theirs.width):
        factor, other = ours.attention_factor or 1.0, theirs.attention_factor or 1.0
        ladder = difference(ours.rates, theirs.rates, factor=factor, other_factor=other)
    return LayerDifference(part, layers, ours, theirs, ladder, tuple(says))


def _verdict(ours: LayerEncoding, rates: np.ndarray) -> Verdict:
    """How the frequencies compare with those of a code at the length at which it was read."""
    reference = reference_of_rates(np.array(ours.rates))
    if isinstance(ours.spec, Rotary):
        reference = replace(reference_of(ours.spec), ladders=reference.ladders)
    return judged(rates, "float64", reference, None)


def _apart(ours: LayerEncoding, theirs: LayerEncoding, also: Collection[str]) -> Iterator[str]:
    """The differences other than the frequencies, as text."""
    if ours.kind != theirs.kind:
        yield f"{kind_in_words(ours)} against {kind_in_words(theirs)}"
        return
    if ours.kind == "rotary":
        if (ours.rotated, ours.width) != (theirs.rotated, theirs.width):
            yield f"{_rotated_words(ours)} against {_rotated_words(theirs)}"
        if ours.layout != theirs.layout and ours.layout and theirs.layout:
            yield _layouts(ours, theirs)
        if ours.rates and theirs.rates and len(ours.rates) != len(theirs.rates) and ours.rotated == theirs.rotated:
            yield f"{len(ours.rates)} pairs against {len(theirs.rates)}"
        if bool(ours.rates) != bool(theirs.rates):
            which = "first" if theirs.rates else "second"
            yield f"the frequencies of the {which} cannot be computed"
        axes = [getattr(code.spec, "axes", None) for code in (ours, theirs)]
        if axes[0] != axes[1] and ours.spec is not None and theirs.spec is not None:
            orders = [
                f"{code.sections['order']} M-RoPE sections" if code.sections else "one axis" for code in (ours, theirs)
            ]
            yield "the pairs belong to other axes" if orders[0] == orders[1] else " against ".join(orders)
        times = [code.positions_per_second for code in (ours, theirs)]
        if None not in times and times[0] != times[1]:
            yield f"{times[0]} against {times[1]} positions per second of audio or video"
    else:
        yield from _other_kinds(ours, theirs)
    seen = [(code.window, code.two_sided, code.chunk) for code in (ours, theirs)]
    if "windows" in also and seen[0] != seen[1] and ours.seen != theirs.seen:
        yield f"{ours.seen} against {theirs.seen}"
    scales = [code.score_scale.words if code.score_scale else "not scaled" for code in (ours, theirs)]
    if "scores" in also and scales[0] != scales[1]:
        yield f"scores {scales[0]} against {scales[1]}"


def _layouts(ours: LayerEncoding | None, theirs: LayerEncoding | None) -> str:
    first, second = (LAYOUTS.get((code and code.layout) or "", "not known") for code in (ours, theirs))
    return f"{first} layout against {second} layout"


def _other_kinds(ours: LayerEncoding, theirs: LayerEncoding) -> Iterator[str]:
    """Differences of additive codes and biases: their tables and the fields of their specs."""
    for name, word in (("width", "channels"), ("rows", "rows"), ("offset", "as the row of position 0")):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if mine != other:
            yield f"{_number(mine)} against {_number(other)} {word}"
    if ours.kind == "sinusoidal" and ours.layout != theirs.layout:
        yield f"layout {ours.layout}, not {theirs.layout}"
    if len(ours.rates or ()) != len(theirs.rates or ()):
        yield f"{len(ours.rates or ()):,} against {len(theirs.rates or ()):,} pairs"
    if ours.spec is not None and theirs.spec is not None and ours.spec != theirs.spec:
        mine, other = to_dict(ours.spec), to_dict(theirs.spec)  # type: ignore[arg-type]
        for name in dict.fromkeys((*mine, *other)):
            if mine.get(name) != other.get(name) and name not in ("width", "rows", "offset", "layout", "spacing"):
                yield f"{name} {mine.get(name)} against {other.get(name)}"
    elif ours.relative and theirs.relative:
        for name in ours.relative:
            if name in theirs.relative and ours.relative[name] != theirs.relative[name]:
                yield f"{name} {ours.relative[name]} against {theirs.relative[name]}"


def kind_in_words(code: LayerEncoding) -> str:
    """The kind of a code, as text for people."""
    if code.kind is None:
        return "a code that is not recognised" if code.spec is None else type(code.spec).__name__
    return "no position encoding" if code.kind == "none" else code.kind


def _rotated_words(code: LayerEncoding) -> str:
    return f"{_number(code.rotated)} of {_number(code.width)} dimensions rotate"


def _number(value: int | None) -> str:
    return "an unknown number of" if value is None else f"{value:,}"
