"""Reads codes that are added to the embeddings, and biases, from configs and headers of weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clockhands.configs.fields import LONGEST, MOST_LAYERS, WIDEST, Fields, Sourced, code_from, value_of
from clockhands.configs.model_types import CodeOfType, ModelType
from clockhands.configs.resolved import LayerEncoding, layer_ranges
from clockhands.configs.weights import part_in
from clockhands.encodings.additive import Learned, Sinusoidal
from clockhands.encodings.biases import Alibi, BiasCode, Buckets
from clockhands.encodings.ladders import Geometric, geometric
from clockhands.errors import ClockhandsError

_AXES = ("height", "width")

if TYPE_CHECKING:
    from clockhands.formats.arrays import TensorInfo


def table_code(
    fields: Fields, known: ModelType, row: CodeOfType, tensors: Mapping[str, "TensorInfo"]
) -> tuple[LayerEncoding, int | None]:
    """A learned table or a fixed sinusoid of a known type, and how many positions its config declares."""
    architecture = known.architecture_source
    source = {"kind": architecture, "layers": architecture}
    width = fields.whole("hidden", most=WIDEST)
    declared = _patches(fields) if row.rows == "patches" else fields.whole(row.rows or "context")
    rows = None
    if declared is not None:
        more = f" + {row.extra_rows}, {architecture}" if row.extra_rows else ""
        rows = Sourced(None if declared.value is None else declared.value + row.extra_rows, f"{declared.source}{more}")
    offset = _offset(fields, row, architecture)
    usable = None
    if rows is not None and offset is not None and rows.value is not None and offset.value is not None:
        usable = rows.value - offset.value
    if rows is not None and offset is not None and usable is not None and usable < 1:
        fields.impossible_together("more rows than the offset", rows, offset, layers="input")
        usable = None
    elif row.extra_rows and declared is not None and row.rows != "patches":
        usable = declared.value  # the rows before the first position are additional to the declared ones
    found = _tensor(row.tensors, tensors, row.part)
    if found is not None:
        rows, width = _real(fields, found, rows, width)
    if declared is not None:
        within = offset is not None and isinstance(row.offset, str) and not row.extra_rows
        source["context"] = f"{declared.source} - ({offset.source})" if offset and within else declared.source
    code = code_from(row.part, "input", row.kind, source, width=width, rows=rows, offset=offset)
    if row.layout:
        code = replace(code, layout=row.layout, source={**code.source, "layout": architecture})
    if row.kind == "sinusoidal":
        return _sinusoidal(fields, known, row, code), usable
    return _learned(fields, row, code), usable


def bias_codes(
    fields: Fields, kind: str | None, because: str | None, row: CodeOfType | None = None
) -> list[LayerEncoding]:
    """A code of every attention layer: a bias, none at all, or an unknown one.

    The entry of a type in the table determines a spec of its bias, or has none.
    """
    width = fields.whole("hidden", most=WIDEST)
    fields.present("buckets")
    codes = []
    both = fields.declares("decoder_layers")
    for part, quantity in (("encoder" if both else "text", "layers"), ("decoder", "decoder_layers")):
        if quantity == "decoder_layers" and not both:
            continue
        count = fields.whole(quantity, most=MOST_LAYERS)
        source = {} if because is None else {"kind": because}
        source |= {name: found.source for name, found in (("layers", count), ("width", width)) if found is not None}
        layers = None if count is None or count.value is None else layer_ranges(range(count.value))
        spec, sources = _bias(fields, row, part)
        code = LayerEncoding(part, layers, kind, spec, width=value_of(width), source=source | sources)
        if row is not None and row.distances is not None and code.width is not None and code.width > 1:
            rates = geometric(code.width // 2, row.distances).rates
            code = replace(code, base=row.distances, rates=rates, source={**code.source, "base": because or ""})
        codes.append(code)
    return codes


def _bias(fields: Fields, row: CodeOfType | None, part: str) -> tuple[BiasCode | None, dict[str, str]]:
    """The spec of a bias that is determined by its type, and the sources of its numbers."""
    if row is None or (row.kind, bool(row.bias)) not in (("alibi", True), ("buckets", True)):
        return None, {}
    named = {"heads": fields.whole("heads", most=WIDEST)}
    if row.kind == "buckets":
        named |= {name: fields.whole(name, most=LONGEST) for name in ("buckets", "max_distance")}
    found = {name: each for name, each in named.items() if each is not None and each.value is not None}
    sources = {name: each.source for name, each in found.items()}
    if found.keys() != named.keys():
        return None, sources
    numbers: dict[str, Any] = {name: each.value for name, each in found.items()}
    try:
        if row.kind == "alibi":
            return Alibi(**numbers, **row.bias), sources
        if part in row.bias["directions"]:
            return Buckets(**numbers, bidirectional=row.bias["directions"][part]), sources
    except ClockhandsError as error:
        fields.impossible_together(error.message, *found.values())
    return None, sources


def _sinusoidal(fields: Fields, known: ModelType, row: CodeOfType, code: LayerEncoding) -> LayerEncoding:
    base = 10_000.0
    source = {**code.source, "base": known.architecture_source}
    code = replace(code, base=base, source=source)
    if code.width is None:
        return code
    pad = fields.whole(row.zero_rows, least=0) if row.zero_rows else None
    try:
        spec = Sinusoidal(
            code.width,
            spacing=Geometric(base, span="closed" if row.span == "closed" else "open"),
            layout="halves" if row.layout == "halves" else "interleaved",
            odd="zero",
            first=code.offset or 0,
            zero_rows=() if pad is None or pad.value is None else (pad.value,),
        )
        rates = spec.rates
    except ClockhandsError as error:
        fields.note("impossible-value", {source.get("width", "width"): code.width, "allowed": error.message}, "input")
        return code
    return replace(code, spec=spec, rates=rates)


def _learned(fields: Fields, row: CodeOfType, code: LayerEncoding) -> LayerEncoding:
    padding = row.padding
    if isinstance(padding, str):
        padding = value_of(fields.whole(padding, least=0))
    if code.width is None or code.rows is None or code.offset is None or code.rows <= code.offset:
        return code
    try:
        return replace(code, spec=Learned(code.width, code.rows, code.offset, padding))
    except ClockhandsError as error:
        found = [Sourced(getattr(code, name), code.source[name]) for name in ("width", "rows", "offset")]
        fields.impossible_together(error.message, *found, layers="input")
        return code


def _patches(fields: Fields) -> Sourced[int] | None:
    """The number of patches of an image, whose size is one number or two; incomplete patches do not count."""
    image, patch = _sides(fields, "image"), _sides(fields, "patch")
    if image is None or patch is None:
        return None
    both = f"{image.source} / {patch.source}"
    if image.value is None or patch.value is None:
        return Sourced(None, f"({both})^2")
    along = [side // each for side, each in zip(image.value, patch.value, strict=True)]
    source = f"({both})^2" if along[0] == along[1] else f"({both}, height x width)"
    return Sourced(along[0] * along[1] or None, source)


def _sides(fields: Fields, quantity: str) -> Sourced[tuple[int, int]] | None:
    """Height and width of an image or of a patch; a patch of a video may begin with the number of frames, 1."""
    raw = fields.raw(quantity)
    held = None if raw is None else raw.value
    if isinstance(held, list | tuple) and len(held) == 1 + len(_AXES) and held[0] == 1:
        held = held[1:]
    if raw is not None and isinstance(held, list | tuple) and len(held) == len(_AXES):
        fields.present(quantity)
        fits = all(type(side) is int and 1 <= side <= WIDEST for side in held)
        return Sourced((held[0], held[1]) if fits else None, raw.source)
    found: Sourced[Any] | None = fields.whole(quantity, most=WIDEST)
    if found is None or found.value is None:
        return found
    # The default of a class may be two numbers too.
    return Sourced(tuple(found.value) if isinstance(found.value, list) else (found.value, found.value), found.source)


def _offset(fields: Fields, row: CodeOfType, architecture: str) -> Sourced[int] | None:
    if isinstance(row.offset, str):
        pad = fields.whole(row.offset, least=0)
        if pad is None:
            return None
        return Sourced(None if pad.value is None else pad.value + 1, f"{pad.source} + 1")
    return None if row.offset is None else Sourced(row.offset, architecture)


def _real(
    fields: Fields, found: "TensorInfo", rows: Sourced[int] | None, width: Sourced[int] | None
) -> tuple[Sourced[int] | None, Sourced[int] | None]:
    """Use the shape in the weights; if the config differs, note a fact."""
    where = f"{found.declared_in.name}:{found.name}"
    if len(found.shape) != 2:
        fields.note("table-size", {where: list(found.shape), "expected": "a table of rows and columns"}, "input")
        return rows, width
    pairs = [(said, real) for said, real in zip((rows, width), found.shape, strict=True) if said is not None]
    if any(said.value not in (None, real) for said, real in pairs):
        evidence: dict[str, Any] = {where: list(found.shape)}
        evidence |= {said.source: said.value for said, real in pairs if said.value != real}
        fields.note("table-size", {**evidence, "used": where}, "input")
    return Sourced(found.shape[0], where), Sourced(found.shape[1], where)


def _tensor(ends: tuple[str, ...] | Any, tensors: Mapping[str, "TensorInfo"], part: str) -> "TensorInfo | None":
    """The tensor with one of these names; of several (a model of text and images has two) that of the part."""
    for end in ends:
        named = [name for name in tensors if name == end or name.endswith(f".{end}")]
        own = [name for name in named if part_in(name) == part]
        if named:
            return tensors[(own or named)[0]]
    return None
