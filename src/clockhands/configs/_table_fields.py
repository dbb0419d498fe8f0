"""Reads codes that are added to the embeddings, and biases, from configs and headers of weights."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clockhands.configs._layer_fields import layer_groups
from clockhands.configs.fields import LONGEST, MOST_LAYERS, WIDEST, Fields, Sourced, code_from, value_of
from clockhands.configs.model_types import CodeOfType, ModelType
from clockhands.configs.resolved import LayerEncoding, layer_ranges
from clockhands.configs.weights import part_in, rows_and_width
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
    counted = COUNTED_ROWS.get(row.rows or "")
    declared = counted(fields) if counted is not None else fields.whole(row.rows or "context")
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
    elif row.extra_rows and declared is not None and counted is None:
        usable = declared.value  # the rows before the first position are additional to the declared ones
    found = _tensor(row.tensors, tensors, row.part)
    if found is not None:
        rows, width = _real(fields, found, rows, width)
    if declared is not None:
        within = offset is not None and isinstance(row.offset, str) and not row.extra_rows
        source["context"] = f"{declared.source} - ({offset.source})" if offset and within else declared.source
    code = code_from(row.part, "input", row.kind, source, width=width, rows=rows, offset=offset)
    code = replace(
        code, placement=row.placement, chunk=None if row.counted_in is None else value_of(fields.whole(row.counted_in))
    )
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
        relative, places = _relative(fields, row, spec)
        sources = places | sources
        code = LayerEncoding(
            part, layers, kind, spec, width=value_of(width), source=source | sources, relative=relative
        )
        if row is not None and row.distances is not None and code.width is not None and code.width > 1:
            rates = geometric(code.width // 2, row.distances).rates
            code = replace(code, base=row.distances, rates=rates, source={**code.source, "base": because or ""})
        codes += [code] if row is None or row.rule is None else _in_windows(code, fields, row, because or "")
    if row is not None and row.rule is not None and kind == "none":
        # Such a row only says what layers see; those that see all are like any other.
        codes = [code for code in codes if code.window is not None or code.window_area is not None]
    return codes


def _in_windows(code: LayerEncoding, fields: Fields, row: CodeOfType, because: str) -> list[LayerEncoding]:
    """The code in each group of layers that see as much."""
    return [
        replace(
            code, layers=group.layers, window=group.window, two_sided=group.two_sided, window_area=group.area,
            source={**code.source, **group.source},
        )
        for group in layer_groups(fields, row, because, row.part)
    ]  # fmt: skip


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


# How often each distance has a row, and how many more rows there are.
ROWS_OF_DISTANCES = {"one side": (1, 0), "two sides": (2, 0), "two sides and zero": (2, 1)}


def _relative(
    fields: Fields, row: CodeOfType | None, spec: BiasCode | None
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The numbers of a code of distances that its spec does not hold, and their sources."""
    if isinstance(spec, Buckets):
        numbers = {"buckets": spec.buckets, "max_distance": spec.max_distance, "rows": spec.buckets}
        return {**numbers, "two_sided": spec.bidirectional}, {}
    if row is not None and row.kind == "alibi" and not row.bias:
        # Falcon scales its biases and rounds them, which no spec says; its slopes follow from the number of heads.
        heads = fields.whole("heads", most=WIDEST)
        return ({"heads": heads.value}, {"heads": heads.source}) if heads is not None and heads.value else (None, {})
    if row is None or row.relative_rows is None:
        return None, {}
    times, more = ROWS_OF_DISTANCES[row.relative_rows]
    # A number below 1 stands for none: no buckets, and a distance as long as the text.
    read = {name: fields.whole(name, least=-1, most=LONGEST) for name in ("buckets", "max_distance", "context")}
    known = {name: each for name, each in read.items() if each is not None and (each.value or 0) > 0}
    buckets, distance = known.get("buckets"), known.get("max_distance", known.get("context"))
    found = {name: each for name, each in (("buckets", buckets), ("max_distance", distance)) if each is not None}
    values: dict[str, Any] = {name: each.value for name, each in found.items()}
    symmetric = fields.flag("symmetric")
    each = buckets or distance
    if each is not None and each.value is not None:
        values["rows"] = each.value * (1 if symmetric is not None and symmetric.value else times) + more
    terms = fields.raw("terms") or Sourced(fields.defaults.get("terms"), fields.default_source)
    if isinstance(terms.value, list | str):
        named = terms.value.split("|") if isinstance(terms.value, str) else terms.value
        values["terms"] = [str(term) for term in named if term]
        found["terms"] = terms
    return values or None, {name: each.source for name, each in found.items()}


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


