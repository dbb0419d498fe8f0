"""A survey worker: audits a batch of targets one after the other, within limits of time and memory."""

import faulthandler
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from clockhands.auditing import Audit, audit
from clockhands.errors import ClockhandsError
from clockhands.survey.revisions import revision_of
from clockhands.survey.rows import SurveyRow, row_of

MEMORY = 4 << 30
"""Bytes that the audits of a worker may take beyond what the process has when it begins."""

GRACE = 2.0
"""Seconds after the time limit until a process is ended whose audit does not react to the limit."""


class _TimeIsUp(BaseException):
    """The time limit of a target was reached; not an `Exception`, so that ordinary error handlers do not catch it."""


def audit_batch(
    targets: Sequence[str], version: str, length: int | None, timeout: float, tell: Callable[[Any], None]
) -> None:
    """Audit targets; report for each that it begins, then its row and its report as JSON text.

    Args:
        targets: What `clockhands.audit` takes, as text.
        version: The version of clockhands, for the rows.
        length: Tokens, as `clockhands.audit` takes them.
        timeout: Seconds for each target.
        tell: Takes ``("begun", target)`` and ``("row", row, report)`` to the driver.
    """
    _limit_memory(MEMORY)
    for target in targets:
        tell(("begun", target))
        row, report = surveyed(target, version, length, timeout)
        tell(("row", tuple(row), report))


def surveyed(target: str, version: str, length: int | None = None, timeout: float = 60.0) -> tuple[SurveyRow, str]:
    """The row of a target and its report as JSON text; the report is "" if the audit failed."""
    start = time.monotonic()
    revision, report = "", ""
    try:
        with _time_limit(timeout):
            revision = revision_of(target)
            found = audited(target, length)
            report = json.dumps(found.to_dict(), allow_nan=False)
            revision = revision or revision_of(target)  # applies to files that the audit itself has fetched
            row = row_of(found, target, revision, version)
    except ClockhandsError as error:
        row = failed(target, revision, version, error.message, error.hint)
    except _TimeIsUp:
        row = failed(target, revision, version, *too_long(timeout))
    except MemoryError:
        message = f"The audit needed more than {MEMORY >> 30} GiB of memory."
        row = failed(target, revision, version, message, "Audit it alone with `clockhands audit`.")
    except Exception as error:  # noqa: BLE001 - one target must not cost the others theirs
        message = f"The audit failed with {type(error).__name__}: {str(error)[:1000]}"
        hint = "This is a fault of clockhands. Please report it with the file."
        row = failed(target, revision, version, message, hint)
    if row.state == "failed":
        report = ""
    seconds = round(time.monotonic() - start, 4)
    return row._replace(seconds=seconds, audited_at=datetime.now(UTC).isoformat(timespec="seconds")), report


def audited(target: str, length: int | None = None) -> Audit:
    """The audit of a survey target: an absolute path that exists is opened as a path, whatever its name looks like."""
    with suppress(OSError, ValueError):
        if os.path.isabs(target) and Path(target).exists():
            return audit(Path(target), length)
    return audit(target, length)


def failed(target: str, revision: str, version: str, message: str, hint: str) -> SurveyRow:
    """The row of a target that has no audit."""
    return SurveyRow(target, revision, version, "failed", message, hint)


def too_long(timeout: float) -> tuple[str, str]:
    """Message and hint for a target that exceeded its time limit."""
    return f"The audit took longer than {timeout:g} seconds.", "Give more time with `--timeout` and `--retry`."


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise an exception in code that runs too long, and end the process a little later if the code does not react.

    Only Python code handles a signal. The second limit is enforced by an interpreter thread that needs no lock, so it
    also ends a process that hangs in C code or in a read.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def up(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, up)
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(seconds + GRACE, exit=True, file=nowhere)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGALRM, before)


def _limit_memory(size: int) -> None:
    """Limit the address space of this process to its present size plus ``size`` bytes, where the system supports it."""
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + size
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
