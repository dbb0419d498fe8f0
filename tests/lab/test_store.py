"""The store of results: what is finished stays when a lab is killed, a disk is full or two labs work at once."""

import csv
import errno
import fcntl
import io
import math
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from clockhands.errors import InvalidType, InvalidValue
from clockhands.jobs.databases import _opening as opening
from clockhands.jobs.databases import locks
from clockhands.jobs.databases import store_errors as errors
from clockhands.lab import store as module
from clockhands.lab._records import Key, Measurement, StoredRow
from clockhands.lab.store import VERSION, Store
from written_files import written

STUDY = "0123456789abcdef"
KEYS = [Key(task, arm, seed) for seed in range(2) for task in ("copy", "recall") for arm in ("none", "rotary 25 %")]
FIRST = KEYS[0]


def measured(value: float = 0.5, places: int = 3) -> list[Measurement]:
    return [
        Measurement("training", "loss", 2.0, step=1, length=32),
        *(Measurement("evaluation", "loss", value, 400, 64, place, "whole") for place in (None, *range(places))),
    ]


def filled(store: Store) -> Store:
    store.add_study(
        STUDY, "quick", "name = 'quick'\n", {"command": "clockhands lab run quick", "machine": {"cores": 2}}
    )
    store.add_trials(STUDY, KEYS)
    return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.fixture
def store(path: Path):
    with Store.open(path) as opened:
        yield filled(opened)


def states(store: Store) -> list[str]:
    return [each.state for each in store.trials(STUDY)]


