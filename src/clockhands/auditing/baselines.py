"""Known findings that a team has accepted, kept in a file, so that only new findings fail the next run.

A finding is recognised by its target, its code, its layers and the values in the files (`file:key` and value): wording
may change between releases, and computed numbers need not be compared.
"""

import json
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from clockhands.auditing._audits import Audit
from clockhands.auditing.findings import Finding, json_value
from clockhands.errors import Unreadable
from clockhands.formats import documents

Known = frozenset[str]


def known_in(path: Path) -> Known:
    """The findings of a baseline file.

    Raises:
        Unreadable: It cannot be read, or it is not a baseline.
    """
    held = documents.read(path).fields
    findings = held.get("findings")
    if held.get("baseline") != 1 or not isinstance(findings, list):
        raise Unreadable(
            f"{path} is not a baseline file of findings.", "Write one with `clockhands audit --write-baseline`."
        )
    return frozenset(json.dumps(finding, sort_keys=True) for finding in findings)


def baseline_of(audits: Iterable[Audit]) -> dict[str, Any]:
    """What a baseline file holds for these audits: their findings, and those that an earlier baseline lists."""
    held = [_mark(audit, finding) for audit in audits for finding in (*audit.findings, *audit.known)]
    return {"baseline": 1, "findings": held}


def without_known(audit: Audit, known: Known) -> Audit:
    """The same audit, with the findings that a baseline lists in `known`: the verdict counts its problems."""
    return audit.taking_out(lambda each: json.dumps(_mark(audit, each), sort_keys=True) in known, "known")


def _mark(audit: Audit, finding: Finding) -> dict[str, Any]:
    # What a runtime computes is not a value of a file, and for another runtime it is another finding.
    of_a_runtime = ("runtime", "instead", "because")
    held = {name: json_value(value) for name, value in finding.evidence.items() if ":" in name or name in of_a_runtime}
    target = PurePath(audit.target).as_posix()  # the same file on every system
    return {"target": target, "code": finding.code, "layers": finding.layers, "evidence": held}
