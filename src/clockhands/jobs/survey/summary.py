"""A survey in one sentence and as JSON: how many models are correct, the findings in the others, and outliers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from clockhands.auditing import CODES
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.phrases import number_of, shown

GRADES = {
    "error": "with errors",
    "warning": "with warnings",
    "failed": "not audited",
    "unknown": "without a problem, but not fully known",
    "correct": "correct",
}
"""What is said of the models of a grade, the worst first."""

_COMPARED = {"base": "base", "scaling": "scaling", "factor": "factor of the scaling", "context": "context length"}
_SMALLEST_GROUP = 10
_USUAL = 0.9  # of a group must agree, before the others are outliers


class Outlier(NamedTuple):
    """A model that differs from nearly all models of its type with heads of the same width.

    Attributes:
        target: The model.
        field: The column in which it differs.
        value: What it has there.
        usual: What the others have.
        group: The model type.
        size: How many models the group has.
        share: How many of them have the usual value.
    """

    target: str
    field: str
    value: Any
    usual: Any
    group: str
    size: int
    share: int

    def says(self, name: str) -> str:
        """The outlier in one sentence.

        >>> Outlier("/m/a", "base", 1e5, 1e4, "llama", 50, 49).says("a")
        'a differs from its group, in base: 100,000; 49 of 50 models of type llama have 10,000.'
        """
        value, usual = (f"{each:,.10g}" if isinstance(each, int | float) else each or "none"
                        for each in (self.value, self.usual))  # fmt: skip
        group = f"{self.size:,} models" + (f" of type {shown(self.group)[1:-1]}" if self.group else "")
        field = _COMPARED[self.field]
        return f"{name} differs from its group, in {field}: {value}; {self.share:,} of {group} have {usual}."


def outliers(rows: Iterable[SurveyRow]) -> list[Outlier]:
    """The models that differ from nine of ten of their type, encoding and head width, in groups of ten or more."""
    groups: defaultdict[tuple[object, ...], list[SurveyRow]] = defaultdict(list)
    for row in rows:
        if row.state == "done":
            groups[row.model_type, row.kinds, row.head_width].append(row)
    found = []
    for group in groups.values():
        for field in _COMPARED if len(group) >= _SMALLEST_GROUP else ():
            usual, share = Counter(getattr(row, field) for row in group).most_common(1)[0]
            if share >= _USUAL * len(group):
                found += [
                    Outlier(row.target, field, value, usual, row.model_type, len(group), share)
                    for row in group
                    if (value := getattr(row, field)) != usual
                ]
    return found


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
        "outliers": [outlier._asdict() for outlier in outliers(rows)],
        "rows": [row._asdict() for row in rows],
        "no_longer_there": [row.target for row in gone],
    }


def findings_of(rows: Iterable[SurveyRow]) -> dict[str, int]:
    """How many models have each finding, in the order of the codes, the worst severity first."""
    counted = Counter(code for row in rows for code in (*row.problems, *row.notes.split()))
    known = [code for code in CODES if code in counted]
    return {code: counted[code] for code in [*known, *sorted(counted.keys() - set(known))]}