def python(*arguments: str, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


# Studies, trials and rows


def test_a_study_is_kept_with_where_it_came_from_and_bounds_apart_from_the_machine(store: Store):
    (study,) = store.studies()
    assert (study.hash, study.name, study.text) == (STUDY, "quick", "name = 'quick'\n")
    assert (study.command, study.machine, study.versions) == ("clockhands lab run quick", {"cores": 2}, {})
    assert study.created.endswith("+00:00")
    bounds = {"copy": {"64": {"chance_accuracy": 1 / 32}}}
    store.add_study("other", "", "", {"machine": {"cores": 1}, "bounds": bounds})
    kept = store.study("other")
    assert (kept.machine, kept.bounds) == ({"cores": 1}, bounds)
    assert store.study(STUDY).bounds == {}
    assert store.study("none") is None
    store.add_study("more", "", "", {"versions": {"torch": "2.8", "numpy": "2.3", "python": "3.13"}})
    assert list(store.study("more").versions) == ["numpy", "python", "torch"], "by name, in whatever order they came"
    store._connection.execute("UPDATE studies SET machine = '{\"cores\": 3}'")  # from before there were bounds
    assert store.study(STUDY)[-2:] == ({"cores": 3}, {})


def test_trials_wait_in_order_and_one_that_is_finished_or_added_again_stays_as_it_is(store: Store):
    assert [each.key for each in store.trials(STUDY)] == KEYS
    assert set(states(store)) == {"waiting"}
    assert store.finish(STUDY, FIRST, measured(), {"parameters": 1000, "threads": 2}, 1.5) is True
    trial = store.trials(STUDY)[0]
    assert (trial.state, trial.facts, trial.seconds) == ("finished", {"parameters": 1000, "threads": 2}, 1.5)
    rows = store.rows(STUDY)
    assert {each.key for each in rows} == {FIRST}
    assert {each.measurement for each in rows} == set(measured())
    before = store.trials(STUDY), store.rows(STUDY)
    assert store.finish(STUDY, FIRST, measured(0.7), seconds=2.0) is False
    assert store.fail(STUDY, FIRST, "too late") is False
    store.add_study(STUDY, "another", "", {})
    store.add_trials(STUDY, KEYS)
    assert store.study(STUDY).name == "quick"
    assert (store.trials(STUDY), store.rows(STUDY)) == before
    assert store.claim(STUDY, FIRST) is None
    assert store.finish(STUDY, tuple(KEYS[1]), measured())  # keys may be plain tuples
    assert store.checkpoint_path(STUDY, tuple(KEYS[1])) == store.checkpoint_path(STUDY, KEYS[1])


def test_two_that_finish_one_trial_at_once_store_it_once(path: Path, store: Store, monkeypatch: pytest.MonkeyPatch):
    with Store.open(path) as other:
        monkeypatch.setattr(other, "_state", lambda *_: "waiting")  # what it saw before the first had finished
        assert store.finish(STUDY, FIRST, measured(0.5)) is True
        assert other.finish(STUDY, FIRST, measured(0.7)) is False
    assert {each.value for each in store.rows(STUDY, kind="evaluation")} == {0.5}


def test_a_failed_trial_keeps_its_message_and_waits_again_when_asked(store: Store):
    assert store.fail(STUDY, FIRST, "The loss is NaN at step 12.") is True
    assert store.trials(STUDY)[0][3:5] == ("failed", "The loss is NaN at step 12.")
    assert store.claim(STUDY, FIRST) is None
    assert store.retry(STUDY) == 1
    assert store.trials(STUDY)[0][3:5] == ("waiting", "The loss is NaN at step 12.")
    assert store.finish(STUDY, FIRST, measured()) is True
    assert store.trials(STUDY)[0][3:5] == ("finished", "")
    assert store.retry(STUDY) == 0


def test_rows_come_in_one_order_whichever_trial_was_first(tmp_path: Path):
    found = []
    for name, keys in (("one", KEYS), ("two", KEYS[::-1])):
        with filled(Store.open(tmp_path / name)) as store:
            for key in keys:
                store.finish(STUDY, key, measured()[:: 1 if name == "one" else -1])
            found.append(store.rows(STUDY))
    assert found[0] == found[1]
    assert found[0] == sorted(found[0], key=lambda row: (row[:9], row.place is not None, row.place, row.measure))


def test_rows_are_selected_by_any_field(store: Store):
    for key in KEYS:
        store.finish(STUDY, key, measured())
    assert {each.arm for each in store.rows(STUDY, arm="none")} == {"none"}
    assert {each.place for each in store.rows(STUDY, place=None)} == {None}
    assert {each.place for each in store.rows(STUDY, place=[0, 2, None])} == {0, 2, None}
    assert len(store.rows(STUDY, seed=1, kind="training")) == 4
    assert store.rows(STUDY, measure=[]) == store.rows(STUDY, step=7) == []
    with pytest.raises(InvalidValue, match=r"cannot be selected by `mesure`.*\nhint: Did you mean measure"):
        store.rows(STUDY, mesure="loss")


def test_every_number_is_read_back_to_the_last_bit(store: Store, path: Path):
    special = [math.nan, math.inf, -math.inf, 0.0, 5e-324, sys.float_info.max, 0.1, 1.0, 2.0**53 + 2, np.float32(0.1)]
    drawn = np.random.default_rng(1).integers(2**64, size=300, dtype=np.uint64).view(np.float64)
    values = [*special, *drawn[np.isfinite(drawn)].tolist()]
    store.finish(STUDY, FIRST, [Measurement("evaluation", "loss", v, 0, 8, place) for place, v in enumerate(values)])
    with Store.open(path) as again:
        found = [each.value for each in again.rows(STUDY)]
    assert [struct.pack("<d", each) for each in found] == [struct.pack("<d", float(each)) for each in values]
    with closing(sqlite3.connect(path)) as database:  # the file itself says what is not a number
        kept = database.execute('SELECT value, special FROM "rows" ORDER BY place LIMIT 4').fetchall()
    assert kept == [(None, "nan"), (None, "inf"), (None, "-inf"), (0.0, "")]


def test_rows_that_are_no_rows_of_the_trial_are_refused(store: Store, cases):
    another = [StoredRow(STUDY, *KEYS[1], "training", "", 0, "", 8, None, "loss", 0.5)]
    for rows, error, sentence in (
        (measured() + measured()[-1:], InvalidValue, "gives two values for loss at step 400, length 64, place 2."),
        ([Measurement("test", "loss", 0.5, 0, 8)], InvalidValue, "`kind` must be"),
        ([Measurement("training", "loss", 0.5, -1, 8)], InvalidValue, "`step` must be at least 0, got -1."),
        ([Measurement("training", "loss", "0.5", 0, 8)], InvalidType, "`value` must be a number, got '0.5'."),
        (another, InvalidValue, "contain a row of trial copy, rot"),
    ):
        with cases(sentence):
            with pytest.raises(error, match=re.escape(sentence)):
                store.finish(STUDY, FIRST, rows)
            assert (states(store)[0], store.rows(STUDY)) == ("waiting", [])


def test_what_is_unknown_is_named(store: Store):
    with pytest.raises(InvalidValue, match=r"holds no study 'abc'.\nhint: Its studies are: quick \(0123456789ab\)"):
        store.rows("abc")
    with pytest.raises(InvalidValue, match="has no trial copy, none, seed 9"):
        store.finish(STUDY, ("copy", "none", 9), [])
    with pytest.raises(InvalidValue, match="provenance"):
        store.add_study("abc", "", "", {"comit": ""})
    with pytest.raises(InvalidType, match="`facts` cannot be written as JSON"):
        store.finish(STUDY, FIRST, [], {"model": object()})


# Checkpoints and claims


def test_checkpoints_have_safe_and_different_names(store: Store):
    names = ["a/b", "a b", "A", "a", "..", "", "a.b", "é" * 300, "a~b", "con", "\0"]
    paths = {store.checkpoint_path(STUDY, (task, arm, 0)) for task in names for arm in names}
    assert len({str(each).lower() for each in paths}) == len(names) ** 2
    assert {each.parent for each in paths} == {Path(f"{store.path}.checkpoints") / STUDY[:12]}
    assert all(re.fullmatch(r"[a-z0-9_~.-]+\.0\.pt", each.name) and len(each.name) < 200 for each in paths)


def test_a_claim_is_exclusive_until_it_is_released(store: Store, path: Path):
    with Store.open(path) as other:
        with store.claim(STUDY, FIRST) as claim:
            assert claim.checkpoint.parent.is_dir()
            assert other.claim(STUDY, FIRST) is None
            assert store.claim(STUDY, FIRST) is None
            other.claim(STUDY, KEYS[1]).release()
        claim.release()  # a second time does nothing
        with other.claim(STUDY, FIRST) as second:
            assert second.fileno() > 2
    with pytest.raises(InvalidValue, match="was released"):
        second.fileno()
    assert list(claim.checkpoint.parent.iterdir()) == []


def test_a_folder_in_the_place_of_a_checkpoint_is_refused(store: Store):
    folder = store.checkpoint_path(STUDY, FIRST)
    folder.mkdir(parents=True)
    with pytest.raises(errors.StoreError) as raised:
        store.claim(STUDY, FIRST)
    assert str(raised.value) == (
        f"The checkpoint of trial copy, none, seed 0 cannot be written: {folder} is a folder.\n"
        "hint: Move the folder away, then run `clockhands lab resume`. Every finished trial is kept."
    )
    assert list(folder.parent.iterdir()) == [folder]


def test_a_trial_finished_just_before_the_lock_cannot_be_claimed(store: Store, monkeypatch: pytest.MonkeyPatch):
    answers = iter(["waiting", "finished"])
    monkeypatch.setattr(store, "_state", lambda *_: next(answers))
    assert store.claim(STUDY, FIRST) is None


def test_a_lock_file_that_its_owner_just_removed_is_no_claim(store: Store, monkeypatch: pytest.MonkeyPatch):
    locked, seen = locks._locked, []

    def removed_first(handle: int, path: Path) -> bool:
        seen.append(handle)
        if len(seen) == 1:  # what the owner's release does between our opening and our locking
            store.checkpoint_path(STUDY, FIRST).with_suffix(".lock").unlink()
        return locked(handle, path)

    monkeypatch.setattr(locks, "_locked", removed_first)
    with store.claim(STUDY, FIRST) as claim:
        assert len(seen) == 2
        assert os.path.samestat(os.fstat(claim.fileno()), claim.checkpoint.with_suffix(".lock").stat())


def test_several_labs_may_make_one_store_at_once(path: Path):
    start, found = threading.Barrier(6), []

    def work() -> None:
        start.wait()
        with Store.open(path) as store:
            filled(store)
            found.append(states(store))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["waiting"] * len(KEYS)] * 6


