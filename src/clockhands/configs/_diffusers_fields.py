"""Position codes from the config of a diffusers transformer, which names its class instead of a model type.

What each class does is data, ``diffusers.json``. Tokens of images and videos have several coordinates: text or time,
rows, columns. Each coordinate rotates a share of the head by a separate geometric ladder that starts at 1 rad per
token; or a grid of sinusoids or a learned table is added to the embeddings.

Source: diffusers 0.42.1, ``models/transformers/*.py`` and ``models/embeddings.py``; arXiv:2104.09864 for the ladder.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from clockhands.configs._scaling_fields import DeclaredScaling
from clockhands.configs.fields import MOST_LAYERS, WIDEST, WIDEST_HEAD, Fields, Sourced, above_one, code_from, value_of
from clockhands.configs.resolved import Fact, LayerEncoding
from clockhands.configs.rotary_fields import built
from clockhands.encodings.additive import AxialSinusoidal
from clockhands.encodings.ladders import Geometric, Joined
from clockhands.encodings.layouts import Layout
from clockhands.errors import ClockhandsError
from clockhands.packaged import packaged

CLASS_KEY = "_class_name"

Codes = tuple[list[tuple[LayerEncoding, int | None]], Fields]


@dataclass(frozen=True)
class DiffusersClass:
    """How one class reads its config.

    Attributes:
        name: As in ``_class_name``.
        library: The library and release whose code was read.
        kind: ``rotary``, ``sinusoidal`` or ``learned``.
        axes: The key with the channels of each axis, or the rule from which they follow.
        base: The key with the base, or the base in the code.
        layers: The keys that count layers; blocks of several kinds follow each other.
        width: The key with the width of a head; or two keys: for heads the first over the second, for tables the
            product of both.
        rows: The key with the side of a square grid, or with the size of an image and that of a patch.
        switch: The key that must be true for the class to have the code.
        needs: The key that must have a value for the class to have any code.
        layout: Which two channels form a pair.
        stretch: The key with a factor for each axis, which stretches its base as NTK scaling does.
        defaults: The class default of each key.
    """

    name: str
    library: str
    kind: str
    axes: str = ""
    base: float | str = 0.0
    layers: tuple[str, ...] = ()
    width: tuple[str, ...] = ("attention_head_dim",)
    rows: tuple[str, ...] = ()
    switch: str | None = None
    needs: str | None = None
    layout: Layout = "interleaved"
    stretch: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def title(self) -> str:
        """The name with the library and release whose code was read."""
        return f"{self.name} ({self.library})"

    @property
    def architecture_source(self) -> str:
        """The source text for values that follow from the class alone."""
        return f"architecture of {self.title}"


# How a head is divided among time, rows and columns if no key says it.
RULES = {
    "frames": lambda width: [width - 4 * (width // 6), 2 * (width // 6), 2 * (width // 6)],
    "video": lambda width: [width // 4, width // 8 * 3, width // 8 * 3],
    "square": lambda width: [width // 2, width // 2],
}


def diffusers_class(values: Mapping[str, Any]) -> DiffusersClass | None:
    """The class that a config names, if the table has it."""
    name = values.get(CLASS_KEY)
    return _classes().get(name) if isinstance(name, str) else None


def diffusers_codes(values: Mapping[str, Any], file: str, facts: list[Fact]) -> Codes | None:
    """The codes of a diffusers config, and the keys that were read; None for a class that is not in the table."""
    known = diffusers_class(values)
    if known is None:
        return None
    spellings = {key: (key,) for key in (*known.defaults, *filter(None, (known.needs,)))}
    default_source = f"class default of {known.title}"
    fields = Fields(values, file, spellings, facts, defaults=known.defaults, default_source=default_source)
    if known.switch is not None:
        on = fields.flag(known.switch)
        if on is None or not on.value:
            source = {"kind": "" if on is None else on.source}
            return [(LayerEncoding("vision", "input", "sinusoidal", source=source), None)], fields
    if known.needs is not None and fields.raw(known.needs) is None:
        layers = _layers(fields, known)
        source = {"kind": known.architecture_source} | ({} if layers is None else {"layers": layers.source})
        return [(LayerEncoding("vision", value_of(layers), "none", source=source), None)], fields
    if known.kind == "rotary":
        return [(_rotary(fields, known), None)], fields
    return [(_table(fields, known), None)], fields


@cache
def _classes() -> Mapping[str, DiffusersClass]:
    data = packaged(__file__, "diffusers.json")
    made = {}
    for name, entry in data["classes"].items():
        like = data["classes"].get(entry.get("like"), {})
        whole = {"library": data["library"], **like, **entry}
        whole["defaults"] = {**like.get("defaults", {}), **entry.get("defaults", {})}
        whole.pop("like", None)
        held: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in whole.items()}
        made[name] = DiffusersClass(name=name, **held)
    return made


def _rotary(fields: Fields, known: DiffusersClass) -> LayerEncoding:
    """The rotation of the heads: one ladder for each axis of the tokens."""
    because = known.architecture_source
    width = _head_width(fields, known)
    base = fields.number(known.base, above_one) if isinstance(known.base, str) else Sourced(known.base, because)
    layers = _layers(fields, known)
    shares = None if width is None else _shares(fields, known, width)
    source = {"kind": because, "layout": because}
    found = {"width": width, "rotated": width, "base": base, "layers": layers, "axes": shares}
    code = replace(code_from("vision", value_of(layers), "rotary", source, **found), layout=known.layout)
    if shares is None or shares.value is None or code.base is None or code.width is None:
        return code
    factors = _stretches(fields, known, len(shares.value))
    if factors is None:
        return replace(code, base=None)
    bases = [code.base * factor ** (share / (share - 2)) for share, factor in zip(shares.value, factors, strict=True)]
    if len(set(bases)) > 1 and known.stretch is not None:
        code = replace(code, base=None, source={**code.source, "base": f"{because}, {fields.source(known.stretch)}"})
    spacing = Joined(tuple((share // 2, Geometric(base)) for share, base in zip(shares.value, bases, strict=True)))
    axes = tuple(axis for axis, share in enumerate(shares.value) for _ in range(share // 2))
    return built(code, DeclaredScaling(), fields, None, spacing=spacing, more={"axes": axes})


def _head_width(fields: Fields, known: DiffusersClass) -> Sourced[int] | None:
    key, *divisor = known.width
    first = fields.whole(key, most=WIDEST if divisor else WIDEST_HEAD)
    if not divisor or first is None or first.value is None:
        return first
    heads = fields.whole(divisor[0], most=WIDEST)
    if heads is None or heads.value is None:
        return heads
    source = f"{first.source} / {heads.source}"
    if first.value % heads.value or first.value // heads.value > WIDEST_HEAD:
        fields.impossible_together("a width that the heads divide evenly", first, heads)
        return Sourced(None, source)
    return Sourced(first.value // heads.value, source)


def _shares(fields: Fields, known: DiffusersClass, width: Sourced[int]) -> Sourced[list[int]] | None:
    """The channels of each axis; they must be even and add up to the head width."""
    if width.value is None:
        return None
    if known.axes in RULES:
        shares = Sourced(RULES[known.axes](width.value), f"{width.source}, {known.architecture_source}")
        values = (width,)
    else:
        declared = fields.items(known.axes)
        if declared is None or declared.value is None:
            return declared
        if not fields.declares(known.axes):
            fields.took_default(known.axes, list(declared.value), known.title)
        shares, values = declared, (declared, width)
    sizes = shares.value or []
    whole = all(type(size) is int and size > 0 and size % 2 == 0 for size in sizes)
    if not whole or sum(sizes) != width.value:
        allowed = "even numbers of dimensions for the axes that add up to the head width"
        fields.impossible_together(allowed, *values)
        return Sourced(None, shares.source)
    return shares


def _stretches(fields: Fields, known: DiffusersClass, axes: int) -> Sequence[float] | None:
    """The factor of each axis: ones if the class scales nothing, None if the file has no such factors."""
    if known.stretch is None:
        return [1.0] * axes
    declared = fields.items(known.stretch)
    factors = [] if declared is None or declared.value is None else declared.value
    usable = all(type(factor) in (int, float) and 0 < factor < math.inf for factor in factors)
    if declared is not None and declared.value is not None and not (usable and len(factors) == axes):
        fields.impossible_together(f"{axes} numbers above 0, one for each axis", declared)
        return None
    return factors or None


def _layers(fields: Fields, known: DiffusersClass) -> Sourced[str] | None:
    """All layers, those of one kind after those of another."""
    counts = [fields.whole(key, least=0, most=MOST_LAYERS) for key in known.layers]
    if any(count is None or count.value is None for count in counts):
        return None
    total = sum(count.value or 0 for count in counts if count is not None)
    places = dict.fromkeys(count.source for count in counts if count is not None)
    return Sourced(f"0-{total - 1}", " + ".join(places)) if total else None


def _table(fields: Fields, known: DiffusersClass) -> LayerEncoding:
    """A grid of sinusoids, or a learned table of as many rows as the key says."""
    because = known.architecture_source
    width = rows = rates = None
    source = {"kind": because, "layers": because}
    parts, sizes = ([fields.whole(key, most=WIDEST) for key in keys] for keys in (known.width, known.rows))
    factors = [part.value for part in parts if part is not None and part.value]
    if len(factors) == len(parts):
        width = math.prod(factors)
        source["width"] = " x ".join(part.source for part in parts if part)
    lengths = [size.value for size in sizes if size is not None and size.value]
    if len(lengths) == len(sizes):
        side, *patch = lengths or [1]
        side //= patch[0] if patch else 1
        # SD3 and earlier models give the side of a grid in this key, AuraFlow the number of its cells.
        rows = side if known.kind == "learned" else side * side
        source["rows"] = " / ".join(size.source for size in sizes if size)
    if known.kind == "sinusoidal" and width is not None and width <= WIDEST:
        try:
            rates = tuple(rate for axis in AxialSinusoidal(width).rates for rate in axis)
        except ClockhandsError as error:
            fields.impossible_together(error.message, Sourced(width, source["width"]), layers="input")
    return LayerEncoding(
        "vision",
        "input",
        known.kind,
        width=width,
        rows=rows,
        rates=rates,
        base=10000.0 if rates is not None else None,
        source=source | ({"base": because} if rates is not None else {}),
    )
