"""Write the tables of docs/checking.md: every fault of `clockhands check`, from the rows themselves.

Run it after a row has changed; a test holds the document to it. The rest of the document is written by hand.
"""

from pathlib import Path

from clockhands.recognition.faults import FAULTS, Fault, fault_in_words, fault_of

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BEGIN = "<!-- made by tools/checking_document.py: faults -->\n"
END = "<!-- end of what is made -->\n"

TITLES = {
    "rotary": "RoPE",
    "additive": "Additive encodings",
    "bias": "Biases",
    "module": "Modules",
    "attention": "Attention layers",
    "generation": "Generation with a cache",
    "positions": "Positions of tokens",
}


def document(written: str) -> str:
    """The whole document: what is written now, its tables made anew."""
    before, _, rest = written.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + tables() + END + after


def tables() -> str:
    """A table for each kind; a fault of several stands in the first, and is named below the others."""
    parts = []
    for kind, title in TITLES.items():
        own = [fault for fault in FAULTS.values() if fault.about[0] == kind]
        others = [fault.code for fault in FAULTS.values() if kind in fault.about[1:]]
        parts += [f"\n### {title}\n\n| code | it | fix | seen in |\n|---|---|---|---|\n", *map(row, own)]
        if others:
            names = ", ".join(f"`{code}`" for code in others)
            parts.append(f"\nAlso, as above: {names}.\n")
    return "".join(parts) + "\n"


def row(fault: Fault) -> str:
    """One fault."""
    also = f" (of {fault_of(fault)})" if len(fault.about) > 1 else ""
    cells = (f"{fault_in_words(fault)}{also}", fault.hint, "; ".join(fault.cases))
    return f"| `{fault.code}` | {' | '.join(map(cell, cells))} |\n"


def cell(text: str) -> str:
    """Text in which nothing is markup."""
    for mark, plain in (("*", r"\*"), ("<", "&lt;"), ("_", r"\_"), ("|", r"\|")):
        text = text.replace(mark, plain)
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
