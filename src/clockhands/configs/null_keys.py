"""What a key that is null means to the class of a model type: ``null_keys.json``, which tools/null_keys.py writes.

No rule by key is right for all types: a class takes its default, keeps the null and computes something else, or refuses
the config. So each key that is read of a type was set to null in the class of one release, and what came of it is known
for that release alone.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from clockhands.configs.model_types import ModelType

DEFAULT, NOTHING, REFUSED, FAILS, UNKNOWN = "default", "nothing", "refused", "fails", "unknown"
"""The class takes its default, it has no such value, its config class refuses null, it cannot be built, or unknown."""

SEES_ALL = ("window", "chunk")
"""Quantities for which null means, to every class and runtime, that a layer sees all: see `layer_rules.size_seen`."""

FILE = Path(__file__).with_name("null_keys.json")


def meaning_of_null(known: ModelType, key: str) -> str:
    """What the class of a type makes of a key that is null.

    >>> from clockhands.configs.model_types import model_type
    >>> [meaning_of_null(model_type(name), "partial_rotary_factor") for name in ("qwen3_next", "glm4", "chatglm")]
    ['nothing', 'nothing', 'unknown']
    >>> meaning_of_null(model_type("llama"), "num_attention_heads")
    'refused'
    """
    held = measured_nulls()
    if known.library != held["library"]:
        return UNKNOWN
    usual, others = held["keys"].get(key, (UNKNOWN, {}))
    return next((meaning for meaning, types in others.items() if known.name in types), usual)


@cache
def measured_nulls() -> dict[str, Any]:
    """The release that was measured, and for each key what null usually means, with the types in which it differs."""
    return json.loads(FILE.read_text(encoding="utf-8"))
