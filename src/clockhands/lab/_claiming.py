"""Claims a trial for one process by a locked file, which the kernel frees when the process ends."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from clockhands.errors import InvalidValue
from clockhands.jobs.databases.locks import give_back
from clockhands.lab._records import Key


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
            give_back(handle, self._lock)
        os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
