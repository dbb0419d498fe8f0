"""Write docs/findings-on-published-configs.md: what the audit finds in configs that were really published.

What the configs say of position lies in tests/published/configs. Why each warning and each error is deserved was
written by hand, in published_findings.json beside this file: the document is not made while a sentence is missing or
says something of a finding that is not there any more.
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from clockhands.auditing import Audit, Finding, audit

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "tests" / "published" / "configs"
DOCUMENT = ROOT / "docs" / "findings-on-published-configs.md"
REASONS = Path(__file__).with_suffix(".json")
# How many numbers of a finding stand in its row, and how long each may be.
MOST_NUMBERS, LONGEST = 3, 60
# What a finding compares where nothing of it stands in the file.
COMPARED = ("used", "context", "here", "published")

Reasons = Mapping[str, Mapping[str, str]]


class Published(NamedTuple):
    """One published config and its audit."""

    name: str
    repository: str
    audit: Audit

    @property
    def firing(self) -> tuple[Finding, ...]:
        """Findings that fire: its errors and warnings."""
        return tuple(found for found in self.audit.findings if found.severity != "note")


def audits(configs: Path) -> list[Published]:
    """The audits of all published configs, each as a file of the name that its repository gave it."""
    audited = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(configs.glob("*.json")):
            case = json.loads(path.read_text(encoding="utf-8"))
            # Meta's own form is known by its name; any other name is one that a repository gave to its config.json.
            own = Path(case["source"]["path"]).name
            file = Path(folder) / (own if own == "params.json" else "config.json")
            file.write_text(json.dumps(case["config"]), encoding="utf-8")
            audited.append(Published(case["name"], case["source"]["repo"], audit(file)))
    return audited


def reasons_astray(audited: Iterable[Published], reasons: Reasons) -> list[str]:
    """Findings without a sentence, and sentences without a finding."""
    fired = {(each.name, found.code) for each in audited for found in each.firing}
    told = {(name, code) for name, codes in reasons.items() for code in codes}
    return [
        *(
            f"{name}: {code} fires, and {REASONS.name} does not say why it should"
            for name, code in sorted(fired - told)
        ),
        *(f"{name}: {REASONS.name} says why {code} fires, but it does not" for name, code in sorted(told - fired)),
    ]


def rendered(audited: list[Published], reasons: Reasons) -> str:
    """The document.

    Raises:
        ValueError: A finding has no sentence, or a sentence no finding.
    """
    if astray := reasons_astray(audited, reasons):
        raise ValueError("\n".join(astray))
    rows = [
        f"| {each.name} | {each.repository} | `{found.code}` | {found.severity} | {numbers(found)}"
        f" | {reasons[each.name][found.code]} |"
        for each in audited
        for found in one_of_a_code(each.firing)
    ]
    notes = Counter(found.code for each in audited for found in each.audit.findings if found.severity == "note")
    silent = sum(not each.firing for each in audited)
    return "\n".join(
        [
            "# Findings on published configs",
            "",
            f"`clockhands audit` over {len(audited)} configs from public repositories, including copies and test"
            f" files. {silent} have no warning and no error; notes"
            f" are counted below. {len(audited) - silent} have a warning or an"
            " error, each listed with the reason why it is correct. Many of these files were cut"
            " down or edited for a purpose of their repository and may be correct there: the table says what a runtime"
            " reads from the file, not what the original release contains, unless it says so.",
            "",
            "Made by `python tools/published_findings.py`; only the last column is written by hand.",
            "",
            "| config | found in | code | severity | numbers | why it is correct |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "## Notes, by code",
            "",
            "Useful to know and no error; how many of the configs have each.",
            "",
            "| code | findings | configs |",
            "|---|---|---|",
            *(f"| `{code}` | {count} | {noted(audited, code)} |" for code, count in sorted(notes.items())),
            "",
        ]
    )


def one_of_a_code(findings: Iterable[Finding]) -> list[Finding]:
    """The first finding of each code: several groups of layers can have the same."""
    return list({found.code: found for found in reversed(list(findings))}.values())[::-1]


def noted(audited: Iterable[Published], code: str) -> int:
    """How many configs have a note of this code."""
    codes = [{found.code for found in each.audit.findings if found.severity == "note"} for each in audited]
    return sum(code in each for each in codes)


def numbers(found: Finding) -> str:
    """What the finding goes by: what stands in the file, under its bare keys, else what was compared."""
    said = {name: value for name, value in found.evidence.items() if isinstance(value, bool | int | float | str)}
    in_file = {name.partition(":")[2]: value for name, value in said.items() if ":" in name}
    computed = {name: value for name, value in said.items() if name in COMPARED}
    stated = list((in_file or computed or said).items())[:MOST_NUMBERS]
    return "; ".join(f"{name} {short(value)}" for name, value in stated).replace("|", "\\|")


def short(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    text = f"{value:,.6g}" if isinstance(value, float) else text
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def main() -> int:
    reasons = json.loads(REASONS.read_text(encoding="utf-8"))
    try:
        text = rendered(audits(CONFIGS), reasons)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
