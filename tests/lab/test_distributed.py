"""A trial of several processes measures what one process measures, up to rounding, and only the first one speaks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clockhands.lab.store import Measurement, Store
from lab.test_interrupted import lab
from late import Late

training = Late("clockhands.lab._training")

pytestmark = pytest.mark.slow

# Induction with a drawn period scores another number of tokens in each sequence, and 5 sequences are no pairs.
STUDY = Path(__file__).with_name("distributed_study.toml").read_text(encoding="utf-8")

# One process of several, as Ray Train starts them. It does all that is tested, so that PyTorch is imported once.
PROCESS = """
import json, os, sys
from pathlib import Path
import torch
from clockhands.lab import _training as training

rank, folder, study = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
real, found = training.TrialRun._train_step, {}

class Killed(BaseException):
    pass

def dying(self):
    if self.step == 8:
        raise Killed
    return real(self)

def run(name, arm):
    told, checkpoint = [], folder / f"{arm}.pt"
    torch.distributed.barrier()
    try:
        done = training.trial(
            study=study, task="induction", arm=arm, seed=0, checkpoint=str(checkpoint), tell=told.append
        )
        found[name] = done["rows"], done["facts"]["workers"], [each["warning"] for each in told if "warning" in each]
    except Killed:
        found[name] = checkpoint.exists()

for arm in ("dropped", "t5", "drawn"):
    run(arm, arm)
    torch.distributed.barrier()
    (folder / f"{arm}.pt").unlink(missing_ok=True)
training.TrialRun._train_step = dying
run("killed", "dropped")
training.TrialRun._train_step = real
run("resumed", "dropped")
torch.distributed.barrier()
if rank == 0:
    (folder / "dropped.pt").write_bytes(b"damaged")
run("restarted", "dropped")
print(json.dumps(found), flush=True)
torch.distributed.barrier()
# PyTorch's own threads sometimes abort the process when they are taken down at its end; all that is tested was done.
os._exit(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def both(folder: Path) -> list[dict]:
    """What each of two processes says."""
    words = [sys.executable, "-c", PROCESS]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*words, str(rank), str(folder), STUDY], **pipes) for rank in range(2)]
    found = []
    for process in started:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        found.append(json.loads(output))
    return found


def alone(folder: Path, arm: str) -> list[Measurement]:
    named = {"task": "induction", "arm": arm, "seed": 0, "checkpoint": str(folder / "own")}
    done = training.trial(study=STUDY, **named, tell=lambda _: None)
    return [Measurement(*row) for row in done["rows"]]


def close(measured: list, expected: list[Measurement]) -> bool:
    rows = [Measurement(*row) for row in measured]
    assert [row._replace(value=0.0) for row in rows] == [row._replace(value=0.0) for row in expected]
    exact = [row for row in expected if row.measure != "accuracy"]  # one answer more or less is no rounding
    values = [row.value for row in rows if row.measure != "accuracy"]
    return np.allclose(values, [row.value for row in exact], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arm", ["dropped", "t5", "drawn"])
def test_two_processes_measure_what_one_measures(tmp_path: Path, both: list[dict], arm: str):
    expected = alone(tmp_path, arm)
    (first, *counts), (second, *others) = (each[arm] for each in both)
    assert counts == others == [2, []]
    assert close(first, expected)
    assert {row[0] for row in second} == {"training"}
    assert close(second, [row for row in expected if row.kind == "training"])


def test_two_processes_go_on_from_the_checkpoint_of_the_first(both: list[dict], folder: Path):
    for each in both:
        assert each["killed"] is True
        assert each["resumed"][2] == []
        (warning,) = each["restarted"][2]
        assert "cannot be used (File is not a zip file)" in warning
    first = both[0]
    assert first["resumed"][0] == first["restarted"][0] == first["dropped"][0]
    assert not list(folder.glob("*.unfinished"))


def test_the_lab_gives_a_trial_to_two_workers_of_ray(tmp_path: Path):
    pytest.importorskip("ray")
    (tmp_path / "mine.toml").write_text(STUDY.replace('"drawn" }', '"drawn", arms = ["t5"] }'), encoding="utf-8")
    command = lab("run", "mine.toml", "--engine", "ray", "--workers", "2", "--jobs", "1")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "lab.sqlite", write=False) as store:
        (stored,) = store.studies()
        found = {row.measurement for row in store.rows(stored.hash, seed=0)}
        assert store.trials(stored.hash)[0].facts["workers"] == 2
    expected = alone(tmp_path, "t5")

    def order(row: Measurement) -> tuple:
        return row[:2], row[3:5], -1 if row.place is None else row.place

    assert close(sorted(found, key=order), sorted(expected, key=order))
