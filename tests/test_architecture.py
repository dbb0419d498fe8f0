"""Imports go one way, down a list of layers, frameworks stay where they belong, and a name stands for one thing.

import-linter knows layers and forbidden imports. It has no list of what a package may import from outside, and none of
imports inside functions, so the rules are held here.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import SimpleNamespace

import pytest

import architecture_document

PACKAGE = "clockhands"
ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / PACKAGE

# The only place that says who may import whom, the lowest room first: a module may import from any line before its own,
# and nothing else. Those on one line do not import each other. A folder counts as one; inside it only cycles are
# forbidden.
LAYERS = """
errors packaged phrases
arguments
encodings
encodings.written_numbers encodings.constants encodings.spec_fields encodings.usual_values
encodings.dtypes encodings.memory encodings.compiling
encodings.ladders encodings.positions encodings.sampling
encodings.grids encodings.sharding
encodings.scaling encodings.phases encodings.layouts
encodings.clocks encodings.traces
encodings.additive encodings.rotary encodings.biases encodings.scores
encodings.mixtures
encodings.specs
encodings.presets encodings.heads encodings.protocols
formats measures recognition jax
configs torch
models
runtimes testing conversion
auditing
transformers jobs
lab
probes
show
cli
__main__
"""

# What may be imported from outside, beyond the standard library. Every line of a later list is a decision.
EVERYWHERE = {"numpy"}
ALLOWED = {
    "encodings.dtypes": {"ml_dtypes"},
    "encodings.compiling": {"torch"},
    "encodings.traces": {"array_api_compat"},
    "encodings.rotary": {"array_api_compat", "jax", "torch", "triton"},
    "encodings.biases": {"array_api_compat"},
    "torch": {"torch"},
    "jax": {"jax"},
    "formats": {"gguf", "huggingface_hub", "ml_dtypes", "safetensors", "yaml"},
    "configs": {"huggingface_hub"},
    "runtimes": {"packaging"},
    "models": {"gguf", "jax", "packaging", "torch", "transformers"},
    "auditing": {"torch"},
    "testing": {"pytest", "hypothesis", "array_api_compat", "torch"},
    "jobs": {"ray"},
    "probes": {"torch"},
    "transformers": {"torch", "transformers"},
    "lab": {"pandas", "ray", "safetensors", "scipy", "tokenizers", "torch"},
    "show": {"anywidget", "matplotlib", "rich", "traitlets"},
    "cli": {"click", "rich", "ml_dtypes", "safetensors"},
}

# Where a function may import from this package, and why; everywhere else imports stand at the top.
LATE = {
    "cli": "a command imports what it needs when it is called, so that the help is fast",
    "show": "the widget is optional",
    "encodings/additive/_tables.py": "only arrays inside a trace need it",
    "auditing/_audits.py": "PyTorch is optional",
    "models/running_models.py": "Transformers is optional",
    "encodings/positions.py": "PyTorch is optional",
    "recognition/_identifying.py": "a table does not need what functions need, nor the other way round",
    "encodings/rotary/limiting.py": "PyTorch is optional",
    "encodings/rotary/_torch_way.py": "Triton is optional",
    "encodings/rotary/_ways.py": "each array library has its own way, and only one of them may be installed",
    "configs/model_code/_beside.py": "most models have no code of their own",
    "configs/targets.py": "opening a file needs neither the presets nor the hub",
    "testing/kinds.py": "each kind is imported when it is asked for",
    "testing/encodings/_laws.py": "PyTorch is optional",
    "testing/modules/_module_check.py": "PyTorch is optional",
    "testing/generation/_image_requests.py": "PyTorch is optional",
    "testing/generation/_measured_attention.py": "PyTorch and JAX are optional",
    "testing/functions/_rotary.py": "PyTorch is optional",
    "testing/generation/_measured_programs.py": "PyTorch is optional",
    "testing/generation/texts.py": "PyTorch is optional",
    "testing/built_subjects.py": "Transformers is optional",
    "testing/plugin.py": "pytest loads it in every run, also where nothing is checked",
    "encodings/traces.py": "PyTorch is optional",
}
# The public names of PyTorch's and JAX's objects are those of the specs that they hold.
SAME_NAME = {"Additive", "Bias", "Rotary"}


def order(layers: str) -> dict[str, int]:
    return {name: place for place, line in enumerate(layers.strip().splitlines()) for name in line.split()}


def unit(name: str, places: dict[str, int]) -> str:
    """What a module counts as: a room, or a part of one where the list orders its parts."""
    _, room, *rest = name.split(".")
    part = ".".join([room, *rest[:1]])
    return part if part in places else room


def module_name(file: Path, source: Path) -> str:
    parts = file.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(node: ast.AST, within: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement below a node, and whether it is in a function; imports and classes are in no expression."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, name, ()):
            yield each, within
            yield from statements(each, within or isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def facts(text: str) -> tuple[list[tuple[ast.Import | ast.ImportFrom, bool]], list[str]]:
    """The imports of a file, each with whether it is in a function, and the names of its classes."""
    imports, classes = [], []
    for node, within in statements(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append((node, within))
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
    return imports, classes


def imported(file: Path, source: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, wherever in it, with the line."""
    here = module_name(file, source)
    package = here if file.name == "__init__.py" else here.rpartition(".")[0]
    for node, _ in facts(file.read_text(encoding="utf-8"))[0]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
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
        own = unit(name, places)
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
            theirs = unit(target, places)
            if theirs == own:
                continue
            hidden = next((part for part in rest[1:] if part.startswith("_")), None)
            if hidden is not None:
                found.append(f"{where}: {own} imports a private module of {theirs}: {hidden}")
            if theirs not in places:
                found.append(f"{where}: {own} imports {theirs}, which is in no layer")
            elif places[theirs] >= places[own]:
                what = "its sibling" if places[theirs] == places[own] else "from a room above it"
                found.append(f"{where}: {own} imports {what}: {theirs}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("modules import each other: " + " -> ".join(error.args[1]))
    return found


def late_imports(source: Path) -> list[str]:
    """Functions that import from the package, in files that have no reason to."""
    found = []
    for file in sorted(source.rglob("*.py")):
        place = str(file.relative_to(source))
        if place in LATE or place.partition("/")[0] in LATE:
            continue
        for node, within in facts(file.read_text(encoding="utf-8"))[0]:
            if within and isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                found.append(f"{place}:{node.lineno}: import {node.module} at the top of the file")
    return found


def same_names(source: Path) -> list[str]:
    """Classes of one name, and files of one name in more than two folders."""
    places: dict[str, list[str]] = {}
    for file in sorted(source.rglob("*.py")):
        place = str(file.relative_to(source))
        if file.name != "__init__.py":
            places.setdefault(file.name.lstrip("_"), []).append(place)
        for name in set(facts(file.read_text(encoding="utf-8"))[1]) - SAME_NAME:
            places.setdefault(f"class {name}", []).append(place)
    most = {name: 1 if name.startswith("class ") else 2 for name in places}
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > most[name]]


