from collections.abc import Callable
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from clockhands.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command line as a shell would: run("table", "whisper") -> exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def invoke(*words: object, stdin: bytes | None = None, faults: bool = False) -> Ran:
        done = CliRunner().invoke(main, [str(word) for word in words], input=stdin, prog_name="clockhands")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert faults or "Traceback" not in done.stderr, done.stderr
        return Ran(done.exit_code, done.stdout, done.stderr)

    return invoke
