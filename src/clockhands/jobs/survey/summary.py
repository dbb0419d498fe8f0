"""A survey in one sentence and as JSON: how many models are correct, and the findings in the others."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from clockhands.auditing import CODES
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.phrases import number_of

GRADES = {
    "error": "with errors",
    "warning": "with warnings",
    "failed": "not audited",
    "unknown": "without a problem, but not fully known",
    "correct": "correct",
}
"""What is said of the models of a grade, the worst first."""


def headline(rows: Sequence[SurveyRow]) -> str:
    """The survey in one sentence.

    >>> correct = SurveyRow("a", "", "1", "done", verdict="The position settings look correct.")
    >>> headline([correct, SurveyRow("b", "", "1", "failed")])
    '2 models: 1 not audited, 1 correct.'
    """
    counted = Counter(row.grade for row in rows)
    parts = ", ".join(f"{counted[grade]:,} {says}" for grade, says in GRADES.items() if counted[grade])
    return f"{number_of(len(rows), 'model')}: {parts or 'nothing is stored'}."


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
