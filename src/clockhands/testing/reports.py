"""`Report`, the result of a check: the failed experiments, and explanations of the failures."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.faults import FAULTS

WIDTH = 88
"""Columns of a report as text, which stands behind pytest's margin."""

UNDECIDED = "; the check cannot tell which of these faults it is"
"""The end of a message that names several faults with the same answers."""

BESIDE = frozenset({"arguments stay as they are", "answers stay as they are"})
"""What is noticed of a function beside every experiment."""

_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NUMBERED = re.compile(r"(\b(?:positions?|dimensions?|pairs?|layers?)) (?=\d)")
_SHOWN = 3  # failures whose evidence is told; the rest says the same with other numbers
_UNKNOWN = "Look at the first wrong number, and at the experiments that passed."
_OTHER_CODE = "If the function computes another known encoding, `clockhands identify` names that encoding."
_NAMED = 12  # experiments that passed and are named
# What a fault is said of; anything else is a function.
_SUBJECTS = {"module": "the module", "generation": "the model"}


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
class ReportLine:
    """One line of a report, before it is broken to a width.

    Attributes:
        style: What it is: ``sound``, ``failed``, ``explanation``, ``hint``, ``heading``, ``evidence`` or ``rest``.
        text: What it says.
        indent: Columns before it.
    """

    style: str = ""
    text: str = ""
    indent: int = 0

    def wrapped(self, width: int = WIDTH) -> str:
        """The line broken between words, never between `position` and its number; further lines stand further in."""
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

    def without(self, codes: Iterable[str]) -> "Report":
        """The same report without some faults, and without the failures that only they explain.

        An explanation of several faults that no experiment told apart is left out if all of them are.
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
            if not names <= BESIDE:  # what gives the same answers gives them in every experiment
                names = {failure.experiment for failure in self.failures} - BESIDE
        return frozenset(names)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
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
        """What there is to read, in the order in which it helps: what it is like, what to do, the evidence, the rest.

        Args:
            verbose: All evidence, and why each experiment was left out.
        """
        if self.sound:
            yield ReportLine("sound", f"{self.subject} is correct: {self.like}.")
            yield ReportLine("rest", self._made())
        else:
            yield ReportLine("failed", f"{self.subject} is wrong; expected {self.like}.")
            for number, explanation in enumerate(self.explanations):
                yield ReportLine()
                yield from _explained(explanation, _SUBJECTS.get(self.kind, "the function"), also=number > 0)
            if not self.explanations:
                yield ReportLine()
                yield ReportLine("explanation", "No known fault has these symptoms.")
                other = f" {_OTHER_CODE}" if self.kind in {"rotary", "additive"} else ""
                yield ReportLine("hint", f"hint: {_UNKNOWN}{other}", 2)
            yield ReportLine()
            yield from self._evidence(verbose)
        yield from self._left_out(verbose)

    def _made(self) -> str:
        """What was done, where nothing failed."""
        # An error of NaN is never sound, so this is a number.
        made = f"{_counted(len(self.experiments), 'experiment')}{self._way()}"
        return f"{made}; the largest error is {100 * self.worst:.2g} % of the rounding bound."

    def _way(self) -> str:
        """How it was called, in words."""
        calls, rows = self.called.get("calls"), self.called.get("rows")
        said = [f" in {calls:,} calls"] if calls else []
        if calls and rows:
            said.append(f" with {rows:,} tokens")
        with_what = [str(self.called[name]) for name in ("library", "dtype") if self.called.get(name)]
        return "".join(said) + (f" ({', '.join(with_what)})" if with_what else "")

    def _evidence(self, verbose: bool) -> Iterator[ReportLine]:
        telling = {FAULTS[code].shown_by for code in self.codes if code in FAULTS}
        # The experiment that separates the fault from being right comes first.
        ordered = sorted(
            self.failures,
            key=lambda failure: (failure.experiment not in telling, failure.experiment != "every position"),
        )
        shown = ordered if verbose else ordered[:_SHOWN]
        # What is noticed beside an experiment, such as a changed argument, counts as one.
        made = len(self.experiments) + sum(failure.experiment not in self.experiments for failure in self.failures)
        yield ReportLine("heading", f"Failed, {len(self.failures)} of {_counted(made, 'experiment')}:")
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
        """What was not asked; for what can be asked, how."""
        ways: dict[str, list[str]] = {}
        others = 0
        for name, why in self.left_out.items():
            if verbose or why.startswith("pass "):
                ways.setdefault(why, []).append(name)
            else:
                others += 1
        for why, names in ways.items():
            yield ReportLine("rest", f"Skipped: {_listed(names)} ({why.removesuffix('.')}).")
        if others:
            more = f"{others} more" if ways else _counted(others, "experiment")
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
    """The check found that it is not what it should be.

    Attributes:
        report: What was found.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report

    def __reduce__(self) -> tuple[type["CheckFailed"], tuple[Report]]:
        # Made again of the report; its message alone would not do.
        return type(self), (self.report,)


# What a person reads in a traceback is where they can import it from.
CheckFailed.__module__ = "clockhands.testing"


class CannotCheck(InvalidValue):
    """It cannot be called in the way that a check calls it; the message says what was tried and what came back."""


CannotCheck.__module__ = "clockhands.testing"


def settled(report: Report, raises: bool) -> Report:
    """The report, unless it has failures and shall be raised."""
    __tracebackhide__ = True
    if raises and not report.sound:
        raise CheckFailed(report)
    return report


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _as_json(value: Any) -> Any:
    """A value that strict JSON holds."""
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
