"""Figures of the dimension pairs of a code: the table, all pairs as clock hands, one pair, a shift."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import count, shown
from clockhands.encodings.additive import table
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.clocks import Clock
from clockhands.encodings.layouts import pair_channels
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.encodings.specs import describe
from clockhands.errors import InvalidType, InvalidValue
from clockhands.measures import completes
from clockhands.show._asked import MOST_POINTS, evenly, every, one_position, several
from clockhands.show._colours import Theme, colours
from clockhands.show._frames import (
    bare,
    clock_of,
    dressed,
    frame,
    has_clock,
    name_end,
    said,
    signed_map,
    wavelength_in_words,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEW_CHANNELS = 256  # rows, or columns, that have two pixels each in a figure of the usual size
_MOST_HANDS = 32
_MOST_STARTS = 20
_MOST_CELLS = 2**22
_TURN = 2 * math.pi


def heatmap(
    spec: Any, rows: int = 256, *, values: Any = None, trained: int | None = None, theme: Theme = "light"
) -> "Figure":
    """What does the model get? The table of a code: a row for each position, a column for each channel.

    A rotary code adds nothing to tokens; the sines and cosines of its pairs are shown instead.

    Args:
        spec: A code that is added to tokens, or one with dimension pairs.
        rows: Number of positions, from 0 on; if they exceed the pixels of the figure, evenly spaced ones are drawn.
        values: Learned numbers, if the code has some.
        trained: The trained length in tokens: pairs that complete no rotation within it are marked; by default
            ``rows``.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: The spec has no table along one axis, or an argument cannot be used.
        NotInstalled: matplotlib is not installed.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> heatmap(Sinusoidal(width=8), 16).axes[0].images[0].get_array().shape
    (16, 8)
    """
    rows = count("rows", rows)
    clock = clock_of(spec) if has_clock(spec) else None
    width = getattr(spec, "width", 1) if clock is None else clock.width
    at = evenly(rows, max(16, min(MOST_POINTS, _MOST_CELLS // width)))
    numbers = _numbers(spec, clock, at, values)
    length = rows if trained is None else count("trained", trained)
    slow: list[int] = [] if clock is None else [
        pair for pair, rate in enumerate(clock.ladder.rates) if not completes(rate, length)
    ]  # fmt: skip
    answer = f"{describe(spec)}. " if isinstance(spec, AdditiveCode) else "The sines and cosines of its pairs. "
    answer += f"{rows:,} positions, {numbers.shape[1]:,} dimensions."
    answer += f" {every(at.step).capitalize()} position is shown." if at.step > 1 else ""
    if clock is not None:
        complete = "completes" if len(slow) == 1 else "complete"
        answer += f" {len(slow)} of {clock.ladder.pairs} pairs never {complete} a rotation within {length:,} tokens."
    figure = frame(theme, 3.6, "What does the model get?", answer)
    axes = dressed(figure.add_subplot(), theme, "channel", "position (token)")
    most = float(np.abs(numbers).max()) or 1.0
    # A cell that is wider than a pixel shows one number, without mixing colours.
    image = axes.imshow(
        numbers,
        cmap=signed_map(theme),
        vmin=-most,
        vmax=most,
        aspect="auto",
        extent=(-0.5, numbers.shape[1] - 0.5, len(at) * at.step - 0.5, -0.5),
        interpolation="nearest" if numbers.shape[1] <= _FEW_CHANNELS else "antialiased",
    )
    axes.set_ylim(rows - 0.5, -0.5)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01)
    dressed(bar.ax, theme, "", "value")
    if clock is not None and slow:
        above: Any = {"transform": axes.get_xaxis_transform(), "color": colours(theme)["quiet"], "clip_on": False}
        spans = _spans(clock, slow)
        for first, last in spans:
            axes.plot([first - 0.5, first - 0.5, last + 0.5, last + 0.5], [1.01, 1.03, 1.03, 1.01], lw=1, **above)
        axes.text(spans[-1][1] + 0.5, 1.04, "incomplete rotation", size=8.5, ha="right", va="bottom", **above)
    return figure


def _numbers(spec: Any, clock: Clock | None, at: range, values: Any) -> NDArray[np.float64]:
    if isinstance(spec, AdditiveCode):
        return np.asarray(table(spec, at, dtype="float64", values=values), np.float64)
    if clock is None:
        raise InvalidType(
            f"A heatmap needs an encoding that can be shown as a table, got {shown(spec)}.",
            "Pass an additive encoding, or one with rotating pairs.",
        )
    turned = clock.units(positions_of(at))
    made = np.zeros((len(at), clock.width))
    first, second = _channels(clock).T
    made[:, first], made[:, second] = turned.imag, turned.real
    return made


def _channels(clock: Clock) -> NDArray[np.int64]:
    return pair_channels(clock.ladder.pairs, clock.layout) if clock.channels is None else clock.channels


def _spans(clock: Clock, pairs: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges of channels that these pairs fill."""
    channels = sorted(int(channel) for channel in _channels(clock)[list(pairs)].ravel() if channel < clock.width)
    spans: list[tuple[int, int]] = []
    for channel in channels:
        if spans and channel == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], channel)
        else:
            spans.append((channel, channel))
    return spans


