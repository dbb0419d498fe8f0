"""Imports go one way, down a list of layers, and frameworks stay where they belong."""

import ast
import runpy
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "clockhands"
ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / PACKAGE

# The only place that says who may import whom: a module may import from any line above its own, and nothing
# else. Those on one line do not import each other. A folder counts as one; inside it only cycles are forbidden.
LAYERS = """
errors
arguments
dtypes memory
ladders positions sampling
grids
scaling phases layouts compiling
clocks traces
additive rotary biases calling
mixtures
specs
presets
jax measures recognition faults heads engines
diagnosis
torch
claims sources
readers testing
auditing conversion probes lab
show
cli
__main__
"""

# What may be imported from outside, beyond the standard library. Every line of a later list is a decision.
EVERYWHERE = {"numpy"}
ALLOWED = {
    "dtypes": {"ml_dtypes"},
    "compiling": {"torch"},
    "traces": {"array_api_compat"},
    "additive": {"array_api_compat"},
    "rotary": {"array_api_compat", "jax", "torch"},
    "biases": {"array_api_compat"},
    "torch": {"torch"},
    "jax": {"jax"},
    "conversion": {"array_api_compat"},
    "sources": {"gguf", "ml_dtypes", "safetensors"},
    "auditing": {"torch"},
    "testing": {"pytest", "hypothesis", "array_api_compat", "torch"},
    "probes": {"torch", "jax"},
    "engines": {"ray"},
    "lab": {"ray", "scipy", "tokenizers", "torch"},
    "show": {"anywidget", "matplotlib", "rich", "traitlets"},
    "cli": {"click", "rich", "ml_dtypes", "safetensors"},
}


def order(layers: str) -> dict[str, int]:
    return {name: place for place, line in enumerate(layers.strip().splitlines()) for name in line.split()}


def module_name(file: Path, source: Path) -> str:
    parts = file.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(file: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, wherever in it, with the line."""
    here = module_name(file, source)
    package = here if file.name == "__init__.py" else here.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                start = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from package import submodule` imports the submodule
                deeper = source.parent.joinpath(*start.split("."), alias.name)
                is_module = deeper.is_dir() or deeper.with_suffix(".py").is_file()
                yield node.lineno, f"{start}.{alias.name}" if is_module else start


def violations(source: Path, layers: str) -> list[str]:
    """What is imported against the rules: one sentence each."""
    places = order(layers)
    found = []
    graph: dict[str, set[str]] = {}
    for file in sorted(source.rglob("*.py")):
        name = module_name(file, source)
        parts = name.split(".")
        if len(parts) == 1:
            continue  # the package itself: it names everything, and imports it only when asked
        own = parts[1]
        if own not in places:
            found.append(f"{own} is in no layer: add it to the list in {Path(__file__).name}")
            continue
        graph.setdefault(name, set())
        for line, target in imported(file, source):
            where = f"{file.relative_to(source)}:{line}"
            top, *rest = target.split(".")
            if top != source.name:
                if top not in sys.stdlib_module_names and top not in EVERYWHERE and top not in ALLOWED.get(own, ()):
                    found.append(f"{where}: {own} may not import {top}")
                continue
            if not rest:
                found.append(f"{where}: {own} imports the whole package; name the submodule")
                continue
            if target != name:
                graph[name].add(target)
            if rest[0] == own:
                continue
            if rest[0] not in places:
                found.append(f"{where}: {own} imports {rest[0]}, which is in no layer")
            elif places[rest[0]] >= places[own]:
                what = "its sibling" if places[rest[0]] == places[own] else "from below it"
                found.append(f"{where}: {own} imports {what}: {rest[0]}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("modules import each other: " + " -> ".join(error.args[1]))
    return found


def test_imports_go_one_way():
    assert violations(SOURCE, LAYERS) == []


def test_there_is_something_to_look_at():
    assert len(list(SOURCE.rglob("*.py"))) > 5


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A sound package of three layers, for the tests below to break."""
    source = tmp_path / "small"
    for name, text in {
        "__init__.py": "",
        "low.py": "import math\nimport numpy as np\n",
        "left.py": "from small.low import thing\n",
        "right.py": "from small import low\n",
        "high/__init__.py": "from small.high.part import thing\nfrom .part import thing\n",
        "high/part.py": "from small.left import thing\nfrom ..right import thing\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    return source


SMALL = "low\nleft right\nhigh"


def test_a_sound_package_is_found_sound(small: Path):
    assert violations(small, SMALL) == []


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("low.py", "from small.left import thing", "low.py:1: low imports from below it: left"),
        ("low.py", "import small.high.part", "low.py:1: low imports from below it: high"),
        ("low.py", "def f():\n    from .high import part", "low.py:2: low imports from below it: high"),
        ("left.py", "from small import right", "left.py:1: left imports its sibling: right"),
        ("left.py", "from . import right", "left.py:1: left imports its sibling: right"),
        ("left.py", "import small", "left.py:1: left imports the whole package; name the submodule"),
        ("left.py", "from small import table", "left.py:1: left imports the whole package; name the submodule"),
        ("left.py", "import torch", "left.py:1: left may not import torch"),
        ("left.py", "if 0:\n    from rich import print", "left.py:2: left may not import rich"),
        ("extra.py", "", "extra is in no layer"),
        ("high/part.py", "from small.high import thing", "modules import each other"),
    ],
)
def test_a_broken_package_is_found_broken(small: Path, file: str, text: str, sentence: str):
    (small / file).write_text(text, encoding="utf-8")
    found = violations(small, SMALL)
    assert any(sentence in each for each in found), found


def test_the_document_shows_the_packages_as_they_are():
    made = runpy.run_path(str(ROOT / "tools" / "architecture_document.py"))
    text = made["DOCUMENT"].read_text(encoding="utf-8")
    assert made["document"](text) == text, "run `python tools/architecture_document.py`"
