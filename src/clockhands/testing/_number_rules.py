"""Functions that are checked without an encoding: their arguments say what they compute, and few rules are right.

Such a function is called with a few inputs, and each rule is tried on all of them: the published ones, and those of
known faults. A verdict is given only where one of them gives every number.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from clockhands.phrases import filled, listed
from clockhands.recognition.calling import ForeignFunction, Refused, TimedOut
from clockhands.recognition.faults import FAULTS
from clockhands.testing.reports import UNDECIDED, CannotCheck, Explanation, Failure, Report

T = TypeVar("T")
OTHERWISE = "If it computes something else, name what is expected: --like PRESET, --like path/to/model, or --kind."

_WAYS = 6  # in which a function may be called although no rule fits; further ones would fit no better


@dataclass(frozen=True)
class InputNumbers:
    """An input, and the numbers that the function returned for it.

    Attributes:
        name: The name of the experiment.
        given: The input.
        got: The numbers.
    """

    name: str
    given: Any
    got: np.ndarray


@dataclass(frozen=True)
class NumberRule:
    """A rule by which the numbers may be computed.

    Attributes:
        numbers: The numbers of an input; NaN where any number will do.
        words: A description of the rule, if it is a right one.
        code: The code of a fault, or empty for a right rule.
        parameters: The parameters of its sentence.
        right: What a fault should give, if not the numbers of the first right rule.
    """

    numbers: Callable[[Any], np.ndarray]
    words: str = ""
    code: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    right: "NumberRule | None" = None

    def gives(self, asked: Sequence[InputNumbers], error: float) -> bool:
        """Whether it gives all numbers, within a share of the largest one."""
        return all(not wrong_numbers(each.got, self.numbers(each.given), error).any() for each in asked)

    def open_numbers(self, asked: Sequence[InputNumbers]) -> int:
        """How many numbers it leaves open."""
        return sum(int(np.isnan(self.numbers(each.given)).sum()) for each in asked)


def wrong_numbers(got: np.ndarray, wanted: np.ndarray, error: float) -> np.ndarray:
    """Which numbers differ by more than a share of the largest one; all of them if the shape does."""
    if got.shape != wanted.shape:
        return np.ones(got.shape, bool)
    largest = np.nanmax(np.abs(wanted), initial=0.0)
    with np.errstate(invalid="ignore"):
        return ~((np.abs(got - wanted) <= error * largest) | np.isnan(wanted))


class NamedCall(ForeignFunction):
    """A user's function that is called with arguments by their names.

    Attributes:
        takes: What each of its parameters means: a word of the table of names.
    """

    def __init__(self, function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> None:
        """Take what its parameters mean."""
        super().__init__(function, "", timeout)
        self.takes: Mapping[str, str] = takes
        self.backend: Any = backend  # once a call succeeded, the library of that call

    def unknown_numbers(self) -> str:
        """Numbers among its parameters, with a default, that no known rule has, such as ``padding_idx=1``."""
        parameters = inspect.signature(getattr(self.function, "forward", self.function)).parameters.values()
        numbers = [
            f"{one.name}={one.default!r}"
            for one in parameters
            if one.name not in self.takes and isinstance(one.default, int | float) and not isinstance(one.default, bool)
        ]
        return f" (what {', '.join(numbers)} means is not known)" if numbers else ""

    def answer(self, given: Mapping[str, Any], rows: int, read: Callable[[Any], np.ndarray]) -> np.ndarray:
        """What it returns for these values of words, as an array that ``read`` makes of it.

        Raises:
            Refused: It raised or returned something else, with every library.
        """
        found: list[np.ndarray] = []

        def attempt() -> None:
            held = {name: self._held(given[word]) for name, word in self.takes.items()}
            found.append(read(self.ask(held, rows, tuple(held))))

        tried = self.find_library(self.backend, attempt)
        if not found:
            raise tried[0][1]
        self.backend = self.library.module or self.library.name
        return found[-1]

    def _held(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype.kind == "b":
            return self.library.booleans(value)
        return self.library.positions(value) if value.dtype.kind in "iu" else self.library.floats(value, "float32")


def named_parameters(
    function: Callable[..., Any], known: Mapping[str, str], enough: Iterable[Iterable[str]]
) -> dict[str, str] | None:
    """What each parameter means, by its name; those with a default may be unknown.

    None if another is not known, or if all quantities of none of the groups of ``enough`` are there.
    """
    try:
        parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [one for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}]
    takes = {one.name: known[one.name] for one in named if one.name in known}
    unknown = [one for one in named if one.name not in known and one.default is one.empty]
    words = {*takes.values()}
    there = len(words) == len(takes) and any(words >= {*group} for group in enough)
    return takes if there and not unknown else None


def judged(
    subject: str,
    kind: str,
    asked: Sequence[InputNumbers],
    readings: Iterable[NumberRule],
    called: NamedCall,
    *,
    error: float = 0.0,
) -> Report:
    """The report by the rule that gives all numbers: a right one, or that of a fault.

    Raises:
        CannotCheck: No rule gives them.
    """
    every = list(readings)
    # A rule that says every number comes before one that leaves some of them open.
    fits = sorted((each for each in every if each.gives(asked, error)), key=lambda each: each.open_numbers(asked))
    is_right = bool(fits) and not fits[0].code
    right = fits[0] if is_right else (fits[0].right if fits else None) or next(each for each in every if not each.code)
    numbers = "" if is_right else called.unknown_numbers()
    if not fits or numbers:
        raise CannotCheck(
            f"The numbers are those of no known rule{numbers}; expected {right.words}: "
            f"{_differs(asked, right, error)[0].message}",
            OTHERWISE,
        )
    failures = [] if is_right else _differs(asked, right, error)
    names = tuple(each.name for each in asked)
    summary = {**called.summary, "expected_from": "the names of its parameters"}
    report = Report(subject, kind, right.words, names, {}, tuple(failures), called=summary)
    return report if is_right else _explained(report, [each for each in fits if each.code])


def _explained(report: Report, fits: Sequence[NumberRule]) -> Report:
    told = list(dict.fromkeys(filled(FAULTS[each.code].sentence, each.parameters) for each in fits))
    fault = FAULTS[fits[0].code]
    message = f"{told[0]}." if len(told) == 1 else f"{listed(told, 'or')}{UNDECIDED}."
    codes = tuple(dict.fromkeys(each.code for each in fits))
    explanation = Explanation(codes, message, fault.hint, fault.cases, dict(fits[0].parameters))
    return replace(report, explanations=(explanation,))


def _differs(asked: Sequence[InputNumbers], right: NumberRule, error: float) -> list[Failure]:
    """The inputs with other numbers than those of a rule."""
    found = []
    for each in asked:
        wanted = right.numbers(each.given)
        wrong = wrong_numbers(each.got, wanted, error)
        if not wrong.any():
            continue
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        if wanted.shape != each.got.shape:
            found.append(Failure(each.name, f"it returned numbers of shape {list(each.got.shape)}."))
            continue
        got, right_number = float(each.got[place]), float(wanted[place])
        message = (
            f"{int(wrong.sum()):,} of {wrong.size:,} numbers are wrong; at {list(place)}, expected "
            f"{right_number:.6g}, got {got:.6g}."
        )
        evidence = {"place": place, "right": right_number, "got": got, "wrong": int(wrong.sum())}
        found.append(Failure(each.name, message, evidence))
    return found


def first_judged(attempts: Iterable[tuple[str, Callable[[], T]]]) -> T:
    """What is made of the first way of calling a function that fits: the report where a known rule gives its numbers.

    Args:
        attempts: Each way in words, and what calls the function and judges it.

    Raises:
        CannotCheck: No way fits: what is said of the first in which it can be called, or else why it cannot.
    """
    refused: dict[str, Refused] = {}
    unknown: list[CannotCheck] = []
    for way, attempt in attempts:
        try:
            return attempt()
        except Refused as error:
            refused.setdefault(way, error)
            if isinstance(error, TimedOut):
                break
        except CannotCheck as error:
            unknown.append(error)
            if len(unknown) == _WAYS:
                break
    if unknown:
        raise unknown[0]
    said = "; ".join(f"with {way}: {error}" for way, error in refused.items())
    cause = next((error.__cause__ for error in refused.values()), None)
    raise CannotCheck(f"The function was called {said}.", OTHERWISE) from cause
