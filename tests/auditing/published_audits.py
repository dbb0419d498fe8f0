"""The tool that audits all published configs, for tests of what it finds and of the document that it writes."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

TOOL = Path(__file__).resolve().parents[2] / "tools" / "published_findings.py"


@cache
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(TOOL.stem, TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def audits(published: Path) -> list:
    return tool().audits(published / "configs")
