"""How Sphinx builds the pages that `tools/documentation.py` brings together; run by `make docs`."""

import re
from importlib.metadata import version as installed
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

project = "clockhands"
author = "The clockhands authors"
version = release = installed("clockhands")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"clockhands {version}"
html_copy_source = False
# A field that filters the rows and sections of long pages.
html_static_path = ["static"]
html_js_files = ["filter.js"]
html_css_files = ["filter.css", "course.css"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "dollarmath"]
# Pages of the course are run each time, in a process of their own each; an error in one is a warning.
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
# A message on stderr is a warning, and so an error of the build.
nb_output_stderr = "warn"
# Tables that cells make are Markdown with links, which Sphinx checks.
nb_render_markdown_format = "myst"
# `heads` in a docstring may be a public name of three encodings, or an argument: it is only code there.
suppress_warnings = ["ref.python"]
lexers["mermaid"] = TextLexer()  # drawn by the pages of git hosts; text here

napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# A name in single backquotes is code, and a link where it is a public name.
default_role = "py:obj"


_SEVERAL = re.compile(r"^(?P<indent> {4})(?P<names>\w+(?:, \w+)+):(?P<text> .*)$")


def _readable(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Attributes that are described together get a line each; shapes such as [heads, *pairs] are no emphasis."""
    begin = lines.index("Attributes:") if "Attributes:" in lines else len(lines)
    end = next((at for at in range(begin + 1, len(lines)) if re.match(r"\w", lines[at])), len(lines))
    for at in reversed(range(begin, end)):
        several = _SEVERAL.match(lines[at])
        if several is not None:  # Napoleon reads one name
            names = several["names"].split(", ")
            lines[at] = f"{several['indent']}{names[-1]}:{several['text']}"
            lines[at:at] = [f"{several['indent']}{name}: As `{names[-1]}`." for name in names[:-1]]
    lines[:] = [re.sub(r"(?<=[\[ ])\*(?=\w)", r"\\*", line) for line in lines]


def setup(app: Any) -> None:
    """Prepare docstrings before Napoleon reads them."""
    app.connect("autodoc-process-docstring", _readable, priority=400)
