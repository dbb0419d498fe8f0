"""The scale of the softmax of each model type: a fixed number, a power of a key, or 1 / sqrt(width of a head).

It was read from the class of each type, or measured on one that was made from a small config, see
``tools/softmax_scales.py``; a type that is not listed is not known.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from clockhands.configs.fields import is_number
from clockhands.configs.model_types import table


@cache
def softmax_rules() -> Mapping[str, Mapping[str, Any]]:
    """What gives the scale of each type: a ``key`` and its ``power``, a ``fixed`` number, else the width of a head."""
    held = table()["softmax_scales"]
    return {name: {} for name in held["of_width"]} | held["others"]


def softmax_scale_of(type_name: str, config: Mapping[str, Any], width: int | None) -> tuple[float, str | None] | None:
    """The scale and the key that gives it; None if it is not known.

    Args:
        type_name: The model type.
        config: Its config.
        width: Channels of a head.
    """
    rule = softmax_rules().get(type_name)
    if rule is None or any(config.get(key, value) != value for key, value in rule.get("only", {}).items()):
        return None
    if "key" not in rule:
        value = rule.get("fixed", width**-0.5 if width else None)
        return None if value is None else (value, None)
    given: Any = config.get(rule["key"])
    given = rule.get("default") if given is None else given
    if not is_number(given) or not 0 < given < math.inf:
        return None
    return float(given) ** rule["power"], rule["key"]


def class_source(type_name: str) -> str:
    """The source of what the class of a type has."""
    return f"architecture of {type_name} ({table()['softmax_scales']['library']})"
