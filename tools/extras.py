"""The main use of each extra of pyproject.toml, as a program: `python tools/extras.py torch`.

It is run in an environment that has the wheel with this extra and nothing else (`tools/release_check.py` makes one), so
each function imports what the extra brings, and asserts what came out. `none` is the wheel without any extra. The
second argument is the GGUF file of a real model with quantised weights, which `gguf` and `probe` read.
"""

import importlib.util
import json
import os
import pydoc
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import clockhands as ch

ROOT = Path(__file__).resolve().parents[1]
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 2048, "rope_theta": 10000.0, "vocab_size": 128,
}  # fmt: skip
ROTARY = ch.Rotary(head_width=16, layout="halves")
HEADS = np.random.default_rng(7).normal(size=(1, 2, 5, 16)).astype(np.float32)
POSITIONS = [0, 1, 2, 3, 10**6]
STUDY = """\
question = "Does the extra work?"
seeds = [0]
model = { width = 16, heads = 2 }
training = { length = 16, sequences = 8, duration = "20 steps", checkpoint = 1000 }
evaluation = { lengths = [16], sequences = 8, curve = 20 }
tasks.copy = { kind = "copy" }
arms.rotary = { code = { type = "Rotary" } }
"""


def command(*words: str, **environment: str) -> str:
    """What a command of clockhands prints; it has to end with exit code 0."""
    program = [sys.executable, "-m", "clockhands", *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def none() -> None:
    """Without any extra: the Python of the first steps, an audit, the claims, the explorer, and help."""
    for framework in ("torch", "jax", "anywidget"):
        assert importlib.util.find_spec(framework) is None, f"{framework} is here: this environment has an extra"
    first_steps = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", first_steps, re.DOTALL | re.MULTILINE)
    plain = [block for block in blocks if "torch" not in block and "jax" not in block]
    assert len(plain) >= 2
    for block in plain:
        exec(compile(block, "first-steps.md", "exec"), {})
    assert "RoPE" in command("audit", "config.json")  # which a block of the README has written
    assert "62,832" in command("claims", "slowest-wavelength-62832")
    command("explore", "vaswani2017", "--out", "explorer.html")
    assert "<html" in Path("explorer.html").read_text(encoding="utf-8")[:1000]
    assert "probe" in pydoc.plain(pydoc.render_doc(ch))


def torch() -> None:
    """The module rotates as NumPy does, in PyTorch's own arrays, and a loaded module is audited."""
    import torch

    import clockhands.torch as cht

    turned = cht.Rotary(ROTARY)(torch.from_numpy(HEADS), torch.tensor(POSITIONS))
    assert np.abs(turned.numpy() - ch.rotate(HEADS, ROTARY, POSITIONS)).max() < 1e-6

    model = torch.nn.Module()
    model.config = LLAMA
    model.register_buffer("inv_freq", torch.zeros(32))
    assert [found.code for found in ch.audit(model).errors] == ["buffer-zero"]


def jax() -> None:
    """Positions are known only inside of `jit`, and the rotation is that of NumPy."""
    import jax
    import jax.numpy as jnp

    turned = jax.jit(lambda x, at: ch.rotate(x, ROTARY, at))(jnp.asarray(HEADS), jnp.arange(5))
    assert np.abs(np.asarray(turned) - ch.rotate(HEADS, ROTARY, range(5))).max() < 1e-6


def gguf(model: str) -> None:
    """The weights of a quantised file say how channels are paired."""
    assert "weights: pairs interleaved" in command("audit", model, "--weights", "--verbose")


def probe(model: str) -> None:
    """A real model, in a quantised file, is loaded and run."""
    short = ("--windows", "1", "--length", "64")
    told = command("probe", model, "--text", str(ROOT / "README.md"), "--measure", "live", *short)
    assert "The declared positions are in effect in all 30 layers checked." in told


def hub() -> None:
    """A model is audited by its name, from a hub on this machine."""
    sys.path.append(str(ROOT / "tests"))
    from hub_server import Hub, serving

    hub = Hub()
    hub.models["org/name"] = {"config.json": json.dumps(LLAMA).encode()}
    with serving(hub):
        told = command("audit", "org/name", HF_ENDPOINT=hub.address, HF_HOME="cache", HF_HUB_OFFLINE="0")
    assert "10,000" in told


def notebook() -> None:
    """The explorer is a widget that keeps its position."""
    import anywidget

    widget = ch.show.Explorer(position=3)
    assert isinstance(widget, anywidget.AnyWidget)
    assert widget.position == 3


def lab(*more: str) -> None:
    """A small model is trained."""
    Path("mine.toml").write_text(STUDY, encoding="utf-8")
    assert "Does the extra work?" in command("lab", "run", "mine.toml", *more)


def figures() -> None:
    """The charts of stored results are drawn."""
    command("lab", "report", "scaling", "--figure", "scaling.svg")
    assert "<svg" in Path("scaling.svg").read_text(encoding="utf-8")


def ray() -> None:
    """A small model is trained as a task of Ray."""
    lab("--engine", "ray")


SMOKE = {each.__name__: each for each in (none, torch, jax, gguf, probe, hub, notebook, lab, figures, ray)}

if __name__ == "__main__":
    extra, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        SMOKE[extra](*[model] * (extra in ("gguf", "probe")))
