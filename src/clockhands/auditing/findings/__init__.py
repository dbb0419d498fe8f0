"""All kinds of findings: a row each of a TOML file, next to the module with the checks that notice them.

A parser of files notes a `Fact` (a code and its numbers), and a check computes numbers; neither judges. The row of the
finding judges: to add a finding, add a row, and a check unless parsers note the fact. A class says what depends on the
case: a severity, one of several sentences, the change of the file.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clockhands.auditing._edits import placed

# Each adds its checks, and what its rows cannot say.
from clockhands.auditing.findings import (
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
from clockhands.auditing.findings._finding import BLAMED, SEVERITIES, Finding, as_json, json_value, price_in_words
from clockhands.auditing.findings._parts import AuditSubject, cases_of_checks, in_a_file
from clockhands.auditing.findings._releases import with_release
from clockhands.auditing.findings._rules import CODES, DEPENDS, Case, Rule, case_of
from clockhands.configs.overriding import CALLER


def make_finding(
    code: str, evidence: Mapping[str, Any], layers: str | None = None, documents: Mapping[str, Any] | None = None
) -> Finding:
    """The finding for a fact that was noted.

    Args:
        code: A name of `CODES`.
        evidence: The values in files and what was computed from them.
        layers: The layers that it concerns.
        documents: The parsed files by name: the patch that fixes the finding is fitted to them.
    """
    found = case_of(code, evidence, layers).finding()
    if documents is None or found.edit is None:
        return found
    if any(name.startswith(f"{CALLER}:") for name in evidence):
        # Values set by the caller are in no file: without them, a patch of the file would not fit.
        return replace(found, edit=replace(found.edit, patch=()))
    return replace(found, edit=placed(found.edit, documents))
