"""`clockhands lab` as a process of its own: event files, Ctrl-C, stores that cannot be written."""

import ctypes
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from clockhands.lab.store import StoredRow
from lab.test_interrupted import at_work, finished, lab, wait_until, workers

pytestmark = pytest.mark.slow

STUDY = Path(__file__).with_name("whole_study.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whole")
    (made / "mine.toml").write_text(STUDY, encoding="utf-8")
    return made


def run(*words: object, folder: Path, **options) -> subprocess.CompletedProcess:
    return subprocess.run(lab(*words), cwd=folder, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> list[StoredRow]:
    """The rows of a run that nothing interrupts."""
    done = run("run", "mine.toml", "--store", "whole.sqlite", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Does it run as a whole?\n3 trials; ")
    assert "Traceback" not in done.stderr
    return finished(folder / "whole.sqlite")[0]


def test_ctrl_c_keeps_what_was_finished_and_says_how_to_go_on(folder: Path, undisturbed: list[StoredRow]):
    store = folder / "stopped.sqlite"
    # A run in the background ignores Ctrl-C, and its children inherit that.
    command = ["env", "--default-signal=INT", *lab("run", "mine.toml", "--store", store, "--jobs", "1")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes) as running:
        wait_until(lambda: at_work(store) or running.poll() is not None)
        below = workers(running.pid)
        assert below
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        output, told = running.communicate(timeout=60)
    assert (running.returncode, output) == (130, "")
    said = (
        f"Interrupted: 1 of 3 trials are finished and kept. `clockhands lab resume --store {store} --jobs 1` goes on."
    )
    assert told.split("\n")[-3:] == [said, "", ""]
    assert "Traceback" not in told
    wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in below))
    assert not any(Path(f"/proc/{each}").exists() for each in below)
    done = run("resume", "--store", store, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "0 of 2 trials" in done.stderr
    assert finished(store) == (undisturbed, 3)


def test_a_store_that_is_read_only_is_named_and_can_be_read(folder: Path, undisturbed: list[StoredRow]):
    closed = folder / "closed"
    closed.mkdir()
    store = closed / "lab.sqlite"
    store.write_bytes((folder / "whole.sqlite").read_bytes())
    store.chmod(0o444)
    closed.chmod(0o555)

    def as_anybody() -> None:  # also where root runs this: PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)

    try:
        done = run("run", "mine.toml", "--store", store, folder=folder, preexec_fn=as_anybody)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[-2:] == [
            f"error: {store} cannot be written: the file or its folder is read-only.",
            "hint: Allow writing to both, or copy the store to another folder. What was finished is kept and can be "
            "read.",
        ]
        shown = run("report", "--store", store, "--json", folder=folder, preexec_fn=as_anybody)
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["trials"]["finished"] == 3
    finally:
        closed.chmod(0o755)
    assert undisturbed
