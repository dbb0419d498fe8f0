"""Calls of a user's function: array conversion, time limit, call count, and one exception for its errors.

The checks of functions and `identify` call through `ForeignFunction`; the checks of modules and models, which are not
called with arrays of x and positions, through `answered`.
"""

import contextvars
import functools
import inspect
import itertools
import math
import os
import queue
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from clockhands.arguments import shown
from clockhands.dtypes import output_dtype
from clockhands.errors import InvalidType
from clockhands.traces import library_of

LIBRARIES = ("numpy", "torch", "jax")
FLOATS = ("float64", "float32", "float16", "bfloat16")


class Refused(Exception):
    """The function raised, did not return in time, or returned something else than was expected; the message says."""


class TimedOut(Refused):
    """The function did not return in time."""


class EndsProcess(BaseException):
    """A user's code called `os._exit`; it derives from what such code does not catch."""


class Library:
    """A library that arrays can be given in.

    Attributes:
        name: What it is called by in a report.
    """

    def __init__(self, backend: Any) -> None:
        """Take a name (numpy, torch, jax) or a module of the array API."""
        self.module: Any = None if isinstance(backend, str) else backend
        if backend not in LIBRARIES if isinstance(backend, str) else not hasattr(backend, "asarray"):
            raise InvalidType(
                f"`backend` must be numpy, torch, jax or a module that follows the array API standard, got "
                f"{shown(backend)}.",
                "Leave it out to detect it.",
            )
        self.name: str = backend if isinstance(backend, str) else getattr(backend, "__name__", "array API")

    def floats(self, x: np.ndarray, dtype: str) -> Any:
        """Numbers in this dtype."""
        if self.name == "numpy":
            return x.astype(output_dtype(dtype))
        if self.name == "torch":
            torch = import_module("torch")
            return torch.from_numpy(np.ascontiguousarray(x, np.float64).copy()).to(getattr(torch, dtype))
        if self.name == "jax":
            # Without its 64-bit mode JAX holds no float64; it is not turned on for anybody.
            return import_module("jax.numpy").asarray(x.astype(output_dtype(self.held(dtype))))
        assert self.module is not None
        return self.module.asarray(np.ascontiguousarray(x.astype(output_dtype(dtype))))

    def positions(self, positions: np.ndarray) -> Any:
        """Positions (or token ids): whole numbers as integers, others as floats."""
        whole = positions.dtype.kind in "iu"
        if self.name == "torch":
            return import_module("torch").from_numpy(positions.astype(np.int64 if whole else np.float32))
        if self.name == "jax":
            return import_module("jax.numpy").asarray(positions.astype(np.int32 if whole else np.float32))
        held = positions.astype(np.int64 if whole else np.float64)
        return held if self.module is None else self.module.asarray(held)

    def booleans(self, mask: np.ndarray) -> Any:
        """A mask."""
        if self.name == "torch":
            return import_module("torch").from_numpy(np.ascontiguousarray(mask))
        if self.name == "jax":
            return import_module("jax.numpy").asarray(mask)
        return np.array(mask) if self.module is None else self.module.asarray(mask)

    def held(self, dtype: str) -> str:
        """The dtype that numbers of this one come in."""
        if self.name == "jax" and dtype == "float64" and not import_module("jax").config.jax_enable_x64:
            return "float32"
        return dtype

    def holds(self, dtype: str) -> bool:
        """Whether the library has numbers of this dtype."""
        return dtype in {"float32", "float64"} or self.module is None

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, called without a record of gradients."""
        if self.name != "torch":
            return function

        @functools.wraps(function)
        def called(*arguments: Any) -> Any:
            with import_module("torch").no_grad():
                return function(*arguments)

        return called


class ForeignFunction:
    """A user's function, called with arrays of its library.

    Attributes:
        library: What it is called with.
        output: The dtype of what it returned last.
        calls, rows: How often it was called, and with how many rows in all.
        changed: The names of the arguments that it changed.
        overwrites: Whether a call changed what an earlier call had returned.
    """

    library: Library
    # Words of the messages, where a family's differ.
    _raised, _no_array, _no_numbers = "it raised ", "not an array", "not real numbers"
    # Whether floats such as ``longdouble`` are numbers too, for which no check has a bound.
    _takes_any_float = False

    def __init__(self, function: Callable[..., Any], output: str, timeout: float | None = None) -> None:
        """Take the function, and the seconds that a call may take; None calls it in this thread, without a limit."""
        self.function: Callable[..., Any] = function
        self.output: str = output
        self.timeout: float | None = timeout
        self.calls: int = 0
        self.rows: int = 0
        self.changed: set[str] = set()
        self.overwrites: bool = False
        self._returned: dict[tuple[int, ...], list[tuple[Any, np.ndarray]]] = {}

    def find_library(self, backend: Any, attempt: Callable[[], Any]) -> list[tuple[str, Refused]]:
        """Keep the first library with which an attempt is not refused; where all are, return their refusals."""
        tried: list[tuple[str, Refused]] = []
        for name in likely_libraries(self.function) if backend is None else (backend,):
            self.library = Library(name)
            try:
                attempt()
            except Refused as error:
                tried.append((self.library.name, error))
            else:
                return []
        return tried

    def ask(self, arguments: dict[str, Any], rows: int) -> Any:
        """Call it with these arguments, and note which of them it changes.

        Raises:
            Refused: It raised, or did not return in time.
        """
        self.calls += 1
        self.rows += rows
        before = {name: as_numpy(array).copy() for name, array in arguments.items() if hasattr(array, "shape")}
        called = self.library.calling(self.function)
        answer = answered(functools.partial(called, *arguments.values()), self.timeout, self._raised)
        for name, array in before.items():
            if not _equal(array, as_numpy(arguments[name])):
                self.changed.add(name)
        for array, was in itertools.chain(*self._returned.values()):
            self.overwrites |= not _equal(was, as_numpy(array))
        # The last answer of each shape: a buffer may be kept for each.
        for array in _small_arrays(answer):
            self._returned[tuple(array.shape)] = []
        for array in _small_arrays(answer):
            self._returned[tuple(array.shape)].append((array, as_numpy(array).copy()))
        return answer

    @property
    def summary(self) -> dict[str, Any]:
        """How it was called, as reports say it."""
        return {"library": self.library.name, "dtype": self.output, "calls": self.calls, "rows": self.rows}

    def array_or_refuse(self, answer: Any, what: str) -> Any:
        """The answer, if it is an array; ``what`` names it otherwise."""
        if not hasattr(answer, "shape") or not hasattr(answer, "dtype"):
            raise Refused(f"it returned {what}, {self._no_array}")
        if isinstance(answer, np.ma.MaskedArray) and np.ma.getmaskarray(answer).any():
            masked = int(np.ma.getmaskarray(answer).sum())
            raise Refused(f"it returned a masked array with {masked:,} of its {answer.size:,} numbers masked")
        return answer

    def numbers(self, answer: Any) -> np.ndarray:
        """An array that came back, as float64; its dtype is noted."""
        self.output = dtype_of(answer)
        if self.output not in FLOATS and not (self._takes_any_float and as_numpy(answer).dtype.kind == "f"):
            raise Refused(f"it returned {self.output}, {self._no_numbers}")
        return as_numpy(answer).astype(np.float64)


_KEPT = 2**18  # numbers of an answer that later calls are held to


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _small_arrays(answer: Any) -> list[Any]:
    """The arrays of an answer that a later call can be held to; JAX's cannot change."""
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    return [part for part in parts if library_name(part) in {"numpy", "torch"} and math.prod(part.shape) <= _KEPT]


