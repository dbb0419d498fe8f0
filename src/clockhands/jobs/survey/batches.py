"""Gives batches of targets to worker processes: each target has an outcome, whatever becomes of its worker.

Memory does not grow with the number of targets: they are taken from an iterator when a worker is free.
"""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from clockhands.errors import ClockhandsError
from clockhands.jobs.engines import Event, Failed, Finished, Job, JobMessage, run
from clockhands.jobs.survey.limits import Failure, too_long

BATCH = 200
"""Targets of a job: a new process costs as much as some 20 audits, and the last batches should end together."""

ATTEMPTS = 2
"""How often a target may end its worker until it is blamed; all attempts after the first are alone in a worker."""

_WITHOUT_PROGRESS = 5  # workers that end one after the other before they begin a target
_PRELOAD = ("clockhands.jobs.survey.worker",)


@dataclass(frozen=True)
class Workers:
    """Which workers take the batches.

    Attributes:
        engine: ``local`` or ``ray``.
        address: The Ray cluster to connect to.
        at_once: Workers at the same time; None for one on each core.
        batch: Targets of a worker.
        timeout: Seconds for each target.
    """

    engine: str = "local"
    address: str | None = None
    at_once: int | None = None
    batch: int = BATCH
    timeout: float = 60.0


@dataclass(frozen=True)
class TargetOutcome:
    """What became of a target: the result of its worker, or the message and the hint of a failure."""

    target: str
    result: Any = None
    failure: Failure | None = None


@dataclass
class _Batch:
    """Targets of a worker that it has not finished, and the one that it audits now."""

    targets: list[str]
    current: str | None = None
    since: float = 0.0


@dataclass
class _Batches:
    """The jobs; targets left by a dead worker are given out again before new ones."""

    targets: Iterator[str]
    call: str
    arguments: Mapping[str, Any]
    workers: Workers
    again: deque[list[str]] = field(default_factory=deque)
    running: dict[str, _Batch] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    number: int = 0

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Job:
        targets = self.again.popleft() if self.again else self._fresh()
        if not targets:
            raise StopIteration
        self.number += 1
        name = f"batch {self.number}"
        self.running[name] = _Batch(targets)
        how = {**self.arguments, "timeout": self.workers.timeout}
        return Job(name, self.call, {"targets": tuple(targets), **how})

    def _fresh(self) -> list[str]:
        """The next targets that no worker has."""
        taken: dict[str, None] = {}
        for target in self.targets:
            if not any(target in batch.targets for batch in self.running.values()):
                taken[target] = None
            if len(taken) == self.workers.batch:
                break
        return list(taken)

    def after_loss(self, batch: _Batch, reason: str) -> TargetOutcome | None:
        """Give out the targets of a dead worker again; a failure of the target that killed it, if certain.

        A worker may be killed for reasons unrelated to its target. So the target is tried again alone, and fails only
        if that worker dies too.
        """
        guilty, rest = batch.current, [target for target in batch.targets if target != batch.current]
        if rest:
            self.again.append(rest)
        if guilty is None:
            return None
        late = time.monotonic() - batch.since >= self.workers.timeout
        lost = self.lost[guilty] = self.lost.get(guilty, 0) + 1
        if lost < ATTEMPTS:
            self.again.append([guilty])
            return None
        del self.lost[guilty]
        if late:
            return TargetOutcome(guilty, failure=too_long(self.workers.timeout))
        message = f"The process that audited it ended, {ATTEMPTS} times. The last time: {reason}"
        return TargetOutcome(guilty, failure=(message, "Audit it alone with `clockhands audit`."))


def outcomes(
    targets: Iterable[str], call: str, arguments: Mapping[str, Any], workers: Workers
) -> Generator[TargetOutcome, None, None]:
    """The outcome of each target, as soon as it is known. Closing the generator ends all workers.

    Args:
        targets: What `clockhands.audit` takes, as text; taken when workers are free. One that a worker has is left out.
        call: The function that takes a batch, as `clockhands.jobs.engines.Job` takes it: it gets ``targets``,
            ``timeout`` and the arguments, and tells ``("begun", target)`` and ``("done", result, failure)`` for each
            target.
        arguments: Further arguments.
        workers: Which workers.

    Raises:
        ClockhandsError: Workers cannot be started, or end before they begin a target.
    """
    batches = _Batches(iter(targets), call, arguments, workers)
    running = run(
        batches,
        workers.engine,
        at_once=workers.at_once,
        threads=1,
        retries=0,  # a batch is given out again without what was finished
        address=workers.address,
        preload=_PRELOAD,
    )
    with closing(running):
        yield from _outcomes(running, batches)


def _outcomes(running: Iterable[Event], batches: _Batches) -> Iterator[TargetOutcome]:
    without = 0
    for event in running:
        match event:
            case JobMessage(job, ("begun", target)):
                batch = batches.running[job.name]
                batch.current, batch.since = target, time.monotonic()
                without = 0
            case JobMessage(job, ("done", result, failure)):
                batch = batches.running[job.name]
                target = batch.current or ""
                batch.targets.remove(target)
                batch.current = None
                batches.lost.pop(target, None)
                yield TargetOutcome(target, result, failure)
            case Finished(job):
                del batches.running[job.name]
            case Failed(job, message, _, hint):
                batch = batches.running.pop(job.name)
                without = without + 1 if batch.current is None else 0
                if without == _WITHOUT_PROGRESS:
                    raise ClockhandsError(f"The workers end before they audit anything. {message}", hint)
                outcome = batches.after_loss(batch, message)
                if outcome is not None:
                    yield outcome
            case _:
                pass
