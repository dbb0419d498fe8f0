"""Calls of a user's function: array conversion, time limit, call count, and one exception for its errors.

The checks of functions and `identify` call through `ForeignFunction`; the checks of modules and models, which are not
called with arrays of x and positions, through `answered`.
"""

import contextvars
import copy
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
from typing import Any, NoReturn, Self

import numpy as np

from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.traces import library_of
from clockhands.errors import InvalidType
from clockhands.phrases import shown

LIBRARIES = ("numpy", "torch", "jax")
FLOATS = ("float64", "float32", "float16", "bfloat16")


class Refused(Exception):
    """The function raised, timed out, or returned a value of the wrong kind; the message says which."""


class TimedOut(Refused):
    """The function did not return in time."""


class EndsProcess(BaseException):
    """A user's code called `os._exit`. It derives from a class that user code does not normally catch."""


class Library:
    """An array library (NumPy, PyTorch, JAX or another of the array API) in which arguments can be passed.

    Attributes:
        name: Its name in a report.
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
        if self.name == "torch":
            return self._array(np.array(x, np.float64)).to(getattr(import_module("torch"), dtype))
        return self._array(x.astype(output_dtype(self.held(dtype))))

    def numbers(self, numbers: np.ndarray, dtype: str) -> Any:
        """Real or complex numbers, of this precision."""
        if not np.iscomplexobj(numbers):
            return self.floats(numbers, dtype)
        return self._array(numbers.astype("complex64" if self.held(dtype) == "float32" else "complex128"))

    def positions(self, positions: np.ndarray) -> Any:
        """Positions (or token ids): whole numbers as integers, others as floats; without its 64-bit mode JAX has 32."""
        whole = positions.dtype.kind in "iu"
        if self.name == "jax":
            return self._array(positions.astype(np.int32 if whole else np.float32))
        return self._array(positions.astype(np.int64 if whole else np.float32 if self.name == "torch" else np.float64))

    def booleans(self, mask: np.ndarray) -> Any:
        """A mask."""
        return self._array(np.array(mask))

    def dtype(self, name: str) -> Any:
        """The dtype of this name, as the library represents it."""
        return getattr(self.module or import_module("jax.numpy" if self.name == "jax" else self.name), self.held(name))

    def _array(self, array: np.ndarray) -> Any:
        """An array of the library; of NumPy this one itself."""
        array = np.asarray(array, order="C")
        if self.name == "torch":
            return import_module("torch").from_numpy(array)
        if self.name == "jax":
            return import_module("jax.numpy").asarray(array)
        return array if self.module is None else self.module.asarray(array)

    def held(self, dtype: str) -> str:
        """The dtype in which this library holds numbers of the given one; JAX's 64-bit mode is never switched on."""
        if self.name == "jax" and dtype == "float64" and not import_module("jax").config.jax_enable_x64:
            return "float32"
        return dtype

    def holds(self, dtype: str) -> bool:
        """Whether the library supports this dtype."""
        return dtype in {"float32", "float64"} or self.module is None

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function wrapped so that it runs without recording gradients."""
        if self.name != "torch":
            return function

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            with import_module("torch").no_grad():
                return function(*arguments, **named)

        return called


class ForeignFunction:
    """A user's function, called with arrays of its library.

    Attributes:
        library: The library of the arrays that it is called with.
        output: The dtype of its last return value.
        calls, rows: Number of calls, and total number of rows passed.
        changed: The names of the arguments that it changed.
        overwrites: Whether a call changed what an earlier call had returned.
    """

    library: Library
    # Words used in messages; subclasses replace them.
    _raised, _no_array, _no_numbers = "it raised ", "not an array", "not real numbers"
    # Whether floats such as ``longdouble`` are accepted too, although no check has an error bound for them.
    _takes_any_float = False

    def __init__(self, function: Callable[..., Any], output: str, timeout: float | None = None) -> None:
        """Take the function and the time limit of a call in seconds; None calls it in this thread, without a limit."""
        self.function: Callable[..., Any] = function
        self.output: str = output
        self.timeout: float | None = timeout
        self.calls: int = 0
        self.rows: int = 0
        self.changed: set[str] = set()
        self.overwrites: bool = False
        self._returned: dict[tuple[int, ...], list[tuple[Any, np.ndarray]]] = {}

    def without_calls(self) -> Self:
        """The same function, of which no call has been counted and no answer is kept."""
        other = copy.copy(self)
        vars(other).update(calls=0, rows=0, changed=set(), _returned={})
        return other

    def find_library(self, backend: Any, attempt: Callable[[], Any]) -> list[tuple[str, Refused]]:
        """Keep the first library with which ``attempt`` succeeds; if none does, return the error of each."""
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

    def ask(self, arguments: dict[str, Any], rows: int, by_name: tuple[str, ...] = ()) -> Any:
        """Call the function with these arguments, the last ones by these names, and record which of them it changes.

        Raises:
            Refused: The function raised or timed out.
        """
        self.calls += 1
        self.rows += rows
        held = [
            (name, array, as_numpy(array).copy())
            for name, value in arguments.items()
            for array in (value if isinstance(value, tuple) else (value,))
            if hasattr(array, "shape")
        ]
        called = self.library.calling(self.function)
        values = list(arguments.values())
        placed = len(values) - len(by_name)
        named = dict(zip(by_name, values[placed:], strict=True))
        answer = answered(functools.partial(called, *values[:placed], **named), self.timeout, self._raised)
        self.changed |= {name for name, array, was in held if not _equal(was, as_numpy(array))}
        for array, was in itertools.chain(*self._returned.values()):
            self.overwrites |= not _equal(was, as_numpy(array))
        # The last answer of each shape: the function may reuse one output buffer per shape.
        for array in _small_arrays(answer):
            self._returned[tuple(array.shape)] = []
        for array in _small_arrays(answer):
            self._returned[tuple(array.shape)].append((array, as_numpy(array).copy()))
        return answer

    @property
    def summary(self) -> dict[str, Any]:
        """How it was called, as fields of a report."""
        return {"library": self.library.name, "dtype": self.output, "calls": self.calls, "rows": self.rows}

    def array_or_refuse(self, answer: Any, what: str) -> Any:
        """The answer if it is an array; otherwise Refused, with ``what`` as its name in the message."""
        if not hasattr(answer, "shape") or not hasattr(answer, "dtype"):
            raise Refused(f"it returned {what}, {self._no_array}")
        if isinstance(answer, np.ma.MaskedArray) and np.ma.getmaskarray(answer).any():
            masked = int(np.ma.getmaskarray(answer).sum())
            raise Refused(f"it returned a masked array with {masked:,} of its {answer.size:,} numbers masked")
        return answer

    def numbers(self, answer: Any) -> np.ndarray:
        """A returned array as float64; its own dtype is recorded in ``output``."""
        self.output = dtype_of(answer)
        if self.output not in FLOATS and not (self._takes_any_float and as_numpy(answer).dtype.kind == "f"):
            raise Refused(f"it returned {self.output}, {self._no_numbers}")
        return as_numpy(answer).astype(np.float64)


_KEPT = 2**18  # numbers of an answer that are compared again after later calls


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other) or (one.dtype.kind == "f" and np.array_equal(one, other, equal_nan=True))


def _small_arrays(answer: Any) -> list[Any]:
    """The arrays of an answer that a later call could overwrite; JAX arrays are left out, they cannot change."""
    parts = answer if isinstance(answer, tuple | list) else (answer,)
    return [part for part in parts if library_name(part) in {"numpy", "torch"} and math.prod(part.shape) <= _KEPT]


def refusals(tried: Sequence[tuple[str, Refused]], link: str = " ") -> str:
    """The error messages with the libraries that caused them; equal messages are given once."""
    libraries: dict[str, list[str]] = {}
    for name, error in tried:
        libraries.setdefault(str(error), []).append(name)
    return "; ".join(f"with arrays of {' and '.join(names)}{link}{text}" for text, names in libraries.items())


def kind_of(value: object, *, lengths: bool = True) -> str:
    """A description of a value that is not the expected array."""
    if lengths and isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def float_name(dtype: Any) -> Any:
    """The name of a dtype, given as a name or as a library's dtype object; anything else is returned unchanged."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    return name if name in FLOATS else dtype


