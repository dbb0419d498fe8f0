"""What a file is refused with, as it can be kept beside the tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clockhands.errors import Unreadable
from written_files import refusal


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """The message and the hint with which a call is refused; the folder of the test is FOLDER in them."""

    def told(call, *arguments, error=Unreadable, **named):
        message, hint = refusal(call, *arguments, error=error, **named)
        return message.replace(str(tmp_path), "FOLDER"), hint.replace(str(tmp_path), "FOLDER")

    return told
