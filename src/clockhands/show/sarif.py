"""Audits in the formats of code hosts: SARIF 2.1.0, and the annotations of a GitHub workflow.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0; GitHub Docs, "Workflow commands for
GitHub Actions". Text from a file cannot end a workflow command: special characters are escaped as the host decodes
them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from clockhands.auditing import CODES, Audit, Finding
from clockhands.auditing.findings import json_value
from clockhands.show._page import safe
from clockhands.show.findings import place_of, relative, uri, why_unread

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_of(
    audits: Iterable[Audit], failures: Iterable[Mapping[str, str]] = (), *, verbose: bool = False
) -> dict[str, Any]:
    """One run with a result for each finding.

    Args:
        audits: What was audited.
        failures: Targets that could not be audited: ``target``, ``message`` and ``hint`` of each.
        verbose: Whether notes that every correct model of the type has are among the results.
    """
    results = [(audit, finding) for audit in audits for finding in _reported(audit, verbose=verbose)]
    codes = list(dict.fromkeys(finding.code for _, finding in results))
    failed = list(failures)
    told = {
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
                            {"level": "error", "message": {"text": why_unread(each)}} for each in failed
                        ],
                    }
                ],
                "results": [_result(audit, finding, codes.index(finding.code)) for audit, finding in results],
            }
        ],
    }
    return _as_utf8(told)


def _as_utf8(value: Any) -> Any:
    r"""The same with `\udce9` written out in names that are not UTF-8: parsers refuse half a surrogate pair."""
    if isinstance(value, dict):
        return {_as_utf8(key): _as_utf8(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_as_utf8(held) for held in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


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
        "message": {"text": finding.in_one_line},
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
    """What stays the same between runs: the target, the code, the layers and the keys, not the wording."""
    keys = [name for name in finding.evidence if ":" in name]
    text = json.dumps([audit.target, finding.code, finding.layers, keys])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _reported(audit: Audit, *, verbose: bool) -> list[Finding]:
    """The findings without those that are expected for the model."""
    expected = (finding.severity == "note" and not CODES[finding.code].news for finding in audit.findings)
    return [finding for finding, quiet in zip(audit.findings, expected, strict=True) if verbose or not quiet]


def annotations_of(
    audits: Iterable[Audit], failures: Iterable[Mapping[str, str]] = (), *, verbose: bool = False
) -> Iterator[str]:
    """One line for each finding as in `sarif_of`, and for each target that could not be read."""
    for audit in audits:
        for finding in _reported(audit, verbose=verbose):
            fields = {}
            place = place_of(audit, finding)
            if place is not None:
                fields["file"] = str(relative(place.path) or place.path)
                if place.line is not None:
                    fields["line"] = str(place.line)
            title = CODES[finding.code].title
            fields["title"] = f"{finding.code}: {title}" if title else finding.code
            where = "" if place is not None else f"{audit.target}: "
            yield _command(_COMMANDS[finding.severity], fields, where + finding.in_one_line)
    for failure in failures:
        yield _command("error", {"title": "unreadable"}, why_unread(failure))


def _command(name: str, fields: Mapping[str, str], message: str) -> str:
    """One workflow command.

    >>> _command("error", {"title": "a,b"}, "50 % of it")
    '::error title=a%2Cb::50 %25 of it'
    """
    listed = ",".join(f"{key}={_field(value)}" for key, value in fields.items())
    return f"::{name} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return safe(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _field(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
