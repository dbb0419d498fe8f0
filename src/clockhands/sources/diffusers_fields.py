"""Position codes out of the config of a transformer of diffusers, which names its class and not a model type.

What a class does is data, ``diffusers.json``. Tokens of images and films have several coordinates: text or
time, rows, columns. Each turns a share of the head by a geometric ladder of its own, from rate 1 on; or a grid
of sinusoids or a learned table is added at the bottom.

Source: diffusers 0.42.1, ``models/transformers/*.py`` and ``models/embeddings.py``; arXiv:2104.09864 for the ladder.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from clockhands.errors import ClockhandsError
from clockhands.ladders import Geometric, Joined
from clockhands.sources.fields import MOST_LAYERS, WIDEST, WIDEST_HEAD, Fields, Found
from clockhands.sources.ladder_fields import built
from clockhands.sources.resolved import Code, Fact
from clockhands.sources.scaling_fields import Declared

CLASS_KEY = "_class_name"

Codes = tuple[list[tuple[Code, int | None]], Fields]


@dataclass(frozen=True)
class DiffusersClass:
    """How one class reads its config.

    Attributes:
        name: As in ``_class_name``.
        library: Where the entry was read off.
        kind: ``rotary``, ``sinusoidal`` or ``learned``.
        axes: The key with the channels of each axis, or the rule by which they follow.
        base: The key with the base, or the base that stands in the code.
        layers: The keys that count layers; blocks of several kinds follow each other.
        width: The key with the width of a head; or two keys: for heads the first over the second, for tables the
            product of both.
        rows: The key with the side of a square grid, or with the size of an image and that of a patch.
        switch: The key that must be true for the class to have the code.
        defaults: Key to what the class takes without it.
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
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def architecture_source(self) -> str:
        """How what follows from the class alone is named as a source."""
        return f"architecture of {self.name} ({self.library})"


# How a head is shared among time, rows and columns where no key says it.
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
    """The codes of a config of diffusers, and what was read; None for a class that is not in the table."""
    known = diffusers_class(values)
    if known is None:
        return None
    spellings = {key: (key,) for key in known.defaults}
    default_source = f"class default of {known.name} ({known.library})"
    fields = Fields(values, file, spellings, facts, defaults=known.defaults, default_source=default_source)
    if known.switch is not None:
        on = fields.flag(known.switch)
        if on is None or not on.value:
            source = {"kind": "" if on is None else on.source}
            return [(Code("vision", "input", "sinusoidal", source=source), None)], fields
    if known.kind == "rotary":
        return [(_rotary(fields, known), None)], fields
    return [(_table(fields, known), None)], fields


@cache
def _classes() -> Mapping[str, DiffusersClass]:
    data = json.loads(resources.files("clockhands.sources").joinpath("diffusers.json").read_text(encoding="utf-8"))
    made = {}
    for name, entry in data["classes"].items():
        like = data["classes"].get(entry.get("like"), {})
        whole = {"library": data["library"], **like, **entry}
        whole["defaults"] = {**like.get("defaults", {}), **entry.get("defaults", {})}
        whole.pop("like", None)
        held: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in whole.items()}
        made[name] = DiffusersClass(name=name, **held)
    return made


