"""Audits as SARIF 2.1.0, the format in which code hosts take the results of checks.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from clockhands.auditing import CODES, Audit, Finding
from clockhands.auditing.findings import json_value
from clockhands.show.places import place_of, relative, uri
from clockhands.show.sentences import in_one_line, why_unread

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_of(audits: Iterable[Audit], failures: Iterable[Mapping[str, str]] = ()) -> dict[str, Any]:
    """One run with a result for each finding.

    Args:
        audits: What was audited.
        failures: What could not be: ``target``, ``message`` and ``hint`` of each.
    """
    results = [(audit, finding) for audit in audits for finding in audit.findings]
    codes = list(dict.fromkeys(finding.code for _, finding in results))
    failed = list(failures)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "clockhands",
                        "version": version("clockhands"),
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": not failed,
                        "toolExecutionNotifications": [
                            {
                                "level": "error",
                                "message": {"text": f"{each['target']}: {each['message']} {each['hint']}"},
                            }
                            for each in failed
                        ],
                    }
                ],
                "results": [_result(audit, finding, codes.index(finding.code)) for audit, finding in results],
            }
        ],
    }


def _notification(failure: Mapping[str, str]) -> dict[str, Any]:
    return {"level": "error", "message": {"text": why_unread(failure)}}


def _rule(code: str) -> dict[str, Any]:
    rule = CODES[code]
    told: dict[str, Any] = {"id": code, "name": "".join(word.title() for word in code.split("-"))}
    if rule.title:
        told["shortDescription"] = {"text": rule.title}
    if rule.means:
        told["fullDescription"] = {"text": rule.means}
    told["help"] = {"text": rule.hint if isinstance(rule.hint, str) else f"clockhands explain {code}"}
    if isinstance(rule.severity, str):
        told["defaultConfiguration"] = {"level": rule.severity}
    return told


def _result(audit: Audit, finding: Finding, index: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,  # SARIF has levels of the same names
        "message": {"text": in_one_line(finding)},
        "partialFingerprints": {"clockhands/1": _fingerprint(audit, finding)},
        "properties": {"target": audit.target, "evidence": json_value(finding.evidence), "blames": finding.blames},
    }
    place = place_of(audit, finding)
    if place is not None:
        artifact = {"uri": uri(place.path)}
        if relative(place.path) is not None:
            artifact["uriBaseId"] = "%SRCROOT%"
        physical: dict[str, Any] = {"artifactLocation": artifact}
        if place.line is not None:
            physical["region"] = {"startLine": place.line}
        told["locations"] = [{"physicalLocation": physical}]
    return told


def _fingerprint(audit: Audit, finding: Finding) -> str:
    """What stays the same from run to run: the target, the code, the layers and the keys, not the wording."""
    keys = [name for name in finding.evidence if ":" in name]
    text = json.dumps([audit.target, finding.code, finding.layers, keys])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
