"""Write the table of published models again from the copies of their configs that its rows name.

A row of src/clockhands/auditing/findings/releases.json has the name of a model and its source: a public repository, the
path of a copy of the model's config there, and the commit. Of a file of Python with many configs in it, the path ends
with the name of one (presets.py:gemma_2b). Everything else of a row is read from the copy, except `trained`, which only
a publisher's documents say. Rows from repositories without a clone stay as they are.

    git clone --bare https://github.com/owner/name CLONE
    .venv/bin/python tools/published_models.py owner/name=CLONE ... [--add NAME "owner/name, path, commit" [TYPE]]
"""

import argparse
import ast
import json
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clockhands.auditing.findings import _published_models as published
from clockhands.auditing.findings._parts import AuditSubject
from clockhands.auditing.findings._releases import full_block
from clockhands.configs.resolve import resolve
from clockhands.configs.targets import open_target

TABLE = Path(published.__file__).with_name("releases.json")
# Keys of a block that have a column of their own.
NOT_OF_THE_SCALING = {"rope_theta"}


def copy_of(row: Mapping[str, Any], clones: Mapping[str, str]) -> dict[str, Any] | None:
    """The config that the source of a row names; None if there is no clone of its repository."""
    repository, *place = row["source"].split(", ")
    if repository not in clones:
        return None
    path, commit = place
    path, _, name = path.partition(":")
    found = subprocess.run(
        ["git", "-C", clones[repository], "show", f"{commit}:{path}"], capture_output=True, text=True, check=True
    )
    if not name:
        return json.loads(found.stdout)
    config = in_python(ast.parse(found.stdout), name)
    return _of_litgpt(config, row["type"]) if "hf_config" in config else config


def in_python(module: ast.Module, name: str) -> dict[str, Any]:
    """A config among the literals of a file of Python, which is not run.

    It is the value of a variable or of a key with this name, or has this name itself.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return _literal(node.value)
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == name:
                return _literal(value)
        if isinstance(node, ast.Call) and any(each.arg == "name" and _is(each.value, name) for each in node.keywords):
            return _literal(node)
    raise SystemExit(f"There is no {name}.")


def _is(node: ast.expr, value: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _literal(node: ast.expr) -> Any:
    """A literal; of a call that makes a dictionary or a config, the arguments that are literals."""
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    found = {}
    for each in node.keywords:
        with suppress(ValueError):  # what is computed is not read
            found[each.arg] = _literal(each.value)
    return found


# LitGPT's names of what Transformers calls otherwise, and its defaults.
LITGPT = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "padded_vocab_size": "vocab_size",
    "block_size": "max_position_embeddings",
    "rope_base": "rope_theta",
}
LITGPT_DEFAULTS = {"n_embd": 4096, "n_layer": 16, "n_head": 32, "block_size": 4096, "rope_base": 10000}


def _of_litgpt(config: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """A config of LitGPT with the names of Transformers."""
    found = {LITGPT[key]: value for key, value in {**LITGPT_DEFAULTS, **config}.items() if key in LITGPT}
    adjusted = config.get("rope_adjustments")
    if adjusted is not None:
        kind = "llama3" if "low_freq_factor" in adjusted else "linear"
        found["rope_scaling"] = {"rope_type": kind, **adjusted}
        if "original_max_seq_len" in adjusted:
            found["rope_scaling"]["original_max_position_embeddings"] = adjusted["original_max_seq_len"]
    return {"model_type": model_type, **found}


def row_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a row says of a config; None if its type, its sizes or its base are not known."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json")
        file.write_text(json.dumps(config), encoding="utf-8")
        opened = open_target(file)
        subject = AuditSubject(opened, resolve(opened))
        part, model = next(published.sized(subject), (None, None))
    if part is None or model is None or model.code.base is None:
        return None
    row = {name: value for name, value in asdict(model.shape).items() if value is not None}
    row |= {"base": model.code.base, "scaling": None, "context": subject.resolved.context}
    if model.scaling is not None:
        block = full_block(part)
        held = {} if block is None else block.values
        numbers = {key: held[key] for key in held.keys() - NOT_OF_THE_SCALING if isinstance(held[key], int | float)}
        numbers["factor"] = model.scaling["factor"]
        if model.scaling["rope_type"] != "dynamic":  # that of a dynamic scaling is the context, if it is not said
            numbers["original_max_position_embeddings"] = model.scaling["original"]
        known = {key: number for key, number in sorted(numbers.items()) if number is not None}
        row["scaling"] = {"rope_type": model.scaling["rope_type"], **known}
    sections = model.code.sections
    return row if sections is None else row | {"sections": list(sections["pairs"])}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clones", nargs="*", metavar="owner/name=CLONE")
    parser.add_argument("--add", nargs="+", action="append", default=[], help="name, source, and the type for LitGPT")
    given = parser.parse_args()
    clones = dict(word.split("=", 1) for word in given.clones)
    held = json.loads(TABLE.read_text(encoding="utf-8"))
    added: list[dict[str, Any]] = [dict(zip(("name", "source", "type"), words, strict=False)) for words in given.add]
    rows = [updated(row, clones) for row in (*held["releases"], *added)]
    lines = ",\n".join(f"    {json.dumps(row)}" for row in sorted(rows, key=lambda row: row["name"].lower()))
    TABLE.write_text(
        f'{{\n  "says": {json.dumps(held["says"])},\n  "releases": [\n{lines}\n  ]\n}}\n', encoding="utf-8"
    )


def updated(row: Mapping[str, Any], clones: Mapping[str, str]) -> dict[str, Any]:
    """A row as its copy has it; a context that is null stays so, because the copy's is not the release's."""
    config = copy_of(row, clones)
    if config is None:
        return dict(row)
    read = row_of(config) or row_of(config.get("text_config") or {})
    if read is None:
        raise SystemExit(f"{row['name']}: the type, the sizes or the base in {row['source']} are not known.")
    if "context" in row and row["context"] is None:
        read["context"] = None
    trained = {"trained": row["trained"]} if "trained" in row else {}
    return {"name": row["name"], **read, **trained, "source": row["source"]}


if __name__ == "__main__":
    main()
