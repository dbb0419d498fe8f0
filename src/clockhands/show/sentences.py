"""What a finding says in sentences, wherever it is shown: what is wrong, who is to blame, what mends it."""

from collections.abc import Mapping

from clockhands.auditing import Finding
from clockhands.sources.overriding import CALLER

BLAMED = {
    "file": "The file is wrong.",
    "reader": "The file is right, and some readers misread it.",
    "ambiguous": "The file can be read in two ways.",
    "module": "The loaded module is wrong.",
}


def what_is_wrong(finding: Finding) -> str:
    """The message, and whether the file, some readers or nobody for certain is wrong."""
    # What the caller sets stands in no file.
    by_caller = any(name.startswith(f"{CALLER}:") for name in finding.evidence)
    blamed = "" if by_caller else BLAMED.get(finding.blames or "", "")
    return f"{finding.message} {blamed}".rstrip()


def what_mends_it(finding: Finding) -> str:
    """The smallest edit in words, or nothing where the finding has none."""
    return "" if finding.edit is None else finding.edit.says


def in_one_line(finding: Finding) -> str:
    """All that a finding says, for programs that show it beside a file."""
    layers = f" (layers {finding.layers})" if finding.layers else ""
    return f"{what_is_wrong(finding)}{layers} {finding.hint} {what_mends_it(finding)}".rstrip()


def why_unread(failure: Mapping[str, str]) -> str:
    """Which target could not be read, why, and what to do."""
    return f"{failure['target']}: {failure['message']} {failure['hint']}"
