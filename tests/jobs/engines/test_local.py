"""The local engine: every job ends in one event, lost workers are replaced, and no process stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clockhands.jobs.engines import Event, Failed, Finished, Job, JobMessage, Lost, Started, run
from oracles import sentences


def squares(count: int) -> list[Job]:
    return [Job(f"square {x}", "jobs.engines.calls:square", {"x": x}) for x in range(count)]


def events_of(job: Job, **options) -> list[Event]:
    with closing(run([job], **options)) as events:
        return list(events)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(happened: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened()


def test_each_result_arrives_once():
    with closing(run(squares(6), at_once=3, threads=1)) as events:
        found = list(events)
    assert {event.job.name: event.result for event in found if isinstance(event, Finished)} == {
        f"square {x}": x * x for x in range(6)
    }
    for job in squares(6):
        own = [event for event in found if event.job == job]
        x = job.arguments["x"]
        assert own == [
            Started(job, 1),
            JobMessage(job, {"x": x}),
            JobMessage(job, {"half": x / 2}),
            Finished(job, x * x),
        ]


def test_a_job_is_taken_when_a_worker_is_free():
    taken = []

    def jobs() -> Iterator[Job]:
        for job in squares(4):
            taken.append(job.name)
            yield job

    events = run(jobs(), at_once=1, threads=1)
    assert taken == []
    with closing(events):
        for event in events:
            assert taken[-1] == event.job.name
    assert len(taken) == 4


def test_a_job_can_follow_from_one_that_failed_after_there_were_none():
    class Jobs:
        def __init__(self) -> None:
            self.left = [Job("broken", "jobs.engines.calls:broken", {"kind": "key"})]

        def __iter__(self) -> Iterator[Job]:
            return self

        def __next__(self) -> Job:
            if not self.left:
                raise StopIteration
            return self.left.pop()

    jobs = Jobs()
    with closing(run(jobs, at_once=2, threads=1)) as events:
        ended = []
        for event in events:
            if isinstance(event, Failed):
                jobs.left.append(Job("after it", "jobs.engines.calls:square", {"x": 3}))
            if isinstance(event, Failed | Finished):
                ended.append((event.job.name, getattr(event, "result", None)))
    assert ended == [("broken", None), ("after it", 9)]


def test_no_more_jobs_at_once_than_allowed(tmp_path: Path):
    for at_once in (1, 2):
        jobs = [Job(f"{n}", "jobs.engines.calls:overlaps", {"folder": str(tmp_path)}) for n in range(4)]
        with closing(run(jobs, at_once=at_once)) as events:
            assert max(event.result for event in events if isinstance(event, Finished)) <= at_once


RAISED = [
    ("jobs.engines.calls:broken", {"kind": "clockhands"}, "`x` must be 1."),
    ("jobs.engines.calls:broken", {"kind": "key"}, "KeyError: 'x'"),
    ("jobs.engines.calls:broken", {"kind": "exit"}, "SystemExit: enough"),
    ("jobs.engines.calls:unpicklable", {}, "TypeError: cannot pickle '_thread.lock' object"),
    ("jobs.engines.calls:absent", {}, "AttributeError: module 'jobs.engines.calls' has no attribute 'absent'"),
    ("jobs.engines.absent:square", {}, "ModuleNotFoundError: No module named 'jobs.engines.absent'"),
]


def test_an_exception_fails_a_job_without_another_attempt(cases):
    jobs = [Job(message, call, arguments) for call, arguments, message in RAISED]
    with closing(run(jobs, at_once=1)) as events:
        found = list(events)
    for job in jobs:
        with cases(job.name):
            first, last = (event for event in found if event.job == job)
            assert first == Started(job, 1)
            assert isinstance(last, Failed)
            assert (last.message, last.hint == "Give 1.") == (job.name, job.arguments.get("kind") == "clockhands")
            assert "Traceback" in last.details


def test_a_job_that_no_worker_can_take_fails_alone():
    bad = Job("bad", "jobs.engines.calls:square", {"x": (n for n in range(3))})
    wide = Job("wide", "jobs.engines.calls:square", {"x": 1}, workers=2)
    with closing(run([bad, wide, *squares(1)], at_once=1)) as events:
        first, second, *_, last = events
    assert isinstance(first, Failed)
    assert "cannot pickle 'generator' object" in first.message
    assert isinstance(second, Failed)
    assert second.message == "The job 'wide' needs 2 workers; the engine `local` runs 1 worker per job."
    assert second.hint == "Use the engine `ray`, or set `workers` to 1."
    assert isinstance(last, Finished)


def test_a_lost_worker_is_replaced(tmp_path: Path):
    job = Job("dies", "jobs.engines.calls:dies", {"until": 2, "folder": str(tmp_path), "how": "kill"})
    reason = "The worker was killed by SIGKILL (the system does this when memory runs out)."
    assert events_of(job) == [
        *(Started(job, 1), JobMessage(job, 1), Lost(job, 1, reason)),
        *(Started(job, 2), JobMessage(job, 2), Lost(job, 2, reason)),
        *(Started(job, 3), JobMessage(job, 3), Finished(job, 3)),
    ]


def test_a_job_fails_when_all_its_workers_are_lost(tmp_path: Path):
    job = Job("dies", "jobs.engines.calls:dies", {"until": 9, "folder": str(tmp_path), "how": "exit"})
    *_, lost, failed = events_of(job, retries=1)
    assert lost == Lost(job, 2, "The worker ended with exit status 3.")
    assert isinstance(failed, Failed)
    assert failed.message == "The worker ended with exit status 3. All 2 attempts ended early."
    assert failed.details.splitlines() == [f"attempt {n}: The worker ended with exit status 3." for n in (1, 2)]


def test_a_worker_has_the_environment_and_the_threads_of_its_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLOCKHANDS_PROBE", "seen")
    *_, last = events_of(Job("where", "jobs.engines.calls:surroundings", {}), at_once=1, threads=3)
    assert isinstance(last, Finished)
    assert last.result["pid"] != os.getpid()
    assert (last.result["PROBE"], last.result["OMP_NUM_THREADS"]) == ("seen", "3")


def test_closing_the_run_ends_its_workers_and_what_they_started(tmp_path: Path):
    jobs = [Job(f"{n}", "jobs.engines.calls:waits", {"folder": str(tmp_path), "children": 1}) for n in range(2)]
    with closing(run(jobs, at_once=2)) as events:
        told = 0
        for event in events:
            told += isinstance(event, JobMessage)
            if told == 2:
                break
        pids = [int(file.name) for file in tmp_path.iterdir()]
        assert len(pids) == 4
        assert all(alive(pid) for pid in pids)
    assert until(lambda: not any(alive(pid) for pid in pids))


# A script without `if __name__ == "__main__"`, as in a notebook: workers must not run it again.
# A run in the background ignores Ctrl-C, and its children inherit that.
DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from clockhands.jobs.engines import Job, run
sys.path.insert(0, {tests!r})
jobs = [Job(str(n), "jobs.engines.calls:{call}", {arguments!r}) for n in range(2)]
for event in run(jobs, {engine!r}, at_once=2):
    print(type(event).__name__, flush=True)
"""


