"""A check of a user's function: the encoding that it should compute, the experiments run on it, and the report."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import describe
from clockhands.errors import InvalidType
from clockhands.phrases import shown
from clockhands.recognition.calling import ForeignFunction, Refused, answered, error_text
from clockhands.testing._experiments import Answer, Experiment, ExperimentRun, Unasked
from clockhands.testing.kinds import is_module, spec_of
from clockhands.testing.reports import CannotCheck, Explanation, Failure, Report, settled

# Arrays of the size of the input that are in memory at once: tokens, output, expected output, allowed error, and
# intermediate results. Used to estimate the memory of a check.
COPIES = 8

_BUILDING = 60.0  # seconds in which a function without arguments builds what is checked

FailureOf = Callable[[Experiment, Answer], Failure | None]


def resolved(like: Any, kind: type, words: str) -> Any:
    """The spec: ``like`` itself, or the spec of a preset name with fields. Raises `InvalidType` for another kind."""
    if like is None:
        raise InvalidType(
            "`like` is missing: the encoding that the function should compute.",
            f"Give the spec of an encoding ({words}), or a preset's name.",
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


def run_all(it: Any, experiments: Iterable[Experiment]) -> tuple[list[ExperimentRun], dict[str, str]]:
    """Run the experiments: those that ran, and for each that cannot run its name and the reason."""
    asked: list[ExperimentRun] = []
    left_out: dict[str, str] = {}
    for experiment in experiments:
        try:
            asked.append(ExperimentRun(experiment, experiment.run(it)))
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


TABLE_ROWS = (8192, 4096, 2048, 1024, 512)
"""Usual numbers of positions of a stored table."""


def with_fewer_positions(it: Any, run: Callable[..., Report]) -> Report:
    """The report of a check; of a function that has a table of fewer positions, at these, with what was left out.

    Raises:
        CannotCheck: It fails with fewer too.
    """
    try:
        return run()
    except CannotCheck:
        refused = ""
        for number in (it.length, *(rows for rows in TABLE_ROWS if rows < it.length)):
            try:
                it(it.tokens(1, 1, 1, seed=3), it.at_axes(np.array([number - 1])))
            except Refused as error:
                refused = refused or str(error)
                continue
            if not refused:
                raise
            it.length = it.called.most = number
            return run(left_out={f"positions from {number:,} on": refused})
        raise


def failures_of(
    asked: Sequence[ExperimentRun], called: ForeignFunction | None, failure_of: FailureOf | None = None
) -> tuple[tuple[Failure, ...], float]:
    """The failures, at most one per experiment, and the largest error divided by its bound.

    A function that changes its arguments or overwrites an earlier result adds a failure.
    """
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
    wrong = answer.wrong
    place = np.unravel_index(int(np.argmax(wrong)), over.shape)
    evidence: dict[str, Any] = {
        "asked": answer.asked,
        "got": float(answer.got[place]),
        "right": float(answer.wanted[place]),
        "allowed": float(np.broadcast_to(answer.allowed, over.shape)[place]),
        "channel": int(place[-1]),
        "wrong": int(wrong.sum()),
        "of": int(wrong.size),
        "largest error": float(np.nanmax(answer.off)) if np.isfinite(answer.got).any() else None,
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
    """The name of a user's function or builder in reports; of a lambda its file and line."""
    subject: Any = fn if make is None else make
    while isinstance(subject, functools.partial):
        subject = subject.func
    name = str(getattr(subject, "__qualname__", None) or type(subject).__name__).rpartition("<locals>.")[2]
    if name != "<lambda>":
        return name
    code = getattr(inspect.unwrap(subject), "__code__", None)
    return "lambda" if code is None else f"lambda at {Path(code.co_filename).name}:{code.co_firstlineno}"


