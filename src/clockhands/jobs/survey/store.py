"""The results of a survey, in one SQLite file: one row for each target, revision and version of clockhands."""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TextIO

from clockhands.errors import InvalidValue
from clockhands.jobs.databases import Database, Form, cell
from clockhands.jobs.databases.locks import give_back, hold
from clockhands.jobs.databases.store_errors import Busy, read_only, said
from clockhands.jobs.survey.rows import SurveyRow

_COLUMNS = ", ".join(SurveyRow._fields)

# `latest` marks the row that describes a target as it is now: a target that has its old content again has its old row
# again.
_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE audits (
    id INTEGER PRIMARY KEY, target TEXT NOT NULL, revision TEXT NOT NULL, version TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('done', 'failed')), message TEXT NOT NULL, hint TEXT NOT NULL,
    verdict TEXT NOT NULL, severity TEXT NOT NULL, model_type TEXT NOT NULL, errors TEXT NOT NULL,
    warnings TEXT NOT NULL, notes TEXT NOT NULL, kinds TEXT NOT NULL, base REAL, scaling TEXT NOT NULL, factor REAL,
    context INTEGER, head_width INTEGER, differs_in TEXT NOT NULL, refused_by TEXT NOT NULL, seconds REAL,
    audited_at TEXT NOT NULL, report TEXT NOT NULL, UNIQUE (target, revision, version)
);
CREATE TABLE latest (target TEXT PRIMARY KEY, audit INTEGER NOT NULL REFERENCES audits (id))
"""

AS_DECLARED = "as declared"
"""The setting of the length where each target has its own."""

FORM = Form(
    application=0x434C4B53,  # "CLKS"
    version=1,
    tables=_TABLES,
    first="audits",
    what="store of a survey",
    begin="run a survey into",
    go_on="run the same command again",
    kept="Every finished row is kept.",
    export="clockhands survey report --csv FILE",
    # Rows lost in a power failure are audited again, in milliseconds each.
    survives_power_loss=False,
)


class SurveyStore(Database):
    """Rows and reports of a survey; made by ``SurveyStore.open``, closed by ``close`` or ``with``."""

    form: ClassVar[Form] = FORM

    @contextmanager
    def driving(self) -> Iterator[None]:
        """Hold the store for one survey, until the block or the process ends, however it ends.

        Raises:
            Busy: Another process holds it.
        """
        if not self.writable:
            raise read_only(self.path)
        lock = self.path.with_name(f"{self.path.name}.lock")
        with said(lock, "the lock of the survey", self._patience, self.form):
            handle = hold(lock, self.path)
        if handle is None:
            raise Busy(
                f"Another survey writes to {self.path} now.",
                "Wait until it has ended, or stop it; or give another file with `--store`.",
            )
        try:
            yield
        finally:
            give_back(handle, lock)
            os.close(handle)

    def keep_settings(self, settings: Mapping[str, str]) -> None:
        """Store the settings with which all rows are made the first time; later runs are compared with them.

        Raises:
            InvalidValue: The existing rows were made with another value.
        """
        with self._writing("the settings of the survey") as database:
            database.executemany("INSERT INTO settings VALUES (?, ?) ON CONFLICT DO NOTHING", settings.items())
        held = dict(self._read("SELECT name, value FROM settings"))
        for name, value in settings.items():
            if held[name] != value:
                raise InvalidValue(
                    f"The survey in {self.path} was started with {name} {held[name]}, got {value}: its rows could not "
                    "be compared.",
                    f"Give the same {name}, or another file with `--store`.",
                )

    @property
    def length(self) -> int | None:
        """The length in tokens at which all rows are audited; None for the one that each target declares."""
        held = dict(self._read("SELECT name, value FROM settings")).get("length", AS_DECLARED)
        if held != AS_DECLARED and not re.fullmatch(r"[0-9]{1,18}", held):
            raise self.corrupted("the length of the survey is not a number")
        return None if held == AS_DECLARED else int(held)

    def known(self, target: str, revision: str, version: str) -> str | None:
        """The state of the row for a target; None if there is none. The row becomes the latest of its target."""
        target = _text(target)
        found = self._read(
            "SELECT id, state, (SELECT audit FROM latest WHERE latest.target = audits.target) FROM audits"
            " WHERE target = ? AND revision = ? AND version = ?",
            *(target, revision, version),
        )
        if not found:
            return None
        number, state, latest = found[0]
        if number != latest:
            with self._writing(f"the revision of {target}") as database:
                database.execute("INSERT OR REPLACE INTO latest VALUES (?, ?)", (target, number))
        return state

    def add(self, row: SurveyRow, report: str) -> bool:
        """Store a row with its report (JSON text), in one transaction; a failed row is replaced.

        Returns:
            Whether it was stored; ``False`` if the target was audited before, at this revision and version.
        """
        values = tuple(_text(value) if isinstance(value, str) else value for value in row)
        places = ", ".join("?" * (len(values) + 1))
        with self._writing(f"the row of {values[0]}") as database:
            database.execute(
                "DELETE FROM latest WHERE audit IN (SELECT id FROM audits WHERE target = ? AND revision = ?"
                " AND version = ? AND state = 'failed')",
                values[:3],
            )
            database.execute(
                "DELETE FROM audits WHERE target = ? AND revision = ? AND version = ? AND state = 'failed'", values[:3]
            )
            changed = database.execute(
                f"INSERT INTO audits ({_COLUMNS}, report) VALUES ({places}) ON CONFLICT DO NOTHING", (*values, report)
            )
            if changed.rowcount == 1:
                database.execute("INSERT OR REPLACE INTO latest VALUES (?, ?)", (values[0], changed.lastrowid))
        return changed.rowcount == 1

    def rows(self, *, latest: bool = True) -> list[SurveyRow]:
        """The rows in the order of their targets: one for each target, or all revisions and versions."""
        join = "JOIN latest ON latest.audit = audits.id" if latest else ""
        columns = ", ".join(f"audits.{name}" for name in SurveyRow._fields)
        found = self._read(f"SELECT {columns} FROM audits {join} ORDER BY audits.target, audits.id")
        return [SurveyRow._make(each) for each in found]

    def report_of(self, row: SurveyRow) -> dict[str, Any]:
        """The report of a row, as one element of `targets` in the JSON of `clockhands audit`; empty if it failed."""
        found = self._read(
            "SELECT report FROM audits WHERE target = ? AND revision = ? AND version = ?", *map(_text, row[:3])
        )
        return self._object(found[0][0], f"the report of {row.target}") if found and found[0][0] else {}


def write_csv(rows: Iterable[SurveyRow], file: TextIO) -> None:
    """Write rows as CSV, the names of the columns first."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(SurveyRow._fields)
    writer.writerows([cell(value) for value in row] for row in rows)


def _text(text: str) -> str:
    """A text that SQLite can hold: file names may have bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def export_csv(rows: Iterable[SurveyRow], path: Path) -> None:
    """Write rows as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv(rows, file)
