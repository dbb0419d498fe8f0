"""From measured rates to the ladder that has them: how it is spaced and scaled, in numbers that people write.

Every family is fitted in the same way. Its numbers are first bounded by intervals: of a geometric ladder
``ln rate_j = ln m - j g`` each pair bounds ``g``, and the bounds are intersected; of a scaling the shares that pairs
keep, ``rate_j / w_j``, are a line in the pair's index from 1 to ``1 / f`` (YaRN) or in its rate (Llama 3). The fast
pairs keep their rates under both, and say which ladder was scaled. Usual numbers are tried first (32 and 1 turns, a
length that is a power of two), then the shortest decimal of each interval. The whole ladder is made by the library's
own code and held to every bound: what does not fit is not answered, so a number is never shortened beyond what was
measured. Numbers that several values of give the same rates are said in ``undetermined``.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.ladders import EvenSteps, Explicit, Geometric, Spacing, Span
from clockhands.recognition._written_numbers import Interval, roundest, shortest, significant
from clockhands.scaling import Linear, Llama3, LongRope, Ntk, Proportional, Scaling, Yarn, yarn_magnitude

# Bases that models were published with: where one ladder has several descriptions, these come first.
USUAL = (1e4, 5e5, 1e6, 1e5, 1.5e5, 1.6e5, 5e6, 1e7, 1e8, 1e2, 2.5e5, 8e6, 1.1e7)

# What a description costs beyond the digits of its numbers: of two that fit, the cheaper is said first.
COSTS = {"span": 2, "multiplier": 2, "scaling": 3, "steps": 4, "divisors": 12, "explicit": 40}
_LENGTHS = tuple(1 << power for power in range(7, 25))
# Turns between which ramps lie, the usual ones first.
_BETAS = ((32.0, 1.0), (16.0, 1.0), (32.0, 2.0), (16.0, 2.0), (64.0, 1.0))
_TURNS = ((1.0, 4.0), (1.0, 1.0), (2.0, 4.0), (1.0, 2.0), (1.0, 8.0), (2.0, 8.0), (4.0, 8.0))
_CLOSER = 8
_USUAL_LENGTHS = tuple(1 << power for power in range(11, 18))
# The numbers of a LongRoPE must be this much rarer than decimals that fit by chance, as a power of 10.
_RARER = 6.0
_FINE = 1e-5
_CHANCE = 0.1
__all__ = ["Fit", "fit_ladder"]


@dataclass(frozen=True)
class Fit:
    """A description that has all the rates within their bounds.

    Attributes:
        spacing: How the rates are spaced.
        scaling: How the ladder is scaled, or None.
        difference: The largest difference from a measured rate, in units of its bound: at most 1.
        cost: What speaks against it: significant digits of its numbers, and rare fields.
        undetermined: Numbers that the rates do not tell, each with the lowest and the highest value.
    """

    spacing: Spacing
    scaling: Scaling | None = None
    difference: float = 0.0
    cost: float = 0.0
    undetermined: tuple[tuple[str, tuple[float, float]], ...] = ()


@dataclass(frozen=True, eq=False)
class MeasuredRates:
    """Rates with their bounds, and what they are the rates of.

    Attributes:
        rates: Radians per token, float64 [pairs].
        bounds: How far each may lie from the truth, rad/token.
        channels: Channels that the ladder is for, twice the pairs unless an odd one is left over.
        whole: Channels of a head of which these are a part; a ladder's exponent may run over them.
        attention_factor: What cosine and sine are multiplied by, with its bound.
        modulo: Where rates are only known up to multiples of it (a turn per step of the positions), else None. Then
            a fast one may seem to stand still, or to turn backward.
    """

    rates: np.ndarray
    bounds: np.ndarray
    channels: int
    whole: int
    attention_factor: Interval
    modulo: float | None
    turning: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the pairs that turn: what stands still stands at the slow end."""
        moving = np.flatnonzero(np.abs(self.rates) > self.bounds)
        object.__setattr__(self, "turning", int(moving[-1]) + 1 if moving.size else 0)

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.rates)

    @property
    def logarithms(self) -> np.ndarray:
        """``ln rate`` of the pairs that turn; of those that seem to stand or to turn backward, an impossible number."""
        return np.log(np.maximum(self.rates[: self.turning], 1e-300))

    @property
    def relative(self) -> np.ndarray:
        """Bounds of the logarithms."""
        known = slice(self.turning)
        return -np.log1p(-np.minimum(self.bounds[known] / np.maximum(self.rates[known], 1e-300), 0.5))

    def difference(self, rates: Sequence[float] | np.ndarray) -> float:
        """The largest difference from the measured rates in units of the bounds."""
        away = np.asarray(rates) - self.rates
        if self.modulo is not None:
            away = away - self.modulo * np.round(away / self.modulo)
        return float(np.max(np.abs(away) / self.bounds, initial=0.0))

    def fit(
        self,
        spacing: Spacing,
        scaling: Scaling | None = None,
        cost: float = 0.0,
        undetermined: tuple[tuple[str, tuple[float, float]], ...] = (),
    ) -> Fit | None:
        """This description if it fits, rates and attention factor."""
        try:
            ladder = spacing.ladder(self.pairs, self.channels)
            if scaling is not None:
                ladder = scaling(ladder)
        except ClockhandsError:  # these numbers make no ladder
            return None
        difference = self.difference(ladder.rates)
        if difference > 1 or not self.attention_factor.holds(ladder.attention_factor):
            return None
        return Fit(spacing, scaling, difference, cost, undetermined)


