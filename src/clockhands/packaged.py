"""The data of this package: JSON and TOML files beside the modules that read them."""

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def packaged(beside: str, name: str) -> Mapping[str, Any]:
    """The JSON or TOML file ``name`` beside a module, whose ``__file__`` is passed, or in a folder there; read once."""
    text = (Path(beside).parent / name).read_text(encoding="utf-8")
    return tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
