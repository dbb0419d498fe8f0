"""Python files as data: the text is parsed to a syntax tree, and never imported or run."""

import ast
import warnings
from pathlib import Path

from clockhands.errors import Unreadable
from clockhands.formats.files import open_binary

# The largest of the 2,534 files of models in Transformers 5.23 has 0.2 MB.
LARGEST = 2 * 2**20

# The deepest of them has 28 levels. The limit keeps functions on trees far from Python's own.
DEEPEST = 150


def syntax_tree(text: str, name: str) -> ast.Module:
    """The syntax tree of a Python file; ``name`` is the file as messages call it.

    Raises:
        Unreadable: It is no Python, larger than 2 MiB, or deeper than any program.
    """
    if len(text) > LARGEST:
        raise _refusal(name, f"is larger than {LARGEST // 2**20} MiB")
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that newer releases of Python refuse
            tree = ast.parse(text)
    except SyntaxError as error:
        raise _refusal(name, f"is not valid Python at line {error.lineno or 1}") from None
    except ValueError:
        raise _refusal(name, "holds null bytes") from None
    except (RecursionError, MemoryError):
        raise _refusal(name, f"nests more than {DEEPEST} levels") from None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    raise _refusal(name, f"nests more than {DEEPEST} levels")


def read(path: Path) -> ast.Module:
    """The syntax tree of a Python file.

    Raises:
        Unreadable: It is no Python, larger than 2 MiB, deeper than any program, or cannot be read.
    """
    try:
        with open_binary(path) as file:
            held = file.read(LARGEST + 1)
        text = held.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refusal(path.name, "is not UTF-8 text") from None
    return syntax_tree(text, path.name)


def _refusal(name: str, what: str) -> Unreadable:
    return Unreadable(f"{name} {what}, so its code is not read.", "Check that this is the code of the model.")
