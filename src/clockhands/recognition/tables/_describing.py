"""From measured numbers to a description with round numbers: a spec, and the positions of its rows.

Rows show ``rate x step`` and ``start / step``, but not a rate or a step alone. Therefore the highest rate is taken as
1 rad/token, unless a published convention with another one fits. Several bases give the same rates (one for each span
and each rule for odd widths); the one with the fewest digits is taken.

A float64 table gives a phase of thousands of radians to within one rounding of the table, and a base, a start and a
step in float64 are only just precise enough for it. They are fitted with exact phases, and their last places are tried.
Positions may be float64 numbers that are rounded one by one, or the real numbers of a progression: the variant with the
smaller errors is taken.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric, Ladder, Spacing
from clockhands.encodings.phases import units
from clockhands.encodings.positions import Positions, positions_of
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.scaling.measured import Fit
from clockhands.encodings.specs import describe, to_dict
from clockhands.encodings.usual_values import TABLE_BASES
from clockhands.encodings.written_numbers import UNKNOWN, plain
from clockhands.errors import InvalidValue
from clockhands.recognition._fitting import fit_ladder
from clockhands.recognition._matches import Match
from clockhands.recognition._preset_names import of_kind, rope_presets
from clockhands.recognition.tables._progressions import Progression

_SIGMAS = 4.0  # the largest distance of round numbers from the measured ones, in standard deviations
LEVEL, SLOPE, ORIGIN = np.eye(3)
_FARTHEST = 2.0**53  # beyond this, float64 does not hold every integer position
_ENOUGH = 3 * 2.0**-53  # the largest residual angle, in rad, that rounding the table explains
_HOPELESS = 128 * 2.0**-53  # above this rms residual, the phases were rounded, and changing last places does not help
_HANDS = 32  # the number of pairs (about) with which last places are tried


@dataclass(frozen=True, eq=False)
class Description:
    """A spec, and the positions of its rows.

    Attributes:
        spec: The code, without zero rows.
        start, step: The position of row 0, and the distance between neighbouring rows.
        digits: The number of digits of its parameters; shorter descriptions come first.
        names: The presets that have this code.
        free: Those of ``base``, ``step`` and ``start`` that are measured values, because no round number fits.
        real: Whether positions are the real numbers ``start + step row`` instead of these numbers rounded to float64.
        rope: The spacing and the RoPE scaling that give the rates, if the rates are on no plain ladder.
    """

    spec: Sinusoidal
    start: float
    step: float
    digits: float
    names: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    real: bool = False
    rope: Fit | None = None

    @property
    def channels(self) -> int:
        """The number of channels of the ladder: the width, or for an odd width one less or more."""
        width, odd = self.spec.width, self.spec.odd
        return width - width % 2 if odd == "zero" else width + width % 2 if odd == "cut" else width

    @property
    def whole(self) -> bool:
        """Whether all positions are integers."""
        return self.start == round(self.start) and self.step == round(self.step)

    def positions(self, begin: int, end: int) -> Any:
        """The positions of rows ``begin`` to ``end - 1``, as `clockhands.table` takes them."""
        if self.whole:
            first, step = int(self.start) + int(self.step) * begin, int(self.step)
            return range(first, first + step * (end - begin), step)
        if self.real:
            start, step = Fraction(self.start), Fraction(self.step)
            return Grid(end - begin, start=start + step * begin, step=step)
        # start + step x row computed in float64, as in most implementations.
        return self.places(begin, end)

    def places(self, begin: int, end: int) -> np.ndarray:
        """The positions of rows ``begin`` to ``end - 1``, float64 [rows]."""
        return self.start + self.step * np.arange(begin, end)


@dataclass(frozen=True)
class TableShape:
    """The arrangement of the channels of a table: the fields of its spec other than the ladder."""

    width: int
    layout: Any
    order: Any
    lone: bool  # whether the last pair has no second channel
    zeros: int  # number of columns of zeros at the end
    pairs: int

    def rules(self) -> Iterator[tuple[str, str | float, float]]:
        """Possible rules for this width: rule for odd widths, span and its denominator; the usual ones first."""
        if self.zeros:
            odds = [("zero", self.width - self.zeros)]
        elif self.lone:
            odds = [("extra", self.width), ("cut", self.width + 1)]
        else:
            odds = [("refuse", self.width)]
        for span in ("open", "closed"):
            for odd, channels in odds:
                den = channels / 2 if span == "open" else channels // 2 - 1
                if den > 0:
                    yield odd, span, den

    def spec(self, odd: str, spacing: Spacing) -> Sinusoidal:
        """A spec of this shape."""
        return Sinusoidal(self.width, spacing=spacing, layout=self.layout, order=self.order, odd=odd)  # type: ignore[arg-type]


def described(
    found: Progression, covariance: np.ndarray, shape: TableShape, *, known: bool = False, scale: float = 1.0
) -> list[Description]:
    """Descriptions of a progression that give the same table, the shortest first.

    ``scale`` is the measured factor on the table, which may be the attention factor of a RoPE scaling.

    ``covariance`` is that of level, slope and origin, [3, 3]. If positions are ``known``, the measured rates are kept;
    otherwise they are divided by a common factor, which becomes the step.
    """
    if shape.zeros > 1:
        return []
    if found.kind == "geometric":
        out = [*_published(found, covariance, shape, known), *_geometric(found, covariance, shape, known)]
        # Rows of noise may fit positions that are too large for float64.
        out = [one for one in out if max(abs(one.start), abs(one.step)) < _FARTHEST]
        return sorted(out, key=lambda one: one.digits - 2 * bool(one.names))
    odd = next(shape.rules())[0] if shape.pairs > 1 else "refuse"
    largest = float(found.advances.max())
    step, origin = 1.0, 0.0
    if not known:
        # Whole numbers of the largest rate and of steps, where the measurement allows them.
        digits, number = plain(largest, 2.0**-21 * largest, (1.0,))
        step = number if digits <= 1 else largest
        doubt = math.sqrt(max(float(covariance[2, 2]), 0.0)) + 2.0**-20
        origin = plain(found.origin, doubt)[1]
    free = () if known else ("step", "start")
    if found.kind == "even":
        spacing: Spacing = EvenSteps(float(found.advances[0]) / step, float(found.advances[-1]) / step)
        return [Description(shape.spec(odd, spacing), origin * step, found.sign * step, 3 * UNKNOWN, free=free)]
    measured = Explicit(tuple(float(advance) for advance in found.advances / step))
    out = [Description(shape.spec(odd, measured), origin * step, found.sign * step, 4 * UNKNOWN, free=free)]
    for fit in _scaled(found, shape.pairs, scale):
        exact = Explicit(rates_of(fit, shape.pairs))
        out.append(Description(shape.spec(odd, exact), origin, float(found.sign), 3 * UNKNOWN, rope=fit))
    return sorted(out, key=lambda one: one.digits)


def _scaled(found: Progression, pairs: int, scale: float) -> list[Fit]:
    """The best description of rates, in rad per row, by a ladder with a RoPE scaling; none if there is none.

    A rate of least squares has an error of the residual angle over the root of the sum of squared positions, and 8 of
    them are allowed; a rate that was computed in float32 has an error of a few of its roundings too.
    """
    if pairs < 2 or found.normal is None:
        return []
    reach = math.sqrt(max(float(found.normal[0, 0]) / pairs, 1.0))
    bounds = 2.0**-20 * found.advances + 8 * max(found.rest, 2.0**-24) / reach
    return scaled_fits_of(np.maximum(found.advances, 0.0), bounds, 2 * pairs, scale)


def scaled_fits_of(rates: np.ndarray, bounds: np.ndarray, channels: int, scale: float) -> list[Fit]:
    """The best description of rates in rad per row, which may be the first ones of a ladder of so many channels.

    A published scaling comes first, because other numbers may give the same rates. The factor on the rows is taken as
    the attention factor of a scaling, then as a factor of its own.
    """
    for _, own in of_kind(Rotary):
        if own.scaling is None or own.axes is not None or own.rotated != channels or own.length is not None:
            continue
        near = np.abs(np.array(own.rates)[: len(rates)] - rates) <= bounds
        if near.all() and abs(own.attention_factor / scale - 1) < 2.0**-20:
            return [Fit(own.spacing, own.scaling)]
    for factor in dict.fromkeys((scale, 1.0)):
        fits = fit_ladder(
            rates, bounds, channels=channels, attention_factor=factor, attention_uncertainty=2.0**-20 * factor
        )
        if not isinstance(fits[0].spacing, Explicit):
            return fits[:1]
    return []


def rates_of(fit: Fit, pairs: int) -> tuple[float, ...]:
    """The rates of a spacing after its scaling, in rad/token."""
    return Rotary(head_width=2 * pairs, layout="halves", spacing=fit.spacing, scaling=fit.scaling).rates


def rope_evidence(best: Description, scale: float) -> tuple[tuple[str, Any], ...]:
    """The RoPE whose cosines and sines a table is, and the presets with its frequencies, as evidence."""
    spec = best.spec
    fit = best.rope
    spacing, scaling = (spec.spacing, None) if fit is None else (fit.spacing, fit.scaling)
    if spec.width % 2 or (best.start, best.step) != (0, 1):
        return ()
    rope = Rotary(head_width=spec.width, layout="halves", spacing=spacing, scaling=scaling)
    names = rope_presets(rope)
    found: list[tuple[str, Any]] = []
    if fit is not None:
        meant = to_dict(rope)
        found.append(("rope", {"spacing": meant["spacing"], "scaling": meant["scaling"]}))
        found.append(("rope_in_words", ", ".join(describe(rope).split(", ")[3:])))
        explained = abs(rope.attention_factor / scale - 1) < 2.0**-20
        found.append(("scale_is_attention_factor", bool(explained and scale != 1)))
    return (*found, ("rope_presets", list(names)))


def rope_in_words(match: Match) -> str:
    seen = dict(match.evidence)
    if "rope" not in seen:
        return ""
    factor = ", whose attention factor is the factor on the rows" if seen["scale_is_attention_factor"] else ""
    named = f", as in {', '.join(seen['rope_presets'])}" if seen["rope_presets"] else ""
    return f" These are cosines and sines of RoPE: {seen['rope_in_words']}{factor}{named}."


def _geometric(found: Progression, covariance: np.ndarray, shape: TableShape, known: bool) -> Iterator[Description]:
    rising = found.slope > 0
    fastest = np.array([1.0, shape.pairs - 1.0 if rising else 0.0, 0.0])
    for rank, (odd, span, den) in enumerate(shape.rules()):
        steps, top = MeasuredNumbers(found.numbers, covariance), 1.0
        base = _exp(abs(steps.value(SLOPE)) * den)
        digits, number = plain(base, base * den * steps.doubt(SLOPE), TABLE_BASES)
        meant = digits < UNKNOWN and number > 1
        meant = meant and steps.fix(SLOPE, math.log(number) / den * (1 if rising else -1))
        if shape.pairs == 1:  # a ladder of one rate has any base
            digits, number, meant = 0, TABLE_BASES[0], True
        said, step, start, free = placed_row(steps, fastest)
        if known:
            top, step, start, free = step, 1.0, 0.0, ()
        if not meant:
            digits, number, free = UNKNOWN, _exp(abs(steps.value(SLOPE)) * den), (*free, "base")
        if not 1 < number < 1e300:
            continue
        multiplier = number ** (-(shape.pairs - 1) / den) if rising else 1.0
        multiplier *= top if known else 1.0
        spacing = Geometric(1 / number if rising else number, span, multiplier)  # type: ignore[arg-type]
        yield Description(shape.spec(odd, spacing), start, found.sign * step, digits + said + rank / 8, free=free)


def _exp(logarithm: float) -> float:
    """``exp``, limited to the range of float64, because rows of noise may fit any logarithm."""
    return math.exp(min(max(logarithm, -700.0), 700.0))


def placed_row(
    steps: "MeasuredNumbers", fastest: np.ndarray, level: float = 0.0
) -> tuple[int, float, float, tuple[str, ...]]:
    """Digits, step and start, and which of these two are measured values.

    The combination ``fastest`` of the parameters is ``ln(rate x step)`` of the pair with ``ln rate = level``.
    """
    step = _exp(steps.value(fastest) - level)
    digits, number = plain(step, step * steps.doubt(fastest))
    step_meant = digits < UNKNOWN and number > 0 and steps.fix(fastest, math.log(number) + level)
    step = number if step_meant else step
    if step_meant:
        start = steps.value(ORIGIN) * step
        more, number = plain(start, steps.doubt(ORIGIN) * step)
        start_meant = more < UNKNOWN and steps.fix(ORIGIN, number / step)
    else:  # no round step fits, but the start may still be a round number of steps
        digits = UNKNOWN
        more, number = plain(steps.value(ORIGIN), steps.doubt(ORIGIN))
        start_meant = more < UNKNOWN and steps.fix(ORIGIN, number)
        step = _exp(steps.value(fastest) - level)
        number *= step
        if not start_meant:
            more, number = plain(steps.value(ORIGIN) * step, steps.doubt(ORIGIN) * step)
            start_meant = more < UNKNOWN and steps.fix(ORIGIN, number / step)
    if not start_meant:
        more, number = UNKNOWN, steps.value(ORIGIN) * step
    free = tuple(name for name, meant in (("step", step_meant), ("start", start_meant)) if not meant)
    return digits + more, step, number, free


def _published(found: Progression, covariance: np.ndarray, shape: TableShape, known: bool) -> Iterator[Description]:
    """Descriptions by published conventions that have these rates, up to the factor of the step between rows."""
    if shape.pairs < 2:
        return
    seen = set()
    for name, spec in of_kind(Sinusoidal):
        if (spec.layout, spec.order) != (shape.layout, shape.order):
            continue
        if not isinstance(spec.spacing, Geometric) or spec.standardised is not None:
            continue
        odd = spec.odd if shape.width % 2 else "refuse"
        if shape.width % 2 and (odd == "refuse" or (odd == "zero") != bool(shape.zeros)):
            continue
        if (odd, spec.spacing) in seen:  # another preset with the same rates
            continue
        seen.add((odd, spec.spacing))
        try:
            own = shape.spec(odd, spec.spacing)
        except InvalidValue:
            continue
        if own.ladder.pairs != shape.pairs:
            continue
        steps = MeasuredNumbers(found.numbers, covariance)
        rates = [float(rate.ln()) for rate in own.ladder.exact[:2]]
        if steps.fix(SLOPE, rates[1] - rates[0]):
            if known:  # positions are not measured
                if steps.fix(LEVEL, rates[0]):
                    yield Description(own, 0.0, 1.0, 0, (name,))
                continue
            digits, step, start, free = placed_row(steps, LEVEL, rates[0])
            yield Description(own, start, found.sign * step, digits, (name,), free)


class MeasuredNumbers:
    """The parameters of a progression, which are set to round numbers one by one; the others are then adjusted."""

    def __init__(self, numbers: np.ndarray, covariance: np.ndarray) -> None:
        """Keep level, slope and origin, and their covariance [3, 3]."""
        self.numbers, self.covariance = numbers, covariance
        self.left = _SIGMAS**2

    def value(self, row: np.ndarray) -> float:
        """A linear combination of level, slope and origin."""
        return float(row @ self.numbers)

    def doubt(self, row: np.ndarray) -> float:
        """The standard deviation of a linear combination."""
        return math.sqrt(max(float(row @ self.covariance @ row), 0.0))

    def fix(self, row: np.ndarray, value: float) -> bool:
        """Set a linear combination to a value and adjust the rest; False if it is too far from the measurement.

        All values together may be at most 4 standard deviations (Mahalanobis distance) from the measurement.
        """
        along = self.covariance @ row
        variance, off = float(row @ along), value - self.value(row)
        if not off**2 <= self.left * variance:
            return False
        if variance > 0:
            self.numbers = self.numbers + along * (off / variance)
            self.covariance = self.covariance - np.outer(along, along) / variance
            self.left -= off**2 / variance
        return True


def polished(ways: list[Description], values: np.ndarray, places: np.ndarray, *, known: bool) -> list[Description]:
    """Descriptions of geometric ladders with their measured parameters fitted again, the smallest error first.

    The base that was used gives smaller errors than a base for another span with nearly the same rates. ``values`` are
    the complex pairs of the table, [rows, pairs], and ``places`` the row numbers, or the positions if ``known``.
    """
    fitted, largest = _closest(ways, values, places)
    if largest >= _ENOUGH and not known and not fitted[0].whole:
        real, _ = _closest([replace(way, real=True) for way in ways], values, places)
        fitted = min(fitted, real, key=lambda some: _off(some[0], values, places)[1])
    return fitted


def _closest(ways: list[Description], values: np.ndarray, places: np.ndarray) -> tuple[list[Description], float]:
    """The descriptions fitted, the best first with its last places tried, and its largest residual angle in rad."""
    fitted = sorted((_fitted(way, values, places) for way in ways), key=lambda way: _off(way, values, places)[1])
    best, largest = _nudged(fitted[0], values, places)
    return [best, *fitted[1:]], largest


def _at(way: Description, places: np.ndarray) -> Positions:
    """The exact positions of rows by the description: float64 numbers, or real numbers if it is ``real``."""
    if not way.real:
        return positions_of(way.start + way.step * places)
    line = positions_of(way.positions(0, int(places.max()) + 1))
    rows = places.astype(np.int64)
    limbs = line.sizes(0, line.size)
    part, negative = (None if limb is None else limb[rows] for limb in (limbs.part, limbs.negative))
    return Positions((len(rows),), limbs.whole[rows], part, negative)


def _off(way: Description, values: np.ndarray, places: np.ndarray, hands: slice = slice(None)) -> tuple[float, float]:
    """The largest residual angle of a description and the root mean square, in rad."""
    ladder = way.spec.ladder
    ladder = Ladder(ladder.exact[: values.shape[1]][hands])
    rest = np.imag(values[:, hands] * units(ladder, _at(way, places)).conj())
    return float(np.abs(rest).max()), float(np.sqrt(np.mean(rest**2)))


def _nudged(way: Description, values: np.ndarray, places: np.ndarray) -> tuple[Description, float]:
    """The description with the best last places of its measured parameters, and its largest residual angle in rad.

    Last places matter, because positions are rounded like those of the table only if start and step are exactly the
    numbers with which it was computed.
    """
    hands = slice(None, None, max(1, values.shape[1] // _HANDS))
    largest, least = _off(way, values, places, hands)
    found = way
    if least > _HOPELESS:
        return way, largest
    each = [((name, ulps),) for name in way.free for ulps in (-1, 1, -2, 2)]
    both = itertools.product(*([(name, ulps) for ulps in range(-2, 3)] for name in way.free if name != "base"))
    for moves in itertools.chain(each, both):
        if largest < _ENOUGH:
            break
        other = way
        for name, ulps in moves:
            spacing = cast(Geometric, other.spec.spacing)
            number = float(spacing.base if name == "base" else getattr(other, name))
            moved = number + ulps * float(np.spacing(abs(number)))
            if name == "base":
                other = replace(other, spec=replace(other.spec, spacing=replace(spacing, base=moved)))
            else:
                other = replace(other, **{name: moved})
        most, off = _off(other, values, places, hands)
        if off < least:
            found, largest, least = other, most, off
    return found, largest


def _fitted(way: Description, values: np.ndarray, places: np.ndarray) -> Description:
    """The description with its measured parameters fitted to the smallest residual angles by least squares."""
    if not way.free:
        return way
    spacing = cast(Geometric, way.spec.spacing)
    pairs = values.shape[1]
    for _ in range(4):
        ladder, exact = way.spec.ladder, _at(way, places)
        at = exact.as_float64()
        rest = np.imag(values * units(Ladder(ladder.exact[:pairs]), exact).conj())
        rates = np.array(ladder.rates[:pairs])
        slower = rates * np.log(rates) / abs(math.log(spacing.base))  # derivative of the rates by ln base
        changes = {"step": (places, rates), "start": (np.ones_like(places), rates), "base": (at, slower)}
        # Positions are rounded too, those near 0 the least; residuals are weighted accordingly.
        rounded = 0.0 if way.real else np.multiply.outer(np.spacing(np.abs(at)) / 2, rates)
        sure = (1 / np.hypot(2.0**-53, rounded * np.ones_like(rest))).ravel()
        stacked = np.stack([np.multiply.outer(*changes[name]).ravel() * sure for name in way.free], axis=1)
        scale = np.sqrt((stacked**2).mean(axis=0)) + 1e-300
        change = np.linalg.lstsq(stacked / scale, rest.ravel() * sure, rcond=1e-15)[0] / scale
        moves = dict(zip(way.free, map(float, change), strict=True))
        before = (way.start, way.step, spacing.base)
        way = replace(way, start=way.start + moves.get("start", 0.0), step=way.step + moves.get("step", 0.0))
        if "base" in moves:
            rising = spacing.base < 1
            base = (1 / spacing.base if rising else spacing.base) * _exp(moves["base"])
            den = float(spacing.denominator(way.channels))
            multiplier = base ** (-(ladder.pairs - 1) / den) if rising else spacing.multiplier
            spacing = Geometric(1 / base if rising else base, spacing.span, multiplier)
            way = replace(way, spec=replace(way.spec, spacing=spacing))
        if before == (way.start, way.step, spacing.base):
            break
    return way
