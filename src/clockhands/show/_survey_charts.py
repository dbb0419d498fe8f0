"""Histograms on a logarithmic axis, as SVG."""

import math
from collections import Counter
from collections.abc import Sequence

from clockhands.show._markup import Markup, element
from clockhands.show._svg import LETTER, path, svg, words

_WIDTH, _HEIGHT, _ABOVE, _BELOW = 400, 170, 18, 40  # px; above the bars stand counts, below them values
_TICK = 44  # px that the label of a bar needs at least
_MOST = 40  # bars; values farther apart than these get wider bars


def histogram(values: Sequence[float], step: float, axis: str) -> Markup:
    """How many values lie in each of the intervals from one power of ``step`` to the next.

    Args:
        values: Positive numbers, at least one.
        step: By which an interval's end is larger than its start.
        axis: The name of the axis with its unit.
    """
    # A value that is a power up to rounding belongs to the interval that it begins.
    places = [math.floor(math.log(value) / math.log(step) + 1e-9) for value in values]
    width = -(-(max(places) - min(places) + 1) // _MOST)
    counted = Counter((place - min(places)) // width for place in places)
    bars = max(counted) + 1
    room = _WIDTH / max(bars, 6)
    scale = (_HEIGHT - _ABOVE - _BELOW) / max(counted.values())
    each = max(1, math.ceil(_TICK / room))
    floor = _HEIGHT - _BELOW
    drawn: list[Markup] = []
    for place in range(bars):
        count, left = counted[place], place * room
        low = step ** (min(places) + place * width)
        if count:
            tall = max(1.5, count * scale)
            says = element("title", f"{_short(low)} to {_short(low * step**width)}: {count:,}")
            box = {"x": left + 1, "y": floor - tall, "width": room - 2, "height": tall}
            drawn.append(element("rect", says, class_="bar", **{name: round(px, 1) for name, px in box.items()}))
            if len(f"{count:,}") * LETTER <= room + 4:  # else the numbers of neighbours would overlap
                drawn.append(words(f"{count:,}", left + room / 2, floor - tall - 4, "middle", "is-count"))
        if place % each == 0:
            anchor = "start" if place == 0 else "middle"
            drawn.append(words(_short(low), left, floor + 15, anchor))
            drawn.append(path("axis", f"M{max(left, 0.5):.1f},{floor}v4"))
    drawn.append(path("axis", f"M0,{floor}H{_WIDTH}"))
    drawn.append(words(axis, _WIDTH, _HEIGHT - 6, "end"))
    return svg("survey-chart", axis, _WIDTH, _HEIGHT, drawn)


def _short(value: float) -> str:
    """A number in few letters.

    >>> _short(10**3.5), _short(131072), _short(4096), _short(0.5)
    ('3.2k', '131k', '4,096', '0.5')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size and (size > 1e3 or value >= 1e4 or value != round(value)):
            return f"{value / size:.{2 if value < 10 * size else 3}g}{letter}"
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
