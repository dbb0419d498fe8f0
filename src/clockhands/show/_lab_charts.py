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
from clockhands.show.findings import cut

LOOKS = 8
"""How many lines of a chart can be told apart."""

_LETTER = 7.5  # px of a letter of the charts, at most
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
class Axis:
    """An axis: its name with the unit, whether it is logarithmic, and what it must show."""

    name: str
    log: bool = False
    ticks: tuple[float, ...] | None = None
    holds: tuple[float, ...] = ()


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


class _Scale:
    """Values as pixels."""

    def __init__(self, axis: Axis, values: Iterable[float], first: float, last: float) -> None:
        self.axis, self.first, self.last = axis, first, last
        found = [self.on(each) for each in (*values, *axis.holds) if math.isfinite(each) and (each > 0 or not axis.log)]
        self.low, self.high = min(found, default=0.0), max(found, default=1.0)
        if self.high - self.low < 1e-9 * max(1.0, abs(self.high)):
            room = 0.5 if axis.log or not self.high else abs(self.high) / 4
            self.low, self.high = self.low - room, self.high + room

    def on(self, value: float) -> float:
        """A value as the axis counts it; what a logarithmic axis cannot show is at its lower end."""
        if not self.axis.log:
            return value
        return math.log10(value) if value > 0 else -math.inf

    def inside(self, value: float) -> bool:
        """Whether a value is on the axis."""
        return self.low - 1e-9 <= self.on(value) <= self.high + 1e-9

    def padded(self, share: float) -> "_Scale":
        """The same with room at both ends; zero stays the end where the values begin near it."""
        room = (self.high - self.low) * share
        from_zero = not self.axis.log and 0 <= self.low < 0.3 * self.high
        self.low = 0.0 if from_zero else self.low - room
        self.high += 0 if self.high in self.axis.holds else room
        return self

    def __call__(self, value: float) -> float:
        share = (self.on(value) - self.low) / (self.high - self.low)
        return round(self.first + min(1.0, max(0.0, share)) * (self.last - self.first), 1)

    def ticks(self, about: int) -> list[float]:
        """Few round values on the axis."""
        if self.axis.ticks is not None:
            return list(self.axis.ticks)
        if not self.axis.log:
            return _round_values(self.low, self.high, about)
        powers = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
        if len(powers) > 2:
            return [10.0**power for power in powers[:: math.ceil(len(powers) / about)]]
        near = range(math.floor(self.low), math.ceil(self.high) + 1)
        inside = [step * 10.0**power for power in near for step in (1, 2, 5)]
        return [each for each in inside if self.low <= math.log10(each) <= self.high]


def _round_values(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten.

    >>> _round_values(0, 4.9, 5), _round_values(0.31, 0.42, 4)
    ([0.0, 1.0, 2.0, 3.0, 4.0], [0.35, 0.4])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = next(m * power for m in (1, 2, 5, 10) if (high - low) / (m * power) <= about)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(n * step, digits) for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick(value: float) -> str:
    """A number on an axis.

    >>> tick(4096), tick(0.05), tick(1e6), tick(0.00001)
    ('4,096', '0.05', '10⁶', '10⁻⁵')
    """
    if value and not 1e-3 <= abs(value) < 1e5:
        power = math.floor(math.log10(abs(value)) + 1e-9)
        lead = f"{value / 10.0**power:.3g}"
        raised = "10" + "".join("⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".index(sign)] for sign in str(power))
        return raised if lead == "1" else f"{lead} × {raised}"
    return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"


def line_chart(chart: Chart, width: int, height: int) -> Markup:
    """A chart of a size in CSS pixels."""
    return _Drawing(chart, width, height).drawn()


