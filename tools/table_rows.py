"""Rows of model types with tables of positions: learned ones, and sinusoids, which are recognised by their numbers."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from class_sources import source_of
from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.ladders import Geometric
from clockhands.errors import ClockhandsError
from clockhands.models.class_modules import (
    INPUTS,
    PositionModules,
    class_default,
    config_keys,
    generic_path,
    is_number,
    modeling_code,
)
from clockhands.recognition import identify

# What a name says of the part of a model.
PARTS = (
    ("text", re.compile(r"_text(_model|_config|_encoder|_decoder)?$")),
    ("vision", re.compile(r"vision|image|(^|_)vit(?!s)|visual|dinov|swin|sam\d*_|pixel|patch|vq", re.IGNORECASE)),
    ("audio", re.compile(r"audio|speech|wav|codec|voice|asr|acoustic|mimi|tts", re.IGNORECASE)),
)

# By how many rows a table may be longer than the number in the config that counts them.
_MOST_EXTRA = 8
# So many rows tell which sinusoids a table holds.
_ROWS = 64
_BASE = 10_000
_MOST_EQUAL = 4
# Sizes of a small model with the same tables of positions.
_SMALL = (re.compile(r"ffn_dim|intermediate_size|^dff$"), 8)
_VOCABULARY = 512
_QUANTITIES = ("reads", "defaults")


@dataclass(frozen=True)
class CountedRows:
    """What counts the rows of a table.

    Attributes:
        reads: The keys of each quantity.
        defaults: What the class takes for it.
        rows: The quantity that counts them, or ``patches``.
        extra: How many rows there are beyond it.
    """

    reads: Mapping[str, list[str]]
    defaults: Mapping[str, Any]
    rows: str
    extra: int


def part_of(found: PositionModules) -> str:
    """The part of a model that a type is."""
    for part, words in PARTS:
        if words.search(found.name) or words.search(type(found.model).__name__):
            return part
    return input_of(found)


def input_of(found: PositionModules) -> str:
    """What a model takes: ``text``, ``vision`` or ``audio``."""
    named = getattr(found.model, "main_input_name", "input_ids")
    return INPUTS.get(named if isinstance(named, str) else named[0], "text")


def shape(config: Any, quantities: tuple[str, ...]) -> dict[str, Any]:
    """``reads`` and ``defaults`` of a row for some quantities."""
    reads, defaults = {}, {}
    for quantity in quantities:
        keys = config_keys(config, quantity)
        value = class_default(config, keys)
        if not keys or isinstance(value, list | tuple):
            continue
        reads[quantity] = keys
        if is_number(value):
            defaults[quantity] = value
    return {"reads": reads, "defaults": defaults}


def joined(*rows: Mapping[str, Any]) -> dict[str, Any]:
    """``reads`` and ``defaults`` of several rows together."""
    return {name: {key: value for row in rows for key, value in row[name].items()} for name in _QUANTITIES}


def layers(found: PositionModules) -> Mapping[str, Any]:
    """``reads`` and ``defaults`` of a row for layers: by a list of stages, a usual key, or the key that adds one."""
    config = found.config
    usual = shape(config, ("layers",))
    stages: dict[str, Any] = {key: getattr(config, key, None) for key in ("depths", "depth")}
    listed = [key for key, value in stages.items() if isinstance(value, list | tuple) and all(map(is_number, value))]
    if found.attends and listed:
        named = type(config).attribute_map.get("num_hidden_layers", "num_hidden_layers")
        reads = {"layers": usual["reads"].get("layers", [named])[:1], "stages": listed}
        return {"reads": reads, "defaults": {"layers": sum(stages[listed[0]])}}
    if usual["defaults"] or not found.attends:
        return usual
    for key, value in config.to_dict().items():
        if re.search("layer|depth|block", key) and is_number(value):
            further = rebuilt(found, **{key: value + 1})
            if further is not None and _longest_list(further) == _longest_list(found.model) + 1:
                return {"reads": {"layers": [key]}, "defaults": {"layers": value}}
    return usual


def _longest_list(model: nn.Module) -> int:
    """How many modules the longest list of a model has."""
    return max((len(module) for module in model.modules() if isinstance(module, nn.ModuleList)), default=0)


def rebuilt(found: PositionModules, **values: Any) -> nn.Module | None:
    """The same class with other values in its config, or None if it cannot be made."""
    try:
        with torch.device("meta"):
            return type(found.model)(type(found.config)(**values))
    except Exception:  # noqa: BLE001 - a value that does not go with the others
        return None


def held_tensors(model: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """The parameters, buffers and other tensors of all modules, with their paths."""
    for path, module in model.named_modules():
        for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield generic_path(f"{path}.{name}").lstrip("."), module, value


def rows_at(model: nn.Module | None, path: str) -> int | None:
    """How many rows the table at a path has."""
    if model is None:
        return None
    return next((value.shape[-2] for each, _, value in held_tensors(model) if each == path), None)


def row_of_table(found: PositionModules, path: str, width: int) -> dict[str, Any] | None:
    """What the row of a type with a table says of layers and width; None if no key of the config says the width."""
    config, part = found.config, part_of_table(found, path)
    row = joined(layers(found), shape(config, ("decoder_layers",) if part in ("encoder", "decoder") else ()))
    numbers = numbers_of(config)
    # The width is that of the table: some models have an embedding narrower than their layers.
    own = [*(config_keys(config, "hidden")[:1]), "embedding_size", "embed_dim"]
    equal = [key for key in (*own, *numbers) if numbers.get(key) == width]
    if not equal:
        return None
    # Where several keys have this number, that which changes the table counts.
    wide = next((key for key in equal[:_MOST_EQUAL] if _widens(found, path, key, width)), equal[0])
    row["reads"]["hidden"], row["defaults"]["hidden"] = [wide, *config_keys(config, "hidden")[1:]], width
    return row


def _widens(found: PositionModules, path: str, key: str, width: int) -> bool:
    model = rebuilt(found, **{key: 2 * width})
    return model is not None and any(
        value.shape[-1] == 2 * width for each, _, value in held_tensors(model) if each == path
    )


def numbers_of(config: Any) -> dict[str, int]:
    """The whole numbers of a config."""
    return {key: value for key, value in config.to_dict().items() if is_number(value) and isinstance(value, int)}


def part_of_table(found: PositionModules, path: str) -> str:
    """The part of a model that has the table at a path."""
    return next((side for side in ("encoder", "decoder") if path.startswith(f"{side}.")), part_of(found))


# What counts the rows


def by_patches(found: PositionModules, path: str, rows: int) -> CountedRows | None:
    """The keys of the sizes of an image and its patches, if a table has a row for each patch."""
    sizes: dict[str, Any] = {
        key: value if isinstance(value, int) else list(value)
        for key, value in vars(found.config).items()
        if re.search("im(age|g)|patch", key) and (is_number(value) or _is_pair(value))
    }
    for image in (key for key in sizes if "size" in key and "patch" not in key):
        for patch in (key for key in sizes if "patch" in key and re.search("size|stride", key)):
            extra = rows - _patches(sizes[image], sizes[patch])
            if not 0 <= extra <= _MOST_EXTRA:
                continue
            value = sizes[image]
            larger = [each + 2 * step for each, step in zip(_pair(value), _pair(sizes[patch]), strict=True)]
            further = rebuilt(found, **{image: larger[0] if isinstance(value, int) else larger})
            if rows_at(further, path) == _patches(larger, sizes[patch]) + extra:
                held = {"image": _simple(value), "patch": _simple(sizes[patch])}
                return CountedRows({"image": [image], "patch": [patch]}, held, "patches", extra)
    return None


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))


def _pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, list) else [value] * 2


def _simple(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value[0] == value[1] else value


def _patches(image: Any, patch: Any) -> int:
    (height, width), (down, across) = _pair(image), _pair(patch)
    return (height // down) * (width // across)


def by_key(found: PositionModules, path: str, rows: int, other_than: list[str]) -> CountedRows | None:
    """The key that alone counts the rows of a table."""
    config = found.config
    numbers = numbers_of(config)
    for key, value in sorted(numbers.items(), key=lambda pair: ("position" not in pair[0], pair[0])):
        if not 0 <= rows - value <= 4 or key in other_than:
            continue
        if rows_at(rebuilt(found, **{key: value + 16}), path) == rows + 16:
            aliases = [alias for alias, real in type(config).attribute_map.items() if real == key]
            return CountedRows({"context": [key, *aliases]}, {"context": value}, "context", rows - value)
    return None


# Learned tables


def learned_row(found: PositionModules, path: str, module: nn.Module, size: tuple[int, ...]) -> dict[str, Any] | None:
    """The row of a type with a learned table, or None if what counts its rows cannot be told."""
    held = dict(module.named_parameters(recurse=False))
    if "Sinus" in type(module).__name__ or not held[path.rpartition(".")[2]].requires_grad:
        return None  # not trained: it holds sinusoids
    config, (rows, width) = found.config, size
    part = part_of_table(found, path)
    code: dict[str, Any] = {"part": part, "kind": "learned"}
    tensor = ".".join(path.split(".")[-3:])
    row = row_of_table(found, path, width)
    if row is None:
        return None
    counted = by_key(found, path, rows, row["reads"]["hidden"][:1]) or by_patches(found, path, rows)
    if counted is None:
        return None
    if counted.rows == "patches":
        code |= {"part": "vision", "rows": "patches", "extra_rows": counted.extra, "offset": 0, "tensors": [tensor]}
        return _with(row, counted, code)
    code |= {"rows": "context", "tensors": [tensor]}
    pad, offset, extra = getattr(module, "padding_idx", None), getattr(module, "offset", 0), counted.extra
    if pad is not None and pad == getattr(config, "pad_token_id", None) and not offset:
        # Its positions follow the row of padding, if the code makes them so.
        if extra or "create_position_ids_from" not in inspect.getsource(modeling_code(config)):
            return None
        code |= {"offset": "pad", "padding": "pad"}
        return _with(row, counted, code, pad)
    if extra != offset and part not in ("vision", "audio"):
        return None  # rows more than positions, and nothing says where the first position is
    return _with(row, counted, code | {"offset": offset} | ({"extra_rows": extra} if extra else {}))


def _with(
    row: Mapping[str, Any], counted: CountedRows, code: Mapping[str, Any], pad: int | None = None
) -> dict[str, Any]:
    reads, defaults = {**row["reads"], **counted.reads}, {**row["defaults"], **counted.defaults}
    if pad is not None:
        reads["pad"], defaults["pad"] = ["pad_token_id"], pad
    return {"reads": reads, "defaults": defaults, "codes": [dict(code)]}


# Sinusoids


def sinusoid_rows(found: PositionModules) -> Iterator[dict[str, Any]]:
    """A row for each table of sinusoids that the class computes where it is made, with the layout that it has."""
    model = _small_model(found)
    done = set()
    for path, module, value in () if model is None else held_tensors(model):
        computed = not value.requires_grad or "Sinus" in type(module).__name__
        if path in done or not computed or value.dim() != 2 or min(value.shape) < _MOST_EXTRA:
            continue
        done.add(path)
        waves = _sinusoids(value)
        row = None if waves is None else row_of_table(found, path, value.shape[1])
        counted = None if row is None else by_key(found, path, len(value), row["reads"]["hidden"][:1])
        if waves is None or row is None or counted is None:
            continue
        code = {"part": part_of_table(found, path), "kind": "sinusoidal"} | waves | {"rows": "context"}
        if counted.extra:
            code["extra_rows"] = counted.extra
        # Its positions follow the row of padding, if the code makes them so.
        follows = re.search("create_position_ids_from|make_positions", source_of(type(module))) is not None
        code["offset"] = "pad" if follows else getattr(module, "offset", 0)
        if isinstance(value, nn.Parameter) and "Sinus" not in type(module).__name__:
            code["tensors"] = [".".join(path.split(".")[-3:])]
        yield _with(row, counted, code, getattr(module, "padding_idx", None) if "pad" in code.values() else None)


def _small_model(found: PositionModules) -> nn.Module | None:
    """The class with numbers in its tables: with one layer and few tokens, so that it takes little memory."""
    try:
        return type(found.model)(type(found.config)(**_small_values(found)))
    except Exception:  # noqa: BLE001 - sizes that do not go with the others
        return None


def _small_values(found: PositionModules) -> dict[str, int]:
    numbers = numbers_of(found.config)
    tokens = 1 + max((value for key, value in numbers.items() if key.endswith("token_id")), default=0)
    layers = [key for quantity in ("layers", "decoder_layers") for key in config_keys(found.config, quantity)[:1]]
    sizes = (_SMALL, (re.compile("vocab_size$"), max(tokens, _VOCABULARY)))
    return dict.fromkeys(layers, 1) | {
        key: small for key, value in numbers.items() for words, small in sizes if words.search(key) and value > small
    }


def _sinusoids(table: Tensor) -> dict[str, Any] | None:
    """What a code says of the sinusoids that a table holds for the positions from 0 on; None for other numbers."""
    numbers = table[:_ROWS].detach().float().numpy()
    if not np.isfinite(numbers).all() or np.abs(numbers).max() > 1:
        return None
    try:
        best = next(iter(identify(numbers)), None)
    except ClockhandsError:
        return None
    if best is None or best.confidence < 1 or best.residual is not None or not isinstance(best.spec, Sinusoidal):
        return None
    spec, spacing, first = best.spec, best.spec.spacing, best.positions
    if (spec.order, spec.scale, spec.standardised) != ("sin-cos", 1, None) or not isinstance(first, range):
        return None
    if first.start or not isinstance(spacing, Geometric) or spacing.base != _BASE:
        return None
    span = {} if spacing.span == "open" else {"span": spacing.span}
    return {"layout": spec.layout} | span | ({"zero_rows": "pad"} if spec.zero_rows else {})


def merged(rows: list[dict[str, Any]], inputs: str) -> dict[str, Any]:
    """One row of several: an encoder and a decoder, each with its table. Of several in one part the first counts.

    Args:
        rows: A row for each table.
        inputs: What the model is given, as in `INPUTS`: an encoder of sound counts frames.
    """
    parts: dict[str, dict[str, Any]] = {}
    for row in rows:
        parts.setdefault(row["codes"][0]["part"], row)
    ordered = [parts[part] for part in ("encoder", "decoder") if part in parts]
    ordered += [row for part, row in parts.items() if part not in ("encoder", "decoder")]
    whole = ordered[0]
    for row in ordered[1:]:
        named, contexts = row, [each["reads"].get("context") for each in (whole, row)]
        if None not in contexts and contexts[0] != contexts[1]:
            if inputs == "audio":
                whole = _renamed(whole, "frames")
            else:
                named = _renamed(row, "decoder_context")
        if all(whole["reads"].get(name, keys) == keys for name, keys in named["reads"].items()):
            whole = {name: whole[name] | named[name] for name in ("reads", "defaults")} | {
                "codes": whole["codes"] + named["codes"]
            }
    return whole


def _renamed(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A row whose table is counted by a quantity of another name."""
    renamed = {key: {name if each == "context" else each: row[key][each] for each in row[key]} for key in _QUANTITIES}
    return renamed | {"codes": [code | {"rows": name} for code in row["codes"]]}
