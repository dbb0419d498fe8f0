"""`clockhands lab`: what it prints and where, what it refuses before it begins, and its exit codes."""

import csv
import importlib.util
import json
import math
import re
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from clockhands.errors import InvalidValue
from clockhands.jobs.engines import ENGINES
from clockhands.lab.store import Measurement, Store
from clockhands.lab.study import parse, shipped
from clockhands.lab.tuning import tuning_study
from late import Late

from .test_imported import imported

jsonschema = Late("jsonschema")

STUDY = """\
question = "Does a code help?"
seeds = [0, 1]
model = { width = 16, heads = 2 }
training = { length = 8, sequences = 4, duration = "6 steps" }
evaluation = { lengths = [8, 16], sequences = 4 }
tuning = { learning_rates = [0.01, 0.1], seeds = [7] }
tasks.copy = { kind = "copy" }
arms.none = { code = "none" }
arms.rotary = { code = { type = "Rotary" }, at_test.removed = { code = "none" } }

[[gates]]
says = "Rotary copies better."
task = "copy"
arm = "rotary"
minus = "none"
measure = "accuracy"
interval_above = BOUND
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study whose gate holds whatever is measured, and one whose gate never does; there is no store yet."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.toml").write_text(STUDY.replace("BOUND", "-2"), encoding="utf-8")
    (tmp_path / "bad.toml").write_text(STUDY.replace("BOUND", "2"), encoding="utf-8")
    return tmp_path


@pytest.fixture
def filled(folder: Path) -> Path:
    """With a store that holds the first study, all of it finished, and the second, nothing of it."""
    study = parse((folder / "good.toml").read_text(encoding="utf-8"), "good")
    with Store.open("lab.sqlite") as store:
        for each, name in ((study, "good"), (parse((folder / "bad.toml").read_text(encoding="utf-8")), "bad")):
            store.add_study(each.hash, name, each.text, {"commit_id": "abc", "versions": {"torch": "2"}})
            store.add_trials(each.hash, each.trial_keys())
        for key in study.trial_keys():
            better = key.arm == "rotary"
            rows = [
                Measurement("evaluation", measure, value, 6, length, None, "whole", variant)
                for length in (8, 16)
                for measure, value in (("accuracy", 0.2 + better / 2), ("loss", 3.0 - better + key.seed / 8))
                for variant in (("", "removed") if better else ("",))
            ]
            facts = {"parameters": 1000, "code_parameters": 0, "tokens_per_second": 5.0}
            store.finish(study.hash, key, rows, facts, 2.0)
    return folder


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are run in this process, where there is PyTorch; `tests/lab` has the workers."""
    pytest.importorskip("torch")
    monkeypatch.setitem(ENGINES, "local", "jobs.engines.in_this_process:Pool")


# What needs no PyTorch


def test_shipped_studies_are_listed(run):
    done = run("lab", "list")
    assert (done.code, done.err) == (0, "")
    document = json.loads(run("lab", "list", "--json").out)
    assert [each["name"] for each in document["studies"]] == shipped()
    for each in document["studies"]:
        assert f"  {each['name']}" in done.out
        assert each.get("trials") or each["needs"].startswith("Run `pip install --no-deps glassllm`")
        assert " ".join(each.get("question", each.get("needs")).split()) in " ".join(done.out.split())
    # The longest name of a shipped study is as wide as the column of names elsewhere: columns do not touch.
    starts = [re.match(r"  (\S+)( {2,})\S", line) for line in done.out.splitlines() if re.match(r"  \S", line)]
    assert [each[1] for each in starts] == shipped()
    assert len({each.end() for each in starts}) == 1
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_study_that_needs_a_package_says_so_and_hides_no_other(run, monkeypatch: pytest.MonkeyPatch):
    def absent(name: str, *_: str) -> Path:
        raise InvalidValue(f'"{name}" needs the package {name}, which is not installed.', f"pip install {name}")

    monkeypatch.setattr("clockhands.lab._tokens.read", absent)
    done = run("lab", "list")
    assert (done.code, done.err) == (0, "")
    said = " ".join(done.out.split())
    assert '"glassllm" needs the package glassllm, which is not installed. pip install glassllm' in said
    listed = {each["name"]: each for each in json.loads(run("lab", "list", "--json").out)["studies"]}
    assert listed["drope"] == {"name": "drope", "needs": "pip install glassllm"}
    assert "question" in listed["quick"]