def refusals(tried: Sequence[tuple[str, Refused]], link: str = " ") -> str:
    """What was refused, with the libraries whose arrays it was refused with; the same once for all."""
    libraries: dict[str, list[str]] = {}
    for name, error in tried:
        libraries.setdefault(str(error), []).append(name)
    return "; ".join(f"with arrays of {' and '.join(names)}{link}{text}" for text, names in libraries.items())


def kind_of(value: object, *, lengths: bool = True) -> str:
    """What came back in place of an array, in words."""
    if lengths and isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def float_name(dtype: Any) -> Any:
    """The name of a dtype that is said by its name or as a library's own; what is neither comes back as it is."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    return name if name in FLOATS else dtype


def dtype_of(array: Any) -> str:
    """The name of an array's dtype, in any library."""
    return str(array.dtype).removeprefix("torch.").rpartition(".")[2]


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


class TookTooLong(Exception):
    """A call did not come back in time; what the call itself raises is of other types."""


def answered(call: Callable[[], Any], seconds: float | None, lead: str = "it raised ") -> Any:
    """What a call of a user's code returns; None for ``seconds`` makes it here and waits as long as it takes.

    Raises:
        Refused: It raised, whatever that was (but for Ctrl-C), or did not return in time.
    """
    try:
        with outliving():
            return call() if seconds is None else within(seconds, call)
    except (KeyboardInterrupt, Refused):
        raise
    except TookTooLong:
        raise TimedOut(f"it did not return within {seconds:g} seconds") from None
    except EndsProcess as error:
        raise Refused(f"it called {error}, which ends the process") from None
    except BaseException as error:
        raise Refused(f"{lead}{error_text(error)}") from error


