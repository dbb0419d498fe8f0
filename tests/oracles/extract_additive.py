"""Make ``published_additive.json`` from the full tables: ``python tests/oracles/extract_additive.py tests/published``.

Of each table some rows, as the library named beside them computed them, and all of the positions and rates that were
drawn for it; written with as many digits as their dtype takes.
"""

import json
import sys
from pathlib import Path

import numpy as np

PUBLISHED = Path(__file__).with_name("published_additive.json")
FAMILIES = ("sinusoidal", "sinusoidal_relative", "timestep", "sinusoidal_2d", "sinusoidal_3d", "fourier")


def numbers(array: np.ndarray) -> list:
    """Nested lists of the shortest decimals that give the same numbers back."""
    if array.ndim:
        return [numbers(row) for row in array]
    return int(array) if array.dtype.kind == "i" else float(str(array))  # type: ignore[return-value]


def chosen(table: np.ndarray) -> list[int]:
    """The second row, one from the middle, the last, and every row of zeros."""
    rows = len(table)
    return sorted({1, rows // 3, rows - 1, *np.flatnonzero(~table.any(axis=1)).tolist()})


def entries_of(published: Path) -> dict[str, dict]:
    index = json.loads((published / "index.json").read_text("utf-8"))["tables"]
    return {entry["key"]: entry for entry in index if entry["family"] in FAMILIES}


def arrays_of(published: Path, key: str) -> dict[str, np.ndarray]:
    with np.load(published / "tables" / f"{key}.npz") as loaded:
        made = dict(loaded)
    made["table"] = made["table"].reshape(-1, made["table"].shape[-1])
    return made


def extract(published: Path) -> dict:
    data = {}
    for key, entry in sorted(entries_of(published).items()):
        arrays = arrays_of(published, key)
        table = arrays.pop("table")
        data[key] = {
            "source": "{library} {version}, {object} ({file})".format(**entry),
            "tolerance": entry["tolerance"],
            "arrays": {
                name: {"dtype": array.dtype.name, "numbers": numbers(array)} for name, array in sorted(arrays.items())
            },
            "shape": list(table.shape),
            "dtype": table.dtype.name,
            "rows": {str(row): numbers(table[row]) for row in chosen(table)},
        }
    return data


def as_text(data: dict) -> str:
    """One line for each field and each row."""
    lines = []
    for key, entry in data.items():
        fields = [f'  "{name}": {json.dumps(value)}' for name, value in entry.items() if name != "rows"]
        rows = ",\n".join(f'   "{row}": {json.dumps(held)}' for row, held in entry["rows"].items())
        lines.append(f' "{key}": {{\n' + ",\n".join([*fields, '  "rows": {\n' + rows + "\n  }"]) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    PUBLISHED.write_text(as_text(extract(Path(sys.argv[1]))), "utf-8")