def patches_along(fields: Fields) -> Sourced[tuple[int, int]] | None:
    """Patches in the height and in the width of an image, whose size is one number or two; only complete ones count."""
    image, patch = _sides(fields, "image"), _sides(fields, "patch")
    if image is None or patch is None:
        return None
    both = f"{image.source} / {patch.source}"
    if image.value is None or patch.value is None:
        return Sourced(None, both)
    return Sourced((image.value[0] // patch.value[0], image.value[1] // patch.value[1]), both)


def _patches(fields: Fields) -> Sourced[int] | None:
    """The number of patches of an image."""
    along = patches_along(fields)
    if along is None:
        return None
    height, width = along.value or (0, 0)
    source = f"({along.source})^2" if height == width else f"({along.source}, height x width)"
    return Sourced(height * width or None, source)


def _product(*found: Sourced[int] | None) -> Sourced[int] | None:
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    numbers = [each.value for each in known if each.value is not None]
    source = " x ".join(dict.fromkeys(each.source for each in known))
    return Sourced(math.prod(numbers) if len(numbers) == len(found) else None, source)


def _rectangle(fields: Fields) -> Sourced[int] | None:
    return _product(fields.whole("table_height", most=WIDEST), fields.whole("table_width", most=WIDEST))


def _tiles(fields: Fields) -> Sourced[int] | None:
    """Tiles of all arrangements; arrangement 0 stands for no image."""
    listed = fields.items("arrangements")
    if listed is None or listed.value is None:
        return None
    return _product(Sourced(len(listed.value) + 1, listed.source), fields.whole("tiles", most=WIDEST))


def _patches_of_tiles(fields: Fields) -> Sourced[int] | None:
    """Patches of all these tiles, each with a row for the token of the class."""
    patches = _patches(fields)
    return _product(_tiles(fields), patches and Sourced(patches.value and patches.value + 1, patches.source))


# Rows that no single quantity counts.
COUNTED_ROWS: Mapping[str, Callable[[Fields], Sourced[int] | None]] = {
    "patches": _patches,
    "rectangle": _rectangle,
    "tiles": _tiles,
    "patches of tiles": _patches_of_tiles,
}


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
    shape = rows_and_width(found.shape)
    if shape is None:
        fields.note("table-size", {where: list(found.shape), "expected": "a table of rows and columns"}, "input")
        return rows, width
    pairs = [(said, real) for said, real in zip((rows, width), shape, strict=True) if said is not None]
    if any(said.value not in (None, real) for said, real in pairs):
        evidence: dict[str, Any] = {where: list(found.shape)}
        evidence |= {said.source: said.value for said, real in pairs if said.value != real}
        fields.note("table-size", {**evidence, "used": where}, "input")
    return Sourced(shape[0], where), Sourced(shape[1], where)


def _tensor(ends: tuple[str, ...] | Any, tensors: Mapping[str, "TensorInfo"], part: str) -> "TensorInfo | None":
    """The tensor with one of these names; of several (a model of text and images has two) that of the part."""
    for end in ends:
        named = [name for name in tensors if name == end or name.endswith(f".{end}")]
        own = [name for name in named if part_in(name) == part]
        if named:
            return tensors[(own or named)[0]]
    return None
