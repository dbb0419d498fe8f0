"""A class of the installed Transformers, built without memory for its weights, and its modules about position."""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
import transformers
from torch import nn

from clockhands.configs import model_types as known

# Relative terms by what their modules are called, and what they are.
RELATIVE_TERMS = (
    ("relative_position_bias_table", "a learned bias for each offset inside a window"),
    ("rel_pos_h", "learned terms for the distances in rows and in columns"),
    ("relative_attention_bias", "a learned bias for each bucket of distances"),
    ("distance_embedding", "learned vectors for clipped distances"),
    ("rel_pos_emb", "learned vectors for clipped distances"),
    ("pos_conv_embed", "a convolution over the input"),
    ("pos_bias_u", "sinusoids of the distance with learned biases (Transformer-XL)"),
    ("r_r_bias", "sinusoids of the distance with learned biases (Transformer-XL)"),
    ("rel_logits_proj", "learned logits of the distance"),
    ("attention_biases", "a learned bias for each offset"),
    ("continuous_position_bias_mlp", "a bias for each offset inside a window, from a small network"),
    ("bias_u", "sinusoids of the distance with learned biases (Transformer-XL)"),
    ("inv_timescales", "projected sinusoids of the distance"),
    ("relative_attention_bias_layer", "a learned bias for each clipped distance"),
    ("emb_rel_k", "learned vectors for clipped distances"),
)


# What modules call the number of buckets, and the distance from which on all share the last one.
_BUCKETS = (
    ("relative_attention_num_buckets", "num_buckets"),
    ("relative_attention_max_distance", "relative_max_distance", "max_distance"),
)

INPUTS = {"pixel_values": "vision", "pixel_values_videos": "vision", "input_features": "audio", "input_values": "audio"}
"""The part of a model that a class is, by what it calls its input; text, if it calls it otherwise."""


@dataclass
class PositionModules:
    """What the modules of one type hold, apart from those of other types inside."""

    name: str
    config: Any
    model: nn.Module
    rotary: list[nn.Module] = field(default_factory=list)
    tables: list[tuple[str, nn.Module, tuple[int, ...]]] = field(default_factory=list)
    relative: list[str] = field(default_factory=list)
    buckets: list[tuple[int, int]] = field(default_factory=list)
    sines: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    attends: bool = False


def modeling_code(config: Any) -> Any:
    """The file with the code of a type; that of the class that the library uses for it, if the type has no code."""
    used = _class_of_another_type(config)
    return importlib.import_module(_own_file(config) if used is None else used.__module__)


def _own_file(config: Any) -> str:
    package, _, name = type(config).__module__.rpartition(".")
    return f"{package}.{name.replace('configuration_', 'modeling_')}"


def _class_of_another_type(config: Any) -> type[nn.Module] | None:
    """The class that the library uses for a type without code, which is that of another type."""
    used: Any = None if find_spec(_own_file(config)) else transformers.MODEL_MAPPING.get(type(config), None)
    return used


def model_classes(config: Any) -> list[type[nn.Module]]:
    """The classes that a config makes, the bare model first."""
    kind = type(config)
    used = _class_of_another_type(config)
    if used is not None:
        return [used]
    found = []
    for _, each in inspect.getmembers(modeling_code(config), inspect.isclass):
        if not issubclass(each, nn.Module) or "PreTrained" in each.__name__:
            continue
        whole = issubclass(each, transformers.PreTrainedModel)
        if not (whole and getattr(each, "config_class", None) is kind):
            parameter = inspect.signature(each.__init__).parameters.get("config")
            if parameter is None or parameter.annotation not in (kind, kind.__name__):
                continue
        found.append(
            ((not whole, "For" in each.__name__, not each.__name__.endswith("Model"), len(each.__name__)), each)
        )
    return [each for _, each in sorted(found, key=lambda pair: (pair[0], pair[1].__name__))]


