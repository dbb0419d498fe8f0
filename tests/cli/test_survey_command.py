"""`clockhands survey`: what it prints and writes, what it refuses before it begins, and its exit codes."""

import csv
import json
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from clockhands.cli.survey import _Progress
from clockhands.jobs.survey import running
from clockhands.jobs.survey.rows import SurveyRow
from clockhands.jobs.survey.running import SurveyProgress
from clockhands.jobs.survey.store import SurveyStore

from .conftest import LLAMA


def model(folder: Path, **changes: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA | changes), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, base in (("a", 10000.0), ("b", 500000.0)):
        model(tmp_path / "models" / name, rope_theta=base)
    return tmp_path


def test_the_store_has_a_name_by_itself(run, folder: Path):
    assert run("survey", "run", "models", "--jobs", 1).out == "2 models: 2 correct.\n"
    assert run("survey", "report").out == "2 models: 2 correct.\n"
    assert (folder / "survey.sqlite").exists()


def test_what_fails_and_what_is_wrong_is_exit_code_1(run, folder: Path):
    (folder / "models" / "b" / "config.json").write_text("{", encoding="utf-8")
    done = run("survey", "run", "models", "--jobs", 1, "--store", "s.sqlite")
    assert done.code == 1
    assert done.out.startswith("2 models: 1 not audited, 1 correct.\n\nnot audited\n  b\n")
    assert done.err.splitlines() == [
        "1 model audited, 1 could not be audited, 0 known from an earlier run.",
        "All rows are in s.sqlite: `clockhands survey report --store s.sqlite` shows them again.",
    ]
    assert run("survey", "report", "--store", "s.sqlite").code == 1
    done = run("survey", "run", "models/a", f"{folder}/absent", "--jobs", 1)  # never led to a file: not gone, a failure
    assert (done.code, done.out.splitlines()[0]) == (1, "2 models: 1 not audited, 1 correct.")


ODD = "e\x1b[2J</script><script>alert(1)</script>"


def test_a_store_from_elsewhere_is_shown_as_it_is_or_refused(run, folder: Path, empty_hub, cases):
    """Nothing that it names is fetched or read from standard input, and what it holds is text."""
    for number, report in enumerate(("[", "[" * 10**5, "{}", '{"findings": [{}], "layers": []}', "", "right")):
        store = f"{number}.sqlite"
        told = '{"findings": [], "layers": [{"layers": 5, "x": [1]}]}' if report == "right" else report
        with SurveyStore.open(folder / store) as opened:
            for target in ("org/name", "-", f"../../{ODD}"):
                row = SurveyRow(target, "", version("clockhands"), "done", verdict=ODD, severity=ODD, errors=ODD)
                opened.add(row._replace(base=-1e308, context=-5, scaling=ODD, differs_in=ODD), told)
        done = run("survey", "report", "--store", store, "--html", f"{number}.html")
        with cases(report[:40]):
            assert "<script>alert" not in "".join(page.read_text() for page in folder.rglob("*.html"))
            if report == "right":
                assert done.code == 1
                assert len(list((folder / f"{number}-models").iterdir())) == 3
            else:
                assert done.code == 2
                assert "is damaged: the report of " in done.err
    assert empty_hub.asked == []


def test_a_model_whose_files_are_gone_is_named_and_not_counted(run, folder: Path):
    (folder / "models" / "b" / "config.json").write_text("{", encoding="utf-8")
    assert run("survey", "run", "models", "--jobs", 1).code == 1
    shutil.rmtree(folder / "models" / "b")
    again = run("survey", "run", "models", "--jobs", 1, "--csv", "rows.csv")
    assert (again.code, again.out) == (0, "1 model: 1 correct.\n\nno longer there, and not counted\n  b\n")
    document = json.loads(run("survey", "report", "--json").out)
    assert (document["models"], document["no_longer_there"]) == (1, [f"{folder}/models/b"])
    assert len((folder / "rows.csv").read_text("utf-8").splitlines()) == 2
    shutil.rmtree(folder / "models" / "a")
    assert run("survey", "report").out.startswith("0 models: the files of all have been deleted or moved.\n\nno longer")
    (folder / "models").rmdir()
    assert run("survey", "report").out.startswith("2 models: 1 not audited, 1 correct."), "as on another machine"


def test_names_that_end_alike_are_shown_with_what_tells_them_apart(run, folder: Path):
    for parent in ("x", "y"):
        model(folder / parent / "same")
        (folder / parent / "same" / "config.json").write_text("{", encoding="utf-8")
    lines = run("survey", "run", "x", "y", "--jobs", 1).out.splitlines()
    assert [line for line in lines if line.endswith("same")] == ["  x/same", "  y/same"]


