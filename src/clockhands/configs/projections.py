"""Finds the query and key projections of a checkpoint, and reads their rotated rows one layer at a time.

The tensor names are data: ``tensors.json`` by model type, ``projections.json`` for GGUF files, further types and usual
names. A projection that is packed, or fused in an unknown order, is not read but reported as left out. A tensor is
memory-mapped, or only its needed rows are dequantised; no two are in memory together.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands import formats
from clockhands.configs.model_types import model_type
from clockhands.configs.resolved import TEXT, LayerEncoding, Resolved, layer_numbers
from clockhands.configs.section_fields import fields_of, sections
from clockhands.configs.targets import Opened
from clockhands.configs.tensor_names import Arrangement, NamedTensor, Tensors, held, quantisation, slots_of, tensors_of
from clockhands.encodings import memory
from clockhands.errors import TooLarge
from clockhands.formats.arrays import LARGEST, TensorInfo, read, read_rows
from clockhands.packaged import packaged
from clockhands.phrases import shown

# More than any model has; a file that declares more would take hours to examine.
_MOST_HEADS = _WIDEST = 1024
_PLAIN = ("weight", "base_layer.weight")
_SCALES = ("weight_scale_inv", "weight_scale")


@dataclass(frozen=True)
class WeightProjection:
    """The rows of a query or key projection in one layer.

    Attributes:
        layer: Its layer.
        of: ``q`` or ``k``.
        info: The tensor.
        starts: The first row of each head.
        width: Rows of a head.
        rotated: How many of them are rotated.
        first: The first rotated row.
        transposed: Whether output channels are columns, as in code that computes `x @ W`.
        scale: The tensor of factors for blocks of the numbers, if there is one.
    """

    layer: int
    of: str
    info: TensorInfo
    starts: tuple[int, ...]
    width: int
    rotated: int
    first: int = 0
    transposed: bool = False
    scale: TensorInfo | None = None

    def read(self) -> np.ndarray:
        """The rotated rows of each head [heads, rotated, inputs], in their stored dtype if NumPy has it.

        Raises:
            TooLarge: They take more than 4 GiB, or more than is available.
            Unreadable: The numbers cannot be read singly, need the extra `gguf`, or the file ends inside them.
        """
        rows = np.add.outer(np.asarray(self.starts), self.first + np.arange(self.rotated)).reshape(-1)
        inputs = self.info.elements // self.info.shape[1 if self.transposed else 0]
        size, limit = 4 * len(rows) * inputs, min(LARGEST, memory.available() or LARGEST)
        if size > limit:
            raise TooLarge(
                f"The rows of {shown(self.info.name)} in {self.info.file} would take {memory.readable(size)}; at most"
                f" {memory.readable(limit)} can be read into memory.",
                "Look at a model of the same family that is smaller.",
            )
        if formats.gguf.is_quantised(self.info):
            numbers = formats.gguf.quantised_rows(self.info, rows)
        else:
            numbers = read(self.info).T[rows] if self.transposed else read_rows(self.info, rows)
        if self.scale is not None:
            numbers = numbers.astype(np.float32) * _scales(self.scale, self.info.shape)[rows]
        return numbers.reshape(len(self.starts), self.rotated, -1)


@dataclass(frozen=True)
class Projections:
    """The projections of a checkpoint.

    Attributes:
        projections: Those that can be read, by layer.
        left_out: Why others cannot, a clause for each reason, with the number of tensors.
        heads: Query heads, if the files declare them.
        keys: Key heads.
    """

    projections: tuple[WeightProjection, ...]
    left_out: tuple[str, ...]
    heads: int | None
    keys: int | None


def names() -> Mapping[str, Any]:
    """The table of names for types without an entry in `tensors.json`."""
    return packaged(__file__, "projections.json")


def projections(opened: Opened, resolved: Resolved) -> Projections:
    """Every query and key projection of the rotary layers of the text model; only headers are read."""
    shape = _Shape.of(opened)
    codes = [code for code in resolved.codes if code.kind == "rotary" and code.part in TEXT]
    named = list(_named(opened.tensors, shape, codes))
    # In most models a key projection has different numbers of outputs and inputs, and so shows how all are stored.
    if any(_lies_across(info, one, code, shape) for info, one, code in named):
        shape = replace(shape, transposed=True)
    found: list[WeightProjection] = []
    reasons: Counter[str] = Counter()
    for info, one, code in named:
        made = _placed(info, one, code, shape)
        if isinstance(made, str):
            reasons[made] += 1
            continue
        scale = next(filter(None, (opened.tensors.get(f"{one.module}.{leaf}") for leaf in _SCALES)), None)
        blocks = scale is not None and len(scale.shape) == 2 and min(scale.shape) > 1
        found += (replace(each, scale=scale) if blocks else each for each in made)
    found.sort(key=lambda each: (each.layer, each.of != "q"))
    left_out = tuple(
        f"{count} tensor{'s' if count > 1 else ''} {'are' if count > 1 else 'is'} {reason}"
        for reason, count in reasons.items()
    )
    return Projections(tuple(found), left_out, shape.heads, shape.keys)


@dataclass(frozen=True)
class HeadWidth:
    """Heads whose width in the weights differs from the declared one.

    Attributes:
        info: A query projection.
        rows: Its rows.
        heads: The query heads that the files declare.
        width: The declared or derived width of a head.
        found: The width according to the rows.
        layers: The layers of the code that has these projections.
        source: Where the declared width comes from.
    """

    info: TensorInfo
    rows: int
    heads: int
    width: int
    found: int
    layers: str | None
    source: str


def other_widths(opened: Opened, resolved: Resolved) -> Iterator[HeadWidth]:
    """Codes whose heads have another width in the weights: rows over heads of the first plain query projection.

    Only projections that hold nothing but queries, under a known name, and whose rows divide into equal heads; one
    layer of each code is checked, from headers only.
    """
    shape = _Shape.of(opened)
    heads = shape.heads
    # Under other names the rows may be one part of a model that is distributed over several devices.
    known = shape.form == "gguf" or shape.tensors is not None
    if heads is None or not known:
        return
    codes = [code for code in resolved.codes if code.kind == "rotary" and code.part in TEXT and code.width]
    waiting = list(codes)
    for info, one, code in _named(opened.tensors, shape, codes):
        if not waiting:
            return
        plain = one.arrangement == "heads" and one.of == "q" and one.leaf in _PLAIN and len(info.shape) == 2
        # Of other types, several numbers may be packed into one.
        numbers = formats.gguf.is_quantised(info) or "float" in info.dtype
        if not plain or not numbers or code not in waiting:
            continue
        waiting.remove(code)
        rows, width = info.shape[0], code.width or 0
        # Twice as many rows may be queries and gates.
        if rows not in (heads * width, 2 * heads * width) and rows % heads == 0:
            yield HeadWidth(info, rows, heads, width, rows // heads, code.layers, code.source.get("width", ""))


@dataclass(frozen=True)
class _Shape:
    """What the files say about heads, the type's entry in the table of tensors, and how the tensors are oriented."""

    heads: int | None
    keys: int | None
    tensors: Tensors | None
    name: str | None
    form: str
    transposed: bool = False

    @classmethod
    def of(cls, opened: Opened) -> "_Shape":
        config = opened.config or {}
        if opened.form == "gguf":
            name = config.get("general.architecture")
            heads = config.get(f"{name}.attention.head_count")
            keys = config.get(f"{name}.attention.head_count_kv")
            return cls(_one(heads), _one(keys) or _one(heads), None, name if isinstance(name, str) else None, "gguf")
        for section in sections(config):
            if section.part not in TEXT:
                continue
            name = section.values.get("model_type", config.get("model_type"))
            name = name if isinstance(name, str) else None
            fields = fields_of(section, "", model_type(name) if name is not None else None, [])
            heads = fields.whole("heads")
            known = tensors_of(name) if name is not None else None
            key = "num_key_value_heads" if known is None else known.keys
            number = None if heads is None else heads.value
            keys = _one(section.values.get(key)) if key is not None else None
            return cls(number, keys or (number if key is not None else None), known, name, opened.form)
        return cls(None, None, None, None, opened.form)


