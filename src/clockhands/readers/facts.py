"""The facts about readers, as data."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def facts() -> Mapping[str, Any]:
    """All of ``readers.json``."""
    return json.loads(resources.files("clockhands.readers").joinpath("readers.json").read_text(encoding="utf-8"))


@cache
def names(reader: str, key: str = "names") -> frozenset[str]:
    """A list of names that a reader knows."""
    return frozenset(facts()[reader][key])


def about(reader: str) -> tuple[str, str, str]:
    """Title, version, and where it was read."""
    held = facts()["readers"][reader]
    return held["title"], held["version"], held["read"]
