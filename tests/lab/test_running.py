"""Running a study: what is stored, failures beside successes, options, another lab on the same store."""

import re
from contextlib import closing
from hashlib import sha256
from importlib.metadata import version
from multiprocessing import forkserver
from pathlib import Path

import pytest

from clockhands.errors import InvalidValue
from clockhands.jobs.engines import ENGINES, Failed, Finished
from clockhands.lab import _texts as texts
from clockhands.lab import study as studies
from clockhands.lab.store import Key, Store
from clockhands.lab.tasks import Language
from late import Late

running, training = Late("clockhands.lab.running"), Late("clockhands.lab._training")

STUDY = Path(__file__).with_name("running_study.toml").read_text(encoding="utf-8")


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "local", "jobs.engines.in_this_process:Pool")


def ran(study: studies.Study, store: Store, **options) -> list:
    given = running.Options(**{"at_once": 2} | options)
    progress = running.prepare(study, store, "clockhands lab run", given)
    with closing(running.events(study, store, given, progress)) as under_way:
        found = list(under_way)
    assert progress.share == 1.0
    return found


@pytest.mark.slow
def test_what_is_stored_is_what_the_trials_measure(tmp_path: Path):
    # The workers' server may have begun for other tests, without PyTorch: then each worker would import it.
    forkserver._forkserver._stop()
    study = studies.parse(STUDY, "small")
    running.check(study, running.Options())
    with Store.open(tmp_path / "lab.sqlite") as store:
        found = ran(study, store)
        assert sum(isinstance(event, Finished) for event in found) == 4
        assert ran(study, store) == []
        for key in study.trial_keys():
            checkpoint = str(tmp_path / "state.pt")
            own = training.trial(study=STUDY, **key._asdict(), checkpoint=checkpoint, tell=lambda _: None)
            stored = {row.measurement for row in store.rows(study.hash, **key._asdict())}
            assert stored == {tuple(row) for row in own["rows"]}
            Path(checkpoint).unlink()
        (kept,) = store.studies()
        assert (kept.name, kept.text, kept.command) == ("small", STUDY, "clockhands lab run")
        assert {"torch", "numpy", "python"} <= set(kept.versions)
        assert {"processor", "cores", "threads", "device", "workers", "texts", "starts"} <= set(kept.machine)
        assert kept.bounds == {"copy": {str(length): study.tasks["copy"].task.bounds(length) for length in (8, 16)}}
        made_with = {"threads": 1, "device": "cpu", "workers": 1, "engine": "local", "torch": version("torch"),
                     "clockhands": version("clockhands"), "commit": running.commit(), "steps": 8}  # fmt: skip
        for each in store.trials(study.hash):
            assert {name: each.facts[name] for name in made_with} == made_with
    assert not [file for file in (tmp_path / "lab.sqlite.checkpoints").rglob("*") if file.is_file()]


@pytest.mark.usefixtures("_in_this_process")
def test_a_trial_that_fails_leaves_the_others_alone(tmp_path: Path):
    study = studies.parse(STUDY.replace('code = "none"', 'code = "none", learning_rate = 1e30'))
    with Store.open(tmp_path / "lab.sqlite") as store:
        found = ran(study, store)
        failures = [event for event in found if isinstance(event, Failed)]
        assert {event.job.name for event in failures} == {"copy, none, seed 0", "copy, none, seed 1"}
        states = {each.key: (each.state, each.message) for each in store.trials(study.hash)}
        for seed in (0, 1):
            state, message = states["copy", "none", seed]
            assert state == "failed"
            assert re.match(rf"The (loss|gradient) of none on copy \(seed {seed}\) is (nan|inf) at step \d, ", message)
            assert "Give the arm a lower learning_rate" in message
            assert states["copy", "rotary", seed] == ("finished", "")
        assert ran(study, store) == []
        assert store.retry(study.hash) == 2
        assert sum(isinstance(event, Failed) for event in ran(study, store)) == 2


