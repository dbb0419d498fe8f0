"""Who works on a trial: a locked file, which the kernel frees when its process ends, however it ends."""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from clockhands.errors import InvalidValue
from clockhands.lab._records import Key
from clockhands.lab.store_errors import NoLocks


@dataclass
class TrialClaim:
    """The right to work on one trial, until it is released or the process ends, however it ends.

    A child process that inherits the file (``fileno``, by ``fork`` or ``pass_fds``) keeps the claim alive when its
    parent dies, so that no second lab starts a trial that an orphan still works on.
    """

    study: str
    key: Key
    checkpoint: Path
    _lock: Path = field(repr=False)
    _handle: int | None = field(repr=False)
    _process: int = field(default_factory=os.getpid, repr=False)

    def fileno(self) -> int:
        """The file descriptor that holds the lock."""
        if self._handle is None:
            raise InvalidValue(f"The claim on {self.key} was released.", "Claim the trial again.")
        return self._handle

    def release(self) -> None:
        """Lets other labs claim the trial; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        if os.getpid() == self._process:  # a forked child only closes its own copy
            with suppress(OSError):
                self._lock.unlink()  # while it is locked; whoever opened it before looks again, see `Store.claim`
            _unlock(handle)
        os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold(lock: Path, store: Path) -> int | None:
    """The file that says who works on a trial, opened and locked; None if another lab holds it.

    Args:
        lock: The file; it is made if there is none.
        store: Whose it is, for messages.
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
        os.close(handle)  # its owner removed the file between our opening and our locking it


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
