"""Marks of the charts as SVG: lines, words, paths, a scale with round values, and the element around them."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from clockhands.show._markup import Markup, element

LETTER = 7.5
"""px of a letter of the charts, at most."""


def svg(kind: str, says: str, width: int, height: float, *parts: Markup | Iterable[Markup]) -> Markup:
    """A picture of a size in CSS pixels; ``says`` is what is to be seen, for those who do not see it."""
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    return element("svg", *parts, class_=kind, role="img", aria_label=says, **size)


def sign(kind: str, drawn: Markup, width: int) -> Markup:
    """A picture of the height of a line, beside words that say the same."""
    size = {"viewBox": f"0 0 {width} 16", "width": width, "height": 16}
    return element("svg", drawn, class_=kind, aria_hidden="true", **size)


def across(kind: str, y: float, x1: float, x2: float) -> Markup:
    """A horizontal line."""
    return element("line", class_=kind, x1=x1, x2=x2, y1=y, y2=y)


def upright(kind: str, x: float, y1: float, y2: float) -> Markup:
    """A vertical line."""
    return element("line", class_=kind, x1=x, x2=x, y1=y1, y2=y2)


def words(text: str, x: float, y: float, anchor: str | None = None, kind: str | None = None) -> Markup:
    """Words at a place: they begin there, or end there, or have their middle there."""
    return element("text", text, class_=kind, x=round(x, 1), y=round(y, 1), text_anchor=anchor)


def path(kind: str, d: str) -> Markup:
    """What one path draws."""
    return element("path", class_=kind, d=d)


def power_of_ten(power: int) -> str:
    """A power of ten with its exponent raised.

    >>> power_of_ten(6), power_of_ten(-12)
    ('10⁶', '10⁻¹²')
    """
    return "10" + "".join("⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".index(digit)] for digit in str(power))


def tick(value: float) -> str:
    """A number on an axis.

    >>> tick(4096), tick(0.05), tick(1e6), tick(0.00001)
    ('4,096', '0.05', '10⁶', '10⁻⁵')
    """
    if value and not 1e-3 <= abs(value) < 1e5:
        power = math.floor(math.log10(abs(value)) + 1e-9)
        lead = f"{value / 10.0**power:.3g}"
        return power_of_ten(power) if lead == "1" else f"{lead} × {power_of_ten(power)}"
    return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"


class Axis(NamedTuple):
    """An axis: its name with the unit, whether it is logarithmic, and what it must show."""

    name: str
    log: bool = False
    ticks: tuple[float, ...] | None = None
    holds: tuple[float, ...] = ()


class Scale:
    """Values of an axis as pixels, from ``first`` to ``last``."""

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

    def padded(self, share: float) -> "Scale":
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
        if len(self.powers()) > 2:
            return [10.0**power for power in self.powers(about)]
        near = range(math.floor(self.low), math.ceil(self.high) + 1)
        inside = [step * 10.0**power for power in near for step in (1, 2, 5)]
        return [each for each in inside if self.low <= math.log10(each) <= self.high]

    def powers(self, about: float = math.inf) -> range:
        """The powers of ten on a logarithmic axis, or about so many of them in equal steps."""
        every = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
        return every[:: max(1, math.ceil(len(every) / about))]


def _round_values(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten.

    >>> _round_values(0, 4.9, 5), _round_values(0.31, 0.42, 4)
    ([0.0, 1.0, 2.0, 3.0, 4.0], [0.35, 0.4])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = next(m * power for m in (1, 2, 5, 10) if (high - low) / (m * power) <= about)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(n * step, digits) for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
