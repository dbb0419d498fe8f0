"""Shared output functions of commands: JSON for programs, and files that are written completely or not at all."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import click

from clockhands.cli.group import say
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.phrases import safe

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

DTYPES = ("float64", "float32", "float16", "bfloat16")
BACKENDS = ("numpy", "torch", "jax")


def options(*chosen: Any) -> Any:
    """Combine several options of a command into one decorator, in this order."""

    def decorated(function: Any) -> Any:
        for option in reversed(chosen):
            function = option(function)
        return function

    return decorated


json_option: Option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def keep_stdout() -> None:
    """Print to a copy of file descriptor 1, and redirect descriptor 1 itself to stderr from here on.

    For commands that run a user's code: what it writes to the descriptor is not data, and neither is what a C library
    keeps in a buffer until the process ends. So it is not undone.
    """
    try:
        if sys.stdout.fileno() != 1:
            return
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError):  # a stream without a descriptor, as tests have, or one that is closed
        return
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    sys.stdout = os.fdopen(kept, "w", encoding=encoding, errors=errors)


@contextmanager
def showing_what_is_fetched() -> Iterator[None]:
    """Show on a terminal what is being fetched from a hub, in one line that is erased afterwards.

    Not with --quiet, nor if the output is read by a program.
    """
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.params
    for_people = not given.get("quiet") and not given.get("as_json") and given.get("form") in (None, "text")
    stderr = sys.stderr  # None where the caller has closed it
    if not for_people or stderr is None or not stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        yield
        return
    # Imported when there may be something to fetch: the help of all commands needs none of it.
    from shutil import get_terminal_size

    from clockhands.formats.transfers import WATCH

    def show(what: str) -> None:
        width = get_terminal_size().columns - 1
        stderr.write(f"{_CLEARED}{safe(what)[:width]}")
        stderr.flush()

    shown = WATCH.set(show)
    try:
        yield
    finally:
        WATCH.reset(shown)
        stderr.write(_CLEARED)
        stderr.flush()


_CLEARED = "\r\x1b[2K"  # the beginning of the line, and nothing on it


def hanging() -> int:
    """How many calls of a user's code exceeded their time and are still running."""
    calling = sys.modules.get("clockhands.recognition.calling")
    return 0 if calling is None else calling.hanging()


def leave(code: int) -> NoReturn:
    """End the process while a call still runs: a normal exit may wait for that call, or crash."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class CannotWrite(ClockhandsError, OSError):
    """The result cannot be written to this place."""


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document with the number of its schema; NaN and infinity are refused, as in JSON."""
    say(json.dumps({"schema": 1, **document}, indent=2, allow_nan=False))


class OutPath(click.Path):
    """The path that a command writes to; an empty name and ``-`` are refused."""

    def __init__(self, *, folder: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=folder)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if os.fspath(value) in ("", "-"):
            whose = "" if param is None else f" for {param.get_error_hint(ctx)}"  # pyright: ignore[reportArgumentType]
            raise InvalidValue(f"{os.fspath(value)!r}{whose} names no file.", "Give the name of the file to write.")
        return super().convert(value, param, ctx)


def store_option(default: str) -> Any:
    """The option for the file that holds the results of many runs."""
    text = "The SQLite file that holds the results."
    return click.option("--store", type=OutPath(), default=default, show_default=True, help=text)


def not_there(path: Path, *, force: bool, reads: Sequence[str | Path] = ()) -> None:
    """Refuse the path of an existing file, or of an input; slow commands call this before they begin.

    Args:
        path: The path to write.
        force: Whether an existing file may be replaced.
        reads: Targets, and paths of files, that are read and so never replaced.

    Raises:
        InvalidValue: The path exists, or its folder does not exist.
    """
    for each in reads:
        if path.exists() and _would_lose(path, each):
            name = "standard input" if each == "-" else each
            what = f"{name}, which is read" if _same(path, each) else f"a file of {name}, which is read"
            raise InvalidValue(
                f"{path} would be written over {what}.",
                "Give another name; `--force` does not replace a file that is also read.",
            )
    if not path.parent.is_dir():
        raise InvalidValue(f"{path} cannot be written: {path.parent} is not a folder.", "Create the folder first.")
    if path.exists() and not path.is_file():
        raise InvalidValue(f"{path} is not a regular file, so it is not replaced.", "Give another name.")
    if path.exists() and not force:
        raise InvalidValue(f"{path} is already there.", "Give another name, or `--force` to replace it.")


def _would_lose(path: Path, read: str | Path) -> bool:
    """Whether writing ``path`` would replace an input, or a file of a model folder that is not an HTML page."""
    place = _place(read)
    if _same(path, read) or place is None or not place.is_dir():
        return _same(path, read)
    inside = place.resolve() in path.resolve().parents or place.absolute() in path.absolute().parents
    with suppress(OSError):  # a folder that may not be listed is not read either
        inside = inside or any(_same(path, each) for each in place.iterdir())
    return inside and path.suffix.lower() not in (".html", ".htm")


def _same(path: Path, read: str | Path) -> bool:
    with suppress(OSError, ValueError, AttributeError):  # one is not there; standard input is none, or no file
        if read == "-":
            return os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
        place = _place(read)
        return place is not None and path.samefile(place)
    return False


def _place(read: str | Path) -> Path | None:
    # Imported when a file is to be written: the help of all commands needs none of it.
    from clockhands.configs.targets import path_of

    return read if isinstance(read, Path) else path_of(read)


def write_whole(path: Path, write: Callable[[Path], object], *, force: bool, reads: Sequence[str | Path] = ()) -> None:
    """Write a file under a temporary name and rename it when it is complete.

    Args:
        path: The final path.
        write: Writes the content to the path that it is given.
        force: Whether an existing file may be replaced.
        reads: What is never replaced, as in `not_there`.
    """
    # Imported when a file is to be written: the help of all commands needs none of it.
    from shutil import copymode

    from clockhands.formats import files

    not_there(path, force=force, reads=reads)
    unfinished = None
    try:
        unfinished = files.fresh_beside(path)
        write(unfinished)
        if path.exists():
            copymode(path, unfinished)
        try:
            files.rename(unfinished, path, replace=force)
        except FileExistsError:
            not_there(path, force=False)
            raise  # a link whose target is missing
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}.", "Choose another place.") from error
    finally:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, force: bool, reads: Sequence[str | Path] = ()) -> None:
    """Write a text as `write_whole` does."""
    write_whole(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"), force=force, reads=reads)
