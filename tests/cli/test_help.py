"""The surface of the command line is frozen: a change of an option is a visible change of a file in `help/`."""

import subprocess
import sys
from pathlib import Path

import pytest

from clockhands.cli import lab, survey
from clockhands.cli.group import COMMANDS

HELP = Path(__file__).parent / "help"
FROZEN = [
    "clockhands",
    *COMMANDS,
    *(f"{group.name} {name}" for group in (lab.command, survey.command) for name in group.commands),
]


@pytest.mark.parametrize("command", FROZEN)
def test_the_help_is_the_frozen_one(run, command):
    shown = run(*([] if command == "clockhands" else command.split()), "--help")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == (HELP / f"{command}.txt").read_text(encoding="utf-8")


def test_nothing_frozen_is_left_over():
    assert {path.stem for path in HELP.glob("*.txt")} == set(FROZEN)


def test_commands_are_real_and_say_the_same_in_both_places(run):
    for name in COMMANDS:
        assert run(name, "--help").out.startswith(f"Usage: clockhands {name} ")


def test_no_command_at_all_is_misuse_and_shows_the_help(run):
    done = run()
    assert (done.code, done.out) == (2, "")
    assert done.err == (HELP / "clockhands.txt").read_text(encoding="utf-8")


def imported(*words):
    """The modules that are there after a command line has been run in a fresh process."""
    code = (
        "import sys\nfrom clockhands.cli import main\n"
        f"sys.argv = ['clockhands', *{list(words)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_imports_neither_numpy_nor_rich_nor_any_command():
    loaded = imported("--help")
    assert "click" in loaded
    heavy = {"numpy", "rich", "torch", "jax", "importlib.metadata"}
    assert not loaded & (heavy | {f"clockhands.cli.{name}" for name in COMMANDS})


def test_a_command_imports_no_framework_and_json_no_drawing():
    loaded = imported("audit", "--json", "vaswani2017")
    assert {"numpy", "clockhands.cli.audit"} <= loaded, "the check sees what is imported"
    assert not loaded & {"rich", "torch", "jax", "clockhands.cli.table"}
