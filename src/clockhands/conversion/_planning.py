"""The plan of a conversion: what happens to each tensor, decided from names, shapes and the config before writing.

Every tensor of a query or key either has a row in the table of tensor names or is refused by name; nothing is guessed.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.configs.model_types import model_type
from clockhands.configs.model_types import table as model_table
from clockhands.configs.resolve import LayerEncoding, resolve
from clockhands.configs.resolved import layer_numbers
from clockhands.configs.rotary_fields import LAYOUT_KEY
from clockhands.configs.section_fields import Section, fields_of, sections
from clockhands.configs.targets import Opened
from clockhands.configs.tensor_names import (
    NamedTensor,
    Part,
    Tensors,
    held,
    looks_like_query_or_key,
    quantisation,
    slots_of,
    stays,
    table,
    tensors_of,
    type_names,
)
from clockhands.conversion._rows import row_order
from clockhands.encodings.layouts import Layout
from clockhands.errors import ClockhandsError
from clockhands.formats.arrays import TensorInfo
from clockhands.phrases import shown

_HINT_AGAIN = "Convert a copy of the model in float32, float16 or bfloat16, and quantise it again."
_HINT_ROW = "What it is indexed by is not known; convert its rows with clockhands.conversion.convert_rows."


class CannotConvert(ClockhandsError, ValueError):
    """A checkpoint, or one of its tensors, cannot be converted exactly."""


@dataclass(frozen=True)
class Move:
    """The reordering of the rows of one tensor.

    Attributes:
        slots: For each slot (the rows of one head) whether it has RoPE dimensions.
        width: Rows of a slot.
        rotated: Number of RoPE dimensions in a slot.
        part: Whether these are its first or its last rows.
    """

    slots: tuple[bool, ...]
    width: int
    rotated: int
    part: Part

    def order(self, from_: Layout, to: Layout) -> np.ndarray:
        """Order of all rows."""
        return row_order(self.slots, self.width, self.rotated, self.part, from_=from_, to=to)


@dataclass(frozen=True)
class RotaryModel:
    """The information of a config that a conversion needs.

    Attributes:
        file: Name of the config.
        section: The part of it that describes the text model.
        tensors: The tensors of its type.
        around: Names of what is not text.
        codes: The position codes of the text model.
        layout: The layout of its class, before any conversion.
        because: How that is known.
        said: The layout that an earlier conversion wrote into the config.
        heads: Number of query heads.
        keys: Number of key heads, if the config has it.
        block: Rows of a quantisation block that shares one scale.
        method: The quantisation that the config declares.
    """

    file: str
    section: Section
    tensors: Tensors
    around: Sequence[str]
    codes: tuple[LayerEncoding, ...]
    layout: Layout | None
    because: str
    said: Layout | None
    heads: int | None
    keys: int | None
    block: int | None
    method: str | None

    def code(self, layer: int) -> LayerEncoding | None:
        """The code of a layer; layers after the last (multi-token prediction) are like all others."""
        for code in self.codes:
            if code.layers is None or layer in layer_numbers(code.layers):
                return code
        alike = {(code.kind, code.width, code.rotated) for code in self.codes}
        return self.codes[0] if len(alike) == 1 else None


def model_of(config: Mapping[str, Any], file: str) -> RotaryModel:
    """Read a config for a conversion.

    Raises:
        CannotConvert: Its type is in no row of the table, it is not rotary, or another part of it is.
    """
    named = [section for section in sections(config) if section.part == "text"]
    name = config.get("model_type")
    if len(named) != 1:
        raise CannotConvert(f"{file} describes {len(named)} text models.", "Convert a model that has one.")
    section = named[0]
    inner = _type_of(section, name)
    known = tensors_of(inner) if isinstance(inner, str) else None
    around = table()["around"].get(name) if isinstance(name, str) else None
    if known is None or (section.path and around is None):
        unknown = name if section.path and around is None else inner
        raise CannotConvert(
            f"{file} is of the model type {shown(unknown)}, whose tensors are not known.",
            f"Known are {', '.join(type_names())}.",
        )
    _check_parts(config, file, around)
    codes = _codes(config, file, known)
    layout, because = codes[0].layout, codes[0].source.get("layout", "")
    if layout is None and known.layout is not None:
        layout, because = known.layout, f"architecture of {known.name} ({table()['library']})"
    reader = fields_of(section, file, model_type(known.name), [])
    quantised = section.values.get("quantization_config") or config.get("quantization_config")
    quantised = quantised if isinstance(quantised, Mapping) else {}
    sizes = quantised.get("weight_block_size")
    keys = section.values.get(known.keys) if known.keys is not None else None
    said = section.values.get(LAYOUT_KEY)
    heads = reader.whole("heads")
    return RotaryModel(
        file,
        section,
        known,
        () if around is None else tuple(around["stays"]),
        codes,
        layout,  # type: ignore[arg-type]
        because,
        said if said in ("interleaved", "halves") else None,
        None if heads is None else heads.value,
        keys if type(keys) is int else None,
        sizes[0] if isinstance(sizes, list) and sizes and type(sizes[0]) is int and sizes[0] > 0 else None,
        quantised.get("quant_method") if isinstance(quantised.get("quant_method"), str) else None,
    )


def _type_of(section: Section, top: object) -> object:
    inner = section.values.get("model_type")
    if section.path and inner is not None:
        return inner
    if not section.path and not (isinstance(top, str) and top in table()["around"]):
        return inner
    around = model_type(top) if isinstance(top, str) else None  # old files write the text model's keys at the top
    return None if around is None else around.sections.get(section.part)


def _check_parts(config: Mapping[str, Any], file: str, around: Mapping[str, Any] | None) -> None:
    for section in sections(config):
        if section.part == "text":
            continue
        name = section.values.get("model_type")
        if around is None or name not in around["parts"].get(section.part, ()):
            raise CannotConvert(
                f"{file} has a {section.part} part of the type {shown(name)}, which may use a different RoPE.",
                "Convert the text model as a checkpoint by itself.",
            )


def _codes(config: Mapping[str, Any], file: str, known: Tensors) -> tuple[LayerEncoding, ...]:
    filled = {**known.defaults, **_unconverted(config)}
    codes = tuple(
        code for code in resolve(Opened(file, "config", None, filled, file)).codes if code.part in ("text", "decoder")
    )
    turning = [code for code in codes if code.kind == "rotary"]
    others = [code.kind for code in codes if code.kind not in ("rotary", "none")]
    if others or not turning:
        says = f"declares {others[0]} positions" if others and others[0] else "declares no rotary positions"
        raise CannotConvert(f"{file} {says}.", "Only RoPE pairs dimensions.")
    for code in turning:
        if code.width is None or code.rotated is None:
            missing = "how wide a head is" if code.width is None else "the number of RoPE dimensions per head"
            raise CannotConvert(f"{file} does not say {missing}.", "`clockhands audit` says which keys are missing.")
        if code.rotated % 2 or not 0 < code.rotated <= code.width:
            raise CannotConvert(
                f"{file} rotates {code.rotated} of {code.width} dimensions per head, which cannot form pairs.",
                "Correct the config: the number of RoPE dimensions is even.",
            )
    return tuple(sorted(codes, key=lambda code: code.kind != "rotary"))


def _unconverted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config without the keys that a conversion wrote into it."""
    return {
        key: _unconverted(value) if key in model_table()["sections"] and isinstance(value, Mapping) else value
        for key, value in values.items()
        if key != LAYOUT_KEY
    }