PRIVATE = re.compile(r"""(?<!["'`.\w])torch(?!\.ops\b)(\.\w+)*\._[a-zA-Z]\w*""")


def private_names_of_torch(source: Path) -> list[str]:
    """Uses of private names of PyTorch outside of the one file that has something in their place."""
    return [
        f"{file.relative_to(source)}: {found[0]} belongs in compiling.py"
        for file in sorted(source.rglob("*.py"))
        if file.name != "compiling.py"
        for found in PRIVATE.finditer(file.read_text(encoding="utf-8"))
    ]


MOST_EQUAL = 7  # lines in a row that two places may share to the letter


def code_lines(text: str) -> list[tuple[int, str]]:
    """The lines of code by number, without blank lines, comments, docstrings and imports."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if says or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in left_out)
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def copies(source: Path) -> list[str]:
    """Places that share more than `MOST_EQUAL` lines of code in a row, each beside the first of its kind."""
    first: dict[tuple[str, ...], str] = {}
    found = []
    for file in sorted(source.rglob("*.py")):
        lines = code_lines(file.read_text(encoding="utf-8"))
        for start in range(len(lines) - MOST_EQUAL):
            place = f"{file.relative_to(source)}:{lines[start][0]}"
            known = first.setdefault(tuple(line for _, line in lines[start : start + MOST_EQUAL + 1]), place)
            if known != place:
                found.append(f"{place} is a copy of {known}")
    return found


def test_the_package_keeps_the_rules_and_the_document_shows_it_as_it_is(cases, monkeypatch: pytest.MonkeyPatch):
    """One test, because the files are parsed once in each process."""
    assert len(list(SOURCE.rglob("*.py"))) > 5
    with cases("imports go one way"):
        assert violations(SOURCE, LAYERS) == []
    with cases("imports stand at the top of files"):
        assert late_imports(SOURCE) == []
        assert all((SOURCE / place).exists() for place in LATE), "a file with a reason is gone: take it out of LATE"
    with cases("private names of PyTorch are in one file"):
        assert private_names_of_torch(SOURCE) == []
    with cases("a name stands for one thing"):
        assert same_names(SOURCE) == []
    with cases("what two places need stands in one"):
        assert copies(SOURCE) == []
    with cases("run `python tools/architecture_document.py`"):
        # The tool asks this file, and would run it again.
        monkeypatch.setattr(architecture_document, "runpy", SimpleNamespace(run_path=lambda _: globals()))
        text = architecture_document.DOCUMENT.read_text(encoding="utf-8")
        assert architecture_document.document(text) == text


def test_late_imports_and_names_that_are_taken_are_found(small: Path):
    (small / "left.py").write_text(f"def f():\n    from {PACKAGE}.low import thing\nclass A:\n    pass\n")
    (small / "right.py").write_text("class A:\n    pass\n")
    for folder in ("high", "higher", "highest"):
        (small / folder).mkdir(exist_ok=True)
        (small / folder / "_part.py").write_text("")
    assert late_imports(small) == [f"left.py:2: import {PACKAGE}.low at the top of the file"]
    assert same_names(small) == [
        "part.py: high/_part.py, high/part.py, higher/_part.py, highest/_part.py",
        "class A: left.py, right.py",
    ]
    for file in ("compiling.py", "left.py"):
        (small / file).write_text("import torch\ntorch.autograd.forward_ad._current_level\n'torch._utils'\n")
    assert private_names_of_torch(small) == [
        "left.py: torch.autograd.forward_ad._current_level belongs in compiling.py"
    ]


def test_a_copy_is_found(small: Path):
    for file, number in (("left.py", MOST_EQUAL + 1), ("right.py", MOST_EQUAL), ("high/part.py", MOST_EQUAL + 1)):
        equal = "".join(f"value_{line} = {line}  # in each\n\n" for line in range(number))
        (small / file).write_text(
            f'"""Their own words: {file}."""\nimport {file[0]}\n# {file}\n{equal}other = "{file}"\n'
        )
    assert copies(small) == ["left.py:4 is a copy of high/part.py:4"]


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


BROKEN = [
    ("low.py", "from small.left import thing", "low.py:1: low imports from a room above it: left"),
    ("low.py", "import small.high.part", "low.py:1: low imports from a room above it: high"),
    ("low.py", "def f():\n    from .high import part", "low.py:2: low imports from a room above it: high"),
    ("left.py", "from small import right", "left.py:1: left imports its sibling: right"),
    ("left.py", "from . import right", "left.py:1: left imports its sibling: right"),
    ("left.py", "import small", "left.py:1: left imports the whole package; name the submodule"),
    ("left.py", "from small import table", "left.py:1: left imports the whole package; name the submodule"),
    ("high/part.py", "from small.left._inside import thing", "high imports a private module of left: _inside"),
    ("left.py", "import torch", "left.py:1: left may not import torch"),
    ("left.py", "if 0:\n    from rich import print", "left.py:2: left may not import rich"),
    ("extra.py", "", "extra is in no layer"),
    ("high/part.py", "from small.high import thing", "modules import each other"),
]


def test_a_sound_package_is_found_sound_and_a_broken_one_broken(small: Path, cases):
    assert violations(small, SMALL) == []
    for file, text, sentence in BROKEN:
        sound = (small / file).read_text(encoding="utf-8") if (small / file).exists() else None
        (small / file).write_text(text, encoding="utf-8")
        with cases(file, text):
            found = violations(small, SMALL)
            assert any(sentence in each for each in found), found
        if sound is None:
            (small / file).unlink()
        else:
            (small / file).write_text(sound, encoding="utf-8")
