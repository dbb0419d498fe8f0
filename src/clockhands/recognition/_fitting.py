"""Fit a ladder (the series of frequencies) to measured rates: its spacing and scaling, with round numbers.

All families are fitted in the same way. First, each parameter is bounded by an interval: in a geometric ladder
``ln rate_j = ln m - j g``, each pair bounds ``g``, and the bounds are intersected. Each scaling (`clockhands.scaling`)
bounds its own parameters in three cases: all rates are on one geometric ladder; only the high-frequency pairs are on
one, and the others have a fraction of its rates; or no ladder is known. In each interval, usual numbers are tried
first, then the shortest decimal. The library then computes the whole ladder, and every rate must be within its bound;
otherwise the fit is dropped, so a number is never rounded more than the measurement allows. If several values of a
parameter give the same rates, ``undetermined`` has their range.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from clockhands.encodings.ladders import EvenSteps, Explicit, Geometric, Spacing, Span
from clockhands.encodings.scaling import SCALINGS, Scaling
from clockhands.encodings.scaling.measured import SCALED, Fit, FittedLine, MeasuredRates, Shares, first_of
from clockhands.encodings.usual_values import USUAL_BASES
from clockhands.encodings.written_numbers import Interval, shortest, significant
from clockhands.errors import InvalidValue

# Cost of a spacing in addition to the digits of its numbers. Of two descriptions that fit, the cheaper comes first.
COSTS = {"span": 2, "multiplier": 2, "steps": 4, "explicit": 40}
_LARGEST = 700.0  # ln of a number that float64 still holds
_CLOSER = 8
__all__ = ["Fit", "fit_ladder"]


def spacings(measured: MeasuredRates, fall: Interval, multiplier: float = 1.0) -> Iterator[tuple[Geometric, float]]:
    """Geometric ladders with the ratio ``exp(-fall)`` of neighbouring rates: at most one for each span, with cost."""
    spans: list[tuple[Span, float]] = [("open", measured.channels / 2)]
    if measured.channels // 2 > 1:
        spans.append(("closed", measured.channels // 2 - 1))
    # If the number of RoPE dimensions is odd, such as half of 42, one more dimension rotates, and the exponent is
    # divided by the odd number.
    spans.append(((measured.channels - 1) / 2, (measured.channels - 1) / 2))
    if measured.whole != measured.channels:
        spans.append((measured.whole / 2, measured.whole / 2))
    if fall.high < 0 or fall.low > 0.5:  # octaves, and other round ratios of neighbours
        spans.append((1.0, 1.0))
    for span, denominator in spans:
        if max(abs(fall.low), abs(fall.high)) * denominator > 600:
            continue
        base = Interval(math.exp(fall.low * denominator), math.exp(fall.high * denominator))
        value = next((usual for usual in USUAL_BASES if base.holds(usual)), None) or shortest(base)
        if value in (0, 1):
            continue
        if span == (measured.channels - 1) / 2 and value not in USUAL_BASES:
            continue
        if value in USUAL_BASES:
            cost = 1 + 0.1 * USUAL_BASES.index(value)
        else:
            cost = float(significant(value) + (1 if 50 <= value <= 1e9 else 2))
        cost += 0 if span == "open" else COSTS["span"] + (0.5 if span == (measured.channels - 1) / 2 else 0)
        # Base 100 over half of the head gives the same rates as base 10,000 over the whole head, the usual form.
        cost += 3 if span == "open" and measured.whole != measured.channels and value < 1_000 else 0
        yield Geometric(value, span, multiplier), cost


def falls(measured: MeasuredRates, pairs: slice, first: Interval) -> Interval | None:
    """The interval of ``g`` in ``ln rate_j = first - j g`` for these pairs; None if it is empty or unbounded."""
    logarithms, relative = measured.logarithms[pairs], measured.relative[pairs]
    index = np.arange(measured.turning, dtype=np.float64)[pairs]
    away = index > 0
    if not away.any():
        return None
    low = (first.low - logarithms - relative)[away] / index[away]
    high = (first.high - logarithms + relative)[away] / index[away]
    found = Interval(float(low.max()), float(high.min()))
    return found if found.low <= found.high else None


def fits_without_ramp(measured: MeasuredRates) -> Iterator[Fit]:
    """Fits without a ramp: geometric ladders, also with one factor or with pairs of rate 0, and even steps.

    With a factor on cosine and sine, only fits of unscaled frequencies.
    """
    factor = 1.0 if measured.attention_factor.holds(1.0) else shortest(measured.attention_factor)
    if not measured.turning or factor <= 0:
        return
    if factor != 1:
        for fit in fits_without_ramp(replace(measured, attention_factor=Interval(1.0, 1.0))):
            if fit.scaling is None:
                yield from measured.fits(fit.spacing, _of_magnitude(factor), fit.cost + SCALED + significant(factor))
        return
    yield from _geometric_fits(measured)
    if measured.turning == measured.pairs and measured.pairs > 2:
        yield from _even_steps(measured)


def _of_magnitude(factor: float) -> Scaling:
    """The scaling that leaves all frequencies unchanged and has this factor on cosine and sine."""
    return next(made for kind in SCALINGS if (made := kind.of_magnitude(factor)) is not None)


def _geometric_fits(measured: MeasuredRates) -> Iterator[Fit]:
    """Fits with all rotating pairs on one geometric ladder: unscaled, and with each scaling that can give it."""
    for known, first in _lines(measured):
        for multiplier, factor, more in _multipliers(first):
            fall = _fall_of(measured, known, math.log(multiplier / factor))
            for spacing, cost in () if fall is None else spacings(measured, fall, multiplier):
                plain = tuple(measured.fits(spacing, None, cost + more)) if factor == 1 else ()
                line = FittedLine(measured, spacing, cost, factor, bool(plain))
                if measured.turning < measured.pairs:
                    for kind in SCALINGS:
                        yield from kind.fits_still(line)
                yield from plain
                for kind in SCALINGS:
                    yield from kind.fits_line(line)


def _lines(measured: MeasuredRates) -> Iterator[tuple[slice, Interval]]:
    """The pairs with ``ln rate`` on one line, and the interval of the line's value at pair 0."""
    logarithms, relative, turning = measured.logarithms, measured.relative, measured.turning
    yield slice(0, turning), _starts(logarithms - relative, logarithms + relative)
    if measured.modulo is None or turning < 3:
        return
    # Rates are known modulo 2 pi, so only those of low-frequency pairs are certain. The longest run of such pairs on a
    # line gives its value at pair 0.
    for start in range(1, turning - 1):
        index = np.arange(start, turning)
        slope, at_zero = np.polyfit(index, logarithms[start:], 1, w=1 / relative[start:])
        if (np.abs(at_zero + slope * index - logarithms[start:]) <= relative[start:]).all():
            reach = float(np.max(relative[start:])) * (1 + 2 * start / (turning - start))
            yield slice(start, turning), Interval(at_zero - reach, at_zero + reach)
            return


