"""Builds the class of a config in the installed Transformers, and reads what it does with positions."""

import copy
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from clockhands.encodings.memory import limit_memory
from clockhands.errors import ClockhandsError, Unreadable
from clockhands.models.class_attention import layer_attentions
from clockhands.models.class_encodings import (
    axes_of,
    cosine_sine,
    direction_of,
    ladders,
    layout_of,
    window_areas,
    windowed_layers,
)
from clockhands.models.class_modules import (
    INPUTS,
    RELATIVE_TERMS,
    PositionModules,
    config_keys,
    is_number,
    meta_model,
    model_classes,
    modeling_code,
    own_modules,
    position_modules,
)
from clockhands.models.class_readings import LAYER_KINDS, ClassLadder, ClassPart, ClassReading, LayerAttention

LIBRARY = f"Transformers {transformers.__version__}"

MOST_LAYERS = 128
"""Of a model with more layers, so many are built."""

MEMORY = 3 << 30
"""Bytes that building and reading a class may take beyond what the libraries take."""

_AXES = 3

_HINT = "Check the sizes in the config, or audit it without the class."

# Keys by which a config asks for code from elsewhere, or for kernels.
_FOREIGN = re.compile(r"^(auto_map|trust_remote_code|custom_pipelines|_?attn_implementation|_?experts_implementation)$")


def answer() -> None:
    """Read a config as JSON from standard input, and write what its class does as JSON to standard output."""
    config = json.load(sys.stdin)
    limit_memory(MEMORY)
    try:
        told = asdict(reading(config))
    except ClockhandsError as error:
        told = {"refused": error.message, "hint": error.hint}
    json.dump(told, sys.stdout)


def reading(config: Mapping[str, Any]) -> ClassReading:
    """What the class of a config does with positions.

    Raises:
        Unreadable: The installed Transformers does not know the type, or its class does not take the config.
    """
    made = class_config(config)
    built = _with_fewer_layers(made)
    parts: list[ClassPart] = []
    try:
        model = meta_model(made, _whole_classes(made))
    except (ValueError, ImportError) as error:
        # A whole that cannot be built may have parts that can.
        for path, inner in _inner_configs(made):
            parts += _parts(path, inner)
        if not parts:
            raise Unreadable(f"{LIBRARY} cannot build the class of {made.model_type!r}: {error}", _HINT) from None
        return ClassReading(LIBRARY, type(made).__name__, tuple(parts), built)
    return ClassReading(LIBRARY, type(model).__name__, tuple(_parts_of(model, made)), built)


def class_config(config: Mapping[str, Any]) -> Any:
    """The config object of the installed Transformers, which loads no code from elsewhere.

    Raises:
        Unreadable: The installed Transformers does not know the type, or its config class refuses the values.
    """
    name = str(config.get("model_type"))
    if name not in transformers.CONFIG_MAPPING:
        raise Unreadable(f"{LIBRARY} has no class for the model type {name!r}.", "Install a release that has the type.")
    # A copy: the library writes into the objects that it is given.
    held = {key: value for key, value in _without_foreign(copy.deepcopy(dict(config))).items() if key != "model_type"}
    try:
        return transformers.CONFIG_MAPPING[name].from_dict(held)
    except Exception as error:  # noqa: BLE001 - whatever the library says of values that it does not take
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise Unreadable(f"{LIBRARY} does not take this config: {told}", _HINT) from None


def _without_foreign(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_foreign(each) for key, each in value.items() if not _FOREIGN.match(str(key))}
    return [_without_foreign(each) for each in value] if isinstance(value, list) else value


