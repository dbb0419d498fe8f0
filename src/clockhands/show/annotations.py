"""Findings as annotations of a GitHub workflow: one command on a line each, which the host shows beside the file.

Source: GitHub Docs, "Workflow commands for GitHub Actions". What a file holds can end no command: the characters that
could are written as the host decodes them.
"""

from collections.abc import Iterable, Iterator, Mapping

from clockhands.auditing import CODES, Audit
from clockhands.show.page import safe
from clockhands.show.places import place_of, relative
from clockhands.show.sentences import in_one_line, why_unread

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def annotations_of(audits: Iterable[Audit], failures: Iterable[Mapping[str, str]] = ()) -> Iterator[str]:
    """One line for each finding, and for each target that could not be read."""
    for audit in audits:
        for finding in audit.findings:
            fields = {}
            place = place_of(audit, finding)
            if place is not None:
                fields["file"] = str(relative(place.path) or place.path)
                if place.line is not None:
                    fields["line"] = str(place.line)
            title = CODES[finding.code].title
            fields["title"] = f"{finding.code}: {title}" if title else finding.code
            where = "" if place is not None else f"{audit.target}: "
            yield _command(_COMMANDS[finding.severity], fields, where + in_one_line(finding))
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
