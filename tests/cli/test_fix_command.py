"""`clockhands audit --diff`, `--fix`, `--recursive` and `--fail-on`, as a user runs them."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from clockhands.cli import audit as command
from clockhands.cli.audit import MANY

from .conftest import LLAMA_31, WRONG_BASE


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Write a config into a folder of its own and stay beside it."""
    monkeypatch.chdir(tmp_path)

    def written(name, config=WRONG_BASE, **how):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(config, **({"indent": 2} | how)), encoding="utf-8")
        return tmp_path / name / "config.json"

    return written


def test_the_diff_is_one_that_git_applies(run, model):
    path = model("m")
    diff = run("audit", str(path), "--diff").out.replace(str(path), "m/config.json")
    assert diff.splitlines()[2].startswith("@@ ")
    done = subprocess.run(["git", "apply", "-p1", "-"], input=diff.encode(), cwd=path.parent.parent, check=False)
    assert done.returncode == 0
    assert json.loads(path.read_text(encoding="utf-8")) == LLAMA_31


def test_a_diff_on_a_terminal_shows_what_would_move_its_cursor(run, model, monkeypatch):
    path = model("m", {"_name_or_path": "\x9b2J", **WRONG_BASE}, indent="\t", ensure_ascii=False)
    plain = run("audit", "m", "--diff").out
    monkeypatch.setattr(command, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True), stderr=None))
    shown = run("audit", "m", "--diff").out
    assert "\x9b" not in shown
    assert shown == plain.replace("\x9b", r"\x9b").expandtabs(4)
    assert path.read_text(encoding="utf-8").count("\x9b") == 1


def test_a_fix_is_written_beside_the_file_and_changes_one_line(run, model):
    path = model("m")
    before = path.read_bytes()
    done = run("audit", "m", "--fix", "--strict")
    assert done.code == 1, "the config itself is as it was"
    assert path.read_bytes() == before
    fixed = path.with_name("config.fixed.json")
    changed = [
        pair for pair in zip(before.splitlines(), fixed.read_bytes().splitlines(), strict=True) if len({*pair}) > 1
    ]
    assert changed == [(b'  "rope_theta": 50000.0,', b'  "rope_theta": 500000.0,')]
    again = run("audit", str(fixed), "--diff")
    assert (again.code, again.out) == (0, "")
    for line in (
        "note: wrote m/config.fixed.json, with these fixes:",
        "  differs-from-release: Set rope_theta to 500,000, as in Llama-3.1-8B.",
        "note: use it only if the model was made from Llama-3.1-8B.",
        "note: verify it with `clockhands audit m/config.fixed.json` and `clockhands diff m/config.json m/config.fixed",
    ):
        assert line in done.err
    # Asked again, as the folder and as one of many, it finds what it wrote; what another hand wrote is not replaced.
    assert "m/config.fixed.json has these fixes already" in run("audit", "m", "--fix").err
    assert [each["target"] for each in json.loads(run("audit", "-r", ".", "--fix", "--json").out)["targets"]] == ["m"]
    fixed.write_text("mine", encoding="utf-8")
    refused = run("audit", "m", "--fix")
    assert (refused.code, "already there" in refused.err) == (2, True)
    assert run("audit", "m", "--fix", "--force").code == 0
    assert "nothing was written, since no problem was found" in run("audit", str(fixed), "--fix").err


def test_a_fix_is_written_where_out_says(run, model, tmp_path):
    path = model("m")
    done = run("audit", "m", "--fix", "--out", "mended.json", "-q")
    assert "note: wrote mended.json" in done.err
    assert json.loads((tmp_path / "mended.json").read_text(encoding="utf-8")) == LLAMA_31
    assert {each.name for each in path.parent.iterdir()} == {"config.json"}
    (tmp_path / "mended.json").write_text("mine", encoding="utf-8")
    assert "already there" in run("audit", "m", "--fix", "--out", "mended.json").err
    for words in (("m", "n", "--fix"), ("m",), ("m", "--fix", "--in-place"), ("-r", ".", "--fix")):
        assert run("audit", *words, "--out", "other.json").code == 2


def test_of_several_models_one_that_cannot_be_fixed_does_not_stop_the_others(run, model):
    for name in ("a", "b", "c"):
        model(name)
    model("b").with_name("config.fixed.json").write_text("mine", encoding="utf-8")
    done = run("audit", "a", "b", "c", "--fix", "-q")
    assert done.code == 2
    assert "b/config.fixed.json is already there" in done.err
    assert [model(name).with_name("config.fixed.json").read_text("utf-8") != "mine" for name in "abc"] == [
        True, False, True
    ]  # fmt: skip


def test_what_was_ignored_is_ignored_after_a_fix(run, model):
    model("m", WRONG_BASE | {"rope_scaling": LLAMA_31["rope_scaling"] | {"facter": 2}})
    assert run("audit", "m", "--fix", "--in-place", "--strict", "--ignore", "unknown-key").code == 0


def test_programs_get_their_document_alone(run, model):
    model("m")
    assert json.loads(run("audit", "m", "--fix", "--json").out)["targets"]


def test_a_link_to_nothing_is_not_taken_for_a_written_file(run, model, tmp_path):
    fixed = model("m").with_name("config.fixed.json")
    fixed.symlink_to(tmp_path / "nowhere" / "x.json")
    done = run("audit", "m", "--fix", "-q")
    assert done.code == 2
    assert "wrote" not in done.err
    fixed.unlink()  # nor does a planted link lead what is written elsewhere
    fixed.with_name(f".{fixed.name}.{os.getpid()}.unfinished").symlink_to(tmp_path / "victim")
    assert run("audit", "m", "--fix", "-q").code == 0
    assert not (tmp_path / "victim").exists()


