"""The public list is small, sorted and true, and no order of imports hides a name."""

import ast
import inspect
import os
import random
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import clockhands as ch

AT_MOST = 30

# One call of each public function and class. A new public name needs a row: what is not here fails below.
SETUP = """
import numpy as np
import clockhands as ch
spec = ch.preset("vaswani2017", width=4)
def refused(call):  # a model is run with PyTorch, which may not be installed
    try:
        call()
    except ch.errors.ClockhandsError as error:
        return error
    raise AssertionError("not refused")
"""
CALLS = {
    "Alibi": "ch.Alibi(heads=8)",
    "Buckets": "ch.Buckets(heads=8)",
    "Learned": "ch.Learned(width=4, rows=8)",
    "NoPosition": "ch.NoPosition(width=4)",
    "Rotary": "ch.Rotary(head_width=8).rates",
    "Sinusoidal": "ch.Sinusoidal(width=4)",
    "add": "ch.add(np.zeros((2, 4), np.float32), spec)",
    "audit": "ch.audit('vaswani2017').to_dict()",
    "bias": "ch.bias(ch.Alibi(heads=8), 2, 3)",
    "check_additive": "ch.check_additive(lambda x, at: ch.add(x, spec, at), spec)",
    "check_batch": "ch.check_batch('text', [[5, 6, 7]], position_ids=[[0, 1, 2]])",
    "check_bias": "ch.check_bias(lambda q, k: ch.bias(ch.Alibi(heads=8), q, k), ch.Alibi(heads=8))",
    "check_generation": "refused(lambda: ch.check_generation(None))",
    "check_module": "refused(lambda: ch.check_module(None))",
    "check_positions": "ch.check_positions(lambda attention_mask: np.cumsum(attention_mask, 1) - 1, like='text')",
    "check_rotary": "ch.check_rotary(lambda x, at: ch.rotate(x, ch.Rotary(8), at), ch.Rotary(8))",
    "convert_table": "ch.convert_table(np.zeros((2, 4)), spec, spec)",
    "describe": "ch.describe(spec)",
    "from_json": "ch.from_json(ch.to_json(spec))",
    "identify": "ch.identify(ch.table(spec, 8))[0].name",
    "kernel": "ch.kernel(spec, [0, 1, 2])",
    "preset": "ch.preset('vaswani2017')",
    "probe": "refused(lambda: ch.probe('absent', measure=['live']))",
    "properties": "ch.properties(spec, 8).bounded",
    "rotate": "ch.rotate(np.zeros((2, 8)), ch.Rotary(head_width=8))",
    "shift": "ch.shift(spec, 3)",
    "table": "ch.table(spec, 5)",
    "to_json": "ch.to_json(spec)",
}


def submodules() -> list[str]:
    """All submodules by their files, so that none has to be imported to be found."""
    root = Path(ch.__file__).parent
    files = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    names = (".".join(["clockhands", *file.parts]).removesuffix(".__init__") for file in files)
    return sorted({name for name in names if name not in {"clockhands", "clockhands.__main__"}})


def public_functions() -> set[str]:
    """Public names that are called; exceptions are raised instead."""
    values = {name: getattr(ch, name) for name in ch.__all__}
    return {
        name
        for name, value in values.items()
        if callable(value) and not (inspect.isclass(value) and issubclass(value, BaseException))
    }


def test_the_list_is_short_sorted_and_what_can_be_imported():
    assert len(ch.__all__) <= AT_MOST
    assert list(ch.__all__) == sorted(set(ch.__all__))
    assert {name for name in ch.__all__ if not hasattr(ch, name)} == set()
    assert set(ch.__all__) <= set(dir(ch))
    own = {name.split(".")[1] for name in submodules()} | set(ch._SHORT)
    # pytest adds names with an @ to the modules of packages that bring a plugin.
    ours = {name for name in dir(ch) if name[0] not in "_@"} - own - {"Any", "TYPE_CHECKING", "import_module", "sys"}
    assert ours == {name for name in ch.__all__ if not name.startswith("_")}
    namespace: dict[str, object] = {}
    exec("from clockhands import *", namespace)
    assert set(ch.__all__) <= set(namespace)
    with pytest.raises(AttributeError, match="tabel"):
        _ = ch.tabel
    assert {name.split(".")[1] for name in submodules()} & set(ch.__all__) == set()


def test_a_shorter_path_is_the_same_module():
    """In a fresh process, with the shorter path imported first; a part of the module and a pickle come along."""
    code = """
import importlib, pickle, sys
import clockhands as ch
for short, home in ch._SHORT.items():
    module = importlib.import_module("clockhands." + short)
    assert module is importlib.import_module("clockhands." + home) is getattr(ch, short)
    assert module.__spec__.name == module.__name__ == "clockhands." + home, module.__spec__
from clockhands.rotary.rotating import rotate
assert rotate is ch.rotate
assert importlib.reload(ch.scaling) is sys.modules["clockhands.encodings.scaling"]
assert pickle.loads(b"cclockhands.rotary\\nRotary\\n.") is ch.Rotary
try:
    import clockhands.absent
except ModuleNotFoundError as error:
    assert error.name == "clockhands.absent"
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_type_checkers_see_what_is_public():
    """Lazy names are invisible to them, so the file repeats each as an import that never runs."""
    tree = ast.parse(Path(ch.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name in ch.__all__ if not name.startswith("__")} <= seen


def test_every_public_function_is_called_below():
    assert set(CALLS) == public_functions()


@cache
def needs_a_framework(name: str) -> bool:
    """Whether a submodule imports PyTorch, JAX or Transformers, itself or by another one."""
    if name.split(".")[1] in {"torch", "jax", "lab", "transformers"}:
        return True
    path = Path(ch.__file__).parent.joinpath(*name.split(".")[1:])
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")
    if re.search(r"^(?:import|from) (?:torch|jax|transformers|array_api_compat\.torch)\b", text, re.MULTILINE):
        return True
    others = set(re.findall(r"^from (clockhands\.[\w.]+) import", text, re.MULTILINE)) - {name}
    return any(map(needs_a_framework, others))


def test_no_order_of_imports_hides_a_function():
    """In a fresh process: every submodule, in an order of this run, then every public function."""
    modules = [name for name in submodules() if not needs_a_framework(name)]
    assert len(modules) > 50
    random.shuffle(modules)
    lines = [f"import {name}" for name in modules]
    code = "\n".join([*lines, SETUP, *CALLS.values()])
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"imported in the order {modules}:\n{done.stderr}"
