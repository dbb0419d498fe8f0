"""`import clockhands` brings no framework and no command line library; frameworks come with the caller's arrays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORKS = {"torch", "jax", "jaxlib", "tensorflow", "transformers", "onnx", "gguf"}
COMMAND_LINE = {"click", "rich", "pygments", "markdown_it"}
# What only some functions need: importing the package must not pay for it.
LATE = {"safetensors", "array_api_compat", "scipy", "sympy", "pytest", "hypothesis", "mpmath"}

PREPARED = "import sys\nsys.argv = ['clockhands']\n"
REPORT = "\nimport json, sys\nprint('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"


def loaded_by(code: str, path: Path | None = None) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running the code."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-c", PREPARED + code + REPORT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


# What each does includes `import clockhands`.
ENTRY_POINTS = {
    "a rotary ladder": ("import clockhands as ch\nch.Rotary(head_width=8).rates", FRAMEWORKS | COMMAND_LINE | LATE),
    "a table and a NumPy array": (
        "import numpy as np, clockhands as ch\nspec = ch.preset('vaswani2017', width=4)\n"
        "ch.table(spec, 5)\nch.add(np.zeros((2, 4), np.float32), spec)",
        FRAMEWORKS | COMMAND_LINE | (LATE - {"array_api_compat"}),
    ),
    "a study of the lab": (
        "from clockhands.lab import arms, study, tuning\nstudy.shipped_studies()",
        FRAMEWORKS | COMMAND_LINE | (LATE - {"array_api_compat", "safetensors"}),
    ),
    "the command line": ("import clockhands.cli", FRAMEWORKS | (LATE - {"array_api_compat"})),
    "an audit": (
        "import clockhands as ch\nch.audit('vaswani2017').to_dict()",
        FRAMEWORKS | {"scipy", "sympy", "pytest", "hypothesis", "mpmath"},
    ),
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_nothing_is_imported_that_is_not_needed(name: str):
    code, unwanted = ENTRY_POINTS[name]
    assert loaded_by(code) & unwanted == set()


ADDED_IN_JAX = "\nimport jax.numpy as jnp\nch.add(jnp.zeros((2, 4), jnp.float32), ch.preset('vaswani2017', width=4))"


@pytest.mark.parametrize(("name", "other", "more"), [("torch", "jax", ""), ("jax", "torch", ADDED_IN_JAX)])
def test_what_one_framework_holds_brings_no_other(name: str, other: str, more: str):
    pytest.importorskip(name)
    code = f"import clockhands as ch\nch.{name}.Rotary(ch.Rotary(head_width=8))\nimport clockhands.{name}"
    loaded = loaded_by(code + more)
    assert name in loaded
    assert loaded & {other, "click", "rich", "transformers"} == set()


def test_the_package_can_be_asked_for_its_names_without_pytorch_and_jax():
    code = """
import pydoc, sys
sys.modules.update(torch=None, jax=None)
import clockhands as ch
assert not hasattr(ch, "torch") and not hasattr(ch, "jax") and not hasattr(ch, "nothing")
assert "identify" in pydoc.render_doc(ch)
try:
    ch.torch
except AttributeError as error:
    assert "clockhands.torch is not available" in str(error)
"""
    loaded_by(code)
