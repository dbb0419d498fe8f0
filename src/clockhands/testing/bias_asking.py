"""Biases under experiment: somebody's function, or a suspect, asked in the same way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.biases import BiasCode
from clockhands.errors import ClockhandsError
from clockhands.faults import Behind, GivenValues, Suspect
from clockhands.testing.bias_calling import CalledBias
from clockhands.testing.experiments import Unasked
from clockhands.testing.judging import made
from clockhands.testing.reports import CannotCheck


@dataclass
class OutsideBias:
    """Somebody's function; the fields are those of `clockhands.testing.bias_experiments.BiasImplementation`.

    Attributes:
        called: The function as one of NumPy arrays.
        given: The learned numbers.
        make: Builds the function of another spec, where that can be done.
        measured: Whether the learned numbers are its own.
        remembered: What is right for questions that were asked before.
        only: The heads that are compared; None for all.
    """

    spec: Any
    called: CalledBias
    length: int
    causal: bool
    exact: bool
    given: GivenValues | Behind
    make: Callable[[Any], Callable[..., Any]] | None = None
    measured: bool = False
    remembered: dict[Any, Any] = field(default_factory=dict)
    only: np.ndarray | None = None

    @property
    def values(self) -> Any:
        """Learned numbers of the code that is right, or None."""
        return self.given(self.spec) if self.spec.learned else None

    @property
    def dtype(self) -> str:
        """What its numbers should be good for."""
        return self.called.dtype

    @property
    def aligned(self) -> str:
        """Where queries that are counted stand."""
        return self.called.aligned

    @property
    def takes_positions(self) -> bool:
        """Whether it can be asked for any positions."""
        return self.called.takes_positions

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers."""
        return self.called(queries, keys)

    def of(self, spec: BiasCode) -> "OutsideBias":
        """Another model of this process."""
        if self.make is None:
            raise Unasked("say make=, a function that builds one for a spec, and two models are asked side by side")
        if self.measured:
            raise Unasked("another model has learned numbers of its own: say values=")
        try:
            function = made(self.make, spec)
        except CannotCheck as error:
            raise Unasked(str(error).partition("\n")[0]) from error
        called = self.called.beside(function, spec.heads)
        return OutsideBias(
            spec, called, self.length, self.causal, self.exact, self.given, self.make, False, self.remembered
        )


@dataclass
class InsideBias:
    """A suspect, asked as somebody's function is."""

    spec: Any
    like: OutsideBias
    process: Callable[[Any], Any]
    only: np.ndarray | None = None
    built: Any = field(init=False)

    def __post_init__(self) -> None:
        """Build the first model."""
        self.built = self.process(self.spec)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: OutsideBias, only: np.ndarray | None = None) -> "InsideBias":
        """In a process of its own, called as somebody's was to find out how."""
        it = cls(like.spec, like, suspect.make(), only)
        for queries, keys in like.called.first:
            it(queries, keys)
        return it

    def __getattr__(self, name: str) -> Any:
        # What it is asked, and what is right, are those of the implementation that it stands for.
        if name in {
            "length",
            "causal",
            "exact",
            "values",
            "dtype",
            "aligned",
            "takes_positions",
            "measured",
            "remembered",
        }:
            return getattr(self.like, name)
        raise AttributeError(name)

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Its numbers; a suspect that cannot make them is none."""
        try:
            return self.built(queries, keys)
        except (ClockhandsError, IndexError, ValueError) as error:
            raise Unasked(str(error)) from error

    def of(self, spec: BiasCode) -> "InsideBias":
        """Another model of this process."""
        return InsideBias(spec, self.like, self.process, self.only)