def _one(value: object) -> int | None:
    """A number of heads; for a list with one for each layer, the only value other than 0."""
    if isinstance(value, list | tuple):
        numbers = {number for number in value if type(number) is int and number}
        return numbers.pop() if len(numbers) == 1 else None
    return value if type(value) is int and value > 0 else None


def _named(
    tensors: Mapping[str, TensorInfo], shape: _Shape, codes: list[LayerEncoding]
) -> Iterator[tuple[TensorInfo, NamedTensor, LayerEncoding]]:
    """Tensors with the name of a query or key projection of a rotary layer."""
    numbers = [(None if code.layers is None else layer_numbers(code.layers), code) for code in codes]
    for name, info in tensors.items():
        one = _held(name, shape)
        if one is None or not set(name.split(".")).isdisjoint(names()["elsewhere"]["parts"]):
            continue
        code = next((code for layers, code in numbers if layers is None or one.layer in layers), None)
        if code is not None:
            yield info, one, code


def _held(name: str, shape: _Shape) -> NamedTensor | None:
    if shape.form == "gguf":
        return _by(name, names()["gguf"]["modules"])
    if shape.tensors is not None:
        found = held(name, shape.tensors)
        # A norm over a head's channels is indexed by them too, but is not a projection.
        return None if found is None or (found.arrangement == "head" and not shape.tensors.latent) else found
    own = names()["fused"].get(shape.name)
    return _by(name, own) if own is not None else _by_usual_name(name)


