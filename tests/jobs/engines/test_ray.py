"""The Ray engine gives the events of the local engine, on a Ray of two CPUs that is started for each run."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import ClockhandsError
from clockhands.jobs.engines import Event, Failed, Finished, Job, JobMessage, Lost, Started, run
from clockhands.jobs.engines.ray import _ENVIRONMENT, _LOOPBACK
from jobs.engines.test_local import alive, driver, squares, until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch):
    """Without the variables that would lead Ray elsewhere, and with those that the engine sets taken back."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", *_ENVIRONMENT, *_LOOPBACK):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def by_job(jobs: list[Job], engine: str, **options: Any) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {job.name: [] for job in jobs}
    with closing(run(jobs, engine, at_once=2, threads=1, **options)) as events:
        for event in events:
            found[event.job.name].append(event)
    return found


def plain(event: Event) -> tuple:
    """What has to agree: a traceback names the files of an engine, a reason the way in which it noticed the loss."""
    match event:
        case Failed(_, message, _, hint):
            return "failed", message, hint
        case Lost(_, attempt, _):
            return "lost", attempt
        case _:
            return (event,)


def test_both_engines_give_the_same_events():
    jobs = [
        *squares(3),
        Job("clockhands", "jobs.engines.calls:broken", {"kind": "clockhands"}),
        Job("key", "jobs.engines.calls:broken", {"kind": "key"}),
        Job("unpicklable", "jobs.engines.calls:unpicklable", {}),
        Job("absent", "jobs.engines.calls:absent", {}),
        Job("generator", "jobs.engines.calls:square", {"x": 1}),
    ]
    local, ray = (
        {name: [plain(event) for event in events] for name, events in by_job(jobs, engine).items()}
        for engine in ("local", "ray")
    )
    assert ray == local