def spacings(measured: MeasuredRates, fall: Interval, multiplier: float = 1.0) -> Iterator[tuple[Geometric, float]]:
    """Geometric ladders whose neighbours' ratio is ``exp(-fall)``, each with its cost: one for each span."""
    spans: list[tuple[Span, float]] = [("open", measured.channels / 2)]
    if measured.channels // 2 > 1:
        spans.append(("closed", measured.channels // 2 - 1))
    # An odd number of rotated channels, as half of 42 is: one more turns, and the exponent runs over the odd one.
    spans.append(((measured.channels - 1) / 2, (measured.channels - 1) / 2))
    if measured.whole != measured.channels:
        spans.append((measured.whole / 2, measured.whole / 2))
    if fall.high < 0 or fall.low > 0.5:  # octaves, and other ratios that are round themselves
        spans.append((1.0, 1.0))
    for span, denominator in spans:
        if max(abs(fall.low), abs(fall.high)) * denominator > 600:
            continue
        base = Interval(math.exp(fall.low * denominator), math.exp(fall.high * denominator))
        value = next((usual for usual in USUAL if base.holds(usual)), None) or shortest(base)
        if value in (0, 1):
            continue
        if span == (measured.channels - 1) / 2 and value not in USUAL:
            continue
        if value in USUAL:
            cost = 1 + 0.1 * USUAL.index(value)
        else:
            cost = float(significant(value) + (1 if 50 <= value <= 1e9 else 2))
        cost += 0 if span == "open" else COSTS["span"] + (0.5 if span == (measured.channels - 1) / 2 else 0)
        # Base 100 over a rotated half is base 10,000 over the whole head, as which it is written.
        cost += 3 if span == "open" and measured.whole != measured.channels and value < 1_000 else 0
        yield Geometric(value, span, multiplier), cost


def falls(measured: MeasuredRates, pairs: slice, first: Interval) -> Interval | None:
    """What ``g`` can be where ``ln rate_j = first - j g`` for these pairs, or None."""
    logarithms, relative = measured.logarithms[pairs], measured.relative[pairs]
    index = np.arange(measured.turning, dtype=np.float64)[pairs]
    away = index > 0
    if not away.any():
        return None
    low = (first.low - logarithms - relative)[away] / index[away]
    high = (first.high - logarithms + relative)[away] / index[away]
    found = Interval(float(low.max()), float(high.min()))
    return found if found.low <= found.high else None


def plain_fits(measured: MeasuredRates) -> Iterator[Fit | None]:
    """Ladders without a ramp: geometric, slowed alike, with hands that stand still; even steps."""
    if not measured.turning or not measured.attention_factor.holds(1.0):
        yield from _with_attention(measured)
        return
    if (measured.rates[measured.turning :] > measured.bounds[measured.turning :]).any():
        return
    yield from _geometric_fits(measured)
    if measured.turning == measured.pairs and measured.pairs > 2:
        yield _even_steps(measured)


def _with_attention(measured: MeasuredRates) -> Iterator[Fit | None]:
    """A ladder that is not scaled, with a factor on cosine and sine: a YaRN that slows nothing."""
    if not measured.turning:
        return
    factor = shortest(measured.attention_factor)
    if factor <= 0:
        return
    alone = Yarn(1.0, 1, attention_factor=factor, ramp="turns")
    plain = MeasuredRates(
        measured.rates, measured.bounds, measured.channels, measured.whole, Interval(1.0, 1.0), measured.modulo
    )
    for fit in plain_fits(plain):
        if fit is not None and fit.scaling is None:
            yield measured.fit(fit.spacing, alone, fit.cost + COSTS["scaling"] + significant(factor))


def _geometric_fits(measured: MeasuredRates) -> Iterator[Fit | None]:
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


def _lines(measured: MeasuredRates) -> Iterator[tuple[slice, Interval]]:
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

    The room between the steepest slope ``(a - high_j) / j`` and the flattest ``(a - low_j) / j`` that a start ``a``
    leaves is a concave function of ``a``: its top is found by thirds, its ends by halving.
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


def _fall_of(measured: MeasuredRates, known: slice, first: float) -> Interval | None:
    if measured.turning == 1:  # a single rate is on every ladder: the usual one
        usual = math.log(USUAL[0]) * 2 / measured.channels
        return Interval.around(usual, usual * 1e-9)
    return falls(measured, known, Interval(first, first))


def _ntk(measured: MeasuredRates, spacing: Geometric, cost: float) -> Iterator[Fit | None]:
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


def _standing_still(measured: MeasuredRates, spacing: Geometric, cost: float, factor: float) -> Fit | None:
    if spacing.span != "open" or spacing.multiplier != 1:
        return None
    turning, pairs = measured.turning, measured.pairs
    share = turning / pairs
    if significant(share) > 4 or int(share * pairs) != turning:
        share = shortest(Interval(turning / pairs, (turning + 1 - 1e-6) / pairs))
    scaling = Proportional(share, factor)
    return measured.fit(spacing, scaling, cost + COSTS["scaling"] + (significant(factor) if factor != 1 else 0))


def _even_steps(measured: MeasuredRates) -> Fit | None:
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


def scaled_fits(measured: MeasuredRates) -> list[Fit]:
    """Scalings with a ramp on each geometric ladder that the fast or the slow hands allow; else divisors one by one."""
    if measured.modulo is not None and (measured.rates >= measured.modulo / 2).any():
        return []
    found: list[Fit] = []
    seen: set[Geometric] = set()
    for fall in _falls(measured):
        for spacing, cost in spacings(measured, fall):
            if spacing in seen or not 1 < spacing.base < 1e15:
                continue
            seen.add(spacing)
            shares = _Shares(measured, spacing)
            fits = (*_yarns(shares), *_llamas(shares)) if shares.possible else ()
            found += [replace(fit, cost=fit.cost + cost) for fit in fits if fit is not None]
        if found:
            return found
    return [fit for fit in _longropes(measured) if fit is not None]


def _falls(measured: MeasuredRates) -> Iterator[Interval]:
    """What ``g`` can be, where some hands are slowed: what fast and slow hands agree on, then either alone."""
    fast, slow = _from_fast(measured), _from_slow(measured)
    for found in fast:
        both = None if slow is None else found.meet(slow)
        if both is not None:
            yield both
    yield from fast
    if slow is not None:
        yield slow
    # A pair near the end of a ramp has a share that a small error of the base moves far: look closer.
    for found in fast[:1]:
        ends = np.linspace(found.low, found.high, _CLOSER + 1)
        yield from (Interval(float(low), float(high)) for low, high in itertools.pairwise(ends))


def _from_fast(measured: MeasuredRates) -> list[Interval]:
    """What ``g`` can be by the pairs from the first on that lie on one geometric ladder.

    The longest run may end with a pair that is slowed by less than is seen, and leans on it: the next shorter ones
    follow.
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
    """What ``g`` can be by the ratio of the slowest two pairs, and by longer runs that end there."""
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


def _length_cost(original: int) -> float:
    return 0 if original in _USUAL_LENGTHS else 2 if original in _LENGTHS else 3


class _Shares:
    """What each pair keeps of a geometric ladder's rate, with bounds."""

    def __init__(self, measured: MeasuredRates, spacing: Geometric) -> None:
        ladder = spacing.ladder(measured.pairs, measured.channels)
        self.measured, self.spacing = measured, spacing
        self.below = np.array(ladder.rates)
        self.fall = math.log(spacing.base) / float(spacing.denominator(measured.channels))
        self.kept = measured.rates / self.below
        self.reach = measured.bounds / self.below
        self.index = np.arange(measured.pairs)

    @property
    def possible(self) -> bool:
        """Whether they fall from 1 to something above 0, and do fall."""
        lowest, highest = self.kept - self.reach, self.kept + self.reach
        falling = (np.diff(self.kept) <= self.reach[1:] + self.reach[:-1]).all()
        return bool(falling and highest[0] >= 1 and (lowest <= 1).all() and highest[-1] < 1 and lowest[-1] > 0)

    def near(self, slowed: np.ndarray, factor: float) -> bool:
        """Whether these parts of the slowing are nearly the shares: worth making the ladder exactly."""
        made = 1 - slowed * (1 - 1 / factor)
        return bool((np.abs(made - self.kept) <= 2 * self.reach + 1e-12).all())

    def slowest(self, share: float) -> float | None:
        """The factor, if the last pair gets ``share`` of the slowing: the shortest decimal."""
        if share <= 0:
            return None
        low, high = (1 - (1 - self.kept[-1] - side * self.reach[-1]) / share for side in (-1, 1))
        if low <= 0:
            return None
        factor = shortest(Interval(1 / high, 1 / low))
        return factor if 1 < factor < 1e6 else None

    def plateau(self) -> float | None:
        """The factor, if the slowest pairs are slowed alike: what they agree on."""
        agreed = Interval(0.0, math.inf)
        pairs = 0
        for kept, reach in zip(self.kept[::-1], self.reach[::-1], strict=True):
            both = agreed.meet(Interval.around(float(kept), float(reach)))
            if both is None:
                break
            agreed, pairs = both, pairs + 1
        if pairs < 2 or agreed.low <= 0:
            return None
        factor = shortest(Interval(1 / agreed.high, 1 / agreed.low))
        return factor if 1 < factor < 1e6 else None

    def between(self, factor: float) -> np.ndarray:
        """The pairs on the ramp."""
        return np.flatnonzero((self.kept + self.reach < 1) & (self.kept - self.reach > 1 / factor))

    def slowing(self, factor: float, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which part of the slowing these pairs get, lowest and highest."""
        whole = 1 - 1 / factor
        kept, reach = self.kept[pairs], self.reach[pairs]
        return (1 - kept - reach) / whole, (1 - kept + reach) / whole


def _yarns(shares: _Shares) -> Iterator[Fit | None]:
    found = False
    for betas, original, truncate in itertools.product(_BETAS, _LENGTHS, (True, False)):
        begin, end = _ramp(shares, original, *betas, truncate)
        factor = shares.slowest(min(max((shares.measured.pairs - 1 - begin) / (end - begin), 0.0), 1.0))
        if factor is not None:
            for fit in _yarn(shares, factor, original, betas, truncate):
                found = found or fit is not None
                yield fit
    if not found:
        yield from _solved_yarns(shares)


def _ramp(shares: _Shares, original: float, fast: float, slow: float, truncate: bool) -> tuple[float, float]:
    """Where a YaRN's ramp begins and ends, in pairs, as `clockhands.scaling.Yarn` says."""
    begin, end = (math.log(original / (2 * math.pi * turns)) / shares.fall for turns in (fast, slow))
    if truncate:
        begin, end = float(math.floor(begin)), float(math.ceil(end))
    begin, end = max(begin, 0.0), min(end, 2.0 * shares.measured.pairs - 1)
    return begin, end + 0.001 if begin == end else end


def _yarn(
    shares: _Shares, factor: float, original: int, betas: tuple[float, float], truncate: bool
) -> Iterator[Fit | None]:
    measured, (fast, slow) = shares.measured, betas
    begin, end = _ramp(shares, original, fast, slow, truncate)
    if not shares.near(np.clip((shares.index - begin) / (end - begin), 0, 1), factor):
        return
    usual = yarn_magnitude(factor)
    attention = None if measured.attention_factor.holds(usual) else shortest(measured.attention_factor)
    if attention is not None and attention <= 0:
        return
    # Lengths between which the ramp begins and ends at the same pairs.
    same = ()
    if truncate:
        lengths = _same_lengths(shares, begin, end, fast, slow)
        same = () if lengths is None else (("original", (lengths.low, lengths.high)),)
    cost = COSTS["scaling"] + significant(factor) + (0 if truncate else 1) + _length_cost(original)
    cost += 0 if (fast, slow) == (32.0, 1.0) else 3 + significant(fast) + significant(slow)
    cost += 0 if attention is None else significant(attention)
    scaling = Yarn(factor, original, fast, slow, truncate, attention_factor=attention)
    yield measured.fit(shares.spacing, scaling, cost, same)


def _same_lengths(shares: _Shares, begin: float, end: float, fast: float, slow: float) -> Interval | None:
    """The original lengths that give this whole beginning and end."""
    turn = 2 * math.pi
    last = 2.0 * shares.measured.pairs - 1
    beginning = Interval(
        turn * fast * math.exp(shares.fall * begin) if begin > 0 else 0.0,
        turn * fast * math.exp(shares.fall * (begin + 1)),
    )
    ending = Interval(
        turn * slow * math.exp(shares.fall * (end - 1)),
        turn * slow * math.exp(shares.fall * end) if end < last else math.inf,
    )
    both = beginning.meet(ending)
    return None if both is None or math.isinf(both.high) else both


def _solved_yarns(shares: _Shares) -> Iterator[Fit | None]:
    """YaRNs of other turns or lengths: the ramp's ends are solved for first."""
    plateau = shares.plateau()
    for factor in _unseen_factors(shares) if plateau is None else (plateau,):
        yield from _yarns_by(shares, factor)


def _unseen_factors(shares: _Shares) -> Iterator[float]:
    """Factors where the ramp goes on past the slowest pair: the attention factor's, then those in use."""
    factor = shares.measured.attention_factor
    if factor.low > 1:
        yield shortest(Interval(math.exp((factor.low - 1) / 0.1), math.exp((factor.high - 1) / 0.1)))
    yield from (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0, 128.0)


def _yarns_by(shares: _Shares, factor: float) -> Iterator[Fit | None]:
    for begin, end, truncate in _ends(shares, factor):
        if truncate:
            lengths = _same_lengths(shares, begin, end, 32.0, 1.0)
            original = None if lengths is None else roundest(lengths)
            if original is not None:
                yield from _yarn(shares, factor, original, (32.0, 1.0), truncate)
            for original in _LENGTHS:
                fast, slow = (
                    shortest(Interval(*(original / (2 * math.pi * math.exp(shares.fall * pair)) for pair in ends)))
                    for ends in ((begin + 1 - 1e-9, begin), (end, end - 1 + 1e-9))
                )
                if fast >= slow > 0 and significant(fast) <= 3 and significant(slow) <= 3:
                    yield from _yarn(shares, factor, original, (fast, slow), truncate)
        else:
            yield from _untruncated(shares, factor, begin, end)


def _untruncated(shares: _Shares, factor: float, begin: float, end: float) -> Iterator[Fit | None]:
    """YaRNs whose ramp begins and ends between pairs: each end says the length over the turns."""
    reach = 1e-3
    over = [2 * math.pi * math.exp(shares.fall * pair) for pair in (begin, end)]
    for slow in (1.0, 2.0, 0.5, 4.0):
        lengths = Interval.around(slow * over[1], slow * over[1] * reach)
        original = roundest(lengths)
        if original is None:
            continue
        for digits in (1, 2, 3, 4, 6, 8):
            fast = float(f"{original / over[0]:.{digits - 1}e}")
            if fast >= slow:
                yield from _yarn(shares, factor, original, (fast, slow), truncate=False)


def _ends(shares: _Shares, factor: float) -> Iterator[tuple[float, float, bool]]:
    """Where the ramp may begin and end, in pairs, and whether at whole ones."""
    pairs = shares.between(factor)
    last = 2 * shares.measured.pairs - 1
    if len(pairs) < 2:
        kept = int(np.flatnonzero(shares.kept + shares.reach >= 1)[-1])
        if not len(pairs):
            yield float(kept), float(kept + 1), True
            return
        low, high = shares.slowing(factor, pairs)
        for begin, end in itertools.product(range(kept + 1), range(int(pairs[0]) + 1, last + 1)):
            if low[0] <= (pairs[0] - begin) / (end - begin) <= high[0]:
                yield float(begin), float(end), True
        return
    low, high = shares.slowing(factor, pairs)
    slope, at_zero = np.polyfit(pairs, (low + high) / 2, 1, w=1 / (high - low))
    if slope <= 0:
        return
    begin, end = -at_zero / slope, (1 - at_zero) / slope
    if not -last <= begin < end <= 4 * last:
        return
    whole = float(max(round(begin), 0)), float(min(round(end), last))
    if whole[0] < whole[1]:
        yield *whole, True
    yield float(begin), float(end), False


def _llamas(shares: _Shares) -> Iterator[Fit | None]:
    turns = shares.below / (2 * math.pi)
    found = False
    for original, (low, high) in itertools.product(_LENGTHS, _TURNS):
        slowest = original * turns[-1]
        share = 1.0 if slowest <= low else 1 - (slowest - low) / (high - low) if slowest < high else 0.0
        factor = shares.slowest(share)
        if factor is not None:
            for fit in _llama(shares, factor, original, low, high):
                found = found or fit is not None
                yield fit
    factor = shares.plateau()
    if found or factor is None:
        return
    pairs = shares.between(factor)
    if len(pairs) < 2:
        return
    lowest, highest = shares.slowing(factor, pairs)
    slope, at_zero = np.polyfit(turns[pairs], 1 - (lowest + highest) / 2, 1, w=1 / (highest - lowest))
    if slope <= 0 or at_zero >= 0:
        return
    # 1 - slowing = (original x turns - low) / (high - low)
    low_over, high_over = -at_zero / slope, (1 - at_zero) / slope
    for low in (1.0, 2.0, 4.0, 8.0, 0.5, 1.5, 3.0, 0.25):
        original = roundest(Interval.around(low / low_over, 1e-3 * low / low_over))
        if original is not None:
            # Exactly this line through the length that was taken.
            for digits in (1, 2, 3, 4, 6, 8):
                yield from _llama(shares, factor, original, low, float(f"{original * high_over:.{digits - 1}e}"))


def _llama(shares: _Shares, factor: float, original: int, low: float, high: float) -> Iterator[Fit | None]:
    turns = original * shares.below / (2 * math.pi)
    slowed = np.clip((high - turns) / (high - low), 0, 1) if high > low else (turns < high).astype(float)
    if high < low or not shares.near(slowed, factor):
        return
    cost = COSTS["scaling"] + significant(factor) + _length_cost(original)
    cost += 0 if (low, high) == (1.0, 4.0) else significant(low) + significant(high)
    measured = shares.measured
    if measured.attention_factor.holds(1.0):
        yield measured.fit(shares.spacing, Llama3(factor, original, low, high), cost)
        return
    # The same ramp with a factor on cosine and sine is the YaRN of the paper's equation.
    usual = yarn_magnitude(factor)
    attention = None if measured.attention_factor.holds(usual) else shortest(measured.attention_factor)
    if attention is None or attention > 0:
        scaling = Yarn(factor, original, high, low, attention_factor=attention, ramp="turns")
        cost += 0 if attention is None else significant(attention)
        yield measured.fit(shares.spacing, scaling, cost + 2)


def _longropes(measured: MeasuredRates) -> Iterator[Fit | None]:
    """Pairs slowed by short decimals each: far more of them than chance would give."""
    best: tuple[float, float, tuple[float, ...]] | None = None
    for base in USUAL:
        below = np.array(Geometric(base).ladder(measured.pairs, measured.channels).rates)
        low, high = below / (measured.rates + measured.bounds), below / (measured.rates - measured.bounds)
        if (high < 1).any() or (high > 1e4).any():  # hands are slowed
            continue
        found = [divisor_in(Interval(float(a), float(b))) for a, b in zip(low, high, strict=True)]
        rare, divisors = sum(rare for _, rare in found), tuple(number for number, _ in found)
        # Where the measurement is fine, a number that nobody wrote is no rarer than chance.
        fine = (high - low) / low < _FINE
        if np.mean([own < 1 for (_, own), known in zip(found, fine, strict=True) if known] or [0]) > _CHANCE:
            continue
        if best is None or rare > best[0]:
            best = rare, base, divisors
    if best is None or best[0] < _RARER + 0.5 * measured.pairs or 2 * best[2].count(1.0) > measured.pairs:
        return
    _, base, divisors = best
    cost = COSTS["divisors"] + sum(min(significant(number), 6) for number in divisors) / 4
    factor = measured.attention_factor
    attention = shortest(factor)
    if attention <= 0:
        return
    usual = _usual_longrope(factor)
    if usual is not None:
        scaling = LongRope(divisors, divisors, *usual)
        yield measured.fit(Geometric(base), scaling, cost, (("long", (0.0, math.inf)),))
    else:
        scaling = LongRope(divisors, divisors, 4096, 1.0, attention_factor=attention)
        yield measured.fit(Geometric(base), scaling, cost + significant(attention), (("original", (2.0, 2.0**63)),))


def divisor_in(interval: Interval) -> tuple[float, float]:
    """A short decimal, or the float32 next to it as configs hold them, and how much rarer than chance that is."""
    middle = interval.middle
    for digits in range(1, 7):
        decimal = float(f"{middle:.{digits - 1}e}")
        number = next((one for one in (decimal, float(np.float32(decimal))) if interval.holds(one)), None)
        if number is not None:
            # So many decimals lie in so narrow an interval.
            chance = (interval.high - interval.low) * 10 ** (digits - 1 - math.floor(math.log10(middle)))
            return number, max(0.0, -math.log10(max(chance, 1e-300)))
    return shortest(interval), 0.0


def _usual_longrope(factor: Interval) -> tuple[int, float] | None:
    """The original length and the factor that an attention factor follows from, both powers of two, if they are."""
    for original in (4096, 8192, 2048, 32768, 1024, 16384, 65536):
        for power in range(13):
            if factor.holds(math.sqrt(1 + math.log(1 << power) / math.log(original))):
                return original, float(1 << power)
    return None


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
    """Every description of these rates, the cheapest first; the last is `Explicit`, the rates as they are.

    Args:
        rates: Radians per token of each pair, in the order of the pairs; 0 for a pair that stands still.
        uncertainty: How far each rate may lie from the truth, rad/token: a bound, not a standard deviation, positive.
        channels: Channels that the ladder is for; 2 x pairs unless said. ``span="open"`` divides by half of them.
        whole: Channels of the head of which these are a part: the exponent may run over them instead.
        attention_factor: What cosine and sine are multiplied by. Only YaRN and LongRoPE have one other than 1.
        attention_uncertainty: How far it may lie from the truth.
        modulo: Where rates are only known up to multiples of this number (2 pi at whole positions): the slow ones are
            taken as they are, and those that are faster, and may be given as 0 or below, follow from the ladder that
            the slow ones are on.

    Returns:
        Fits, best first. ``fit.spacing.ladder(pairs, channels)``, then ``fit.scaling``, makes a ladder whose rates
        are all within the uncertainty.

    Raises:
        InvalidValue: There is no rate, a rate is negative or not finite, or an uncertainty is not positive.

    >>> fit = fit_ladder([1.0, 0.1000001, 0.0099999, 0.001], 1e-6)[0]
    >>> fit.spacing, fit.scaling
    (Geometric(base=10000.0, span='open', multiplier=1.0), None)
    """
    given = np.asarray(rates, np.float64).reshape(-1)
    bounds = np.broadcast_to(np.asarray(uncertainty, np.float64), given.shape)
    if not given.size or not np.isfinite(given).all() or (modulo is None and (given < 0).any()):
        raise InvalidValue("Rates must be finite and not negative, and at least one.", "Give rad/token for each pair.")
    if not (np.isfinite(bounds).all() and (bounds > 0).all()):
        raise InvalidValue("Uncertainties must be finite and positive.", "Give a bound in rad/token for each pair.")
    channels = 2 * len(given) if channels is None else channels
    factor = Interval.around(attention_factor, attention_uncertainty)
    measured = MeasuredRates(given, bounds, channels, channels if whole is None else whole, factor, modulo)
    found = [fit for fit in plain_fits(measured) if fit is not None]
    if not found and measured.turning == measured.pairs > 1:
        found = scaled_fits(measured)
    still = tuple(np.where(measured.rates <= measured.bounds, 0.0, measured.rates).tolist())
    alone = None if factor.holds(1.0) else Yarn(1.0, 1, attention_factor=shortest(factor), ramp="turns")
    found.append(Fit(Explicit(still), alone, 0.0, COSTS["explicit"] + 17 * len(still)))
    different: dict[tuple[Spacing, Scaling | None], Fit] = {}
    for fit in sorted(found, key=lambda fit: fit.cost):
        different.setdefault((fit.spacing, fit.scaling), fit)
    return list(different.values())