@pytest.mark.usefixtures("filled")
def test_studies_of_a_store_are_listed(run):
    done = run("lab", "list", "--store", "lab.sqlite")
    assert (done.code, done.err) == (0, "")
    assert "4 finished; " in done.out
    assert "4 waiting; " in done.out
    (good, bad) = json.loads(run("lab", "list", "--store", "lab.sqlite", "--json").out)["studies"]
    assert (good["name"], good["trials"]) == ("good", {"waiting": 0, "finished": 4, "failed": 0})
    assert (bad["name"], bad["trials"], bad["commit"]) == ("bad", {"waiting": 4, "finished": 0, "failed": 0}, "abc")


@pytest.mark.usefixtures("filled")
def test_a_report_says_gates_and_numbers(run):
    done = run("lab", "report", "good")
    assert (done.code, done.err) == (0, "")
    for line in (
        "Does a code help?",
        "4 trials; 8 s of training and evaluation.",
        "0 of 1 gates hold, 1 is met by seeds that are all alike.",
        "  seeds alike   Rotary copies better.",
        "accuracy of rotary minus none: 0.500 [0.500, 0.500] (required: range of the seeds above -2)",
        "copy: Accuracy (share of answers that are right), by length in tokens",
        "none             0.200 [0.200, 0.200]  0.200 [0.200, 0.200]",
        "rotary, removed  2.062 [2.000, 2.125]  2.062 [2.000, 2.125]",
    ):
        assert line in done.out, line
    unfinished = run("lab", "report")
    assert unfinished.code == 1
    assert "0 trials, 4 not run yet" in unfinished.out
    assert "  not measured  Rotary copies better." in unfinished.out


