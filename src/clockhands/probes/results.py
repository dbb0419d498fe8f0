"""The result of one measurement of a probe, in one form for JSON, the terminal and the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
class ProbeResult:
    """What one measurement found.

    Attributes:
        name: ``price``, ``behaviour``, ``live`` or ``mechanism``.
        answers: Sentences, the most important one first: what the model does, with the number.
        columns: Tables for the terminal and the page.
        figures: Figures for the page.
        numbers: Everything measured, for JSON.
    """

    name: str
    answers: tuple[str, ...]
    numbers: Mapping[str, Any]
    columns: tuple[Columns, ...] = ()
    figures: tuple[Figure, ...] = ()