def wrapper(head: str, function: Callable[..., Any], known: Mapping[str, str]) -> str:
    """A function to paste, ``head``, that calls a user's one by its own names; what is not ``known`` is left open."""
    name = named(function, None)
    try:
        parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    fixed = [one.name for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}]
    passed = head.partition("(")[2].rstrip(")").split(", ")
    if not name.isidentifier() or {*fixed} <= {*passed}:
        return f"def {head}: return ..."
    given = (f"{each}={known[each] if known.get(each) in passed else '...'}" for each in fixed)
    return f"def {head}: return {name}({', '.join(given)})"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def function_of(
    fn: Callable[..., Any] | None, make: Callable[[Any], Callable[..., Any]] | None, spec: Any
) -> Callable[..., Any]:
    """The function to check: ``fn``, what it builds if it needs no argument, or what ``make`` builds for the spec."""
    if fn is not None:
        return _built(fn, spec) or fn
    if make is None:
        raise InvalidType("Neither a function nor make= was passed.", "Pass the function to check.")
    return made(make, spec)


def _built(fn: Callable[..., Any], spec: Any) -> Callable[..., Any] | None:
    """The function, object or module that ``fn`` returns if called without arguments; else None."""
    if not (inspect.isfunction(fn) or inspect.isclass(fn)):
        return None
    try:
        parameters = inspect.signature(fn).parameters.values()
        if any(one.kind is one.VAR_POSITIONAL for one in parameters):
            return None
        built = answered(fn, _BUILDING) if all(one.default is not one.empty for one in parameters) else None
    except (TypeError, ValueError, Refused):
        return None
    # A rotation has no learned weights: a module with some is attention, or a model.
    weights: Any = getattr(built, "parameters", tuple) if is_module(built) and isinstance(spec, Rotary) else tuple
    if not callable(built) or any(True for _ in weights()):
        return None
    module: Any = built
    return module.eval() if is_module(built) else built  # in training it may drop numbers at random


def checked(
    kind: str,
    subject: str,
    it: Any,
    experiments: Iterable[Experiment],
    explained: Callable[[list[ExperimentRun]], tuple[Explanation, ...]],
    *,
    raises: bool,
    failure_of: FailureOf | None = None,
    summary: Callable[[list[ExperimentRun]], Mapping[str, Any]] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Report:
    """Run the experiments on a user's function, explain the failures, and return or raise the report.

    Args:
        kind: The kind of encoding.
        subject: The name of the function in the report.
        it: The function under test.
        experiments: The experiments to run.
        explained: Returns the explanations of the failures, given the experiments that ran.
        raises: Whether a failure is raised as `CheckFailed`.
        failure_of: The failure of one answer, or None; see `failures_of`.
        summary: Further entries of `Report.called`.
        left_out: Experiments that cannot run, and the reasons.

    Returns:
        The report.
    """
    __tracebackhide__ = True
    asked, refused = run_all(it, experiments)
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
    if not report.sound:
        report = replace(report, explanations=explained(asked))
        if not report.explanations and _draws(it):
            raise CannotCheck(
                "The same call gives other numbers each time: the function draws them at random, as dropout does.",
                "Call eval() on its module before the check; F.dropout is left out with training=self.training alone.",
            )
    return settled(report, raises)


def _draws(it: Any) -> bool:
    """Whether a function of PyTorch gives one call different numbers, and the same ones from the same seed."""
    if it.called.library.name != "torch" or not hasattr(it, "at_axes"):
        return False
    import torch

    answers = []
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2, 2):
            torch.manual_seed(seed)
            with suppress(Refused, Unasked):
                answers.append(it(it.tokens(1, 1, 8, seed=3), it.at_axes(np.arange(8))))
    return len(answers) == 3 and not np.array_equal(*answers[:2]) and np.array_equal(*answers[1:])


def made(make: Callable[[Any], Any], spec: Any) -> Callable[..., Any]:
    """The function that ``make`` builds for a spec; raises `CannotCheck` if it fails or returns no function."""
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
