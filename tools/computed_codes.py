"""Parts of rows that are read from modules without tables: sinusoids of images and of distances."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from clockhands.models.class_modules import PositionModules, class_default, config_keys, is_number
from table_rows import rebuilt, shape

NOTHING: Mapping[str, Any] = {"reads": {}, "defaults": {}}


# Distances


def _distance_module(found: PositionModules) -> Any:
    """The module that makes sinusoids of the distance; None without one."""
    for module in found.model.modules():
        if "Rel" in type(module).__name__ and "inv_freq" in dict(module.named_buffers(recurse=False)):
            return module
    return None


def limit(found: PositionModules) -> Mapping[str, Any]:
    """``reads`` and ``defaults`` of a row for the context, where the module of distances keeps it."""
    usual, module = shape(found.config, ("context",)), _distance_module(found)
    return usual if any(hasattr(module, key) for key in usual["reads"].get("context", ())) else NOTHING


def sinusoids_of_distance(found: PositionModules) -> dict[str, float]:
    """The base of the sinusoids that a module makes of the distance, one frequency for two channels of the model."""
    width, module = class_default(found.config, config_keys(found.config, "hidden")), _distance_module(found)
    if module is None:
        return {}
    rates = type(module)(found.config).inv_freq.double().flatten()
    base = round(float(rates[-1]) ** (-1 / (1 - 2 / width)), 2)
    usual = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return {"distances": base} if len(rates) == len(usual) and torch.allclose(rates, usual, rtol=1e-4) else {}


# Sinusoids of images


def of_rows_and_columns(found: PositionModules) -> bool:
    """Whether all sinusoids that a model computes are of the rows and of the columns of an image."""
    sources = [inspect.getsource(type(module)) for module in _sine_modules(found, found.model)]
    return bool(sources) and all(word in source for source in sources for word in ("height", "width", "sin"))


def width_of_sines(found: PositionModules) -> Mapping[str, Any]:
    """``reads`` and ``defaults`` of a row for the width of its sinusoids: the key that makes the modules wider."""

    def numbers(model: nn.Module) -> list[list[int]]:
        return [
            [value for value in vars(module).values() if type(value) is int] for module in _sine_modules(found, model)
        ]

    of_class, fields = numbers(found.model), found.config.to_dict()
    for key in (*config_keys(found.config, "hidden")[:1], *fields):
        value = fields.get(key)
        if re.search("hidden|dim|d_model", key) and is_number(value) and isinstance(value, int):
            further = rebuilt(found, **{key: 2 * value})
            if further is not None and numbers(further) != of_class:
                aliases = [alias for alias, real in type(found.config).attribute_map.items() if real == key]
                return {"reads": {"hidden": [key, *aliases]}, "defaults": {"hidden": value}}
    return NOTHING


def _sine_modules(found: PositionModules, model: nn.Module) -> list[nn.Module]:
    """The modules of a model that compute sinusoids."""
    return [module for module in model.modules() if type(module).__name__ in found.sines]
