"""The result of measuring one property of a code: whether it holds, its numbers, a short answer and a sentence."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any, Concatenate, Literal, ParamSpec

from clockhands.measures.subject import MeasuredCode
from clockhands.packaged import packaged
from clockhands.phrases import filled

_NONE: Mapping[str, Any] = MappingProxyType({})

State = Literal["measured", "not applicable", "not computed"]


_SENTENCES = packaged(__file__, "sentences.toml")

QUESTIONS: Mapping[str, str] = {name: table["question"] for name, table in _SENTENCES.items()}
"""Each property as the question that it answers, in the order of reports."""

SHORT: Mapping[str, str] = {name: table["in_short"] for name, table in _SENTENCES.items()}
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


def sentence(name: str, **values: Any) -> str:
    """A sentence of `sentences.toml` with values; the name is that of its table and its key, ``"turning.still"``."""
    found: Any = _SENTENCES
    for part in name.split("."):
        found = found.get(part, "") if part == "says" else found[part]
    return filled(found, values)


def answer(
    case: str, *more: str, holds: bool | None = None, words: Mapping[str, Any] = _NONE, **numbers: Any
) -> Property:
    """A property that was measured, told by a case of `sentences.toml`: its ``brief`` and, if any, what it ``says``.

    Args:
        case: The table of the case, such as ``"bounded.grows"``.
        more: Sentences that follow; empty ones are left out.
        holds: The answer to a yes-or-no question.
        words: Values of the templates beside the numbers.
        numbers: The figures.
    """
    values = {**numbers, **words}
    says = " ".join(filter(None, [sentence(f"{case}.says", **values), *more]))
    return Property("measured", holds, sentence(f"{case}.brief", **values), says, numbers)


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


def measure(function: _Measure[_Given]) -> _Measure[_Given]:
    """Decorator: turns a function of a subject into a measure, which gives an answer for every code.

    ``senseless`` in the property's table of `sentences.toml` has, for each kind of code (`MeasuredCode.kind`) to which
    the question does not apply, the reason.
    """

    @wraps(function)
    def answered(subject: MeasuredCode, *given: _Given.args, **named: _Given.kwargs) -> Property:
        senseless = _SENTENCES[function.__name__].get("senseless", {})
        if subject.kind in senseless:
            return not_applicable(senseless[subject.kind])
        try:
            return function(subject, *given, **named)
        except Unanswered as reason:
            return reason.answer

    return answered
