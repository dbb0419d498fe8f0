"""A user's bias wrapped as a function of two NumPy arrays of positions: its arguments and return value are checked."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from clockhands.arguments import one_of
from clockhands.encodings.biases import BiasCode
from clockhands.errors import InvalidType
from clockhands.phrases import shown
from clockhands.recognition.calling import (
    FLOATS,
    ForeignFunction,
    Refused,
    float_name,
    kind_of,
    library_name,
    refusals,
)
from clockhands.recognition.suspects import StagedBias
from clockhands.testing._checks import wrapper
from clockhands.testing._experiments import Unasked
from clockhands.testing._usual_names import meanings
from clockhands.testing.functions._argument_names import Arguments, arguments_of
from clockhands.testing.functions._call_shapes import spaced
from clockhands.testing.functions._rank_parts import ROWS, SequencePart
from clockhands.testing.reports import CannotCheck

_SLOPES = "heads -> slopes"
BIAS_CALLS = ("queries, keys", "counts", "keys", _SLOPES)
"""What a bias may take: the positions of both, the numbers of both, the number of keys; or of heads, for slopes."""

_MADE = ("heads", "dtype", "device")
_KNOWN = meanings("queries", "keys", "number of queries", "number of keys", "offset", "length", "mask", *_MADE)
_MEANT = {
    ("queries", "keys"): "queries, keys",
    ("number of queries", "number of keys"): "counts",
    ("number of queries", "offset"): "counts",
    ("number of queries", "number of keys", "offset"): "counts",
    ("number of keys",): "keys",
    ("length",): "keys",
    ("mask",): "keys",
    (): _SLOPES,
}
"""Which call is meant by the arguments that say where tokens are."""

_USUAL = {
    "queries, keys": ("queries", "keys"),
    "counts": ("number of queries", "number of keys"),
    "keys": ("length",),
    _SLOPES: ("heads",),
}


def bias_arguments(function: Callable[..., Any], call: Any) -> tuple[str, Arguments]:
    """The call that is meant, by ``call`` or else by the names of a function's parameters, and its arguments."""
    if call is not None:
        meant = one_of("call", spaced(call), BIAS_CALLS, "It names the arguments of the function.")
        return meant, Arguments(_USUAL[meant])
    found = arguments_of(
        function,
        (_USUAL[_SLOPES],),
        lambda words: bool(words) and _places(words) in _MEANT,
        _KNOWN,
        frozenset({"heads", "number of keys", "offset"}),
    )
    if not found:
        return "queries, keys", Arguments(_USUAL["queries, keys"])
    return _MEANT[_places(found[0].words)], found[0]


def _places(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _MADE)


