"""A survey on a terminal: how many models are correct, and the findings in the others."""

from collections import Counter
from collections.abc import Sequence
from typing import IO

from rich.text import Text

from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.summary import headline
from clockhands.show._page import Page, console_on, safe
from clockhands.show.findings import short_name

_LISTED = 10  # the most models listed that could not be audited


def print_survey(
    rows: Sequence[SurveyRow],
    file: IO[str] | None = None,
    width: int | None = None,
    *,
    gone: Sequence[SurveyRow] = (),
) -> None:
    """Print the headline, each finding with the number of its models, and the first models that were not audited.

    ``gone`` are rows of models whose files no longer exist: they are named but not counted.
    """
    page = Page(console_on(file, width))
    says = headline(rows) if rows or not gone else "0 models: the files of all have been deleted or moved."
    page.line(Text(says, style="bold"))
    tables = (
        ("models with a problem", Counter(code for row in rows for code in row.problems)),
        (
            "models that a runtime computes differently",
            Counter(name for row in rows for name in row.differs_in.split()),
        ),
        ("models that a runtime refuses to load", Counter(name for row in rows for name in row.refused_by.split())),
    )
    for title, counted in tables:
        if counted:
            page.line()
            page.line(title)
            for name, count in counted.most_common():
                page.line(f"  {count:7,}  {name}")
    names = distinct_names([row.target for row in (*rows, *gone)])
    failed = [row for row in rows if row.state == "failed"]
    if failed:
        page.line()
        page.line("not audited")
        for row in failed[:_LISTED]:
            page.line(f"  {safe(names[row.target])}")
            page.paragraph(row.message, indent=4)
        if len(failed) > _LISTED:
            page.line(f"  and {len(failed) - _LISTED:,} more; `clockhands survey report --csv FILE` lists all.")
    if gone:
        page.line()
        page.line("no longer there, and not counted")
        for row in gone[:_LISTED]:
            page.line(f"  {safe(names[row.target])}")
        if len(gone) > _LISTED:
            page.line(f"  and {len(gone) - _LISTED:,} more; `clockhands survey report --json` lists all.")


def distinct_names(targets: Sequence[str]) -> dict[str, str]:
    """Each target with the end of its path, as long as needed to be unique.

    >>> list(distinct_names(["/m/a/smol", "/m/b/smol", "/m/a/gpt2"]).values())
    ['a/smol', 'b/smol', 'gpt2']
    """
    names = {target: short_name(target) for target in targets}
    while True:
        shared = {name for name, count in Counter(names.values()).items() if count > 1}
        longer = {target: _longer(target, name) for target, name in names.items() if name in shared}
        if all(names[target] == name for target, name in longer.items()):
            return names
        names |= longer


def _longer(target: str, name: str) -> str:
    """The end of a path with one folder more."""
    return "/".join(target.split("/")[-(name.count("/") + 2) :])
