"""What an audit would say otherwise than a class of the library, if the type of the class had a certain row."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from class_sources import taken_keys
from clockhands.configs import model_types as known
from clockhands.configs.resolve import resolve
from clockhands.configs.resolved import INDEXER, MTP, layer_numbers
from clockhands.configs.targets import Opened
from clockhands.models.class_encodings import ladders, rotary_module, windowed_layers
from clockhands.models.class_modules import PositionModules, class_default, config_keys, is_number
from clockhands.models.class_readings import LAYER_KINDS

_AXES = 3  # time, rows and columns
CLOSE = 4e-6  # the modules hold their frequencies in float32

# Changes of a config by which the layers of classes differ.
_WINDOWS = {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 2}
_PERIODS = ("sliding_window_pattern", "global_attn_every_n_layers", "full_attention_interval")
_COUNTS = (1, 2, 3, 4, 6, 7, 13)
_LISTED = ["full_attention", "sliding_attention"] * 2
_VARIED: dict[str, list[tuple[dict[str, Any], "SeenLayers"]]] = {}


@contextmanager
def row_in_table(name: str, row: Mapping[str, Any]) -> Iterator[None]:
    """A type has this row meanwhile."""
    types = known.table()["types"]
    before = types.get(name)
    types[name] = dict(row)
    known.model_type.cache_clear()
    try:
        yield
    finally:
        if before is None:
            del types[name]
        else:
            types[name] = before
        known.model_type.cache_clear()


def with_row(name: str, row: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """What the audit resolves for a config, if its type had this row."""
    with row_in_table(name, row):
        return resolve(opened(name, values))


def opened(name: str, values: Mapping[str, Any]) -> Opened:
    """A config of a type, as if it had been opened from a file."""
    config = {**values, "model_type": name}
    return Opened(target="config.json", form="config", config=config, config_name="config.json")


def as_file(config: Any) -> dict[str, Any]:
    """A config as its file has it."""
    return json.loads(json.dumps(config.to_dict(), default=str))


def same(ours: Any, theirs: Sequence[float]) -> bool:
    """Whether frequencies agree, of an image those of its rows and those of its columns with what both have."""
    if ours is None:
        return False
    halves = [ours] if len(ours) == len(theirs) else [ours[: len(ours) // 2], ours[len(ours) // 2 :]]
    return all(
        len(half) == len(theirs)
        and all(abs(mine - other) <= CLOSE * abs(other) for mine, other in zip(half, theirs, strict=True))
        for half in halves
    )


def gaps(found: PositionModules, row: Mapping[str, Any], values: Mapping[str, Any], config: Any) -> Iterator[str]:
    """What the audit would say otherwise than the modules of the class, if the type had this row."""
    resolved = with_row(found.name, row, values)
    resolved = replace(resolved, codes=tuple(code for code in resolved.codes if code.component is None))
    codes = [code for code in resolved.codes if code.kind == "rotary"]
    listed = getattr(config, "layer_types", None)
    for module in found.rotary:
        for label, ladder in ladders(type(module)(config=config)).items():
            theirs = ladder.rates
            if label and listed is not None and label not in listed:
                continue
            if not any(same(code.rates, theirs) for code in codes):
                ours = [(code.layers, code.rates and (len(code.rates), code.rates[-1])) for code in codes]
                yield f"frequencies of {label or 'all layers'} ({len(theirs)}, {theirs[-1]:.4g}), not {ours}"
    layers = sum(len(layer_numbers(code.layers or "")) for code in resolved.codes if code.part not in (INDEXER, MTP))
    count = class_default(config, config_keys(config, "layers"))
    if codes and isinstance(count, int) and layers != count:
        yield f"{layers} layers, not {count}"
    if codes:
        yield from layer_gaps(resolved, layers_of_class(found, config))
    yield from latent_gaps(codes, config)
    bad = {fact.code for fact in resolved.facts} & {"impossible-value", "missing-value", "unknown-model-type"}
    yield from sorted(bad)


def latent_gaps(codes: Sequence[Any], config: Any) -> Iterator[str]:
    """Whether the heads of a class have two parts, of which one is rotated, and those of the audit have not."""
    parts: list[Any] = [getattr(config, key, None) for key in ("qk_nope_head_dim", "qk_rope_head_dim")]
    if all(map(is_number, parts)) and not any((code.width, code.rotated) == (sum(parts), parts[1]) for code in codes):
        yield f"heads of {parts[0]} unrotated and {parts[1]} rotated dimensions"


def axes_of_pairs(config: Any) -> tuple[int, ...] | None:
    """The axis of each pair that the rotary module of a text rotates; None if it takes no axes."""
    turned = []
    with suppress(StopIteration, AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        rotary = rotary_module(config)
        for axis in range(_AXES):
            places = torch.zeros(_AXES, 1, 1, dtype=torch.long)
            places[axis] = 1
            _, sine = rotary(torch.zeros(1, 1, 2), places)
            if sine.shape[0] == 1:  # else each axis is taken for a text of its own
                turned.append(sine.flatten() != 0)
    if len(turned) < _AXES:
        return None
    first, second = torch.stack(turned).chunk(2, dim=1)
    pairs = first if torch.equal(first, second) else torch.stack(turned)[:, ::2]
    return tuple(pairs.int().argmax(0).tolist())


@dataclass(frozen=True)
class SeenLayers:
    """The numbers of layers that have a window, and of those that have no attention."""

    windowed: frozenset[int]
    still: frozenset[int]


def layers_of_class(found: PositionModules, config: Any) -> SeenLayers:
    """What the layers of a class see, by the list of its config or by its code."""
    listed = getattr(config, "layer_types", None) or ()
    still = frozenset(layer for layer, kind in enumerate(listed) if LAYER_KINDS.get(kind) == "none")
    return SeenLayers(frozenset(windowed_layers(found, config)), still)


def layer_gaps(resolved: Any, theirs: SeenLayers) -> Iterator[str]:
    """In which layers the audit says a window or no rotation otherwise than the class."""
    codes = [code for code in resolved.codes if code.kind == "rotary"]
    slides = {layer for code in codes if code.window for layer in layer_numbers(code.layers or "")}
    if slides != theirs.windowed:
        yield f"a window in the layers {sorted(slides)[:4]}, not {sorted(theirs.windowed)[:4]}"
    ours = {layer for code in resolved.codes if code.kind == "none" for layer in layer_numbers(code.layers or "")}
    if not theirs.still <= ours:
        yield f"rotation in the layers {sorted(theirs.still - ours)[:4]}, which have no attention"


def varied(config: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """The default config and, where the class takes them, others: another base, another width."""
    yield as_file(config), config
    values: dict[str, Any] = {}
    if block := getattr(config, "rope_parameters", None):
        if any(isinstance(each, dict) for each in block.values()):
            values["rope_parameters"] = {
                key: {**each, "rope_theta": 3 * each.get("rope_theta", 1e4)} if isinstance(each, dict) else each
                for key, each in block.items()
            }
        else:
            values["rope_parameters"] = {**block, "rope_theta": 3 * block.get("rope_theta", 1e4)}
    heads, hidden = config_keys(config, "heads"), config_keys(config, "hidden")
    divided = getattr(type(config), "head_dim", None) is None
    if heads and hidden and divided and isinstance(class_default(config, hidden), int):
        values[hidden[0]] = 2 * class_default(config, hidden)
    try:
        other = type(config)(**values)
        yield as_file(other), other
    except Exception:  # noqa: BLE001 - a class that holds some of these to its other values
        return


def layers_varied(found: PositionModules) -> list[tuple[dict[str, Any], SeenLayers]]:
    """The layers that a class makes of other numbers of layers and of windows, with the keys of the config."""
    if found.name not in _VARIED:
        config, fields = found.config, found.config.to_dict()
        layers = config_keys(config, "layers")[:1]
        windows = {key: value for key, value in _WINDOWS.items() if key in fields}
        taken = taken_keys(type(config))
        _VARIED[found.name] = []
        tried = [{**dict.fromkeys(layers, count), **more} for more in ({}, windows) for count in _COUNTS]
        tried += [{**dict.fromkeys(layers, 7), **windows, key: 3} for key in _PERIODS if key in {*fields, *taken}]
        if "layer_types" in fields and windows:
            tried.append({**dict.fromkeys(layers, 4), **windows, "layer_types": _LISTED})
        for values in tried:
            try:
                _VARIED[found.name].append((values, layers_of_class(found, type(config)(**values))))
            except Exception:  # noqa: BLE001 - a class with layers that do not go with this number
                continue
    return _VARIED[found.name]
