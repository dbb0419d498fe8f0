"""Models by name on the command line: what is said, where, and the exit code."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from clockhands.cli import output
from clockhands.formats import transfers
from hub_server import listed, never_answers

from .conftest import LLAMA3, LLAMA_31

CONFIG = LLAMA_31 | {
    "hidden_size": 2048, "head_dim": 64, "num_hidden_layers": 16, "rope_scaling": LLAMA3 | {"factor": 32.0}
}  # fmt: skip
LIST = "/api/models/org/name/revision/main"


@pytest.fixture
def hub(empty_hub, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    empty_hub.models["org/name"] = {"config.json": json.dumps(CONFIG).encode()}
    return empty_hub


def test_a_model_is_audited_by_its_name(hub, run):
    done = run("audit", "org/name")
    assert (done.code, hub.sent) == (0, bytes_of(hub))
    assert done.err.startswith(f"note: read from {hub.address}/org/name at revision 0123456789ab: config.json (")
    assert "fetching" not in done.err
    assert "The position settings look correct." in done.out
    again = run("audit", "org/name")
    assert (again.code, again.out, hub.sent) == (0, done.out, bytes_of(hub))


def bytes_of(hub):
    """What the list of the files and the config have."""
    (files,) = hub.models.values()
    commit = next(iter(hub.revisions.values()))
    return len(json.dumps({"sha": commit, "siblings": listed(files)})) + len(files["config.json"])


@pytest.mark.parametrize(
    "words", [("audit", "--json"), ("properties", "--length", "64", "--json"), ("diff", "--json", "vaswani2017")]
)
def test_every_command_that_opens_models_takes_names(hub, run, words):
    done = run(words[0], "org/name", *words[1:])
    assert done.code == (1 if words[0] == "diff" else 0)
    json.loads(done.out)
    assert f"note: read from {hub.address}/org/name" in done.err


def test_what_goes_wrong_is_one_sentence_and_exit_code_2(hub, run):
    hub.gated.add("org/name")
    done = run("audit", "org/name")
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error.startswith("error: ")
    assert error.count(". ") == 0
    assert hint.startswith("hint: ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("words", "shown"), [((), True), (("--quiet",), False), (("--json",), False)])
@pytest.mark.usefixtures("hub")
def test_progress_is_shown_on_a_terminal(monkeypatch, run, words, shown):
    terminal = Terminal()
    real = output.showing_what_is_fetched

    def on_a_terminal():
        monkeypatch.setattr(sys, "stderr", terminal)
        return real()

    monkeypatch.setattr("clockhands.cli.audit.showing_what_is_fetched", on_a_terminal)
    assert run("audit", "org/name", *words).code == 0
    assert ("fetching org/name: config.json" in terminal.getvalue()) == shown
    assert terminal.getvalue().count("\r\x1b[2K") == (2 if shown else 0), "and the line is cleared"
    assert transfers.WATCH.get() is None


@pytest.mark.slow
def test_an_interrupt_ends_it(hub, tmp_path):
    hub.fault(LIST, act=lambda handler: (asked.write_text(""), never_answers(handler)))
    asked = tmp_path / "asked"
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    # A run in the background ignores Ctrl-C, and its children inherit that.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "clockhands", "audit", "org/name"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while not asked.exists() and running.poll() is None:
            hub.done.wait(0.005)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b""), err
    assert b"Traceback" not in err
