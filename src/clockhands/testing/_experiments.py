"""Experiments: inputs, expected outputs and error bounds, and what is wrong in an answer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


class Unasked(Exception):
    """The experiment cannot be made with this implementation; the message says why."""


@dataclass(frozen=True)
class Answer:
    """One output of an implementation, with the expected output.

    Attributes:
        asked: The input, as a phrase for messages.
        got: The output, [..., rows, channels].
        wanted: The expected output, of the same shape.
        allowed: The largest allowed error of each number; broadcasts to this shape.
        positions: The positions of the rows; broadcasts to the shape without channels. None where rows have none.
    """

    asked: str
    got: np.ndarray
    wanted: np.ndarray
    allowed: np.ndarray
    positions: np.ndarray | None = None

    @cached_property
    def shares(self) -> np.ndarray:
        """Each error divided by the allowed error; infinite where an error is not allowed, or where a number is NaN."""
        return shares(self.got, self.wanted, self.allowed)

    @cached_property
    def off(self) -> np.ndarray:
        """The size of each error."""
        with np.errstate(invalid="ignore"):  # the difference of two infinities (masks)
            return np.abs(self.got - self.wanted)

    @cached_property
    def wrong(self) -> np.ndarray:
        """Which errors are larger than the bound allows."""
        return self.shares > 1


@dataclass(frozen=True)
class Experiment:
    """A test that can run on every implementation of one kind of encoding.

    Attributes:
        name: The name in reports; the name of the law, where it tests one.
        asks: What it tests, in one sentence.
        run: Calls an implementation and returns the answers; raises `Unasked` where it cannot be called like that.
        needed: Whether the whole check fails (`CannotCheck`) if the implementation refuses this experiment.
    """

    name: str
    asks: str
    run: Callable[[Any], list[Answer]]
    needed: bool = False


def experiment(name: str, run: Callable[[Any], list[Any]], asks: str = "", *, needed: bool = False) -> Experiment:
    """Make an experiment; without ``asks`` its description is the first docstring line of the function."""
    return Experiment(name, asks or (run.__doc__ or "").partition("\n")[0], run, needed)


def shares(got: np.ndarray, wanted: np.ndarray, allowed: Any) -> np.ndarray:
    """``|got - wanted| / allowed``; 0 where they are equal, infinite where ``allowed`` is 0 or a number is NaN."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = np.abs(got - wanted) / allowed
    # Almost always all are numbers: the maximum, which is NaN if any is, says so in one pass.
    if share.size and np.isnan(share.max()):
        share = np.where(np.isnan(share), np.where(got == wanted, 0.0, np.inf), share)
    return share


@dataclass(frozen=True)
class ExperimentRun:
    """An experiment that was run, and its answers."""

    experiment: Experiment
    answers: Sequence[Answer]

    @cached_property
    def wrong(self) -> bool:
        """Whether any number has a larger error than its bound allows."""
        return any(bool(each.wrong.any()) for each in self.answers)


def failed_of(asked: Iterable[ExperimentRun]) -> dict[str, ExperimentRun]:
    """The experiments that failed, by their names."""
    return {one.experiment.name: one for one in asked if one.wrong}


ROWS = 40
"""Positions of an experiment."""
