"""PyTorch's threads: for the products of the smallest models, waking others takes longer than they help."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Parameters.
_SMALL = 1_000_000


def is_small(module: Any) -> bool:
    """Whether a module of PyTorch is faster in one thread."""
    return sum(parameter.numel() for parameter in module.parameters()) <= _SMALL


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
