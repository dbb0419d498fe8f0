"""The tables of ``tests/published``, and what their index says of each."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "published"


@cache
def index() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "index.json").read_text("utf-8"))["tables"]


def entries(*families: str) -> dict[str, dict[str, Any]]:
    """Entries of the tables of some families, by key."""
    return {entry["key"]: entry for entry in index() if entry["family"] in families}


def arrays(key: str) -> dict[str, np.ndarray]:
    """All arrays of a table, by name."""
    with np.load(FOLDER / "tables" / f"{key}.npz") as held:
        return dict(held)
