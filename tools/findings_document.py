"""Write docs/findings.md: every finding of `clockhands audit`, from the table of rules itself.

Run it after a rule has changed; a test holds the document to it.
"""

from pathlib import Path

from clockhands.auditing import CODES
from clockhands.auditing.findings import BLAMED, Rule

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "findings.md"

HEAD = """# Findings of the audit

Every finding of `clockhands audit`, as printed by `clockhands explain CODE`. With an *error* the model is wrong in
every runtime; with a *warning* it is wrong in some runtimes or at some lengths; a *note* is useful to know and needs no
action. If the severity depends on the case, the text says on what. This file is made by `tools/findings_document.py`.

| code | severity | finding |
|---|---|---|
"""


def document() -> str:
    """The whole document."""
    rows = [f"| [`{code}`](#{code}) | {rule.severity} | {cell(rule.title)} |\n" for code, rule in CODES.items()]
    return HEAD + "".join(rows) + "".join(section(code, rule) for code, rule in CODES.items())


def section(code: str, rule: Rule) -> str:
    """What one code means."""
    parts = [f"\n## {code}\n", f"{rule.title}. *{rule.severity.capitalize()}.*", prose(rule.means)]
    if rule.blames in BLAMED:
        parts.append(BLAMED[rule.blames])
    if rule.hint:
        parts.append(f"Fix: {prose(rule.hint)}")
    if rule.cases:
        parts.append("Seen in: " + "; ".join(rule.cases) + ".")
    return "\n\n".join(filter(None, (part.strip() for part in parts))).join(("\n", "\n"))


def prose(text: str) -> str:
    """Text in which nothing is markup."""
    return text.replace("*", r"\*").replace("<", "&lt;").replace("_", r"\_")


def cell(text: str) -> str:
    """Text in a table."""
    return prose(text).replace("|", r"\|")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
