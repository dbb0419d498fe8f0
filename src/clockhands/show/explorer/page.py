"""The explorer as one HTML page that opens from disk, and its modules as the one that page, report and notebook load.

Each file of ``js/`` is a module of its own, which Node imports as it stands. A page that opens from disk can import
nothing, so here the files follow one another in the order in which they import each other, without their comments,
indentation, and import and export words; names are unique among them, which a test holds. D3's files stay as they were
published.
"""

import re
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from clockhands.show._markup import document, element

_IMPORT = re.compile(r'^import \{[^}]*\} from "(\.[^"]+)";\n', re.MULTILINE)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_INDENTED = re.compile(r"^ +", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=function|const|class|let|async)", re.MULTILINE)

# In the order in which they need each other.
# Of time and colours, which d3-scale and d3-interpolate name too, nothing is used.
D3 = ("array", "format", "interpolate", "scale", "selection", "axis")

_START = """
const data = JSON.parse(document.getElementById("data").textContent);
const page = explore(document.getElementById("explorer"), data, {
  fragment: location.hash,
  onfragment: (text) => history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search),
});
// The address as it was typed: by now the page may have told its own.
addEventListener("hashchange", (event) => {
  if (page.follow(new URL(event.newURL).hash)) return;
  location.replace(event.newURL);
  location.reload();
});
addEventListener("resize", () => requestAnimationFrame(page.redraw));
"""


def page(data: dict[str, Any], title: str = "clockhands") -> str:
    """The page: style, module and data in one text; only this script may run, and nothing may be fetched.

    Args:
        data: What `clockhands.show.explorer.data` put together: plain JSON values.
        title: What stands in the window's title.
    """
    shown = element(
        "main",
        element("h1", title),
        element("noscript", element("p", "This page computes what it shows, and needs JavaScript for it.")),
        element("div", id="explorer"),
        class_="clockhands",
    )
    script = f"{module()}\n{_START}"
    return document(title, source("style.css"), script, {"data": data}, shown, worker="trained" in data)


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
    text = _INDENTED.sub("", _COMMENT.sub("", _IMPORT.sub("", text)))
    texts[name] = text if path.name == "main.js" else _EXPORT.sub("", text)
