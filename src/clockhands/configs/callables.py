"""Imports what a user names in code, ``package.module:callable`` or ``file.py:callable``, only when a command calls it.

Importing runs the module. So this is never used for a target that could be a file of a model or a preset, and only by
commands that call functions.
"""

import hashlib
import importlib
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clockhands.errors import InvalidValue, Unreadable
from clockhands.phrases import did_you_mean, shown

NAMED = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
"""What a function's name looks like."""

IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)(:(?P<fields>.+))?")
"""An encoding in a file of code: ``path/file.py:Name``, with fields after it as of a preset."""


SAVED_BATCH = (
    "Save a batch that the processor made, with its position_ids: torch.save(dict(batch), FILE), and check that: "
    "clockhands check FILE --kind positions --like {family}"
)
"""What to do in place of naming a processor."""

_PROCESSOR = re.compile(r"^[ \t]*class[ \t]+(\w*Processor\b|\w+\([^)]*Processor(Mixin)?\b)", re.MULTILINE)


def load(text: str, accepts: Callable[[Any], bool] = callable) -> Any:
    """The function with that name, of a file or a module; modules are searched in the current folder first.

    Args:
        text: The name.
        accepts: What else than a function may be named.

    Raises:
        Unreadable: There is no such module or name, importing it fails, or the object cannot be called.
    """
    if found := IN_FILE.fullmatch(text):
        home, value = found["file"], module_of_source(text_of_file(Path(found["file"])), Path(found["file"]))
    elif found := NAMED.fullmatch(text):
        home, value = found["module"], _imported(found["module"])
    else:
        raise Unreadable(f"{shown(text)} does not name a function.", "Write package.module:callable.")
    value = named_in(value, home, found["name"])
    if not callable(value) and not accepts(value):
        raise Unreadable(
            f"{text} is of type {type(value).__name__}, which cannot be called.",
            "Name a function(x [seq, width], positions [seq]).",
        )
    return value


def _imported(name: str) -> Any:
    """The module of this name; the current folder is searched first, as with ``python -m``."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise unimported(name, error) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)


def named_in(value: Any, home: str, name: str) -> Any:
    """What a module has by a name with dots.

    Raises:
        Unreadable: It has no such name.
    """
    for part in name.split("."):
        if not hasattr(value, part):
            question = did_you_mean(part, dir(value))
            hint = f"{question} Write package.module:callable, or file.py:Name for an encoding.".lstrip()
            raise Unreadable(f"{home} has no {part!r}.", hint)
        value = getattr(value, part)
    return value


def text_of_file(path: Path) -> str:
    """The text of a file of code.

    Raises:
        Unreadable: There is no such file, or it is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.", "Write path/file.py:NAME.") from None
    except UnicodeDecodeError:
        raise Unreadable(f"{path} is not text in UTF-8.", "Write path/file.py:NAME.") from None


def module_of_source(source: str, path: Path) -> Any:
    """The module that source code makes; the same object for the same source and path.

    Raises:
        Unreadable: Running it fails.
    """
    digest = hashlib.sha256(str(path).encode() + b"\0" + source.encode()).hexdigest()
    name = f"{path.stem}_{digest[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = str(path)
    sys.path.insert(0, str(path.parent))
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # the user named this file to be run
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise unimported(str(path), error) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def refuse_source(target: str) -> None:
    """Refuse a file of code without the name of a function in it.

    Raises:
        InvalidValue: The target is such a file.
    """
    if target.endswith(".py") and Path(target).is_file():
        hint = f"Name the function or the encoding in it: {target}:NAME."
        if _PROCESSOR.search(text_of_file(Path(target))):
            hint = f"{hint} {SAVED_BATCH.format(family='FAMILY')}."
        raise InvalidValue(f"{target} is a Python file.", hint)


def unimported(module: str, error: BaseException) -> Unreadable:
    """The error that says why a module could not be imported."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        return Unreadable(
            f"There is no module {error.name!r} in {Path.cwd()}, nor is one installed.",
            "Write package.module:callable, in the folder that holds the package.",
        )
    said = str(error).strip().partition("\n")[0]
    return Unreadable(
        f"{module} cannot be imported: {type(error).__name__}{f': {said}' if said else ''}.".replace("..", "."),
        "Fix the module, or run clockhands in the environment that it needs.",
    )
