"""The results of lab studies, in one SQLite file.

Only the process that drives a study writes; workers hand their measurements to it. A trial is finished in one
transaction: its state and all its rows, or nothing. What a trial needs while it runs (its checkpoint, and the lock
that keeps a second lab away) lies beside the store, in the folder ``<store>.checkpoints``.
"""

import csv
import difflib
import hashlib
import json
import math
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from clockhands.arguments import count, one_of, real, shown
from clockhands.errors import InvalidType, InvalidValue
from clockhands.lab._claiming import TrialClaim, hold
from clockhands.lab._records import AnyKey, Key, Measurement, StoredRow, StoredStudy, Trial
from clockhands.lab.store_errors import NotAStore, OtherVersion, StoreError, code_of, corrupted, read_only, said

# Both lie in the header of the file: `PRAGMA application_id` and `PRAGMA user_version`.
APPLICATION = 0x434C4B48  # "CLKH"
VERSION = 1

STATES = ("waiting", "finished", "failed")
KINDS = ("training", "curve", "evaluation")

# SQLite stores NaN as NULL. So the number is NULL and `special` says which it is: a reader of the file sees both.
TABLES = """
CREATE TABLE studies (
    hash TEXT PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL, created TEXT NOT NULL, command TEXT NOT NULL,
    version TEXT NOT NULL, commit_id TEXT NOT NULL, versions TEXT NOT NULL, machine TEXT NOT NULL
);
CREATE TABLE trials (
    study TEXT NOT NULL REFERENCES studies (hash), task TEXT NOT NULL, arm TEXT NOT NULL, seed INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'finished', 'failed')),
    message TEXT NOT NULL DEFAULT '', seconds REAL, facts TEXT NOT NULL DEFAULT '{}', finished_at TEXT,
    PRIMARY KEY (study, task, arm, seed)
);
CREATE TABLE "rows" (
    study TEXT NOT NULL, task TEXT NOT NULL, arm TEXT NOT NULL, seed INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('training', 'curve', 'evaluation')),
    variant TEXT NOT NULL, step INTEGER NOT NULL, protocol TEXT NOT NULL, length INTEGER NOT NULL, place INTEGER,
    measure TEXT NOT NULL, value REAL, special TEXT NOT NULL DEFAULT '' CHECK (special IN ('', 'nan', 'inf', '-inf')),
    CHECK ((value IS NULL) = (special <> '')),
    FOREIGN KEY (study, task, arm, seed) REFERENCES trials (study, task, arm, seed)
);
-- NULL differs from NULL in a unique index, so the place is written as two numbers.
CREATE UNIQUE INDEX one_row_each ON "rows" (
    study, task, arm, seed, kind, variant, step, protocol, length, (place IS NULL), (coalesce(place, 0)), measure
)
"""


