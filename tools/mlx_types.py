"""Write configs/types_of_mlx_lm.json: rows of model types that Transformers does not have, from the code of mlx-lm.

The files of a release are parsed and never run. A row is written for a type whose attention makes one rotation of whole
heads, with a base that its arguments hold: its keys and defaults are the fields of ``ModelArgs``, its layout is the
argument ``traditional``. A type that mlx-lm runs with the code of another is like that.

    python tools/mlx_types.py FOLDER    # with the folder mlx_lm of a release, as pip unpacks it
"""

import argparse
import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clockhands.configs import model_types as known

WRITTEN = Path(known.__file__).with_name("types_of_mlx_lm.json")
LIBRARY = "mlx-lm 0.32.2, which runs the published weights"
LIKE = "llama"

# The arguments of what makes a rotation, in their order.
MAKERS = {"RoPE": ("dims", "traditional", "base"), "initialize_rope": ("dims", "base", "traditional")}
# Names of fields beside the usual ones of configs.
FURTHER = {"hidden": ["hidden_dim"], "context": ["block_size"]}


def reads_of(name: str) -> Mapping[str, list[str]]:
    """The keys that a type reads, by quantity."""
    return known.table()["types"][name]["reads"]


def fields_of(tree: ast.Module) -> dict[str, Any]:
    """The fields of ``ModelArgs`` with their defaults; None without one."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "ModelArgs":
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found[each.target.id] = each.value.value if isinstance(each.value, ast.Constant) else None
    return found


def rotations_in(tree: ast.Module) -> Iterator[dict[str, str]]:
    """The arguments of every rotation that a file makes, as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (order := MAKERS.get(ast.unparse(node.func).rpartition(".")[2])):
            placed = dict(zip(order, map(ast.unparse, node.args), strict=False))
            yield placed | {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg}


def row_of(tree: ast.Module) -> dict[str, Any] | None:
    """The row of a type by its file, or None where its attention does other things."""
    fields, rotations = fields_of(tree), list(rotations_in(tree))
    keys = {name: [*FURTHER.get(name, ()), *known.table()["spellings"]["config"][name]] for name in reads_of(LIKE)}
    if not rotations or any(each != rotations[0] for each in rotations) or "sliding_window" in fields:
        return None
    held = {name: next((key for key in spelt if key in fields), None) for name, spelt in keys.items()}
    whole = {"head_dim", "self.head_dim", f"args.{held['hidden']} // args.{held['heads']}"}
    base, traditional = (rotations[0].get(name, "False").removeprefix("args.") for name in ("base", "traditional"))
    if rotations[0]["dims"] not in whole or base.removeprefix("config.") != held["base"] or "rope_dim" in fields:
        return None
    other = reads_of(LIKE)
    row: dict[str, Any] = {"like": LIKE, "library": LIBRARY}
    reads = {name: [key] for name, key in held.items() if key and key not in other[name]}
    reads |= {} if held["head_width"] else {"head_width": []}
    taken = {name: fields[key] for name, key in held.items() if key and type(fields[key]) in (int, float)}
    taken |= {"base": float(taken["base"])} if "base" in taken else {}
    taken = {
        name: value for name, value in taken.items() if value != known.table()["types"][LIKE]["defaults"].get(name)
    }
    turns = traditional == "True" or fields.get(traditional.removeprefix("config.")) is True
    code = {"layout": "interleaved"} if turns else {}
    return row | {name: value for name, value in (("reads", reads), ("defaults", taken), ("code", code)) if value}


def renamed_types(tree: ast.Module) -> Mapping[str, str]:
    """The types that are run with the code of another."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_REMAPPING":
            return ast.literal_eval(node.value)
    return {}


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of the types that only mlx-lm has, from the folder of its package."""
    of_others = known.table()["types"].keys() - known.table()["types_of_mlx_lm"].keys()
    trees = {file.stem: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("models/*.py"))}
    rows = {name: row for name, tree in trees.items() if (row := row_of(tree)) is not None}
    for name, other in renamed_types(ast.parse((folder / "utils.py").read_text(encoding="utf-8"))).items():
        if other in of_others:
            rows[name] = {"like": other, "library": LIBRARY}
    return {name: row for name, row in sorted(rows.items()) if name not in of_others}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder mlx_lm of the release")
    rows = rows_of(parser.parse_args().folder)
    says = "Written by tools/mlx_types.py: one row for each model type, read from its file in mlx-lm."
    lines = ",\n".join(f'    "{name}": {json.dumps(row)}' for name, row in rows.items())
    head = f'{{\n  "about": {json.dumps(says)},\n  "types_of_mlx_lm": {{\n'
    WRITTEN.write_text(f"{head}{lines}\n  }}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
