"""The common frame of all figures: a question as the heading, the answer below it, and axes with units."""

import math
import re
import textwrap
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from clockhands.arguments import shown
from clockhands.encodings.clocks import Clock, HasClock
from clockhands.errors import InvalidType, InvalidValue
from clockhands.show._colours import Theme, colours, signed_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches
_DPI = 144
_LETTERS = 92  # of a line of the answer


class NotInstalled(InvalidType, ImportError):
    """An optional library is not installed."""


def frame(theme: Theme, height: float, question: str, answer: str) -> "Figure":
    """An empty figure with its heading, its answer and room for the rest.

    It has no window and is not registered with pyplot; a notebook shows it as a picture, and its ``savefig`` writes
    SVG, PNG or PDF.

    Args:
        theme: The set of colours.
        height: Height of the axes in inches, without the heading.
        question: The heading.
        answer: One or two sentences with the numbers of the code.

    Raises:
        NotInstalled: matplotlib is not installed.
        InvalidValue: The theme is neither light nor dark.
    """
    chosen = colours(theme)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NotInstalled(
            "The figures need matplotlib, which is not installed.",
            "Install it with `pip install 'clockhands[figures]'`.",
        ) from None
    # A true minus sign before a number, as on the axes; a dollar sign in a name does not start a formula.
    answer = re.sub(r"(?<![\w.)])-(?=\d)", "−", answer)
    lines = textwrap.wrap(answer.replace("$", r"\$"), _LETTERS)
    head = 0.42 + 0.19 * len(lines)
    figure = Figure(figsize=(WIDTH, height + head), facecolor=chosen["paper"], layout="constrained")
    whole = height + head
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0, 1, 1 - head / whole), w_pad=0.08, h_pad=0.06)
    place = 0.1 / WIDTH
    figure.text(place, 1 - 0.1 / whole, question, va="top", size=12, weight="bold", color=chosen["ink"])
    figure.text(place, 1 - 0.36 / whole, "\n".join(lines), va="top", size=9.5, color=chosen["ink"], linespacing=1.3)
    figure._repr_png_ = lambda: _picture(figure)  # pyright: ignore[reportAttributeAccessIssue]
    return figure


def _picture(figure: "Figure") -> tuple[bytes, dict[str, int]]:
    """The figure as PNG, and its width in a notebook in CSS pixels."""
    held = BytesIO()
    figure.savefig(held, format="png", dpi=_DPI)
    return held.getvalue(), {"width": round(96 * figure.get_figwidth()), "height": round(96 * figure.get_figheight())}


def dressed(axes: "Axes", theme: Theme, across: str, up: str) -> "Axes":
    """Style axes: quiet colours, names, no lines on the two sides without numbers."""
    chosen = colours(theme)
    axes.set_facecolor(chosen["paper"])
    axes.set_xlabel(across, color=chosen["quiet"], size=9, loc="right")
    axes.set_ylabel(up, color=chosen["quiet"], size=9, loc="top")
    formatter: Any = axes.xaxis.get_major_formatter()
    formatter.set_powerlimits((-5, 8))  # a separate factor of ten would overlap the axis label
    axes.tick_params(colors=chosen["quiet"], labelsize=8.5, which="both", color=chosen["rule"])
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(chosen["rule"])
    return axes


def name_end(axes: "Axes", x: float, y: float, name: str, colour: str) -> None:
    """The label of a line at its end."""
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
    axes.annotate(name.replace("$", r"\$"), (x, y), (4, 0), color=colour, size=8.5, **place)


def bare(axes: "Axes", theme: Theme) -> "Axes":
    """Axes without numbers, for circles."""
    axes.set_facecolor(colours(theme)["paper"])
    axes.set_axis_off()
    axes.set_aspect("equal")
    return axes


def signed_map(theme: Theme) -> "ListedColormap":
    """The map of signed values."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(signed_colours(np.linspace(-1, 1, 513), theme).tolist(), name=f"clockhands-{theme}")


def has_clock(spec: Any) -> bool:
    """Whether a spec has dimension pairs; if not, `clock_of` raises an error with the reason."""
    if isinstance(spec, type) or not isinstance(spec, HasClock):
        return False
    try:
        return spec.clock().number_of_axes >= 1
    except InvalidValue:
        return False


def clock_of(spec: Any) -> Clock:
    """The clock behind a spec, along one axis.

    Raises:
        InvalidType, InvalidValue: It has none; the message gives the reason.
    """
    if isinstance(spec, type) or not isinstance(spec, HasClock):
        raise InvalidType(
            f"This figure needs an encoding with rotating pairs, got {shown(spec)}.",
            "Give a spec such as Sinusoidal(width=512), Rotary(head_width=64), or a preset with rotating pairs.",
        )
    clock = spec.clock()
    if clock.number_of_axes > 1:
        raise InvalidValue(
            f"This figure shows positions along one axis, but the encoding has {clock.number_of_axes}.",
            "Show the frequencies of one axis: Sinusoidal(width=…, spacing=…).",
        )
    return clock


def said(number: float, digits: int = 4) -> str:
    """A number as text.

    >>> said(62.83185), said(1234567.0), said(0.00001)
    ('62.83', '1,234,567', '1.000e-05')
    """
    if number == 0 or 1e-4 <= abs(number) < 1e15:
        rounded = float(f"{number:.{digits}g}") if abs(number) < 10**digits else round(number)
        return f"{rounded:,.10g}"
    return f"{number:.{digits - 1}e}"


def wavelength_in_words(rate: float) -> str:
    """The wavelength of a pair of this frequency, as text."""
    return f"completes one rotation in {said(2 * math.pi / rate)} tokens" if rate else "never rotates"