@pytest.mark.usefixtures("_in_this_process")
def test_what_another_lab_works_on_is_left_to_it(tmp_path: Path):
    study = studies.parse(STUDY)
    with Store.open(tmp_path / "lab.sqlite") as store, Store.open(tmp_path / "lab.sqlite") as other:
        progress = running.prepare(study, store, "", running.Options())
        with other.claim(study.hash, Key("copy", "none", 1)):
            with closing(running.events(study, store, running.Options(at_once=2), progress)) as opened:
                names = {event.job.name for event in opened}
            assert names == {"copy, none, seed 0", "copy, rotary, seed 0", "copy, rotary, seed 1"}
            assert progress.elsewhere == [("copy", "none", 1)]
            assert progress.share == 1.0
        assert len(ran(study, store)) > 1


def test_options_that_do_not_go_together_are_refused(cases):
    ray = "is for the engine `ray`: the engine `local` has one process for each trial."
    for options, message, hint in (
        ({"workers": 2}, f"`workers` {ray}", "Add `--engine ray`, or leave `--workers` out."),
        ({"gpus": 1}, f"`gpus` {ray}", ""),
        ({"address": "auto"}, f"`address` {ray}", ""),
        ({"device": "gpu"}, "There is no device 'gpu'.", "Use cpu, cuda, cuda:1 and so on."),
        ({"device": "meta"}, "The device meta cannot be used here: ", "Use --device cpu."),
        ({"device": "cuda:99"}, "The device cuda:99 cannot be used here: PyTorch ", "Use --device cpu."),
        ({"workers": 5, "engine": "ray"}, "5 workers are too many: a step of `tasks.copy` has 4 sequences.",
         "Use at most 4 workers."),
    ):  # fmt: skip
        with cases(options):
            with pytest.raises(InvalidValue) as caught:
                running.check(studies.parse(STUDY), running.Options(**options))
            assert caught.value.message.startswith(message)
            assert hint in caught.value.hint
    # A cluster may have the device that this machine lacks.
    running.check(studies.parse(STUDY), running.Options(engine="ray", device="cuda:99", gpus=1, workers=4))


# A study that goes on


def begun(folder: Path, study: studies.Study, **options) -> Store:
    """A store in which a study was begun and one trial of it was finished."""
    store = Store.open(folder / "lab.sqlite")
    progress = running.prepare(study, store, "", running.Options(**options))
    store.finish(study.hash, study.trial_keys()[0], [], {**progress.facts, "threads": 1})
    return store


def refused(study: studies.Study, store: Store, **options) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        running.prepare(study, store, "", running.Options(**options))
    return caught.value


WRITTEN = STUDY.replace('kind = "copy"', 'kind = "language", text = "mine.txt", longest = 16').replace("[8, 16]", "[8]")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.txt"
    file.write_text("a text that a study reads " * 200)
    texts._read.cache_clear()  # as in a new process
    return file


def test_a_text_that_changed_is_refused_while_there_is_something_to_train(tmp_path: Path, written: Path):
    study = studies.parse(WRITTEN, "mine")
    old = sha256(written.read_bytes()).hexdigest()[:12]
    with begun(tmp_path, study) as store:
        assert running.prepare(study, store, "", running.Options()).warning == ""
        written.write_text("another text of the user's own" * 200)
        texts._read.cache_clear()
        new = sha256(written.read_bytes()).hexdigest()[:12]
        error = refused(study, store)
        assert error.message == (
            f"The text of `tasks.copy` has changed since the study was started: its SHA-256 was {old} (mine.txt), "
            f"now it is {new} (mine.txt)."
        )
        assert error.hint == "Restore the old text of `tasks.copy`, or store the study in another file with `--store`."
        for key in study.trial_keys():
            store.fail(study.hash, key, "")
        assert not running.prepare(study, store, "", running.Options()).tokens  # what is there can still be shown
        with pytest.raises(InvalidValue, match=r"The text of `tasks\.copy` has changed"):
            running.prepare(study, store, "", running.Options(), again=True)
        assert "waiting" not in {each.state for each in store.trials(study.hash)}
        assert set(store.study(study.hash).bounds["copy"]) == {"8"}