def moves(tensors: Mapping[str, TensorInfo], model: RotaryModel, only: str | None = None) -> dict[str, Move]:
    """The tensors to reorder, and how; all others are copied.

    Args:
        tensors: All tensors, by name.
        model: What the config says.
        only: ``"q"`` or ``"k"`` where the other side stays.

    Raises:
        CannotConvert: A tensor of a query or key cannot be converted exactly, has a shape that contradicts the config,
            or has no row in the table; or a layer has no query or no key.
    """
    made: dict[str, Move] = {}
    seen: dict[int, set[str]] = {}
    adapter = False
    for name, info in tensors.items():
        if any(each in name.split(".") for each in model.around) or stays(name, model.tensors):
            continue
        found = held(name, model.tensors)
        if found is None:
            _refuse_unknown(info, model)
            continue
        code = model.code(found.layer)
        if code is None:
            raise CannotConvert(
                f"{_name(info)} is of layer {found.layer}, which {model.file} does not describe.",
                "Correct the number of layers in the config.",
            )
        if code.kind != "rotary":
            continue
        _check_leaf(info, found, model, tensors)
        adapter = adapter or found.leaf.startswith("lora_")
        if found.arrangement != "head" or model.tensors.latent:
            seen.setdefault(found.layer, set()).update({found.of} if found.of else {"q", "k"})
        move = _move(info, found, code, model, tensors)
        if move is None or only not in (None, found.of or only):
            continue
        if only is not None and found.of is None:
            raise CannotConvert(f"{_name(info)} holds queries and keys together.", "Convert both: leave --only out.")
        _check_bytes(info, move)
        made[name] = move
    _check_complete(made, seen, adapter, model)
    return made


