"""Opens, reads and writes a store in a SQLite file; the class that inherits from `Database` defines its tables."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from clockhands.databases.store_errors import (
    Form,
    NotAStore,
    OtherVersion,
    StoreError,
    code_of,
    corrupted,
    read_only,
    said,
)


class Database:
    """One SQLite file; made by ``open``, closed by ``close`` or ``with``.

    Attributes:
        form: The kind of store: file marks, tables and message texts.
        path: The file.
        writable: Whether it was opened to be written.
    """

    form: ClassVar[Form]

    def __init__(self, path: Path, connection: sqlite3.Connection, *, write: bool, patience: float) -> None:
        self.path = path
        self.writable = write
        self._connection = connection
        self._patience = patience
        self._turn = threading.RLock()
        self._process = os.getpid()

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, create: bool = True, write: bool = True, patience: float = 60.0
    ) -> Self:
        """The store in a file.

        Args:
            path: The file.
            create: Make the file if there is none.
            write: ``False`` opens a store to read it, also on a disk that cannot be written.
            patience: For how many seconds to wait for another program that writes.

        Raises:
            NotAStore: There is no file, or it is another program's.
            OtherVersion: It holds other tables than this version of clockhands.
            StoreError: It cannot be read or, with ``write``, not be written.
        """
        form = cls.form
        file = Path(path).resolve()  # two names of one store share its locks
        if file.is_dir():
            raise NotAStore(f"{file} is a folder, not a {form.what}.", "Name a file in it.")
        if not file.parent.is_dir():
            raise NotAStore(f"There is no folder {file.parent}.", f"Make it first: mkdir -p {file.parent}")
        if not file.exists() and not (create and write):
            raise NotAStore(f"There is no {form.what} at {file}.", f"Check the name, or {form.begin} it first.")
        with said(file, "the new store", patience, form):
            # Opened read-only first, so that a file of another program is not changed, not even by SQLite's recovery.
            known = file.exists() and file.stat().st_size > 0 and _inspected_read_only(file, patience, form)
            if not known and not (create and write):
                raise NotAStore(f"{file} is empty.", f"Check the name, or {form.begin} it first.")
            connection = _connected(file, "mode=rwc", patience) if write else _reader(file, patience)
            try:
                if write:
                    _prepared(connection, file, patience, form)
                connection.execute("PRAGMA foreign_keys = ON")
                damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if damage != "ok":
                    raise corrupted(file, damage.replace("\n", " "), form)
            except BaseException:
                connection.close()
                raise
        return cls(file, connection, write=write, patience=patience)

    def close(self) -> None:
        """Closes the file; locks on other files stay until they are released."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, command: str, *values: Any) -> list[Any]:
        self._same_process()
        with self._turn, said(self.path, "nothing", self._patience, self.form):
            return self._connection.execute(command, values).fetchall()

    @contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """One transaction, from the lock to the commit; after an error nothing of it is left."""
        self._same_process()
        if not self.writable:
            raise read_only(self.path)
        with (
            self._turn,
            said(self.path, what, self._patience, self.form),
            _transaction(self._connection, self._patience),
        ):
            yield self._connection

    def _same_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                f"The store {self.path} was opened by another process.",
                "Pass the measurements to the process that opened it: only that process writes.",
            )


# Opening


def _connected(file: Path, how: str, patience: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{file.as_uri()}?{how}", uri=True, timeout=patience, isolation_level=None, check_same_thread=False
    )


def _reader(file: Path, patience: float) -> sqlite3.Connection:
    """A connection that only reads, also where SQLite cannot make its shared memory beside the file."""
    connection = _connected(file, "mode=ro", patience)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
            # A program without write-ahead log was killed in a transaction: SQLite must undo that before the file is
            # read.
            connection = _connected(file, "mode=rw", patience)
            connection.execute("PRAGMA query_only = 1")
            return connection
        logs = [file.with_name(file.name + end) for end in ("-wal", "-journal")]
        if code_of(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or any(
            log.exists() and log.stat().st_size
            for log in logs  # they hold what `immutable` would not see
        ):
            raise
        return _connected(file, "immutable=1", patience)
    return connection


def _inspected_read_only(file: Path, patience: float, form: Form) -> bool:
    with closing(_reader(file, patience)) as connection:
        connection.execute("BEGIN")
        return _inspected(connection, file, form)


def _inspected(connection: sqlite3.Connection, file: Path, form: Form) -> bool:
    """Whether the file is a store; ``False`` if it is empty, an error if it is something else."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == version == tables == 0:
        return False
    if application != form.application:
        raise NotAStore(
            f"{file} is a database of another program, not a {form.what}. It was not changed.",
            "Name another file.",
        )
    if version != form.version:
        way = (
            "Update clockhands (pip install --upgrade clockhands)"
            if version > form.version
            else f"Export it with the clockhands that wrote it ({form.export})"
        )
        raise OtherVersion(
            f"{file} is a store of version {version}; this clockhands reads version {form.version}. "
            "It was not changed.",
            f"{way}, or {form.begin} a new file.",
        )
    return True


def _prepared(connection: sqlite3.Connection, file: Path, patience: float, form: Form) -> None:
    """Makes the tables of a new store; refuses a file that cannot be written."""
    # Any level survives SIGKILL, because the kernel then already has the write-ahead log. Only FULL survives a power
    # loss: it waits milliseconds for the disk at each commit; with NORMAL the last commits before it are lost, and the
    # file stays valid.
    connection.execute(f"PRAGMA synchronous = {'FULL' if form.survives_power_loss else 'NORMAL'}")
    # Without shared memory (network disks) SQLite keeps its rollback journal, which is slower and as safe.
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone(), patience)
    with _transaction(connection, patience):
        if not _inspected(connection, file, form):  # another program may have been first
            for command in form.tables.split(";"):
                connection.execute(command)
            connection.execute(f"PRAGMA application_id = {form.application}")
            connection.execute(f"PRAGMA user_version = {form.version}")
        # Changes nothing, and fails where nothing can be written; `BEGIN IMMEDIATE` would not fail there.
        connection.execute(f"DELETE FROM {form.first} WHERE 0")


# Writing


def _patiently(action: Any, patience: float) -> Any:
    """Repeats a command that fails with "database is locked": SQLite does not wait by itself in all cases."""
    end = time.monotonic() + patience
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if code_of(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() >= end:
                raise
            time.sleep(0.02)


@contextmanager
def _transaction(connection: sqlite3.Connection, patience: float) -> Iterator[None]:
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"), patience)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
