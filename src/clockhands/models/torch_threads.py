"""PyTorch's threads: for small products, and on busy cores, waiting for other threads takes longer than they help."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Parameters.
_SMALL = 1_000_000


def faster_alone(module: Any) -> bool:
    """Whether a module of PyTorch is faster in one thread: it is small, or others want more than all cores.

    Threads wait for each other after every product. Where a core is taken from one of them, all the others wait, and
    use their cores for it: of 135 million parameters a pass of 128 tokens took 14 times the CPU seconds of one thread.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load > (os.cpu_count() or 1) or sum(parameter.numel() for parameter in module.parameters()) <= _SMALL


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Let PyTorch use one thread; it is loaded."""
    torch = sys.modules["torch"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
