"""Every finding: one class for each, beside the check that notices it, in one module for each thing they are about.

A reader of files notices (`Fact`: a code and its numbers), a check computes; neither judges. The judgement is the
class: adding a finding means adding a class and its explanation, and a check unless readers note it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing._edits import placed
from clockhands.auditing.findings import (  # noqa: F401 - each adds its kinds and its checks
    _files,
    _gguf,
    _keys,
    _layer_kinds,
    _lengths,
    _loaded,
    _readers,
    _runtimes,
    _scalings,
    _stored,
    _table_rows,
    _values,
    weights,
)
from clockhands.auditing.findings._finding import SEVERITIES, Finding, json_value, price_in_words, spoken
from clockhands.auditing.findings._kind import EXPECTED, Kind, explanations, listed
from clockhands.auditing.findings._parts import CHECKS, Audited, declared, in_a_file
from clockhands.auditing.findings._releases import with_release
from clockhands.sources.overriding import CALLER

__all__ = [
    "CHECKS",
    "CODES",
    "EXPECTED",
    "SEVERITIES",
    "Audited",
    "Finding",
    "Kind",
    "declared",
    "in_a_file",
    "json_value",
    "judge",
    "listed",
    "price_in_words",
    "spoken",
    "with_release",
]

CODES: Mapping[str, type[Kind]] = {
    code: Kind.kinds[code] for code in sorted(explanations(), key=lambda code: Kind.kinds[code].gravest())
}
"""Every code that a finding can have, the grave ones first."""


def judge(
    code: str, evidence: Mapping[str, Any], layers: str | None = None, documents: Mapping[str, Any] | None = None
) -> Finding:
    """The finding for something that was noticed.

    Args:
        code: A name of `CODES`.
        evidence: What stands in files and what was computed from it.
        layers: The layers that it is about.
        documents: The parsed files by name: the patch that mends the finding is made to fit them.
    """
    found = CODES[code](evidence, layers).finding()
    if documents is None or found.edit is None:
        return found
    if any(name.startswith(f"{CALLER}:") for name in evidence):
        # What the caller has set is in no file: a patch of the file for it would not fit without it.
        return replace(found, edit=replace(found.edit, patch=()))
    return replace(found, edit=placed(found.edit, documents))
