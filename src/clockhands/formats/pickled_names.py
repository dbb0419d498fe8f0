"""Lists what the pickles of a folder would run when they are loaded, without loading them.

A pickle imports by name and calls what it imports. Weights need few names, and the classes of a program are common;
here only names are told that start programs, run text as code, open connections or write files. Other names may lead to
the same: what is told is dangerous, and what is not told is not safe for that.

Source: ``pickletools`` of the standard library, which says what each instruction takes from the stack and puts on it;
``_unsafe_globals`` of picklescan (https://github.com/mmaitre314/picklescan) for the names; ``find_class`` of ``pickle``
for names with dots, which lead from any module into those that it imports.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clockhands.errors import Unreadable
from clockhands.formats import archives, files
from clockhands.formats.pickles import LARGEST
from clockhands.packaged import packaged

_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")

UNREAD = "more than was read"
"""In place of a name, where a pickle goes on behind what is read of it."""

_UNTOLD = "a name that is put together when it is loaded"
MOST_STEPS = 2**20  # of the pickles of a folder; a tensor takes about 35
_MOST_NAMES = 8
_MOST_PICKLES = 5  # in a file: checkpoints from before 2020 have five
_MOST_MEMBERS = 16
_DEEPEST = 4  # pickles inside the bytes of a pickle

_TABLE = packaged(__file__, "names_that_run.json")
_MODULES = frozenset(_TABLE["modules"])
_BUILTINS = ("builtins", "__builtin__", "__builtins__")
_NAMES = {(module, name) for key, names in _TABLE["names"].items() for module in key.split("|") for name in names}


def names_that_run(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each pickle of a folder that would run what its author chose: its file name, and the names that it asks for.

    Where there is more than can be read, `UNREAD` is the last name of the file, which is the last one.
    """
    steps = [MOST_STEPS]
    for path in sorted(each for each in folder.iterdir() if each.name.lower().endswith(_ENDINGS)):
        try:
            names = _names(path, steps)
        except Unreadable:
            continue  # a pipe, or no right to read it
        if names:
            yield path.name, names
        if not steps[0]:
            return


def _names(path: Path, steps: list[int]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for module, name in _imported_names(path, steps):
        if not module or _runs(module, name):
            found[f"{module}.{name}" if module else name] = None
            if len(found) == _MOST_NAMES:
                break
    return tuple(found)


def _runs(module: str, name: str) -> bool:
    parts, steps = module.split("."), name.split(".")
    inside = any(".".join(parts[: number + 1]) in _MODULES for number in range(len(parts)))
    through = any(step.strip("_") in _MODULES for step in steps[:-1]) or steps[0] in _TABLE["alone"]
    return inside or through or (module, steps[0]) in _NAMES or not set(steps).isdisjoint(_TABLE["ways_out"])


def _imported_names(path: Path, steps: list[int]) -> Iterator[tuple[str, str]]:
    """Every name that the pickles of a file import: module and name; "" and words where that cannot be told."""
    with files.open_regular(path) as file:
        start = file.read(2)
        if start != b"PK":
            yield from _in_bytes(start + file.read(LARGEST), _MOST_PICKLES, steps)
            return
    try:
        with archives.open_archive(path, "a zip archive") as archive:
            members = [name for name in archive.namelist() if name.endswith(".pkl")]
            for name in members[:_MOST_MEMBERS]:
                with archives.open_member(archive, path, name) as stream:
                    yield from _in_bytes(stream.read(LARGEST), 1, steps)
    except Unreadable:  # damaged: what reads its tensors says so
        return


def _in_bytes(data: bytes, count: int, steps: list[int], depth: int = 0) -> Iterator[tuple[str, str]]:
    """The names that up to ``count`` pickles import, and those of pickles in their bytes; ``steps`` are used up."""
    # Imported here: most folders have no pickles.
    import pickletools

    takes_attributes = private = False
    stream = io.BytesIO(data)
    try:
        for _ in range(count):
            machine = _Texts(pickletools.markobject)
            for step, argument, _ in pickletools.genops(stream):
                if not steps[0] or depth > _DEEPEST:
                    yield "", UNREAD
                    return
                steps[0] -= 1
                module = name = ""
                if step.name in ("GLOBAL", "INST"):
                    module, _, name = str(argument).partition(" ")
                elif step.name == "STACK_GLOBAL":
                    module, name = machine.two_texts() or ("", _UNTOLD)
                elif isinstance(argument, str):
                    private = private or argument.startswith("__")
                elif isinstance(argument, bytes) and argument.startswith(b"\x80"):
                    yield from _in_bytes(argument, _MOST_PICKLES, steps, depth + 1)
                # Members of enumerations are taken by `getattr` too, and none has such a name.
                if name == "getattr" and module in _BUILTINS:
                    takes_attributes = True
                elif name:
                    yield module, name
                machine.do(step, argument)
    except Exception:  # noqa: BLE001 - no pickle, or a damaged one: it fails in as many ways as its machine has
        if len(data) >= LARGEST:
            yield "", UNREAD
    if takes_attributes and private:
        yield "builtins", "getattr"


class _Texts:
    """The stack of a pickle's machine, as far as texts go: everything else on it is None."""

    def __init__(self, mark: Any) -> None:
        self.mark = mark
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def two_texts(self) -> tuple[str, str] | None:
        """The last two values, if they are texts."""
        found = self.stack[-2:]
        texts = [each for each in found if isinstance(each, str)]
        return (texts[0], texts[1]) if len(texts) == 2 else None

    def do(self, step: Any, argument: Any) -> None:
        """One instruction."""
        name, stack = step.name, self.stack
        if name in _KEPT:
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1] if stack else None
        elif name in _TAKEN:
            stack.append(self.memo.get(argument))
        elif name == "DUP":
            stack.append(stack[-1] if stack else None)
        elif name == "MARK":
            stack.append(self.mark)
        else:
            takes = step.stack_before
            if self.mark in takes:
                while stack and stack.pop() is not self.mark:
                    pass
                takes = takes[: takes.index(self.mark)]
            if takes:
                del stack[-len(takes) :]
            for _ in step.stack_after:
                stack.append(argument if isinstance(argument, str) else None)


_KEPT = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_TAKEN = frozenset(["GET", "BINGET", "LONG_BINGET"])
