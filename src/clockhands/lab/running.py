"""Runs a study: gives unfinished trials to an engine, and stores their measurements.

Only this process writes to the store. A trial is claimed when it is given out, and finished in one transaction.
"""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from clockhands.errors import InvalidValue
from clockhands.jobs.engines import Event, Failed, Finished, Job, run
from clockhands.lab import _model_codes as model_codes
from clockhands.lab import _tokens as tokens
from clockhands.lab import arms
from clockhands.lab._keeping import kept_steps
from clockhands.lab._start import provenance as provenance_of_start
from clockhands.lab.store import Key, Measurement, Store, StoredStudy, Trial, TrialClaim
from clockhands.lab.study import Study
from clockhands.lab.tasks import Language

CALL = "clockhands.lab._training:trial"
# PyTorch's optimisers import `torch._dynamo` at their first step, which takes a second.
PRELOAD = ("torch", "torch._dynamo", "clockhands.lab._training")

AS_BEGUN = ("threads", "device", "workers")
"""Options that change the numbers in their last digits: a study goes on with those that it was begun with."""


@dataclass(frozen=True)
class Options:
    """How a study is run; only the options in `AS_BEGUN` change the results.

    Attributes:
        engine: ``local`` or ``ray``.
        address: A Ray cluster.
        at_once: Trials at the same time; None is one for each core.
        threads: Threads of a trial. They change the order of sums and so their rounding, so the number is stored.
        device: ``cpu`` or ``cuda``.
        gpus: GPUs that Ray reserves for a trial.
        workers: Processes of one trial; more than 1 needs Ray.
        retries: How often a trial whose worker died is tried again.
        keep: Steps after which the model of each trial is kept beside the store; () chooses some, None keeps none.
    """

    engine: str = "local"
    address: str | None = None
    at_once: int | None = None
    threads: int = 1
    device: str = "cpu"
    gpus: float = 0
    workers: int = 1
    retries: int = 2
    keep: tuple[int, ...] | None = None


@dataclass
class Progress:
    """The progress of a study, counted in training tokens, so that long and short trials have the right weight.

    Attributes:
        tokens: Training tokens of all trials that were not finished at the start.
        done: How many of them were trained so far, by trial.
        elsewhere: Trials that another lab works on.
        keys: Trials by the names of their jobs.
        facts: The settings and versions of the trials, stored with each.
        warning: How these differ from those of finished trials; "" if they do not.
    """

    tokens: dict[Key, int]
    done: dict[Key, int] = field(default_factory=dict)
    elsewhere: list[Key] = field(default_factory=list)
    keys: dict[str, Key] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    warning: str = ""

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        whole = sum(self.tokens.values()) - sum(self.tokens[key] for key in self.elsewhere)
        return min(1.0, sum(self.done.values()) / whole) if whole > 0 else 1.0


