"""A survey on a terminal: how many models are correct, which have which findings, and which are outliers."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import IO

from rich.text import Text

from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.summary import headline, outliers
from clockhands.show._page import Page, console_on, safe
from clockhands.show.findings import short_name

_LISTED = 10  # the most models listed that could not be audited, or that differ from their group
_NAMED = 5  # the most models named for each finding


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
    names = distinct_names([row.target for row in (*rows, *gone)])
    tables = (
        ("models with a problem", lambda row: row.problems),
        ("models that a runtime computes differently", lambda row: row.differs_in.split()),
        ("models that a runtime refuses to load", lambda row: row.refused_by.split()),
    )
    for title, codes_of in tables:
        having: defaultdict[str, list[str]] = defaultdict(list)
        for row in rows:
            for code in dict.fromkeys(codes_of(row)):
                having[code].append(safe(names[row.target]))
        if having:
            page.line()
            page.line(title)
        for code, models in sorted(having.items(), key=lambda item: -len(item[1])):
            page.line(f"  {len(models):7,}  {code}")
            page.paragraph(_some(models), indent=11)
    found = outliers(rows)
    if found:
        page.line()
        page.line("models that differ from their group")
        for outlier in found[:_LISTED]:
            page.paragraph(outlier.says(safe(names[outlier.target])), indent=2)
        if len(found) > _LISTED:
            page.line(f"  and {len(found) - _LISTED:,} more; `clockhands survey report --json` lists all.")
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


def _some(models: Sequence[str]) -> str:
    """The first models by name, and how many more there are."""
    more = f", and {len(models) - _NAMED:,} more" if len(models) > _NAMED else ""
    return ", ".join(models[:_NAMED]) + more


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
