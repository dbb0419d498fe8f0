"""Experiments: inputs, expected outputs and error bounds; running them, and collecting the failures."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.arguments import shown
from clockhands.calling import ForeignFunction, Refused, error_text
from clockhands.errors import InvalidType
from clockhands.specs import describe
from clockhands.testing.kinds import spec_of
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report, settled


class Unasked(Exception):
    """The experiment cannot be made with this implementation; the message says why."""


@dataclass(frozen=True)
class Answer:
    """One answer of an implementation.

    Attributes:
        asked: What was asked, in words.
        got: What came back, [..., rows, channels].
        wanted: What is right, of the same shape.
        allowed: How far it may be off; broadcasts.
        positions: Where the rows stand; broadcasts to the shape without channels, or None.
    """

    asked: str
    got: np.ndarray
    wanted: np.ndarray
    allowed: np.ndarray
    positions: np.ndarray | None = None

    @property
    def shares(self) -> np.ndarray:
        """Each error as a share of what is allowed: infinite where nothing is, and where a number is NaN."""
        return shares(self.got, self.wanted, self.allowed)


@dataclass(frozen=True)
class Experiment:
    """Something that can be asked of every implementation of a kind.

    Attributes:
        name: What it is called by; the law that it asks, where it is one.
        asks: What it asks, one sentence.
        run: Asks an implementation; raises `Unasked` where that cannot be.
        needed: Whether nothing can be said without it.
    """

    name: str
    asks: str
    run: Callable[[Any], list[Answer]]
    needed: bool = False


def experiment(name: str, run: Callable[[Any], list[Any]], asks: str = "", *, needed: bool = False) -> Experiment:
    """An experiment that asks what is said, or what the first line of its function says."""
    return Experiment(name, asks or (run.__doc__ or "").partition("\n")[0], run, needed)


def shares(got: np.ndarray, wanted: np.ndarray, allowed: Any) -> np.ndarray:
    """``|got - wanted| / allowed``; 0 where they are equal, infinite where nothing is allowed or a number is NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        off = np.abs(got - wanted)
        share = np.where(got == wanted, 0.0, off / allowed)
    return np.where(np.isnan(share), np.inf, share)


@dataclass(frozen=True)
class Asked:
    """An experiment that was made, and what came back."""

    experiment: Experiment
    answers: Sequence[Answer]

    @cached_property
    def wrong(self) -> bool:
        """Whether some number is further off than rounding explains."""
        return any(bool((each.shares > 1).any()) for each in self.answers)


def failed_of(asked: Iterable[Asked]) -> dict[str, Asked]:
    """The experiments that failed, by their names."""
    return {one.experiment.name: one for one in asked if one.wrong}


# What tells dtypes apart (bfloat16 holds whole numbers up to 256, float16 up to 2,048), and powers of two, at which no
# whole number is rounded.
TELLING = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 64, 127, 128, 255, 256, 257, 259, 401, 511, 512, 1001, 1024, 2049)
ROWS = 40
# Numbers that are held at once for one that is asked: tokens, answers, what is right, what is allowed, on the way too.
COPIES = 8
TELLING_FAR = (2051, 2048, 4095, 4096, 4097, 7001, 8191, 8192, 16384, 30011, 32768, 65536, 99991, 131071)


def telling(length: int) -> np.ndarray:
    """40 positions below a length at which roundings show, in order; fewer where there are fewer.

    Always as many: libraries that compile do so for each number of rows.
    """
    found = {place for place in (*TELLING, *TELLING_FAR, length - 1) if 0 <= place < length}
    others = (place for place in range(length) if place not in found)
    return np.array(sorted(found | set(itertools.islice(others, max(ROWS - len(found), 0)))))


FailureOf = Callable[[Experiment, Answer], Failure | None]


def resolved(like: Any, kind: type, words: str) -> Any:
    """The spec that is meant: itself, or a preset by its name with fields."""
    if like is None:
        raise InvalidType(
            "`like` is missing: the encoding that the function should compute.",
            f"Give a {words} spec, or a preset's name.",
        )
    spec: Any = spec_of(like)
    if not isinstance(spec, kind):
        what = shown(spec)
        if hasattr(spec, "__dataclass_fields__"):
            what = f"{type(spec).__name__} ({describe(spec)})"
        raise InvalidType(
            f"`like` must be {'an' if words[0] in 'aeiou' else 'a'} {words} encoding, got {what}.",
            "check_rotary, check_additive and check_bias each check one kind.",
        )
    return spec


def asked_all(it: Any, experiments: Iterable[Experiment]) -> tuple[list[Asked], dict[str, str]]:
    """Make experiments; those that cannot be made are left out, with the reason."""
    asked: list[Asked] = []
    left_out: dict[str, str] = {}
    for experiment in experiments:
        try:
            asked.append(Asked(experiment, experiment.run(it)))
        except Unasked as reason:
            left_out[experiment.name] = str(reason)
        except Refused as error:
            if experiment.needed:
                raise CannotCheck(
                    f"{_first_upper(experiment.asks)} But the function failed: {error}.",
                    f"Pass length= for a function of fewer than {it.length:,} positions.",
                ) from error.__cause__
            left_out[experiment.name] = str(error)
    return asked, left_out