def _inner_configs(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The configs inside a config with their paths, and those inside of them."""
    for key in type(config).sub_configs:
        inner = getattr(config, key, None)
        if isinstance(inner, transformers.PretrainedConfig):
            yield f"{path}{key}", inner
            yield from _inner_configs(inner, f"{path}{key}.")


def _with_fewer_layers(config: Any) -> dict[str, tuple[int, int]]:
    """Cut the layers of a config that has very many, and say which were cut: the number built, and the number it has.

    Lists with an entry for each layer are cut with them.
    """
    built = {}
    for path, each in [("", config), *_inner_configs(config)]:
        key = next(iter(config_keys(each, "layers")), None)
        count = None if key is None else getattr(each, key)
        if key is None or not isinstance(count, int) or count <= MOST_LAYERS:
            continue
        for name, value in list(vars(each).items()):
            if isinstance(value, list) and len(value) == count:
                setattr(each, name, value[:MOST_LAYERS])
        setattr(each, key, MOST_LAYERS)
        built[path] = (MOST_LAYERS, count)
    return built


def _whole_classes(config: Any) -> list[type[nn.Module]]:
    """The classes of whole models that a config makes; those of single modules, if there is no other."""
    classes = model_classes(config)
    return [each for each in classes if issubclass(each, transformers.PreTrainedModel)] or classes


def _parts(path: str, config: Any) -> list[ClassPart]:
    """The part of a config that stands alone; none if its class cannot be built."""
    try:
        model = meta_model(config, _whole_classes(config))
    except (ValueError, ImportError):
        return []
    return [class_part(path, position_modules(config.model_type, config, model))]


def _parts_of(model: nn.Module, config: Any) -> Iterator[ClassPart]:
    """The whole, and every model of another type inside."""
    model.config = config
    paths = {id(each): path for path, each in _inner_configs(config)}
    types = {type(each): path for path, each in _inner_configs(config)}
    yield class_part("", position_modules(config.model_type, config, model))
    done = {type(config)}
    for module in model.modules():
        own: Any = getattr(module, "config", None)
        if isinstance(module, transformers.PreTrainedModel) and type(own) not in done:
            done.add(type(own))
            path = paths.get(id(own)) or types.get(type(own)) or str(own.model_type)
            yield class_part(path, position_modules(own.model_type, own, module))


def class_part(path: str, found: PositionModules) -> ClassPart:
    """What the modules of a part, which is at a path of the config, do with positions."""
    unread: list[str] = []
    own = [module for _, module in own_modules(found.model, [])]
    listed = getattr(found.config, "layer_types", None)
    return ClassPart(
        path,
        found.config.model_type,
        type(found.model).__name__,
        INPUTS.get(str(getattr(found.model, "main_input_name", "")), "text"),
        _count(found.config),
        ladders=tuple(_ladders(found, own, unread)),
        layer_types=None if listed is None else tuple(listed),
        windows=_windows(found, listed, unread),
        # A matrix with a row for each axis of a coordinate is no table.
        tables=tuple((path, *size) for path, _, size in found.tables if len(size) == 2 and size[0] > _AXES),
        relative=tuple(dict(RELATIVE_TERMS)[mark] for mark in found.relative),
        buckets=tuple(found.buckets),
        attention=_attention(found, own),
        areas=window_areas(own, found.config),
        unread=tuple(unread),
    )


def _ladders(found: PositionModules, own: list[nn.Module], unread: list[str]) -> Iterator[ClassLadder]:
    """The frequencies of every rotary module, made again where numbers have memory, with the layout of its rotation."""
    done = set()
    used = {LAYER_KINDS.get(kind, kind) for kind in getattr(found.config, "layer_types", None) or ()}
    if used == {"none"}:
        return  # no layer rotates, whatever the class would compute
    for module in own:
        config = getattr(module, "config", None)
        held = dict(module.named_buffers(recurse=False)) | dict(module.named_parameters(recurse=False))
        if not any("inv_freq" in name for name in held) or (type(module), id(config)) in done:
            continue
        done.add((type(module), id(config)))
        name = type(module).__name__
        if config is None or not set(inspect.signature(type(module)).parameters) <= {"config", "device"}:
            unread.append(f"the frequencies of {name}, which is not made from a config alone")
            continue
        try:
            again = type(module)(config=config)
            made = ladders(again)
        except Exception as error:  # noqa: BLE001 - the library's own code on an unusual config
            unread.append(f"the frequencies of {name} ({type(error).__name__}: {str(error)[:80]})")
            continue
        for label, ladder in made.items():
            # A module makes the frequencies of all kinds, whether or not a layer is of that kind.
            if not used or label not in LAYER_KINDS or LAYER_KINDS[label] in used:
                measured, direction = _pairing(again, ladder, set(_rotations(found, own)))
                if measured is None:
                    unread.append(f"the layout of {name}")
                axes = _axes(again, found.config, unread)
                yield replace(ladder, layout=measured, direction=direction, axes=axes)


def _pairing(
    rotary: nn.Module, ladder: ClassLadder, functions: set[Callable[..., Any]]
) -> tuple[str | None, str | None]:
    """Layout and direction of the functions that the attention of a part calls; None if they cannot be called alone."""
    told, ways = set(), set()
    for function in functions:
        with suppress(Exception):  # a function that takes something else
            told.add(paired := layout_of(rotary, ladder.layer_type, function))
            ways.add(direction_of(rotary, ladder.layer_type, function, paired))
    told &= {"halves", "interleaved"}
    paired = told.pop() if len(told) == 1 else None
    return paired, ways.pop() if paired is not None and len(ways) == 1 else None


def _axes(rotary: nn.Module, config: Any, unread: list[str]) -> tuple[tuple[int, float], ...] | None:
    """The axes of an image, where a function of the library makes the rows and columns."""
    name = type(rotary).__name__
    axes = axes_of(rotary) if re.search("Vision|ViT", name) else None
    if axes is not None and not hasattr(modeling_code(config), "get_vision_position_ids"):
        unread.append(f"the axes of images in {name}, whose class makes the coordinates by itself")
        return None
    return axes


def _attention(found: PositionModules, own: list[nn.Module]) -> tuple[LayerAttention, ...]:
    """What the attention of each layer does, up to the last layer that could be called."""
    waves: dict[str, tuple[Tensor, ...]] = {}
    with suppress(Exception):  # a rotary module that is called otherwise: whether a layer rotates is then not known
        kind: Any = next((type(each) for each in found.rotary if each.config is found.config), None)
        again: Any = None if kind is None else kind(config=found.config)
        for label in {} if kind is None else ladders(again):
            made = cosine_sine(again, torch.zeros(1, 1, 2), torch.tensor([[0]]), label)
            waves[label] = made if isinstance(made, tuple) else (made,)
    called = layer_attentions(found.model, own, getattr(found.config, "layer_types", None) or (), waves)
    return tuple(called.get(layer, LayerAttention()) for layer in range(max(called, default=-1) + 1))


def _rotations(found: PositionModules, own: list[nn.Module]) -> Iterator[Callable[..., Any]]:
    """The functions by which the attention of a part rotates queries and keys; none if it reorders channels before."""
    code = modeling_code(found.config)
    by_turns = getattr(found.config, "rope_interleave", None)  # where the code has a function for each layout
    for kind in {type(module) for module in own if type(module).__module__ == code.__name__}:
        if re.search("Attention|Attn", kind.__name__):
            called = set(re.findall(r"\b(\w+)\(", inspect.getsource(kind)))
            rotating = {name for name in called if re.match(r"apply_\w*(rot|rope)", name)}
            reorders = any("interleave" in name for name in called - rotating - {"repeat_interleave"})
            for name in () if reorders else rotating:
                function = getattr(code, name, None)
                if function is not None and by_turns in (None, name.endswith("_interleave")):
                    yield function


def _count(config: Any) -> int | None:
    """How many layers a config has."""
    listed = getattr(config, "layer_types", None)
    if listed is not None:
        return len(listed)
    key = next(iter(config_keys(config, "layers")), None)
    count = None if key is None else getattr(config, key)
    return count if isinstance(count, int) else None


def _windows(found: PositionModules, listed: list[str] | None, unread: list[str]) -> tuple[int | None, ...] | None:
    """The window of each layer; None if neither the list of layers nor the code shows it."""
    config, count = found.config, _count(found.config)
    if count is None:
        return None
    try:
        if listed is None and not hasattr(config, "sliding_window"):
            return None
        window = getattr(config, "sliding_window", None)
    except Exception:  # noqa: BLE001 - a config with other values for each layer refuses to tell one
        unread.append("the windows, which each layer has by itself")
        return None
    unknown = set(listed or ()) - LAYER_KINDS.keys()
    if unknown:
        unread.append(f"the windows of layers of the kind {min(unknown)}")
        return None
    slides = windowed_layers(found, config) if is_number(window) else set()
    if listed is None and is_number(window) and not slides:
        return None  # the mask may be made by the model around this one
    return tuple(window if layer in slides else None for layer in range(count))
