"""Implementations under experiment: somebody's function, or a suspect, asked in the same way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from clockhands.faults.fault import Suspect
from clockhands.testing.calling import Called, Refused
from clockhands.testing.experiments import Unasked
from clockhands.testing.reports import CannotCheck


class Implementation(Protocol):
    """What experiments ask.

    Attributes:
        spec: The code that it should be.
        coarse: A coarser dtype that its tokens may come in too, or None.
        length: Positions that it is asked for: 0 to length - 1.
    """

    spec: Any
    coarse: str | None
    length: int

    @property
    def dtype(self) -> str:
        """The dtype that its tokens come in."""
        ...

    @property
    def pairs_given(self) -> bool:
        """Whether it takes queries and keys together."""
        ...

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """What it makes of tokens [batch, heads, seq, width], float64."""
        ...

    def of(self, spec: Any) -> "Implementation":
        """Another model of this process; raises `Unasked` where none can be built."""
        ...


@dataclass
class Outside:
    """Somebody's function.

    Attributes:
        called: The function as one of NumPy arrays.
        keys: The same for keys, where they are treated otherwise.
        build: Builds the implementation of another spec, where that can be done.
    """

    spec: Any
    called: Called
    length: int
    coarse: str | None
    keys: Called | None = None
    build: Callable[[Any], "Outside"] | None = None

    @property
    def dtype(self) -> str:
        """The dtype of its tokens."""
        return self.called.dtype

    @property
    def pairs_given(self) -> bool:
        """Whether it takes queries and keys together."""
        return self.called.call.startswith("q")

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `Implementation`."""
        called = self.keys if role == "key" and self.keys is not None else self.called
        if role == "key" and self.pairs_given:
            return called(_other(x), positions, dtype=dtype, beside=x)
        return called(x, positions, dtype=dtype)

    def of(self, spec: Any) -> "Outside":
        """See `Implementation`."""
        if self.build is None:
            raise Unasked("say make=, a function that builds one for a spec, and two models are asked side by side")
        try:
            return self.build(spec)
        except CannotCheck as error:
            raise Unasked(error.message) from error
        except Exception as error:  # somebody's code: whatever it raises is said
            text = " ".join(str(error).split())
            raise Unasked(f"make= raised {type(error).__name__}: {text[:120]}") from error


@dataclass
class Inside:
    """A suspect, asked as somebody's function is."""

    spec: Any
    dtype: str
    coarse: str | None
    length: int
    pairs_given: bool
    process: Callable[[Any], Any]
    crossed: bool = False
    built: Any = field(init=False)

    def __post_init__(self) -> None:
        """Build the first model."""
        self.built = self.process(self.spec)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: Implementation) -> "Inside":
        """In a process of its own."""
        crossed = "queries-and-keys-crossed" in suspect.codes
        return cls(like.spec, like.dtype, like.coarse, like.length, like.pairs_given, suspect.make(), crossed)

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `Implementation`."""
        if self.crossed:
            x = _other(x)
        return self.built(x, positions, dtype or self.dtype, role)

    def of(self, spec: Any) -> "Inside":
        """See `Implementation`."""
        return Inside(spec, self.dtype, self.coarse, self.length, self.pairs_given, self.process, self.crossed)


def _other(x: np.ndarray) -> np.ndarray:
    """The queries that stand beside keys, and the keys beside queries."""
    return np.random.default_rng(11).standard_normal(x.shape)


__all__ = ["Implementation", "Inside", "Outside", "Refused"]
