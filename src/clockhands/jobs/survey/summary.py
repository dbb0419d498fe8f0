"""A survey in one sentence and as JSON: how many models are correct, the findings in the others, and outliers."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
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

_SMALLEST_GROUP = 10
_USUAL = 0.9  # the share of a group that has the usual value
_RARE = 0.02  # and the largest share that has the value of an outlier, or one model: more are another kind of model


class Outlier(NamedTuple):
    """A model that differs from nearly all models of its folder, type, encoding and head width.

    Attributes:
        target: The model.
        field: In what it differs: ``base``, ``scaling`` or ``context length``.
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
        return f"{name} differs from its group, in {self.field}: {value}; {self.share:,} of {group} have {usual}."


def outliers(rows: Iterable[SurveyRow]) -> list[Outlier]:
    """The models with a rare value where nine of ten of their group agree, in groups of ten or more."""
    groups: defaultdict[tuple[object, ...], list[SurveyRow]] = defaultdict(list)
    for row in rows:
        if row.state == "done":
            groups[os.path.dirname(row.target), row.model_type, row.kinds, row.head_width].append(row)
    found = []
    for group in groups.values():
        for field, value_of in _COMPARED.items() if len(group) >= _SMALLEST_GROUP else ():
            counted = Counter(map(value_of, group))
            usual, share = counted.most_common(1)[0]
            if usual is not None and share >= _USUAL * len(group):
                found += [
                    Outlier(row.target, field, value, usual, row.model_type, len(group), share)
                    for row in group
                    if counted[value := value_of(row)] <= max(1, _RARE * len(group))
                ]
    return found


def _scaling_of(row: SurveyRow) -> str:
    return row.scaling + (f" by {row.factor:,.10g}" if row.scaling and row.factor is not None else "")


_COMPARED: dict[str, Callable[[SurveyRow], Any]] = {
    "base": lambda row: row.base,
    "scaling": _scaling_of,
    "context length": lambda row: row.context,
}


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