def test_in_place_the_file_itself_is_fixed_and_keeps_its_mode(run, model):
    path = model("m")
    path.chmod(0o640)
    assert run("audit", "m", "--fix", "--in-place", "--strict").code == 0
    assert json.loads(path.read_text(encoding="utf-8")) == LLAMA_31
    assert path.stat().st_mode & 0o777 == 0o640
    assert {each.name for each in path.parent.iterdir()} == {"config.json"}


@pytest.mark.parametrize("reads", ["auditing.fixes._text_of", "formats.files.fresh_beside"])
def test_in_place_a_file_that_changes_meanwhile_is_left_as_it_is(run, model, monkeypatch, reads):
    """After the audit, and after the fix was made."""
    path, real = model("m"), getattr(sys.modules[f"clockhands.{reads.rpartition('.')[0]}"], reads.rpartition(".")[2])
    theirs = path.read_text("utf-8").replace("50000.0", "600000.0")
    monkeypatch.setattr(f"clockhands.{reads}", lambda *given: (path.write_text(theirs, "utf-8"), real(*given))[1])
    done = run("audit", "m", "--fix", "--in-place")
    assert done.code == 2
    assert "has changed since it was " in done.err
    assert path.read_text("utf-8") == theirs
    assert list(path.parent.iterdir()) == [path]


def test_every_model_under_a_folder_is_found_and_other_json_is_passed_over(run, model, tmp_path):
    model("all/one", LLAMA_31)
    model("all/deep/two")
    model("all/web", {"name": "an application", "version": "1"})
    model("all/.hidden")
    told = json.loads(run("audit", "-r", "all", "--json").out)
    assert [each["target"] for each in told["targets"]] == ["all/deep/two", "all/one"]
    (tmp_path / "all" / "broken").mkdir()
    (tmp_path / "all" / "broken" / "config.json").write_text("{", encoding="utf-8")
    done = run("audit", "-r", "all", "--json")
    assert done.code == 2
    assert [each["target"] for each in json.loads(done.out)["unread"]] == ["all/broken"]
    (tmp_path / "all" / "broken" / "config.json").write_text('"a text"', encoding="utf-8")
    (tmp_path / "all" / "folder" / "config.json").mkdir(parents=True)
    unread = json.loads(run("audit", "-r", "all", "--json").out)["unread"]
    assert [each["target"] for each in unread] == ["all/broken", "all/folder"]


def test_many_models_are_audited_in_processes_with_the_same_answers_in_their_order(run, model):
    for number in range(MANY):
        model(f"all/{number:02}", (WRONG_BASE if number % 2 else LLAMA_31) | {"rope_theta": 10000.0 + number})
    (one, two) = (json.loads(run("audit", "-r", "all", "--json", "--jobs", jobs).out) for jobs in (1, 2))
    assert one == two
    assert [each["layers"][0]["base"] for each in two["targets"]] == [10000.0 + number for number in range(MANY)]


# Runs the command, and from the moment at which it begins to write goes on in copies of the process, which are killed
# before the first, the second, ... line that they run of its own code; prints what is in the folder after each.
KILLED = """
import contextlib, json, os, pathlib, signal, sys
from clockhands.cli import audit, main

def clockhands_write_bytes(path, data):
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(data), 100):
            file.write(data[start:start + 100])

def written_until(number, *arguments, **named):
    def line(frame, event, argument):
        nonlocal number
        if event == "line":
            number -= 1
            if not number:
                os.kill(os.getpid(), signal.SIGKILL)
        return line
    def call(frame, event, argument):
        return line if "clockhands" in frame.f_code.co_filename + frame.f_code.co_name else None
    sys.settrace(call)
    write_whole(*arguments, **named)
    os._exit(0)

def killed_at_every_line(*arguments, **named):
    for number in range(1, 200):
        for path in config.parent.iterdir():
            path.unlink()
        config.write_bytes(before)
        copy = os.fork()
        if not copy:
            written_until(number, *arguments, **named)
        killed = os.WIFSIGNALED(os.waitpid(copy, 0)[1])
        print("state", json.dumps({path.name: path.read_text() for path in config.parent.iterdir()}), flush=True)
        if not killed:
            break

config = pathlib.Path("m/config.json")
before = config.read_bytes()
with contextlib.suppress(SystemExit):
    main(["audit", "m", "--fix", "-q", *sys.argv[1:]])  # imports what is needed, so that no copy does
for path in config.parent.iterdir():
    path.unlink()
config.write_bytes(before)
pathlib.Path.write_bytes = clockhands_write_bytes
write_whole, audit.write_whole = audit.write_whole, killed_at_every_line
main(["audit", "m", "--fix", "-q", *sys.argv[1:]])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a copy of the process is killed")
@pytest.mark.parametrize(
    ("words", "name"), [pytest.param((), "config.fixed.json", marks=pytest.mark.slow), (("--in-place",), "config.json")]
)
def test_whenever_it_is_killed_each_file_is_the_old_or_the_new_one(model, words, name):
    before = model("m").read_text("utf-8")
    after = before.replace("50000.0", "500000.0")
    done = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
    states = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("state ")]
    assert len(states) > 30, done.stderr
    assert {state["config.json"] for state in states} == ({before, after} if words else {before})
    assert {state.get(name) for state in states} == {before if words else None, after}
    kept = {"config.json", name}
    assert any(len(text) not in (0, len(after)) for state in states for each, text in state.items() if each not in kept)
    assert states[-1].keys() == kept
    names = {each for state in states for each in state} - kept
    assert all(each.endswith(".unfinished") for each in names), names