def _starts(low: np.ndarray, high: np.ndarray) -> Interval:
    """The values at 0 of the lines within these bounds at 0, 1, 2, …; if there is no such line, the first bounds.

    For a value ``a`` at 0, the difference between the smallest ``(a - low_j) / j`` and the largest
    ``(a - high_j) / j`` is a concave function of ``a``. Ternary search finds its maximum, and bisection its zeros.
    """
    bounds, index = Interval(float(low[0]), float(high[0])), np.arange(1, len(low))
    if not index.size:
        return bounds

    def room(start: float) -> float:
        return float(((start - low[1:]) / index).min() - ((start - high[1:]) / index).max())

    left, right = bounds.low, bounds.high
    for _ in range(100):
        third = (right - left) / 3
        left, right = (left + third, right) if room(left + third) < room(right - third) else (left, right - third)
    top = (left + right) / 2
    if room(top) < 0:
        return bounds
    ends = []
    for bound in (bounds.low, bounds.high):
        inside, outside = top, bound
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if room(middle) >= 0 else (inside, middle)
        ends.append(inside)
    return Interval(ends[0], ends[1])


def _multipliers(first: Interval) -> Iterator[tuple[float, float, float]]:
    """Multiplier, factor of a linear scaling and cost that may give a first rate, from the interval of ``ln rate``."""
    if first.high > _LARGEST:
        return  # exp overflows: no real frequency is this high
    rate = Interval(math.exp(first.low), math.exp(first.high))
    if rate.holds(1.0):
        yield 1.0, 1.0, 0.0
        return
    if rate.low <= 0:
        return  # exp underflows: no real frequency is this low
    if rate.high < 1:
        factor = shortest(Interval(1 / rate.high, 1 / rate.low))
        yield 1.0, factor, SCALED + significant(factor)
    for unit in (2 * math.pi, math.pi):
        number = shortest(Interval(rate.low / unit, rate.high / unit))
        if significant(number) <= 3:
            yield number * unit, 1.0, COSTS["multiplier"] + 1.5 * significant(number) + (number % 1 > 0)
    number = shortest(rate)
    # A multiplier below 1 costs 2 more, because it is usually written as the factor of a linear scaling.
    yield number, 1.0, COSTS["multiplier"] + significant(number) + (3 if rate.high < 1 else 1)


