"""A command line run in this process, and what its tests share."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from clockhands.cli import main

# Small configs, which tests change.
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 3,
    "max_position_embeddings": 2048, "rope_theta": 10000.0,
}  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
    "max_position_embeddings": 512,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
# Llama-3.1-8B, and the same with a tenth of its base.
LLAMA_31 = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0,
    "rope_scaling": LLAMA3,
}  # fmt: skip
WRONG_BASE = LLAMA_31 | {"rope_theta": 50000.0}
# A config of NeMo.
NEMO = """\
model:
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 12
  hidden_size: 768
  num_attention_heads: 12
  position_embedding_type: rope
  rotary_base: 0.5
"""
# Somebody's module.
TURNED = """
import numpy as np

def turned(x, positions, base=10_000.0):
    half = x.shape[-1] // 2
    angles = np.asarray(positions)[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)
"""
# The command in a process of its own, where the process is the point.
PROGRAM = [sys.executable, "-c", "from clockhands.cli import main; main()"]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command line as a shell would: run("table", "whisper") -> exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def invoke(*words: object, stdin: bytes | None = None, faults: bool = False) -> Ran:
        done = CliRunner().invoke(main, [str(word) for word in words], input=stdin, prog_name="clockhands")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert faults or "Traceback" not in done.stderr, done.stderr
        return Ran(done.exit_code, done.stdout, done.stderr)

    return invoke
