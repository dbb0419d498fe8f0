"""Write docs/incidents.md: the public incidents of tests/incidents, with what names each of them now.

Run it after a record, a finding or a check has changed; a test holds the document to it.
"""

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "incidents.md"

HEAD = """# A year of incidents

Public faults of position codes from September 2025 to November 2026, each rebuilt from the facts of its thread as the
file or the code that its owner had. The last column is the command that names it and the first sentence of its answer,
made and held by the tests. `config.json` is the model's file; `target` and `draft` are those of speculative decoding;
`function`, `module` and `model` are the code.
A dash means that nothing names it yet; the reason follows. An incident says what was reported at its date; a later
release may be right.

{counts}

| thread | date | model | cause | what its owner saw | what names it |
|---|---|---|---|---|---|
"""

COUNTS = """- {named} of {all} are named by what their owner had.
- {by_file} of {files} with a file are named, or pointed to with the runtime, by the file alone.
- {open} answers are open, with the reason."""

CALLS = {
    "rotary": "check_rotary(function, spec)",
    "additive": "check_additive(function, spec)",
    "bias": "check_bias(function, spec)",
    "module": "check_module(module, spec)",
    "generation": "check_generation(model)",
}


def document() -> str:
    """The whole document."""
    replayed = _replayed()
    records = sorted(replayed.incidents(), key=lambda record: record["date"])
    files = [record for record in records if "file" in record]
    counts = COUNTS.format(
        all=len(records),
        files=len(files),
        named=sum(record["had"] not in record.get("open", {}) for record in records),
        by_file=sum("file" not in record.get("open", {}) for record in files),
        open=sum(len(record.get("open", {})) for record in records),
    )
    return HEAD.format(counts=counts) + "".join(row(record) for record in records)


def row(record: Mapping[str, Any]) -> str:
    """One incident as a row of the table."""
    told = "<br>".join(answers(record))
    cells = (thread(record["id"]), record["date"], *map(cell, (record["model"], record["cause"], record["saw"])), told)
    return f"| {' | '.join(cells)} |\n"


def thread(report: str) -> str:
    """A link to a public report, a repository and a number: that of an issue leads to a pull request too."""
    return f"[{report}](https://github.com/{report.replace('#', '/issues/')})"


def answers(record: Mapping[str, Any]) -> Iterator[str]:
    """Each command that names an incident, with what it answers, or why none does."""
    replayed = _replayed()
    opened = record.get("open", {})
    if "file" in opened:
        yield f"`clockhands audit`: — {cell(opened['file'])}"
    elif "finding" in record:
        finding = next(each for each in replayed.audited_file(record).findings if each.code == record["finding"])
        yield f"`clockhands audit config.json`: `{finding.code}`: {cell(first(finding.message))}"
    elif "file" in record:
        runtime = None if "runtime" in opened else replayed.runtime_of(record)
        if runtime is None:
            title = replayed.title_of(record)
            told = f"{title[:1].upper()}{title[1:]}: {replayed.pointed_to(record, replayed.audited_file(record))}."
            yield f"`clockhands audit config.json --verbose`: `often-misread`: {cell(told)}"
        else:
            found = replayed.audited_file(record, runtime)
            finding = next(each for each in found.findings if each.code == "misread-by-runtime")
            command = f"clockhands audit config.json --for {runtime}"
            yield f"`{command}`: `{finding.code}`: {cell(first(finding.message))}"
    if "pair" in record:
        yield f"`clockhands diff target draft`: {cell(replayed.drafted(record)[1])}"
    if "code" in opened:
        yield f"`{CALLS[record['code']['check']]}`: — {cell(opened['code'])}"
    elif "code" in record:
        told = replayed.checked(record).explanations[0]
        yield f"`{CALLS[record['code']['check']]}`: `{told.codes[0]}`: {cell(told.message)}"


def first(message: str) -> str:
    """The first sentence of a message."""
    return re.split(r"(?<=\.)\s+(?=[A-Z])", message)[0]


def cell(text: str) -> str:
    """Text in a table in which nothing is markup."""
    return text.replace("*", r"\*").replace("<", "&lt;").replace("_", r"\_").replace("|", r"\|")


def _replayed() -> Any:
    """The records and what replays them."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    return importlib.import_module("incidents.replayed")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
