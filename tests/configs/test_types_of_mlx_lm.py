"""Types without a class in Transformers, against the rotations that mlx-lm 0.32.2 makes for small configs of them."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clockhands.configs.model_types import model_types, table
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


ATTENTION = """
@dataclass
class ModelArgs:
    n_embd: int
    n_head: int = 8
    rope_theta: float = 500

class Attention:
    def __init__(self, args):
        self.rope = nn.RoPE(args.n_embd // args.n_head, {traditional}, {base}{more})
"""


def row_of_code(traditional="True", base="args.rope_theta", more=""):
    import mlx_types as tool

    return tool.row_of(ast.parse(ATTENTION.format(traditional=traditional, base=base, more=more)))


def test_a_row_is_read_from_the_code_of_an_attention():
    assert row_of_code() == {
        "like": "llama",
        "library": "mlx-lm 0.32.2, which runs the published weights",
        "reads": {"hidden": ["n_embd"], "heads": ["n_head"], "head_width": []},
        "defaults": {"heads": 8, "base": 500.0},
        "code": {"layout": "interleaved"},
    }
    assert "code" not in row_of_code(traditional="False")
    assert row_of_code(base="args.rope_theta * 2") is None
    assert row_of_code(more=") or nn.RoPE(args.n_embd // args.n_head, False, args.rope_theta") is None


@pytest.mark.slow
def test_rows_are_what_the_tool_reads_from_mlx_lm():
    import mlx_types as tool

    folder = Path(os.environ.get("RUNTIMES", Path(sys.prefix) / "runtimes")) / "mlx_lm"
    if not folder.is_dir():
        pytest.skip("make .venv/stamps/runtimes installs mlx-lm beside the others")
    assert tool.rows_of(folder) == table()["types_of_mlx_lm"]


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
