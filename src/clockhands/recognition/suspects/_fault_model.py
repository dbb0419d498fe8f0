"""`FaultModel`, an implementation that has a known mistake."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parts = Callable[[Any], tuple[Any, Mapping[str, Any]]]


@dataclass(frozen=True)
class FaultModel:
    """A runnable implementation with one fault (or two) and its parameters.

    Attributes:
        codes: The code of the fault, or of several at once; the sentence of the first one is used.
        parameters: The parameters in the sentence.
        make: Simulates a new process: it returns a function that builds a faulty implementation for a spec.
        parts: Maps a spec to the spec applied in its place and the replaced stages; None if the fault cannot be
            described like this, and is not combined with another one.
        beside: A second fault with separate parameters; its codes are among the codes.
        whole: Whether it is named only if it gives all answers, since many of them do not depend on it.
    """

    codes: tuple[str, ...]
    parameters: Mapping[str, Any]
    make: Callable[[], Any]
    parts: Parts | None = None
    beside: "FaultModel | None" = None
    whole: bool = False

    @property
    def each(self) -> tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]:
        """The codes and parameters of each of its faults."""
        if self.beside is None:
            return ((self.codes, self.parameters),)
        own = self.codes[: len(self.codes) - len(self.beside.codes)]
        return ((own, self.parameters), *self.beside.each)
