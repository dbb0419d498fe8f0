"""Line charts and rows of dots as SVG for the lab's report: axes with units, intervals, labels at the ends of lines.

A line is known by its colour, its dashes and its marker, so that a chart is also read in grey. Colours come from
`lab_report.css`, by the classes ``look-0``, ``look-1``, ...; a line without a look is thin and grey.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from clockhands.show._markup import Markup, element
from clockhands.show._svg import LETTER, Axis, Scale, across, path, sign, svg, tick, upright, words
from clockhands.show.findings import cut

LOOKS = 8
"""How many lines of a chart can be told apart."""

_LINE = 15  # px from one label to the next
_NAME, _WORDS, _BELOW = 24, 16, 40  # px for the name of the vertical axis, for words at marks, for the other axis
_ROW = 18  # px of a row of dots
_FEW = 8  # points of a line that each get a marker, and an interval as a bar

_SHAPES = (
    "m-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z",
    "m-3.2,-3.2h6.4v6.4h-6.4Z",
    "m0,-4.2l4.2,7.4h-8.4Z",
    "m0,-4.6l4.6,4.6l-4.6,4.6l-4.6,-4.6Z",
)


class Point(NamedTuple):
    """A point of a line with its interval, if there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        name: Its label.
        points: From left to right; where ``y`` is not finite the line is broken.
        look: Its colour, dashes and marker, below `LOOKS`; None is thin and grey, without a label.
        bound: Whether it is a bound, and not measured.
    """

    name: str
    points: tuple[Point, ...]
    look: int | None = None
    bound: bool = False

    @property
    def shown(self) -> list[Point]:
        """The points that can be drawn."""
        return [each for each in self.points if math.isfinite(each.y)]


@dataclass(frozen=True)
class Chart:
    """A line chart.

    Attributes:
        x, y: The axes.
        series: The lines.
        marks: Places on the horizontal axis with the words for each.
        says: What is to be seen, for those who do not see it.
    """

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[tuple[float, str], ...] = ()
    says: str = ""

    @property
    def right(self) -> float:
        """Where the longest line ends."""
        return max((each.shown[-1].x for each in self.series if each.shown), default=0.0)

    def labelled(self, series: Series) -> bool:
        """Whether a line has its label at the right edge; one that ends before is named in the key."""
        return bool((series.look is not None or series.bound) and series.shown and series.shown[-1].x >= self.right)


def line_chart(chart: Chart, width: int, height: int) -> Markup:
    """A chart of a size in CSS pixels."""
    return _Drawing(chart, width, height).drawn()


class _Drawing:
    def __init__(self, chart: Chart, width: int, height: int) -> None:
        self.chart, self.width, self.height = chart, width, height
        self.top, self.bottom = _NAME + (_WORDS if chart.marks else 0), height - _BELOW
        shown = [each for each in chart.series if each.shown]
        values = [v for each in shown for p in each.shown for v in (p.y, p.low, p.high) if v is not None]
        self.y = Scale(chart.y, values, self.bottom, self.top).padded(0.05)
        self.ticks = [each for each in self.y.ticks(5) if self.y.inside(each)]
        left = 8 + LETTER * max((len(tick(each)) for each in self.ticks), default=1)
        self.named = [each for each in shown if chart.labelled(each)]
        longest = max((len(each.name) for each in self.named), default=0)
        self.margin = min(18 + LETTER * longest, (0.4 if width < 360 else 0.34) * width) if self.named else 14
        places = [p.x for each in shown for p in each.shown]
        self.x = Scale(chart.x, [*places, *(at for at, _ in chart.marks)], left + 8, width - self.margin)

    def drawn(self) -> Markup:
        behind = (self.line(each) for each in self.chart.series if each.look is None and each.shown)
        before = (self.line(each) for each in self.chart.series if each.look is not None and each.shown)
        parts = [*self.axes(), *self.marks(), *behind, *before, *self.labels()]
        return svg("lab-chart", self.chart.says or self.chart.y.name, self.width, self.height, parts)

    def axes(self) -> Iterator[Markup]:
        left, right, bottom = self.x.first - 8, self.x.last, self.bottom
        yield words(cut(self.chart.y.name, int(self.width / LETTER)), 0, 12, kind="axis-name")
        for value in self.ticks:
            at = self.y(value)
            yield across("grid", at, left, right)
            yield words(tick(value), left - 5, at + 4.5, "end")
        yield across("axis", bottom, left, right)
        free = -math.inf
        for value in self.x.ticks(max(2, int((right - left) / 60))):
            at, half = self.x(value), LETTER * len(tick(value)) / 2
            yield upright("axis", at, bottom, bottom + 4)
            if at - half > free:
                yield words(tick(value), at, bottom + 18, "middle")
                free = at + half + 5
        name = cut(self.chart.x.name, int((self.width - left) / LETTER))
        end = max(right, left + LETTER * len(name))
        yield words(name, end, self.height - 4, "end", "axis-name")

    def marks(self) -> Iterator[Markup]:
        free = 0.0
        for place, name in sorted(self.chart.marks):
            at, long = self.x(place), LETTER * len(name)
            yield upright("edge", at, self.top - 8, self.bottom)
            start = min(max(at - long / 2, 0, free), self.width - long)
            if free <= start <= at + 4:
                yield words(name, start, self.top - 12)
                free = start + long + 6

    def line(self, series: Series) -> Markup:
        shown = series.shown
        kind = "bound" if series.bound else "others" if series.look is None else f"look-{series.look}"
        few = len(shown) <= _FEW
        parts = [path("line", self.path(series.points))]
        ranged = [p for p in shown if p.low is not None and p.high is not None]
        if series.look is not None:
            step = 1 if few else math.ceil(len(shown) / _FEW)  # each look begins elsewhere, as lines may coincide
            if ranged and few:
                bars = "".join(f"M{self.x(p.x)},{self.y(p.low or 0)}V{self.y(p.high or 0)}" for p in ranged)
                parts.insert(0, path("bar", bars))
            elif len(ranged) > 1:
                around = [(p.x, p.low or 0.0) for p in ranged] + [(p.x, p.high or 0.0) for p in reversed(ranged)]
                edge = "L".join(f"{self.x(x)},{self.y(y)}" for x, y in around)
                parts.insert(0, path("band", f"M{edge}Z"))
            parts.append(marker(series.look, [(self.x(p.x), self.y(p.y)) for p in shown[series.look % step :: step]]))
        elif len(shown) == 1:
            parts = [marker(0, [(self.x(shown[0].x), self.y(shown[0].y))])]
        return element("g", element("title", series.name), parts, class_=kind)

    def path(self, points: Sequence[Point]) -> str:
        text, pen = "", "M"
        for each in points:
            if not math.isfinite(each.y):
                pen = "M"
                continue
            text += f"{pen}{self.x(each.x)},{self.y(each.y)}"
            pen = "L"
        return text

    def labels(self) -> Iterator[Markup]:
        """A label at the end of each line, moved apart where two would overlap."""
        ends = sorted((self.y(each.shown[-1].y), place, each) for place, each in enumerate(self.named))
        wanted = _apart([end for end, _, _ in ends], self.top, self.bottom)
        start = self.x.last + 12
        most = max(3, int((self.width - start) / LETTER))
        for (end, _, series), at in zip(ends, wanted, strict=True):
            kind = "bound" if series.look is None else f"look-{series.look}"
            if abs(end - at) > 3:
                yield path(f"leader {kind}", f"M{self.x.last + 5},{end}L{start - 1},{at}")
            yield words(shortened(series.name, most), start + 1, at + 4.5, kind=f"label {kind}")


def shortened(name: str, most: int) -> str:
    """A name without its middle where it is too long: names that begin alike mostly end differently.

    >>> shortened("sinusoidal-base-1000000", 15), shortened("rotary", 15)
    ('sinusoi…1000000', 'rotary')
    """
    if len(name) <= most:
        return name
    tail = (most - 1) // 2
    return f"{name[: most - 1 - tail]}…{name[len(name) - tail :]}"


def _apart(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """The places nearest to those that are wanted, in the same order, with room for a line of text between them.

    Less ``i * step`` they need only not fall, so that this is an isotonic regression: neighbours in the wrong order
    share their mean.

    >>> _apart([50.0, 52.0, 90.0], 0, 100)
    [43.5, 58.5, 90.0]
    """
    step = min(_LINE, (high - low) / max(1, len(wanted) - 1))
    blocks: list[list[float]] = []
    for place, each in enumerate(wanted):
        blocks.append([each - place * step])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    level = [fmean(block) for block in blocks for _ in block]
    most = high - step * (len(wanted) - 1)
    return [min(max(each, low), most) + place * step for place, each in enumerate(level)]


def marker(look: int, places: Iterable[tuple[float, float]]) -> Markup:
    """The marker of a look at some places: four shapes, filled and then hollow."""
    shape = _SHAPES[look % len(_SHAPES)]
    drawn = "".join(f"M{x},{y}{shape}" for x, y in places)
    return path("marker hollow" if look >= len(_SHAPES) else "marker", drawn)


def swatch(look: int | None) -> Markup:
    """The look of a line beside its name in a key or a table; a grey dash for those without."""
    dot = None if look is None else marker(look, [(14.0, 8.0)])
    kind = "others" if look is None else f"look-{look}"
    return sign("lab-chart lab-swatch", element("g", path("line", "M1,8H27"), dot, class_=kind), 28)


def dot_swatch(condition: int) -> Markup:
    """The marker of a condition of `dot_rows`, for its key."""
    drawn = element("g", marker(_condition(condition), [(7.0, 8.0)]), class_="dots")
    return sign("lab-chart lab-swatch", drawn, 14)


def _condition(number: int) -> int:
    """The first is a filled disc; the others are hollow, and not discs."""
    return 4 + number % len(_SHAPES) if number else 0


@dataclass(frozen=True)
class DotRow:
    """A row of dots: one for each of the same few conditions, None where it was not measured."""

    name: str
    dots: tuple[Point | None, ...]
    look: int | None = None


@dataclass(frozen=True)
class DotChart:
    """Rows of dots: for more names than lines can be told apart.

    Attributes:
        axis: The axis of all dots.
        rows: The rows, from above.
        conditions: What each dot of a row was measured under; of a single one nothing is to be said.
        says: What is to be seen, for those who do not see it.
    """

    axis: Axis
    rows: tuple[DotRow, ...]
    conditions: tuple[str, ...] = ()
    says: str = ""


def dot_rows(chart: DotChart, width: int) -> Markup:
    """One row for each name, with a marker for each condition.

    The marker of the first condition is a filled disc; the others are hollow.
    """
    rows, axis = chart.rows, chart.axis
    bottom = _NAME + _ROW * len(rows)
    left = min(12 + LETTER * max((len(row.name) for row in rows), default=0), 0.42 * width)
    dots = [dot for row in rows for dot in row.dots if dot is not None and math.isfinite(dot.x)]
    values = [value for dot in dots for value in (dot.x, dot.low, dot.high) if value is not None]
    x = Scale(axis, values, left + 6, width - 14).padded(0.04)
    parts = [words(cut(axis.name, int(width / LETTER)), 0, 12, kind="axis-name")]
    for value in filter(x.inside, x.ticks(4)):
        parts.append(upright("grid", x(value), _NAME, bottom))
        parts.append(words(tick(value), x(value), bottom + 18, "middle"))
    parts.append(across("axis", bottom, round(left, 1), width - 8))
    most = int(left / LETTER)
    parts += [_dots(row, x, _NAME + _ROW * place + _ROW / 2, most) for place, row in enumerate(rows)]
    return svg("lab-chart lab-rows", chart.says or axis.name, width, bottom + _BELOW - 14, parts)


def _dots(row: DotRow, x: Scale, y: float, most: int) -> Markup:
    kind = "others" if row.look is None else f"look-{row.look}"
    shown = [(number, dot) for number, dot in enumerate(row.dots) if dot is not None and math.isfinite(dot.x)]
    parts = [element("title", row.name), words(shortened(row.name, most), 0, y + 4.5, kind="label")]
    if shown:
        ends = [x(dot.x) for _, dot in shown]
        parts.append(path("rule", f"M{min(ends)},{y}H{max(ends)}"))
        for _, dot in shown:
            if dot.low is not None and dot.high is not None:
                parts.append(path("bar", f"M{x(dot.low)},{y}H{x(dot.high)}"))
        parts += [marker(_condition(number), [(x(dot.x), y)]) for number, dot in reversed(shown)]
    else:
        parts.append(words("not a number", x.first, y + 4.5))
    return element("g", parts, class_=kind)
