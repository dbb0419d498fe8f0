"""A map of layers and heads as SVG: the darker a cell, the larger its number."""

from collections.abc import Sequence

from clockhands.show._markup import Markup, element
from clockhands.show._svg import LETTER, svg, tick, words

_LEFT, _TOP, _KEY = 44, 24, 34  # px for the numbers of layers, for the words above, for the key below
_WIDEST, _HIGHEST = 28.0, 16.0  # px of a cell
_STEPS = 5  # cells of the key


def head_map(values: Sequence[Sequence[float]], unit: str, width: int, says: str) -> Markup:
    """One cell for each head, a row for each layer, and a key from the smallest to the largest number."""
    layers, heads = len(values), max(map(len, values), default=1)
    across, down = min(_WIDEST, (width - _LEFT - 8) / heads), min(_HIGHEST, 640 / max(1, layers))
    low = min((number for row in values for number in row), default=0.0)
    high = max((number for row in values for number in row), default=1.0)

    def share(number: float) -> float:
        return (number - low) / ((high - low) or 1.0)

    parts = [words(f"layer (down) and head (across), from 0; {unit}", 0, 12, kind="axis-name")]
    every = max(1, round(3 * LETTER / down))
    for layer, row in enumerate(values):
        y = _TOP + layer * down
        if layer % every == 0:
            parts.append(words(str(layer), _LEFT - 6, y + down / 2 + 4, "end"))
        for head, number in enumerate(row):
            told = element("title", f"layer {layer}, head {head}: {number:.3g}")
            parts.append(_cell(_LEFT + head * across, y, across, down, share(number), told))
    bottom = _TOP + layers * down + 8
    parts += [_cell(_LEFT + step * _WIDEST, bottom, _WIDEST, _HIGHEST, step / (_STEPS - 1)) for step in range(_STEPS)]
    middle = bottom + _HIGHEST / 2 + 4
    parts += [
        words(tick(float(f"{low:.2g}")), _LEFT - 6, middle, "end"),
        words(f"{tick(float(f'{high:.2g}'))} {unit}", _LEFT + _STEPS * _WIDEST + 6, middle),
    ]
    return svg("lab-chart", says, width, round(bottom + _KEY, 1), parts)


def _cell(x: float, y: float, across: float, down: float, share: float, *told: Markup) -> Markup:
    size = {"x": round(x, 1), "y": round(y, 1), "width": round(across - 1, 1), "height": round(down - 1, 1)}
    return element("rect", *told, class_="cell", fill_opacity=round(0.06 + 0.94 * share, 2), **size)