def test_a_report_as_json_as_csv_and_as_a_page(run, filled: Path):
    done = run("lab", "report", "good", "--json", "--csv", "numbers.csv", "--html", "page.html")
    document = json.loads(done.out)
    assert (done.code, done.err, document["schema"]) == (0, "wrote page.html\n", 1)
    assert "Does a code help?" in (filled / "page.html").read_text(encoding="utf-8")
    assert document["gates"][0]["holds"] is True
    assert document["gates"][0]["value"]["mean"] == pytest.approx(0.5)
    with (filled / "numbers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (4 + 8)
    assert {float(row["value"]) for row in rows if row["measure"] == "accuracy"} == {0.2, 0.7}


def test_a_file_that_is_there_is_kept(run, filled: Path):
    for option in ("--html", "--csv"):
        (filled / "kept").write_text("mine", encoding="utf-8")
        done = run("lab", "report", "good", option, "kept")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: kept is already there.\n")
        assert (filled / "kept").read_text(encoding="utf-8") == "mine"
        assert run("lab", "report", "good", option, "kept", "--force").code == 0
        assert (filled / "kept").read_text(encoding="utf-8") != "mine"


def finish_bad(accuracy: float) -> str:
    """Finish the second study with this accuracy everywhere; its hash."""
    with Store.open("lab.sqlite") as store:
        bad = store.studies()[1]
        for key in parse(bad.text).trial_keys():
            rows = [Measurement("evaluation", "accuracy", accuracy, 6, 8, None, "whole", "")]
            store.finish(bad.hash, key, rows, {"parameters": 1, "code_parameters": 0, "tokens_per_second": 1.0})
        return bad.hash


@pytest.mark.usefixtures("filled")
def test_a_gate_that_fails_is_exit_code_1(run):
    named = finish_bad(0.5)[:8]
    for words, code in (("bad", 1), ("bad --json", 1), (named, 1), ("bad.toml", 1), ("good.toml", 0)):
        assert run("lab", "report", *words.split()).code == code


@pytest.mark.usefixtures("filled")
def test_a_gate_that_cannot_be_judged_is_exit_code_1(run):
    finish_bad(math.nan)
    done = run("lab", "report", "bad")
    assert "  not a number  Rotary copies better." in done.out
    assert done.code == 1
    assert run("lab", "report", "bad", "--json").code == 1


@pytest.mark.usefixtures("filled")
def test_a_report_needs_no_pytorch():
    assert "torch" not in imported("lab", "report", "good", "--html", "page.html")
    assert "Rotary copies better." in Path("page.html").read_text(encoding="utf-8")


def test_without_a_package_the_way_to_install_it_is_named(run, filled: Path, monkeypatch: pytest.MonkeyPatch, cases):
    for package, extra, words in (
        ("scipy", "lab", "report good"),
        ("scipy", "lab", "run good.toml"),
        ("scipy", "lab", "tune good.toml"),
        ("torch", "lab", "run good.toml --store new.sqlite"),
        ("ray", "ray", "run good.toml --engine ray --store new.sqlite"),
    ):
        with cases(package, words), monkeypatch.context() as patched:
            patched.setattr(importlib.util, "find_spec", lambda name, absent=package: None if name == absent else name)
            done = run("lab", *words.split())
            said = f"error: This command needs {package}, which is not installed."
            assert (done.code, done.out, done.err) == (2, "", f"{said}\nhint: pip install 'clockhands[{extra}]'\n")
            assert not (filled / "new.sqlite").exists()


def tuned(text: str, losses: dict[str, dict[float, float]]) -> None:
    """A store with the grid of a study: the loss of each arm at each rate; a trial that has none failed."""
    grid = tuning_study(parse(text, "good"))
    with Store.open("lab.sqlite") as store:
        store.add_study(grid.hash, grid.name, grid.text, {})
        store.add_trials(grid.hash, grid.trial_keys())
        for key in grid.trial_keys():
            arm, _, rate = key.arm.rpartition(" at ")
            if (loss := losses[arm].get(float(rate))) is None:
                store.fail(grid.hash, key, "no")
            else:
                store.finish(grid.hash, key, [Measurement("evaluation", "loss", loss, 6, 8, None, "whole", "")])


@pytest.mark.usefixtures("torch")
def test_the_best_rates_are_lines_of_toml_with_all_their_digits(run, folder: Path, snapshot):
    text = (folder / "good.toml").read_text(encoding="utf-8").replace("[0.01, 0.1]", "[0.01, 0.0100000001, 0.1]")
    text = text.replace("arms.rotary", 'arms."rotary 25 %"').replace('arm = "rotary"', 'arm = "rotary 25 %"')
    (folder / "good.toml").write_text(text, encoding="utf-8")
    tuned(text, {"none": {0.01: 2.0, 0.0100000001: 1.0, 0.1: 3.0}, "rotary 25 %": {0.0100000001: 0.5}})
    done = run("lab", "tune", "good.toml")
    assert (done.code, done.err) == (0, "")
    assert done.out == snapshot
    assert tomllib.loads(done.out)["arms"]["rotary 25 %"] == {"learning_rate": {"copy": 0.0100000001}}


@pytest.mark.usefixtures("torch")
def test_an_arm_without_any_rate_is_exit_code_1(run, folder: Path):
    tuned((folder / "good.toml").read_text(encoding="utf-8"), {"none": {0.1: 2.0}, "rotary": {}})
    done = run("lab", "tune", "good.toml")
    assert done.code == 1
    assert done.out.endswith(
        "\n[arms.rotary]\n# copy: losses 0.01: nan, 0.1: nan; every rate failed or is not finished\n"
    )
    assert tomllib.loads(done.out)["arms"] == {"none": {"learning_rate": {"copy": 0.1}}, "rotary": {}}


def test_the_schema_is_one_that_the_study_fits(run, folder: Path):
    done = run("lab", "schema")
    assert (done.code, done.err) == (0, "")
    jsonschema.validate(tomllib.loads((folder / "good.toml").read_text(encoding="utf-8")), json.loads(done.out))


@pytest.mark.usefixtures("folder")
def test_shipped_results_are_reported_without_a_store(run):
    pytest.importorskip("scipy")
    done = run("lab", "report", "scaling", "--html", "scaling.html", "--table", "scaling.csv")
    assert (done.code, "2 of 2 gates hold." in done.out) == (0, True)
    assert "These are the results that come with clockhands" in done.err
    assert "YaRN lowers the loss at 4 times the length." in Path("scaling.html").read_text(encoding="utf-8")
    assert len(Path("scaling.csv").read_text(encoding="utf-8").splitlines()) > 50
    pytest.importorskip("matplotlib")
    drawn = run("lab", "report", "scaling", "--figure", "scaling.pdf")
    assert (drawn.code, "wrote scaling.pdf" in drawn.err) == (0, True)
    assert Path("scaling.pdf").read_bytes().startswith(b"%PDF-")
    assert not Path("lab.sqlite").exists()
    refused = run("lab", "report", "scaling", "--store", "other.sqlite")
    assert (refused.code, refused.out) == (2, "")  # a store that is named is the one that is read


@pytest.mark.usefixtures("filled")
def test_a_study_that_the_store_does_not_hold_is_named(run):
    done = run("lab", "report", "naive")
    assert (done.code, done.out) == (2, "")
    assert "holds no study 'naive'.\nhint: Choose one of its studies: good, bad." in done.err


# What trains


@pytest.mark.usefixtures("torch", "folder")
def test_a_study_is_run_and_its_results_are_printed(run):
    done = run("lab", "run", "good.toml", "--jobs", "2", "--html", "page.html")
    assert done.code == 0
    assert done.out.startswith("Does a code help?\n4 trials; ")
    assert "0 of 1 gates hold, 1 is met by seeds that are all alike." in done.out
    first, *_, last, wrote = done.err.splitlines()
    assert first == "0 of 4 trials, 0% of the training"
    assert last.startswith("4 of 4 trials, 100% of the training")
    assert wrote == "wrote page.html"
    again = run("lab", "run", "good.toml")
    assert (again.code, again.out, again.err) == (0, done.out, "")
    assert run("lab", "report", "--json").code == 0
    assert run("lab", "run", "bad.toml", "--jobs", "2").code == 1


REFUSED = [
    ("Rotary", "Rotray", "", "There is no code of type 'Rotray'.", "Did you mean Rotary?"),
    ('kind = "copy"', 'kind = "cpoy"', "", "must be the name of a task, got 'cpoy'.", "Did you mean copy?"),
    ("sequences", "sequence", "", "the unknown field 'sequence'.", "Did you mean sequences?"),
    ("6 steps", "6 setps", "", "the unknown unit 'setps'.", "Did you mean steps?"),
    ("[8, 16]", "[2, 8]", "", "`length` must be at least 4 tokens for this copy task, got 2.", "Use a greater"),
    ("", "", "--workers 2", "`workers` is for the engine `ray`", "Add `--engine ray`"),
    ("", "", "--device cuda:77", "The device cuda:77 cannot be used here: ", "Use --device cpu."),
    ("", "", "--html good.toml", "good.toml is already there.", "Give another name, or `--force`"),
]  # fmt: skip


@pytest.mark.usefixtures("torch")
def test_what_cannot_be_run_is_refused_before_a_store_is_made(run, folder: Path, cases):
    for old, new, words, message, wanted in REFUSED:
        with cases(message):
            text = (folder / "good.toml").read_text(encoding="utf-8").replace(old, new, 1)
            (folder / "mine.toml").write_text(text, encoding="utf-8")
            done = run("lab", "run", "mine.toml", *words.split())
            assert (done.code, done.out) == (2, "")
            error, hint = done.err.splitlines()
            assert error.startswith("error: ")
            assert message in error
            assert hint.startswith(f"hint: {wanted}")
            assert sorted(file.name for file in folder.iterdir()) == ["bad.toml", "good.toml", "mine.toml"]


@pytest.mark.usefixtures("torch")
def test_a_failed_trial_is_told_and_tried_again(run, folder: Path):
    text = (
        (folder / "good.toml")
        .read_text(encoding="utf-8")
        .replace('code = "none"', 'code = "none", learning_rate = 1e30', 1)
    )
    (folder / "wild.toml").write_text(text.replace('"6 steps" }', '"6 steps", clip = 0 }'), encoding="utf-8")
    for words in (("run", "wild.toml"), ("resume",)):
        done = run("lab", *words, "--jobs", "2")
        assert done.code == 1
        assert "2 trials, 2 failed" in " ".join(done.out.split())
        assert done.err.count("failed: copy, none, seed ") == 2
        assert "Give the arm a lower learning_rate" in done.err
    assert "  not measured  Rotary copies better." in done.out


@pytest.mark.usefixtures("torch", "folder")
def test_a_terminal_gets_a_bar_and_standard_output_the_results_alone(run, monkeypatch: pytest.MonkeyPatch):
    plain = run("lab", "run", "good.toml", "--jobs", "2")
    monkeypatch.setenv("FORCE_COLOR", "1")
    drawn = run("lab", "run", "good.toml", "--jobs", "2", "--store", "other.sqlite")
    assert drawn.code == 0
    assert "4 of 4 trials, 100% of the training" in drawn.err
    assert "ended:" in plain.err
    assert "ended:" not in drawn.err
    assert "100 %" not in drawn.err, "the share twice"
    monkeypatch.delenv("FORCE_COLOR")
    numbers = [run("lab", "report", "--store", store).out.splitlines() for store in ("lab.sqlite", "other.sqlite")]
    assert numbers[0][2:] == numbers[1][2:]  # but for the seconds


@pytest.mark.usefixtures("torch")
def test_ctrl_c_says_how_to_go_on(run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    from clockhands.lab import running

    real = running.events

    def interrupted(*arguments):
        for number, event in enumerate(real(*arguments)):
            if number == 6:
                raise KeyboardInterrupt
            yield event

    with monkeypatch.context() as patched:
        patched.setattr(running, "events", interrupted)
        done = run("lab", "run", "good.toml", "--jobs", "1", "--store", "my store.sqlite")
    assert (done.code, done.out) == (130, "")
    again = f"`clockhands lab resume --store '{folder}/my store.sqlite' --jobs 1`"
    assert f"Interrupted: 1 of 4 trials are finished and kept. {again} goes on.\n" in done.err
    done = run("lab", "resume", "--store", "my store.sqlite", "--jobs", "2")
    assert done.code == 0
    assert done.err.splitlines()[1] == "0 of 3 trials, 0% of the training"


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("torch", "folder")
def test_ctrl_c_before_anything_is_stored_says_so(run, monkeypatch: pytest.MonkeyPatch):
    from clockhands.lab import running

    monkeypatch.setattr(running, "check", interrupt)
    done = run("lab", "run", "good.toml")
    said = "Interrupted before the first trial began: nothing was stored. The same command begins again.\n"
    assert (done.code, done.out, done.err.rstrip() + "\n") == (130, "", said)


@pytest.mark.usefixtures("torch")
def test_the_command_that_goes_on_has_the_options_that_were_given(run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    from clockhands.lab import running

    monkeypatch.setattr(running, "events", interrupt)
    given = ("--device", "cpu", "--threads", "2", "--jobs", "1")
    resumed = f"--store {folder}/lab.sqlite --jobs 1 --threads 2 --device cpu` goes on.\n"
    done = run("lab", "run", "good.toml", *given)
    assert done.code == 130
    assert f"Interrupted: 0 of 4 trials are finished and kept. `clockhands lab resume {resumed}" in done.err
    hash_ = parse((folder / "bad.toml").read_text(encoding="utf-8")).hash
    assert f"`clockhands lab resume {hash_[:12]} {resumed}" in run("lab", "run", "bad.toml", *given).err
    assert f"`clockhands lab tune good.toml {resumed}" in run("lab", "tune", "good.toml", *given).err


@pytest.mark.usefixtures("torch", "folder")
def test_a_study_goes_on_with_the_threads_that_it_was_begun_with(run, monkeypatch: pytest.MonkeyPatch):
    from clockhands.lab import running

    with monkeypatch.context() as patched:
        patched.setattr(running, "events", interrupt)
        run("lab", "run", "good.toml", "--threads", "2")
    done = run("lab", "resume", "--threads", "1")
    assert (done.code, done.out) == (2, "")
    assert "error: The study good was started with `--threads 2`, got `--threads 1`: all its trials" in done.err
    assert "hint: Give `--threads 2` or leave `--threads` out; or store the study in another file" in done.err
    assert run("lab", "resume").code == 0
    with Store.open("lab.sqlite") as store:
        assert {each.facts["threads"] for each in store.trials(store.studies()[0].hash)} == {2}


@pytest.mark.usefixtures("torch", "folder")
def test_a_store_that_was_only_begun_to_be_made_is_used(run, monkeypatch: pytest.MonkeyPatch):
    from clockhands.lab import running

    with closing(sqlite3.connect("lab.sqlite")) as database:  # as a lab leaves it that is killed before the tables
        database.execute("PRAGMA journal_mode = WAL")
    assert Path("lab.sqlite").stat().st_size
    monkeypatch.setattr(running, "events", interrupt)
    assert "Interrupted: 0 of 4 trials are finished" in run("lab", "run", "good.toml").err


GRID = """
[grid.axes.size.large]
model = { width = 32 }
[grid.axes.length.16]
training = { length = 16 }
full = true
"""


@pytest.mark.usefixtures("torch", "folder")
def test_a_grid_adds_cells_and_leaves_the_trials_of_the_task_as_they_are(run):
    text = Path("good.toml").read_text(encoding="utf-8")
    Path("grid.toml").write_text(text + 'grid = ["size"]\n' + GRID, encoding="utf-8")
    assert [run("lab", "run", f"{each}.toml").code for each in ("good", "grid")] == [0, 0]

    def measured(name: str) -> dict[str, list[str]]:
        run("lab", "report", name, "--csv", f"{name}.csv", "--force")
        found: dict[str, list[str]] = {}
        for each in csv.DictReader(Path(f"{name}.csv").read_text(encoding="utf-8").splitlines()):
            found.setdefault(each.pop("task"), []).append(str({**each, "study": ""}))
        return found

    alone, cells = measured("good"), measured("grid")
    assert set(cells) == {"copy", "copy @ size large"}
    assert cells["copy"] == alone["copy"]
    said = run("lab", "report", "grid").out
    assert "does the order hold?" in said
    assert "not run: length 16, size large + length 16" in said
    assert run("lab", "run", "grid.toml", "--full").code == 0
    done = json.loads(run("lab", "report", "grid", "--json").out)
    assert done["trials"] == {"finished": 16, "failed": 0, "waiting": 0}
    assert [each["device"] for each in done["tasks"]["copy @ size large + length 16"]["origins"]] == ["cpu"]
    assert measured("grid")["copy"] == alone["copy"]


@pytest.mark.usefixtures("torch", "folder")
def test_a_study_that_goes_on_with_another_engine_or_version_says_so(run):
    text = Path("good.toml").read_text(encoding="utf-8")
    study = parse(text, "good")
    with Store.open("lab.sqlite") as store:
        store.add_study(study.hash, "good", text, {})
        store.add_trials(study.hash, study.trial_keys())
        facts = {"parameters": 1, "code_parameters": 0, "tokens_per_second": 1.0, "torch": "1.0", "engine": "local"}
        for key in study.trial_keys()[:3]:
            store.finish(study.hash, key, [], facts)
    lines = run("lab", "run", "good.toml").err.splitlines()
    assert [line for line in lines if "warning" in line] == lines[:1]
    assert lines[0].startswith("warning: Finished trials were made with torch 1.0 (now ")


@pytest.mark.usefixtures("torch", "folder")
def test_learning_rates_are_tuned_on_seeds_of_their_own(run):
    done = run("lab", "tune", "good.toml", "--jobs", "2")
    assert done.code == 0
    comments = [line for line in done.out.splitlines() if line.startswith("# copy: losses ")]
    for arm, line in zip(("none", "rotary"), comments, strict=True):
        tried = line.removeprefix("# copy: losses ").removesuffix("; the best is at the end of the grid")
        losses = {float(rate): float(loss) for rate, loss in (each.split(": ") for each in tried.split(", "))}
        assert all(map(math.isfinite, losses.values()))
        best = min(losses, key=losses.__getitem__)
        assert tomllib.loads(done.out)["arms"][arm] == {"learning_rate": {"copy": best}}
    stored, *wider = json.loads(run("lab", "list", "--store", "lab.sqlite", "--json").out)["studies"]
    assert (stored["name"], stored["trials"]["finished"]) == ("good (tuning)", 4)
    # A grid that ends at its best is extended, at most four times.
    at_end = any(line.endswith("the best is at the end of the grid") for line in comments)
    assert len(wider) == 4 if at_end else len(wider) <= 4
    assert all(each["name"] == "good (tuning)" and not each["trials"]["failed"] for each in wider)