def _fall_of(measured: MeasuredRates, known: slice, first: float) -> Interval | None:
    if measured.turning == 1:  # a single rate fits any base: the most usual one is taken
        usual = math.log(USUAL_BASES[0]) * 2 / measured.channels
        return Interval.around(usual, usual * 1e-9)
    return falls(measured, known, Interval(first, first))


def _even_steps(measured: MeasuredRates) -> list[Fit]:
    first, last = float(measured.rates[0]), float(measured.rates[-1])
    if first == last or measured.difference(np.linspace(first, last, measured.pairs)) > 2:
        return []
    fits: list[Fit] = []
    for unit in (1.0, math.pi, 2 * math.pi):
        ends = [
            max(shortest(Interval.around(measured.rates[pair] / unit, measured.bounds[pair] / unit)), 0.0)
            for pair in (0, -1)
        ]
        cost = COSTS["steps"] + sum(significant(end) + 2 * (end % 1 > 0) for end in ends)
        cost += 0 if unit == 1 else COSTS["multiplier"]
        fits += measured.fits(EvenSteps(ends[0], ends[1], unit), None, cost)
    return sorted(fits, key=lambda fit: fit.cost)[:1]


def fits_with_ramp(measured: MeasuredRates) -> Iterator[Fit]:
    """Fits of scalings with a ramp: on geometric ladders through the fast or slow pairs; else without such a ladder."""
    if measured.turning != measured.pairs or measured.pairs < 2:
        return
    if measured.modulo is not None and (measured.rates >= measured.modulo / 2).any():
        return
    seen: set[Geometric] = set()

    def of_shares(fall: Interval) -> Iterator[Fit]:
        for spacing, cost in spacings(measured, fall):
            if spacing in seen or not 1 < spacing.base < 1e15:
                continue
            seen.add(spacing)
            shares = Shares(measured, spacing)
            for kind in SCALINGS if shares.possible else ():
                for fit in kind.fits_shares(shares):
                    yield replace(fit, cost=fit.cost + cost)

    ways = (map(of_shares, _falls(measured)), (kind.fits_rates(measured) for kind in SCALINGS))
    yield from first_of(itertools.chain(*ways))


def _falls(measured: MeasuredRates) -> Iterator[Interval]:
    """Intervals of ``g`` if some pairs are scaled: those from fast and slow pairs together, then from each alone."""
    fast, slow = _from_fast(measured), _from_slow(measured)
    for found in fast:
        both = None if slow is None else found.meet(slow)
        if both is not None:
            yield both
    yield from fast
    if slow is not None:
        yield slow
    # A small error of the base changes the share of a pair near the end of a ramp by much, so the first interval is
    # also tried in 8 parts.
    for found in fast[:1]:
        ends = np.linspace(found.low, found.high, _CLOSER + 1)
        yield from (Interval(float(low), float(high)) for low, high in itertools.pairwise(ends))


