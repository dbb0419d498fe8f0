"""Runs jobs in worker processes, on this machine or on a Ray cluster, and reports their progress.

>>> run([Job("one", "package.module:function", {"steps": 10})], "lokal")
Traceback (most recent call last):
clockhands.errors.InvalidValue: There is no engine 'lokal'.
hint: Did you mean local?
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from importlib import import_module

from clockhands.arguments import count
from clockhands.errors import InvalidValue
from clockhands.jobs.engines._jobs import (
    Event,
    Failed,
    Finished,
    Job,
    JobMessage,
    Lost,
    Pool,
    Started,
    available_cores,
    failure,
    shares,
)
from clockhands.phrases import did_you_mean, shown

__all__ = [
    "ENGINES",
    "Event",
    "Failed",
    "Finished",
    "Job",
    "JobMessage",
    "Lost",
    "Started",
    "available_cores",
    "run",
    "shares",
]


# The class that starts the workers of each engine, imported when it is used.
ENGINES = {"local": "clockhands.jobs.engines.local:LocalPool", "ray": "clockhands.jobs.engines.ray:RayPool"}


def run(
    jobs: Iterable[Job],
    engine: str = "local",
    *,
    at_once: int | None = None,
    threads: int | None = None,
    retries: int = 2,
    address: str | None = None,
    preload: Iterable[str] = (),
) -> Generator[Event, None, None]:
    """Run each job in a separate worker process; yield the events in the order in which they arrive.

    The next job is taken from ``jobs`` when a worker is free for it; while any job runs, an iterator that had none may
    have one later, such as what is left of a job that failed. Closing the generator ends all workers, so hold it
    in ``contextlib.closing``. An exception in the function fails its job. A worker that dies is replaced by another
    that calls the function again with the same arguments: the function continues from its own checkpoint.

    Args:
        jobs: The jobs.
        engine: ``"local"`` or ``"ray"``.
        at_once: How many jobs run at the same time; if not given, as many as there are cores for.
        threads: Threads (``local``) or CPUs (``ray``) of each worker; if not given, the cores are shared equally.
        retries: How many more attempts a job has whose worker dies.
        address: A Ray cluster to connect to; without it, ``ray`` starts one on this machine.
        preload: Installed modules that are imported once for all workers of ``local``, such as ``"torch"``.

    Raises:
        InvalidValue: There is no such engine, or a value cannot be used.
    """
    if engine not in ENGINES:
        raise InvalidValue(
            f"There is no engine {shown(engine)}.",
            did_you_mean(str(engine), ENGINES, f"Engines are {', '.join(ENGINES)}."),
        )
    at_once = None if at_once is None else count("at_once", at_once)
    threads = None if threads is None else count("threads", threads)
    retries = count("retries", retries, least=0)
    module, _, name = ENGINES[engine].partition(":")
    return _events(
        iter(jobs), partial(getattr(import_module(module), name), at_once, threads, address, tuple(preload)), retries
    )


def _events(waiting: Iterator[Job], opened: Callable[[], Pool], retries: int) -> Generator[Event, None, None]:
    again: list[tuple[Job, list[str]]] = []  # with the reason of each lost attempt
    running: dict[int, tuple[Job, list[str]]] = {}
    outcomes: dict[int, tuple] = {}
    number = 0
    with closing(opened()) as pool:
        while True:
            while len(running) < pool.at_once:
                job, lost = again.pop(0) if again else (next(waiting, None), [])
                if job is None:
                    break
                number += 1
                try:
                    pool.start(number, job)
                except Exception as error:  # noqa: BLE001 - such as an argument that cannot be pickled
                    yield Failed(job, *failure(error)[1:])
                    continue
                running[number] = job, lost
                yield Started(job, len(lost) + 1)
            if not running:
                return
            for key, (kind, *content) in pool.messages():
                job, lost = running[key]
                if kind == "told":
                    yield JobMessage(job, *content)
                elif kind != "ended":
                    outcomes[key] = kind, *content
                else:
                    del running[key]
                    match outcomes.pop(key, None):
                        case "finished", result:
                            yield Finished(job, result)
                        case "failed", message, details, hint:
                            yield Failed(job, message, details, hint)
                        case _:
                            lost.append(*content)
                            yield Lost(job, len(lost), *content)
                            if len(lost) <= retries:
                                again.append((job, lost))
                            else:
                                all_lost = "" if len(lost) == 1 else f" All {len(lost)} attempts ended early."
                                yield Failed(
                                    job,
                                    content[0] + all_lost,
                                    "\n".join(f"attempt {n}: {reason}" for n, reason in enumerate(lost, 1)),
                                    "Find out what ends it, for example too little memory, and run it again.",
                                )
