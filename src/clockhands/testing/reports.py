"""What a check found: which experiments failed, and what the failure looks like in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue


@dataclass(frozen=True)
class Failure:
    """An experiment whose answers are not those of the code.

    Attributes:
        experiment: Its name.
        message: What was asked and what came back, with the numbers.
        evidence: The numbers.
    """

    experiment: str
    message: str
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Explanation:
    """What the failures look like: a known fault that gives the same answers.

    Attributes:
        codes: The fault, or all those that no experiment told apart.
        message: What it behaves like.
        hint: What to do.
        cases: Where it was met in public.
        evidence: The parameters of the fault and what was measured.
        where: The module or the layer, where it is one of several.
    """

    codes: tuple[str, ...]
    message: str
    hint: str
    cases: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)
    where: str | None = None


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        subject: What was checked.
        kind: ``"rotary"``, ``"additive"``, ``"bias"``, ``"module"`` or ``"generation"``.
        like: The code that it should be, in words.
        experiments: Those that were made.
        left_out: Those that could not be made, and why.
        failures: Those that failed.
        explanations: What the failures look like, the best one first; empty where nothing known fits.
        called: How it was called: the library, the dtype of its numbers, the calls and rows.
        worst: The largest error as a share of what rounding explains: at most 1 where it is sound.
        spec: The code that it should be, if one was named.
    """

    subject: str
    kind: str
    like: str
    experiments: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict, hash=False)
    failures: tuple[Failure, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    called: Mapping[str, Any] = field(default_factory=dict, hash=False)
    worst: float = 0.0
    spec: Any = None

    @property
    def sound(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def codes(self) -> frozenset[str]:
        """The faults that it looks like."""
        return frozenset(code for explanation in self.explanations for code in explanation.codes)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "like": self.like,
            "sound": self.sound,
            "worst": _plain(self.worst),
            "experiments": list(self.experiments),
            "left_out": dict(self.left_out),
            "failures": [
                {"experiment": one.experiment, "message": one.message, "evidence": _plain(one.evidence)}
                for one in self.failures
            ],
            "explanations": [
                {
                    "codes": list(one.codes),
                    "message": one.message,
                    "hint": one.hint,
                    "cases": list(one.cases),
                    "evidence": _plain(one.evidence),
                    "where": one.where,
                }
                for one in self.explanations
            ],
            "called": _plain(self.called),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        if self.sound:
            # An error of NaN is never sound, so this is a number.
            yield (
                f"{self.subject} is {self.like}: {_counted(len(self.experiments), 'experiment')}, the largest error is "
                f"{self.worst:.2g} of what rounding explains."
            )
        else:
            yield f"{self.subject} is not {self.like}."
            for number, explanation in enumerate(self.explanations):
                yield ""
                lead = "It" if number == 0 else "Also, it"
                place = f"{explanation.where}: it" if explanation.where else lead
                yield f"{place} {explanation.message}"
                yield f"  [{' | '.join(explanation.codes)}]"
                yield f"  hint: {explanation.hint}"
                if explanation.cases:
                    yield f"  met before: {', '.join(explanation.cases)}"
            if not self.explanations:
                yield ""
                yield "No fault that is known gives these answers."
            yield ""
            yield f"What failed ({len(self.failures)} of {_counted(len(self.experiments), 'experiment')}):"
            for failure in self.failures:
                yield f"  {failure.experiment}: {failure.message}"
        if self.left_out:
            yield ""
            yield "Not asked:"
            for name, why in self.left_out.items():
                yield f"  {name}: {why}"


class CheckFailed(AssertionError):
    """The check found that it is not what it should be.

    Attributes:
        report: What was found.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


class CannotCheck(InvalidValue):
    """It cannot be called in the way that a check calls it; the message says what was tried and what came back."""


def settled(report: Report, raises: bool) -> Report:
    """The report, unless it has failures and shall be raised.

    Raises:
        CheckFailed: Something failed, and ``raises``.
    """
    __tracebackhide__ = True
    if raises and not report.sound:
        raise CheckFailed(report)
    return report


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _plain(value: Any) -> Any:
    """A value that strict JSON holds."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)