def test_a_journal_that_another_lab_removes_meanwhile_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch):
    with Store.open(path) as store:
        filled(store)
    journal, opened = path.with_name(f"{path.name}-journal"), Path.open
    journal.write_bytes(bytes(512))

    def removed_meanwhile(file: Path, *given, **named):
        if file == journal:
            journal.unlink()
        return opened(file, *given, **named)

    monkeypatch.setattr(Path, "open", removed_meanwhile)
    with Store.open(path) as store:
        assert states(store) == ["waiting"] * len(KEYS)
    assert not journal.exists()


# Killed, full, locked, read-only

KILLED = """
import os, signal, sys
from clockhands.lab.store import Measurement, Store
path, study, journal, *points = sys.argv[1:]
for kill in map(int, points):
    if os.fork() == 0:
        store = Store.open(path)
        key = store.trials(study)[0].key
        store._connection.execute("PRAGMA journal_mode = " + journal)
        store._connection.execute("PRAGMA cache_size = 2")  # so that SQLite writes before the commit
        seen = 0
        def trace(command):
            global seen
            seen += 1
            if seen == kill:
                os.kill(os.getpid(), signal.SIGKILL)
        rows = [Measurement("training", "loss", 0.5, step, 8) for step in range(300)]
        store._connection.set_trace_callback(trace)
        store.finish(study, key, rows)
        os._exit(0)
    how = os.WTERMSIG(os.wait()[1])
    with Store.open(path, write=kill % 2 == 0) as store:
        print(how, [trial.state for trial in store.trials(study)].count("finished"), len(store.rows(study)))
"""


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])  # the second where the file system has no shared memory
def test_sigkill_in_the_middle_of_finishing_leaves_all_or_nothing(path: Path, journal: str):
    with Store.open(path) as store:
        store.add_study(STUDY, "", "", {})
        store.add_trials(STUDY, [FIRST, KEYS[1]])
        store.finish(STUDY, KEYS[1], measured())
    # before: SELECT, BEGIN, UPDATE; then 300 INSERT; then COMMIT
    points = [1, 2, 3, 4, 200, 303, 304]
    with python(str(path), STUDY, journal, *map(str, [*points, 305]), code=KILLED) as lab:
        lines = lab.stdout.read().splitlines()
    assert lines == [f"{int(signal.SIGKILL)} 1 5"] * len(points) + ["0 2 305"]


