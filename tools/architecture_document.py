"""Write the tables and the diagram of docs/architecture.md from the code: packages, what each is, who imports whom.

The text around them is kept. Run it after a module has moved; a test holds the document to it.
"""

import ast
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "clockhands"
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- made by tools/architecture_document.py -->\n", "<!-- end -->\n"


def files_of(name: str) -> list[Path]:
    """The files of a room, or of a part of one, written ``room.part``."""
    folder = SOURCE.joinpath(*name.split("."))
    return sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]


def says(name: str) -> str:
    """The first line of its docstring."""
    text = files_of(name)[0].read_text(encoding="utf-8")  # that of `__init__.py`, where there is one
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]


def imports_of(name: str, known: set[str], rules: dict[str, Any]) -> set[str]:
    """The other rooms, or parts, that it imports."""
    targets = (target for file in files_of(name) for _, target in rules["imported"](file, SOURCE))
    units = (target.partition(".")[2] for target in targets if target.startswith(f"{SOURCE.name}."))
    return {each for unit in units for each in known if unit == each or unit.startswith(f"{each}.")} - {name}


def made() -> str:
    """The diagram and the table of the rooms, and a table of the parts of a room that is a stack of its own."""
    rules = runpy.run_path(str(ROOT / "tests" / "test_architecture.py"))  # it says who may import whom
    names = rules["LAYERS"].split()
    rooms, parts = [name for name in names if "." not in name], [name for name in names if "." in name]
    imports = {name: imports_of(name, set(rooms), rules) for name in sorted(rooms)}
    chart = ["```mermaid", "flowchart BT"]
    for name, direct in imports.items():
        # An arrow that others imply is left out.
        implied = {further for each in direct for further in _all_of(each, imports)}
        chart += [f"    {name} --> {other}" for other in sorted(direct - implied)]
    inside = {name: imports_of(name, set(parts), rules) for name in parts}
    return "\n".join(
        [
            *(*chart, "```", ""),
            *("| room | what it is | imports |", "|---|---|---|"),
            *(_row(name, imports[name]) for name in rooms),
            *("", "| part | what it is | imports, beside `errors`, `phrases` and `arguments` |", "|---|---|---|"),
            *(_row(name, {each.partition(".")[2] for each in inside[name]}) for name in parts),
            "",
        ]
    )


def _row(name: str, imports: set[str]) -> str:
    what = says(name).replace("|", r"\|")
    return f"| `{name}` | {what} | {', '.join(sorted(imports)) or 'none'} |"


def _all_of(name: str, imports: dict[str, set[str]]) -> set[str]:
    return imports[name] | {further for each in imports[name] for further in _all_of(each, imports)}


def document(text: str) -> str:
    """A document with what is made from the code in its place."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{made()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
