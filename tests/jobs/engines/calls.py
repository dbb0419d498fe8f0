"""Functions that the tests of the engines call in workers."""

# ruff: noqa: ARG001 - a job's function takes `tell`, needed or not

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from clockhands.errors import InvalidValue


def square(x: int, tell: Any) -> int:
    tell({"x": x})
    tell({"half": x / 2})
    return x * x


def chatty(tell: Any) -> str:
    print("printed by a worker")
    os.write(1, b"written by a worker\n")
    return "done"


def surroundings(tell: Any) -> dict[str, Any]:
    torch = sys.modules.get("torch")
    return {
        "pid": os.getpid(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "PROBE": os.environ.get("CLOCKHANDS_PROBE"),
        "torch": torch and torch.get_num_threads(),
    }


def broken(kind: str, tell: Any) -> None:
    if kind == "clockhands":
        raise InvalidValue("`x` must be 1.", "Give 1.")
    if kind == "exit":
        sys.exit("enough")
    raise KeyError("x")


def unpicklable(tell: Any) -> Any:
    return threading.Lock()


def dies(until: int, folder: str, how: str, tell: Any) -> int:
    """Ends its own process in the first attempts; each attempt leaves a file, as a checkpoint would be."""
    attempt = len(list(Path(folder).iterdir())) + 1
    Path(folder, str(attempt)).touch()
    tell(attempt)
    if attempt <= until:
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    return attempt


def waits(folder: str, children: int, tell: Any) -> None:
    """Leaves its process id and those of its children, and never returns."""
    pids = [subprocess.Popen(["sleep", "600"]).pid for _ in range(children)]
    for pid in (os.getpid(), *pids):
        Path(folder, str(pid)).touch()
    tell("here")
    time.sleep(600)


def overlaps(folder: str, tell: Any) -> int:
    """How many run at the same time as this one."""
    mine = Path(folder, str(os.getpid()))
    mine.touch()
    time.sleep(0.1)
    together = len(list(Path(folder).iterdir()))
    mine.unlink()
    return together


def summed(failing: int, tell: Any) -> dict[str, float]:
    """A distributed job: each worker adds its rank + 1; the worker of rank `failing` raises an error."""
    import torch
    from torch import distributed

    rank = distributed.get_rank()
    if rank == failing:
        raise InvalidValue(f"Rank {rank} cannot go on.", "Start again.")
    number = torch.tensor([rank + 1.0])
    distributed.all_reduce(number)
    tell({"rank": rank})
    return {"workers": distributed.get_world_size(), "sum": number.item()}
