"""Whatever a command writes, it writes over nothing that it reads, and under a name that is one."""

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clockhands.cli.output import write_whole
from clockhands.errors import InvalidValue

from .conftest import LLAMA

WRITERS = (("audit", "--html"), ("explore", "--out"))


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder with a model's config, as seen from the folder above it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    return folder


def refused(done, out):
    """Whether it ended in one sentence about this place."""
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error.startswith(f"error: {out} would be written over ")
    assert error.endswith("which is read.")
    assert hint == "hint: Give another name; `--force` does not replace a file that is also read."
    return True


TARGETS = """
    model/config.json > model/config.json
    model/config.json > ./model/../model/config.json
    file:model/config.json > model/config.json
    vaswani2017 model/config.json nowhere.json > model/config.json
    model > model/config.json
    link > model/config.json
    model > link/config.json
    other.json > model/config.json
    model/config.json > other.json
    model/config.json > hard.json
    model > hard.json
"""


def test_a_target_is_never_written_over(run, model, cases):
    try:
        Path("link").symlink_to("model")
        Path("other.json").symlink_to("model/config.json")
    except OSError:
        pytest.skip("this system makes no links")
    os.link("model/config.json", "hard.json")
    for (command, option), line in itertools.product(WRITERS, TARGETS.strip().splitlines()):
        with cases(command, line):
            targets, out = line.split(" > ")
            assert refused(run(command, *targets.split(), option, out, "--force"), Path(out))
            assert refused(run(command, *targets.split(), option, out), Path(out))
            assert json.loads((model / "config.json").read_text("utf-8")) == LLAMA
            assert Path("other.json").is_symlink()
            assert sorted(os.listdir(model)) == ["config.json"]


@pytest.mark.parametrize(("command", "option"), WRITERS)
def test_a_model_that_is_in_the_cache_is_never_written_over(run, tmp_path, monkeypatch, command, option):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--name" / "snapshots" / "one"
    folder.mkdir(parents=True)
    config = folder / "config.json"
    config.write_text(json.dumps(LLAMA), encoding="utf-8")
    assert refused(run(command, "org/name", option, config, "--force"), config)
    assert json.loads(config.read_text("utf-8")) == LLAMA


@pytest.mark.parametrize(("command", "option"), WRITERS)
def test_a_page_in_a_model_s_folder_is_replaced_if_asked(run, model, command, option):
    out = model / "page.html"
    assert run(command, model, option, out).code == 0
    assert run(command, model, option, out).code == 2
    assert run(command, model, option, out, "--force").code == 0


@pytest.mark.skipif(os.name == "nt", reason="a file that is open there cannot be replaced anyway")
def test_a_file_on_standard_input_is_never_written_over(model):
    words = [sys.executable, "-m", "clockhands", "audit", "-", "--html", "model/config.json", "--force"]
    with (model / "config.json").open("rb") as file:
        done = subprocess.run(words, stdin=file, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "would be written over standard input, which is read." in done.stderr
    assert json.loads((model / "config.json").read_text("utf-8")) == LLAMA


def test_a_table_is_never_written_over_the_file_that_describes_it(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = '{"type": "Sinusoidal", "width": 8}'
    Path("spec.json").write_text(spec, encoding="utf-8")
    os.link("spec.json", "same.csv")
    assert refused(run("table", "spec.json", "--positions", "4", "--out", "same.csv", "--force"), "same.csv")
    assert Path("same.csv").read_text("utf-8") == spec
    # A folder that is called as a preset is not what is read.
    Path("vaswani2017").mkdir()
    for _ in range(2):
        assert run("table", "vaswani2017", "--positions", "4", "--out", "vaswani2017/t.csv", "--force").code == 0


@pytest.mark.usefixtures("model")
def test_a_baseline_is_written_over_no_target_and_over_itself(run):
    assert refused(run("audit", "model", "--write-baseline", "model/config.json"), Path("model/config.json"))
    assert refused(run("audit", "model/config.json", "--write-baseline", "model/config.json"), "model/config.json")
    known = "model/known.json"
    assert run("audit", "model", "--write-baseline", known).code == 0
    assert run("audit", "model", "--baseline", known, "--write-baseline", known).code == 0
    assert refused(run("audit", "model", "--baseline", known, "--html", known, "--force"), known)


@pytest.mark.skipif(shutil.which("mkfifo") is None, reason="there are no named pipes")
@pytest.mark.parametrize(
    "words", [("explore", "--out", "pipe", "--force"), ("audit", "vaswani2017", "--write-baseline", "pipe")]
)
def test_what_is_no_file_is_not_replaced(run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert "pipe is not a regular file, so it is not replaced" in done.err
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_while_the_content_is_made_is_not_replaced(tmp_path, monkeypatch, links):
    def none(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:  # as FAT has none
        monkeypatch.setattr(os, "link", none)
    out = tmp_path / "page.html"

    def write(unfinished):
        unfinished.write_text("made", encoding="utf-8")
        out.write_text("mine", encoding="utf-8")

    with pytest.raises(InvalidValue, match=r"page\.html is already there\."):
        write_whole(out, write, force=False)
    assert (os.listdir(tmp_path), out.read_text("utf-8")) == ([out.name], "mine")
    write_whole(out, write, force=True)
    assert (os.listdir(tmp_path), out.read_text("utf-8")) == ([out.name], "made")
    out.unlink()
    write_whole(out, lambda unfinished: unfinished.write_text("made", encoding="utf-8"), force=False)
    assert (os.listdir(tmp_path), out.read_text("utf-8")) == ([out.name], "made")