def test_a_full_disk_keeps_what_was_finished(store: Store, path: Path):
    store.finish(STUDY, FIRST, measured())
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(errors.DiskFull) as raised:
        store.finish(STUDY, KEYS[1], measured(places=3000))
    assert str(raised.value) == (
        f"The disk of {path} is full, so trial copy, rotary 25 %, seed 0 was not written.\n"
        "hint: Free some space, then try again or run `clockhands lab resume`. Every finished trial is kept."
    )
    assert states(store)[:2] == ["finished", "waiting"]
    assert len(store.rows(STUDY)) == 5
    store._connection.execute("PRAGMA max_page_count = 1000000")
    assert store.finish(STUDY, KEYS[1], measured(places=3000)) is True


def test_an_input_or_output_error_is_a_full_disk_if_less_than_a_mebibyte_is_free(path: Path, monkeypatch):
    """SQLite says so where its shared memory does not fit."""
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR
    for free, error, words in (
        (2**20 - 1, errors.DiskFull, f"The disk of {path} is full, so trial 1 was not written."),
        (2**20, errors.StoreError, f"{path} cannot be used: disk I/O error."),
    ):
        monkeypatch.setattr(errors.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        with pytest.raises(error) as raised, errors.said(path, "trial 1", 1.0, module.FORM):
            raise failed
        assert (type(raised.value), raised.value.message) == (error, words)


def test_a_lock_that_cannot_be_made_says_why(store: Store, monkeypatch: pytest.MonkeyPatch):
    def failing(number: int):
        def fails(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        return fails

    words = r"cannot lock files \(No locks available\).\nhint: Put the store on a local disk"
    for place, name, number, error, said in (
        (os, "open", errno.ENOSPC, errors.DiskFull, "so the lock of trial copy, none, seed 0 was not written"),
        (fcntl, "flock", errno.ENOLCK, errors.NoLocks, words),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, failing(number))
            with pytest.raises(error, match=said):
                store.claim(STUDY, FIRST)


def test_a_store_that_cannot_be_written_says_so(store: Store, path: Path):
    store.finish(STUDY, FIRST, measured())
    store._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(errors.ReadOnly) as raised:
        store.finish(STUDY, KEYS[1], measured())
    assert str(raised.value) == (
        f"{path} cannot be written: the file or its folder is read-only.\n"
        "hint: Allow writing to both, or copy the store to another folder. What was finished is kept and can be read."
    )
    assert states(store)[:2] == ["finished", "waiting"]


def test_a_store_opened_to_be_read_or_without_the_right_to_write_is_not_written(store: Store, path: Path, monkeypatch):
    store.finish(STUDY, FIRST, measured())
    store.close()
    before = path.read_bytes()
    with Store.open(path, write=False) as reader:
        assert len(reader.rows(STUDY)) == 5
        for action in (
            lambda: reader.finish(STUDY, KEYS[1], []),
            lambda: reader.claim(STUDY, KEYS[1]),
            lambda: reader.retry(STUDY),
        ):
            with pytest.raises(errors.ReadOnly):
                action()
    assert path.read_bytes() == before
    # What SQLite makes of a file without the right to write; root, who may run this, has it always.
    connected = opening._connected
    monkeypatch.setattr(opening, "_connected", lambda file, _, patience: connected(file, "mode=ro", patience))
    with pytest.raises(errors.ReadOnly, match="cannot be written"):
        Store.open(path)
    with Store.open(path, write=False) as reader:
        assert len(reader.rows(STUDY)) == 5


def test_a_store_without_a_place_for_its_log_can_be_read(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch):
    store.finish(STUDY, FIRST, measured())
    connected = opening._connected

    class WithoutPlace(sqlite3.Connection):
        def execute(self, *_: object) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error

    def without_place(file: Path, how: str, patience: float) -> sqlite3.Connection:
        if how == "immutable=1":
            return connected(file, how, patience)
        return sqlite3.connect(file, factory=WithoutPlace)

    monkeypatch.setattr(opening, "_connected", without_place)
    with pytest.raises(
        errors.StoreError, match="cannot be used: unable to open"
    ):  # the log holds what would not be seen
        Store.open(path, write=False)
    store.close()
    with Store.open(path, write=False) as reader:
        assert len(reader.rows(STUDY)) == 5


def test_a_lock_is_waited_for_and_one_kept_for_too_long_is_said(store: Store, path: Path):
    store._connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(errors.Busy, match=r"kept .* locked for 0.05 seconds, so the new store"):
        Store.open(path, patience=0.05)
    store._connection.execute("ROLLBACK")
    with Store.open(path) as other:
        other._connection.execute("PRAGMA busy_timeout = 0")  # as where SQLite does not wait by itself
        store._connection.execute("BEGIN IMMEDIATE")
        threading.Timer(0.1, store._connection.execute, ["ROLLBACK"]).start()
        assert other.finish(STUDY, FIRST, measured()) is True


def test_a_store_is_not_used_by_another_process(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(errors.StoreError, match="was opened by another process"):
        store.trials(STUDY)


# Files that are no store, or another's


def test_a_file_that_is_no_store_of_this_version_is_refused_and_not_changed(store: Store, path: Path, cases):
    store.close()
    kept = path.read_bytes()
    for version, way in ((VERSION + 1, "Update clockhands"), (0, "Export it with the clockhands that wrote it")):
        path.write_bytes(kept)
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"PRAGMA user_version = {version}")
        said = f"is a store of version {version}; this clockhands reads version {VERSION}\\..*\nhint: .*{way}"
        stays(cases, path, errors.OtherVersion, said)
    for text in (b"name = 'quick'\n", b"x" * 5000, b"SQLite format 3\0"):
        path.write_bytes(text)
        stays(cases, path, errors.NotAStore, r"is no SQLite database\. It was not changed")
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE trials (a); INSERT INTO trials VALUES (1)")
    said = r"is a database of another program, not a store of results\. It was not changed"
    stays(cases, path, errors.NotAStore, said)


def stays(cases, path: Path, error: type, said: str) -> None:
    """A file that is refused to readers and writers, with these words, and is afterwards what it was."""
    before = path.read_bytes()
    for write in (True, False):
        with cases(said, write), pytest.raises(error, match=f"^{re.escape(str(path))} {said}"):
            Store.open(path, write=write)
    assert path.read_bytes() == before


FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1, 1, 1, 1, 1, 1 FROM n"


def test_a_store_with_a_program_or_with_values_of_other_types_is_refused(store: Store, path: Path, cases):
    """A view or a trigger of a file from elsewhere would run when the file is read or written."""
    store.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    kept = path.read_bytes()
    for change, said in {
        f"DROP TABLE trials; CREATE VIEW trials AS {FOREVER}": "its table 'trials' is not as clockhands makes it",
        "CREATE TRIGGER t AFTER INSERT ON studies BEGIN SELECT 1; END": "its trigger 't' is not as clockhands makes it",
        "CREATE INDEX i ON trials (length(hex(zeroblob(seed))))": "its index 'i' is not as clockhands makes it",
        "CREATE TABLE u (a CHECK (length(hex(randomblob(a)))))": "its table 'u' is not as clockhands makes it",
    }.items():
        path.write_bytes(kept)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(change)
        stays(cases, path, errors.NotAStore, f"is not a store of results: {said}")
    for change, column in {
        "UPDATE studies SET name = x'00'": "studies.name holds what is not TEXT",
        "UPDATE trials SET seconds = 9e999": "trials.seconds holds what is not REAL",
        "UPDATE trials SET seconds = 'soon'": "trials.seconds holds what is not REAL",
        "UPDATE trials SET seed = 0.5 WHERE seed = 0": "trials.seed holds what is not INTEGER",
    }.items():
        path.write_bytes(kept)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(change)
        for write in (True, False):
            with cases(column), pytest.raises(errors.Corrupted, match=f"is damaged: {column}"):
                Store.open(path, write=write)


def test_a_command_that_takes_more_than_its_file_explains_ends_in_a_sentence(store: Store, path: Path, monkeypatch):
    monkeypatch.setattr(opening, "_ANY_FILE", 10**6)
    said = f"{path} takes more work than a store of results of its size can, so it was not used further."
    with pytest.raises(errors.StoreError, match=re.escape(said)):
        store._read(FOREVER)
    with pytest.raises(errors.StoreError, match=re.escape(said)), store._writing("x") as database:
        database.execute(FOREVER).fetchall()
    assert len(store.trials(STUDY)) == len(KEYS), "the store can be used after it"
    assert store._read("PRAGMA trusted_schema") == [(0,)]


def test_logs_beside_a_store_change_no_other_file(store: Store, path: Path, tmp_path: Path, cases):
    """SQLite deletes the super-journal that a journal names, also of a store that is read, and writes through links."""
    store.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    victim = tmp_path / "victim"
    page, magic, name = path.read_bytes()[:4096], bytes.fromhex("d9d505f920a163d7"), str(victim).encode()
    header = (magic + struct.pack(">5I", 1, 0, path.stat().st_size // 4096, 512, 4096)).ljust(512, b"\0")
    record = struct.pack(">I", 1) + page + struct.pack(">I", sum(page[at] for at in range(3896, 0, -200)))
    after = struct.pack(">I", 2**30 // 4096 + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    for end in ("-journal", "-wal", "-shm", "-journal"):
        log = path.with_name(path.name + end)
        victim.write_bytes(b"a" * 100)
        if end == "-journal" and cases.tried == 0:
            log.write_bytes(header + record + after)
        else:
            log.symlink_to(victim)
        for write in (False, True):
            with cases(end, write):
                with pytest.raises(errors.NotAStore, match=f"{re.escape(str(log))} .*Nothing was changed"):
                    Store.open(path, write=write)
                assert victim.read_bytes() == b"a" * 100
        log.unlink(missing_ok=True)


def test_a_damaged_store_is_refused_and_not_changed(store: Store, path: Path):
    store.finish(STUDY, FIRST, measured(places=2000))
    store.close()
    damaged = bytearray(path.read_bytes())
    damaged[3 * 4096 : -4096] = bytes(len(damaged) - 4 * 4096)
    path.write_bytes(damaged)
    with pytest.raises(errors.Corrupted, match=r"is damaged: .*It was not changed.\nhint: Keep a copy"):
        Store.open(path)
    assert path.read_bytes() == damaged


def test_a_missing_or_empty_file_becomes_a_store_only_when_asked(tmp_path: Path, path: Path):
    for arguments in ({"create": False}, {"write": False}):
        with pytest.raises(errors.NotAStore, match="There is no store of results at"):
            Store.open(path, **arguments)
    assert not path.exists()
    with pytest.raises(errors.NotAStore, match="is a folder, not a store"):
        Store.open(tmp_path)
    with pytest.raises(errors.NotAStore, match=r"There is no folder .*none\.\nhint: Make it first: mkdir -p"):
        Store.open(tmp_path / "none" / "results.sqlite")
    path.touch()
    for arguments in ({"create": False}, {"write": False}):
        with pytest.raises(errors.NotAStore, match="is empty"):
            Store.open(path, **arguments)
    assert path.stat().st_size == 0
    with Store.open(path) as store:
        assert store.studies() == []


# Export


def test_rows_are_exported_with_all_columns_and_digits(store: Store, tmp_path: Path):
    store.finish(STUDY, KEYS[1], [Measurement("evaluation", "loss", v, 4, 8, i) for i, v in enumerate((math.nan, 0.1))])
    store.finish(STUDY, FIRST, [Measurement("evaluation", "loss", -math.inf, 4, 8, None, "sliding", "yarn, 2 x")])
    file = tmp_path / "rows.csv"
    assert store.export_csv(STUDY, file) == 3
    text = file.read_text(encoding="utf-8")
    assert text.splitlines() == [
        "study,task,arm,seed,kind,variant,step,protocol,length,place,measure,value",
        f'{STUDY},copy,none,0,evaluation,"yarn, 2 x",4,sliding,8,,loss,-inf',
        f"{STUDY},copy,rotary 25 %,0,evaluation,,4,,8,0,loss,nan",
        f"{STUDY},copy,rotary 25 %,0,evaluation,,4,,8,1,loss,0.1",
    ]
    stream = io.StringIO()
    store.export_csv(STUDY, stream)
    assert stream.getvalue() == text
    assert [float(each["value"]) for each in csv.DictReader(io.StringIO(text))][2] == 0.1
    assert sorted(each.name for each in tmp_path.glob("rows*")) == ["rows.csv"]


def test_no_name_is_a_formula_in_an_export(store: Store):
    """Names of a store from elsewhere may be made for the spreadsheet in which it is opened."""
    key = Key("copy", "=HYPERLINK(1)", 0)
    store.add_trials(STUDY, [key])
    store.finish(STUDY, key, [Measurement("training", "@loss", -2.0, step=1, length=32)])
    out = io.StringIO()
    store.export_csv(STUDY, out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue()))
    assert (row["arm"], row["measure"], row["value"]) == ("'=HYPERLINK(1)", "'@loss", "-2.0")


def test_a_planted_link_leads_what_is_exported_nowhere(store: Store, tmp_path: Path):
    (tmp_path / f"rows.csv.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    store.export_csv(STUDY, tmp_path / "rows.csv")
    assert not (tmp_path / "victim").exists()


def test_an_export_that_fails_leaves_the_old_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = written(tmp_path / "rows.csv", b"old")
    monkeypatch.setattr(module, "_write_csv", full)
    with pytest.raises(errors.DiskFull, match="so the CSV file was not written"):
        store.export_csv(STUDY, file)
    assert [each.name for each in tmp_path.glob("rows*")] == ["rows.csv"]
    assert file.read_text() == "old"
