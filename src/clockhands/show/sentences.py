"""What a finding says in sentences, wherever it is shown: what is wrong, who is to blame, what mends it."""

from clockhands.auditing import Finding
from clockhands.sources.overriding import CALLER

_BLAMED = {
    "file": "The file is wrong.",
    "reader": "The file is right, and some readers misread it.",
    "ambiguous": "The file can be read in two ways.",
}


def what_is_wrong(finding: Finding) -> str:
    """The message, and whether the file, some readers or nobody for certain is wrong."""
    # What the caller sets stands in no file.
    by_caller = any(name.startswith(f"{CALLER}:") for name in finding.evidence)
    blamed = "" if by_caller else _BLAMED.get(finding.blames or "", "")
    return f"{finding.message} {blamed}".rstrip()


def what_mends_it(finding: Finding) -> str:
    """The smallest edit in words, or nothing where the finding has none."""
    return "" if finding.edit is None else finding.edit.says
