"""Curves as a picture, for cells of the course in which a table of numbers would stand for one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from IPython.display import SVG

WIDE, TALL = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 24, 44
COLOURS = ("#2f6fc4", "#c96f00", "#2c8c57", "#a24fb0", "#c23b3b", "#767676")  # legible on white and on black
LETTERS = 15  # px from one name to the next


def curves(x: Iterable[float], lines: Mapping[str, Iterable[float]], across: str, up: str, log: str = "") -> SVG:
    """Lines over one axis, each with its name at its end.

    Args:
        x: Where the values are.
        lines: The values of each line, by its name.
        across: The name of the horizontal axis.
        up: The name of the vertical axis.
        log: The axes that are logarithmic: "x", "y" or "xy".
    """
    at, values = np.asarray(list(x), float), {name: np.asarray(list(each), float) for name, each in lines.items()}
    every = np.concatenate(list(values.values()))
    placed_x, ticks_x = _scale(at, (LEFT, WIDE - RIGHT), "x" in log)
    placed_y, ticks_y = _scale(every, (TALL - BOTTOM, TOP), "y" in log)
    marks = [f'<path d="M{LEFT},{TOP}V{TALL - BOTTOM}H{WIDE - RIGHT}" stroke="#767676" fill="none"/>']
    marks += [_text(placed_x(tick), TALL - BOTTOM + 18, _number(tick), "middle") for tick in ticks_x]
    marks += [_text(LEFT - 6, placed_y(tick) + 4, _number(tick), "end") for tick in ticks_y]
    marks += [_text(WIDE - RIGHT, TALL - 6, across, "end"), _text(0, 12, up, "start")]
    lowest = -np.inf
    for number, name in sorted(enumerate(values), key=lambda each: placed_y(values[each[1]][-1])):
        colour, points = COLOURS[number % len(COLOURS)], zip(placed_x(at), placed_y(values[name]), strict=True)
        path = "L".join(f"{across:.1f},{height:.1f}" for across, height in points)
        lowest = max(lowest + LETTERS, placed_y(values[name][-1]) + 4)
        marks.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
        marks.append(_text(WIDE - RIGHT + 8, lowest, name, "start", colour))
    return SVG(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{TALL}" viewBox="0 0 {WIDE} {TALL}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="13"><title>{up} by {across}</title>'
        f"{''.join(marks)}</svg>"
    )


def _scale(
    values: np.ndarray, ends: tuple[float, float], logarithmic: bool
) -> tuple[Callable[..., Any], Iterable[float]]:
    """Where a value stands between two ends, and the values that are marked."""
    low, high = float(values.min()), float(values.max())
    if logarithmic:
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        ticks = [tick for tick in powers if low <= tick <= high]
        if len(ticks) < 2:
            ticks = [low, high]
        return lambda value: np.interp(np.log(value), np.log([low, high]), ends), ticks
    sizes = (size * power for power in 10.0 ** np.arange(-6, 12) for size in (1, 2, 5))
    step = next(each for each in sizes if high - low <= 6 * each)
    ticks = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return lambda value: np.interp(value, [low, high], ends), ticks


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#767676") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
