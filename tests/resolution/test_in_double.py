"""Double precision for a while leaves nothing behind: what was imported meanwhile would hold the wrong types."""

import subprocess
import sys
import types
from pathlib import Path

import pytest

from resolution.library import in_double

TESTS = Path(__file__).resolve().parents[1]
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 10000.0}

# What follows in a program says whether the table of sizes in safetensors.torch is right.
ROUND_TRIP = """
import torch
from safetensors.torch import load, save

for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    there = torch.ones(3, dtype=dtype)
    back = load(save({"numbers": there}))["numbers"]
    assert back.dtype == dtype and torch.equal(back, there), dtype
"""


def in_a_new_process(code):
    """Nothing has been imported there yet, which in this process depends on the tests before."""
    return subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_what_is_imported_for_it_has_the_right_types():
    pytest.importorskip("transformers")
    code = f"""
import sys
from resolution.library import in_double, ladders, read_config

assert "safetensors.torch" not in sys.modules
with in_double({LLAMA}):
    (ladder,) = ladders(read_config({LLAMA})).values()
assert all(abs(rate / 10_000 ** (-pair / 8) - 1) < 1e-15 for pair, rate in enumerate(ladder.rates)), ladder
{ROUND_TRIP}"""
    done = in_a_new_process(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_that_can_fail():
    pytest.importorskip("torch")
    code = f"""
from resolution.library import float32_is_double

with float32_is_double():
    import safetensors.torch
{ROUND_TRIP}"""
    done = in_a_new_process(code)
    assert done.returncode == 1
    assert done.stderr.endswith("KeyError: torch.float32\n")


def test_what_is_imported_too_late_is_named(monkeypatch):
    pytest.importorskip("transformers")
    message = r"^imported while float32 was float64, so import them before: \['somebodys\.dtypes'\]"
    with pytest.raises(AssertionError, match=message), in_double(LLAMA):
        monkeypatch.setitem(sys.modules, "somebodys.dtypes", types.ModuleType("somebodys.dtypes"))
