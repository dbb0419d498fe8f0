"""A lab that is killed at any moment, or that loses a worker, ends with the rows of one that was never disturbed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clockhands.lab.store import Store, StoredRow

pytestmark = pytest.mark.slow

KILLS = 20

# Three kinds of state that a checkpoint must hold: a drop with new parameters, learned numbers, and drawn positions.
STUDY = Path(__file__).with_name("killed_study.toml").read_text(encoding="utf-8")
TRIALS = 8


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "killed.toml"
    path.write_text(STUDY)
    return path


def lab(*words: object) -> list[str]:
    return [sys.executable, "-m", "clockhands", "lab", *map(str, words)]


def finished(store: Path) -> tuple[list[StoredRow], int]:
    """All rows in a fixed order, and how many trials are finished."""
    if not store.exists() or not store.stat().st_size:
        return [], 0
    with Store.open(store, create=False, write=False) as opened:
        if not opened.studies():  # killed between the tables and the study
            return [], 0
        (stored,) = opened.studies()
        return opened.rows(stored.hash), sum(each.state == "finished" for each in opened.trials(stored.hash))


@pytest.fixture(scope="module")
def undisturbed(study: Path) -> list[StoredRow]:
    store = study.with_name("whole.sqlite")
    subprocess.run(lab("run", study, "--store", store), check=True, capture_output=True, timeout=300)
    rows, trials = finished(store)
    assert trials == TRIALS
    assert {row.kind for row in rows} == {"training", "curve", "evaluation"}
    return rows


def at_work(store: Path) -> bool:
    """Whether a trial of this store has a checkpoint."""
    return bool(list(store.parent.glob(f"{store.name}.checkpoints/*/*.pt")))


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.02)


def workers(of: int) -> list[int]:
    """The processes below one, the youngest first: the workers that train, before the one that forks them."""
    below, known = [], {of}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda each: int(each.name)):
        try:
            parent = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent in known:
            known.add(int(folder.name))
            below.append(int(folder.name))
    return below[::-1]


def test_killed_twenty_times_at_random_moments_it_ends_with_the_same_rows(study: Path, undisturbed: list[StoredRow]):
    store = study.with_name("killed.sqlite")
    rng = random.Random(22)
    killed, met = 0, 0
    while killed < KILLS or (met <= KILLS // 4 and killed < 4 * KILLS):  # a fast machine may be done before
        command = lab("run", study, "--store", store) if killed % 3 == 0 else lab("resume", "--store", store)
        if not store.exists():
            command = lab("run", study, "--store", store)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            # Every third kill may come while the lab starts; the others come once there is a checkpoint to go on from.
            if killed % 3:
                wait_until(lambda: running.poll() is not None or at_work(store))
            time.sleep(rng.uniform(0.0, 1.5))
            met += running.poll() is None and at_work(store)
            if killed % 5 == 4 and (below := workers(running.pid)):
                os.kill(below[0], signal.SIGKILL)  # a worker first; the lab goes on or is killed itself
                time.sleep(0.3)
            running.kill()
        killed += 1
        rows, trials = finished(store)
        if trials == TRIALS:  # all done before the last kill: once more from nothing
            assert rows == undisturbed
            for file in (store, *store.parent.glob("killed.sqlite-*")):
                file.unlink(missing_ok=True)
    done = subprocess.run(lab("run", study, "--store", store), check=True, capture_output=True, timeout=300, text=True)
    rows, trials = finished(store)
    assert trials == TRIALS, done.stderr
    assert rows == undisturbed
    assert len({(row.key, *row.measurement[:2], *row.measurement[3:]) for row in rows}) == len(rows), "a row twice"
    assert met > KILLS // 4, "too few kills met a lab at work"
    assert not at_work(store), "finished trials leave no checkpoint"


def kill_a_ray_worker(of: subprocess.Popen, until: Callable[[], bool]) -> bool:
    """Kill one Ray process that trains, once there is a checkpoint; whether one was found."""
    end = time.monotonic() + 120
    while time.monotonic() < end and of.poll() is None:
        if until():
            for process in workers(of.pid):
                try:
                    name = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]
                except OSError:
                    continue
                if name.startswith(b"ray::") and b"IDLE" not in name and b"Agent" not in name:
                    os.kill(process, signal.SIGKILL)
                    return True
        time.sleep(0.05)
    return False


def test_on_ray_with_a_worker_killed_the_rows_are_those_of_the_local_engine(study: Path, undisturbed: list[StoredRow]):
    pytest.importorskip("ray")
    store = study.with_name("ray.sqlite")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = lab("run", study, "--store", store, "--engine", "ray", "--jobs", 2)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean) as running:
        killed = kill_a_ray_worker(running, lambda: at_work(store))
        _, told = running.communicate(timeout=400)
    assert running.returncode == 0, told
    assert killed, told
    assert "lost: " in told
    rows, trials = finished(store)
    assert trials == TRIALS
    assert rows == undisturbed