class _Drawing:
    def __init__(self, chart: Chart, width: int, height: int) -> None:
        self.chart, self.width, self.height = chart, width, height
        self.top, self.bottom = _NAME + (_WORDS if chart.marks else 0), height - _BELOW
        shown = [each for each in chart.series if each.shown]
        values = [v for each in shown for p in each.shown for v in (p.y, p.low, p.high) if v is not None]
        self.y = _Scale(chart.y, values, self.bottom, self.top).padded(0.05)
        self.ticks = [each for each in self.y.ticks(5) if self.y.inside(each)]
        left = 8 + _LETTER * max((len(tick(each)) for each in self.ticks), default=1)
        self.named = [each for each in shown if chart.labelled(each)]
        longest = max((len(each.name) for each in self.named), default=0)
        self.margin = min(18 + _LETTER * longest, (0.4 if width < 360 else 0.34) * width) if self.named else 14
        places = [p.x for each in shown for p in each.shown]
        self.x = _Scale(chart.x, [*places, *(at for at, _ in chart.marks)], left + 8, width - self.margin)

    def drawn(self) -> Markup:
        behind = (self.line(each) for each in self.chart.series if each.look is None and each.shown)
        before = (self.line(each) for each in self.chart.series if each.look is not None and each.shown)
        parts = [*self.axes(), *self.marks(), *behind, *before, *self.labels()]
        return _svg("lab-chart", self.chart.says or self.chart.y.name, self.width, self.height, parts)

    def axes(self) -> Iterator[Markup]:
        left, right, bottom = self.x.first - 8, self.x.last, self.bottom
        yield element("text", cut(self.chart.y.name, int(self.width / _LETTER)), class_="axis-name", x=0, y=12)
        for value in self.ticks:
            at = self.y(value)
            yield element("line", class_="grid", x1=left, x2=right, y1=at, y2=at)
            yield element("text", tick(value), x=left - 5, y=at + 4.5, text_anchor="end")
        yield element("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom)
        free = -math.inf
        for value in self.x.ticks(max(2, int((right - left) / 60))):
            at, half = self.x(value), _LETTER * len(tick(value)) / 2
            yield element("line", class_="axis", x1=at, x2=at, y1=bottom, y2=bottom + 4)
            if at - half > free:
                yield element("text", tick(value), x=at, y=bottom + 18, text_anchor="middle")
                free = at + half + 5
        name = cut(self.chart.x.name, int((self.width - left) / _LETTER))
        end = max(right, left + _LETTER * len(name))
        yield element("text", name, class_="axis-name", x=round(end, 1), y=self.height - 4, text_anchor="end")

    def marks(self) -> Iterator[Markup]:
        free = 0.0
        for place, words in sorted(self.chart.marks):
            at, long = self.x(place), _LETTER * len(words)
            yield element("line", class_="edge", x1=at, x2=at, y1=self.top - 8, y2=self.bottom)
            start = min(max(at - long / 2, 0, free), self.width - long)
            if free <= start <= at + 4:
                yield element("text", words, x=round(start, 1), y=self.top - 12)
                free = start + long + 6

    def line(self, series: Series) -> Markup:
        shown = series.shown
        kind = "bound" if series.bound else "others" if series.look is None else f"look-{series.look}"
        few = len(shown) <= _FEW
        parts = [element("path", class_="line", d=self.path(series.points))]
        ranged = [p for p in shown if p.low is not None and p.high is not None]
        if series.look is not None:
            step = 1 if few else math.ceil(len(shown) / _FEW)  # each look begins elsewhere, as lines may coincide
            if ranged and few:
                bars = "".join(f"M{self.x(p.x)},{self.y(p.low or 0)}V{self.y(p.high or 0)}" for p in ranged)
                parts.insert(0, element("path", class_="bar", d=bars))
            elif len(ranged) > 1:
                around = [(p.x, p.low or 0.0) for p in ranged] + [(p.x, p.high or 0.0) for p in reversed(ranged)]
                edge = "L".join(f"{self.x(x)},{self.y(y)}" for x, y in around)
                parts.insert(0, element("path", class_="band", d=f"M{edge}Z"))
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
        most = max(3, int((self.width - start) / _LETTER))
        for (end, _, series), at in zip(ends, wanted, strict=True):
            kind = "bound" if series.look is None else f"look-{series.look}"
            if abs(end - at) > 3:
                yield element("path", class_=f"leader {kind}", d=f"M{self.x.last + 5},{end}L{start - 1},{at}")
            yield element(
                "text",
                shortened(series.name, most),
                class_=f"label {kind}",
                x=round(start + 1, 1),
                y=round(at + 4.5, 1),
            )


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
    return element("path", class_="marker hollow" if look >= len(_SHAPES) else "marker", d=drawn)


def swatch(look: int | None) -> Markup:
    """The look of a line beside its name in a key or a table; a grey dash for those without."""
    dot = None if look is None else marker(look, [(14.0, 8.0)])
    kind = "others" if look is None else f"look-{look}"
    return _swatch(element("g", element("path", class_="line", d="M1,8H27"), dot, class_=kind), 28)


def dot_swatch(condition: int) -> Markup:
    """The marker of a condition of `dot_rows`, for its key."""
    return _swatch(element("g", marker(_condition(condition), [(7.0, 8.0)]), class_="dots"), 14)


def _swatch(drawn: Markup, width: int) -> Markup:
    kind, box = "lab-chart lab-swatch", f"0 0 {width} 16"
    return element("svg", drawn, class_=kind, viewBox=box, width=width, height=16, aria_hidden="true")


def _condition(number: int) -> int:
    """The first is a filled disc; the others are hollow, and not discs."""
    return 4 + number % len(_SHAPES) if number else 0


@dataclass(frozen=True)
class DotRow:
    """A row of dots: one for each of the same few conditions, None where it was not measured."""

    name: str
    dots: tuple[Point | None, ...]
    look: int | None = None


def dot_rows(rows: Sequence[DotRow], axis: Axis, width: int, says: str = "") -> Markup:
    """One row for each name, with a marker for each condition: for more names than lines can be told apart.

    The marker of the first condition is a filled disc; the others are hollow.
    """
    bottom = _NAME + _ROW * len(rows)
    left = min(12 + _LETTER * max((len(row.name) for row in rows), default=0), 0.42 * width)
    dots = [dot for row in rows for dot in row.dots if dot is not None and math.isfinite(dot.x)]
    values = [value for dot in dots for value in (dot.x, dot.low, dot.high) if value is not None]
    x = _Scale(axis, values, left + 6, width - 14).padded(0.04)
    parts = [element("text", cut(axis.name, int(width / _LETTER)), class_="axis-name", x=0, y=12)]
    for value in filter(x.inside, x.ticks(4)):
        parts.append(element("line", class_="grid", x1=x(value), x2=x(value), y1=_NAME, y2=bottom))
        parts.append(element("text", tick(value), x=x(value), y=bottom + 18, text_anchor="middle"))
    parts.append(element("line", class_="axis", x1=round(left, 1), x2=width - 8, y1=bottom, y2=bottom))
    most = int(left / _LETTER)
    parts += [_dots(row, x, _NAME + _ROW * place + _ROW / 2, most) for place, row in enumerate(rows)]
    return _svg("lab-chart lab-rows", says or axis.name, width, bottom + _BELOW - 14, parts)


def _dots(row: DotRow, x: _Scale, y: float, most: int) -> Markup:
    kind = "others" if row.look is None else f"look-{row.look}"
    shown = [(number, dot) for number, dot in enumerate(row.dots) if dot is not None and math.isfinite(dot.x)]
    parts = [element("title", row.name), element("text", shortened(row.name, most), class_="label", x=0, y=y + 4.5)]
    if shown:
        ends = [x(dot.x) for _, dot in shown]
        parts.append(element("path", class_="rule", d=f"M{min(ends)},{y}H{max(ends)}"))
        for _, dot in shown:
            if dot.low is not None and dot.high is not None:
                parts.append(element("path", class_="bar", d=f"M{x(dot.low)},{y}H{x(dot.high)}"))
        parts += [marker(_condition(number), [(x(dot.x), y)]) for number, dot in reversed(shown)]
    else:
        parts.append(element("text", "not a number", x=x.first, y=y + 4.5))
    return element("g", parts, class_=kind)


def _svg(kind: str, says: str, width: int, height: float, parts: Iterable[Markup]) -> Markup:
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    return element("svg", parts, class_=kind, role="img", aria_label=says, **size)
