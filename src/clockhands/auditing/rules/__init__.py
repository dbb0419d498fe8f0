"""The table of findings: for everything that can be noticed, how grave it is, the sentence and what to do.

A reader of files notices (`Fact`: a code and its numbers), a check computes; neither judges. The judgement is here, a
row for each code, in one module for each thing that findings are about: adding a finding means adding a row.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing.edits import placed
from clockhands.auditing.findings import SEVERITIES, Finding
from clockhands.auditing.rules import (
    files,
    gguf,
    heads,
    keys,
    layers,
    lengths,
    models,
    modules,
    readers,
    scalings,
    shapes,
    stored,
    tables,
    values,
    weights,
)
from clockhands.auditing.rules.rule import IF_SOUND, Evidence, Rule, listed
from clockhands.sources.overriding import CALLER

__all__ = ["CODES", "IF_SOUND", "Rule", "judge", "listed"]

_ROWS: Mapping[str, Rule] = {
    **values.CODES,
    **models.CODES,
    **keys.CODES,
    **shapes.CODES,
    **scalings.CODES,
    **layers.CODES,
    **heads.CODES,
    **tables.CODES,
    **stored.CODES,
    **lengths.CODES,
    **gguf.CODES,
    **files.CODES,
    **readers.CODES,
    **weights.CODES,
    **modules.CODES,
}


def _grave(code: str) -> int:
    severity = _ROWS[code].severity
    # One that depends on the case stands among the errors: it may be one.
    return SEVERITIES.index(severity) if isinstance(severity, str) else 0


CODES: Mapping[str, Rule] = {code: _ROWS[code] for code in sorted(_ROWS, key=_grave)}
"""Every code that a finding can have, the grave ones first."""


def judge(
    code: str, evidence: Evidence, layers: str | None = None, documents: Mapping[str, Any] | None = None
) -> Finding:
    """The finding for something that was noticed.

    Args:
        code: A name of `CODES`.
        evidence: What stands in files and what was computed from it.
        layers: The layers that it is about.
        documents: The parsed files by name: the patch that mends the finding is made to fit them.
    """
    found = CODES[code].finding(code, evidence, layers)
    if documents is None or found.edit is None:
        return found
    if any(name.startswith(f"{CALLER}:") for name in evidence):
        # What the caller has set is in no file: a patch of the file for it would not fit without it.
        return replace(found, edit=replace(found.edit, patch=()))
    return replace(found, edit=placed(found.edit, documents))
