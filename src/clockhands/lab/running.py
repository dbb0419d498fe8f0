"""Running a study: the trials that are not finished go to an engine, and what they measured into the store.

This process alone writes to the store. A trial is claimed when it is handed out, and finished in one transaction.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from clockhands.engines import Event, Failed, Finished, Job, run
from clockhands.errors import InvalidValue
from clockhands.lab import arms, codes
from clockhands.lab.start import provenance as provenance_of_start
from clockhands.lab.store import Claim, Key, Measurement, Store
from clockhands.lab.study import Study
from clockhands.lab.tasks import Language

CALL = "clockhands.lab.training:trial"
# PyTorch's optimisers import `torch._dynamo` at their first step, which takes a second.
PRELOAD = ("torch", "torch._dynamo", "clockhands.lab.training")


@dataclass(frozen=True)
class Options:
    """How a study is run; none of it changes what is measured but ``threads`` and ``device``.

    Attributes:
        engine: ``local`` or ``ray``.
        address: A Ray cluster.
        at_once: Trials at the same time; None is one for each core.
        threads: Threads of a trial. Sums in another order round otherwise, so the number is stored with the results.
        device: ``cpu`` or ``cuda``.
        gpus: GPUs that Ray reserves for a trial.
        workers: Processes of one trial; more than 1 needs Ray.
        retries: How often a trial whose worker died is tried again.
    """

    engine: str = "local"
    address: str | None = None
    at_once: int | None = None
    threads: int = 1
    device: str = "cpu"
    gpus: float = 0
    workers: int = 1
    retries: int = 2


@dataclass
class Progress:
    """How far a study is; tokens count what is trained, so that long and short trials weigh as they should.

    Attributes:
        tokens: Training tokens of all trials that were not finished at the start.
        done: How many of them were trained so far, by trial.
        elsewhere: Trials that another lab works on.
        keys: Trials by the names of their jobs.
    """

    tokens: dict[Key, int]
    done: dict[Key, int] = field(default_factory=dict)
    elsewhere: list[Key] = field(default_factory=list)
    keys: dict[str, Key] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        whole = sum(self.tokens.values()) - sum(self.tokens[key] for key in self.elsewhere)
        return min(1.0, sum(self.done.values()) / whole) if whole > 0 else 1.0


def check(study: Study, options: Options) -> None:
    """Refuse what cannot be run, before a store is made and anything is trained.

    Raises:
        InvalidValue, InvalidType, TooLarge: An arm, a length or a task of the study cannot be used, or an option.
    """
    if options.engine == "local":
        for name, given in (("workers", options.workers > 1), ("address", options.address), ("gpus", options.gpus)):
            if given:
                raise InvalidValue(
                    f"`{name}` is for the engine `ray`: the engine `local` has one process for each trial.",
                    f"Add `--engine ray`, or leave `--{name}` out.",
                )
    _check_device(options)
    for key in study.trial_keys():
        if options.workers > (sequences := study.training_of(key).sequences):
            raise InvalidValue(
                f"{options.workers} workers cannot share the {sequences} sequences of a step of `tasks.{key.task}`.",
                f"Use at most {sequences} workers.",
            )
    arms.check(study)
    codes.check(study)


def _check_device(options: Options) -> None:
    try:
        device = torch.device(options.device)
    except RuntimeError:
        raise InvalidValue(f"There is no device {options.device!r}.", "Use cpu, cuda, or cuda:1 and so on.") from None
    if options.engine != "local":
        return  # it is the cluster that has to have it
    reason = ""
    if device.type == "cuda":  # counted, not used: some GPUs belong to one process at a time
        have = torch.cuda.device_count()
        reason = f"PyTorch {torch.__version__} finds {have} CUDA devices" if (device.index or 0) >= have else ""
    else:
        try:
            torch.zeros(1, device=device).item()
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            reason = str(error).partition("\n")[0].partition(". ")[0]
    if reason:
        raise InvalidValue(f"The device {options.device} cannot be used here: {reason}.", "Use --device cpu.")


def prepare(study: Study, store: Store, command: str, options: Options) -> Progress:
    """Enter a study that was checked, and its trials, into the store.

    Raises:
        StoreError: The store cannot be written.
    """
    store.add_study(study.hash, study.name, study.text, provenance(study, command, options))
    store.add_trials(study.hash, study.trial_keys())
    waiting = {each.key for each in store.trials(study.hash) if each.state == "waiting"}
    return Progress({key: _tokens(study, key) for key in study.trial_keys() if key in waiting})


def events(study: Study, store: Store, options: Options, progress: Progress) -> Generator[Event, None, None]:
    """Run what is not finished; every event of the engine, after what it says was stored.

    Closing the generator ends all workers and frees their trials.
    """
    claims: dict[str, Claim] = {}

    def jobs() -> Iterator[Job]:
        for key in progress.tokens:
            claim = store.claim(study.hash, key)
            if claim is None:
                progress.elsewhere.append(key)
                continue
            name = str(key)
            claims[name], progress.keys[name] = claim, key
            yield Job(name, CALL, _arguments(study, key, claim, options), options.gpus, options.workers)

    try:
        running = run(
            jobs(),
            options.engine,
            at_once=options.at_once,
            threads=options.threads,
            retries=options.retries,
            address=options.address,
            preload=PRELOAD,
        )
        with closing(running):
            for event in running:
                key = progress.keys[event.job.name]
                message = getattr(event, "message", None)
                if isinstance(message, dict) and "step" in message:
                    progress.done[key] = progress.tokens[key] * message["step"] // max(1, message["steps"])
                if isinstance(event, Finished):
                    rows = [Measurement(*row) for row in event.result["rows"]]
                    store.finish(study.hash, key, rows, event.result["facts"], event.result["seconds"])
                elif isinstance(event, Failed):
                    store.fail(study.hash, key, f"{event.message} {event.hint}".strip())
                if isinstance(event, Finished | Failed):
                    progress.done[key] = progress.tokens[key]
                    if isinstance(event, Finished):
                        claims[event.job.name].checkpoint.unlink(missing_ok=True)
                    claims.pop(event.job.name).release()
                yield event
    finally:
        for claim in claims.values():
            claim.release()


def _arguments(study: Study, key: Key, claim: Claim, options: Options) -> dict[str, Any]:
    return {
        "study": study.text,
        "task": key.task,
        "arm": key.arm,
        "seed": key.seed,
        "checkpoint": str(claim.checkpoint),
        "threads": options.threads,
        "device": options.device,
    }


def _tokens(study: Study, key: Key) -> int:
    training = study.training_of(key)
    return max(1, training.steps) * training.sequences * training.length


def provenance(study: Study, command: str, options: Options) -> dict[str, Any]:
    """With what, where, on which texts and from which checkpoints a study is run."""
    packages = ("torch", "numpy", "scipy", "tokenizers", "ray")
    versions = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    texts = {name: plan.task.provenance() for name, plan in study.tasks.items() if isinstance(plan.task, Language)}
    starts = sorted({start for key in study.trial_keys() if (start := study.model_of(key).start)})
    machine = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": options.threads,
        "device": options.device,
        "texts": texts,
        "starts": {start: provenance_of_start(start) for start in starts},
    }
    return {
        "command": command,
        "version": version("clockhands"),
        "commit_id": commit(),
        "versions": versions,
        "machine": machine,
    }


def commit() -> str:
    """The commit of the checkout that this code runs from, with ``+`` where files were changed; "" elsewhere."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", Path(__file__).name],
            cwd=here,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if tracked.returncode == 0 else ""


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform
