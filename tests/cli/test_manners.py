"""How every command behaves: errors, exit codes, streams, pipes and interrupts."""

import json
import os
import subprocess
import sys

import click
import pytest

import clockhands.cli.presets
from clockhands import __version__

PROGRAM = [sys.executable, "-c", "from clockhands.cli import main; main()"]


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["tabel"], "There is no command 'tabel'. Did you mean table?", "See `clockhands --help`."),
        (["zzz"], "There is no command 'zzz'.", "See `clockhands --help`."),
        (["--versoin"], "No such option '--versoin'. Did you mean '--version'?", "See `clockhands --help`."),
        (["audit"], "Missing argument 'TARGET...'.", "See `clockhands audit --help`."),
        (
            ["audit", "--strickt", "x"],
            "No such option '--strickt'. Did you mean '--strict'?",
            "See `clockhands audit --help`.",
        ),
        (
            ["audit", "--length", "0", "whisper"],
            "Invalid value for '--length': 0 is not in the range x>=1.",
            "See `clockhands audit --help`.",
        ),
        (
            ["audit", "--json", "--format", "text", "whisper"],
            "--json and --format text contradict each other.",
            "See `clockhands audit --help`.",
        ),
        (
            ["table", "whisper", "--dtype", "int8"],
            "Invalid value for '--dtype': 'int8' is not one of 'float64', 'float32', 'float16', 'bfloat16'.",
            "See `clockhands table --help`.",
        ),
    ],
)
def test_misuse_is_one_sentence_a_hint_and_exit_code_2(run, words, error, hint):
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {error}\nhint: {hint}\n"


def test_an_unknown_code_to_ignore_is_misuse(run):
    done = run("audit", "--ignore", "never-turnin", "whisper")
    assert done.code == 2
    assert done.err.startswith(
        "error: Invalid value for '--ignore': 'never-turnin' is not the code of a finding. Did you mean never-turning?"
        " `clockhands explain` lists all."
    )
    assert done.err.endswith("\nhint: See `clockhands audit --help`.\n")


def test_the_version(run):
    done = run("--version")
    assert (done.code, done.out, done.err) == (0, f"clockhands {__version__}\n", "")


def test_json_goes_to_stdout_alone(run):
    done = run("presets", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["schema"] == 1


def test_a_closed_pipe_is_quiet():
    command = [*PROGRAM, "table", "vaswani2017", "--positions", "20000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, click.Abort])
def test_an_interrupt_is_exit_code_130_without_a_traceback(run, monkeypatch, interruption):
    def interrupted():
        raise interruption

    monkeypatch.setattr(clockhands.cli.presets, "presets", interrupted)
    done = run("presets")
    assert done.code == 130
    assert "Traceback" not in done.err


def test_running_out_of_memory_is_said(run, monkeypatch):
    def full():
        raise MemoryError

    monkeypatch.setattr(clockhands.cli.presets, "presets", full)
    done = run("presets")
    assert done.code == 2
    assert (
        done.err == "error: There was not enough memory.\nhint: Ask for less at once, or write it in several parts.\n"
    )


def test_a_fault_of_our_own_is_not_taken_for_a_broken_model(run, monkeypatch):
    monkeypatch.setattr(clockhands.cli.presets, "presets", lambda: 1 / 0)
    done = run("presets", faults=True)
    assert (done.code, done.out) == (2, "")
    assert "ZeroDivisionError" in done.err
    assert done.err.endswith(
        "error: This is a fault of clockhands, not of what you gave it.\nhint: Please report it with the lines above.\n"
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device here that is always full")
def test_a_full_disk_is_said():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, "presets"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == b"error: The result could not be written: No space left on device.\nhint: Send it somewhere else.\n"
    )


def test_text_that_the_terminal_cannot_hold_does_not_end_the_report(tmp_path):
    (tmp_path / "mødel.json").write_text('{"model_type": "llåma"}', encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [*PROGRAM, "audit", str(tmp_path / "mødel.json"), str(tmp_path / "ø.json")]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 2
    assert b"model        ll" in done.stdout
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


def test_names_cannot_move_the_cursor_of_a_terminal(run):
    done = run("audit", "\x1b[2J.json")
    assert done.code == 2
    assert done.err.startswith("error: \\x1b[2J.json")


def test_findings_left_out_are_counted(run):
    done = run("audit", "-", "--ignore", "unknown-model-type", stdin=b"{}")
    assert (done.code, done.err) == (0, "note: -: 1 finding left out by --ignore.\n")


@pytest.mark.skipif(os.name != "posix", reason="streams are closed in a shell")
@pytest.mark.parametrize(
    "words", [("audit", "whisper"), ("audit", "whisper", "--json"), ("table", "whisper"), ("presets",)]
)
def test_a_closed_stdout_is_as_good_as_none(words):
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, *words], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_package_is_the_command_as_well():
    done = subprocess.run([sys.executable, "-m", "clockhands", "--version"], capture_output=True, text=True, check=True)
    assert "clockhands" in done.stdout