class CalledBias(ForeignFunction):
    """A user's bias as a function of two NumPy arrays of positions; returns float64 [heads, queries, keys].

    Attributes:
        library: The array library that it is called with.
        home: The library of its last output.
        dtype: The precision that its numbers must have.
        output: The dtype of its last output.
        calls, rows: The number of calls, and of queries in all calls.
        changed: The names of the arguments that it changed.
        first: The queries and keys of the first call, which finds out how it is called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        heads: int,
        *,
        spec: BiasCode | None = None,
        call: str = "queries, keys",
        arguments: Arguments | None = None,
        aligned: str = "end",
        part: SequencePart | None = None,
        tokens: int | None = None,
        backend: Any = None,
        dtype: str = "float32",
        timeout: float = 60.0,
    ) -> None:
        """Validate the arguments, and find out which library it takes."""
        if not callable(function):
            raise InvalidType(
                f"Expected a function, got {shown(function)}.", "Give a function(queries, keys), or pass make=."
            )
        super().__init__(function, dtype, timeout)
        self.heads, self.part, self.spec = heads, part, spec
        self.call = call
        self.arguments: Arguments = arguments or Arguments(_USUAL[call])
        self.aligned = one_of("aligned", aligned, ("end", "start"), "It is the alignment of the queries with the keys.")
        self.dtype = one_of("dtype", float_name(dtype), FLOATS, "It is the precision that the numbers must have.")
        self.home = ""
        self.first: list[tuple[np.ndarray, np.ndarray]] = []
        # More keys than queries, so that one axis cannot be taken for the other.
        queries, keys = (7, 12) if tokens is None and call != "keys" else (tokens or 12, tokens or 12)
        if part is not None:
            queries, keys = ROWS, ROWS * part.ranks
        self._find_library(backend, self.standing(queries, keys), np.arange(keys))

    def beside(self, function: Callable[..., Any], heads: int) -> "CalledBias":
        """Another function that is called in the same way; it is not called yet."""
        other = copy.copy(self)
        other.function, other.heads, other.first = function, heads, []
        return other

    def standing(self, queries: int, keys: int) -> np.ndarray:
        """The positions of the queries: at the last or the first keys (``aligned``), or those of the rank."""
        if self.part is not None:
            return self.part.positions(queries)
        return np.arange(queries) + (keys - queries if self.aligned == "end" else 0)

    def _find_library(self, backend: Any, queries: np.ndarray, keys: np.ndarray) -> None:
        as_called = f"The function was called as {self.call_text(len(queries), len(keys))}:"

        def attempt() -> None:
            if not np.isfinite(self(queries, keys)).any():
                raise CannotCheck(
                    f"{as_called} it returned no finite number.",
                    "Look for a division by zero, or a mask over all keys.",
                )

        tried = self.find_library(backend, attempt)
        if tried and self.call == "counts" and self.part is None:
            # One that is built for the queries alone fits the keys of a full pass, and is broadcast for one query.
            queries = keys
            tried = tried if self.find_library(backend, lambda: self(keys, keys)) else []
        if tried:
            # A function that takes counts gets no arrays, so the libraries do not matter.
            told = refusals(tried) if self.takes_positions else "; ".join(dict.fromkeys(str(each) for _, each in tried))
            raise CannotCheck(f"{as_called} {told}.", self._advice(keys))
        self.first = [(queries, keys)]

    def _advice(self, keys: np.ndarray) -> str:
        """The hint of a refused call: another value of ``call`` if one works, else how to wrap the function."""
        for call in BIAS_CALLS:
            if call == self.call:
                continue
            trial = copy.copy(self)
            trial.call, trial.arguments, trial.changed = call, Arguments(_USUAL[call]), set()
            try:
                trial(keys, keys)
            except Refused as error:
                if "did not return" in str(error):
                    return "Wrap it in a function(queries, keys) that returns."
                continue
            except Unasked:
                continue
            return f'It can be called with call="{call}": pass this.'
        wrapped = wrapper("bias(queries, keys)", self.function, _KNOWN)
        return f"Wrap it: {wrapped}, of shape [heads, queries, keys]; or pass call=."

    @property
    def summary(self) -> dict[str, Any]:
        """See `ForeignFunction`."""
        return super().summary | ({} if self.takes_positions else {"library": self.home})

    def call_text(self, queries: int, keys: int) -> str:
        """The call with its sizes, as text for messages."""
        said = {"queries": f"queries [{queries}]", "keys": f"keys [{keys}]", "mask": f"mask [1, {keys}]"}
        said |= {"number of queries": str(queries), "number of keys": str(keys), "length": str(keys)}
        said |= {"offset": str(keys - queries)}
        return f"function({', '.join(said.get(word, word) for word in self.arguments.words)})"

    @property
    def takes_positions(self) -> bool:
        """Whether it takes arbitrary positions, not only counts of queries and keys."""
        return self.call in {"queries, keys", _SLOPES}

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The bias of these queries and keys, float64 [heads, queries, keys]."""
        number = len(queries)
        if not self.takes_positions:
            counted = np.arange(len(keys))
            if not np.array_equal(keys, counted) or not np.array_equal(queries, self.standing(number, len(keys))):
                raise Unasked("it counts its queries and keys, so other positions cannot be checked")
            if self.call == "keys" and number not in (1, len(keys)):
                raise Unasked("it takes the number of keys alone")
        arguments = {word: self._argument(word, queries, keys) for word in self.arguments.words}
        answer = self.ask(arguments, number, self.arguments.by_name)
        if self.call == _SLOPES:
            return self._by_slopes(answer, queries, keys)
        return self._checked(answer, number, len(keys))

    def _argument(self, word: str, queries: np.ndarray, keys: np.ndarray) -> Any:
        """One argument of a call, by its word."""
        if word in {"queries", "keys"}:
            return self.library.positions(queries if word == "queries" else keys)
        if word == "mask":
            return self.library.positions(np.ones((1, len(keys)), np.int64))
        if word == "dtype":
            return self.library.dtype(self.dtype)
        earlier = len(keys) - len(queries) if self.aligned == "end" else 0
        numbers = {"number of queries": len(queries), "offset": earlier, "heads": self.heads, "device": None}
        return numbers.get(word, len(keys))

    def _by_slopes(self, answer: Any, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The bias of the slopes that it returned, in an array or a list of one for each head."""
        if self.spec is None or self.spec.slopes is None:
            raise Refused("this bias has no slopes")
        answer = np.array(answer, np.float64) if isinstance(answer, tuple | list) else answer
        numbers = self.numbers(self.array_or_refuse(answer, kind_of(answer))).ravel()
        if len(numbers) != self.heads:
            raise Refused(f"it returned {len(numbers)} slopes for {self.heads} heads")
        self.home = library_name(answer)
        every = np.resize(numbers, self.spec.heads)  # those of a rank's heads are taken from it
        return StagedBias(self.spec, slopes=every)(queries, keys)[: self.heads]

    def _checked(self, answer: Any, queries: int, keys: int) -> np.ndarray:
        answer = self.array_or_refuse(answer, kind_of(answer, lengths=False))
        shape = tuple(answer.shape)
        axes = shape
        while len(axes) > 3 and axes[0] == 1:
            axes = axes[1:]
        # It is added to scores [heads, queries, keys], so one row that is broadcast over all queries is allowed.
        if len(axes) != 3 or axes[0] != self.heads or axes[1] not in (1, queries, keys) or axes[2] not in (1, keys):
            counted = ": its last axis has the queries of the call, not all keys" if axes[-1:] == (queries,) else ""
            raise Refused(f"it returned shape {list(shape)}, expected [{self.heads}, {queries}, {keys}]{counted}")
        self.home = library_name(answer)
        numbers = self.numbers(answer).reshape(axes)
        if axes[1] not in (1, queries):
            if self.call != "keys":
                raise Refused(f"it returned shape {list(shape)}, expected [{self.heads}, {queries}, {keys}]")
            numbers = numbers[:, -queries:]  # the last queries of a full square
        return np.broadcast_to(numbers, (self.heads, queries, keys))