def _by(name: str, modules: Mapping[str, Arrangement]) -> NamedTensor | None:
    return held(name, Tensors("", modules))


def _by_usual_name(name: str) -> NamedTensor | None:
    pieces = name.split(".")
    for of, words in names()["names"].items():
        at = next((place for place, piece in enumerate(pieces) if piece in words), None)
        numbers = [int(piece) for piece in pieces[:at] if re.fullmatch(r"[0-9]{1,5}", piece)]
        if at is None or of == "says" or not numbers:
            continue
        leaf = ".".join(pieces[at + 1 :]) or "weight"
        arrangement: Any = None if of == "fused" else "heads"
        return NamedTensor(
            numbers[-1], None if of == "fused" else of, arrangement, ".".join(pieces[: at + 1]), leaf, None
        )
    return None


def _lies_across(info: TensorInfo, one: NamedTensor, code: LayerEncoding, shape: _Shape) -> bool:
    """Whether the columns, not the rows, have the size of the heads that the files declare."""
    if one.arrangement != "heads" or one.leaf not in _PLAIN or len(info.shape) != 2 or code.width is None:
        return False
    heads = shape.heads if one.of == "q" else shape.keys
    return heads is not None and info.shape[1] == heads * code.width != info.shape[0]


def _placed(info: TensorInfo, one: NamedTensor, code: LayerEncoding, shape: _Shape) -> list[WeightProjection] | str:
    """The projections in a tensor, or why they cannot be read."""
    method = quantisation(one.leaf)
    if method is not None:
        return [] if not one.leaf.endswith(("qweight", "absmax", "SCB")) else f"quantised by {method}"
    if one.leaf.endswith("weight_packed"):
        return "packed several numbers to a byte"
    if one.leaf not in _PLAIN or len(info.shape) < 2:
        return []
    if one.arrangement is None:
        return "fused in an order that is not known for this model type"
    width, rotated = code.width, code.rotated
    if width is None or rotated is None:
        return "of heads whose width is not known"
    if code.scaling is not None and code.scaling.get("type") == "proportional":
        rotated = width  # all channels form pairs; those beyond the share have frequency 0
    if rotated % 2 or not 0 < rotated <= width or len(info.shape) != 2:
        return f"of the shape {list(info.shape)}, which does not fit heads of width {width}"
    rows = info.shape[1] if shape.transposed else info.shape[0]
    latent = shape.tensors.latent if shape.tensors is not None else one.arrangement == "head"
    if one.arrangement == "head" and latent:
        width = max(rows, rotated)
    if width > _WIDEST or rows > _MOST_HEADS * width:
        return f"of {rows} rows with head width {width}, above the limits ({_MOST_HEADS} and {_WIDEST})"
    kinds = _kinds(one, rows, width, shape)
    if kinds is None:
        heads = f" {shape.heads if one.of != 'k' else shape.keys}" if shape.heads else ""
        return f"of {rows} rows, which does not fit{heads} heads of width {width}"
    last = getattr(code.spec, "part", None) == "last" or (shape.tensors is not None and shape.tensors.part == "last")
    first = width - rotated if last else 0
    return [
        WeightProjection(one.layer, of, info, starts, width, rotated, first, shape.transposed)
        for of in ("q", "k")
        if (starts := tuple(place * width for place, kind in enumerate(kinds) if kind == of))
    ]


def _kinds(one: NamedTensor, rows: int, width: int, shape: _Shape) -> str | None:
    """A letter for each slot of ``width`` rows: q, k, v, or g for a gate; None if there are no such slots."""
    if not rows or rows % width:
        return None
    slots, heads = rows // width, shape.heads
    if one.arrangement in ("heads", "head"):
        of = one.of or "q"
        expected = 1 if one.arrangement == "head" else heads if of == "q" else shape.keys
        if of == "q" and shape.name in names()["gated"]["types"] and heads is not None and slots == 2 * heads:
            return "qg" * heads
        return of * slots if expected is None or slots == expected else None
    kinds = slots_of(one.arrangement, slots, heads)
    return None if kinds is None or shape.keys not in (None, kinds.count("k")) else kinds


def _scales(scale: TensorInfo, shape: tuple[int, ...]) -> np.ndarray:
    """One factor for each number, from one for each block."""
    factors = np.asarray(read(scale), np.float32)
    for axis, size in enumerate(shape):
        factors = np.repeat(factors, -(-size // factors.shape[axis]), axis=axis).take(range(size), axis=axis)
    return factors
