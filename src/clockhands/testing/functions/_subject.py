"""What every check of a function has: the user's function, and suspects that are called in its place."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from clockhands.recognition.suspects import FaultModel
from clockhands.testing._experiments import Unasked
from clockhands.testing.reports import CannotCheck


@dataclass
class CheckedFunction:
    """A function under test: the user's, or a suspect that is called in the same way.

    A family of encodings says how it is called, what is expected, and within which bounds.

    Attributes:
        spec: The expected encoding.
        called: The user's function as a function of NumPy arrays.
        length: Positions below this are checked.
        build: Builds the user's implementation of another spec; None without ``make``.
        suspect: The suspect that is called in place of the user's function, or None.
        process: Builds the suspect's implementation of a spec.
        model: The suspect's implementation of the expected encoding.
        dtype: The dtype of its numbers.
    """

    spec: Any
    called: Any
    length: int
    build: Callable[[Any, str | None], Any] | None = None
    suspect: FaultModel | None = None
    process: Callable[[Any], Any] | None = None
    model: Any = None

    def __post_init__(self) -> None:
        """Read what the experiments ask for often."""
        self.dtype: str = self.called.dtype

    def suspected(self, suspect: FaultModel) -> Self:
        """The same check with a suspect, in a new process, in place of the user's function."""
        it, process = copy.copy(self), suspect.make()
        it.suspect, it.process, it.model = suspect, process, process(self.spec)
        if suspect.parts is None:  # it may keep state between calls
            it.first_call(None)
        return it

    def with_model(self, spec: Any) -> Self:
        """The same check with another model of the suspect's process."""
        assert self.process is not None
        it = self.for_spec(spec)
        it.model = self.process(spec)
        return it

    def for_spec(self, spec: Any) -> Self:
        """The same check of another spec."""
        it = copy.copy(self)
        it.spec = spec
        return it

    def first_call(self, dtype: str | None) -> None:
        """Call a suspect as the user's function was called when its arguments were found out."""
        raise NotImplementedError

    def of(self, spec: Any, first: str | None = None) -> Any:
        """Another model in this process, with first tokens of dtype ``first``; raises `Unasked` without ``make``."""
        if self.process is not None:
            return self.with_model(spec)
        if self.build is None:
            raise Unasked("pass make=, a function that builds one for a spec, to compare two models")
        try:
            return self.build(spec, first)
        except CannotCheck as error:
            raise Unasked(error.message) from error
        except Exception as error:  # user code may raise anything; the reason is reported
            text = " ".join(str(error).split())
            raise Unasked(f"make= raised {type(error).__name__}: {text[:120]}") from error
