"""The limits of an audit: its time, its memory, and what is said where it exceeds one or fails."""

import faulthandler
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from clockhands.errors import ClockhandsError

Result = TypeVar("Result")

MEMORY = 4 << 30
"""Bytes that an audit may take beyond what its process has when it begins, where there are several."""

GRACE = 2.0
"""Seconds after the time limit until a process is ended whose audit does not react to the limit."""


class _TimeIsUp(BaseException):
    """The time limit of a target was reached; not an `Exception`, so that ordinary error handlers do not catch it."""


Failure = tuple[str, str]
"""Message and hint of an audit that failed."""


def within_limits(
    call: Callable[[], Result], timeout: float, *, ends: bool = True, raises: bool = False
) -> tuple[Result | None, Failure | None]:
    """The result of a call, or the message and the hint of whatever prevented it.

    Args:
        call: Called without arguments.
        timeout: The limit in seconds.
        ends: Whether the process is ended if the call does not react to the limit.
        raises: Whether a fault of clockhands is raised, with its traceback.
    """
    try:
        with _time_limit(timeout, ends=ends):
            return call(), None
    except ClockhandsError as error:
        return None, (error.message, error.hint)
    except _TimeIsUp:
        return None, too_long(timeout)
    except MemoryError:
        message = f"The audit needed more memory than there is, or than one of several may have ({MEMORY >> 30} GiB)."
        return None, (message, "Audit it alone with `clockhands audit`.")
    except Exception as error:  # one target must not cost the others theirs
        if raises:
            raise
        message = f"The audit failed with {type(error).__name__}: {str(error)[:1000]}"
        return None, (message, "This is a fault of clockhands. Please report it with the file.")


def too_long(timeout: float) -> Failure:
    """Message and hint for a target that exceeded its time limit."""
    return f"The audit took longer than {timeout:g} seconds.", "Give more time with `--timeout`."


@contextmanager
def _time_limit(seconds: float, *, ends: bool) -> Iterator[None]:
    """Raise an exception in code that runs too long; if it ``ends``, end the process a little later if need be.

    Only Python code handles a signal. The second limit is enforced by an interpreter thread that needs no lock, so it
    also ends a process that hangs in C code or in a read.
    """
    # Windows has no such signal, and only the main thread handles any.
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def up(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, up)
    with Path(os.devnull).open("w") as nowhere:
        if ends:
            faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=nowhere)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGALRM, before)
