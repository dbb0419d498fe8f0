"""What an audit costs: a real model, many configs in one call, a checkpoint of a terabyte, weights looked at.

Whole commands, in seconds: what a person waits for, and what a check in CI costs.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timing import Target, command

ROOT = Path(__file__).resolve().parents[1]
CLOCKHANDS = str(Path(sys.executable).parent / "clockhands")
LAYERS, SHARDS, WIDTH = 120, 400, 32_768  # of the large checkpoint
TERABYTE = 10**12


def audits(repetitions: int) -> tuple[dict[str, float], list[Target]]:
    """Median seconds and peak MiB of each command, and what they have to reach."""
    model = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "packaged_model.py")], capture_output=True, text=True, check=True
    ).stdout.strip()
    figures: dict[str, float] = {}
    targets = []
    with tempfile.TemporaryDirectory() as folder, sharded(Path(folder) / "large") as large:
        rows = [
            ("audit of SmolLM2's GGUF", [model], 1.0, 100.0),
            ("audit of SmolLM2's GGUF with its weights", [model, "--weights"], 15.0, None),
            ("audit of 50 configs in one call", configs(Path(folder), 50), 2.0, None),
            ("audit of 1 TB in 400 shards, 120 layers", [large], 5.0, 200.0),
        ]
        for what, words, seconds, mib in rows:
            runs = [command([CLOCKHANDS, "audit", *words], (0, 1)) for _ in range(repetitions)]
            median, peak = statistics.median(each[0] for each in runs), max(each[1] for each in runs)
            figures |= {f"{what}, seconds": median, f"{what}, peak MiB": peak}
            targets.append(Target(what, median, seconds, "s"))
            if mib is not None:
                targets.append(Target(f"{what}, peak memory", peak, mib, "MiB"))
    return figures, targets


def configs(folder: Path, count: int) -> list[str]:
    """Published configs, each as a file."""
    cases = json.loads((ROOT / "tests" / "configs" / "cases.json").read_text(encoding="utf-8"))["cases"]
    paths = []
    for case in cases[:count]:
        path = folder / f"{case['name']}.json"
        path.write_text(json.dumps(case["config"]), encoding="utf-8")
        paths.append(str(path))
    return paths


@contextmanager
def sharded(folder: Path) -> Iterator[str]:
    """A checkpoint of a terabyte that takes no room: the files are holes, but for their headers."""
    folder.mkdir()
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "num_attention_heads": 256,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 131_072,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kinds = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")
    names = [f"model.layers.{layer}.{kind}.weight" for layer in range(LAYERS) for kind in kinds]
    rows = TERABYTE // (len(names) * 2 * WIDTH)
    held: dict[str, str] = {}
    for shard in range(SHARDS):
        own = names[shard * len(names) // SHARDS : (shard + 1) * len(names) // SHARDS]
        file = f"model-{shard + 1:05d}-of-{SHARDS:05d}.safetensors"
        header, end = {}, 0
        for name in own:
            size = rows * WIDTH * 2
            header[name] = {"dtype": "BF16", "shape": [rows, WIDTH], "data_offsets": [end, end + size]}
            end += size
            held[name] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / file).open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            out.truncate(8 + len(text) + end)
    index = {"metadata": {"total_size": TERABYTE}, "weight_map": held}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    yield str(folder)
