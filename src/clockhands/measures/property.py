"""The result of measuring one property of a code: whether it holds, its numbers, a short answer and a sentence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec

from clockhands.measures.subject import MeasuredCode

State = Literal["measured", "not applicable", "not computed"]


QUESTIONS = {
    "bounded": "Do the values of the encoding stay bounded for any text length?",
    "unique": "Is every position unique in this dtype?",
    "smooth": "Is the step from one position to the next small, and equally large at every position?",
    "longer_texts": "Is the encoding defined past the length, with only values that occurred within the length?",
    "shift": "Does shifting by k tokens apply the same rotation at every position?",
    "kernel": "How does the similarity of two positions depend on their distance?",
    "turning": "Which dimension pairs never complete a rotation within the length?",
    "cover": "Is every distance resolved: does some pair complete 1/8 to 1/2 of a rotation within this distance?",
    "base_bound": "With equal weight in every pair, does a matching token score above a random token in the mean at "
    "every distance (Men et al. 2024)?",
    "critical_dimension": "How many dimensions complete a rotation in training (Liu et al. 2023)?",
    "spectrum": "How many directions of the embedding space does the encoding use?",
    "precision": "How large are the angle errors when angles are computed in this dtype?",
    "adding": "Can the token still be identified after the encoding is added?",
    "reach": "How far back does each head look?",
    "edges": "At which distance does each bucket of the bias begin?",
    "told_apart": "Does the bias of every head distinguish all distances?",
}
"""Each property as the question that it answers, in the order of reports."""

SHORT = {
    "bounded": "values bounded",
    "unique": "positions unique",
    "smooth": "small, even steps",
    "longer_texts": "past the length",
    "shift": "a shift is one rotation",
    "kernel": "similarity by distance",
    "turning": "incomplete rotations",
    "cover": "distances resolved",
    "base_bound": "matching token wins",
    "critical_dimension": "dims fully rotated",
    "spectrum": "directions used",
    "precision": "largest rounding error",
    "adding": "token still found",
    "reach": "reach of the heads",
    "edges": "buckets begin at",
    "told_apart": "distances distinct",
}
"""Each property in the few words that fit the head of a column."""


@dataclass(frozen=True)
class Property:
    """The result of measuring one property.

    Attributes:
        state: ``"measured"``; ``"not applicable"`` if the question makes no sense for the code; ``"not computed"`` if
            it does, but something is missing or would take too long. ``says`` has the reason.
        holds: The answer, if the question is a yes-or-no question.
        brief: The answer in a few words, for a cell of a table.
        says: The answer in one or two sentences, with its numbers.
        numbers: The figures by name: plain JSON values.
    """

    state: State
    holds: bool | None
    brief: str
    says: str
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """The property as JSON values."""
        return {**vars(self), "numbers": dict(self.numbers)}


def measured(brief: str, says: str, *, holds: bool | None = None, **numbers: Any) -> Property:
    """A property that was measured."""
    return Property("measured", holds, brief, says, numbers)


def not_applicable(why: str) -> Property:
    """A property that makes no sense for a code, and why."""
    return Property("not applicable", None, "not applicable", why)


def not_computed(why: str, **numbers: Any) -> Property:
    """A property that makes sense for a code but was not computed, and why."""
    return Property("not computed", None, "not computed", why, numbers)


class Unanswered(Exception):
    """Raised inside a measure instead of returning a number: holds the property that says why there is none."""

    def __init__(self, answer: Property) -> None:
        super().__init__(answer.says)
        self.answer = answer


_Given = ParamSpec("_Given")
_Measure = Callable[Concatenate[MeasuredCode, _Given], Property]


def measure(**senseless: str) -> Callable[[_Measure[_Given]], _Measure[_Given]]:
    """Decorator: turns a function of a subject into a measure, which gives an answer for every code.

    Args:
        senseless: For each kind of code (`MeasuredCode.kind`) to which the question does not apply, the reason.
    """

    def made(function: _Measure[_Given]) -> _Measure[_Given]:
        @wraps(function)
        def answered(subject: MeasuredCode, *given: _Given.args, **named: _Given.kwargs) -> Property:
            if subject.kind in senseless:
                return not_applicable(senseless[subject.kind])
            try:
                return function(subject, *given, **named)
            except Unanswered as reason:
                return reason.answer

        return answered

    return made


def said(number: float) -> str:
    """A number as text: commas between thousands, three digits for small numbers.

    >>> said(8192), said(438001.27), said(0.0123456), said(12.5)
    ('8,192', '438,001', '0.0123', '12.5')
    """
    return f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:.3g}"


def percent(share: float) -> str:
    """A share as text: 0% and 100% are only written if they are exact.

    >>> percent(0.3829), percent(0.00001), percent(0.99999), percent(1.0)
    ('38.3%', 'under 0.1%', 'over 99.9%', '100%')
    """
    if share in (0, 1):
        return f"{share:.0%}"
    return "under 0.1%" if share < 1e-3 else "over 99.9%" if share > 0.999 else f"{share:.1%}"
