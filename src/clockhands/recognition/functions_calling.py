"""Calling somebody's function: in the library it takes, with what it raises turned into a sentence, and counted."""

import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from clockhands.arguments import count, one_of, shown
from clockhands.dtypes import output_dtype
from clockhands.errors import InvalidType, InvalidValue
from clockhands.traces import library_of

LIBRARIES = ("numpy", "torch", "jax")
FLOATS = ("float32", "float64", "float16", "bfloat16")


class Refused(Exception):
    """The function raised, or gave back something else than [seq, width] numbers."""


class Caller:
    """A function(x [seq, width], positions [seq]) as one of NumPy arrays, with a record of what it was asked.

    Attributes:
        library: ``"numpy"``, ``"torch"`` or ``"jax"``: what it is called with.
        dtype: The dtype of ``x``.
        output: The dtype of what it gives back, as of the last call.
        calls, rows: How often it was called, and with how many rows in all.
        changed: The names of arguments that it changed.
    """

    def __init__(self, function: Callable[..., Any], width: int, backend: str | None, dtype: str) -> None:
        """Find out which library the function takes.

        Raises:
            InvalidValue, InvalidType: It takes none of them; the message says what it raised.
        """
        if backend is not None:
            one_of("backend", backend, LIBRARIES, "Leave it out to have it found.")
        if backend is not None and find_spec(backend) is None:
            raise InvalidValue(
                f"`backend` is {backend}, which is not installed.",
                "Install it, or leave `backend` out to have the function called with what is there.",
            )
        one_of("dtype", dtype, FLOATS, "Leave it out for float32.")
        self.function, self.width, self.dtype = function, count("width", width), dtype
        self.calls = self.rows = 0
        self.output = dtype
        self.changed: set[str] = set()
        tried: list[tuple[str, Exception]] = []
        for library in likely_libraries(function) if backend is None else (backend,):
            self.library = library
            try:
                self(np.ones((3, width)), np.array([0, 1, 2]))
            except Refused as error:
                tried.append((library, error))
            else:
                return
        raise InvalidValue(
            f"The function cannot be called as function(x [seq, {width}], positions [seq]) -> [seq, {width}]: "
            f"{_said(tried)}.",
            self._taken([library for library, _ in tried])
            or "Wrap it: def turned(x, positions): return … ; queries alone, one head, no batch.",
        ) from (tried[-1][1].__cause__ or tried[-1][1])

    def _taken(self, libraries: list[str]) -> str | None:
        """What to say where another dtype of ``x`` is taken."""
        others = [other for other in FLOATS if other != self.dtype]
        for library, dtype in itertools.product(libraries, others):
            self.library, self.dtype = library, dtype
            with suppress(Refused):
                self(np.ones((3, self.width)), np.array([0, 1, 2]))
                return f'It takes x of {dtype}: say dtype="{dtype}" (--dtype {dtype} on a command line).'
        return None

    def __call__(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """What it makes of these rows, float64 [seq, width], in one call.

        Raises:
            Refused: It raised, or gave back something else.
        """
        self.calls += 1
        self.rows += len(x)
        given, places = self._array(x, self.dtype), self._positions(positions)
        before = [as_numpy(array).copy() for array in (given, places)]
        try:
            answer = self._called(given, places)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            text = " ".join(str(error).split())
            raise Refused(f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__) from error
        for name, old, new in zip(("x", "positions"), before, (given, places), strict=True):
            if not np.array_equal(old, as_numpy(new), equal_nan=True):
                self.changed.add(name)
        return self._checked(answer, len(x))

    def _called(self, x: Any, positions: Any) -> Any:
        if self.library != "torch":
            return self.function(x, positions)
        with import_module("torch").no_grad():
            return self.function(x, positions)

    def _checked(self, answer: Any, rows: int) -> np.ndarray:
        if not hasattr(answer, "shape") or not hasattr(answer, "dtype"):
            raise Refused(f"it gave back {type(answer).__name__}, not an array")
        if library_name(answer) != self.library:
            raise Refused(f"it gave back an array of {library_name(answer)}")
        if tuple(answer.shape) != (rows, self.width):
            raise Refused(f"it gave back shape {list(answer.shape)} for x of shape {[rows, self.width]}")
        self.output = str(answer.dtype).removeprefix("torch.")
        numbers = as_numpy(answer)
        if numbers.dtype.kind not in "fV" and self.output != "bfloat16":
            raise Refused(f"it gave back {self.output}, not floats")
        return numbers.astype(np.float64)

    def _array(self, x: np.ndarray, dtype: str) -> Any:
        if self.library == "numpy":
            return x.astype(_kind(dtype))
        if self.library == "torch":
            torch = import_module("torch")
            return torch.from_numpy(np.ascontiguousarray(x, np.float64).copy()).to(getattr(torch, dtype))
        # Without its 64-bit mode JAX holds no float64; it is not turned on for anybody.
        jnp = import_module("jax.numpy")
        return jnp.asarray(x.astype(np.float32 if dtype == "float64" else _kind(dtype)))

    def _positions(self, positions: np.ndarray) -> Any:
        whole = positions.dtype.kind == "i"
        if self.library == "torch":
            return import_module("torch").from_numpy(positions.astype(np.int64 if whole else np.float32))
        if self.library == "jax":
            return import_module("jax.numpy").asarray(positions.astype(np.int32 if whole else np.float32))
        return positions.astype(np.int64 if whole else np.float64)


class Reader:
    """Rows of a function, however it counts: each row is read as if it stood alone at its position.

    Attributes:
        counts: Whether the function ignores the positions and counts its rows; then row ``p`` is read.
        lead: Whether every call starts with a row at position 0, for functions that count from the first.
        anchor: A position that is in every call, for functions that look at the largest one.
        pad: Rows that every call has, for functions that look at their number.
    """

    def __init__(self, caller: Caller, most: int = 1024) -> None:
        """Read rows of this function, at most so many in a call."""
        self.caller, self.most = caller, most
        self.counts = self.lead = False
        self.anchor: int | None = None
        self.pad = 0

    def __call__(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """What becomes of row ``x[i]`` at ``positions[i]``, float64 [rows, width]."""
        out = np.empty((len(x), self.caller.width))
        for rows, places in self._together(np.asarray(positions)):
            out[rows] = self._read(x[rows], places)
        return out

    def _together(self, positions: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows that go into one call."""
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


def _said(tried: list[tuple[str, Exception]]) -> str:
    """What was raised, with the libraries whose arrays it was raised for; the same once for all."""
    libraries: dict[str, list[str]] = {}
    for library, error in tried:
        libraries.setdefault(str(error), []).append(library)
    return "; ".join(f"with arrays of {' and '.join(names)}: {said}" for said, names in libraries.items())


def _kind(dtype: str) -> np.dtype:
    return output_dtype(dtype)


def as_numpy(array: Any) -> np.ndarray:
    """Any library's array as NumPy's; bfloat16 as float32, which holds all its numbers."""
    if library_name(array) == "torch":
        array = array.detach().cpu()
        if "bfloat16" in str(array.dtype):
            array = array.float()
        return array.numpy()
    given = np.asarray(array)
    return given.astype(np.float32) if given.dtype.name == "bfloat16" else given


def library_name(array: Any) -> str:
    """The library that an array is of."""
    name = library_of(array)
    return "jax" if name == "jaxlib" else name


def likely_libraries(function: Callable[..., Any]) -> list[str]:
    """The libraries to try, those that the function speaks of first; none is imported that is not there already."""
    spoken = _spoken(function)
    there = [name for name in LIBRARIES if name == "numpy" or name in sys.modules]
    return sorted(there, key=lambda name: (name not in spoken, LIBRARIES.index(name)))


def _spoken(function: Callable[..., Any]) -> set[str]:
    """The libraries of the modules and arrays that a function's code refers to."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if any(kind.__module__.startswith("torch.") for kind in inspect.getmro(type(function))):
        return {"torch"}
    inner = getattr(function, "__func__", function)
    if not isinstance(inner, types.FunctionType):
        inner = type(function).__dict__.get("__call__")
    if not isinstance(inner, types.FunctionType):
        return {type(function).__module__.partition(".")[0]}
    named = [inner.__globals__.get(name) for name in inner.__code__.co_names]
    for cell in inner.__closure__ or ():
        try:
            named.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    homes = [getattr(thing, "__name__", "") if isinstance(thing, types.ModuleType) else "" for thing in named]
    homes += [getattr(thing, "__module__", "") or type(thing).__module__ for thing in named if thing is not None]
    found = {str(home).partition(".")[0] for home in homes}
    return {"jax"} | found if "jaxlib" in found else found


def callable_or_refuse(function: object) -> Callable[..., Any]:
    """The function, if it can be called.

    Raises:
        InvalidType: It cannot.
    """
    if not callable(function):
        raise InvalidType(
            f"Expected a function(x [seq, width], positions [seq]), got {shown(function)}.",
            "Arrays are recognised as tables.",
        )
    return function
