"""What a kind of finding means, as text on a terminal."""

from collections.abc import Mapping
from typing import IO

from rich.console import Console
from rich.text import Text

from clockhands.auditing.rules import Rule
from clockhands.show.page import SEVERITY_STYLES, Page

_BLAMED = {
    "file": "the file: it is wrong",
    "reader": "readers: the file is right, and some misread it",
    "ambiguous": "nobody for certain: the file can be read in two ways",
}


def print_codes(codes: Mapping[str, Rule], file: IO[str] | None = None, width: int | None = None) -> None:
    """Print every code with its severity and its title, one on a line."""
    page = _page(file, width)
    longest = max(map(len, codes))
    for code, rule in codes.items():
        severity = severity_in_words(rule)
        line = Text(code.ljust(longest + 2)) + Text(severity.ljust(13), style=SEVERITY_STYLES.get(severity, ""))
        line.append(rule.title)
        page.line(line)


def print_explanation(code: str, rule: Rule, file: IO[str] | None = None, width: int | None = None) -> None:
    """Print what one code means.

    Args:
        code: The code.
        rule: Its row in the table of findings.
        file: Where to; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = _page(file, width)
    severity = severity_in_words(rule)
    page.line(Text(code, style="bold") + Text(f"  {severity}", style=SEVERITY_STYLES.get(severity, "")))
    page.paragraph(rule.title)
    if rule.means:
        page.line()
        page.paragraph(rule.means)
    page.line()
    if isinstance(rule.blames, str):
        page.row("blames", _BLAMED[rule.blames])
    page.row("to mend", rule.advice)
    if rule.edit is None and rule.unmended:
        page.row("no patch", rule.unmended)
    for number, case in enumerate(rule.cases):
        page.row("" if number else "seen in", case)


def severity_in_words(rule: Rule) -> str:
    """The severity, where it is always the same."""
    return rule.severity if isinstance(rule.severity, str) else "by the case"


def _page(file: IO[str] | None, width: int | None) -> Page:
    return Page(Console(file=file, width=width, highlight=False, markup=False, emoji=False))
