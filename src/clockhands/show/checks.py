"""The report of a check as text on a terminal or in a pipe: the words are the report's own."""

from typing import IO

from rich.console import Console
from rich.text import Text

from clockhands.show.page import PROSE, Page, safe
from clockhands.testing import Report

_STYLES = {"sound": "bold green", "failed": "bold red", "explanation": "bold", "heading": "bold", "rest": "dim"}


def print_report(
    report: Report, *, verbose: bool = False, file: IO[str] | None = None, width: int | None = None
) -> None:
    """Print what a check found.

    Args:
        report: What to show.
        verbose: All evidence, and why each experiment was left out.
        file: Where to; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(Console(file=file, width=width, highlight=False, markup=False, emoji=False))
    for line in report.lines(verbose=verbose):
        for text in line.wrapped(min(page.width, PROSE)).splitlines() or [""]:
            page.line(Text(safe(text), style=_STYLES.get(line.style, "")))
