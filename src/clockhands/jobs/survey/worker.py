"""A survey worker: audits a batch of targets one after the other, within limits of time and memory."""

import faulthandler
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from clockhands.auditing import Audit, audit
from clockhands.encodings.memory import limit_memory
from clockhands.errors import ClockhandsError
from clockhands.jobs.survey.revisions import revision_of
from clockhands.jobs.survey.rows import SurveyRow, row_of

Result = TypeVar("Result")

MEMORY = 4 << 30
"""Bytes that an audit may take beyond what its process has when it begins, where there are several."""

GRACE = 2.0
"""Seconds after the time limit until a process is ended whose audit does not react to the limit."""


class _TimeIsUp(BaseException):
    """The time limit of a target was reached; not an `Exception`, so that ordinary error handlers do not catch it."""


Failure = tuple[str, str]
"""Message and hint of an audit that failed."""


def audit_batch(
    targets: Sequence[str], version: str, length: int | None, timeout: float, tell: Callable[[Any], None]
) -> None:
    """Audit targets; report for each that it begins, then its row and its report as JSON text.

    Args:
        targets: What `clockhands.audit` takes, as text.
        version: The version of clockhands, for the rows.
        length: Tokens, as `clockhands.audit` takes them.
        timeout: Seconds for each target.
        tell: Takes ``("begun", target)`` and ``("done", (row, report), None)`` to the driver.
    """
    limit_memory(MEMORY)
    for target in targets:
        tell(("begun", target))
        row, report = surveyed(target, version, length, timeout)
        tell(("done", (tuple(row), report), None))


def audit_each(targets: Sequence[str], how: Mapping[str, Any], timeout: float, tell: Callable[[Any], None]) -> None:
    """Audit targets; report for each that it begins, then its audit, or the message and the hint of a failure.

    Args:
        targets: What `clockhands.audit` takes, as text.
        how: Further arguments of `clockhands.audit`.
        timeout: Seconds for each target.
        tell: Takes ``("begun", target)`` and ``("done", audit, failure)`` to the driver.
    """
    if not how.get("weights"):  # weights are mapped into memory, which the limit counts
        limit_memory(MEMORY)
    for target in targets:
        tell(("begun", target))
        tell(("done", *within_limits(partial(audit, target, **how), timeout)))


def surveyed(target: str, version: str, length: int | None = None, timeout: float = 60.0) -> tuple[SurveyRow, str]:
    """The row of a target and its report as JSON text; the report is "" if the audit failed."""
    start = time.monotonic()
    revision = ""

    def made() -> tuple[SurveyRow, str]:
        nonlocal revision
        revision = revision_of(target)
        found = audited(target, length)
        report = json.dumps(found.to_dict(), allow_nan=False)
        revision = revision or revision_of(target)  # applies to files that the audit itself has fetched
        return row_of(found, target, revision, version), report

    result, failure = within_limits(made, timeout)
    if failure is not None:
        message, hint = failure
        hint = f"{hint} `--retry` audits failed targets again." if failure == too_long(timeout) else hint
        result = failed(target, revision, version, message, hint), ""
    assert result is not None
    row, report = result
    seconds = round(time.monotonic() - start, 4)
    return row._replace(seconds=seconds, audited_at=datetime.now(UTC).isoformat(timespec="seconds")), report


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


def audited(target: str, length: int | None = None) -> Audit:
    """The audit of a survey target: an absolute path that exists is opened as a path, whatever its name looks like."""
    with suppress(OSError, ValueError):
        if os.path.isabs(target) and Path(target).exists():
            return audit(Path(target), length)
    return audit(target, length)


def failed(target: str, revision: str, version: str, message: str, hint: str) -> SurveyRow:
    """The row of a target that has no audit."""
    return SurveyRow(target, revision, version, "failed", message, hint)


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
