"""Implementations under experiment: somebody's function, or a suspect, asked in the same way."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from clockhands.calling import Refused
from clockhands.faults.fault import Suspect
from clockhands.faults.turning import Turning
from clockhands.testing.calling import PAIRS, Called, first_places, first_shape, in_runs, numbered
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
    def call(self) -> str:
        """What it is called with."""
        ...

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that its tokens have."""
        ...

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """What it makes of tokens [batch, heads, seq, width], float64."""
        ...

    def of(self, spec: Any, first: str | None = None) -> "Implementation":
        """Another model of this process, its first tokens of a dtype; raises `Unasked` where none can be built."""
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
    build: Callable[[Any, str | None], "Outside"] | None = None

    @property
    def dtype(self) -> str:
        """The dtype of its tokens."""
        return self.called.dtype

    @property
    def call(self) -> str:
        """What it is called with."""
        return self.called.call

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that its tokens have."""
        return self.called.axes

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `Implementation`."""
        called = self.keys if role == "key" and self.keys is not None else self.called
        if role == "key" and self.call == PAIRS:
            return called(_other(x), positions, dtype=dtype, beside=x)
        return called(x, positions, dtype=dtype)

    def of(self, spec: Any, first: str | None = None) -> "Outside":
        """See `Implementation`."""
        if self.build is None:
            raise Unasked("say make=, a function that builds one for a spec, and two models are asked side by side")
        try:
            return self.build(spec, first)
        except CannotCheck as error:
            raise Unasked(error.message) from error
        except Exception as error:  # somebody's code: whatever it raises is said
            text = " ".join(str(error).split())
            raise Unasked(f"make= raised {type(error).__name__}: {text[:120]}") from error


@dataclass(frozen=True)
class OneSide:
    """A suspect for queries or for keys alone; the others are turned as they should be."""

    spec: Any
    apply: Any
    side: str

    def __call__(self, x: np.ndarray, at: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        """See `Turning`."""
        own = (role or "query") == self.side
        return (self.apply if own else Turning(self.spec))(x, at, dtype, role)


@dataclass
class Inside:
    """A suspect, asked as somebody's function is."""

    spec: Any
    dtype: str
    coarse: str | None
    length: int
    call: str
    axes: tuple[str, ...]
    process: Callable[[Any], Any]
    crossed: bool = False
    first: str | None = None
    built: Any = field(init=False)

    def __post_init__(self) -> None:
        """Build the first model, and ask it what `Called` asks when it looks whether something can be called."""
        self.built = self.process(self.spec)
        at = first_places(getattr(self.spec, "number_of_axes", 1))
        self(np.ones(first_shape(self.axes, self.spec.head_width)), at, dtype=self.first)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: Implementation, side: str | None = None) -> "Inside":
        """In a process of its own; a suspect for one side is right for the other."""
        crossed = "queries-and-keys-crossed" in suspect.codes
        make = suspect.make()
        process = make if side is None else lambda spec: OneSide(spec, make(spec), side)
        return cls(like.spec, like.dtype, like.coarse, like.length, like.call, like.axes, process, crossed)

    @property
    def turning(self) -> Turning | None:
        """The rotation that it does, where it is one."""
        built = self.built.apply if isinstance(self.built, OneSide) else self.built
        return built if isinstance(built, Turning) else None

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `Implementation`."""
        if self.crossed:
            x = _other(x)

        def ask(part: np.ndarray, at: np.ndarray) -> np.ndarray:
            return self.built(part, at, dtype or self.dtype, role)

        # State is kept from call to call, so a suspect is called as often as what is checked.
        if self.call == "x":
            return numbered(ask, x, positions, self.length)
        return in_runs(ask, x, positions) if self.call == "x, offset" else ask(x, positions)

    def of(self, spec: Any, first: str | None = None) -> "Inside":
        """See `Implementation`."""
        return replace(self, spec=spec, first=first)


def _other(x: np.ndarray) -> np.ndarray:
    """The queries that stand beside keys, and the keys beside queries."""
    return np.random.default_rng(11).standard_normal(x.shape)


__all__ = ["Implementation", "Inside", "Outside", "Refused"]
