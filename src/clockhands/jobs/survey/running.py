"""Runs a survey: gives batches of targets to workers, and stores each row at once."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version as installed
from pathlib import Path

from clockhands.configs.models_under import models_under
from clockhands.configs.targets import path_of
from clockhands.jobs.survey.batches import Workers, outcomes
from clockhands.jobs.survey.revisions import revision_of
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.store import AS_DECLARED, SurveyStore
from clockhands.jobs.survey.worker import failed

CALL = "clockhands.jobs.survey.worker:audit_batch"


@dataclass(frozen=True)
class SurveyOptions:
    """How a survey is run.

    Attributes:
        workers: The workers, and the seconds for each target.
        length: Tokens at which all targets are audited; None for the length that each declares.
        retry: Whether targets whose audit failed are audited again.
        call: The function that audits a batch, as `clockhands.jobs.survey.batches.outcomes` takes it.
    """

    workers: Workers = field(default_factory=Workers)
    length: int | None = None
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
    version = installed("clockhands")

    def fresh() -> Iterator[str]:
        """The targets that have no row yet."""
        for target in targets:
            state = store.known(target, revision_of(target), version)
            if state == "done" or (state == "failed" and not options.retry):
                progress.known += 1
            else:
                yield target

    with store.driving():
        store.keep_settings({"length": str(options.length or AS_DECLARED)})
        how = {"version": version, "length": options.length}
        running = outcomes(fresh(), options.call, how, options.workers)
        with closing(running):
            for outcome in running:
                if outcome.failure is None:
                    row, report = SurveyRow._make(outcome.result[0]), outcome.result[1]
                else:
                    target, (message, hint) = outcome.target, outcome.failure
                    hint = f"{hint} `--retry` audits failed targets again."
                    row, report = failed(target, revision_of(target), version, message, hint), ""
                if store.add(row, report):
                    progress.stored += 1
                    progress.failed += row.state == "failed"
                yield progress
    yield progress


def read_names(lines: Iterable[str]) -> Iterator[str]:
    """The targets that a file lists, one a line; blank lines and those that begin with ``#`` are left out."""
    for line in lines:
        name = line.strip()
        if name and not name.startswith("#"):
            yield name
