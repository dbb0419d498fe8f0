"""Make ``published_biases.json`` from the full tables: ``python tests/oracles/extract_biases.py tests/published``.

Each number is what the library named beside it computed. Of a large array only the rows and columns named here are
kept: where it is constant along its diagonals, a first and a last row are all of it.
"""

import json
import sys
from pathlib import Path

import numpy as np

PUBLISHED = Path(__file__).with_name("published_biases.json")
FAMILIES = ("alibi", "relative_bucket", "kernel_bias", "window_index")
WHOLE = ()
# What is kept of an array, as rows of it: (name of the array, index).
KEPT = {
    "alibi_llmfoundry_full_h12": [("bias", (0, slice(None), 0)), ("bias", (0, slice(None), 15))],
    "alibi_x_transformers_h12": [("bias", (slice(None), 0)), ("bias", (slice(None), 7))],
    "t5_bucket_bidirectional": [("bucket", 0), ("bucket", 39)],
    "t5_bucket_causal": [("bucket", 0), ("bucket", 39)],
    "t5_bucket_bidirectional_square": [("bucket", 0), ("bucket", 255)],
    "x_transformers_bucket_causal": [("bucket", 255)],
    "mesh_jax_bucket_causal": [("bucket", 255)],
    "deberta_v1_rel": [("rel", 0), ("rel", 19)],
    "swin_index": [("index", 0), ("index", 7), ("index", 19)],
    "swin_original_index": [("index", 0), ("index", 7), ("index", 19)],
    "beit_index": [("index", 0), ("index", 1), ("index", 8), ("index", 20)],
    "swinv2_logcpb": [("coords", 0), ("coords", (slice(None), 2))],
    "swinv2_logcpb_transfer": [("coords", 0), ("coords", (slice(None), 2))],
    "kerple_log": [("bias", (slice(None), 23)), ("bias", (slice(None), 5))],
    "fire_bias": [("bias", (slice(None), 23)), ("bias", (slice(None), 5))],
    "retnet_decay": [("mask", (slice(None), 15)), ("mask", (slice(None), 3))],
}


def numbers(array: np.ndarray) -> list:
    """Nested lists of the shortest decimals that give the same numbers back."""
    if array.ndim:
        return [numbers(row) for row in array]
    return int(array) if array.dtype.kind == "i" else float(str(array))


def entries(published: Path) -> dict[str, dict]:
    listed = json.loads((published / "index.json").read_text("utf-8"))["tables"]
    return {entry["key"]: entry for entry in listed if entry["family"] in FAMILIES}


def arrays(published: Path, key: str) -> dict[str, np.ndarray]:
    with np.load(published / "tables" / f"{key}.npz") as loaded:
        return dict(loaded)


def extract(published: Path) -> dict:
    data = {}
    for key, entry in sorted(entries(published).items()):
        made = arrays(published, key)
        kept = KEPT.get(key, [(next(iter(made)), WHOLE)])
        shown = {name for name, _ in kept}
        data[key] = {
            "source": "{library} {version}, {object} ({file})".format(**entry),
            "tolerance": entry["tolerance"],
            "rows": [numbers(made[name][index]) for name, index in kept],
            "values": {name: numbers(array) for name, array in made.items() if name not in shown},
        }
    return data


def as_text(data: dict) -> str:
    """One line for each list of numbers."""
    lines = []
    for key, entry in data.items():
        rows = ",\n".join(f"   {json.dumps(row)}" for row in entry["rows"])
        values = ",\n".join(f"   {json.dumps(name)}: {json.dumps(value)}" for name, value in entry["values"].items())
        lines.append(
            f' "{key}": {{\n  "source": {json.dumps(entry["source"])},\n  "tolerance": {entry["tolerance"]},\n'
            f'  "rows": [\n{rows}\n  ],\n  "values": {{{chr(10) + values + chr(10) + "  " if values else ""}}}\n }}'
        )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    PUBLISHED.write_text(as_text(extract(Path(sys.argv[1]))), encoding="utf-8")
