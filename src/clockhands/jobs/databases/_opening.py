"""Opens, reads and writes a store in a SQLite file; the class that inherits from `Database` defines its tables.

A store may come from elsewhere, and the schema of a SQLite file is a program. So a file holds exactly the tables of its
kind, with values of their types, or is refused; nothing in it may call functions that reach out of it; and a command
takes no more steps than a file of that size explains.

Source: https://www.sqlite.org/security.html (files from elsewhere), https://www.sqlite.org/fileformat.html (journals).
"""

import json
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from clockhands.jobs.databases.store_errors import (
    Form,
    NotAStore,
    OtherVersion,
    StoreError,
    code_of,
    corrupted,
    read_only,
    said,
)
from clockhands.phrases import shown

_STEPS = 10_000  # of SQLite's machine, after which they are counted
_ANY_FILE = 100_000_000  # steps of one command or transaction; about a second
_EACH_BYTE = 10  # further steps; a row of some 200 bytes takes about 60 to check and 30 to read
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # the end of a journal that names another one


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
        if file.exists() and not file.is_file():
            raise NotAStore(f"{file} is a pipe or a device, not a {form.what}.", "Name a file.")
        if not file.exists() and not (create and write):
            raise NotAStore(f"There is no {form.what} at {file}.", f"Check the name, or {form.begin} it first.")
        with said(file, "the new store", patience, form):
            _check_logs(file, form)
            # Opened read-only first, so that a file of another program is not changed, not even by SQLite's recovery.
            known = file.exists() and file.stat().st_size > 0 and _inspected_read_only(file, patience, form)
            if not known and not (create and write):
                raise NotAStore(f"{file} is empty.", f"Check the name, or {form.begin} it first.")
            connection = _connected(file, "mode=rwc", patience) if write else _read_connection(file, patience)
            try:
                if write:
                    _prepared(connection, file, patience, form)
                connection.execute("PRAGMA foreign_keys = ON")
                damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if damage != "ok":
                    raise corrupted(file, damage.replace("\n", " "), form)
                _check_types(connection, file, form)
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
            _limit_work(self._connection, self.path)
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
            _limit_work(self._connection, self.path)
            yield self._connection

    def _object(self, text: str, what: str) -> dict[str, Any]:
        """The object that a text of the file holds as JSON.

        Raises:
            Corrupted: It holds none.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.corrupted(f"{what} is not a JSON object")
        return found

    def corrupted(self, why: str) -> StoreError:
        """The error for values that no program of this library wrote."""
        return corrupted(self.path, why, self.form)

    def _same_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                f"The store {self.path} was opened by another process.",
                "Pass the measurements to the process that opened it: only that process writes.",
            )


# Opening


def _connected(file: Path, how: str, patience: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{file.as_uri()}?{how}", uri=True, timeout=patience, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if hasattr(connection, "setconfig"):  # from Python 3.12 on
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # pyright: ignore[reportAttributeAccessIssue]
    _limit_work(connection, file)
    return connection


def _limit_work(connection: sqlite3.Connection, file: Path) -> None:
    """Interrupt what follows when it takes more steps than a file of this size explains."""
    logs = (file, file.with_name(f"{file.name}-wal"))
    size = sum(each.stat().st_size for each in logs if each.exists())
    left = iter(range((_ANY_FILE + _EACH_BYTE * size) // _STEPS))
    connection.set_progress_handler(lambda: next(left, None) is None, _STEPS)


def _check_logs(file: Path, form: Form) -> None:
    """Refuse logs beside a file with which SQLite would change another file.

    It writes through a link to its log, and it deletes the file that a journal names as its super-journal; only a
    transaction over several databases writes such a journal, and a store is one.
    """
    for log in (file.with_name(file.name + end) for end in ("-wal", "-journal", "-shm")):
        try:
            regular = stat.S_ISREG(log.lstat().st_mode)
        except FileNotFoundError:
            continue
        why = "is no regular file" if not regular else "names another file" if _end(log) == _SUPER_JOURNAL else None
        if why is not None:
            raise NotAStore(
                f"{log} {why}, which no log of a {form.what} does. Nothing was changed.",
                "Take it away if you do not know where it is from.",
            )


def _end(log: Path) -> bytes:
    """The last bytes of a log, as many as name a super-journal; none if another process has just removed it."""
    try:
        with log.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - len(_SUPER_JOURNAL)))
            return opened.read()
    except FileNotFoundError:
        return b""


def _read_connection(file: Path, patience: float) -> sqlite3.Connection:
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
    with closing(_read_connection(file, patience)) as connection:
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
    strange = _schema_of(connection).symmetric_difference(_schema(form))
    if strange:
        kind, name, _ = min(strange)
        raise NotAStore(
            f"{file} is not a {form.what}: its {kind} {shown(name)} is not as clockhands makes it. It was not changed.",
            f"Read such a file with sqlite3, or {form.begin} a new file.",
        )
    return True


@cache
def _schema(form: Form) -> frozenset[tuple[str, str, str]]:
    """The kind, name and definition of everything that a store of this form holds."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(form.tables)
        return frozenset(_schema_of(connection))


def _schema_of(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in found}


def _check_types(connection: sqlite3.Connection, file: Path, form: Form) -> None:
    """Refuse values of other types than their columns have: SQLite itself keeps any value in any column."""
    types = {"TEXT": "'text'", "REAL": "'real', 'integer'", "INTEGER": "'integer'"}
    # Infinity is no number in JSON; where one is measured it is a word in a column of its own.
    beyond = {"REAL": ' OR abs("{}") > 1.7976931348623157e308'}
    for table in sorted(name for kind, name, _ in _schema(form) if kind == "table"):
        for _, column, declared, *_ in connection.execute(f'PRAGMA table_info("{table}")').fetchall():
            odd = f"typeof(\"{column}\") NOT IN ('null', {types[declared]})" + beyond.get(declared, "").format(column)
            if connection.execute(f'SELECT 1 FROM "{table}" WHERE {odd} LIMIT 1').fetchone():
                raise corrupted(file, f"{table}.{column} holds what is not {declared}", form)


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


def cell(value: object) -> object:
    """A value in a CSV file: a text that a spreadsheet would take for a formula gets an apostrophe before it.

    Names and messages come from files that may do that on purpose. See
    https://owasp.org/www-community/attacks/CSV_Injection.
    """
    if (isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@"))) or str(value)[:1] in ("\t", "\r"):
        return f"'{value}"
    return value


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
