"""The engine ``ray``: each job is a task of Ray, on this machine or on a cluster.

A task runs in a new process, as with the engine ``local``. Ray ends the tasks when the driver is gone; what a function
has started in other processes can stay behind. The task of a job with several workers is the driver of Ray Train, which
starts the workers and connects them for ``torch.distributed``. Each worker calls the function; the first one (world
rank 0) reports for the job, and an exception in any of them fails it.

On a cluster, every node needs clockhands and the module of the function, and a folder that all nodes share if a job is
to continue from its checkpoint on another node.
"""

import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.jobs.engines._jobs import (
    WITHOUT_CURRENT_FOLDER,
    Job,
    Message,
    available_cores,
    environment,
    failure,
    limit_threads,
    payload,
    shares,
    work,
)
from clockhands.phrases import shown

# Seconds between two looks for messages while no task ends.
INTERVAL = 0.2

# Raised in the worker of a distributed job after the exception of its function was sent.
_FAILED = "The function failed in this worker."

# Ray reads these when it is imported: it reports nothing to its makers.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}
# A Ray for this machine only listens at 127.0.0.1, which is Ray's default on Windows and macOS.
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


class RayPool:
    """Tasks on a Ray cluster, or on a Ray that is started for this run."""

    def __init__(self, at_once: int | None, threads: int | None, address: str | None, preload: Iterable[str]) -> None:
        local = address in (None, "local")
        for name, value in (_ENVIRONMENT | (_LOOPBACK if local else {})).items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError:
            raise ClockhandsError(
                "The engine `ray` needs Ray, which is not installed.",
                "Install it with `pip install 'clockhands[ray]'`.",
            ) from None
        self._ray: Any = ray
        self._tasks: dict[Any, int] = {}
        self._failures: dict[int, Message] = {}
        self._connected = not ray.is_initialized()
        self._started = self._connected and local
        if self._started:
            self.at_once: int
            self.at_once, self._threads = shares(available_cores(), at_once, threads)
            cores = max(available_cores(), self.at_once * self._threads)
            _connect(ray, "local", num_cpus=cores, include_dashboard=False, _node_ip_address="127.0.0.1")
        else:
            if self._connected:
                _connect(ray, address)
            elif address is not None:
                raise InvalidValue(
                    f"This process is already connected to Ray; it cannot connect to {shown(address)}.",
                    "Give no address, or call ray.shutdown() before.",
                )
            cores = int(ray.cluster_resources().get("CPU", 1))
            self.at_once, self._threads = shares(cores, at_once, threads or 1)
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self._mailbox = self._ray.remote(num_cpus=0, scheduling_strategy=here)(_Mailbox).remote()

    def start(self, number: int, job: Job) -> None:
        """Hand a job to Ray."""
        if self._started:
            have = self._ray.cluster_resources()
            for unit, each in (("CPU", self._threads), ("GPU", job.gpus)):
                need = each * job.workers
                if need > have.get(unit, 0):
                    raise InvalidValue(
                        f"The job {job.name!r} needs {need:g} {unit}{'s' * (need != 1)}, but "
                        f"this machine has {have.get(unit, 0):g}.",
                        "Use fewer, or give the address of a Ray cluster that has them.",
                    )
        call = _Call(payload(job), self._threads, sys.path, str(Path.cwd()), number, self._mailbox)
        fresh = self._ray.remote(max_calls=1, max_retries=0)  # a process for each task; retries are the driver's
        if job.workers == 1:
            task = fresh(_alone).options(name=job.name, num_cpus=self._threads, num_gpus=job.gpus).remote(call)
        else:
            task = fresh(_together).options(name=job.name, num_cpus=0).remote(call, job.workers, job.gpus)
        self._tasks[task] = number

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Wait for a task to end, or for ``INTERVAL`` seconds."""
        from ray.exceptions import RayError, RayTaskError

        ended, _ = self._ray.wait(list(self._tasks), timeout=INTERVAL)
        running = set(self._tasks.values())
        for number, data in self._ray.get(self._mailbox.take.remote()):
            message = pickle.loads(data)
            if message[0] == "failed":
                self._failures.setdefault(number, message)  # the first exception caused those of the other workers
            elif number in running:  # and is not one that a lost worker still sent
                yield number, message
        for task in ended:
            number = self._tasks.pop(task)
            failed = self._failures.pop(number, None)
            reason = None
            try:
                reason = self._ray.get(task)
                failed = None if reason else failed  # the others fail when they lose a worker
            except RayTaskError as error:  # the function was not even called
                failed = failure(error.cause)
            except RayError as error:
                reason = _reason(error)
            if failed:
                yield number, failed
            yield number, ("ended", reason or "The worker ended without a result.")

    def close(self) -> None:
        """End all tasks, and the Ray that was started for them."""
        for task in self._tasks:
            self._ray.cancel(task, force=True)
        self._tasks.clear()
        self._ray.kill(self._mailbox)
        if self._connected:
            self._ray.shutdown()
            _print_messages(self._ray, wanted=True)


class _Mailbox:
    """An actor that holds what workers send until the driver takes it."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, bytes]] = []

    def put(self, number: int, data: bytes) -> None:
        self._messages.append((number, data))

    def take(self) -> list[tuple[int, bytes]]:
        taken, self._messages = self._messages, []
        return taken


