"""The most memory that a process had, asked by the process itself, and the most that Python held in a block.

What ``resource`` counts on Linux begins with the peak of the process that started this one: under a test runner of
seven gigabytes every child seems to need seven gigabytes. The system's own record of this process is read there.
"""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# What a program in a string begins with, to have the function below.
AT_HAND = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from memory_peaks import peak_bytes\n"


def peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    import resource  # not on Windows, whose tests of memory are skipped

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Inside it, the function that it gives says the most bytes that Python has held at once since it began."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
