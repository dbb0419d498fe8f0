"""What scalings are fitted to: rates that were measured, and ladders that some of them lie on.

`clockhands.recognition` makes these of numbers, and asks every scaling for its `fits_…`. Each of them proposes numbers
that people write; the whole ladder is then made by the library's own code and held to every bound, so what does not fit
is not answered.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.ladders import Geometric, Spacing
from clockhands.scaling._scaling import Scaling
from clockhands.written_numbers import Interval, shortest

# Bases that models were published with: where one ladder has several descriptions, these come first.
USUAL_BASES = (1e4, 5e5, 1e6, 1e5, 1.5e5, 1.6e5, 5e6, 1e7, 1e8, 1e2, 2.5e5, 8e6, 1.1e7)

# What a scaling costs beyond the digits of its numbers: of two descriptions that fit, the cheaper is said first.
SCALED = 3


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


def first_of(ways: Iterable[Iterable[Fit]]) -> Iterator[Fit]:
    """All fits of the first way that has any; the later ways are not tried."""
    for way in ways:
        found = False
        for fit in way:
            found = True
            yield fit
        if found:
            return


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
        with np.errstate(over="ignore"):  # infinitely many bounds away is a difference too
            return float(np.max(np.abs(away) / self.bounds, initial=0.0))

    def fits(
        self,
        spacing: Spacing,
        scaling: Scaling | None = None,
        cost: float = 0.0,
        undetermined: tuple[tuple[str, tuple[float, float]], ...] = (),
    ) -> Iterator[Fit]:
        """This description if it fits, rates and attention factor; else nothing."""
        try:
            ladder = spacing.ladder(self.pairs, self.channels)
            if scaling is not None:
                ladder = scaling(ladder)
        except ClockhandsError:  # these numbers make no ladder
            return
        difference = self.difference(ladder.rates)
        if difference <= 1 and self.attention_factor.holds(ladder.attention_factor):
            yield Fit(spacing, scaling, difference, cost, undetermined)


@dataclass(frozen=True, eq=False)
class FittedLine:
    """A geometric ladder that all pairs that turn lie on, slowed alike or not at all.

    Attributes:
        measured: The rates.
        spacing: The ladder before it is slowed.
        cost: What speaks against it.
        slowed: What all its rates are divided by; 1 where nothing is.
        plain: Whether it has all the rates as it is.
    """

    measured: MeasuredRates
    spacing: Geometric
    cost: float
    slowed: float
    plain: bool


class Shares:
    """What each pair keeps of a geometric ladder's rate, ``rate_j / w_j``, with bounds.

    Attributes:
        measured: The rates.
        spacing: The ladder.
        below: Its rates ``w_j``.
        fall: ``ln(w_j / w_(j+1))``.
        kept: The shares.
        reach: How far each may lie from the truth.
        index: The numbers of the pairs.
    """

    def __init__(self, measured: MeasuredRates, spacing: Geometric) -> None:
        ladder = spacing.ladder(measured.pairs, measured.channels)
        self.measured: MeasuredRates = measured
        self.spacing: Geometric = spacing
        self.below: np.ndarray = np.array(ladder.rates)
        self.fall: float = math.log(spacing.base) / float(spacing.denominator(measured.channels))
        # Rates of noise may be further from the ladder than floats reach; `possible` refuses what is not finite.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self.kept: np.ndarray = measured.rates / self.below
            self.reach: np.ndarray = measured.bounds / self.below
        self.index: np.ndarray = np.arange(measured.pairs)

    @property
    def possible(self) -> bool:
        """Whether they fall from 1 to something above 0, and do fall."""
        if not np.isfinite([self.kept, self.reach]).all():
            return False
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


@dataclass(frozen=True, eq=False)
class Beyond:
    """Rates in use at a length beyond the original one, and what the code is up to that.

    Attributes:
        scaling: The scaling that it seems to have up to the original length, or None.
        attention_factor: What cosine and sine are multiplied by.
        plain: The rates without a scaling, rad/token.
        rates: Those at the length.
        bounds: How far each may lie from the truth.
        original: The original length in tokens.
        length: The length in tokens.
    """

    scaling: Scaling | None
    attention_factor: float
    plain: np.ndarray
    rates: np.ndarray
    bounds: np.ndarray
    original: int
    length: int
