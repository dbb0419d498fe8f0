"""What commands share in writing: JSON for programs, and files that are whole or not there."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from clockhands.errors import ClockhandsError, InvalidValue


class CannotWrite(ClockhandsError, OSError):
    """The place where the result should go does not take it."""


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document with the number of its schema; NaN and infinity are refused, as JSON refuses them."""
    click.echo(json.dumps({"schema": 1, **document}, indent=2, allow_nan=False))


def not_there(path: Path, *, force: bool) -> None:
    """Refuse a place where a file is already; commands that take long ask before they begin."""
    if path.exists() and not force:
        raise InvalidValue(f"{path} is already there.", "Give another name, or `--force` to replace it.")


def write_whole(path: Path, write: Callable[[Path], None], *, force: bool) -> None:
    """Write a file under another name and give it its own when it is complete.

    Args:
        path: Where the file shall be.
        write: Writes the content to the path that it is given.
        force: Whether a file that is already there may be replaced.
    """
    not_there(path, force=force)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        write(unfinished)
        unfinished.replace(path)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}.", "Choose another place.") from error
    finally:
        unfinished.unlink(missing_ok=True)
