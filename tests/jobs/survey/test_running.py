"""A survey audits every target once, whatever ends its workers or itself, and blames no target for another's fault."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.jobs.databases.store_errors import Busy
from clockhands.jobs.survey.batches import Workers
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.running import SurveyOptions, SurveyProgress, survey, targets_of
from clockhands.jobs.survey.store import SurveyStore
from clockhands.jobs.survey.worker import surveyed

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
}  # fmt: skip


def model(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | changes), encoding="utf-8")
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Five models; the settings of each differ."""
    for number, name in enumerate("abcde"):
        model(tmp_path / "models" / name, rope_theta=10000.0 * (1 + number))
    return tmp_path / "models"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SurveyStore]:
    with SurveyStore.open(tmp_path / "survey.sqlite") as opened:
        yield opened


def run(store: SurveyStore, *named: Path | str, **how: Any) -> SurveyProgress:
    workers = Workers(at_once=how.pop("at_once", 2), timeout=how.pop("timeout", 60.0))
    options = SurveyOptions(workers, **how)
    *_, last = survey(targets_of(map(str, named)), store, options)
    return last


def compared(store: SurveyStore) -> list[SurveyRow]:
    """All rows, without the time that they took and were made at."""
    return [row._replace(seconds=None, audited_at="") for row in store.rows(latest=False)]


@pytest.fixture
def undisturbed(models: Path, tmp_path: Path) -> Callable[[], list[SurveyRow]]:
    """The rows of another store, of a survey that nothing disturbs."""

    def made() -> list[SurveyRow]:
        with SurveyStore.open(tmp_path / "undisturbed.sqlite") as other:
            run(other, models)
            return compared(other)

    return made


def test_every_model_has_one_row_and_its_report(models: Path, store: SurveyStore):
    assert run(store, models) == SurveyProgress(stored=5)
    rows = store.rows()
    assert [Path(row.target).name for row in rows] == list("abcde")
    assert [row.base for row in rows] == [1e4, 2e4, 3e4, 4e4, 5e4]
    assert {(row.state, row.model_type, row.context, row.head_width) for row in rows} == {("done", "llama", 4096, 16)}
    report = store.report_of(rows[1])
    assert (report["target"], report["layers"][0]["base"]) == (rows[1].target, 2e4)


def test_what_is_stored_is_not_audited_again_and_what_has_changed_is(models: Path, store: SurveyStore):
    run(store, models)
    assert run(store, models, models / "a") == SurveyProgress(known=6)
    before = (models / "b" / "config.json").read_text(encoding="utf-8")
    model(models / "b", rope_theta=1e6)
    assert run(store, models) == SurveyProgress(stored=1, known=4)
    assert (len(store.rows()), len(store.rows(latest=False))) == (5, 6)
    assert store.rows()[1].base == 1e6
    (models / "b" / "config.json").write_text(before, encoding="utf-8")
    assert run(store, models) == SurveyProgress(known=5)
    assert store.rows()[1].base == 2e4, "the row of this content is the latest again"


def test_files_that_cannot_be_read_have_rows_that_say_why(models: Path, store: SurveyStore):
    (models / "b" / "config.json").write_text("[" * 100_000, encoding="utf-8")
    (models / "c" / "config.json").write_bytes(b"\xff\xfe{")
    done = run(store, models, "no-such-name", models.parent / "absent.gguf")
    assert (done.stored, done.failed) == (7, 4)
    messages = {Path(row.target).name: row.message for row in store.rows() if row.state == "failed"}
    assert "nests objects or lists deeper" in messages["b"]
    assert "no-such-name is neither a path nor a preset" in messages["no-such-name"]
    assert all(row.hint for row in store.rows() if row.state == "failed")
    assert run(store, models).known == 5
    assert run(store, models, retry=True) == SurveyProgress(stored=2, failed=2, known=3)


def test_a_target_that_kills_its_worker_costs_its_own_row_only(
    models: Path, store: SurveyStore, undisturbed: Callable[[], list[SurveyRow]]
):
    expected = undisturbed()
    model(models / "deadly")
    model(models / "deadly too")
    done = run(store, models, call="jobs.survey.calls:deadly")
    assert (done.stored, done.failed) == (7, 2)
    assert [row for row in compared(store) if row.state == "done"] == expected
    failed = [row for row in store.rows() if row.state == "failed"]
    assert {Path(row.target).name for row in failed} == {"deadly", "deadly too"}
    assert {row.message for row in failed} == {
        "The process that audited it ended, 2 times. The last time: The worker was killed by SIGKILL (the system does "
        "this when memory runs out)."
    }


def test_a_worker_that_is_killed_from_outside_leaves_no_trace(
    models: Path, store: SurveyStore, undisturbed: Callable[[], list[SurveyRow]]
):
    run(store, models, call="jobs.survey.calls:killed_once", at_once=1)
    assert (models.parent / "was killed").exists()
    assert sorted(compared(store)) == undisturbed()


@pytest.mark.parametrize("name", ["slow", pytest.param("stuck", marks=pytest.mark.slow)])
def test_a_target_that_takes_too_long_is_ended(models: Path, store: SurveyStore, name: str):
    run(store, models)  # without a limit that a busy machine may exceed
    model(models / name)
    done = run(store, models, call="jobs.survey.calls:hanging", timeout=0.2)
    assert (done.stored, done.failed, done.known) == (1, 1, 5)
    failed = {Path(row.target).name: row.message for row in store.rows() if row.state == "failed"}
    assert failed == {name: "The audit took longer than 0.2 seconds."}


def test_a_target_that_takes_all_memory_costs_its_own_row_only(models: Path, store: SurveyStore):
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not say how much address space a process has")
    model(models / "hungry")
    done = run(store, models, call="jobs.survey.calls:hungry")
    assert (done.stored, done.failed) == (6, 1)
    assert "memory" in next(row.message for row in store.rows() if row.state == "failed")


def test_workers_that_never_begin_end_the_survey(models: Path, store: SurveyStore):
    with pytest.raises(ClockhandsError, match=r"end before they audit anything.*exit status 3"):
        run(store, models, call="jobs.survey.calls:unable", at_once=1)
    assert store.rows() == []


def test_a_fault_of_our_own_is_a_row_too(models: Path, monkeypatch: pytest.MonkeyPatch):
    def faulty(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("clockhands.jobs.survey.worker.audited", faulty)
    row, report = surveyed(str(models / "a"), "1")
    assert (row.state, row.message, report) == ("failed", "The audit failed with KeyError: 'x'", "")
    assert "report" in row.hint


def test_two_surveys_do_not_write_to_one_store(models: Path, store: SurveyStore):
    with SurveyStore.open(store.path) as other, other.driving(), pytest.raises(Busy, match="Another survey writes"):
        run(store, models)
    assert run(store, models).stored == 5
    assert not store.path.with_name("survey.sqlite.lock").exists()


def test_all_rows_are_of_one_length(models: Path, store: SurveyStore):
    run(store, models / "a", length=8192)
    with pytest.raises(InvalidValue, match="was started with length 8192, got as declared"):
        run(store, models)
    assert run(store, models, length=8192).stored == 4


def test_batches_are_taken_when_workers_are_free(models: Path, store: SurveyStore):
    taken = []

    def targets() -> Iterator[str]:
        for each in targets_of([str(models)]):
            taken.append(each)
            yield each

    events = survey(targets(), store, SurveyOptions(Workers(at_once=1, batch=1)))
    next(events)
    assert len(taken) < 5, "not all targets are held in memory"
    events.close()
    assert run(store, models).known >= 1
    assert len(store.rows()) == 5
