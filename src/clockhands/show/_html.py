"""Pieces of HTML pages: the page, verdict marks, sentences, names with values, tables, and charts beside each other."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from clockhands.show import _svg
from clockhands.show._markup import Markup, document, element, joined
from clockhands.show.explorer.page import source
from clockhands.show.findings import cut

NONE = "–"
"""What is written where there is no number."""

SIGNS = {
    "error": "M3,3L13,13M13,3L3,13",
    "warning": "M8,2L15,14H1Z",
    "note": "M8,3a5,5 0 1,0 .01,0Z",
    "sound": "M2,9L6,13L14,3",
}
"""The mark of each grade as the path of an SVG: it differs in shape as well as in colour."""

_HALF, _FULL, _PHONE = 384, 800, 320  # px of a chart: two beside each other, one alone, and on a phone

Content = Markup | str
"""What a cell or a paragraph holds."""


def page(
    title: str,
    held: Mapping[str, Mapping[str, Any]],
    *shown: Markup | Iterable[Markup] | None,
    kind: str = "",
    sheets: Iterable[str] = (),
    script: str = "",
) -> str:
    """A whole page in the style of the reports.

    Args:
        title: The window's title.
        held: Data in the page, by the ids of the elements that hold them as JSON.
        shown: What the page shows.
        kind: A further class of the page.
        sheets: Further style sheets.
        script: One ES module, which runs when the page is there.
    """
    own = (files("clockhands.show").joinpath(each).read_text("utf-8") for each in ("report.css", *sheets))
    main = element("main", *shown, class_=f"clockhands report {kind}".rstrip())
    return document(title, source("style.css") + "".join(own), script, held, main)


def heading(name: str, level: int = 1) -> Markup:
    """The name of what a page or a part of it is about."""
    return element(f"h{level}", cut(name), class_="report-name")


def foot(*words: Content) -> Markup:
    """The last line: which version made the page, and what else is to be known of it."""
    return element("p", f"clockhands {version('clockhands')}.", *words, class_="note report-foot")


def mark(grade: str) -> Markup:
    """The mark of a grade; the text next to it says the same."""
    return _svg.sign(f"report-mark is-{grade}", element("path", d=SIGNS[grade]), 16)


def code_words(text: str) -> Markup:
    """A sentence in which what is in backticks is code.

    >>> code_words("under `whole`, a < b")
    'under <code>whole</code>, a &lt; b'
    """
    return joined([element("code", part) if place % 2 else part for place, part in enumerate(text.split("`"))])


def paragraphs(*sentences: str, kind: str = "answer") -> list[Markup]:
    """A paragraph for each sentence that says something."""
    return [element("p", code_words(each), class_=kind) for each in sentences if each]


def preformatted(lines: Iterable[Content]) -> Markup:
    """Lines as they are."""
    return element("pre", (joined(line, Markup("\n")) for line in lines))


def facts(rows: Iterable[tuple[Content, Content]], kind: str = "report-facts") -> Markup:
    """Names and values."""
    lines = (element("div", element("dt", name), element("dd", value)) for name, value in rows)
    return element("dl", lines, class_=kind)


def table(
    kind: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Content]],
    caption: Markup | None = None,
    numbers: Container[int] = (),
) -> Markup:
    """A table whose rows begin with their name, and are blocks on a phone.

    Args:
        kind: Its further class.
        heads: A heading for each column.
        rows: Cells, the name of the row first.
        caption: What it shows.
        numbers: Columns of numbers, which keep their heading as a label on a phone.
    """

    def of(column: int) -> dict[str, object]:
        return {"class_": "is-number", "data_label": f"{heads[column]}:"} if column in numbers else {}

    return element("table", caption, _head(heads), _body(rows, of), class_=f"report-table {kind}")


def numbers_table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[Content]], texts: Container[int] = ()
) -> Markup:
    """A table of numbers; where it is too wide it scrolls sideways in a box with a visible edge, beside the names.

    Args:
        caption: What it shows.
        heads: A heading for each column.
        rows: Cells as they are shown, the name of the row first.
        texts: Columns of texts, which stand left like the names.
    """

    def of(column: int) -> dict[str, object]:
        return {"class_": "lab-text"} if column in texts else {}

    made = element("table", _head(heads, of), _body(rows, of), class_="numbers lab-numbers")
    box = element("div", made, class_="scrolled", tabindex=0, role="region", aria_label=caption)
    kind = "lab-figure is-wide" if len(heads) > 3 else "lab-figure"
    return element("figure", element("figcaption", caption), box, class_=kind)


def _head(heads: Sequence[str], of: Callable[[int], dict[str, object]] = lambda _: {}) -> Markup:
    cells = (element("th", each, scope="col", **of(column)) for column, each in enumerate(heads))
    return element("thead", element("tr", cells))


def _body(rows: Iterable[Sequence[Content]], of: Callable[[int], dict[str, object]]) -> Markup:
    lines = (
        element(
            "tr",
            element("th", name, scope="row"),
            (element("td", each, **of(column)) for column, each in enumerate(cells, 1)),
        )
        for name, *cells in rows
    )
    return element("tbody", lines)


def panels(drawn: Sequence[Callable[[int], Markup]]) -> Markup:
    """Charts beside each other, each drawn for a wide page and for a phone."""
    width = _FULL if len(drawn) == 1 else _HALF

    def panel(draw: Callable[[int], Markup]) -> Markup:
        wide, narrow = element("div", draw(width), class_="lab-wide"), element("div", draw(_PHONE), class_="lab-narrow")
        return element("div", wide, narrow, class_="figure")

    return element("div", map(panel, drawn), class_="lab-panels is-one" if len(drawn) == 1 else "lab-panels")