def test_a_lost_worker_is_replaced_and_output_stays_clean(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    folders = [tmp_path / name for name in ("once", "always")]
    for folder in folders:
        folder.mkdir()
    once = Job("once", "jobs.engines.calls:dies", {"until": 1, "folder": str(folders[0]), "how": "kill"})
    always = Job("always", "jobs.engines.calls:dies", {"until": 9, "folder": str(folders[1]), "how": "exit"})
    talks = Job("talks", "jobs.engines.calls:chatty", {})
    wide = Job("gpu", "jobs.engines.calls:square", {"x": 1}, gpus=1)
    found = by_job([once, always, talks, wide], "ray", retries=1)
    reason = "The worker process died (the system kills processes when memory runs out)."
    assert found["once"] == [
        *(Started(once, 1), JobMessage(once, 1), Lost(once, 1, reason)),
        *(Started(once, 2), JobMessage(once, 2), Finished(once, 2)),
    ]
    *_, lost, failed = found["always"]
    assert lost == Lost(always, 2, reason)
    assert isinstance(failed, Failed)
    assert failed.message == f"{reason} All 2 attempts ended early."
    assert found["talks"] == [Started(talks, 1), Finished(talks, "done")]
    (refused,) = found["gpu"]
    assert isinstance(refused, Failed)
    assert refused.message == "The job 'gpu' needs 1 GPU, but this machine has 0."
    assert capfd.readouterr().out == ""


def test_a_worker_killed_from_outside_is_replaced_and_closing_ends_all(tmp_path: Path):
    import ray

    job = Job("waits", "jobs.engines.calls:waits", {"folder": str(tmp_path), "children": 0})
    with closing(run([job], "ray", at_once=1, threads=1)) as events:
        kinds = [type(next(events)) for _ in range(2)]
        first = {int(file.name) for file in tmp_path.iterdir()}
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        kinds += [type(next(events)) for _ in range(3)]
        second = {int(file.name) for file in tmp_path.iterdir()} - first
        assert kinds == [Started, JobMessage, Lost, Started, JobMessage]
        assert len(first) == len(second) == 1
        assert ray.is_initialized()
    assert not ray.is_initialized()
    assert until(lambda: not any(alive(pid) for pid in second))


def test_no_worker_survives_the_driver(tmp_path: Path):
    folder = tmp_path / "pids"
    folder.mkdir()
    with driver(tmp_path, "waits", engine="ray", folder=str(folder), children=0) as process:
        assert until(lambda: len(list(folder.iterdir())) == 2, seconds=120)
        process.kill()
        process.communicate(timeout=120)
    assert until(lambda: not any(alive(int(file.name)) for file in folder.iterdir()))


CLUSTER = """
import ray
from clockhands.jobs.engines import Job, run
from clockhands.errors import InvalidValue

context = ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
print(context.address_info["address"], flush=True)
input()
job = Job("where", "jobs.engines.calls:surroundings", {})
*_, last = run([job], "ray", threads=2)
print(type(last).__name__, last.result["OMP_NUM_THREADS"], ray.is_initialized())
try:
    list(run([job], "ray", address="192.0.2.1:1"))
except InvalidValue as error:
    print(error.message)
"""
DRIVER = """
import sys
from clockhands.jobs.engines import Job, run

*_, last = run([Job("where", "jobs.engines.calls:surroundings", {})], "ray", address=sys.argv[1])
print(type(last).__name__, last.result["OMP_NUM_THREADS"])
"""


def test_a_cluster_is_used_and_left_running(repository: Path, monkeypatch: pytest.MonkeyPatch):
    """By a driver that connects to it, and by a process that is connected already."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")  # where an address is given, Ray leaves this to the user
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "cwd": repository / "tests"}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, **options) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        driver = subprocess.run([sys.executable, "-c", DRIVER, address], check=False, timeout=200, **options)
        assert (driver.returncode, driver.stdout) == (0, "Finished 1\n")
        output, _ = cluster.communicate("\n", timeout=200)
    assert cluster.returncode == 0
    assert output.splitlines() == [
        "Finished 2 True",
        "This process is already connected to Ray; it cannot connect to '192.0.2.1:1'.",
    ]


def test_a_cluster_that_is_not_there_is_named():
    with pytest.raises(ClockhandsError) as caught:
        list(run(squares(1), "ray", address="127.0.0.1:1"))
    assert caught.value.message.startswith("Ray cannot be reached at '127.0.0.1:1': ")
    assert caught.value.hint.startswith("Start a cluster with `ray start --head`")


def test_what_is_known_of_a_failed_start_of_ray_is_said(monkeypatch: pytest.MonkeyPatch):
    def failing(**_options: Any) -> None:
        raise Exception(message)  # noqa: TRY002 - as Ray raises it

    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "init", failing)
    for message in ("The current node timed out during startup.", "No space left on device."):
        with pytest.raises(ClockhandsError, match=rf"^Ray cannot be started on this machine: {message}") as caught:
            list(run(squares(1), "ray"))
        assert ("busy" in str(caught.value.hint)) is ("timed out" in message)
        assert str(caught.value.hint).endswith("the same jobs run here without Ray.")


def test_without_ray_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClockhandsError, match="The engine `ray` needs Ray, which is not installed") as caught:
        list(run(squares(1), "ray"))
    assert caught.value.hint == "Install it with `pip install 'clockhands[ray]'`."


def test_a_distributed_job_runs_in_ray_train():
    jobs = [
        Job(name, "jobs.engines.calls:summed", {"failing": failing}, workers=2)
        for name, failing in (("sums", -1), ("fails", 1))
    ]
    with closing(run(jobs, "ray", at_once=1, threads=1)) as events:
        found = list(events)
    sums, fails = ([event for event in found if event.job == job] for job in jobs)
    assert sums == [
        Started(jobs[0], 1),
        JobMessage(jobs[0], {"rank": 0}),
        Finished(jobs[0], {"workers": 2, "sum": 3.0}),
    ]
    first, failed = fails
    assert first == Started(jobs[1], 1)
    assert isinstance(failed, Failed)
    assert (failed.message, failed.hint) == ("Rank 1 cannot go on.", "Start again.")