def _refuse_unknown(info: TensorInfo, model: RotaryModel) -> None:
    # One number is one for all channels, whatever it is.
    if info.elements == 1 or not looks_like_query_or_key(info.name):
        return
    raise CannotConvert(
        f"{_name(info)} looks like a tensor of queries or keys, and a {model.tensors.name} is not known to have it.",
        _HINT_ROW,
    )


def _check_leaf(info: TensorInfo, found: NamedTensor, model: RotaryModel, tensors: Mapping[str, TensorInfo]) -> None:
    """Refuse tensors of a quantisation or kind whose rows are not known."""
    method = quantisation(found.leaf)
    if method is None and model.method is not None and model.method not in table()["methods"]["known"]:
        method = model.method
    if method is not None:
        raise CannotConvert(
            f"{_name(info)} is quantised by {method}, whose numbers do not lie row by row.", _HINT_AGAIN
        )
    if found.role is None and info.elements != 1:
        kind = "a one-dimensional tensor" if len(info.shape) == 1 else "a tensor"
        raise CannotConvert(
            f"{_name(info)} is {kind} of a query or key that is not known: {shown(found.leaf)}.", _HINT_ROW
        )
    whole = re.match(r"u?int|bool|[IU]\d", info.dtype) is not None
    if found.leaf == "weight" and whole and f"{found.module}.weight_scale" not in tensors:
        raise CannotConvert(
            f"{_name(info)} is stored as {info.dtype} without a scale, so its packing is not known.",
            _HINT_AGAIN,
        )


def _check_bytes(info: TensorInfo, move: Move) -> None:
    """Refuse rows that share a byte: the format does not define the order of its bits."""
    rows, bits = len(move.slots) * move.width, info.bits
    if bits % (8 * rows):
        raise CannotConvert(
            f"{_name(info)} is stored as {info.dtype} in rows of {bits // rows} bits, which are not whole bytes.",
            _HINT_AGAIN,
        )


def _move(
    info: TensorInfo, found: NamedTensor, code: LayerEncoding, model: RotaryModel, tensors: Mapping[str, TensorInfo]
) -> Move | None:
    """The reordering of the tensor; None if it is not indexed by rows."""
    if found.role in ("stays", None) or (found.role == "scale" and info.elements == 1):
        return None
    if found.role == "scale":
        weights = (tensors.get(f"{info.name.rpartition('.')[0]}.{leaf}") for leaf in ("weight", "weight_packed"))
        weight = next((each for each in weights if each is not None and each.shape), None)
        if weight is None:
            raise CannotConvert(f"{_name(info)} is a scale without its weight.", "Name all shards, by their index.")
        return _scale_move(info, weight.shape[0], found, code, model)
    if not info.shape:
        raise CannotConvert(f"{_name(info)} is a single number, where rows are expected.", _HINT_ROW)
    rows = info.shape[0]
    if found.leaf == "weight" and found.arrangement == "heads" and len(info.shape) == 2 and "norm" in found.module:
        rows = info.elements  # [heads, head width]
    elif len(info.shape) > 2 or (len(info.shape) == 2 and found.arrangement == "head" and not model.tensors.latent):
        raise CannotConvert(
            f"{_name(info)} has the shape {list(info.shape)}, expected rows of output dimensions.",
            _HINT_ROW,
        )
    return _arranged(info, found, code, model, rows)


