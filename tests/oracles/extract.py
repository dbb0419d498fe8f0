"""Make ``published.json`` from the full tables: ``python tests/oracles/extract.py tests/published``.

Each number is what the library named beside it computed, in float32, written with as many digits as it takes.
"""

import json
import sys
from pathlib import Path

import numpy as np

PUBLISHED = Path(__file__).with_name("published.json")
ROPE_TABLES = ("rope_litgpt_yarn", "rope_yarn_original")


def numbers(array: np.ndarray) -> list:
    """Nested lists of the shortest decimals that give the same float32 back."""
    return [numbers(row) for row in array] if array.ndim else float(str(np.float32(array)))


def extract(published: Path) -> dict:
    folder = published
    entries = {entry["key"]: entry for entry in json.loads((folder / "index.json").read_text("utf-8"))["tables"]}

    def source(key: str) -> str:
        return "{library} {version}, {object} ({file})".format(**entries[key])

    def arrays(key: str) -> dict[str, np.ndarray]:
        with np.load(folder / "tables" / f"{key}.npz") as loaded:
            return dict(loaded)

    data: dict = {"rates": {}, "first_turns": {}}
    for key in sorted(key for key, entry in entries.items() if entry["family"] == "rotary_inv_freq"):
        made = arrays(key)
        data["rates"][key] = {
            "source": source(key),
            "attention_factor": float(made["attention_factor"]),
            "rates": numbers(made["inv_freq"]),
        }
    for key in ROPE_TABLES:
        made = arrays(key)
        half = made["cos"].shape[1] // 2
        data["first_turns"][key] = {
            "source": source(key),
            "cos": numbers(made["cos"][1, :half]),
            "sin": numbers(made["sin"][1, :half]),
        }
    return data


def as_text(data: dict) -> str:
    """One line for each list of numbers."""
    lines = ["{"]
    for group, entries in data.items():
        lines.append(f' "{group}": {{')
        for key, entry in entries.items():
            fields = [f'   "{name}": {json.dumps(value)}' for name, value in entry.items()]
            lines.append(f'  "{key}": {{\n' + ",\n".join(fields) + "\n  },")
        lines[-1] = lines[-1].removesuffix(",")
        lines.append(" },")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    PUBLISHED.write_text(as_text(extract(Path(sys.argv[1]))), encoding="utf-8")