def clock(spec: Any, position: float = 100, *, theme: Theme = "light") -> "Figure":
    """Where are we? The angle of every pair at a position, as clock hands; of many pairs, evenly chosen ones.

    Raises:
        InvalidType, InvalidValue: The spec has no pairs along one axis, or the position is invalid.
        NotInstalled: matplotlib is not installed.
    """
    held = clock_of(spec)
    position = one_position("position", position)
    angles = np.angle(held.units(positions_of([position]))[0])
    pairs = held.ladder.pairs
    some = sorted({round(place * (pairs - 1) / (_MOST_HANDS - 1)) for place in range(_MOST_HANDS)})
    rates = held.ladder.rates
    slowest = wavelength_in_words(rates[-1])
    answer = f"Position {position:,}. Pair 0 {wavelength_in_words(rates[0])}, pair {pairs - 1} {slowest}."
    answer += f" {len(some)} of {pairs} pairs are shown." if len(some) < pairs else ""
    columns = min(8, len(some))
    lines = -(-len(some) // columns)
    figure = frame(theme, 1.08 * lines * min(1.0, 8 / columns), "Where are we?", answer)
    chosen = colours(theme)
    axes = bare(figure.add_subplot(), theme)
    for place, pair in enumerate(some):
        x, y, angle = 2.6 * (place % columns), -3.1 * (place // columns), angles[pair]
        around = np.linspace(0, _TURN, 61)
        axes.plot(x + np.cos(around), y + np.sin(around), color=chosen["rule"], lw=1)
        axes.plot([x, x + math.cos(angle)], [y, y + math.sin(angle)], color=chosen["arm"], lw=1.5)
        axes.plot([x + math.cos(angle)], [y + math.sin(angle)], "o", color=chosen["arm"], ms=3.5)
        axes.text(x, y - 1.2, f"pair {pair}", ha="center", va="top", size=7.5, color=chosen["quiet"])
    return figure


def pair(spec: Any, pair: int = 0, *, position: float = 3, theme: Theme = "light") -> "Figure":
    """Why two waves? Sine and cosine of a pair, and its point on the circle; one wave alone takes each value twice.

    Args:
        spec: A code with dimension pairs.
        pair: The index of the pair.
        position: The position that is marked.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: The spec has no pairs along one axis, or no such pair, or the pair has frequency 0.
        NotInstalled: matplotlib is not installed.
    """
    ladder = clock_of(spec).ladder
    pair = _one_pair(ladder.pairs, pair)
    position = one_position("position", position)
    rate = ladder.rates[pair]
    if not rate:
        raise InvalidValue(f"Pair {pair} never rotates.", "Choose a pair with a frequency above 0.")
    phase = float(np.angle(units(ladder, positions_of([position]))[0, pair]))
    # The next position with the same sine, a real number: its phase is pi minus this one's.
    other = position + ((math.pi - 2 * phase) % _TURN) / rate
    answer = (
        f"Pair {pair} {wavelength_in_words(rate)}. Its sine is {said(math.sin(phase))} at {position:,} and again at "
        f"{said(other)}; the cosine is {said(math.cos(phase))} and {said(-math.cos(phase))}, which distinguishes "
        "the two."
    )
    figure = frame(theme, 2.5, "Why sine and cosine?", answer)
    chosen = colours(theme)
    waves, circle = figure.subplots(1, 2, width_ratios=[3, 1])
    dressed(waves, theme, "position (token)", "value")
    # The curve ends where the sine is highest and the cosine is 0, so that their labels are apart.
    end = position + ((math.pi / 2 - phase) % _TURN + _TURN) / rate
    at = np.linspace(max(0.0, position - 0.75 * _TURN / rate), end, 800)
    turned = phase + rate * (at - position)
    for name, wave in (("sine", np.sin), ("cosine", np.cos)):
        waves.plot(at, wave(turned), color=chosen[name], lw=2, ls="-" if name == "sine" else (0, (6, 1.5)))
        ink = chosen.get(f"{name}-ink", chosen[name])
        name_end(waves, at[-1], wave(turned[-1]), name, ink)
        for place, kind in ((phase, chosen[name]), (math.pi - phase, chosen["paper"])):
            where = position if place == phase else other
            waves.plot([where], [wave(place)], "o", mec=chosen[name], mfc=kind, ms=7, mew=1.5)
    waves.axhline(math.sin(phase), color=chosen["rule"], lw=1, zorder=0)
    bare(circle, theme)
    around = np.linspace(0, _TURN, 121)
    circle.plot(np.cos(around), np.sin(around), color=chosen["rule"], lw=1)
    for place, fill in ((phase, chosen["arm"]), (math.pi - phase, chosen["paper"])):
        circle.plot([0, math.cos(place)], [0, math.sin(place)], color=chosen["arm"], lw=1.5, zorder=1)
        circle.plot([math.cos(place)], [math.sin(place)], "o", mec=chosen["arm"], mfc=fill, ms=7, zorder=2)
    circle.axhline(math.sin(phase), color=chosen["rule"], lw=1, zorder=0)
    circle.text(0, -1.15, "cosine across, sine up", ha="center", va="top", size=8.5, color=chosen["quiet"])
    return figure


def _one_pair(pairs: int, pair: int) -> int:
    pair = count("pair", pair, 0)
    if pair >= pairs:
        raise InvalidValue(f"`pair` must be below the number of pairs, {pairs}, got {pair}.", "Pair 0 is the fastest.")
    return pair


def shift(spec: Any, k: float = 3, *, starts: Sequence[float] = (0, 40, 1000), theme: Theme = "light") -> "Figure":
    """What does "k further" do? Pairs before and after a shift: each rotates by a fixed angle, from any start.

    Args:
        spec: A code with dimension pairs.
        k: The shift in tokens.
        starts: The positions from which the shift is shown, a row for each, at most 20.
        theme: The set of colours.

    Raises:
        InvalidType, InvalidValue: The code has no shift matrix, or an argument cannot be used.
        NotInstalled: matplotlib is not installed.
    """
    held = clock_of(spec)
    k = one_position("k", k)
    begins = [one_position("starts", start) for start in several("starts", starts, "positions", _MOST_STARTS)]
    pairs = held.ladder.pairs
    chosen_pairs = sorted({round(place * (pairs - 1) / 5) for place in range(6)})
    before, after = (
        held.units(positions_of(list(at)))[:, chosen_pairs] for at in (begins, [start + k for start in begins])
    )
    turned = np.angle(held.units(positions_of([k]))[0])
    told = ", ".join(
        f"pair {pair} by {said(float(turned[pair]), 3)} rad" for pair in (chosen_pairs[0], chosen_pairs[-1])
    )
    answer = f"A shift by {k} rotates every pair by its own angle, {told}, the same from any start."
    figure = frame(theme, 0.95 * len(begins) + 0.3, f"What does “{k} further” do?", answer)
    chosen = colours(theme)
    axes = bare(figure.add_subplot(), theme)
    around = np.linspace(0, _TURN, 61)
    for line, start in enumerate(begins):
        axes.text(-1.6, -2.6 * line, f"{start:,} → {start + k:,}", ha="right", va="center", size=9, color=chosen["ink"])
        for column, number in enumerate(chosen_pairs):
            x, y = 2.8 * column, -2.6 * line
            axes.plot(x + np.cos(around), y + np.sin(around), color=chosen["rule"], lw=1)
            first, last = before[line, column], after[line, column]
            begin, angle = float(np.angle(first)), float(turned[number])
            arc = np.linspace(begin, begin + angle, 40)
            axes.plot(x + 0.55 * np.cos(arc), y + 0.55 * np.sin(arc), color=chosen["sine"], lw=2)
            axes.plot([x, x + first.real], [y, y + first.imag], color=chosen["quiet"], lw=1.25, ls=(0, (3, 2)))
            axes.plot([x, x + last.real], [y, y + last.imag], color=chosen["arm"], lw=1.75)
            axes.plot([x + last.real], [y + last.imag], "o", color=chosen["arm"], ms=3.5)
    for column, number in enumerate(chosen_pairs):
        words = f"pair {number}\n{said(float(turned[number]), 3)} rad"
        low = -2.6 * (len(begins) - 1) - 1.2
        axes.text(2.8 * column, low, words, ha="center", va="top", size=8, color=chosen["quiet"])
    return figure