@pytest.mark.usefixtures("written")
def test_a_tokenizer_that_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "mine.json"
    file.write_text('{"alphabet": ["a", "t"], "merges": []}')
    monkeypatch.setattr(Language, "bounds", lambda *_: {})
    monkeypatch.setattr(
        Language, "provenance", lambda self: {**self.source().provenance(), "tokenizer": self.tokenizer}
    )
    study = studies.parse(WRITTEN.replace("longest", 'tokenizer = "mine.json", longest'))
    with begun(tmp_path, study) as store:
        running.prepare(study, store, "", running.Options())
        file.write_text('{"alphabet": ["t", "a"], "merges": []}')
        assert refused(study, store).message.startswith("The tokenizer of `tasks.copy` has changed since the study")


def test_a_checkpoint_that_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    study = studies.parse(STUDY.replace("width = 16, heads = 2", 'start = "mine.npz"'))
    digest = iter(("a" * 64, "a" * 64, "b" * 64))
    read = lambda name: {"sha256": next(digest), "package": "", "file": name}  # noqa: E731
    pytest.importorskip("torch")
    monkeypatch.setattr("clockhands.lab.running.provenance_of_start", read)
    with begun(tmp_path, study) as store:
        running.prepare(study, store, "", running.Options())
        assert refused(study, store).message == (
            "The checkpoint `mine.npz` has changed since the study was started: its SHA-256 was aaaaaaaaaaaa "
            "(mine.npz), now it is bbbbbbbbbbbb (mine.npz)."
        )


def test_what_changes_the_numbers_cannot_change_in_a_study(tmp_path: Path, cases):
    study = studies.parse(STUDY, "small")
    for first, then, given, asked in (
        ({"threads": 2}, {}, "--threads 1", "--threads 2"),
        ({}, {"device": "cuda:1"}, "--device cuda:1", "--device cpu"),
        ({"workers": 2}, {"workers": 3}, "--workers 3", "--workers 2"),
    ):
        (tmp_path / asked).mkdir()
        with cases(given), begun(tmp_path / asked, study, **first) as store:
            running.prepare(study, store, "", running.Options(**first))
            error = refused(study, store, **then)
            said = f"The study small was started with `{asked}`, got `{given}`: all its trials need"
            assert error.message.startswith(said)
            assert error.hint.startswith(f"Give `{asked}` or leave `{asked.split(maxsplit=1)[0]}` out;")
    with begun(tmp_path, study, device="cuda") as store:  # any GPU is the same device
        assert running.prepare(study, store, "", running.Options(device="cuda:3")).tokens


def test_trials_made_otherwise_are_told_in_one_sentence(tmp_path: Path):
    study = studies.parse(STUDY)
    with begun(tmp_path, study) as store:
        other = {"torch": "1.0", "engine": "ray", "commit": "", "clockhands": version("clockhands")}
        store.finish(study.hash, study.trial_keys()[1], [], other)
        assert running.prepare(study, store, "", running.Options()).warning == (
            f"Finished trials were made with engine ray (now local) and torch 1.0 (now {version('torch')}); the same "
            "numbers are certain only with the same."
        )
        for key in study.trial_keys():
            store.finish(study.hash, key, [])
        assert running.prepare(study, store, "", running.Options()).warning == ""


def test_a_store_from_before_inputs_were_compared_goes_on(tmp_path: Path):
    study = studies.parse(STUDY)
    with Store.open(tmp_path / "lab.sqlite") as store:
        store.add_study(study.hash, "old", STUDY, {})
        store.add_trials(study.hash, study.trial_keys())
        store.finish(study.hash, study.trial_keys()[0], [], {"threads": 1})
        progress = running.prepare(study, store, "", running.Options(threads=2))
        assert (len(progress.tokens), progress.warning) == (3, "")


def test_the_commit_is_that_of_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert re.fullmatch(r"([0-9a-f]{12}\+?)?", running.commit())
    monkeypatch.setattr("clockhands.lab.running.__file__", str(tmp_path / "running.py"))
    assert running.commit() == ""
