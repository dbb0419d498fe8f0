"""A survey on a terminal: how many models are correct, and the findings in the others."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.text import Text

from clockhands.auditing import CODES
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.show._page import Page, console_on, safe
from clockhands.show.findings import short_name

GRADES = {
    "error": "with errors",
    "warning": "with warnings",
    "failed": "not audited",
    "unknown": "without a problem, but not fully known",
    "correct": "correct",
}
"""What is said of the models of a grade, the worst first."""

_LISTED = 10  # the most models listed that could not be audited


def headline(rows: Sequence[SurveyRow]) -> str:
    """The survey in one sentence.

    >>> correct = SurveyRow("a", "", "1", "done", verdict="The position settings look correct.")
    >>> headline([correct, SurveyRow("b", "", "1", "failed")])
    '2 models: 1 not audited, 1 correct.'
    """
    counted = Counter(row.grade for row in rows)
    parts = ", ".join(f"{counted[grade]:,} {says}" for grade, says in GRADES.items() if counted[grade])
    return f"{len(rows):,} model{'s' * (len(rows) != 1)}: {parts or 'nothing is stored'}."


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


def worst_first(rows: Iterable[SurveyRow]) -> list[SurveyRow]:
    """The rows by grade, the worst first; within a grade the order is kept."""
    rank = list(GRADES)
    return sorted(rows, key=lambda row: rank.index(row.grade))


def survey_to_dict(rows: Sequence[SurveyRow], gone: Sequence[SurveyRow] = ()) -> dict[str, Any]:
    """The JSON of `clockhands survey report`: how many models of each grade and with each finding, and all rows.

    ``gone`` are rows of models whose files no longer exist: their targets are listed but not counted.
    """
    grades = Counter(row.grade for row in rows)
    return {
        "models": len(rows),
        "grades": {grade: grades[grade] for grade in GRADES},
        "findings": findings_of(rows),
        "rows": [row._asdict() for row in rows],
        "no_longer_there": [row.target for row in gone],
    }


def findings_of(rows: Iterable[SurveyRow]) -> dict[str, int]:
    """How many models have each finding, in the order of the codes, the worst severity first."""
    counted = Counter(code for row in rows for code in (*row.problems, *row.notes.split()))
    known = [code for code in CODES if code in counted]
    return {code: counted[code] for code in [*known, *sorted(counted.keys() - set(known))]}
