"""Ladders without a ramp: geometric, slowed alike, with hands that stand still, and even steps."""

import math
from collections.abc import Iterator

import numpy as np

from clockhands.ladders import EvenSteps, Geometric
from clockhands.recognition.decimals import Interval, shortest, significant
from clockhands.recognition.measured import COSTS, USUAL, Fit, Measured, falls, spacings
from clockhands.scaling import Linear, Ntk, Proportional, Yarn


def plain_fits(measured: Measured) -> Iterator[Fit | None]:
    """Ladders without a ramp: geometric, slowed alike, with hands that stand still; even steps."""
    if not measured.turning or not measured.attention_factor.holds(1.0):
        yield from _with_attention(measured)
        return
    if (measured.rates[measured.turning :] > measured.bounds[measured.turning :]).any():
        return
    yield from _geometric_fits(measured)
    if measured.turning == measured.pairs and measured.pairs > 2:
        yield _even_steps(measured)


def _with_attention(measured: Measured) -> Iterator[Fit | None]:
    """A ladder that is not scaled, with a factor on cosine and sine: a YaRN that slows nothing."""
    if not measured.turning:
        return
    factor = shortest(measured.attention_factor)
    if factor <= 0:
        return
    alone = Yarn(1.0, 1, attention_factor=factor, ramp="turns")
    plain = Measured(
        measured.rates, measured.bounds, measured.channels, measured.whole, Interval(1.0, 1.0), measured.modulo
    )
    for fit in plain_fits(plain):
        if fit is not None and fit.scaling is None:
            yield measured.fit(fit.spacing, alone, fit.cost + COSTS["scaling"] + significant(factor))


def _geometric_fits(measured: Measured) -> Iterator[Fit | None]:
    still = measured.pairs - measured.turning
    for known, first in _lines(measured):
        for multiplier, factor, more in _multipliers(first):
            fall = _fall_of(measured, known, math.log(multiplier / factor))
            for spacing, cost in () if fall is None else spacings(measured, fall, multiplier):
                if still:
                    yield _standing_still(measured, spacing, cost, factor)
                if factor != 1:
                    yield measured.fit(spacing, Linear(factor), cost + more)
                    continue
                fit = measured.fit(spacing, None, cost + more)
                yield fit
                if fit is not None and multiplier == 1:
                    yield from _ntk(measured, spacing, cost)


def _lines(measured: Measured) -> Iterator[tuple[slice, Interval]]:
    """Which pairs' logarithms are on a line, and what it is at the first pair."""
    logarithms, relative, turning = measured.logarithms, measured.relative, measured.turning
    yield slice(0, turning), _starts(logarithms - relative, logarithms + relative)
    if measured.modulo is None or turning < 3:
        return
    # Slow hands are known; fast ones may have made whole turns unseen. The longest run of slow ones that is a line says
    # where they started.
    for start in range(1, turning - 1):
        index = np.arange(start, turning)
        slope, at_zero = np.polyfit(index, logarithms[start:], 1, w=1 / relative[start:])
        if (np.abs(at_zero + slope * index - logarithms[start:]) <= relative[start:]).all():
            reach = float(np.max(relative[start:])) * (1 + 2 * start / (turning - start))
            yield slice(start, turning), Interval(at_zero - reach, at_zero + reach)
            return


def _starts(low: np.ndarray, high: np.ndarray) -> Interval:
    """Where lines start that pass between these bounds at 0, 1, 2, …; the first bounds where there is no such line.

    A start ``a`` leaves slopes from the steepest ``(a - high_j) / j`` to the flattest ``(a - low_j) / j``. The room
    between the two is a concave function of ``a``: its top is found by thirds, its ends by halving.
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
    """The multiplier and the factor of a linear scaling that a first rate may come from, and what they cost."""
    rate = Interval(math.exp(first.low), math.exp(first.high))
    if rate.holds(1.0):
        yield 1.0, 1.0, 0.0
        return
    if rate.low <= 0:
        return  # less than a double holds: no hand of anybody's
    if rate.high < 1:
        factor = shortest(Interval(1 / rate.high, 1 / rate.low))
        yield 1.0, factor, COSTS["scaling"] + significant(factor)
    for unit in (2 * math.pi, math.pi):
        number = shortest(Interval(rate.low / unit, rate.high / unit))
        if significant(number) <= 3:
            yield number * unit, 1.0, COSTS["multiplier"] + 1.5 * significant(number) + (number % 1 > 0)
    number = shortest(rate)
    # Below 1 it is written as the factor of a linear scaling.
    yield number, 1.0, COSTS["multiplier"] + significant(number) + (3 if rate.high < 1 else 1)


def _fall_of(measured: Measured, known: slice, first: float) -> Interval | None:
    if measured.turning == 1:  # a single rate is on every ladder: the usual one
        usual = math.log(USUAL[0]) * 2 / measured.channels
        return Interval.around(usual, usual * 1e-9)
    return falls(measured, known, Interval(first, first))


def _ntk(measured: Measured, spacing: Geometric, cost: float) -> Iterator[Fit | None]:
    """The same ladder as another base that was raised: `Ntk` on a usual base."""
    if measured.pairs < 2 or spacing.span != "open":
        return
    for base in USUAL[:3]:
        factor = (spacing.base / base) ** ((measured.pairs - 1) / measured.pairs)
        if not 1.01 < factor < 1e4:
            continue
        # The slowest pair is slowed by the factor itself.
        reach = float(measured.relative[-1])
        short = shortest(Interval(factor * (1 - reach), factor * (1 + reach)))
        if significant(short) <= 3:
            yield measured.fit(Geometric(base), Ntk(short), cost + COSTS["scaling"] + significant(short))


def _standing_still(measured: Measured, spacing: Geometric, cost: float, factor: float) -> Fit | None:
    if spacing.span != "open" or spacing.multiplier != 1:
        return None
    turning, pairs = measured.turning, measured.pairs
    share = turning / pairs
    if significant(share) > 4 or int(share * pairs) != turning:
        share = shortest(Interval(turning / pairs, (turning + 1 - 1e-6) / pairs))
    scaling = Proportional(share, factor)
    return measured.fit(spacing, scaling, cost + COSTS["scaling"] + (significant(factor) if factor != 1 else 0))


def _even_steps(measured: Measured) -> Fit | None:
    first, last = float(measured.rates[0]), float(measured.rates[-1])
    if first == last or measured.difference(np.linspace(first, last, measured.pairs)) > 2:
        return None
    fits = []
    for unit in (1.0, math.pi, 2 * math.pi):
        ends = [
            max(shortest(Interval.around(measured.rates[pair] / unit, measured.bounds[pair] / unit)), 0.0)
            for pair in (0, -1)
        ]
        cost = COSTS["steps"] + sum(significant(end) + 2 * (end % 1 > 0) for end in ends)
        cost += 0 if unit == 1 else COSTS["multiplier"]
        fits.append(measured.fit(EvenSteps(ends[0], ends[1], unit), None, cost))
    return min((fit for fit in fits if fit is not None), key=lambda fit: fit.cost, default=None)
