"""Write `tests/cli/surface.json`: what others rely on, and what a change of the inside may not take away.

Names that can be imported, codes of findings and faults, ids of claims, commands with their options, and for a
few command lines the exit code and the fields of the JSON. Run it after something was added, or taken away on purpose.
"""

import contextlib
import importlib
import io
import json
from pathlib import Path
from typing import Any

import click

from clockhands.auditing import CODES
from clockhands.cli import main
from clockhands.measures.claims import CLAIMS
from clockhands.recognition.faults import FAULTS

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "cli" / "surface.json"
MODULES = (
    "",
    ".additive",
    ".biases",
    ".conversion",
    ".errors",
    ".grids",
    ".jax",
    ".ladders",
    ".lab",
    ".layouts",
    ".rotary",
    ".sampling",
    ".scaling",
    ".show",
    ".specs",
    ".testing",
    ".torch",
)
CONFIGS = "tests/published/configs"
LINES = (
    f"audit {CONFIGS}/bloom-1layer.json --json",
    f"audit {CONFIGS}/smollm2-135m-executorch.json --json --set rope_theta=0",
    f"audit {CONFIGS}/smollm2-135m-executorch.json --format sarif",
    f"audit {CONFIGS}/no-such-file.json --json",
    "audit llama3.1 vaswani2017 --json --length 4096",
    "properties vaswani2017 --json --length 64",
    "properties llama3.1 --json --length 64",
    "properties bloom --json --length 64",
    "diff llama3.1 vaswani2017 --json",
    "diff llama3.1 llama3.1 --json",
    "explain buffer-unscaled --json",
    "explain no-such-code --json",
    "presets --json",
    "table vaswani2017:width=4 --positions 0:3",
    "table no-such-preset",
)
# Under these keys a document has what the target has: files' keys, or a property's own numbers.
OPEN = {"evidence", "expected", "numbers", "source", "spec"}


def fields(value: Any, path: str = "$") -> set[str]:
    """The paths of a JSON document; the places of a list are one."""
    if isinstance(value, list):
        return set().union(*(fields(each, f"{path}[]") for each in value)) or {path}
    if isinstance(value, dict) and path.rpartition(".")[2] not in OPEN:
        return set().union(*(fields(each, f"{path}.{key}") for key, each in value.items())) or {path}
    return {path}


def ran(line: str) -> dict[str, Any]:
    """The exit code of a command line, and the fields of the JSON that it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), contextlib.chdir(ROOT):
        try:
            code = main(line.split(), prog_name="clockhands")
        except SystemExit as ended:
            code = ended.code
    try:
        document = json.loads(out.getvalue())
    except ValueError:
        return {"exit": code}
    return {"exit": code, "fields": sorted(fields(document))}


def commands(command: click.Command, name: str = "clockhands") -> dict[str, list[str]]:
    """Every command, with its arguments and options."""
    with click.Context(command) as context:
        # Not `get_params`: it would make the option for help, and keep it without the group's spelling.
        found = {name: sorted(word for param in command.params for word in [*param.opts, *param.secondary_opts])}
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                inner = command.get_command(context, each)
                assert inner is not None
                found |= commands(inner, f"{name} {each}")
    return found


def names(module: str) -> list[str]:
    """What a module offers: its list, or else what it defines without an underscore."""
    held = importlib.import_module(module)
    own = (name for name, value in vars(held).items() if getattr(value, "__module__", None) == held.__name__)
    return sorted(getattr(held, "__all__", None) or (name for name in own if not name.startswith("_")))


def surface() -> dict[str, Any]:
    """All of it."""
    return {
        "names": {f"clockhands{each}": names(f"clockhands{each}") for each in MODULES},
        "findings": list(CODES),
        "faults": list(FAULTS),
        "claims": list(CLAIMS),
        "commands": commands(main),
        "lines": {line: ran(line) for line in LINES},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(surface(), indent=1) + "\n", encoding="utf-8")
