"""Calls of a function(x, positions): many rows in one call, or each row independent of the rest of its call."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from clockhands.arguments import count, one_of
from clockhands.errors import InvalidValue
from clockhands.recognition.calling import (
    LIBRARIES,
    ForeignFunction,
    Library,
    Refused,
    TimedOut,
    library_name,
    refusals,
)

_DTYPES = ("float32", "float64", "float16", "bfloat16")


class Caller(ForeignFunction):
    """A function(x [seq, width], positions [seq]) of any library, called with NumPy arrays; ``dtype`` is that of x."""

    _raised, _no_numbers = "", "not floats"
    _takes_any_float = True

    def __init__(
        self, function: Callable[..., Any], width: int, backend: str | None, dtype: str, timeout: float | None = None
    ) -> None:
        """Find the array library that the function accepts.

        Raises:
            InvalidValue, InvalidType: It accepts no library, or did not return; the message says what it raised.
        """
        if backend is not None:
            one_of("backend", backend, LIBRARIES, "Leave it out to detect it.")
        if backend is not None and find_spec(backend) is None:
            raise InvalidValue(
                f"`backend` is {backend}, which is not installed.",
                "Install it, or leave `backend` out to use a library that is installed.",
            )
        one_of("dtype", dtype, _DTYPES, "Leave it out for float32.")
        super().__init__(function, dtype, timeout)
        self.width, self.dtype = count("width", width), dtype
        if tried := self.find_library(backend, self._few_rows):
            raise InvalidValue(
                f"The function cannot be called as function(x [seq, {width}], positions [seq]) -> [seq, {width}]: "
                f"{refusals(tried, ': ')}.",
                self._taken([library for library, _ in tried])
                or "Wrap it: def rotated(x, positions): return … ; queries alone, one head, no batch.",
            ) from (tried[-1][1].__cause__ or tried[-1][1])

    def _few_rows(self) -> np.ndarray:
        return self(np.ones((3, self.width)), np.array([0, 1, 2]))

    def _taken(self, libraries: list[str]) -> str | None:
        """A hint with another dtype of ``x`` that the function accepts; None if there is no such dtype."""
        others = [other for other in _DTYPES if other != self.dtype]
        for library, dtype in itertools.product(libraries, others):
            self.library, self.dtype = Library(library), dtype
            with suppress(Refused):
                self._few_rows()
                return f'It takes x of {dtype}: say dtype="{dtype}" (--dtype {dtype} on a command line).'
        return None

    def __call__(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The function's output for these rows, float64 [seq, width], from one call.

        Raises:
            Refused: It raised an error, or returned something else.
            InvalidValue: It did not return in time. It is not called again, because each call would take as long.
        """
        arguments = {"x": self.library.floats(x, self.dtype), "positions": self.library.positions(positions)}
        try:
            answer = self.ask(arguments, len(x))
        except TimedOut as error:
            raise InvalidValue(
                f"The function was called with {len(x):,} row{'s' if len(x) > 1 else ''}, and {error}.",
                "Give it more time: timeout= (--timeout on a command line), or name a function that returns.",
            ) from None
        answer = self.array_or_refuse(answer, type(answer).__name__)
        if library_name(answer) != self.library.name:
            raise Refused(f"it returned an array of {library_name(answer)}")
        if tuple(answer.shape) != x.shape:
            raise Refused(f"it returned shape {list(answer.shape)} for x of shape {list(x.shape)}")
        return self.numbers(answer)


@dataclass(eq=False)
class RowCaller:
    """Calls a function so that each output row depends only on its own input row and position.

    Attributes:
        caller: The function.
        most: The most rows of a call.
        counts: Whether the function ignores positions and counts its rows; then the output at ``p`` is read from row
            ``p``.
        lead: Whether every call starts with a row at position 0, for functions that count from the first position.
        anchor: A position that is in every call, for functions that depend on the largest position.
        pad: The least number of rows of a call, for functions that depend on the number of rows.
    """

    caller: Caller
    most: int = 1024
    counts: bool = False
    lead: bool = False
    anchor: int | None = None
    pad: int = 0

    def __call__(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The output for each row ``x[i]`` at ``positions[i]``, float64 [rows, width]."""
        out = np.empty((len(x), self.caller.width))
        for rows, places in self._together(np.asarray(positions)):
            out[rows] = self._read(x[rows], places)
        return out

    def _together(self, positions: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The row indices and the positions of each call; counted rows need different positions in a call."""
        if not self.counts:
            size = self.pad or self.most - 2
            for start in range(0, len(positions), size):
                rows = np.arange(start, min(start + size, len(positions)))
                yield rows, positions[rows]
            return
        left = np.arange(len(positions))
        while left.size:
            places, first = np.unique(positions[left], return_index=True)
            yield left[first], places
            left = np.delete(left, first)

    def _read(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        if self.counts:
            whole = np.zeros((max(int(positions.max()) + 1, self.pad), self.caller.width))
            whole[positions] = x
            return self.caller(whole, np.arange(len(whole)))[positions]
        before = [0] * self.lead
        after = [] if self.anchor is None else [self.anchor]
        after += [0] * max(self.pad - len(before) - len(after) - len(x), 0)
        beside = [np.array(places, positions.dtype) for places in (before, after)]
        zeros = [np.zeros((len(places), self.caller.width)) for places in beside]
        y = self.caller(np.concatenate([zeros[0], x, zeros[1]]), np.concatenate([beside[0], positions, beside[1]]))
        return y[len(before) : len(before) + len(x)]
