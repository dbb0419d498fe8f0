"""Write the path of the course as one page without a network: `show/explorer/course.html`, for `clockhands learn`.

Every cell is run, and what it prints stands below it. Views of the explorer are frames of the page `explorer.html`
beside this one. A link to another page of the documentation is its text. It needs what `make docs` needs.
"""

import ast
import contextlib
import io
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from IPython.display import SVG, Markdown
from markdown_it import MarkdownIt

from clockhands.show._markup import Markup, element

ROOT = Path(__file__).resolve().parents[1]
COURSE = ROOT / "docs" / "course"
PAGE = ROOT / "src" / "clockhands" / "show" / "explorer" / "course.html"

PATH = re.compile(r"^1\. \[\]\((\w+)\.md\)$", re.MULTILINE)  # as the index lists it
CELL = re.compile(r"^```\{code-cell\} python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FRAME = re.compile(r"^```\{raw\} html\n(?P<frame><iframe .*?)^```$", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
CONTENTS = re.compile(r"^```\{toctree\}.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!\!)\[(?P<text>[^][]*)\]\((?P<target>[^)\s:]+)\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) ", re.MULTILINE)

STYLE = """
:root { color-scheme: light dark; }
body { font: 1.0625rem/1.55 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 2.25rem; line-height: 1.15; } h2 { margin-top: 4rem; border-top: 1px solid #8888; padding-top: 1rem; }
pre { overflow: auto; background: #8881; padding: .6rem .8rem; font-size: .875rem; line-height: 1.4; margin: .5rem 0; }
pre.out { background: none; border-left: 3px solid #8888; }
iframe { width: 100%; height: 760px; border: 1px solid #8888; }
svg { max-width: 100%; height: auto; } table { border-collapse: collapse; display: block; overflow-x: auto; }
:is(th, td) { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8886; vertical-align: top; }
"""


@cache
def course() -> dict[str, Any]:
    """What the pages themselves are made with."""
    return runpy.run_path(str(COURSE / "settled.py"))


def names() -> list[str]:
    """The chapters of the path, in its order: all of them would double what the page takes in a wheel."""
    return PATH.findall((COURSE / "index.md").read_text(encoding="utf-8"))


def title(name: str) -> str:
    """The question of a chapter."""
    return course()["title"](course()["chapters"]()[name])


def written(markdown: str) -> str:
    """Markdown as HTML; links lead to chapters of the page, and others are their text."""

    def followed(found: re.Match[str]) -> str:
        name = found["target"].removesuffix(".md")
        return f"[{found['text'] or title(name)}](#{name})" if name in names() else found["text"]

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(followed, part) for part in parts[::2]]
    return MarkdownIt("commonmark", {"html": True}).enable("table").render("".join(parts))


def results(name: str, page: str) -> Iterator[str]:
    """What each cell of a page shows, as HTML; cells share their names, as in a notebook."""
    held: dict[str, Any] = {"__name__": "page"}
    for found in CELL.finditer(page):
        body = ast.parse(found["code"]).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        printed = io.StringIO()
        value: object = None
        with contextlib.redirect_stdout(printed), contextlib.chdir(COURSE), warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(ast.Module(body, []), f"{name}.md", "exec"), held)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{name}.md", "eval"), held)
        text = printed.getvalue()
        shown = str(element("pre", element("code", text), class_="out")) if text else ""
        if isinstance(value, SVG):
            shown += element("div", Markup(value.data), class_="plot")
        elif isinstance(value, Markdown):
            shown += written(str(value.data))
        yield shown


def chapter(name: str) -> str:
    """A chapter as HTML, with what its cells show."""
    page = course()["chapters"]()[name]
    shown = results(name, page)
    text = FRAME.sub(lambda found: found["frame"].replace('src="../', 'src="'), HEADER.sub("", page))
    parts = CELL.split(text)
    parts[::2] = [written(HEADING.sub(r"#\1 ", part)) for part in parts[::2]]
    parts[1::2] = [f"{element('pre', element('code', code))}\n{next(shown)}\n" for code in parts[1::2]]
    return f'<section id="{name}">\n{"".join(parts)}</section>\n'


def page() -> str:
    """The whole page: what the course is, its contents, and the chapters of the path."""
    contents = f"All {len(course()['chapters']())} chapters are pages of the documentation; here are the six."
    index = CONTENTS.sub(contents, (COURSE / "index.md").read_text(encoding="utf-8"))
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self' file:; base-uri 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "How transformers know positions"),
        element("style", Markup(STYLE)),
    )
    lesson = element("p", element("a", "First the lesson: ten minutes, twelve pictures", href="explorer.html"))
    shown = "\n".join([lesson, written(index), *map(chapter, names())])
    return f"<!doctype html>\n{element('html', head, element('body', element('main', Markup(shown))), lang='en')}\n"


def main() -> int:
    sys.path.insert(0, str(COURSE))
    text = page()
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {len(text.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
