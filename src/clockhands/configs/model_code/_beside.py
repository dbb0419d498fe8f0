"""The Python files in the folder of a config: those that the config names, and what they import."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clockhands.configs.model_types import model_type
from clockhands.errors import Unreadable
from clockhands.formats import python_files
from clockhands.formats.files import place

if TYPE_CHECKING:
    from clockhands.configs.key_reads import KeyRead
    from clockhands.configs.model_code.code_facts import CodeFacts

# A model has about five such files.
MOST_FILES = 24

_MODULE = re.compile(r"[A-Za-z_]\w*")


@dataclass(eq=False)
class CodeFiles:
    """The Python files of a model.

    Attributes:
        trees: The syntax tree of each file, by name.
        notes: Which files are not read, and why.
    """

    trees: Mapping[str, ast.Module]
    notes: tuple[str, ...]
    _known: "list[tuple[Mapping[str, Any], CodeFacts]]" = field(default_factory=list)

    @cached_property
    def reads(self) -> "tuple[KeyRead, ...]":
        """Every key of a config that the files read."""
        # Imported here, as below: most models have no code of their own.
        from clockhands.configs.key_reads import reads_in

        return tuple(read for name, tree in self.trees.items() for read in reads_in(tree, name))

    def of(self, config: Mapping[str, Any], file: str) -> "CodeFacts | None":
        """What they say of a model with a config; None if there is no file. It is read once for each config."""
        if not self.trees:
            return None
        for known, code in self._known:
            if known == config:
                return code
        from clockhands.configs.model_code.code_facts import read_code

        self._known.append((config, read_code(self.trees, config, file)))
        return self._known[-1][1]


def code_beside(folder: Path, config: Mapping[str, Any]) -> CodeFiles | None:
    """The Python files beside a config; None if there are none.

    Files are looked for where ``auto_map`` names them without another repository, or where the type is not known.
    """
    trees: dict[str, ast.Module] = {}
    notes: list[str] = []
    waiting = list(_named(folder, config))
    for name in waiting:
        file = f"{name}.py"
        if file in trees or place(folder / file) != "file":
            continue
        if len(trees) == MOST_FILES:
            notes.append(f"Only {MOST_FILES} of the Python files beside the config are read.")
            break
        try:
            trees[file] = python_files.read(folder / file)
        except Unreadable as error:
            notes.append(error.message)
            continue
        waiting += [each for each in _imported(trees[file]) if each not in waiting]
    return CodeFiles(trees, tuple(notes)) if trees or notes else None


def _named(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """The modules that a config names, or all of them where it names neither modules nor a type that is known."""
    named = config.get("auto_map")
    if isinstance(named, Mapping):
        for each in named.values():
            module, _, kind = each.rpartition(".") if isinstance(each, str) else ("", "", "")
            if kind and _MODULE.fullmatch(module):
                yield module
        return
    own = config.get("model_type")
    if isinstance(own, str) and model_type(own) is None:
        yield from sorted(
            each.stem for each in folder.glob("*.py") if each.stem.startswith(("modeling_", "configuration_"))
        )


def _imported(tree: ast.Module) -> Iterator[str]:
    """The modules of the same folder that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and _MODULE.fullmatch(node.module):
            yield node.module
