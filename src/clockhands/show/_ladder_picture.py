"""Draws the wavelengths of a model and its lengths as SVG: which pairs complete a rotation, before and after scaling.

One band for each ladder, with a mark for each pair on a logarithmic axis of wavelengths; a scaled ladder is below the
unscaled one. The shape of a mark, not only its colour, shows whether the pair completes a rotation.
"""

import math
from collections.abc import Iterator, Sequence

from clockhands.auditing.frequency_bands import Band
from clockhands.phrases import spoken
from clockhands.show._markup import Markup, element
from clockhands.show._svg import Axis, Scale, across, path, power_of_ten, svg, upright, words
from clockhands.show.findings import cut

_ABOVE = 40  # px for the names of the two lengths
_BELOW = 46  # px for the axis and its name
_WORDS, _ROW, _JOIN, _GAP = 20, 13, 14, 14
_APART = 2.5  # px between two marks of one kind
_LETTER = 7.0  # px of a letter, at most, in the size of the axis


def ladder_picture(bands: Sequence[Band], width: int) -> Markup:
    """The bands as an SVG element of a width in CSS pixels."""
    return _Picture(bands, width).drawn()


class _Picture:
    def __init__(self, bands: Sequence[Band], width: int) -> None:
        self.bands, self.width = bands, width
        rates = [rate for band in bands for rate in (*band.rates, *(band.before or ())) if rate > 0]
        lengths = [float(length) for band in bands for length in (band.trained, band.served) if length]
        waves = [2 * math.pi / rate for rate in rates] or [1.0]
        self.x = Scale(Axis("wavelength (tokens), log", log=True), [min(waves), max(waves + lengths)], 10, width - 10)
        self.x.low, self.x.high = math.log10(min(waves)) - 0.05, math.log10(max(waves + lengths)) + 0.05
        self.heights = [_WORDS + _ROW + (_ROW + _JOIN if band.before else 0) + _GAP for band in bands]
        self.bottom = _ABOVE + sum(self.heights)

    def drawn(self) -> Markup:
        title = element("title", "The wavelength of every pair against the lengths of the model")
        says, parts = " ".join(band.says for band in self.bands), (*self.axis(), *self.lengths(), *self.marks())
        return svg("report-ladder", says, self.width, self.bottom + _BELOW, title, parts)

    def axis(self) -> Iterator[Markup]:
        yield across("axis", self.bottom, 4, self.width - 4)
        for power in self.x.powers(self.width / 60):
            at = self.x(10.0**power)
            yield upright("axis", at, self.bottom, self.bottom + 5)
            anchor = "middle" if 20 < at < self.width - 20 else "start" if at <= 20 else "end"
            name = spoken(10**power) if 0 <= power <= 3 else power_of_ten(power)
            yield words(name, at, self.bottom + 19, anchor)
        yield words(self.x.axis.name, self.width - 10, self.bottom + 38, "end")

    def lengths(self) -> Iterator[Markup]:
        windows = {band.served for band in self.bands if band.served and band.window}
        trained = {band.trained for band in self.bands if band.trained and not band.window}
        served = {band.served for band in self.bands if band.served and not band.window}
        used = "context" if trained == served else "served"
        named = [(length, f"window {spoken(length)}", "trained") for length in windows]
        named += [(length, f"{used} {spoken(length)}", "served") for length in served]
        named += [(length, f"trained {spoken(length)}", "trained") for length in trained - served]
        named.sort()
        lines = [self.x(length) for length, _, _ in named]
        ends = [-math.inf, -math.inf, -math.inf]  # of the words of each line, from the lowest up
        for (_, name, kind), at, limit in zip(named, lines, [*lines[1:], self.width], strict=False):
            long = _LETTER * len(name)
            # To the right of the line, unless they would reach the next one and have room on the left.
            after = at + 8 + long < limit or at - 4 - long < 0
            start = at + 4 if after else at - 4 - long
            level = next((row for row, end in enumerate(ends) if start > end + 12), len(ends) - 1)
            ends[level] = start + long
            top = _ABOVE - 6 - 12 * level
            yield upright(kind, at, top - 8, self.bottom)
            yield words(name, at + (4 if after else -4), top, "start" if after else "end")

    def marks(self) -> Iterator[Markup]:
        top = _ABOVE
        for band, height in zip(self.bands, self.heights, strict=True):
            yield words(cut(band.title, int((self.width - 20) / _LETTER)), 10, top + 13, kind="band")
            row = top + _WORDS
            if band.before:
                yield self.join(band.before, band.rates, row + _ROW, row + _ROW + _JOIN)
                yield from self.row(band.before, row, band.marks_before)
                row += _ROW + _JOIN
            yield from self.row(band.rates, row, band.marks)
            top += height

    def row(self, rates: Sequence[float], top: float, kinds: Sequence[str]) -> Iterator[Markup]:
        """A mark for each pair: a line if it completes a rotation, a taller one if not, an arrow if ``beyond``."""
        last: dict[str, float] = {}
        paths: dict[str, list[str]] = {"turning": [], "never": [], "beyond": []}
        for rate, kind in zip(rates, kinds, strict=True):
            at = self.x(2 * math.pi / rate) if rate else self.width - 4.0
            if abs(at - last.get(kind, -math.inf)) < _APART:
                continue
            last[kind] = at
            low = top + _ROW
            paths[kind].append(
                {
                    "turning": f"M{at},{top + 4}V{low - 1}",
                    "never": f"M{at},{top}V{low}",
                    "beyond": f"M{at},{top}V{low}m-2.5,-4l2.5,4l2.5,-4",
                }[kind]
            )
        for kind, parts in paths.items():
            if parts:
                yield path(f"mark {kind}", "".join(parts))

    def join(self, before: Sequence[float], after: Sequence[float], top: float, low: float) -> Markup:
        """Lines from the old to the new wavelength of some pairs, about thirty at most."""
        step = max(1, round(len(before) / 32))
        parts = [
            f"M{self.x(2 * math.pi / old)},{top}L{self.x(2 * math.pi / new)},{low}"
            for old, new in list(zip(before, after, strict=True))[::step]
            if old and new
        ]
        return path("join", "".join(parts))
