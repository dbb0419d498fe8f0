"""Imports a function by its name, ``package.module:callable``, from the user's path, only when a command calls it.

Importing runs the module. So this is never used for a target that could be a file or a preset, and only by commands
that call functions.
"""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clockhands.errors import InvalidValue, Unreadable
from clockhands.phrases import did_you_mean, shown

NAMED = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
"""What a function's name looks like."""


def load(text: str) -> Callable[..., Any]:
    """The function with that name; its module is searched in the current folder first, as with ``python -m``.

    Raises:
        Unreadable: There is no such module or name, importing it fails, or the object cannot be called.
    """
    found = NAMED.fullmatch(text)
    if found is None:
        raise Unreadable(f"{shown(text)} does not name a function.", "Write package.module:callable.")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(found["module"])
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _unimported(found["module"], error) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
    for part in found["name"].split("."):
        if not hasattr(value, part):
            question = did_you_mean(part, dir(value))
            hint = f"{question} Write package.module:callable.".lstrip()
            raise Unreadable(f"{found['module']} has no {part!r}.", hint)
        value = getattr(value, part)
    if not callable(value):
        raise Unreadable(
            f"{text} is of type {type(value).__name__}, which cannot be called.",
            "Name a function(x [seq, width], positions [seq]).",
        )
    return value


def refuse_source(target: str) -> None:
    """Refuse a function that is named by its source file.

    Raises:
        InvalidValue: The target is ``folder/module.py:callable``; the hint gives the right form.
    """
    file, _, name = target.partition(".py:")
    if target.endswith(".py"):
        file, name = target.removesuffix(".py"), "FUNCTION"
    if not name or not Path(f"{file}.py").is_file():
        return
    module = Path(file)
    where = "" if str(module.parent) == "." else f" in the folder {module.parent}"
    raise InvalidValue(
        f"{file}.py is a Python file. Give the function as MODULE:FUNCTION, not as a file.",
        f"Write {module.name}:{name}{where}.",
    )


def _unimported(module: str, error: BaseException) -> Unreadable:
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
