"""What others rely on is still there: names, codes, options, exit codes and the fields of JSON documents."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "surface.py"


def missing(listed: Any, here: Any, where: str = "") -> list[str]:
    """What is listed and not here; what is here beside it is no loss."""
    if isinstance(listed, dict):
        return [
            each
            for key, value in listed.items()
            for each in (missing(value, here[key], f"{where}/{key}") if key in here else [f"{where}/{key}"])
        ]
    if isinstance(listed, list):
        return [f"{where}/{each}" for each in listed if each not in here]
    return [] if listed == here else [f"{where}: {here}, not {listed}"]


def test_nothing_that_others_rely_on_is_missing():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    made = runpy.run_path(str(TOOL))
    listed = json.loads(made["FILE"].read_text(encoding="utf-8"))
    assert len(listed["findings"]) > 90
    assert missing(listed, made["surface"]()) == [], "if it was taken away on purpose, run `python tools/surface.py`"


def test_what_is_gone_or_another_is_seen():
    listed = {"codes": ["a", "b"], "lines": {"x": {"exit": 0}, "y": {}}}
    here = {"codes": ["b", "c"], "lines": {"x": {"exit": 1}}}
    assert missing(listed, here) == ["/codes/a", "/lines/x/exit: 1, not 0", "/lines/y"]
