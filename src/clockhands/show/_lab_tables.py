"""Pieces of the lab's report: verdicts, numbers with their intervals, tables, and charts beside each other."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from clockhands.auditing.findings import spoken
from clockhands.measures.claims import Estimate
from clockhands.show._lab_charts import swatch
from clockhands.show._lab_numbers import interval_of, some_seeds, value_of
from clockhands.show._markup import Markup, element, joined
from clockhands.show.findings import cut

NONE = "–"
"""What is written where there is no number."""

_HALF, _FULL, _PHONE = 384, 800, 320  # px of a chart: two beside each other, one alone, and on a phone
_NAME = 48  # letters of an arm's name in a table

_MARKS = {
    True: ("is-sound", "M2,9L6,13L14,3"),
    False: ("is-error", "M3,3L13,13M13,3L3,13"),
    None: ("is-note", "M8,3a5,5 0 1,0 .01,0Z"),
}


def kind_of(holds: bool | None) -> str:
    """The class of a verdict."""
    return _MARKS[holds][0]


def mark(holds: bool | None) -> Markup:
    """A mark that differs by its shape as well as by its colour; what it says is beside it in words."""
    kind, shape = _MARKS[holds]
    size = {"viewBox": "0 0 16 16", "width": 16, "height": 16}
    return element("svg", element("path", d=shape), class_=f"report-mark {kind}", aria_hidden="true", **size)


def code_words(text: str) -> Markup:
    """A sentence in which what is in backticks is code.

    >>> code_words("under `whole`, a < b")
    'under <code>whole</code>, a &lt; b'
    """
    return joined([element("code", part) if place % 2 else part for place, part in enumerate(text.split("`"))])


def paragraphs(*sentences: str, kind: str = "answer") -> list[Markup]:
    """A paragraph for each sentence that says something."""
    return [element("p", code_words(each), class_=kind) for each in sentences if each]


def with_look(name: str, look: int | None) -> Markup:
    """A name with the look of its line."""
    return joined(swatch(look), f" {cut(name, _NAME)}")


def number(value: Estimate | None, measure: str, seeds: int = 0) -> Markup | str:
    """A mean, with its interval below it, and how many seeds were measured where it is fewer than ``seeds``."""
    if value is None:
        return NONE
    return with_note(value_of(value.mean, measure), interval_of(value, measure), some_seeds(value, seeds))


def with_note(text: str, *notes: str) -> Markup:
    """A cell with lines of small print."""
    return joined(text, [element("span", each, class_="lab-interval") for each in notes if each])


_TERMS = (
    (r"^rotary\b", "RoPE"),
    (r"\bhalves\b|\bhalf-split\b(?! layout)", "half-split layout"),
    (r"\binterleaved\b", "interleaved layout"),
    (r"\blayout (\S+ layout)", r"\1"),
    (r"(\d+) of (\d+) (?:channels|dimensions)", r"RoPE dimensions \1 of \2 per head"),
    (r"geometric \(base ([^,]+), open\)", r"base \1"),
    (r"^Alibi\b", "ALiBi"),
    (r"^Buckets\b", "T5 buckets"),
    (r"^Kerple\b", "KERPLE"),
    (r"^Fire\b", "FIRE"),
    (r", [a-z ]+ False\b", ""),
    (r"(, [a-z ]+) True\b", r"\1"),
    (r"(\d)\.0\b(?!\d)", r"\1"),
)


def in_terms(described: str) -> str:
    """What `clockhands.describe` says about a spec, with the terms that papers and model configs use.

    >>> in_terms("RoPE, half-split, 16 of 16 dimensions, geometric (base 10000, open)")
    'RoPE, half-split layout, RoPE dimensions 16 of 16 per head, base 10000'
    >>> in_terms("Buckets, heads 4, buckets 32, max distance 128, bidirectional False, epsilon 0.0, scale 1.0")
    'T5 buckets, heads 4, buckets 32, max distance 128, epsilon 0, scale 1'
    """
    for pattern, words in _TERMS:
        described = re.sub(pattern, words, described)
    return described


def pairs(rows: Iterable[tuple[str, Markup | str]]) -> Markup:
    """Names and values."""
    lines = (element("div", element("dt", name), element("dd", value)) for name, value in rows)
    return element("dl", lines, class_="report-facts")


def in_words(values: Mapping[str, Any]) -> str:
    """Names and values on one line.

    >>> in_words({"name": "sotu", "scored_tokens": 16384})
    'name sotu, scored tokens 16,384'
    """
    said = (f"{name.replace('_', ' ')} {said_value(value)}" for name, value in values.items())
    return ", ".join(said) or "unknown"


def said_value(value: object) -> str:
    """A value without quotes."""
    return value if isinstance(value, str) else spoken(value)


def words_table(heads: Sequence[str], rows: Iterable[Sequence[Markup | str]], kind: str) -> Markup:
    """A table of words, whose rows are blocks on a phone."""
    return element("table", _parts(heads, rows), class_=f"report-table {kind}")


def numbers_table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[Markup | str]], texts: Container[int] = ()
) -> Markup:
    """A table of numbers; where it is too wide it scrolls sideways in a box with a visible edge, beside the names.

    Args:
        caption: What it shows.
        heads: A heading for each column.
        rows: Cells as they are shown, the name of the row first.
        texts: Columns of texts, which stand left like the names.
    """
    made = element("table", _parts(heads, rows, texts), class_="numbers lab-numbers")
    box = element("div", made, class_="scrolled", tabindex=0, role="region", aria_label=caption)
    kind = "lab-figure is-wide" if len(heads) > 3 else "lab-figure"
    return element("figure", element("figcaption", caption), box, class_=kind)


def _parts(
    heads: Sequence[str], rows: Iterable[Sequence[Markup | str]], texts: Container[int] = ()
) -> tuple[Markup, Markup]:
    def of(column: int) -> str | None:
        return "lab-text" if column in texts else None

    head = element("tr", (element("th", each, scope="col", class_=of(column)) for column, each in enumerate(heads)))
    body = (
        element(
            "tr",
            element("th", name, scope="row"),
            (element("td", each, class_=of(column)) for column, each in enumerate(cells, 1)),
        )
        for name, *cells in rows
    )
    return element("thead", head), element("tbody", body)


def panels(drawn: Sequence[Callable[[int], Markup]]) -> Markup:
    """Charts beside each other, each drawn for a wide page and for a phone."""
    width = _FULL if len(drawn) == 1 else _HALF

    def panel(draw: Callable[[int], Markup]) -> Markup:
        wide, narrow = element("div", draw(width), class_="lab-wide"), element("div", draw(_PHONE), class_="lab-narrow")
        return element("div", wide, narrow, class_="figure")

    return element("div", map(panel, drawn), class_="lab-panels is-one" if len(drawn) == 1 else "lab-panels")
