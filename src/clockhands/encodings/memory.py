"""Available memory: an array that would not fit is refused before it is allocated."""

import math
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from clockhands.errors import TooLarge

# Assumed to fit: querying the system takes longer than computing a small table.
_ALWAYS = 1 << 24

_ROWS = "Make it in parts: table(spec, range(a, b)) gives the same rows."

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def available() -> int | None:
    """Bytes that can be allocated without swapping, or None where the system does not report it.

    The smaller of the machine's free memory and what the process's Linux control group still allows.
    """
    left = [amount for amount in (_machine(), _control_group()) if amount is not None]
    return min(left) if left else None


def refuse_larger(shape: tuple[int, ...], itemsize: int, what: str, hint: str = _ROWS) -> None:
    """Raise `TooLarge` if an array of this shape does not fit into the available memory.

    Raises:
        TooLarge: It does not fit; the message gives its size and the available memory.
    """
    size = math.prod(shape) * itemsize
    if size <= _ALWAYS:
        return
    left = available()
    limit = left if left is not None else 2**62
    if size > limit:
        there_is = "more than any machine has" if left is None else f"{readable(left)} are available"
        raise TooLarge(
            f"{what} of shape {list(shape)} would take {readable(size)}; {there_is}.",
            hint,
        )


def readable(size: int) -> str:
    """A number of bytes for people: 3 digits and a unit."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    number = size / 1024**power
    if number >= 999.5 and power < len(_UNITS) - 1:  # 1000 of a unit would need a fourth digit
        number, power = number / 1024, power + 1
    return f"{size} bytes" if power == 0 else f"{number:.3g} {_UNITS[power]}"


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass  # not Linux: the total is the next best answer
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _control_group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return max(0, int(limit) - used) if limit.isdecimal() else None


def limit_memory(size: int) -> Callable[[], None]:
    """Limit the address space of this process to its present size plus ``size`` bytes, where the system supports it.

    Returns:
        Takes the limit back.
    """
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + size
        if all(limit < each or each == resource.RLIM_INFINITY for each in (soft, hard)):
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
            return partial(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
    return lambda: None
