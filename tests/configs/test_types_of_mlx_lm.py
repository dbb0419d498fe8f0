"""Types without a class in Transformers, against the rotations that mlx-lm 0.32.2 makes for small configs of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clockhands.configs.model_types import model_types
from clockhands.encodings.rotary import Rotary
from configs.expected import layer_numbers, resolved

HERE = Path(__file__).parent
CASES = json.loads((HERE / "mlx_lm_types.json").read_text(encoding="utf-8"))
CONFIGS = [case["config"] for case in CASES]


def rotations(config):
    """What the audit says of each layer that rotates: dimensions, whether pairs are interleaved, base."""
    found = resolved(config)
    assert {fact.code for fact in found.facts} <= {"default-value"}
    layers = {}
    for code in found.codes:
        if code.kind == "none":
            continue
        assert isinstance(code.spec, Rotary)
        rotation = [2 * len(code.rates), code.spec.layout == "interleaved", code.base]
        layers |= {layer: rotation for layer in layer_numbers(code)}  # noqa: C420 - lists, as JSON has them
    return [layers[layer] for layer in sorted(layers)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["config"]["model_type"])
def test_each_layer_rotates_as_mlx_lm_rotates_it(case):
    assert case["config"]["model_type"] in model_types()
    assert rotations(case["config"]) == case["rotations"]


@pytest.mark.slow
def test_mlx_lm_makes_the_recorded_rotations_again():
    folder = Path(os.environ.get("RUNTIMES", Path(sys.prefix) / "runtimes"))
    if not folder.is_dir():
        pytest.skip("make .venv/stamps/runtimes installs mlx-lm beside the others")
    made = subprocess.run(
        [sys.executable, HERE / "rotations_of_mlx_lm.py"],
        input=json.dumps(CONFIGS), env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(made.stdout) == [case["rotations"] for case in CASES]
