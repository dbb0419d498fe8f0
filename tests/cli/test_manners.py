"""How every command behaves: errors, exit codes, streams, pipes and interrupts."""

import os
import subprocess
import sys

import click
import pytest

import clockhands.cli.presets

from .conftest import PROGRAM


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


def test_findings_left_out_are_counted(run):
    done = run("audit", "-", "--ignore", "unknown-model-type", stdin=b"{}")
    assert (done.code, done.err) == (0, "note: -: 1 finding left out by --ignore.\n")


CLOSED = """
import sys
from clockhands.cli import main
for words in ("audit whisper", "audit whisper --json", "table whisper --positions 4", "presets"):
    try:
        main(words.split())
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
"""


@pytest.mark.skipif(os.name != "posix", reason="streams are closed in a shell")
def test_a_closed_stdout_is_as_good_as_none():
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", CLOSED]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.split()) == (0, [b"0"] * 4)