def failures_of(
    asked: Sequence[Asked], called: ForeignFunction | None, failure_of: FailureOf | None = None
) -> tuple[tuple[Failure, ...], float]:
    """What failed, one for each experiment, and the largest error as a share of its bound."""
    failure_of = failure_of or _failure
    failures: list[Failure] = []
    worst = 0.0
    for one in asked:
        found = [failure for failure in (failure_of(one.experiment, each) for each in one.answers) if failure]
        worst = max([worst, *(float(each.shares.max(initial=0)) for each in one.answers)])
        failures += found[:1]
    if called is not None and (names := sorted(called.changed)):
        failures.append(
            Failure("arguments stay as they are", f"it changed {' and '.join(names)}.", {"changed": tuple(names)})
        )
    if called is not None and called.overwrites:
        failures.append(Failure("answers stay as they are", "a call changed the array that an earlier one returned."))
    return tuple(failures), worst


def _failure(experiment: Experiment, answer: Answer) -> Failure | None:
    over = answer.shares
    if not over.size or over.max() <= 1:
        return None
    wrong = over > 1
    place = np.unravel_index(int(np.argmax(wrong)), over.shape)
    evidence: dict[str, Any] = {
        "asked": answer.asked,
        "got": float(answer.got[place]),
        "right": float(answer.wanted[place]),
        "allowed": float(np.broadcast_to(answer.allowed, over.shape)[place]),
        "channel": int(place[-1]),
        "wrong": int(wrong.sum()),
        "of": int(wrong.size),
        "largest error": float(np.nanmax(np.abs(answer.got - answer.wanted)))
        if np.isfinite(answer.got).any()
        else None,
    }
    where = f"dimension {place[-1]}"
    if answer.positions is not None:
        rows = np.broadcast_to(answer.positions, over.shape[:-1])
        first = rows[wrong.any(axis=-1)].min()
        evidence["first wrong position"] = int(first)
        evidence["position"] = int(rows[place[:-1]])
        where = f"position {rows[place[:-1]]:,}, {where}"
    message = (
        f"{answer.asked}: {evidence['wrong']:,} of {evidence['of']:,} numbers are wrong; at {where}, expected "
        f"{_within(evidence['right'], evidence['allowed'])}, got {evidence['got']:.6g}."
    )
    return Failure(experiment.name, message, evidence)


def _within(right: float, allowed: float) -> str:
    return f"{right:.6g} ± {allowed:.2g}" if allowed else f"exactly {right:.6g}"


def named(fn: Callable[..., Any] | None, make: Callable[..., Any] | None) -> str:
    """What to call somebody's function."""
    subject: Any = fn if make is None else make
    while isinstance(subject, functools.partial):
        subject = subject.func
    name = str(getattr(subject, "__qualname__", None) or type(subject).__name__).rpartition("<locals>.")[2]
    if name != "<lambda>":
        return name
    code = getattr(inspect.unwrap(subject), "__code__", None)
    return "lambda" if code is None else f"lambda at {Path(code.co_filename).name}:{code.co_firstlineno}"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def function_of(
    fn: Callable[..., Any] | None, make: Callable[[Any], Callable[..., Any]] | None, spec: Any
) -> Callable[..., Any]:
    """The function that is to be checked: the one given, or what the builder builds."""
    if fn is not None:
        return fn
    if make is None:
        raise InvalidType("Neither a function nor make= was passed.", "Pass the function to check.")
    return made(make, spec)


def checked(
    kind: str,
    subject: str,
    it: Any,
    experiments: Iterable[Experiment],
    explained: Callable[[list[Asked]], tuple[Explanation, ...]],
    *,
    raises: bool,
    failure_of: FailureOf | None = None,
    summary: Callable[[list[Asked]], Mapping[str, Any]] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Report:
    """Make the experiments with a user's function, explain what fails, and report or raise it.

    Args:
        kind: Of the code.
        subject: What to call the function.
        it: The function under experiment.
        experiments: What it is asked.
        explained: What failures look like.
        raises: Whether a failure is raised.
        failure_of: See `failures_of`.
        summary: What else the report says of how it was called.
        left_out: Experiments that cannot be made, and why.
    """
    __tracebackhide__ = True
    asked, refused = asked_all(it, experiments)
    called: ForeignFunction = it.called
    failures, worst = failures_of(asked, called, failure_of)
    report = Report(
        subject=subject,
        kind=kind,
        like=describe(it.spec),
        experiments=tuple(one.experiment.name for one in asked),
        left_out={**refused, **(left_out or {})},
        failures=failures,
        called={**called.summary, **(summary(asked) if summary else {})},
        worst=worst,
        spec=it.spec,
    )
    return settled(report if report.sound else replace(report, explanations=explained(asked)), raises)


def made(make: Callable[[Any], Any], spec: Any) -> Callable[..., Any]:
    """What a builder builds for a spec."""
    try:
        built = make(spec)
    except Exception as error:
        raise CannotCheck(
            f"make= was called with {describe(spec)}: it raised {error_text(error)}.",
            "Give a function(spec) that builds the function to be checked, for any spec of this kind.",
        ) from error
    if not callable(built):
        raise CannotCheck(
            f"make= was called with {describe(spec)}: it returned {shown(built)}, which cannot be called.",
            "Give a function(spec) that returns the function to be checked.",
        )
    return built
