"""File locks that the kernel releases when the process ends, for whatever reason it ends.

The ``filelock`` package is not used: it leaves the file behind, and where the kernel has no locks it falls back to a
file that outlives a killed process. Here the first is removed, and the second is an error.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from clockhands.jobs.databases.store_errors import NoLocks


def hold(lock: Path, store: Path) -> int | None:
    """The descriptor of a file, opened and locked; None if another process holds it.

    Args:
        lock: The file; it is made if there is none.
        store: The kind of store that it belongs to, for messages.

    Raises:
        NoLocks: Files cannot be locked here.
    """
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            if not _locked(handle, store):
                os.close(handle)
                return None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), lock.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its owner removed the file after it was opened here and before it was locked


def give_back(handle: int, lock: Path) -> None:
    """Remove a file that this process holds, and unlock it; the descriptor stays open."""
    with suppress(OSError):
        lock.unlink()  # removed while locked; a process that opened it before checks for that, see `hold`
    _unlock(handle)


def _locked(handle: int, store: Path) -> bool:
    """Whether the file could be locked; an error where files cannot be locked at all."""
    hint = "Put the store on a local disk of Linux or macOS. Reading it works anywhere."
    try:
        import fcntl
    except ImportError:
        raise NoLocks("This system has no file locks that end with their process (`fcntl`).", hint) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise NoLocks(f"The file system of {store} cannot lock files ({error.strerror}).", hint) from error
        raise
    return True


def _unlock(handle: int) -> None:
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_UN)  # also for a child that inherited it
