"""The errors of stores, and the translation of SQLite and system errors into them."""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clockhands.errors import ClockhandsError


class StoreError(ClockhandsError, RuntimeError):
    """A store of results cannot be used; what was finished before is kept."""


class NotAStore(StoreError):
    """The file is missing, or it is not a store of this program."""


class OtherVersion(StoreError):
    """The store was written by a clockhands with another version of the tables."""


class ReadOnly(StoreError):
    """The store or its folder cannot be written."""


class DiskFull(StoreError):
    """There is no space left for what was to be written."""


class Busy(StoreError):
    """Another program kept the store locked for too long."""


class Corrupted(StoreError):
    """The database is damaged."""


class NoLocks(StoreError):
    """The file system cannot lock files, so two programs could do the same work twice."""


@dataclass(frozen=True)
class Form:
    """A kind of store: how its files are recognised, its tables, and texts for its error messages.

    Attributes:
        application: The number in the header of the file (`PRAGMA application_id`).
        version: The version of the tables (`PRAGMA user_version`).
        tables: The commands that make them, with ``;`` between.
        first: One of the tables.
        what: What a store is called.
        begin: How to make one.
        go_on: How to continue.
        kept: What is safe after an error, one sentence.
        export: The command that writes the rows of a store to a text file.
        survives_power_loss: Whether a commit waits until the disk has written it. A killed process loses no commit
            either way.
    """

    application: int
    version: int
    tables: str
    first: str
    what: str
    begin: str
    go_on: str
    kept: str
    export: str
    survives_power_loss: bool = True


@contextmanager
def said(path: Path, what: str, patience: float, form: Form) -> Iterator[None]:
    """Raise errors of SQLite and of the system as errors of this library."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise _sentence(path, what, patience, form, error) from error


def _sentence(path: Path, what: str, patience: float, form: Form, error: sqlite3.Error | OSError) -> StoreError:
    code = code_of(error)
    number = error.errno if isinstance(error, OSError) else None
    folder = path if path.is_dir() else path.parent
    if code == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{path} is no SQLite database. It was not changed.", "Name another file.")
    if code == sqlite3.SQLITE_CORRUPT:
        return corrupted(path, str(error), form)
    # SQLite reports a full disk as an input or output error when it is the shared memory that does not fit.
    no_space = code == sqlite3.SQLITE_IOERR and shutil.disk_usage(folder).free < 2**20
    if code == sqlite3.SQLITE_FULL or no_space or number in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"The disk of {path} is full, so {what} was not written.",
            f"Free some space, then try again or {form.go_on}. {form.kept}",
        )
    closed = code == sqlite3.SQLITE_CANTOPEN and not os.access(folder, os.W_OK)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) or closed or number in (errno.EACCES, errno.EROFS):
        return read_only(path)
    if code == sqlite3.SQLITE_INTERRUPT:
        return StoreError(
            f"{path} takes more work than a {form.what} of its size can, so it was not used further.",
            f"If it is from elsewhere, do not use it; or {form.begin} a new file.",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(
            f"Another program kept {path} locked for {patience:g} seconds, so {what} was not written.",
            f"Wait until it has ended, or stop it; then {form.go_on}.",
        )
    return StoreError(
        f"{path} cannot be used: {error}.", "Check the file and its disk. What was finished is not touched."
    )


def code_of(error: Exception) -> int:
    """SQLite's result code; 0 for an error that has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits hold details


def read_only(path: Path) -> ReadOnly:
    """The error for a file that cannot be written."""
    return ReadOnly(
        f"{path} cannot be written: the file or its folder is read-only.",
        "Allow writing to both, or copy the store to another folder. What was finished is kept and can be read.",
    )


def corrupted(path: Path, why: str, form: Form) -> Corrupted:
    """The error for a damaged database, with what SQLite says about it."""
    return Corrupted(
        f"The database {path} is damaged: {why}. It was not changed.",
        f"Keep a copy, then save what can be read: sqlite3 {path} .recover; or {form.begin} a new file.",
    )
