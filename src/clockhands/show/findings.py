"""What all reports show of a target and of a finding: a short name, the evidence, and its place in a file."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple
from urllib.parse import quote

from clockhands.auditing import Audit, Finding
from clockhands.auditing.findings import in_a_file
from clockhands.auditing.fixes import file_of
from clockhands.formats.files import file_and_key
from clockhands.formats.key_lines import line_in
from clockhands.phrases import spoken
from clockhands.show._page import safe

AUDIT = "clockhands-audit"
"""The id of the script element of a page that holds what ``clockhands audit --json`` prints."""

IN_TITLES = 80
"""Letters of a name that stand in the title of a window."""

_WITH_LINES = (".json", ".yaml", ".yml")  # endings of the files whose keys have lines


class Place(NamedTuple):
    """A file, and a line in it, from 1, if one can be named."""

    path: Path
    line: int | None


def short_name(target: str) -> str:
    """The last part of a path, with the folder before it if the file has the usual name of its kind.

    >>> short_name("models/smol/config.json"), short_name("models/smol"), short_name("llama:head_width=64")
    ('smol/config.json', 'smol', 'llama:head_width=64')
    """
    path = PurePath(target)
    return f"{path.parent.name}/{path.name}" if path.suffix == ".json" and path.parent.name else path.name or target


def cut(text: str, most: int = 400) -> str:
    """A text for a heading, shortened to its first letters if it is too long.

    >>> cut("llama"), cut("x" * 3000, 5)
    ('llama', 'xxxx…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def as_text(value: object) -> str:
    """A value as in a sentence, words without quotes."""
    return value if isinstance(value, str) else spoken(value)


def grade_of(audit: Audit) -> str:
    """``error`` or ``warning``, as the worst finding; else ``sound`` if all is correct, and ``note`` if not known."""
    return "error" if audit.errors else "warning" if audit.warnings else "sound" if audit.correct else "note"


def worst_first(audit: Audit) -> tuple[bool, bool]:
    """The key by which audits are sorted: those with errors first, then those with warnings."""
    return not audit.errors, not audit.warnings


def place_of(audit: Audit, finding: Finding) -> Place | None:
    """Where a finding is; None for a target without a file, such as a preset or standard input."""
    if audit.path is None:
        return None
    stated = next((name for name in finding.evidence if in_a_file(name)), None)
    if stated is None:
        return Place(_main_file(audit), None)
    # A quantity of several keys names the first before a blank: `file:hidden_size / file:num_attention_heads`.
    name, key = file_and_key(stated)
    path = file_of(audit.path, name)
    line = line_in(path, key.partition(" ")[0].rstrip(",")) if path.suffix in _WITH_LINES else None
    return Place(path, line)


def on_terminal(text: str) -> str:
    """Lines of a file, with characters that could move a terminal's cursor made visible."""
    return "\n".join(safe(line.expandtabs(4)) for line in text.split("\n"))


def relative(path: Path) -> PurePath | None:
    """The path relative to the current folder; None if it is outside."""
    try:
        return path.absolute().relative_to(Path.cwd())
    except (ValueError, OSError):
        return None


def uri(path: Path) -> str:
    """The path as a URI: relative to the current folder if it is inside, so that it is valid on other machines."""
    inside = relative(path)
    # A name that is not UTF-8 is given by its bytes, as the system has it.
    return path.absolute().as_uri() if inside is None else quote(os.fsencode(inside.as_posix()))


def _main_file(audit: Audit) -> Path:
    """The file that most values are read from; a finding about a folder must point at a file."""
    path = audit.path or Path()
    for source in audit.source.values():
        if in_a_file(source):
            return file_of(path, file_and_key(source)[0])
    return path


# In sentences


def evidence_to_show(finding: Finding) -> Iterator[tuple[str, str]]:
    """The evidence with its sources, and numbers that the message does not contain."""
    for name, value in finding.evidence.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in finding.evidence.get("mistakes", ()):
            yield name, str(value)
        elif in_a_file(name) or (number and spoken(value) not in finding.message):
            yield name, spoken(value)


def why_unread(failure: Mapping[str, str]) -> str:
    """Which target could not be read, why, and what to do."""
    return f"{failure['target']}: {failure['message']} {failure['hint']}"
