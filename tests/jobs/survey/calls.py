"""What the tests of the survey call in workers: the audit of a batch, with faults that no file is known to cause."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clockhands.auditing import Audit
from clockhands.jobs.survey import worker


def _with(fault: Callable[[str], None], **how: Any) -> None:
    """Audit a batch in this process, which belongs to the test, with a fault before each audit."""
    sound = worker.audited

    def audited(target: str, length: int | None = None) -> Audit:
        fault(Path(target).name)
        return sound(target, length)

    worker.audited = audited
    try:
        worker.audit_batch(**how)
    finally:
        worker.audited = sound


def deadly(**how: Any) -> None:
    """A process that audits a target called ``deadly`` is killed."""

    def fault(name: str) -> None:
        if name.startswith("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)

    _with(fault, **how)


def deadly_each(**how: Any) -> None:
    """The same for the command `audit -r`, and ``hanging`` does not end."""
    sound = worker.audit

    def audit(target: str, **more: Any) -> Audit:
        if Path(target).name == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        while Path(target).name == "hanging":
            pass
        return sound(target, **more)

    worker.audit = audit
    try:
        worker.audit_each(**how)
    finally:
        worker.audit = sound


def killed_once(**how: Any) -> None:
    """The process that is the first to audit ``b`` is killed, for what ``b`` has nothing to do with."""

    def fault(name: str) -> None:
        marker = Path(how["targets"][0]).parent.parent / "was killed"
        if name == "b" and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    _with(fault, **how)


def hanging(**how: Any) -> None:
    """``slow`` hangs in Python; ``stuck`` in C, where no signal handler runs."""
    worker.GRACE = 0.2

    def fault(name: str) -> None:
        if name == "slow":
            while True:
                pass
        if name == "stuck":
            sum(range(10**11))

    _with(fault, **how)


def hungry(**how: Any) -> None:
    """``hungry`` takes more memory than a worker may."""
    worker.MEMORY = 1 << 28

    def fault(name: str) -> None:
        if name == "hungry":
            bytearray(1 << 30)

    _with(fault, **how)


def unable(**_how: Any) -> None:
    """A worker that ends before it begins a target."""
    os._exit(3)


def leisurely(**how: Any) -> None:
    """Audits slowly, so that it can be killed in the middle; a folder beside the models names the process.

    A process with one target has none: the second time that a target loses its process counts against the target.
    """
    if len(how["targets"]) > 1:
        folder = Path(how["targets"][0]).parent.parent / "processes"
        (folder / str(os.getpid())).mkdir(parents=True, exist_ok=True)
    _with(lambda _: time.sleep(0.02), **how)
