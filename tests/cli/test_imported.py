"""What help and a command import: each starts as fast as what it needs."""

import subprocess
import sys

from clockhands.cli.group import COMMANDS


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
