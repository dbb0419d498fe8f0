"""Measured rates with their bounds, and what it means that a description fits them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.ladders import Geometric, Spacing, Span
from clockhands.recognition.decimals import Interval, shortest, significant
from clockhands.scaling import Scaling

# Bases that models were published with: where one ladder has several descriptions, these come first.
USUAL = (1e4, 5e5, 1e6, 1e5, 1.5e5, 1.6e5, 5e6, 1e7, 1e8, 1e2, 2.5e5, 8e6, 1.1e7)

# What a description costs beyond the digits of its numbers: of two that fit, the cheaper is said first.
COSTS = {"span": 2, "multiplier": 2, "scaling": 3, "steps": 4, "divisors": 12, "explicit": 40}


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
class Measured:
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


def spacings(measured: Measured, fall: Interval, multiplier: float = 1.0) -> Iterator[tuple[Geometric, float]]:
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


def falls(measured: Measured, pairs: slice, first: Interval) -> Interval | None:
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
