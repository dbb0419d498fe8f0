"""The engine ``local``: one process for each job, forked from a server that has imported the slow modules once.

A worker is the leader of its own process group, so that Ctrl-C in the terminal reaches only the driver, and so that
processes started by a worker end with it. A worker ends itself when the driver is gone.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.jobs.engines._jobs import (
    THREAD_VARIABLES,
    WITHOUT_CURRENT_FOLDER,
    Job,
    Message,
    available_cores,
    environment,
    limit_threads,
    payload,
    shares,
    work,
)
from clockhands.phrases import shown

# Seconds from SIGTERM to SIGKILL, for a function that handles SIGTERM.
GRACE = 2.0


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    receiver: Any  # a Connection


class LocalPool:
    """Worker processes on this machine."""

    def __init__(self, at_once: int | None, threads: int | None, address: str | None, preload: Iterable[str]) -> None:
        if address is not None:
            raise InvalidValue(
                f"The engine `local` takes no address, got {shown(address)}.",
                "Use the engine `ray`, or give no address.",
            )
        if "forkserver" not in multiprocessing.get_all_start_methods():
            raise ClockhandsError(
                "The engine `local` starts its workers with forkserver, which this system does not have.",
                "Use Linux or macOS; on Windows, use WSL.",
            )
        self.at_once: int
        self.at_once, self._threads = shares(available_cores(), at_once, threads)
        self._context = multiprocessing.get_context("forkserver")
        self._workers: dict[int, _Worker] = {}
        # One server for the life of this process: a later run finds what the first one preloaded.
        self._context.set_forkserver_preload([__name__, *preload])
        self._ensure_server()

    def start(self, number: int, job: Job) -> None:
        """Start a process for a job."""
        if job.workers > 1:
            raise InvalidValue(
                f"The job {job.name!r} needs {job.workers} workers; the engine `local` runs 1 worker per job.",
                "Use the engine `ray`, or set `workers` to 1.",
            )
        called = payload(job)
        self._ensure_server()
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_work,
            args=(called, sender, dict(os.environ), self._threads),
            name=job.name,
            daemon=True,
        )
        with sender, _without_main():
            process.start()
        self._workers[number] = _Worker(process, receiver)

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Wait for workers that have sent something or ended."""
        watched: dict[Any, int] = {worker.receiver: number for number, worker in self._workers.items()}
        watched |= {worker.process.sentinel: number for number, worker in self._workers.items()}
        for number in sorted({watched[ready] for ready in wait(list(watched))}):
            worker = self._workers[number]
            ended = not worker.process.is_alive()
            try:
                while worker.receiver.poll():
                    yield number, pickle.loads(worker.receiver.recv_bytes())
                    if not ended:
                        break  # the other workers come first
            except (EOFError, OSError):
                ended = True
            if ended:
                del self._workers[number]
                yield number, ("ended", _stop([worker])[0])

    def close(self) -> None:
        """End all workers: SIGTERM, and SIGKILL for those that are still there after ``GRACE`` seconds."""
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            _signal(worker.process, signal.SIGTERM)
        _stop(workers)

    def _ensure_server(self) -> None:
        """Start the server where none runs: with few threads, and with Ctrl-C blocked for all its children.

        A new Python imports from the current folder first, where a ``signal.py`` may lie that nobody meant to run.
        """
        with environment({**dict.fromkeys(THREAD_VARIABLES, str(self._threads)), **WITHOUT_CURRENT_FOLDER}):
            resource_tracker.ensure_running()  # the server's start would start it, and that unblocks Ctrl-C again
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                forkserver.ensure_running()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the driver's main module: each worker would import it again, and no job needs it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _signal(process: BaseProcess, number: signal.Signals) -> None:
    """Send a signal to a worker and to all that it has started."""
    pid = process.pid or 0
    try:
        os.killpg(pid, number)
    except OSError:  # it has ended, or has only begun and leads no group yet
        if process.is_alive():
            with suppress(OSError):
                os.kill(pid, number)


def _stop(workers: list[_Worker]) -> list[str]:
    """Wait for workers that are ending and kill those that do not end; return how each one ended."""
    deadline = time.monotonic() + GRACE
    reasons = []
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.exitcode != 0:
            _signal(worker.process, signal.SIGKILL)
            worker.process.join()
        reasons.append(_reason(worker.process.exitcode))
        worker.process.close()
        worker.receiver.close()
    return reasons


def _reason(code: int | None) -> str:
    if code is None or code >= 0:
        return f"The worker ended with exit status {code}."
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    memory = " (the system does this when memory runs out)" if name == "SIGKILL" else ""
    return f"The worker was killed by {name}{memory}."


def _work(called: bytes, sender: Connection, environment: dict[str, str], threads: int) -> None:
    """The main function of a worker process."""
    os.setpgrp()
    threading.Thread(target=_end_with_driver, daemon=True).start()
    os.dup2(2, 1)  # the driver's stdout is the driver's
    os.environ.clear()
    os.environ.update(environment)
    limit_threads(threads)
    with suppress(BrokenPipeError):  # the driver has ended: nobody is left to tell
        work(called, sender.send_bytes)


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os.killpg(0, signal.SIGKILL)
