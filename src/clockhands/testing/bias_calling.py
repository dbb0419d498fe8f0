"""Calling somebody's bias: with positions or with counts, in its library, within a time, and its answer as numbers."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from clockhands.arguments import one_of, shown
from clockhands.calling import FLOATS, ForeignFunction, Refused, float_name, kind_of, library_name, refusals
from clockhands.errors import InvalidType
from clockhands.testing.calling import spaced
from clockhands.testing.experiments import Unasked
from clockhands.testing.reports import CannotCheck

CALLS = ("queries, keys", "counts", "keys")
"""What a bias is called with: positions of both, numbers of both, or the number of keys alone."""

_WRAP = "Wrap it: def bias(queries, keys): return ..., of shape [heads, queries, keys]; or say call=."


class CalledBias(ForeignFunction):
    """Somebody's bias as a function of two NumPy arrays of positions: float64 [heads, queries, keys].

    Attributes:
        library: What it is called with.
        home: The library of what it gave back last.
        dtype: What its numbers should be good for.
        output: The dtype of what it gave back last.
        calls, rows: How often it was called, and for how many queries in all.
        changed: The names of the arguments that it changed.
        first: The queries and keys that it was asked for to find out how it is called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        heads: int,
        *,
        call: str = "queries, keys",
        aligned: str = "end",
        tokens: int | None = None,
        backend: Any = None,
        dtype: str = "float32",
        timeout: float = 60.0,
    ) -> None:
        """Check how it shall be called, and find out which library it takes.

        Raises:
            InvalidType: It is no function.
            InvalidValue: A word is not known.
            CannotCheck: It cannot be called like that; the message says what came back.
        """
        if not callable(function):
            raise InvalidType(
                f"Expected a function, got {shown(function)}.", "Give a function(queries, keys), or say make=."
            )
        super().__init__(function, dtype, timeout)
        self.heads = heads
        self.call = one_of("call", spaced(call), CALLS, "It names what the function is called with.")
        self.aligned = one_of("aligned", aligned, ("end", "start"), "It says which keys the queries stand at.")
        self.dtype = one_of("dtype", float_name(dtype), FLOATS, "It is what the numbers should be good for.")
        self.home = ""
        self.first: list[tuple[np.ndarray, np.ndarray]] = []
        # More keys than queries, so that neither is taken for the other.
        queries, keys = (7, 12) if tokens is None and call != "keys" else (tokens or 12, tokens or 12)
        self._find_library(backend, self._standing(queries, keys), np.arange(keys))

    def beside(self, function: Callable[..., Any], heads: int) -> "CalledBias":
        """Another function, called in the same way; it is not asked anything yet."""
        other = copy.copy(self)
        other.function, other.heads, other.first = function, heads, []
        return other

    def _standing(self, queries: int, keys: int) -> np.ndarray:
        return np.arange(queries) + (keys - queries if self.aligned == "end" else 0)

    def _find_library(self, backend: Any, queries: np.ndarray, keys: np.ndarray) -> None:
        as_called = f"The function was called as {self.asked(len(queries), len(keys))}:"

        def attempt() -> None:
            if not np.isfinite(self(queries, keys)).any():
                raise CannotCheck(
                    f"{as_called} no number that it gave back is finite.",
                    "Look for a division by zero, or a mask over all keys.",
                )

        if tried := self.find_library(backend, attempt):
            # A function of numbers takes no arrays of any library.
            told = refusals(tried) if self.takes_positions else "; ".join(dict.fromkeys(str(each) for _, each in tried))
            raise CannotCheck(f"{as_called} {told}.", self._advice(keys))
        self.first = [(queries, keys)]

    def _advice(self, keys: np.ndarray) -> str:
        """How it can be called, where another way works; else how to wrap it."""
        for call in CALLS:
            if call == self.call:
                continue
            trial = copy.copy(self)
            trial.call, trial.changed = call, set()
            try:
                trial(keys, keys)
            except Refused as error:
                if "did not come back" in str(error):
                    return "Wrap it in a function(queries, keys) that returns."
                continue
            except Unasked:
                continue
            return f'It can be called with call="{call}": say so.'
        return _WRAP

    @property
    def told(self) -> dict[str, Any]:
        """How it was called, as reports tell it."""
        library = self.library.name if self.takes_positions else self.home
        return {"library": library, "dtype": self.output, "calls": self.calls, "rows": self.rows}

    def asked(self, queries: int, keys: int) -> str:
        """How it is called, in words."""
        if self.call == "counts":
            return f"function({queries}, {keys})"
        if self.call == "keys":
            return f"function({keys})"
        return f"function(queries [{queries}], keys [{keys}])"

    @property
    def takes_positions(self) -> bool:
        """Whether it can be asked for any positions, not only for the first or the last ones."""
        return self.call == "queries, keys"

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The bias of these queries and keys, float64 [heads, queries, keys].

        Raises:
            Refused: It raised, or gave back something else.
            Unasked: It counts, and cannot be asked for these.
        """
        arguments: dict[str, Any]
        number = len(queries)
        if self.call == "queries, keys":
            arguments = {"queries": self.library.positions(queries), "keys": self.library.positions(keys)}
        else:
            start = len(keys) - number if self.aligned == "end" else 0
            if not np.array_equal(keys, np.arange(len(keys))) or not np.array_equal(queries, start + np.arange(number)):
                raise Unasked("it counts its queries and keys, and cannot be asked for other positions")
            arguments = {"queries": number, "keys": len(keys)}
            if self.call == "keys":
                if number not in (1, len(keys)):
                    raise Unasked("it takes the number of keys alone")
                arguments = {"keys": len(keys)}
        answer = self.ask(arguments, number)
        return self._checked(answer, number, len(keys))

    def _checked(self, answer: Any, queries: int, keys: int) -> np.ndarray:
        answer = self.array_or_refuse(answer, kind_of(answer, lengths=False))
        shape = tuple(answer.shape)
        axes = shape
        while len(axes) > 3 and axes[0] == 1:
            axes = axes[1:]
        # What is added to scores [heads, queries, keys]: one row may stand for all queries.
        if len(axes) != 3 or axes[0] != self.heads or axes[1] not in (1, queries, keys) or axes[2] != keys:
            raise Refused(f"it gave back shape {list(shape)}, where [{self.heads}, {queries}, {keys}] is right")
        self.home = library_name(answer)
        numbers = self.numbers(answer).reshape(axes)
        if axes[1] not in (1, queries):
            if self.call != "keys":
                raise Refused(f"it gave back shape {list(shape)}, where [{self.heads}, {queries}, {keys}] is right")
            numbers = numbers[:, -queries:]  # of a square, the last query
        return np.broadcast_to(numbers, (self.heads, queries, keys))