def _from_fast(measured: MeasuredRates) -> list[Interval]:
    """Intervals of ``g`` from the first pairs that are on one geometric ladder: at most 3, the longest run first.

    The longest run may end with a pair that is scaled by less than its error bound, which would bias ``g``. Therefore
    the two next shorter runs follow.
    """
    runs: list[Interval] = []
    if abs(measured.logarithms[0]) > measured.relative[0]:
        return runs
    for pairs in range(2, measured.pairs + 1):
        found = falls(measured, slice(0, pairs), Interval(0.0, 0.0))
        if found is None or found.low <= 0:
            break
        runs.append(found)
    return runs[:-4:-1]


def _from_slow(measured: MeasuredRates) -> Interval | None:
    """The interval of ``g`` from the longest run of pairs with one ratio that ends with the last pair; or None."""
    logarithms, relative = measured.logarithms, measured.relative
    longest = None
    for start in range(measured.pairs - 2, -1, -1):
        steps = np.arange(1, measured.pairs - start)
        rest = logarithms[start] - logarithms[start + 1 :]
        reach = relative[start] + relative[start + 1 :]
        found = Interval(float(((rest - reach) / steps).max()), float(((rest + reach) / steps).min()))
        if found.low > found.high or found.low <= 0:
            break
        longest = found
    return longest


def fit_ladder(
    rates: Sequence[float] | np.ndarray,
    uncertainty: Sequence[float] | np.ndarray | float,
    *,
    channels: int | None = None,
    whole: int | None = None,
    attention_factor: float = 1.0,
    attention_uncertainty: float = 1e-6,
    modulo: float | None = None,
) -> list[Fit]:
    """All descriptions of these rates, the cheapest first; one of them is `Explicit`, the list of the rates.

    Args:
        rates: Frequency of each pair in rad/token, in the order of the pairs; 0 for a pair that does not rotate.
        uncertainty: Error bound of each rate in rad/token, positive: a bound, not a standard deviation.
        channels: Number of channels of the ladder, 2 x pairs by default. ``span="open"`` divides by half of it.
        whole: Channels of the head, if the ladder is for a part of it: the exponent may be divided by half of these.
        attention_factor: Factor on cosine and sine. Only YaRN and LongRoPE have one other than 1.
        attention_uncertainty: Error bound of this factor.
        modulo: If rates are known only up to multiples of this number (2 pi at integer positions): low rates are used
            unchanged; higher rates, which may be given as 0 or negative numbers, follow from the ladder through the
            low ones.

    Returns:
        Fits, best first. ``fit.spacing.ladder(pairs, channels)``, then ``fit.scaling``, gives a ladder with all rates
        within the uncertainty.

    Raises:
        InvalidValue: There is no rate, a rate is negative or not finite, or an uncertainty is not positive.

    >>> fit = fit_ladder([1.0, 0.1000001, 0.0099999, 0.001], 1e-6)[0]
    >>> fit.spacing, fit.scaling
    (Geometric(), None)
    """
    given = np.asarray(rates, np.float64).reshape(-1)
    bounds = np.broadcast_to(np.asarray(uncertainty, np.float64), given.shape)
    if not given.size or not np.isfinite(given).all() or (modulo is None and (given < 0).any()):
        raise InvalidValue(
            "At least one frequency is needed, and all must be finite and not negative.",
            "Give one frequency in rad/token for each pair.",
        )
    if not (np.isfinite(bounds).all() and (bounds > 0).all()):
        raise InvalidValue("Uncertainties must be finite and positive.", "Give a bound in rad/token for each pair.")
    channels = 2 * len(given) if channels is None else channels
    factor = Interval.around(attention_factor, attention_uncertainty)
    measured = MeasuredRates(given, bounds, channels, channels if whole is None else whole, factor, modulo)
    found = list(first_of((fits_without_ramp(measured), fits_with_ramp(measured))))
    still = tuple(np.where(measured.rates <= measured.bounds, 0.0, measured.rates).tolist())
    alone = None if factor.holds(1.0) else _of_magnitude(shortest(factor))
    found.append(Fit(Explicit(still), alone, 0.0, COSTS["explicit"] + 17 * len(still)))
    different: dict[tuple[Spacing, Scaling | None], Fit] = {}
    for fit in sorted(found, key=lambda fit: fit.cost):
        different.setdefault((fit.spacing, fit.scaling), fit)
    return list(different.values())