@contextmanager
def outliving() -> Iterator[None]:
    """Have `os._exit` raise `EndsProcess` in a user's code: a process that ends without a report counts as a success.

    It does so in this thread, and in the one in which `within` calls. A process that the user's code forks is its own
    affair and ends as it wants, as does all else outside of such a call. `os._exit` stays wrapped afterwards: a call
    that did not come back in time may reach it later.
    """
    if os._exit is not _exit_or_raise:
        _real_exit.append(os._exit)
        os._exit = _exit_or_raise
    token = _process_of_call.set(os.getpid())
    try:
        yield
    finally:
        _process_of_call.reset(token)


_process_of_call: contextvars.ContextVar[int | None] = contextvars.ContextVar("process of a call", default=None)
_real_exit: list[Callable[[int], NoReturn]] = []


def _exit_or_raise(status: int) -> NoReturn:
    if _process_of_call.get() == os.getpid():
        raise EndsProcess(f"os._exit({status})")
    _real_exit[-1](status)


def error_text(error: BaseException, most: int = 160) -> str:
    """The type of an error and the first characters of its message, in one line."""
    text = " ".join(str(error).split())[:most]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """What the call returns, or what it raises, unless it takes longer.

    It runs in a thread of its own: one that does not come back can be left alone, whatever it is busy with.

    Raises:
        TookTooLong: It does not come back in time.
    """
    answers: queue.SimpleQueue = queue.SimpleQueue()
    _worker().waiting.put((contextvars.copy_context(), call, answers))
    try:
        answer, error = answers.get(timeout=seconds)
    except BaseException as error:  # in vain, or stopped from the keyboard: the call may still run
        _own.worker = None  # the next call gets another thread
        _unanswered.append(answers)
        if isinstance(error, queue.Empty):
            raise TookTooLong from None
        raise
    if error is not None:
        raise error
    return answer


def hanging() -> int:
    """How many calls that did not come back in time still run: a process that ends may crash beside them."""
    return sum(answers.empty() for answers in _unanswered)


class _CallingThread:
    """A thread that calls, and ends when nobody asks it any more."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self.waiting,), daemon=True, name="clockhands check").start()
        # Not when the process ends: daemons are left alone then.
        weakref.finalize(self, self.waiting.put, None).atexit = False


# Of each thread that asks, so that none waits for another's call, nor a call that asks itself for its own end.
_own = threading.local()
_unanswered: list[queue.SimpleQueue] = []


def _worker() -> _CallingThread:
    """The thread that calls; the same one while it comes back, as libraries keep pools for each thread."""
    worker: _CallingThread | None = getattr(_own, "worker", None)
    if worker is None:
        worker = _own.worker = _CallingThread()
    return worker


def _work(waiting: queue.SimpleQueue) -> None:
    while (asked := waiting.get()) is not None:
        context, call, answers = asked
        try:
            answers.put((context.run(call), None))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it was asked for
            answers.put((None, error))
        del asked, context, call, answers
