"""A user's function wrapped as a function of NumPy arrays: its axes, signature and return value are checked."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from clockhands.arguments import one_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown
from clockhands.recognition.calling import (
    FLOATS,
    ForeignFunction,
    Library,
    Refused,
    float_name,
    kind_of,
    library_name,
    likely_libraries,
    refusals,
)
from clockhands.testing._experiments import Unasked
from clockhands.testing.reports import CannotCheck

PAIRS = "q, k, positions"
"""The arguments of a function of queries and keys."""

CALLS = ("x, positions", "x", "x, offset", PAIRS, "positions")
"""The arguments that a function of tokens may take."""

AXES = ("batch", "heads", "seq", "width")
PLACES = ("seq", "batch seq", "seq axes", "batch seq axes", "axes seq", "axes batch seq")


class Called(ForeignFunction):
    """A user's function as a function of NumPy arrays: x [batch, heads, seq, width] and positions; returns float64.

    Attributes:
        library: The array library that it is called with.
        dtype: The dtype of its tokens, as the library represents it.
        output: The dtype of its last output.
        calls, rows: The number of calls, and of tokens in all calls.
        changed: The names of the arguments that it changed.
        most: The largest number of rows for a function that counts them itself, or None if not known.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        width: int,
        *,
        axes: str = "seq width",
        call: str = "x, positions",
        positions: str = "seq",
        coordinates: int = 1,
        start: int = 0,
        backend: Any = None,
        dtype: str = "float32",
        timeout: float = 60.0,
        first: str | None = None,
    ) -> None:
        """Find out which library it takes; its first tokens have the dtype ``first``, if given."""
        if not callable(function):
            raise InvalidType(
                f"Expected a function, got {shown(function)}.", "Give a function(x, positions), or pass make=."
            )
        dtype = float_name(dtype)
        super().__init__(function, dtype, timeout)
        self.width, self.start = width, start
        self.axes = _axes(axes)
        self.call: str = one_of("call", spaced(call), CALLS, "It names the arguments of the function.")
        places: str = one_of(
            "positions", positions, PLACES, "It names the axes of the positions that the function takes."
        )
        if coordinates > 1 and "axes" not in places:
            places = f"{places} axes"
        self.places = tuple(places.split())
        self.given: str = one_of("dtype", first or dtype, FLOATS, "It is the dtype of x.")
        self.most: int | None = None
        shape = first_shape(self.axes, width)
        if tried := self.find_library(backend, lambda: self(np.ones(shape), start + first_places(coordinates))):
            raise CannotCheck(
                f"The function was called as {self.call_text(shape)}: {refusals(tried)}.",
                self._advice(backend, coordinates),
            ) from next((error.__cause__ for _, error in tried if error.__cause__), None)  # its traceback has the line
        self.given, self.dtype = dtype, self.library.held(dtype)

    def _advice(self, backend: Any, coordinates: int) -> str:
        """The hint of a refused call: another way to call the function if one works, else how to wrap it."""
        for axes in ("seq width", "batch heads seq width", "batch seq heads width", "batch seq width"):
            for call in ("x, positions", "x", PAIRS):
                if (_axes(axes), call) == (self.axes, self.call) or coordinates > 1:
                    continue
                trial = copy.copy(self)
                trial.axes, trial.call, trial.changed = _axes(axes), call, set()
                for name in likely_libraries(self.function) if backend is None else (backend,):
                    trial.library = Library(name)
                    try:
                        trial(np.ones(first_shape(trial.axes, self.width)), self.start + first_places())
                    except Refused as error:
                        if "did not return" in str(error):
                            return "Wrap it in a function(x, positions) that returns."
                        continue
                    said = [f'axes="{axes}"'] * (_axes(axes) != self.axes) + [f'call="{call}"'] * (call != self.call)
                    return f"It can be called with {' and '.join(said)}: pass these."
        return (
            "Wrap it: def rotated(x, positions): return ... ; x [seq, width], positions [seq], or pass axes= and call=."
        )

    @property
    def coarse(self) -> str | None:
        """A lower-precision dtype for its tokens: float16 for NumPy, bfloat16 otherwise; None if not supported."""
        if self.dtype not in {"float32", "float64"}:
            return None
        coarse = "float16" if self.library.name == "numpy" else "bfloat16"
        return coarse if self.library.holds(coarse) else None

    @property
    def summary(self) -> dict[str, Any]:
        """See `ForeignFunction`."""
        return super().summary | {"dtype": self.dtype}

    def call_text(self, shape: tuple[int, ...]) -> str:
        """The call with its shapes, as text for messages."""
        sizes: dict[str, int] = dict(zip(AXES, shape, strict=True))
        x = f"[{', '.join(str(sizes[word]) for word in self.axes)}]"
        named = {"x": f"x {x}", "q": f"q {x}", "k": f"k {x}", "positions": f"positions [{', '.join(self.places)}]"}
        return f"function({', '.join(named.get(word, word) for word in self.call.split(', '))})"

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, beside: np.ndarray | None = None
    ) -> np.ndarray:
        """The output for these tokens, float64, of x's shape.

        Args:
            x: [batch, heads, seq, width].
            positions: [seq] or [batch, seq], with one more axis for coordinates.
            dtype: The dtype in which x is passed.
            beside: Keys for a function of queries and keys; then the rotated keys are returned, else the queries.
        """
        dtype = dtype or self.given
        if self.call == "x":
            return numbered(lambda part, at: self._output(part, at, dtype), x, positions, self.most)
        if self.call == "x, offset":
            return in_runs(lambda part, at: self._output(part, at[0], dtype), x, positions)
        return self._output(x, positions, dtype, beside)

    def _output(self, x: np.ndarray, positions: Any, dtype: str, beside: np.ndarray | None = None) -> np.ndarray:
        held = self.library.floats(self._outside(x), dtype)
        arguments: dict[str, Any] = {"x": held}
        if self.call == PAIRS:
            other = np.random.default_rng(11).standard_normal(x.shape) if beside is None else beside
            arguments = {"q": held, "k": self.library.floats(self._outside(other), dtype)}
        elif self.call == "positions":
            arguments = {}
        if "offset" in self.call:
            arguments["offset"] = int(positions)
        elif "positions" in self.call:
            arguments["positions"] = self.library.positions(self._places(positions, len(x)))
        answer = self.ask(arguments, x.size // self.width)
        if self.call == PAIRS:
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                raise Refused(f"it returned {kind_of(answer)}, not queries and keys")
            answer = answer[0] if beside is None else answer[1]
        return self._inside(self._checked(answer, x.shape), x.shape)

    def _checked(self, answer: Any, shape: tuple[int, ...]) -> np.ndarray:
        answer = self.array_or_refuse(answer, kind_of(answer))
        home = library_name(answer)
        if self.library.module is None and home != self.library.name:
            raise Refused(f"it returned an array of {home}")
        wanted = self._outside(np.empty(shape)).shape
        if self.call == "positions" and tuple(answer.shape) == (1, *wanted):
            answer = answer[0]
        if tuple(answer.shape) != wanted:
            raise Refused(f"it returned shape {list(answer.shape)} for x of shape {list(wanted)}")
        return self.numbers(answer)

    def _outside(self, x: np.ndarray) -> np.ndarray:
        """Tokens [batch, heads, seq, width] with the axes of the function, in its order."""
        missing = tuple(place for place, word in enumerate(AXES) if word not in self.axes)
        for place in missing:
            if x.shape[place] > 1:
                raise Refused(f"it is called without an axis of {AXES[place]} (pass axes= if it takes one)")
        order = [word for word in AXES if word in self.axes]
        return np.transpose(x.squeeze(missing), [order.index(word) for word in self.axes])

    def _inside(self, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.transpose(y, [self.axes.index(word) for word in AXES if word in self.axes]).reshape(shape)

    def _places(self, positions: np.ndarray, batch: int) -> np.ndarray:
        """Positions with the axes that the function takes, in its order."""
        axes = "axes" in self.places
        wide = positions.ndim > 1 + axes
        if "batch" in self.places and not wide:
            positions = np.broadcast_to(positions, (batch, *positions.shape))
        elif wide and "batch" not in self.places:
            raise Refused(
                'it takes one row of positions for all sequences (pass positions="batch seq" if it takes more)'
            )
        return np.moveaxis(positions, -1, 0) if axes and self.places[0] == "axes" else positions


def spaced(call: Any) -> Any:
    """Comma-separated words, with one space after each comma."""
    return ", ".join(word.strip() for word in call.split(",")) if isinstance(call, str) else call


def first_places(coordinates: int = 1) -> np.ndarray:
    """The positions of the first tokens that a function is called with: 0 to 3, or zeros [4, coordinates]."""
    return np.arange(4) if coordinates == 1 else np.zeros((4, coordinates), np.int64)


def first_shape(axes: tuple[str, ...], width: int) -> tuple[int, ...]:
    """The shape of the first tokens that a function is called with, [batch, heads, seq, width]."""
    # The sizes differ, so that one axis cannot be taken for another.
    return (3 if "batch" in axes else 1, 2 if "heads" in axes else 1, 4, width)


def numbered(
    ask: Callable[..., np.ndarray], x: np.ndarray, positions: np.ndarray, most: int | None = None
) -> np.ndarray:
    """Call a function that counts its rows itself: each token is put in the row of its position, among zero rows.

    With `most`, the number of rows is a power of two of at least 64, but no more than `most`: libraries that compile do
    so for each number of rows. Returns the rows of the tokens, of x's shape.
    """
    out = np.empty(x.shape)
    for batch, at in _sequences(x, positions):
        number = int(at.max(initial=-1)) + 1
        if most is not None and number:
            number = max(number, min(max(64, 1 << (number - 1).bit_length()), most))
        left = np.arange(len(at))
        while True:  # a repeated position needs a second call
            places, first = np.unique(at[left], return_index=True)
            rows = left[first]
            whole = np.zeros((*x[batch].shape[:2], number, x.shape[-1]))
            whole[:, :, places] = x[batch][:, :, rows]
            out[batch][:, :, rows] = ask(whole, np.arange(number))[:, :, places]
            left = np.delete(left, first)
            if not left.size:
                break
    return out


def in_runs(ask: Callable[..., np.ndarray], x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Call a function that takes the position of its first row: once for each run of consecutive positions."""
    out = np.empty(x.shape)
    for batch, at in _sequences(x, positions):
        for run in runs(at):
            out[batch, :, run] = ask(x[batch, :, run], at[run])
    return out


def _sequences(x: np.ndarray, positions: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Slices of the batch and their positions [seq]; a single slice if all sequences have the same positions."""
    rows = np.broadcast_to(positions, (len(x), x.shape[-2]))
    if all(np.array_equal(row, rows[0]) for row in rows):
        yield slice(None), rows[0]
        return
    for place, at in enumerate(rows):
        yield slice(place, place + 1), at


def runs(positions: np.ndarray) -> Iterator[slice]:
    """The slices of consecutive positions."""
    start = 0
    for place in range(1, len(positions) + 1):
        if place == len(positions) or positions[place] != positions[place - 1] + 1:
            yield slice(start, place)
            start = place


def _axes(text: Any) -> tuple[str, ...]:
    words = tuple(text.replace(",", " ").split()) if isinstance(text, str) else ()
    if not set(words) <= set(AXES) or len(set(words)) < len(words) or not {"seq", "width"} <= set(words):
        raise InvalidValue(
            f"`axes` must list the axes of x in order, using batch, heads, seq and width, got {shown(text)}.",
            'Write for example axes="batch heads seq width"; seq and width are required.',
        )
    return words


BIAS_CALLS = ("queries, keys", "counts", "keys")
"""The arguments that a bias may take: the positions of both, the numbers of both, or the number of keys."""

_WRAP = "Wrap it: def bias(queries, keys): return ..., of shape [heads, queries, keys]; or pass call=."


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
        call: str = "queries, keys",
        aligned: str = "end",
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
        self.heads = heads
        self.call = one_of("call", spaced(call), BIAS_CALLS, "It names the arguments of the function.")
        self.aligned = one_of("aligned", aligned, ("end", "start"), "It is the alignment of the queries with the keys.")
        self.dtype = one_of("dtype", float_name(dtype), FLOATS, "It is the precision that the numbers must have.")
        self.home = ""
        self.first: list[tuple[np.ndarray, np.ndarray]] = []
        # More keys than queries, so that one axis cannot be taken for the other.
        queries, keys = (7, 12) if tokens is None and call != "keys" else (tokens or 12, tokens or 12)
        self._find_library(backend, self._standing(queries, keys), np.arange(keys))

    def beside(self, function: Callable[..., Any], heads: int) -> "CalledBias":
        """Another function that is called in the same way; it is not called yet."""
        other = copy.copy(self)
        other.function, other.heads, other.first = function, heads, []
        return other

    def _standing(self, queries: int, keys: int) -> np.ndarray:
        return np.arange(queries) + (keys - queries if self.aligned == "end" else 0)

    def _find_library(self, backend: Any, queries: np.ndarray, keys: np.ndarray) -> None:
        as_called = f"The function was called as {self.call_text(len(queries), len(keys))}:"

        def attempt() -> None:
            if not np.isfinite(self(queries, keys)).any():
                raise CannotCheck(
                    f"{as_called} it returned no finite number.",
                    "Look for a division by zero, or a mask over all keys.",
                )

        if tried := self.find_library(backend, attempt):
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
            trial.call, trial.changed = call, set()
            try:
                trial(keys, keys)
            except Refused as error:
                if "did not return" in str(error):
                    return "Wrap it in a function(queries, keys) that returns."
                continue
            except Unasked:
                continue
            return f'It can be called with call="{call}": pass this.'
        return _WRAP

    @property
    def summary(self) -> dict[str, Any]:
        """See `ForeignFunction`."""
        return super().summary | ({} if self.takes_positions else {"library": self.home})

    def call_text(self, queries: int, keys: int) -> str:
        """The call with its sizes, as text for messages."""
        if self.call == "counts":
            return f"function({queries}, {keys})"
        if self.call == "keys":
            return f"function({keys})"
        return f"function(queries [{queries}], keys [{keys}])"

    @property
    def takes_positions(self) -> bool:
        """Whether it takes arbitrary positions, not only counts of queries and keys."""
        return self.call == "queries, keys"

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The bias of these queries and keys, float64 [heads, queries, keys]."""
        arguments: dict[str, Any]
        number = len(queries)
        if self.call == "queries, keys":
            arguments = {"queries": self.library.positions(queries), "keys": self.library.positions(keys)}
        else:
            start = len(keys) - number if self.aligned == "end" else 0
            if not np.array_equal(keys, np.arange(len(keys))) or not np.array_equal(queries, start + np.arange(number)):
                raise Unasked("it counts its queries and keys, so other positions cannot be checked")
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
        # It is added to scores [heads, queries, keys], so one row that is broadcast over all queries is allowed.
        if len(axes) != 3 or axes[0] != self.heads or axes[1] not in (1, queries, keys) or axes[2] != keys:
            raise Refused(f"it returned shape {list(shape)}, expected [{self.heads}, {queries}, {keys}]")
        self.home = library_name(answer)
        numbers = self.numbers(answer).reshape(axes)
        if axes[1] not in (1, queries):
            if self.call != "keys":
                raise Refused(f"it returned shape {list(shape)}, expected [{self.heads}, {queries}, {keys}]")
            numbers = numbers[:, -queries:]  # the last queries of a full square
        return np.broadcast_to(numbers, (self.heads, queries, keys))