def _rotary(fields: Fields, known: DiffusersClass) -> Code:
    """The rotation of the heads: as many ladders as the tokens have axes."""
    because = known.architecture_source
    width = _head_width(fields, known)
    base = fields.number(known.base, _above_one) if isinstance(known.base, str) else Found(known.base, because)
    source = {"kind": because, "layout": because}
    layers = _layers(fields, known)
    shares = None
    if width is not None:
        source |= {"width": width.source, "rotated": width.source}
        shares = _shares(fields, known, width)
    if base is not None:
        source["base"] = base.source
    if layers is not None:
        source["layers"] = layers.source
    if shares is not None:
        source["axes"] = shares.source
    code = Code(
        "vision",
        None if layers is None else layers.value,
        "rotary",
        layout="interleaved",
        width=None if width is None else width.value,
        rotated=None if width is None else width.value,
        base=None if base is None else base.value,
        source=source,
    )
    if shares is None or shares.value is None or code.base is None or code.width is None:
        return code
    spacing = Joined(tuple((share // 2, Geometric(code.base)) for share in shares.value))
    axes = tuple(axis for axis, share in enumerate(shares.value) for _ in range(share // 2))
    return built(code, Declared(), fields, None, spacing=spacing, more={"axes": axes})


def _head_width(fields: Fields, known: DiffusersClass) -> Found[int] | None:
    key, *divisor = known.width
    first = fields.whole(key, most=WIDEST if divisor else WIDEST_HEAD)
    if not divisor or first is None or first.value is None:
        return first
    heads = fields.whole(divisor[0], most=WIDEST)
    if heads is None or heads.value is None:
        return heads
    source = f"{first.source} / {heads.source}"
    if first.value % heads.value or first.value // heads.value > WIDEST_HEAD:
        evidence = {first.source: first.value, heads.source: heads.value}
        fields.note("impossible-value", {**evidence, "allowed": "a width that the heads divide evenly"})
        return Found(None, source)
    return Found(first.value // heads.value, source)


def _shares(fields: Fields, known: DiffusersClass, width: Found[int]) -> Found[list[int]] | None:
    """The channels of each axis, which are those of the head together, and even."""
    if width.value is None:
        return None
    if known.axes in RULES:
        shares = Found(RULES[known.axes](width.value), f"{width.source}, {known.architecture_source}")
        values = {width.source: width.value}
    else:
        declared = fields.items(known.axes)
        if declared is None or declared.value is None:
            return declared
        if not fields.declares(known.axes):
            of = f"{known.name} ({known.library})"
            evidence = {"field": known.axes, "used": list(declared.value), "default of": of, "documented": True}
            fields.note("default-value", evidence)
        shares, values = declared, {declared.source: declared.value, width.source: width.value}
    sizes = shares.value or []
    whole = all(type(size) is int and size > 0 and size % 2 == 0 for size in sizes)
    if not whole or sum(sizes) != width.value:
        allowed = "even numbers of channels for the axes, together those of a head"
        fields.note("impossible-value", {**values, "allowed": allowed})
        return Found(None, shares.source)
    return shares


def _layers(fields: Fields, known: DiffusersClass) -> Found[str] | None:
    """All layers, those of one kind after those of another."""
    counts = [fields.whole(key, least=0, most=MOST_LAYERS) for key in known.layers]
    if any(count is None or count.value is None for count in counts):
        return None
    total = sum(count.value or 0 for count in counts if count is not None)
    places = dict.fromkeys(count.source for count in counts if count is not None)
    return Found(f"0-{total - 1}", " + ".join(places)) if total else None


def _table(fields: Fields, known: DiffusersClass) -> Code:
    """A grid of sinusoids, or a learned table of as many rows as the key says."""
    because = known.architecture_source
    parts = [fields.whole(key, most=WIDEST) for key in known.width]
    sizes = [fields.whole(key, most=WIDEST) for key in known.rows]
    width = rows = None
    source = {"kind": because, "layers": because}
    if all(part is not None and part.value for part in parts):
        width = 1
        for part in parts:
            width *= (part.value if part else None) or 1
        source["width"] = " x ".join(part.source for part in parts if part)
    if all(size is not None and size.value for size in sizes):
        side, *patch = [(size.value if size else None) or 1 for size in sizes]
        side //= patch[0] if patch else 1
        # SD3 and those before count the side of a grid by this key, AuraFlow counts its cells.
        rows = side if known.kind == "learned" else side * side
        source["rows"] = " / ".join(size.source for size in sizes if size)
    rates = None
    if known.kind == "sinusoidal" and width is not None and width <= WIDEST:
        # Imported here: few targets are of this kind.
        from clockhands.additive import AxialSinusoidal

        try:
            rates = tuple(rate for axis in AxialSinusoidal(width).rates for rate in axis)
        except ClockhandsError as error:
            evidence = {source["width"]: width, "allowed": error.message}
            fields.note("impossible-value", evidence, "input")
    return Code(
        "vision",
        "input",
        known.kind,
        width=width,
        rows=rows,
        rates=rates,
        base=10000.0 if rates is not None else None,
        source=source | ({"base": because} if rates is not None else {}),
    )


def _above_one(value: float) -> bool:
    return value > 1
