"""The result of one measurement of a probe, in a common form for JSON, the terminal and the HTML page."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Progress = Callable[[str, float], None]
"""Called before each step of a measurement: what is measured now, and the share of the measurement that is done."""


@dataclass(frozen=True)
class Columns:
    """A table of numbers.

    Attributes:
        title: What the table shows, with the unit.
        heads: One heading for each column.
        rows: A text or a number for each column; None where a number could not be measured.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]


@dataclass(frozen=True)
class Curve:
    """A line of a figure, or points where `line` is false."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    line: bool = True


@dataclass(frozen=True)
class Figure:
    """Curves over one axis; the labels carry the units."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class EstimateRows:
    """A row for each name: a number, and the ends of its interval if it has one; `x_label` carries the unit."""

    title: str
    x_label: str
    rows: tuple[tuple[str, float, float | None, float | None], ...]


@dataclass(frozen=True)
class HeadMap:
    """A number for each head of each layer, [layers, heads], in a unit."""

    title: str
    unit: str
    values: tuple[tuple[float, ...], ...]


Picture = Figure | EstimateRows | HeadMap


@dataclass(frozen=True)
class ProbeResult:
    """What one measurement found.

    Attributes:
        name: ``price``, ``behaviour``, ``live`` or ``mechanism``.
        answers: Sentences, the most important one first: what the model does, with the number.
        columns: Tables for the terminal and the page.
        figures: Pictures for the page.
        numbers: Everything measured, for JSON.
    """

    name: str
    answers: tuple[str, ...]
    numbers: Mapping[str, Any]
    columns: tuple[Columns, ...] = ()
    figures: tuple[Picture, ...] = ()

    def __str__(self) -> str:
        """The name, the answers and the tables, as plain text; `clockhands probe` prints the same."""
        lines = [self.name, *(f"  {answer}" for answer in self.answers)]
        for table in self.columns:
            cells = [table.heads, *(tuple(map(_cell, row)) for row in table.rows)]
            sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
            rows = ("  ".join(map(str.ljust, row, sizes)).rstrip() for row in cells)
            lines += ["", f"  {table.title}", *(f"    {row}" for row in rows)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """One element of ``results`` in the JSON of a probe."""
        return {"name": self.name, "answers": list(self.answers), **self.numbers}


def _cell(value: str | float | int | None) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return "–" if value is None else value


@dataclass
class GatheredResult:
    """A result while it is measured: each part adds to it."""

    answers: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    columns: list[Columns] = field(default_factory=list)
    figures: list[Picture] = field(default_factory=list)

    def table(self, title: str, heads: Sequence[str], rows: Iterable[Sequence[str | float | int | None]]) -> None:
        """Add a table of numbers."""
        self.columns.append(Columns(title, tuple(heads), tuple(map(tuple, rows))))

    def figure(self, title: str, x_label: str, y_label: str, *curves: Curve) -> None:
        """Add curves over one axis."""
        self.figures.append(Figure(title, x_label, y_label, curves))

    def result(self, name: str) -> ProbeResult:
        """What was gathered, under the name of the measurement."""
        return ProbeResult(name, tuple(self.answers), self.numbers, tuple(self.columns), tuple(self.figures))


class Stopped(KeyboardInterrupt):
    """A measurement was interrupted, by Ctrl-C or a signal, and has a part of its result.

    Attributes:
        result: What was measured until then.
    """

    def __init__(self, result: ProbeResult) -> None:
        super().__init__(f"{result.name} was interrupted")
        self.result = result


@contextmanager
def kept_when_stopped(gathered: GatheredResult, name: str) -> Iterator[None]:
    """Keep what was gathered where an interrupt ends the measurement of this name.

    Raises:
        Stopped: It was interrupted; the result holds what was gathered until then.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(gathered.result(name)) from None
