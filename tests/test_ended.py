"""A command that SIGTERM or SIGHUP ends keeps what Ctrl-C keeps, and leaves no process and no unfinished file."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clockhands.jobs.databases.store_errors import StoreError
from clockhands.jobs.survey.store import SurveyStore
from lab.test_interrupted import STUDY, at_work, wait_until, workers

IN_PROCESS = """
import os, signal, time
import clockhands.cli.presets
def ended():
    os.kill(os.getpid(), signal.{})
    time.sleep(9)
clockhands.cli.presets.presets = ended
from clockhands.cli import main
main(["presets"])
"""


@pytest.mark.parametrize(("name", "ignored"), [("SIGTERM", False), ("SIGHUP", False), ("SIGHUP", True)])
def test_a_signal_ends_a_command_without_a_traceback(name, ignored):
    """A signal that the caller ignores, as ``nohup`` does, stays ignored; these tests may run under it themselves."""
    number = getattr(signal, name)
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS.format(name).replace("time.sleep(9)", "return []")],
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (2 if ignored else 128 + number), "2: there is no preset"
    assert "Traceback" not in done.stderr


CONFIG = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def models(folder: Path, count: int) -> Path:
    for number in range(count):
        (folder / f"{number:04}").mkdir(parents=True)
        (folder / f"{number:04}" / "config.json").write_text(json.dumps(CONFIG | {"rope_theta": 1e4 + number}))
    return folder


def audits(folder: Path) -> tuple[list[object], Callable[[], bool]]:
    return ["-r", models(folder / "models", 600), "--html", folder / "page.html"], lambda: True


def surveys(folder: Path) -> tuple[list[object], Callable[[], bool]]:
    store = folder / "s.sqlite"
    return ["run", models(folder / "models", 600), "--store", store], lambda: stored(store) > 20


def stored(store: Path) -> int:
    try:
        with SurveyStore.open(store, create=False, write=False) as opened:
            return len(opened.rows())
    except StoreError:  # it is being made
        return 0


def trains(folder: Path) -> tuple[list[object], Callable[[], bool]]:
    (folder / "study.toml").write_text(STUDY)
    return ["run", folder / "study.toml", "--store", folder / "lab.sqlite"], lambda: at_work(folder / "lab.sqlite")


def converts(folder: Path) -> tuple[list[object], Callable[[], bool]]:
    (folder / "in").mkdir()
    (folder / "in" / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": 1024}))
    tensors = {f"model.layers.{layer}.self_attn.{part}_proj.weight": np.zeros((1024, 1024), np.float32)
               for layer in range(2) for part in "qk"}  # fmt: skip
    for number in range(96):
        tensors[f"other.{number}"] = np.zeros((1024, 1024), np.float32)
    save_file(tensors, folder / "in" / "model.safetensors")
    words = [folder / "in", folder / "out", "--from", "halves", "--layout", "interleaved"]
    return words, lambda: any(each.stat().st_size > 2**20 for each in unfinished(folder))


def unfinished(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and each.parent.name not in ("in", "models")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "prepare"), [("audit", audits), ("survey", surveys), ("lab", trains), ("convert", converts)]
)
def test_sigterm_leaves_no_process_and_no_part_of_a_file(tmp_path, command, prepare):
    words, begun = prepare(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = [sys.executable, "-P", "-m", "clockhands", command, *map(str, words)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as running:
        wait_until(lambda: begun() and (command == "convert" or len(workers(running.pid)) > 2))
        below = workers(running.pid)
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 143, err
    assert "Traceback" not in err
    wait_until(lambda: not any(Path(f"/proc/{each}").exists() for each in below))
    assert not any(Path(f"/proc/{each}").exists() for each in below)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} - {
        path.relative_to(tmp_path).as_posix() for path in before
    }
    assert {name for name in left if not name.startswith(("s.sqlite", "lab.sqlite"))} == set()
    if command == "survey":
        assert err.startswith("Interrupted: ")
        assert 20 < stored(tmp_path / "s.sqlite") < 600
    if command == "lab":
        assert "clockhands lab resume" in err
