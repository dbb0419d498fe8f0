"""Prints claims with their numbers on a terminal, grouped by subject, the verdict first."""

from collections.abc import Sequence
from typing import IO

from rich.cells import cell_len
from rich.text import Text

from clockhands.measures.claims import SUBJECTS, Recomputed
from clockhands.measures.claims.sentences import (
    condition_in_words,
    measured_in_words,
    moved_in_words,
    name_in_words,
    number_in_words,
    summary,
    waits_in_words,
)
from clockhands.show._page import Page, console_on

STYLES = {"true": "bold green", "false": "bold red", "only if": "bold yellow", "not known": "bold blue"}
_INDENT = 11  # the verdict's column
_WIDEST = 100  # columns of a claim
_BELOW = f"{'':{_INDENT}}"


def print_claims(found: Sequence[Recomputed], file: IO[str] | None = None, width: int | None = None) -> None:
    """Print claims with their recomputed numbers, and a summary.

    Args:
        found: The claims, recomputed.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    by_id = {each.claim.id: each for each in found}
    for subject, claims in SUBJECTS.items():
        chosen = [by_id[claim.id] for claim in claims if claim.id in by_id]
        if chosen:
            page.line(Text(subject, style="bold underline"))
            page.line()
        for each in chosen:
            _print_claim(page, each)
            page.line()
    page.paragraph(summary(found), style="bold red" if any(each.moved for each in found) else "bold")
    for each in found:
        for name in each.moved:
            page.paragraph(f"{each.claim.id}: {moved_in_words(each, name)}", style="bold red", indent=2)


def _print_claim(page: Page, found: Recomputed) -> None:
    told = found.claim
    verdict = Text(told.verdict.ljust(_INDENT), style=STYLES[told.verdict])
    page.hanging(verdict, f"“{told.statement}”", "bold", _WIDEST)
    for text in filter(None, (condition_in_words(told), told.argument)):
        page.hanging(_BELOW, text, most=_WIDEST)
    longest = max(map(cell_len, map(name_in_words, told.numbers)))
    for name, stated in told.numbers.items():
        label, number = name_in_words(name).ljust(longest + 2), number_in_words(stated, found.numbers[name])
        short = _INDENT + longest + 2 + cell_len(number) <= min(page.width, _WIDEST)
        if not short:
            page.line(f"{_BELOW}{label.rstrip()}")
        style = "bold red" if name in found.moved else "cyan"
        page.line(Text(_BELOW + (label if short else "  ")) + Text(number, style=style))
    for text in (*measured_in_words(told), *filter(None, [waits_in_words(told)])):
        page.hanging(_BELOW, text, most=_WIDEST)
    page.line(Text(f"{_BELOW}ID: {told.id}", style="dim"))
    page.hanging(_BELOW, f"Source: {told.source}.", "dim", _WIDEST)
