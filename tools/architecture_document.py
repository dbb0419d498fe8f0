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
    """The files of a package, or of a module that stands alone."""
    return sorted((SOURCE / name).rglob("*.py")) or [SOURCE / f"{name}.py"]


def says(name: str) -> str:
    """The first line of its docstring."""
    first = SOURCE / name / "__init__.py"
    text = (first if first.exists() else SOURCE / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]


def imports_of(name: str, known: set[str], rules: dict[str, Any]) -> set[str]:
    """The other packages that it imports."""
    targets = (target for file in files_of(name) for _, target in rules["imported"](file, SOURCE))
    parts = (target.split(".") for target in targets)
    return {each[1] for each in parts if each[0] == SOURCE.name and len(each) > 1} & known - {name}


def made() -> str:
    """The diagram, and the table."""
    rules = runpy.run_path(str(ROOT / "tests" / "test_architecture.py"))  # it says who may import whom
    names = rules["LAYERS"].split()
    known = set(names)
    imports = {name: imports_of(name, known, rules) for name in sorted(known)}
    chart = ["```mermaid", "flowchart BT"]
    for name, direct in imports.items():
        # An arrow that others imply is left out.
        implied = {further for each in direct for further in _all_of(each, imports)}
        chart += [f"    {name} --> {other}" for other in sorted(direct - implied)]
    rows = ["| package | what it is | imports |", "|---|---|---|"]
    for name in names:
        what = says(name).replace("|", r"\|")
        rows.append(f"| `{name}` | {what} | {', '.join(sorted(imports[name])) or 'none'} |")
    return "\n".join([*chart, "```", "", *rows, ""])


def _all_of(name: str, imports: dict[str, set[str]]) -> set[str]:
    return imports[name] | {further for each in imports[name] for further in _all_of(each, imports)}


def document(text: str) -> str:
    """A document with what is made from the code in its place."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{made()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