def _print_messages(ray: Any, *, wanted: bool) -> None:
    """Set whether Ray prints on standard output that a worker died; ``log_to_driver`` does not control that.

    Here a dead worker is an event, and standard output belongs to the caller. Ray has no public switch for it.
    """
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "_worker_logs_enabled"):
        vars(worker)["_worker_logs_enabled"] = wanted


def _connect(ray: Any, address: str | None, **options: Any) -> None:
    """Connect to Ray from the root folder: it puts the current one on the path of every worker."""
    host, _, port = str(address).rpartition("://")[2].rpartition(":")
    try:
        if port.isdecimal():  # Ray itself gives up after a quarter of an hour
            socket.create_connection((host, int(port)), timeout=10).close()
        _print_messages(ray, wanted=False)
        with environment(WITHOUT_CURRENT_FOLDER), chdir(os.sep):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # noqa: BLE001 - Ray raises this class itself where a busy machine starts it too slowly
        if address == "local":
            raise ClockhandsError(
                f"Ray cannot be started on this machine: {error}",
                f"{_known_cause(str(error))}Leave `--engine ray` out, and the same jobs run here without Ray.",
            ) from None
        raise ClockhandsError(
            f"Ray cannot be reached at {shown(address)}: {error}",
            "Start a cluster with `ray start --head`, and set RAY_AUTH_MODE=token if it requires a token; or give no "
            "address: then Ray is started on this machine.",
        ) from None


def _known_cause(message: str) -> str:
    """What is known of why Ray did not start, as a sentence before a hint; empty where its message alone says it."""
    if "timed out" in message.lower():
        return "Its processes took too long to start, as on a machine that is busy: try again later. "
    return ""


def _reason(error: Exception) -> str:
    from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError

    if isinstance(error, OutOfMemoryError):
        return "Ray ended the worker because its node had too little memory left."
    if isinstance(error, NodeDiedError):
        return "The node of the worker died."
    if isinstance(error, WorkerCrashedError):
        return "The worker process died (the system kills processes when memory runs out)."
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class _Call:
    """What a worker gets: the call, and where to send messages."""

    payload: bytes
    threads: int
    paths: list[str]
    folder: str
    number: int
    mailbox: Any

    def work(self, *, leads: bool = True) -> bool:
        """Call the function in this process; whether it returned."""
        import ray

        sys.path += [path for path in self.paths if path not in sys.path]
        with suppress(OSError):  # another machine may not have the folder
            os.chdir(self.folder)
        limit_threads(self.threads)
        return work(self.payload, lambda data: ray.get(self.mailbox.put.remote(self.number, data)), leads=leads)


def _alone(call: _Call) -> None:
    """The task of a job with one worker."""
    call.work()


def _together(call: _Call, workers: int, gpus: float) -> str | None:
    """The task of a distributed job; why it was lost, if it was."""
    try:
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer
    except ImportError as error:
        raise ClockhandsError(
            f"A job with {workers} workers needs Ray Train, which cannot be imported: {error}",
            "Install it on every node with `pip install 'ray[train]' torch`.",
        ) from None

    resources = {"CPU": call.threads, **({"GPU": gpus} if gpus else {})}
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            _rank,
            train_loop_config={"call": call},
            scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus > 0, resources_per_worker=resources),
            run_config=RunConfig(storage_path=folder),
        )
        try:
            trainer.fit()
        except Exception as error:  # noqa: BLE001 - whatever Ray Train raises, a worker or all of them are lost
            for rank, fault in getattr(error, "worker_failures", {0: error}).items():
                if _FAILED not in str(fault):
                    return f"The worker of rank {rank} was lost: {str(fault).partition(chr(10))[0]}"
    return None


def _rank(config: dict[str, Any]) -> None:
    """What each worker of a distributed job runs."""
    from ray.train import get_context

    if not config["call"].work(leads=get_context().get_world_rank() == 0):
        raise RuntimeError(_FAILED)
