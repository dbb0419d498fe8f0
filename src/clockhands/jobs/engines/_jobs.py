"""What all engines share: a job, the events that report on it, and how a worker calls its function."""

import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, Protocol

from clockhands.arguments import count, not_negative, set_fields
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.phrases import shown

# Read by OpenMP, MKL and OpenBLAS when they are loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Read by Python when it starts: it then imports nothing from the current folder.
WITHOUT_CURRENT_FOLDER = {"PYTHONSAFEPATH": "1"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes inherit which are started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@dataclass(frozen=True)
class Job:
    """One call of a function in a worker process.

    Attributes:
        name: Unique among the jobs of a run, for messages.
        call: ``"package.module:function"``, imported in the worker and called as
            ``function(**arguments, tell=tell)``; each ``tell(message)`` becomes an event ``JobMessage``.
        arguments: Plain values that can be pickled.
        gpus: GPUs that the ``ray`` engine reserves for each worker; ``local`` reserves none.
        workers: Processes of one distributed job. Only the ``ray`` engine takes more than 1.
    """

    name: str
    call: str
    arguments: Mapping[str, Any]
    gpus: float = 0
    workers: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.call, str) or not all(self.call.partition(":")):
            raise InvalidValue(
                f'`call` must be written as "package.module:function", got {shown(self.call)}.',
                "Name a function that the worker can import.",
            )
        set_fields(self, gpus=not_negative("gpus", self.gpus), workers=count("workers", self.workers))


@dataclass(frozen=True)
class Started:
    """A worker was started, or asked for, for the first or a later attempt (counted from 1)."""

    job: Job
    attempt: int


@dataclass(frozen=True)
class JobMessage:
    """The function called ``tell(message)``."""

    job: Job
    message: Any


@dataclass(frozen=True)
class Finished:
    """The function returned."""

    job: Job
    result: Any


@dataclass(frozen=True)
class Failed:
    """The function raised an exception, or its worker was lost in every attempt. The job is not tried again.

    Attributes:
        job: The job.
        message: What happened, one or two sentences.
        details: The traceback, or the reason of each lost attempt.
        hint: What to do, where it is known.
    """

    job: Job
    message: str
    details: str
    hint: str = ""


@dataclass(frozen=True)
class Lost:
    """The worker died. The job is tried again, or ``Failed`` follows."""

    job: Job
    attempt: int
    reason: str


Event = Started | JobMessage | Finished | Failed | Lost

# What a worker sends: ("told", message), then ("finished", result) or ("failed", message, details, hint). The pool
# adds ("ended", reason) when the worker is gone.
Message = tuple[Any, ...]


class Pool(Protocol):
    """The workers of one engine, each known by a number; each engine implements this class."""

    at_once: int

    def start(self, number: int, job: Job) -> None:
        """Start a worker for a job.

        Raises:
            ClockhandsError: This engine cannot run the job.
        """
        ...

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Wait until workers have sent something, then everything that they sent."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


def failure(error: BaseException) -> Message:
    """An exception as the message that a worker sends."""
    details = "".join(traceback.format_exception(error))
    if isinstance(error, ClockhandsError):
        return "failed", error.message, details, error.hint
    text = str(error)
    return "failed", f"{type(error).__name__}: {text}" if text else type(error).__name__, details, ""


def payload(job: Job) -> bytes:
    """The pickled call that a worker needs to run a job."""
    return pickle.dumps((job.call, dict(job.arguments)))


def work(payload: bytes, send: Callable[[bytes], None], *, leads: bool = True) -> bool:
    """Import and call a function in the worker, and send its messages, and its result or its exception.

    Args:
        payload: The call, pickled by the driver.
        send: Takes a pickled message to the driver.
        leads: Whether this worker reports for its job; one that does not sends only its exception.

    Returns:
        Whether the function returned.
    """
    lock = threading.Lock()

    def send_message(*message: Any) -> None:
        data = pickle.dumps(message)
        with lock:
            if leads or message[0] == "failed":
                send(data)

    try:
        call, arguments = pickle.loads(payload)
        module, _, name = call.partition(":")
        function = attrgetter(name)(import_module(module))
        send_message("finished", function(**arguments, tell=partial(send_message, "told")))
    except BaseException as error:  # noqa: BLE001 - whatever it is, also SystemExit, is reported to the driver
        send_message(*failure(error))
        return False
    return True


def limit_threads(threads: int) -> None:
    """Limit the numerical libraries of this process to this many threads, whether they are loaded already or not."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shares(cores: int, at_once: int | None, threads: int | None) -> tuple[int, int]:
    """Jobs at once and threads of each; values that are not given are derived from the number of cores."""
    if at_once is None:
        at_once = max(1, cores // (threads or 1))
    return at_once, threads or max(1, cores // at_once)
