"""The results of lab studies, in one SQLite file.

Only the process that drives a study writes; workers hand their measurements to it. A trial is finished in one
transaction: its state and all its rows, or nothing. What a trial needs while it runs (its checkpoint, and the lock
that keeps a second lab away) lies beside the store, in the folder ``<store>.checkpoints``.
"""

import csv
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TextIO

from clockhands.arguments import count, one_of, real
from clockhands.configs.kept_models import FOLDER
from clockhands.errors import InvalidType, InvalidValue
from clockhands.formats import files
from clockhands.jobs.databases import Database, Form, cell
from clockhands.jobs.databases.locks import hold
from clockhands.jobs.databases.store_errors import StoreError, read_only, said
from clockhands.lab._claiming import TrialClaim
from clockhands.lab._records import KEPT_MODEL, AnyKey, Key, Measurement, StoredRow, StoredStudy, Trial
from clockhands.phrases import did_you_mean, shown

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


FORM = Form(
    application=APPLICATION,
    version=VERSION,
    tables=TABLES,
    first="trials",
    what="store of results",
    begin="run a study into",
    go_on="run `clockhands lab resume`",
    kept="Every finished trial is kept.",
    export="clockhands lab report --csv FILE",
)


class Store(Database):
    """Studies, trials and rows in one SQLite file; made by ``Store.open``, closed by ``close`` or ``with``."""

    form: ClassVar[Form] = FORM

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

    def put_probe(
        self, study: str, key: AnyKey, how: Mapping[str, Any] | None, rows: Iterable[Measurement | StoredRow] = ()
    ) -> None:
        """Stores what a probe measured of the kept models of a trial, in place of what one measured before.

        Args:
            study: The hash of the study.
            key: The trial.
            how: How it was measured, the fact ``probed`` of the trial; None stores nothing and only removes.
            rows: Curves of the variant `KEPT_MODEL`.
        """
        key = _checked(key)
        values = _encoded(study, key, rows)
        if any(row[5] != KEPT_MODEL for row in values):
            raise InvalidValue("A row of a probe is of another variant.", f"Use the variant {KEPT_MODEL!r}.")
        facts = next((each.facts for each in self.trials(study) if each.key == key), {})
        facts = {name: each for name, each in facts.items() if name != "probed"}
        facts |= {} if how is None else {"probed": dict(how)}
        where = "study = ? AND task = ? AND arm = ? AND seed = ?"
        with self._writing(f"the probe of trial {key}") as database:
            database.execute(f"UPDATE trials SET facts = ? WHERE {where}", (_json("facts", facts), study, *key))
            database.execute(f'DELETE FROM "rows" WHERE {where} AND variant = ?', (study, *key, KEPT_MODEL))
            database.executemany(f'INSERT INTO "rows" VALUES ({", ".join("?" * 13)})', values)

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

    def kept_folder(self, study: str, key: AnyKey) -> Path:
        """Where the models that a trial keeps along its training are; the trial makes the folder."""
        checkpoint = self.checkpoint_path(study, key)
        return self.path.with_name(self.path.name + FOLDER) / checkpoint.parent.name / checkpoint.stem

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
        with said(checkpoint.parent, f"the lock of trial {key}", self._patience, self.form):
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
            where = self._object(machine, "the machine of a study")
            bounds = where.pop("bounds", {})
            bounds = bounds if isinstance(bounds, dict) else {}
            held = self._object(versions, "the versions of a study")
            read.append(StoredStudy._make((*words, held, where, bounds)))
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
        return [Trial._make((*each[:6], self._object(each[6], "the facts of a trial"), each[7])) for each in found]

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
                hint = did_you_mean(name, fields, f"Use any of: {', '.join(fields)}.")
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
        with said(file, "the CSV file", self._patience, self.form):
            unfinished = files.fresh_beside(file)  # so that no half of a file is left
            try:
                with unfinished.open("w", encoding="utf-8", newline="") as opened:
                    _write_csv(rows, opened)
                files.rename(unfinished, file, replace=True)
            finally:
                unfinished.unlink(missing_ok=True)
        return len(rows)

    # What is there

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
    writer.writerows((*map(cell, row[:-1]), repr(row.value)) for row in rows)


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
