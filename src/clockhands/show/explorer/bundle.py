"""The explorer's modules as one ES module: what a page, a report and a notebook load.

Each file of ``js/`` is a module of its own, which Node imports as it stands. A page that opens from disk can import
nothing, so here the files follow one another in the order in which they import each other, without their import
and export words; names are unique among them, which a test holds. D3's files stay as they were published.
"""

import re
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=function|const|class|let|async)", re.MULTILINE)

# In the order in which they need each other.
D3 = ("array", "color", "format", "interpolate", "time", "time-format", "path", "scale", "shape", "selection", "axis")


def source(name: str) -> str:
    """The text of a file of the explorer, such as ``js/main.js``."""
    return files("clockhands.show.explorer").joinpath(*PurePosixPath(name).parts).read_text("utf-8")


@cache
def module() -> str:
    """The whole explorer as one ES module."""
    return f"{_d3()}\n{_joined('js/main.js')}"


def _d3() -> str:
    """D3's modules, each given the same object, so that nothing of the page is touched."""
    parts = (source(f"vendor/d3-{name}.min.js") for name in D3)
    # Each finds `exports` and `require`, as in Node.
    wrapped = (f"((exports, module, require, define) => {{\n{part}\n}})(d3, {{}}, () => d3);" for part in parts)
    return "\n".join(["const d3 = {};", *wrapped])


def _joined(start: str) -> str:
    """A module after all that it imports."""
    texts: dict[str, str] = {}
    _gather(PurePosixPath(start), texts)
    return "\n".join(texts.values())


def _gather(path: PurePosixPath, texts: dict[str, str]) -> None:
    name = str(path)
    if name in texts:
        return
    text = source(name)
    for imported in _IMPORT.findall(text):
        parts: list[str] = []
        for part in (path.parent / imported).parts:
            if part == "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        _gather(PurePosixPath(*parts), texts)
    text = _IMPORT.sub("", text)
    texts[name] = text if path.name == "main.js" else _EXPORT.sub("", text)