def _arranged(info: TensorInfo, found: NamedTensor, code: LayerEncoding, model: RotaryModel, rows: int) -> Move:
    """The slots of the rows, checked against the numbers of heads in the config."""
    width, rotated = code.width, code.rotated
    assert width is not None
    assert rotated is not None
    if code.scaling is not None and code.scaling["type"] == "proportional":
        rotated = width  # all channels form pairs; those beyond the share have rate 0
    if found.arrangement == "head" and model.tensors.latent:
        width = max(rows, rotated)
    slots = None if rows % width else slots_of(found.arrangement, rows // width, model.heads)
    allowed = {"q": model.heads, "k": model.keys}.get(found.of or "")
    if slots is not None and found.arrangement == "heads" and allowed is not None and len(slots) != allowed:
        slots = None
    if slots is not None and found.of is None and found.arrangement != "head" and model.keys is not None:
        slots = slots if slots.count("v") == model.keys else None
    if slots is None:
        heads = {"q": f"{model.heads} heads", "k": f"{model.keys or model.heads} key heads"}.get(
            found.of or "", f"{model.heads} heads with their keys and values"
        )
        says = f"a head of width {width}" if found.arrangement == "head" else f"{heads} of width {width}"
        raise CannotConvert(
            f"{_name(info)} has {rows} rows, which are not those of {says}.",
            f"{model.file} and the tensors are not of one model, or the tensor is packed or transposed.",
        )
    return Move(tuple(slot != "v" for slot in slots), width, rotated, model.tensors.part)


def _scale_move(
    info: TensorInfo, rows: int, found: NamedTensor, code: LayerEncoding, model: RotaryModel
) -> Move | None:
    """Scales per row are reordered with the rows; scales per block stay, if no row leaves its block."""
    if info.shape and info.shape[0] == rows:
        return _arranged(info, found, code, model, rows)
    block = model.block
    if len(info.shape) == 2 and block is not None and info.shape[0] == math.ceil(rows / block):
        move, blocks = _arranged(info, found, code, model, rows), np.arange(rows) // block
        if np.array_equal(blocks[move.order("interleaved", "halves")], blocks):  # and so the other way
            return None
        raise CannotConvert(
            f"{_name(info)} holds one scale for each {block} rows, and rows would leave their block.", _HINT_AGAIN
        )
    raise CannotConvert(
        f"{_name(info)} has the shape {list(info.shape)}, which is neither one scale for each of {rows} rows nor"
        " one for each block of them.",
        _HINT_AGAIN,
    )


def _check_complete(made: Mapping[str, Move], seen: Mapping[int, set[str]], adapter: bool, model: RotaryModel) -> None:
    """Refuse a checkpoint that would be converted only in part: it would be wrong in both layouts."""
    if not made:
        raise CannotConvert(
            f"None of the tensors is a query or key of a {model.tensors.name}.", "Name the weights of that model."
        )
    if adapter:
        return
    turning = {layer for code in model.codes if code.kind == "rotary" for layer in layer_numbers(code.layers or "")}
    for layer in sorted(turning | seen.keys()):
        for of, word in (("q", "query"), ("k", "key")):
            if of not in seen.get(layer, ()):
                raise CannotConvert(
                    f"Layer {layer} has no {word} projection among the tensors.",
                    "Name the whole model: its folder, or the index of its shards.",
                )


def _name(info: TensorInfo) -> str:
    # Whole, because it is by its name that a tensor is refused; real names have less than 200 characters.
    return f"{info.file}: {info.name[:200]!r}"
