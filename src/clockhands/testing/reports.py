"""`Report`, the result of a check: the failed experiments, and explanations of the failures."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.phrases import number_of
from clockhands.recognition.faults import FAULTS

WIDTH = 88
"""Columns of a report as text; pytest indents it further."""

UNDECIDED = "; the check cannot tell which of these faults it is"
"""The end of a message that names several faults with the same answers."""

BESIDE = frozenset({"arguments stay as they are", "answers stay as they are"})
"""Failures that are observed during all experiments and are no experiment themselves."""

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NUMBERED = re.compile(r"(\b(?:positions?|dimensions?|pairs?|layers?)) (?=\d)")
_SHOWN = 3  # failures that are shown in full; further ones usually repeat them with other numbers
_UNKNOWN = "Look at the first wrong number, and at the experiments that passed."
_OTHER_CODE = "If the function computes another known encoding, `clockhands identify` names that encoding."
_NAMED = 12  # passed experiments that are listed by name
_DECODING = "one token at a time"  # without it, nothing was checked of positions after a cache
# The subject of the explanation sentences; "the function" for all other kinds.
_SUBJECTS = {"module": "the module", "attention": "the module", "generation": "the model"}


@dataclass(frozen=True)
class Failure:
    """A failed experiment.

    Attributes:
        experiment: Its name.
        message: The input, the expected and the actual output, with numbers.
        evidence: The same numbers by name.
    """

    experiment: str
    message: str
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Explanation:
    """An explanation of failures: a known fault that gives the same output.

    Attributes:
        codes: The code of the fault, or the codes of all faults that the experiments could not separate.
        message: What the subject behaves like.
        hint: How to fix it.
        cases: Public projects in which the fault was found.
        evidence: The parameters of the fault, and measured values.
        where: The tensor, module or layer, if it is one of several.
    """

    codes: tuple[str, ...]
    message: str
    hint: str
    cases: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict, hash=False)
    where: str | None = None


@dataclass(frozen=True)
class ReportLine:
    """One line of a report, before it is wrapped.

    Attributes:
        style: The kind: ``sound``, ``failed``, ``explanation``, ``hint``, ``heading``, ``evidence`` or ``rest``.
        text: The text.
        indent: Columns before it.
    """

    style: str = ""
    text: str = ""
    indent: int = 0

    def wrapped(self, width: int = WIDTH) -> str:
        """The line wrapped to a width, never between `position` and its number; later lines are indented more."""
        return textwrap.fill(
            _NUMBERED.sub("\\1\N{NO-BREAK SPACE}", self.text),
            width,
            initial_indent=" " * self.indent,
            subsequent_indent=" " * (self.indent + 2 * bool(self.indent)),
            break_long_words=False,
            break_on_hyphens=False,
        ).replace("\N{NO-BREAK SPACE}", " ")


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        subject: The name of what was checked.
        kind: ``"rotary"``, ``"additive"``, ``"bias"``, ``"module"``, ``"attention"``, ``"generation"`` or
            ``"positions"``.
        like: A description of the expected encoding.
        experiments: The names of the experiments that ran.
        left_out: The names of those that did not run, with the reasons.
        failures: The failed experiments.
        explanations: The faults that explain the failures, the best one first; empty if no known fault fits.
        called: How it was called: the library, the dtype of its numbers, the number of calls and rows.
        worst: The largest error divided by its rounding bound: at most 1 if the report is ``sound``.
        spec: The expected encoding, if one was given.
        pattern: Sentences on what is wrong and what is right, where no known fault explains it and that is known.
        noun: What explanations call the subject, such as "the batch"; by the kind unless given.
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
    pattern: str = ""
    noun: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def codes(self) -> frozenset[str]:
        """The codes of all faults in the explanations."""
        return frozenset(code for explanation in self.explanations for code in explanation.codes)

    def _assumed(self) -> str:
        """Where nothing but the names of parameters says what is expected."""
        if "expected_from" not in self.called:
            return ""
        return " (The names of its parameters say so: if it is meant to compute something else, this is no fault.)"

    def without(self, codes: Iterable[str]) -> "Report":
        """The same report without some faults, and without the failures that only they explain.

        An explanation with several faults that the experiments could not separate is removed only if all of them are.
        """
        ignored = frozenset(codes)
        kept = tuple(one for one in self.explanations if not one.codes or not ignored.issuperset(one.codes))
        left = [one for one in self.explanations if one not in kept]
        names = frozenset().union(*map(self._explained, left)) - frozenset().union(*map(self._explained, kept))
        failures = tuple(failure for failure in self.failures if failure.experiment not in names)
        return replace(self, explanations=kept, failures=failures)

    def _explained(self, explanation: Explanation) -> frozenset[str]:
        """The experiments whose failures an explanation accounts for."""
        names = explanation.evidence.get("explains")
        if names is None:
            names = {FAULTS[code].shown_by for code in explanation.codes if code in FAULTS}
            if not names <= BESIDE:  # a suspect that fits explains every experiment
                names = {failure.experiment for failure in self.failures} - BESIDE
        return frozenset(names)

    def to_dict(self) -> dict[str, Any]:
        """The report as values that JSON can represent; NaN and infinities are strings."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "like": self.like,
            "sound": self.sound,
            "worst": _as_json(self.worst),
            "experiments": list(self.experiments),
            "left_out": dict(self.left_out),
            "failures": [_as_json(vars(one)) for one in self.failures],
            "explanations": [_as_json(vars(one)) for one in self.explanations],
            "called": _as_json(self.called),
        }

    def lines(self, *, verbose: bool = False) -> Iterator[ReportLine]:
        """The lines of the text report: verdict, explanations with hints, evidence, skipped experiments.

        Args:
            verbose: Whether to show all evidence, and why each experiment was skipped.
        """
        if self.sound:
            skipped = self._not_checked()
            part = skipped and (self.kind != "generation" or _DECODING in self.left_out)
            correct = "correct as far as checked" if part else "correct"
            if "other_reading" in self.called:
                correct = "correct in one of two readings of its table"
            yield ReportLine("sound", f"{self.subject} is {correct}: {self.like}.{skipped}")
            yield ReportLine("rest", self._made())
            yield from self._part()
            yield from self._shape()
        else:
            yield ReportLine("failed", f"{self.subject} is wrong; expected {self.like}.{self._assumed()}")
            for number, explanation in enumerate(self.explanations):
                yield ReportLine()
                yield from _explained(
                    explanation, self.noun or _SUBJECTS.get(self.kind, "the function"), also=number > 0
                )
            if not self.explanations:
                yield ReportLine()
                yield ReportLine("explanation", f"No known fault has these symptoms. {self.pattern}".rstrip())
                other = f" {_OTHER_CODE}" if self.kind in {"rotary", "additive"} else ""
                yield ReportLine("hint", f"hint: {_UNKNOWN}{other}", 2)
            yield ReportLine()
            yield from self._evidence(verbose)
            yield from self._shape()
        yield from self._left_out(verbose)

    def _not_checked(self) -> str:
        """The experiments that the verdict names, with the reasons."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.left_out.items():
            if self._in_verdict(why, name):
                reasons.setdefault(why, []).append(name)
        said = [f"{_listed(names)} ({why})" for why, names in reasons.items()]
        return f" Not checked: {'; '.join(said)}." if said else ""

    def _in_verdict(self, why: str, name: str) -> bool:
        """Whether the verdict names what was left out for this reason: a fault may cause it, no argument enables it."""
        if self.sound and name.startswith("positions from "):
            return True
        if self.kind in {"generation", "attention"}:
            return self.sound and not why.startswith("pass ")
        return self.sound and why.startswith(
            (
                "it takes no",
                "it returns no",
                "it returns the sines",
                "no expected",
                "it has none",
                "it has no attention_mask",
            )
        )

    def _made(self) -> str:
        """The number of experiments and the largest error, for a report without failures."""
        # A NaN error is a failure, so `worst` is a number here.
        made = f"{number_of(len(self.experiments), 'experiment')}{self._way()}"
        if self.kind == "positions":  # whole numbers, compared exactly
            return f"{made}; all positions are equal."
        if not self.worst:  # no error was measured, or there is none
            return f"{made}."
        return f"{made}; the largest error is {100 * self.worst:.2g} % of the rounding bound."

    def _way(self) -> str:
        """How the subject was called, as the end of a sentence."""
        calls, rows = self.called.get("calls"), self.called.get("rows")
        said = [f" in {calls:,} calls"] if calls else []
        if calls and rows:
            said.append(f" with {rows:,} tokens")
        with_what = [str(self.called[name]) for name in ("library", "dtype") if self.called.get(name)]
        return "".join(said) + (f" ({', '.join(with_what)})" if with_what else "")

    def _part(self) -> Iterator[ReportLine]:
        """The part of a rank that a correct function has, and those with other positions, for which it is wrong."""
        if others := self.called.get("other_parts"):
            wrong = " or ".join(others)
            yield ReportLine("rest", f"It has the positions of {self.called['part']}, not those of {wrong}.")

    def _shape(self) -> Iterator[ReportLine]:
        """The shape in which a function was called, where several were tried."""
        if "shape" in self.called:
            others = len(self.called["did_not_fit"])
            more = f" {number_of(others, 'other layout')} did not fit." if others else ""
            if "other_reading" in self.called:
                more = f" As {self.called['other_reading']} its numbers differ.{more}"
            yield ReportLine("rest", f"Called as {self.called['shape']}.{more}")

    def _evidence(self, verbose: bool) -> Iterator[ReportLine]:
        telling = {FAULTS[code].shown_by for code in self.codes if code in FAULTS}
        # The experiment that identifies the fault (`shown_by`) comes first, then "every position".
        ordered = sorted(
            self.failures,
            key=lambda failure: (failure.experiment not in telling, failure.experiment != "every position"),
        )
        shown = ordered if verbose else ordered[:_SHOWN]
        # A failure that is not an experiment, such as a changed argument, counts as one.
        made = len(self.experiments) + sum(failure.experiment not in self.experiments for failure in self.failures)
        yield ReportLine(
            "heading", f"Failed, {len({each.experiment for each in self.failures})} of {number_of(made, 'experiment')}:"
        )
        for failure in shown:
            said = "" if failure.message.startswith(failure.experiment) else f"{failure.experiment}: "
            yield ReportLine("evidence", f"{said}{failure.message}", 2)
        if more := [failure.experiment for failure in ordered[len(shown) :]]:
            yield ReportLine("rest", f"and {_listed(more)}.", 2)
        failed = {failure.experiment for failure in self.failures}
        passed = [name for name in dict.fromkeys(self.experiments) if name not in failed]
        named = passed if verbose else passed[:_NAMED]
        more = f" and {len(passed) - len(named)} more" if len(passed) > len(named) else ""
        yield ReportLine("rest", f"Passed: {_listed(named)}{more}." if passed else "Nothing passed.")

    def _left_out(self, verbose: bool) -> Iterator[ReportLine]:
        """The skipped experiments; for those that an argument enables, that argument."""
        ways: dict[str, list[str]] = {}
        others = 0
        for name, why in self.left_out.items():
            if self._in_verdict(why, name):
                continue
            if verbose or why.startswith("pass "):
                ways.setdefault(why, []).append(name)
            else:
                others += 1
        for why, names in ways.items():
            yield ReportLine("rest", f"Skipped: {_listed(names)} ({why.removesuffix('.')}).")
        if others:
            more = f"{others} more" if ways else number_of(others, "experiment")
            yield ReportLine("rest", f"Skipped: {more}; --verbose and report.left_out give the reasons.")

    def __str__(self) -> str:
        return "\n".join(line.wrapped() for line in self.lines())


def _explained(explanation: Explanation, subject: str, *, also: bool) -> Iterator[ReportLine]:
    lead = f"Also, {subject}" if also else f"{subject[:1].upper()}{subject[1:]}"
    place = f"{explanation.where}: {subject}" if explanation.where else lead
    yield ReportLine("explanation", f"{place} {explanation.message}")
    yield ReportLine("hint", f"hint: {explanation.hint}", 2)
    if explanation.cases:
        yield ReportLine("rest", f"seen in: {', '.join(explanation.cases)}", 2)
    if explanation.codes:
        codes = ", ".join(explanation.codes)
        yield ReportLine("rest", f"code: {codes} (clockhands explain {explanation.codes[0]})", 2)


class CheckFailed(AssertionError):
    """A check failed.

    Attributes:
        report: The report of the check.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report

    def __reduce__(self) -> tuple[type["CheckFailed"], tuple[Report]]:
        # Pickle would pass the message to __init__, which takes the report.
        return type(self), (self.report,)


# Tracebacks show the public module, from which users import it.
CheckFailed.__module__ = "clockhands.testing"


class CannotCheck(InvalidValue):
    """The subject cannot be called in the way that the check calls it; the message gives the call and its result."""


CannotCheck.__module__ = "clockhands.testing"


def settled(report: Report, raises: bool) -> Report:
    """The report; raises `CheckFailed` if ``raises`` is true and it has failures."""
    __tracebackhide__ = True
    if raises and not report.sound:
        raise CheckFailed(report)
    return report


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _as_json(value: Any) -> Any:
    """The value converted for strict JSON: NaN and infinities become strings."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [_as_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return _as_json(value.tolist())
    if isinstance(value, np.generic):
        return _as_json(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else _SPECIAL[str(value)]
    return value if value is None or isinstance(value, str | bool | int) else str(value)