def test_a_list_of_names_and_json(run, folder: Path):
    (folder / "names.txt").write_text("# two\nmodels/a\nvaswani2017\n", encoding="utf-8")
    done = run("survey", "run", "--names", "names.txt", "--jobs", 1, "--json", "models/b")
    document = json.loads(done.out)
    assert (document["schema"], document["models"], document["grades"]["correct"]) == (1, 3, 3)
    targets = [row["target"] for row in document["rows"]]
    assert targets == [f"{folder}/models/a", f"{folder}/models/b", "vaswani2017"]
    from_stdin = run("survey", "run", "--names", "-", "--jobs", 1, stdin=b"whisper\n")
    assert from_stdin.err.startswith("1 model audited, 0 known")


def test_the_page_links_to_the_report_of_each_model(run, folder: Path):
    run("survey", "run", "models", "--jobs", 1)
    (folder / "models" / "a" / "config.json").write_text(json.dumps(LLAMA | {"rope_theta": 7.0}), encoding="utf-8")
    done = run("survey", "report", "--html", "page.html", "--csv", "rows.csv")
    assert done.err.splitlines() == ["wrote rows.csv", "wrote page.html, and 2 reports in page-models"]
    pages = {path.name[0]: path.read_text("utf-8") for path in (folder / "page-models").iterdir()}
    gallery = (folder / "page.html").read_text("utf-8")
    assert all(f'"page-models/{path.name}"' in gallery for path in (folder / "page-models").iterdir())
    assert "The files have changed since" in pages["a"]
    assert "The files have changed since" not in pages["b"]
    assert "Sources of all values" in pages["b"]
    assert len(pages["b"]) < 100_000, "the explorer is not in each of them"
    rows = list(csv.DictReader((folder / "rows.csv").read_text("utf-8").splitlines()))
    assert [row["base"] for row in rows] == ["10000.0", "500000.0"]


def test_few_reports_are_of_the_worst_models(run, folder: Path):
    model(folder / "models" / "c", rope_scaling={"rope_type": "nonsense"})
    run("survey", "run", "models", "--jobs", 1)
    assert run("survey", "report", "--html", "page.html", "--pages", 1).err.endswith("1 report in page-models\n")
    assert [path.name[0] for path in (folder / "page-models").iterdir()] == ["c"]
    assert run("survey", "report", "--html", "none.html", "--pages", 0).err == "wrote none.html\n"
    assert not (folder / "none-models").exists()


def test_a_length_holds_for_the_reports_too(run, folder: Path):
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    model(folder / "c", rope_scaling=scaling)
    run("survey", "run", "c", "--jobs", 1, "--length", 8192, "--html", "page.html")
    (page,) = (folder / "page-models").iterdir()
    assert "8,192" in page.read_text("utf-8")


@pytest.mark.usefixtures("folder")
def test_what_is_refused_is_refused_before_it_begins(run):
    done = run("survey", "run", "--names", "absent.txt")
    assert (done.code, done.out) == (2, "")
    assert "absent.txt cannot be read: No such file or directory." in done.err
    done = run("survey", "run", "models", "--engine", "local", "--address", "a:1")
    assert (done.code, done.out) == (2, "")
    assert "takes no address" in done.err


def test_an_interrupted_survey_says_what_is_kept_and_continues(run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    whole = running.survey

    def interrupted(*arguments: Any) -> Iterator[Any]:
        events = whole(*arguments)
        yield next(events)
        events.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "survey", interrupted)
    done = run("survey", "run", "models", "--jobs", 1)
    assert (done.code, done.out) == (130, "")
    assert done.err.strip() == "Interrupted: 1 row was stored in this run. The same command continues."
    monkeypatch.setattr(running, "survey", whole)
    assert "known from an earlier run" in run("survey", "run", "models", "--jobs", 1).err
    with SurveyStore.open(folder / "survey.sqlite", write=False) as store:
        assert len(store.rows()) == 2


def test_progress_is_one_line_on_a_terminal_and_is_cleared(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for total, done in ((2000, "1,207 of 2,000"), (None, "1,207")):
        shown = _Progress(total)
        shown.update(SurveyProgress(1200, 3, 7))
        assert capsys.readouterr().err == f"\r{done} models: audited 1,200, 3 failed, known 7 "
    shown.end()
    assert capsys.readouterr().err == "\r" + " " * 60 + "\r"
