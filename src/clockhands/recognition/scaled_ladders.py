"""Ladders that were slowed by a ramp (YaRN, Llama 3) or hand by hand (LongRoPE).

Fast hands keep their rates under both ramps, so the fast end of a ladder says which geometric ladder it was, and the
share ``rate_j / w_j`` that each pair keeps says the rest. YaRN's shares are a line in the pair's index from 1 to
``1 / f``, Llama 3's a line in the rate. Where a model's usual numbers (32 and 1 turns, 1 and 4 turns, a length that
is a power of two) give the rates, they are taken; else they are solved for.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from clockhands.ladders import Geometric
from clockhands.recognition.decimals import Interval, roundest, shortest, significant
from clockhands.recognition.measured import COSTS, USUAL, Fit, Measured, falls, spacings
from clockhands.scaling import Llama3, LongRope, Yarn, yarn_magnitude

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


def scaled_fits(measured: Measured) -> list[Fit]:
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


def _falls(measured: Measured) -> Iterator[Interval]:
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


def _from_fast(measured: Measured) -> list[Interval]:
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


def _from_slow(measured: Measured) -> Interval | None:
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

    def __init__(self, measured: Measured, spacing: Geometric) -> None:
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
        """Whether these parts of the slowing are the shares, but for rounding: worth making the ladder exactly."""
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


# --- YaRN ------------------------------------------------------------------------------------------------------


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


# --- Llama 3 ---------------------------------------------------------------------------------------------------


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


# --- LongRoPE --------------------------------------------------------------------------------------------------


def _longropes(measured: Measured) -> Iterator[Fit | None]:
    """Hands that were slowed by short decimals each: far more of them than chance would give."""
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