class Store:
    """Studies, trials and rows in one SQLite file; made by ``Store.open``, closed by ``close`` or ``with``."""

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
        file = Path(path).resolve()  # two names of one store share its locks
        if file.is_dir():
            raise NotAStore(f"{file} is a folder, not a store of results.", "Name a file in it.")
        if not file.parent.is_dir():
            raise NotAStore(f"There is no folder {file.parent}.", f"Make it first: mkdir -p {file.parent}")
        if not file.exists() and not (create and write):
            raise NotAStore(f"There is no store of results at {file}.", "Check the name, or run a study into it first.")
        with said(file, "the new store", patience):
            # First to read only, so that a file of another program is not changed, not even by SQLite's recovery.
            # Never by Python's `open`: closing a file drops all locks that this process has on it, SQLite's too.
            known = file.exists() and file.stat().st_size > 0 and _inspected_read_only(file, patience)
            if not known and not (create and write):
                raise NotAStore(f"{file} is empty.", "Check the name, or run a study into it first.")
            connection = _connected(file, "mode=rwc", patience) if write else _reader(file, patience)
            try:
                if write:
                    _prepared(connection, file, patience)
                connection.execute("PRAGMA foreign_keys = ON")
                damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if damage != "ok":
                    raise corrupted(file, damage.replace("\n", " "))
            except BaseException:
                connection.close()
                raise
        return cls(file, connection, write=write, patience=patience)

    def close(self) -> None:
        """Closes the file; claims stay until they are released."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Studies and trials

    def add_study(self, hash: str, name: str, text: str, provenance: Mapping[str, Any]) -> None:  # noqa: A002
        """Adds a study; one with this hash that is there already is kept as it is.

        Args:
            hash: What identifies the study.
            name: Its name for people.
            text: The study file.
            provenance: ``command``, ``version``, ``commit_id``, ``versions``, ``machine``, ``bounds`` and ``created``,
                as far as known; ``created`` is now unless given.
        """
        given: dict[str, Any] = {"created": _now(), "command": "", "version": "", "commit_id": ""}
        given |= {"versions": {}, "machine": {}, "bounds": {}}
        for each in provenance:
            one_of("provenance", each, given, f"Give any of: {', '.join(given)}.")
        given |= provenance
        values = [hash, name, text, *(given[each] for each in ("created", "command", "version", "commit_id"))]
        # The bounds are in the column of the machine: so stores that were made before there were any can be read.
        machine = {**given["machine"], "bounds": dict(given["bounds"])}
        values += [_json("versions", given["versions"]), _json("machine", machine)]
        with self._writing(f"study {name}") as database:
            database.execute("INSERT INTO studies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)

    def add_trials(self, study: str, keys: Iterable[AnyKey]) -> None:
        """Adds trials that wait; those that are there already keep their state."""
        self._known(study)
        values = [(study, *_checked(key)) for key in keys]
        with self._writing(f"{len(values)} trials") as database:
            database.executemany(
                "INSERT INTO trials (study, task, arm, seed) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", values
            )

    def finish(
        self,
        study: str,
        key: AnyKey,
        rows: Iterable[Measurement | StoredRow],
        facts: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> bool:
        """Stores a trial as finished together with all its rows, in one transaction.

        Returns:
            Whether it was stored. ``False`` if the trial was finished before; then nothing changes.
        """
        key = _checked(key)
        known = self._state(study, key)
        values = _encoded(study, key, rows)
        end = (_json("facts", facts or {}), None if seconds is None else real("seconds", seconds), _now())
        if known == "finished":
            return False
        with self._writing(f"trial {key}") as database:
            changed = database.execute(
                "UPDATE trials SET state = 'finished', message = '', facts = ?, seconds = ?, finished_at = ?"
                " WHERE study = ? AND task = ? AND arm = ? AND seed = ? AND state <> 'finished'",
                (*end, study, *key),
            )
            if changed.rowcount == 1:
                database.executemany(f'INSERT INTO "rows" VALUES ({", ".join("?" * 13)})', values)
        return changed.rowcount == 1

    def fail(self, study: str, key: AnyKey, message: str) -> bool:
        """Stores that a trial failed, and why; a finished one stays finished, and the answer is ``False``."""
        key = _checked(key)
        self._state(study, key)
        with self._writing(f"the failure of trial {key}") as database:
            changed = database.execute(
                "UPDATE trials SET state = 'failed', message = ?, finished_at = ?"
                " WHERE study = ? AND task = ? AND arm = ? AND seed = ? AND state <> 'finished'",
                (message, _now(), study, *key),
            )
        return changed.rowcount == 1

    def retry(self, study: str) -> int:
        """Lets failed trials wait again, with the message of their last failure; says how many."""
        self._known(study)
        with self._writing("the trials to try again") as database:
            changed = database.execute(
                "UPDATE trials SET state = 'waiting', finished_at = NULL WHERE study = ? AND state = 'failed'", (study,)
            )
        return changed.rowcount

    # What a trial needs while it runs

    def checkpoint_path(self, study: str, key: AnyKey) -> Path:
        """Where the checkpoint of a trial lies; ``claim`` makes the folder."""
        key = _checked(key)
        folder = self.path.with_name(self.path.name + ".checkpoints") / _safe(study[:12])
        return folder / f"{_safe(key.task)}.{_safe(key.arm)}.{key.seed}.pt"

    def claim(self, study: str, key: AnyKey) -> TrialClaim | None:
        """The right to work on a waiting trial, which the kernel takes back when this process ends.

        Returns:
            ``None`` if another lab works on it, or if it is finished or has failed.
        """
        if not self.writable:
            raise read_only(self.path)
        key = _checked(key)
        if self._state(study, key) != "waiting":
            return None
        checkpoint = self.checkpoint_path(study, key)
        if checkpoint.is_dir():
            raise StoreError(
                f"The checkpoint of trial {key} cannot be written: {checkpoint} is a folder.",
                "Move the folder away, then run `clockhands lab resume`. Every finished trial is kept.",
            )
        lock = checkpoint.with_suffix(".lock")
        with said(checkpoint.parent, f"the lock of trial {key}", self._patience):
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            handle = hold(lock, self.path)
        if handle is None:
            return None
        claim = TrialClaim(study, key, checkpoint, lock, handle)
        try:
            if self._state(study, key) == "waiting":  # it may have been finished before we had the lock
                return claim
        except BaseException:
            claim.release()
            raise
        claim.release()
        return None

    # Reading

    def studies(self) -> list[StoredStudy]:
        """All studies, in the order in which they were added."""
        read = []
        for *words, versions, machine in self._read("SELECT * FROM studies ORDER BY rowid"):
            where = json.loads(machine)
            bounds = where.pop("bounds", {})
            read.append(StoredStudy._make((*words, json.loads(versions), where, bounds)))
        return read

    def study(self, hash: str) -> StoredStudy | None:  # noqa: A002
        """The study with this hash, if the store holds it."""
        return next((each for each in self.studies() if each.hash == hash), None)

    def trials(self, study: str) -> list[Trial]:
        """All trials of a study, in the order in which they were added."""
        self._known(study)
        found = self._read(
            "SELECT task, arm, seed, state, message, seconds, facts, finished_at FROM trials"
            " WHERE study = ? ORDER BY rowid",
            study,
        )
        return [Trial._make((*each[:6], json.loads(each[6]), each[7])) for each in found]

    def rows(self, study: str, **filters: Any) -> list[StoredRow]:
        """The rows of a study, in an order that does not depend on which trial was finished first.

        Args:
            study: The hash of the study.
            filters: A value for any field of a row but ``value``, or a list of values; ``place=None`` asks for rows
                without a place.
        """
        self._known(study)
        fields = StoredRow._fields[1:-1]
        conditions, values = ["study = ?"], [study]
        for name, wanted in filters.items():
            if name not in fields:
                near = difflib.get_close_matches(name, fields, 1)
                hint = f"Did you mean `{near[0]}`?" if near else f"Use any of: {', '.join(fields)}."
                raise InvalidValue(f"Rows cannot be selected by `{name}`: they have no such field.", hint)
            choices = list(wanted) if isinstance(wanted, list | tuple | set | frozenset | range) else [wanted]
            conditions.append("(" + (" OR ".join([f"{name} IS ?"] * len(choices)) or "0") + ")")
            values += choices
        found = self._read(
            f'SELECT {", ".join(StoredRow._fields)}, special FROM "rows" WHERE {" AND ".join(conditions)}'
            " ORDER BY task, arm, seed, kind, variant, step, protocol, length, place, measure",
            *values,
        )
        return [StoredRow._make((*each[:11], float(each[12]) if each[12] else each[11])) for each in found]

    def export_csv(self, study: str, target: str | os.PathLike[str] | TextIO) -> int:
        """Writes all rows of a study as CSV, with every digit of the values; says how many rows.

        An empty ``place`` is an average over all places; ``nan``, ``inf`` and ``-inf`` are written as such.
        """
        rows = self.rows(study)
        if not isinstance(target, str | os.PathLike):
            _write_csv(rows, target)
            return len(rows)
        file = Path(target)
        unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")  # so that no half of a file is left
        with said(file, "the CSV file", self._patience):
            try:
                with unfinished.open("w", encoding="utf-8", newline="") as opened:
                    _write_csv(rows, opened)
                unfinished.replace(file)
            finally:
                unfinished.unlink(missing_ok=True)
        return len(rows)

    # How it is read and written

    def _read(self, command: str, *values: Any) -> list[Any]:
        self._same_process()
        with self._turn, said(self.path, "nothing", self._patience):
            return self._connection.execute(command, values).fetchall()

    @contextmanager
    def _writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """One transaction, from the lock to the commit; after an error nothing of it is left."""
        self._same_process()
        if not self.writable:
            raise read_only(self.path)
        with self._turn, said(self.path, what, self._patience), _transaction(self._connection, self._patience):
            yield self._connection

    def _same_process(self) -> None:
        if os.getpid() != self._process:
            raise StoreError(
                f"The store {self.path} was opened by another process.",
                "Pass the measurements to the process that opened it: only one process of a lab writes.",
            )

    def _known(self, study: str) -> None:
        if not self._read("SELECT 1 FROM studies WHERE hash = ?", study):
            held = ", ".join(f"{each.name} ({each.hash[:12]})" for each in self.studies()) or "none"
            raise InvalidValue(f"{self.path} holds no study {shown(study)}.", f"Its studies are: {held}.")

    def _state(self, study: str, key: Key) -> str:
        found = self._read(
            "SELECT state FROM trials WHERE study = ? AND task = ? AND arm = ? AND seed = ?", study, *key
        )
        if not found:
            self._known(study)
            raise InvalidValue(f"The study has no trial {key}.", "Add the trial with `add_trials` first.")
        return found[0][0]


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
            # A lab without write-ahead log was killed in a transaction: SQLite must undo it before anybody can read.
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


def _inspected_read_only(file: Path, patience: float) -> bool:
    with closing(_reader(file, patience)) as connection:
        connection.execute("BEGIN")
        return _inspected(connection, file)


def _inspected(connection: sqlite3.Connection, file: Path) -> bool:
    """Whether it is a store, inside a transaction; ``False`` if the file is empty, an error if it is something else."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == version == tables == 0:
        return False
    if application != APPLICATION:
        raise NotAStore(
            f"{file} is a database of another program, not a store of results. It was not changed.",
            "Name another file.",
        )
    if version != VERSION:
        way = (
            "Update clockhands (pip install --upgrade clockhands)"
            if version > VERSION
            else "Export it with the clockhands that wrote it (clockhands lab report --csv FILE)"
        )
        raise OtherVersion(
            f"{file} is a store of version {version}; this clockhands reads version {VERSION}. It was not changed.",
            f"{way}, or run the study into a new file.",
        )
    return True