def check(study: Study, options: Options) -> None:
    """Refuse a study that cannot be run, before a store is created and anything is trained.

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
                f"{options.workers} workers are too many: a step of `tasks.{key.task}` has {sequences} sequences.",
                f"Use at most {sequences} workers.",
            )
    arms.check(study)
    model_codes.check(study)


def _check_device(options: Options) -> None:
    try:
        device = torch.device(options.device)
    except RuntimeError:
        raise InvalidValue(f"There is no device {options.device!r}.", "Use cpu, cuda, cuda:1 and so on.") from None
    if options.engine != "local":
        return  # the cluster must have it
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


def prepare(study: Study, store: Store, command: str, options: Options, *, again: bool = False) -> Progress:
    """Enter a study that was checked, and its trials, into the store; failed ones wait again if ``again``.

    Raises:
        StoreError: The store cannot be written.
        InvalidValue: The study was begun with another text, checkpoint, device or number of threads or workers.
    """
    made = provenance(study, command, options)
    begun = store.study(study.hash)
    if begun is None:
        store.add_study(study.hash, study.name, study.text, {**made, "bounds": _bounds(study)})
        begun = store.study(study.hash)
        assert begun is not None
    # Also of what was just added: another lab may have been first.
    _refuse_other_options(study, begun, store.trials(study.hash), options)
    store.add_trials(study.hash, study.trial_keys())
    trials = store.trials(study.hash)
    if any(each.state == "waiting" or (again and each.state == "failed") for each in trials):
        _refuse_other_inputs(begun.machine, made["machine"])
    if again:
        store.retry(study.hash)
        trials = store.trials(study.hash)
    waiting = {each.key for each in trials if each.state == "waiting"}
    facts = {
        "engine": options.engine,
        "torch": made["versions"]["torch"],
        "clockhands": made["version"],
        "commit": made["commit_id"],
    }
    tokens = {key: _tokens(study, key) for key in study.trial_keys() if key in waiting}
    return Progress(tokens, facts=facts, warning=_mixed(trials, facts) if tokens else "")


def _refuse_other_options(study: Study, begun: StoredStudy, trials: Iterable[Trial], options: Options) -> None:
    """Refuse options other than the study was begun with; a cell of the grid may have a device of its own."""
    for name in AS_BEGUN:
        before, now = {begun.machine.get(name)}, getattr(options, name)
        if name == "device" and len(study.tasks) > len(study.own_tasks):
            ended = {each.key: each.facts.get(name) for each in trials if each.state == "finished"}
            unfinished = {key.task for key in study.trial_keys() if key not in ended}
            before = {device for key, device in ended.items() if key.task in unfinished}
        if name == "device":  # any of the GPUs
            before, now = {each and each.partition(":")[0] for each in before}, now.partition(":")[0]
        if not before <= {None, now}:  # None: the store is older than the option
            was = next(each for each in before if each not in {None, now})
            raise InvalidValue(
                f"The study {begun.name} was started with `--{name} {was}`, got `--{name} {getattr(options, name)}`: "
                "all its trials need the same value, or their numbers cannot be compared.",
                f"Give `--{name} {was}` or leave `--{name}` out; or store the study in another file with `--store`.",
            )

    if begun.machine.get("kept") != (None if options.keep is None else list(options.keep)):
        before = "keeps" if "kept" in begun.machine else "does not keep"
        raise InvalidValue(
            f"The study {begun.name} {before} models since it was started; the models of its finished trials cannot be "
            "kept at other steps.",
            "Leave `--keep` and `--keep-at` out to go on as before; or store the study in another file with `--store`.",
        )


def _refuse_other_inputs(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    known, found = _inputs(before), _inputs(now)
    for what in known.keys() & found.keys():
        (old, was), (new, is_now) = known[what], found[what]
        if old != new:
            raise InvalidValue(
                f"The {what} has changed since the study was started: its SHA-256 was {old[:12]} ({was}), now it "
                f"is {new[:12]} ({is_now}).",
                f"Restore the old {what}, or store the study in another file with `--store`.",
            )


def _inputs(machine: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """SHA-256 and name of everything that a study reads besides its own text, by what it is."""
    found = {}
    for task, each in machine.get("texts", {}).items():
        found[f"text of `tasks.{task}`"] = each["sha256"], f"{each['name']} {each['version']}".strip()
        if "tokenizer_sha256" in each:
            found[f"tokenizer of `tasks.{task}`"] = each["tokenizer_sha256"], each["tokenizer"]
    for start, each in machine.get("starts", {}).items():
        found[f"checkpoint `{start}`"] = each["sha256"], each["package"] or each["file"]
    return found


def _mixed(trials: Iterable[Trial], now: Mapping[str, str]) -> str:
    """How the settings of the finished trials differ, in one sentence."""
    facts = [each.facts for each in trials if each.state == "finished"]
    parts = []
    for name, value in now.items():
        others = sorted({each[name] for each in facts if each.get(name)} - {value})
        if others and value:
            parts.append(f"{name} {', '.join(others)} (now {value})")
    if not parts:
        return ""
    return f"Finished trials were made with {' and '.join(parts)}; the same numbers are certain only with the same."


def _bounds(study: Study) -> dict[str, dict[str, dict[str, float]]]:
    """Derived bounds of the scores, by task and length; stored because the text may be gone later."""
    return {
        name: {str(length): plan.task.bounds(length) for length in plan.evaluation.lengths}
        for name, plan in study.tasks.items()
    }


def events(study: Study, store: Store, options: Options, progress: Progress) -> Generator[Event, None, None]:
    """Run the unfinished trials; yield every event of the engine after its content was stored.

    Closing the generator ends all workers and frees their trials.
    """
    claims: dict[str, TrialClaim] = {}

    def jobs() -> Iterator[Job]:
        for key in progress.tokens:
            claim = store.claim(study.hash, key)
            if claim is None:
                progress.elsewhere.append(key)
                continue
            name = str(key)
            claims[name], progress.keys[name] = claim, key
            arguments = _arguments(study, key, claim, options)
            if options.keep is not None:
                steps = kept_steps(options.keep, study.training_of(key).steps)
                folder = str(store.kept_folder(study.hash, key))
                arguments["keep"] = {"folder": folder, "name": study.name, "steps": steps}
            yield Job(name, CALL, arguments, options.gpus, options.workers)

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
                    facts = {**event.result["facts"], **progress.facts}
                    store.finish(study.hash, key, rows, facts, event.result["seconds"])
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


def _arguments(study: Study, key: Key, claim: TrialClaim, options: Options) -> dict[str, Any]:
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
    """The machine, versions, texts and checkpoints with which a study is run."""
    packages = ("torch", "numpy", "scipy", "tokenizers", "ray")
    versions = {"python": platform.python_version()}
    for name in packages:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    texts = {name: _text(plan.task) for name, plan in study.own_tasks.items() if isinstance(plan.task, Language)}
    starts = sorted({start for key in study.trial_keys() if (start := study.model_of(key).start)})
    machine = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": options.threads,
        "device": options.device,
        "workers": options.workers,
        "texts": texts,
        "starts": {start: provenance_of_start(start) for start in starts},
    }
    if options.keep is not None:
        machine["kept"] = list(options.keep)
    return {
        "command": command,
        "version": version("clockhands"),
        "commit_id": commit(),
        "versions": versions,
        "machine": machine,
    }


def _text(task: Language) -> dict[str, Any]:
    """Where a text comes from, and the tokenizer where it is a file."""
    found, name = task.provenance(), task.tokenizer
    if name not in ("bytes", "bpe"):
        path = tokens.package_file(name, *tokens.PACKAGED[name]) if name in tokens.PACKAGED else Path(name)
        with path.open("rb") as file:
            found["tokenizer_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


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
