"""Medians of interleaved runs, and what a figure has to reach."""

import ctypes
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console


@dataclass(frozen=True)
class Target:
    """One figure beside what it has to reach."""

    what: str
    measured: float
    limit: float
    unit: str = "x"
    more: bool = False  # whether the limit is to be exceeded, not kept

    @property
    def met(self) -> bool:
        return self.measured > self.limit if self.more else self.measured <= self.limit


def elapsed(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call; what it returns is let go after the clock has stopped."""
    start = clock()
    kept = call()
    seconds = clock() - start
    del kept
    return seconds


def touch_memory(size: int) -> None:
    """Make the machine hand out so many bytes before the clock starts.

    On a virtual machine, pages that nobody has touched for a while cost ten times as much as others, and would be
    charged to whoever comes first.
    """
    np.empty(size, np.uint8).fill(1)


def keep_memory() -> None:
    """Have the allocator of C keep what it was given back, from here to the end of the process.

    Left to itself it hands large blocks back to the system or not by what else lies beside them, and whoever gets fresh
    pages takes up to three times as long. A process that has run for a while reuses its memory; so do all here.
    """
    trim, mmap = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    if sys.platform == "linux":
        allocator = ctypes.CDLL(None)
        if not (hasattr(allocator, "mallopt") and allocator.mallopt(trim, 2**30) and allocator.mallopt(mmap, 2**30)):
            print("the allocator cannot be told to keep its memory: figures of rotations depend on fresh pages")


def interleaved(
    calls: dict[str, Callable[[int], Callable[[], object]]],
    repetitions: int,
    memory: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each; ``calls[name](repetition)`` prepares what is then timed, in ``memory`` bytes.

    ``clock`` is `time.process_time` for what runs on one thread: waiting for a core that others use then costs nothing.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repetition in range(-1, repetitions):  # the first round only warms up
        for name in random.sample(list(calls), len(calls)):
            call = calls[name](repetition)
            touch_memory(memory)
            taken = elapsed(call, clock)
            if repetition >= 0:
                seconds[name].append(taken)
    return {name: statistics.median(each) for name, each in seconds.items()}


# A process begins with the peak of the one that started it, so a small one stands between. It prints seconds and peak.
_LAUNCHER = """
import os, sys, time
start = time.perf_counter()
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)])
_, status, usage = os.wait4(child, 0)
print(time.perf_counter() - start, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def command(words: list[str], exits: tuple[int, ...] = (0,), **environment: str) -> tuple[float, float]:
    """Seconds and peak MiB of a process, which must end with one of these codes."""
    launcher = [sys.executable, "-S", "-E", "-c", _LAUNCHER, *words]
    done = subprocess.run(launcher, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in exits:
        raise RuntimeError(f"{words} ended with {done.returncode}")
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak) / 2**20


def free_cores() -> float:
    """How much more two threads get done than one, at this moment: 2 where nobody else works, 1 where somebody does."""

    def work() -> None:
        numbers = np.ones(1 << 15)
        for _ in range(100):
            np.sin(numbers, out=numbers)

    def both() -> None:
        other = threading.Thread(target=work)
        other.start()
        work()
        other.join()

    return 2 * min(elapsed(work) for _ in range(5)) / statistics.median(elapsed(both) for _ in range(5))


def say_free_cores(show: Console) -> None:
    free = free_cores()
    warning = "" if free > 1.8 else " - [red]others are working here: figures for two threads mean little[/red]"
    show.print(f"two threads get {free:.2f} times the work of one done{warning}")