def driver(tmp_path: Path, call: str, engine: str = "local", **arguments: Any) -> subprocess.Popen:
    script = tmp_path / "driver.py"
    tests = str(Path(__file__).resolve().parents[2])
    text = DRIVER.format(tests=tests, call=call, engine=engine, arguments=arguments)
    script.write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_survives_the_driver(tmp_path: Path, how: signal.Signals):
    folder = tmp_path / "pids"
    folder.mkdir()
    with driver(tmp_path, "waits", folder=str(folder), children=1) as process:
        assert until(lambda: len(list(folder.iterdir())) == 4)
        # Ctrl-C in a terminal reaches the whole group
        os.killpg(process.pid, how) if how == signal.SIGINT else process.send_signal(how)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -how
    assert until(lambda: not any(alive(int(file.name)) for file in folder.iterdir()))
    assert errors.count("Traceback") == (how == signal.SIGINT), errors
    assert "calls.py" not in errors


TELLS_NOBODY = """
import multiprocessing, os, sys
from clockhands.jobs.engines import Job
from clockhands.jobs.engines._jobs import payload
from clockhands.jobs.engines.local import _work

receiver, sender = multiprocessing.Pipe(duplex=False)
receiver.close()
_work(payload(Job("squares", "jobs.engines.calls:square", {"x": 3})), sender, {**os.environ}, 1)
"""


def test_a_worker_that_tells_something_to_a_driver_that_is_gone_prints_nothing():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", TELLS_NOBODY], check=False, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")


SERVER = """
from multiprocessing import forkserver
from pathlib import Path
from clockhands.jobs.engines.local import LocalPool

LocalPool(1, 1, None, ())
status = Path(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_ctrl_c_does_not_reach_the_server_while_it_imports():
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, check=True)
    assert int(done.stdout, 16) & 1 << (signal.SIGINT - 1)


def test_what_workers_print_stays_out_of_the_output(tmp_path: Path):
    with driver(tmp_path, "chatty") as process:
        output, errors = process.communicate(timeout=60)
    assert sorted(output.split()) == ["Finished", "Finished", "Started", "Started"]
    assert "printed by a worker" in errors
    assert "written by a worker" in errors


def test_what_is_refused(cases):
    sentences.hold("engines", cases)
