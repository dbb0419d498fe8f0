"""A survey worker: audits a batch of targets one after the other, within limits of time and memory."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from clockhands.auditing import Audit, audit
from clockhands.encodings.memory import limit_memory
from clockhands.jobs.survey.limits import MEMORY, too_long, within_limits
from clockhands.jobs.survey.revisions import revision_of
from clockhands.jobs.survey.rows import SurveyRow, row_of


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


def audited(target: str, length: int | None = None) -> Audit:
    """The audit of a survey target: an absolute path that exists is opened as a path, whatever its name looks like."""
    with suppress(OSError, ValueError):
        if os.path.isabs(target) and Path(target).exists():
            return audit(Path(target), length)
    return audit(target, length)


def failed(target: str, revision: str, version: str, message: str, hint: str) -> SurveyRow:
    """The row of a target that has no audit."""
    return SurveyRow(target, revision, version, "failed", message, hint)
