"""Prints the results of a probe on a terminal, and writes them as one HTML page; answers come before tables."""

from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from rich.text import Text

from clockhands.show._head_map import head_map
from clockhands.show._html import NONE, heading, numbers_table, page, panels
from clockhands.show._lab_charts import LOOKS, Chart, DotChart, DotRow, Point, Series, dot_rows, line_chart
from clockhands.show._markup import Markup, element
from clockhands.show._page import Page, broken, console_on, safe
from clockhands.show._svg import Axis
from clockhands.show.findings import IN_TITLES, cut, short_name

if TYPE_CHECKING:
    from clockhands.probes import Probe
    from clockhands.probes.results import Columns, Figure, Picture, ProbeResult

PROBE = "clockhands-probe"
"""The id of the script element that holds what ``clockhands probe --json`` prints."""

_TITLES = {
    "price": "Price of faults",
    "behaviour": "Behaviour",
    "live": "Positions in effect at run time",
    "mechanism": "Mechanism",
    "steps": "Along the training",
}
_HEIGHT = 260  # px of a chart
_WIDEST = 44  # columns of a text in a table on the terminal


def print_probe(found: "Probe", file: IO[str] | None = None, width: int | None = None) -> None:
    """Print what a probe found.

    Args:
        found: What to show.
        file: Where to print; None is standard output.
        width: Columns to use; None takes the terminal's.
    """
    page = Page(console_on(file, width))
    page.line(Text(safe(found.target), style="bold"))
    page.paragraph(found.size, style="dim", indent=2)
    for result in found.results:
        print_result(page, result)
    for note in found.notes:
        page.line()
        page.paragraph(note, style="bold")


def print_results(results: "Sequence[ProbeResult]", file: IO[str] | None = None, width: int | None = None) -> None:
    """Print measurements below the report of an audit."""
    page = Page(console_on(file, width))
    for result in results:
        print_result(page, result)


def print_result(page: Page, result: "ProbeResult") -> None:
    """Print one measurement: its answers, then its tables."""
    page.line()
    page.line(Text(_TITLES.get(result.name, result.name), style="bold"))
    for answer in result.answers:
        page.paragraph(answer, indent=2)
    for table in result.columns:
        page.line()
        page.paragraph(table.title, style="dim", indent=2)
        _print_table(page, table)


def _print_table(page: Page, table: "Columns") -> None:
    """Print columns side by side; the last one is wrapped at the end of the line."""
    cells = [list(table.heads), *([_cell(each) for each in row] for row in table.rows)]
    last = len(table.heads) - 1
    sizes = [min(_WIDEST, max(len(row[column]) for row in cells)) for column in range(last)]
    texts = _texts(table)
    for number, row in enumerate(cells):
        start = "  " + "".join(
            f"{text:<{size}}  " if column in texts else f"{text:>{size}}  "
            for column, (text, size) in enumerate(zip(row, sizes, strict=False))
        )
        lines = broken(row[last], max(16, page.width - len(start)))
        for place, line in enumerate(lines):
            page.line(Text((start if place == 0 else " " * len(start)) + line, style="dim" if number == 0 else ""))


def _texts(table: "Columns") -> set[int]:
    """The columns in which not every value is a number."""
    columns = enumerate(zip(*table.rows, strict=True))
    numbers = {at for at, column in columns if all(each is None or isinstance(each, int | float) for each in column)}
    return set(range(len(table.heads))) - numbers


def _cell(value: str | float | int | None) -> str:
    """A value of a table: four significant digits, without the sign of a zero.

    >>> _cell(2.12345), _cell(-3e-9), _cell(8192), _cell(None)
    ('2.123', '-3e-09', '8,192', '–')
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}"


def probe_page(found: "Probe") -> str:
    """The results of a probe as one HTML page that fetches nothing, with its JSON inside.

    Args:
        found: What to show.

    Returns:
        A whole HTML document.
    """
    title, shown = f"Probe of {cut(short_name(found.target), IN_TITLES)}", element("article", _article(found))
    return page(title, {PROBE: found.to_dict()}, shown, kind="lab", sheets=["lab_report.css"])


def _article(found: "Probe") -> Iterator[Markup]:
    yield heading(short_name(found.target))
    yield element("p", cut(found.target), class_="note path")
    for result in found.results:
        for answer in result.answers[:2]:
            yield element("p", answer, class_="report-verdict")
    for note in found.notes:
        yield element("p", note, class_="report-verdict")
    yield element("p", found.size, class_="note")
    for result in found.results:
        yield element("section", _section(result), id=result.name)


def _section(result: "ProbeResult") -> Iterator[Markup]:
    yield element("h2", _TITLES.get(result.name, result.name))
    for answer in result.answers:
        yield element("p", answer, class_="answer")
    for figure in result.figures:
        yield element("h3", figure.title)
        yield panels([_drawing(figure)])
    for table in result.columns:
        rows = ([_cell(each) for each in row] for row in table.rows)
        yield numbers_table(table.title, table.heads, rows, _texts(table))


def _drawing(figure: "Picture") -> Callable[[int], Markup]:
    """What draws a picture at a width in pixels."""
    from clockhands.probes.results import EstimateRows, HeadMap

    if isinstance(figure, HeadMap):
        says = f"{figure.title}: {figure.unit} of each head of each layer"
        return lambda width: head_map(figure.values, figure.unit, width, says)
    if isinstance(figure, EstimateRows):
        rows = tuple(DotRow(name, (Point(value, 0.0, low, high),), 0) for name, value, low, high in figure.rows)
        chart = DotChart(Axis(figure.x_label), rows, says=f"{figure.title}: numbers in the table")
        return lambda width: dot_rows(chart, width)
    return lambda width: line_chart(_chart(figure), width, _HEIGHT)


def _chart(figure: "Figure") -> Chart:
    series = tuple(
        Series(each.label, tuple(map(Point, each.x, each.y)), place if place < LOOKS else None)
        for place, each in enumerate(figure.curves)
    )
    return Chart(Axis(figure.x_label), Axis(figure.y_label), series, says=figure.title)
