"""Runs a survey: gives batches of targets to workers, stores each row at once, and finds targets that kill workers.

Memory does not grow with the number of targets: they are taken from an iterator when a worker is free, and a row leaves
memory when it is stored.
"""

import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from pathlib import Path

from clockhands.engines import Event, Failed, Finished, Job, Told, run
from clockhands.errors import ClockhandsError
from clockhands.sources.models_under import models_under
from clockhands.sources.targets import path_of
from clockhands.survey.revisions import revision_of
from clockhands.survey.rows import SurveyRow
from clockhands.survey.store import AS_DECLARED, SurveyStore
from clockhands.survey.worker import failed, too_long

CALL = "clockhands.survey.worker:audit_batch"
PRELOAD = ("clockhands.survey.worker",)

BATCH = 200
"""Targets of a job: a new process costs as much as some 20 audits, and the last batches should end together."""

ATTEMPTS = 2
"""How often a target may end its worker until it is blamed; all attempts after the first are alone in a worker."""

_WITHOUT_PROGRESS = 5  # workers that end one after the other before they begin a target


@dataclass(frozen=True)
class SurveyOptions:
    """How a survey is run.

    Attributes:
        engine: ``local`` or ``ray``.
        address: The Ray cluster to connect to.
        at_once: Workers at the same time; None for one on each core.
        length: Tokens at which all targets are audited; None for the length that each declares.
        timeout: Seconds for each target.
        retry: Whether targets whose audit failed are audited again.
        call: The function that audits a batch, as `clockhands.engines.Job` takes it.
    """

    engine: str = "local"
    address: str | None = None
    at_once: int | None = None
    length: int | None = None
    timeout: float = 60.0
    retry: bool = False
    call: str = CALL


@dataclass
class SurveyProgress:
    """What a survey has done so far.

    Attributes:
        stored: Rows that this run stored.
        failed: Those of them without an audit.
        known: Targets that were in the store already.
    """

    stored: int = 0
    failed: int = 0
    known: int = 0


@dataclass
class _Batch:
    """Targets of a worker that it has not finished, and the one that it audits now."""

    targets: list[str]
    current: str | None = None
    since: float = 0.0


@dataclass
class _Batches:
    """The jobs of a survey; targets left by a dead worker are given out again before new ones."""

    targets: Iterator[str]
    store: SurveyStore
    options: SurveyOptions
    version: str
    progress: SurveyProgress
    again: deque[list[str]] = field(default_factory=deque)
    running: dict[str, _Batch] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    number: int = 0

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Job:
        targets = self.again.popleft() if self.again else list(self._fresh())
        if not targets:
            raise StopIteration
        self.number += 1
        name = f"batch {self.number}"
        self.running[name] = _Batch(targets)
        how = {"version": self.version, "length": self.options.length, "timeout": self.options.timeout}
        return Job(name, self.options.call, {"targets": tuple(targets), **how})

    def _fresh(self) -> Iterator[str]:
        """The next targets that have no row yet and that no worker has."""
        taken: set[str] = set()
        for target in self.targets:
            if target in taken or any(target in batch.targets for batch in self.running.values()):
                continue
            state = self.store.known(target, revision_of(target), self.version)
            if state == "done" or (state == "failed" and not self.options.retry):
                self.progress.known += 1
                continue
            taken.add(target)
            yield target
            if len(taken) == BATCH:
                return


def targets_of(named: Iterable[str]) -> Iterator[str]:
    """The targets that are meant: each model under a folder, else the name itself; paths become absolute.

    >>> list(targets_of(["vaswani2017"]))
    ['vaswani2017']
    """
    for name in named:
        if os.path.isdir(name):
            found = False
            for model in models_under(Path(name).absolute()):
                found = True
                yield str(model)
            if not found:  # the row says why
                yield str(Path(name).absolute())
        else:
            yield str(Path(name).absolute()) if os.path.exists(name) or _in_file(name) else name


def _in_file(name: str) -> bool:
    """Whether a name is ``FILE:NAME``, one array of a file."""
    path = path_of(name)
    return path is not None and name.startswith(str(path))


def survey(
    targets: Iterable[str], store: SurveyStore, options: SurveyOptions | None = None
) -> Generator[SurveyProgress, None, None]:
    """Audit targets that have no row yet, and store a row for each; the progress after every row.

    A survey that was interrupted continues when it is run again. Closing the generator ends all workers.

    Args:
        targets: What `clockhands.audit` takes, as text; taken when workers are free.
        store: Where the rows are stored.
        options: How it is run.

    Raises:
        Busy: Another survey writes to the store.
        ClockhandsError: Workers cannot be started.
    """
    options = options or SurveyOptions()
    progress = SurveyProgress()
    with store.driving():
        store.keep_settings({"length": str(options.length or AS_DECLARED)})
        batches = _Batches(iter(targets), store, options, installed("clockhands"), progress)
        running = run(
            batches,
            options.engine,
            at_once=options.at_once,
            threads=1,
            retries=0,  # a batch is given out again without what was finished
            address=options.address,
            preload=PRELOAD,
        )
        with closing(running):
            yield from _stored(running, batches)
    yield progress


def _stored(running: Iterable[Event], batches: _Batches) -> Iterator[SurveyProgress]:
    without = 0
    for event in running:
        match event:
            case Told(job, ("begun", target)):
                batch = batches.running[job.name]
                batch.current, batch.since = target, time.monotonic()
                without = 0
            case Told(job, ("row", row, report)):
                batch = batches.running[job.name]
                batch.targets.remove(batch.current or "")
                batch.current = None
                yield _keep(batches, SurveyRow._make(row), report)
            case Finished(job):
                del batches.running[job.name]
            case Failed(job, message, _, hint):
                batch = batches.running.pop(job.name)
                without = without + 1 if batch.current is None else 0
                if without == _WITHOUT_PROGRESS:
                    raise ClockhandsError(f"The workers end before they audit anything. {message}", hint)
                row = _after_loss(batches, batch, message)
                if row is not None:
                    yield _keep(batches, row, "")
            case _:
                pass


def _after_loss(batches: _Batches, batch: _Batch, reason: str) -> SurveyRow | None:
    """Give out the targets of a dead worker again; a failure row for the target that killed it, if certain.

    A worker may be killed for reasons unrelated to its target. So the target is tried again alone, and gets a failure
    row only if that worker dies too.
    """
    guilty, rest = batch.current, [target for target in batch.targets if target != batch.current]
    if rest:
        batches.again.append(rest)
    if guilty is None:
        return None
    late = time.monotonic() - batch.since >= batches.options.timeout
    lost = batches.lost[guilty] = batches.lost.get(guilty, 0) + 1
    if lost < ATTEMPTS:
        batches.again.append([guilty])
        return None
    del batches.lost[guilty]
    if late:
        message, hint = too_long(batches.options.timeout)
    else:
        message = f"The process that audited it ended, {ATTEMPTS} times. The last time: {reason}"
        hint = "Audit it alone with `clockhands audit`. `--retry` audits failed targets again."
    return failed(guilty, revision_of(guilty), batches.version, message, hint)


def _keep(batches: _Batches, row: SurveyRow, report: str) -> SurveyProgress:
    batches.lost.pop(row.target, None)
    if batches.store.add(row, report):
        batches.progress.stored += 1
        batches.progress.failed += row.state == "failed"
    return batches.progress


def read_names(lines: Iterable[str]) -> Iterator[str]:
    """The targets that a file lists, one a line; blank lines and those that begin with ``#`` are left out."""
    for line in lines:
        name = line.strip()
        if name and not name.startswith("#"):
            yield name