def meta_model(config: Any, classes: list[type[nn.Module]]) -> nn.Module:
    """The first of the classes that can be made, without memory for its weights.

    Raises:
        ValueError: None of them can be made.
    """
    why: Exception | None = None
    for each in classes[:4]:
        try:
            with torch.device("meta"):
                return each(config)
        except Exception as error:  # noqa: BLE001 - whatever a class does not like about its own default config
            why = why or error
    reason = "no class takes this config" if why is None else f"{type(why).__name__}: {why}"
    raise ValueError(" ".join(reason.split())[:160])


def own_modules(model: nn.Module, inner: list[str]) -> Iterator[tuple[str, nn.Module]]:
    """The modules of a model without those of models of another type inside, whose types are added to ``inner``."""
    inside: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{other}.") for other in inside):
            continue
        config = getattr(module, "config", None)
        if isinstance(module, transformers.PreTrainedModel) and type(config) is not type(model.config) and path:
            inside.append(path)
            inner.append(module.config.model_type)
            continue
        yield path, module


def generic_path(path: str) -> str:
    """The path of a module with N for each number of a layer."""
    return re.sub(r"\.\d+(?=\.|$)", ".N", path)


def position_modules(name: str, config: Any, model: nn.Module) -> PositionModules:
    """What the modules of a model do with position."""
    found = PositionModules(name, config, model)
    paths = set()
    # A class that is no whole model, such as one layer, may have no config of its own.
    model.config = config
    for path, module in own_modules(model, found.inner):
        generic = generic_path(path)
        kind = type(module).__name__
        found.attends = found.attends or bool(re.search("Attention|Attn", kind))
        if generic in paths and not re.search(r"rot|rope|inv_freq", generic):
            continue
        paths.add(generic)
        held = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
        names = f"{generic}.{'.'.join(held)}"
        for mark, _ in RELATIVE_TERMS:
            if mark in names.split(".") and mark not in found.relative:
                found.relative.append(mark)
        buckets, distance = (next((vars(module)[key] for key in keys if key in vars(module)), 0) for keys in _BUCKETS)
        if is_number(buckets) and is_number(distance) and (buckets, distance) not in found.buckets:
            found.buckets.append((buckets, distance))
        if any("inv_freq" in each for each in held) and re.search(r"Rot|RoPE|Rope", kind):
            if not any(type(other) is type(module) for other in found.rotary):
                found.rotary.append(module)
            continue
        if re.search(r"Sine?Position|PositionEmbeddingSine|Sinusoid", kind) and "weight" not in held:
            found.sines.append(kind)
        leaf = path.rpartition(".")[2]
        if isinstance(module, nn.Embedding) and re.search(r"pos|wpe", leaf) and not re.search(r"rel|dist|type", leaf):
            found.tables.append((f"{generic}.weight", module, tuple(module.weight.shape)))
        for key, value in module.named_parameters(recurse=False):
            table = re.fullmatch(r"(absolute_)?pos(ition|itional)?_emb(ed|edding|eddings|eds)?", key)
            if table and value.dim() == 3 and value.shape[0] == 1:
                found.tables.append((f"{generic}.{key}".lstrip("."), module, tuple(value.shape[1:])))
            elif table and value.dim() == 2:
                found.tables.append((f"{generic}.{key}".lstrip("."), module, tuple(value.shape)))
    return found


def config_keys(config: Any, quantity: str) -> list[str]:
    """The keys under which a config class keeps a quantity: its own field first, then the name that stands for it."""
    aliases = type(config).attribute_map
    fields = set(config.to_dict()) | set(vars(config))
    spelt = known.table()["spellings"]["config"].get(quantity, [])
    more = {"hidden": ["embed_dim", "hidden_dim", "dim"], "layers": ["depth"], "heads": ["num_heads"]}.get(quantity, [])
    for key in (*spelt, *more):
        if key in aliases and aliases[key] in fields:
            return [aliases[key], key]
        if key in fields:
            return [key]
    return []


def class_default(config: Any, keys: list[str]) -> Any:
    """What a config class takes for the first of some keys."""
    return getattr(config, keys[0], None) if keys else None


def is_number(value: Any) -> bool:
    """Whether a value is a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