def dtype_of(array: Any) -> str:
    """The name of an array's dtype, in any library."""
    return str(array.dtype).removeprefix("torch.").rpartition(".")[2]


def as_numpy(array: Any) -> np.ndarray:
    """An array of any library as a NumPy array; bfloat16 becomes float32, which represents it exactly."""
    if library_name(array) == "torch":
        array = array.detach().cpu()
        if "bfloat16" in str(array.dtype):
            array = array.float()
        return array.numpy()
    given = np.asarray(array)
    # NumPy has no kind for bfloat16; the name of a dtype takes long to make.
    return given.astype(np.float32) if given.dtype.kind == "V" and given.dtype.name == "bfloat16" else given


def library_name(array: Any) -> str:
    """The name of the library that an array belongs to."""
    name = "numpy" if type(array) is np.ndarray else library_of(array)
    return "jax" if name == "jaxlib" else name


def likely_libraries(function: Callable[..., Any]) -> list[str]:
    """The libraries to try, those that the function's code refers to first; no library is imported for this."""
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
    """A call exceeded its time limit. Exceptions that the call itself raises have other types."""


def answered(call: Callable[[], Any], seconds: float | None, lead: str = "it raised ") -> Any:
    """The return value of a call of user code; with ``seconds=None`` it runs in this thread without a limit.

    Raises:
        Refused: The call raised anything except KeyboardInterrupt, or timed out.
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
    """Make `os._exit` raise `EndsProcess` in user code: a process that exits without a report would look successful.

    This holds in this thread and in the thread in which `within` makes its call. Processes that the user code forks,
    and all code outside such a call, exit normally. `os._exit` stays wrapped afterwards, because a call that timed out
    may still reach it later.
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
    """Return what the call returns, or raise what it raises, within a time limit.

    The call runs in a separate thread, so that one that does not return can be abandoned.

    Raises:
        TookTooLong: The call does not return in time.
    """
    answers: queue.SimpleQueue = queue.SimpleQueue()
    _worker().waiting.put((contextvars.copy_context(), call, answers))
    try:
        answer, error = answers.get(timeout=seconds)
    except BaseException as error:  # timed out or interrupted from the keyboard: the call may still run
        _own.worker = None  # the next call gets another thread
        _unanswered.append(answers)
        if isinstance(error, queue.Empty):
            raise TookTooLong from None
        raise
    if error is not None:
        raise error
    return answer


def hanging() -> int:
    """Number of timed-out calls that still run; a process that exits while they run may crash."""
    return sum(answers.empty() for answers in _unanswered)


class _CallingThread:
    """A thread that makes calls for another thread, and ends when no thread uses it any more."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self.waiting,), daemon=True, name="clockhands check").start()
        # Not at process exit: daemon threads are abandoned then.
        weakref.finalize(self, self.waiting.put, None).atexit = False


# One per calling thread, so that no thread waits for another's call and a nested call does not wait for itself.
_own = threading.local()
_unanswered: list[queue.SimpleQueue] = []


def _worker() -> _CallingThread:
    """The calling thread; reused as long as its calls return, because libraries keep thread pools per thread."""
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