def _prepared(connection: sqlite3.Connection, file: Path, patience: float) -> None:
    """Makes the tables of a new store; refuses a file that cannot be written."""
    # A commit must outlive both the process and the power. SIGKILL is survived by any level, because the write-ahead
    # log is in the kernel's hands by then. A power loss is survived only by FULL, which waits for the disk at each
    # commit; with NORMAL the last commits before it would be gone. A trial takes minutes, the wait milliseconds.
    connection.execute("PRAGMA synchronous = FULL")
    # Without shared memory (network disks) SQLite keeps its rollback journal, which is slower and as safe.
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone(), patience)
    with _transaction(connection, patience):
        if not _inspected(connection, file):  # another lab may have been first
            for command in TABLES.split(";"):
                connection.execute(command)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        # Changes nothing, and fails where nothing can be written: `BEGIN IMMEDIATE` lets that pass.
        connection.execute("DELETE FROM trials WHERE 0")


# Writing


def _patiently(action: Any, patience: float) -> Any:
    """Repeats what is answered by "database is locked": SQLite does not wait by itself in all cases."""
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


def _checked(key: AnyKey) -> Key:
    task, arm, seed = key
    return Key(task, arm, count("seed", seed, 0))


def _encoded(study: str, key: Key, rows: Iterable[Measurement | StoredRow]) -> list[tuple[Any, ...]]:
    """Rows as they are stored; refuses two values for one measurement, and rows of another trial."""
    encoded: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        if isinstance(row, StoredRow) and row[:4] != (study, *key):
            raise InvalidValue(
                f"The results of trial {key} contain a row of trial {row.key}.", "Finish each trial with its own rows."
            )
        name = (
            *(study, *key, one_of("kind", row.kind, KINDS, f"Use {' or '.join(KINDS)}."), row.variant),
            *(count("step", row.step, 0), row.protocol, count("length", row.length, 0)),
            *(None if row.place is None else count("place", row.place, 0), row.measure),
        )
        if name in encoded:
            raise InvalidValue(
                f"Trial {key} gives two values for {row.measure} at step {row.step}, length {row.length}, place "
                f"{row.place}.",
                "Distinguish them by `variant`, `protocol` or `place`.",
            )
        value = real("value", row.value)
        encoded[name] = (*name, value, "") if math.isfinite(value) else (*name, None, str(value))
    return list(encoded.values())


def _write_csv(rows: Iterable[StoredRow], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(StoredRow._fields)
    writer.writerows((*row[:-1], repr(row.value)) for row in rows)


def _json(name: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(value), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InvalidType(
            f"`{name}` cannot be written as JSON: {error}.", "Use text, numbers, lists and dictionaries."
        ) from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _safe(name: str) -> str:
    """A name for a file: short, the same on all file systems, and different for different names."""
    if re.fullmatch(r"[a-z0-9_-]{1,60}", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{re.sub(r'[^a-z0-9_-]+', '-', name.lower())[:60]}~{digest}"
