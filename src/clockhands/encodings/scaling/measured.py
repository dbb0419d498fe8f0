"""The data that scalings are fitted to: measured rates with error bounds, and ladders found in them.

`clockhands.recognition` makes these from numbers and calls the ``fits_…`` methods of every scaling. Each method
proposes round numbers. The ladder is then computed from them and compared with every measured rate, and only
descriptions within all bounds are returned.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from clockhands.encodings.ladders import Geometric, Spacing
from clockhands.encodings.scaling._scaling import Scaling
from clockhands.encodings.written_numbers import Interval, shortest
from clockhands.errors import ClockhandsError

# The cost of a scaling in addition to the digits of its numbers: of two fits, the one of lower cost is given first.
SCALED = 3


@dataclass(frozen=True)
class Fit:
    """A description that gives all measured rates within their bounds.

    Attributes:
        spacing: The spacing of the rates.
        scaling: The scaling of the ladder, or None.
        difference: The largest difference from a measured rate, in units of its bound: at most 1.
        cost: The complexity of the description: significant digits of its numbers, and rare fields.
        undetermined: Numbers that the rates do not determine, each with its lowest and highest possible value.
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
    """Measured rates with their error bounds, and the head or table that they belong to.

    Attributes:
        rates: Radians per token, float64 [pairs].
        bounds: The error bound of each, rad/token.
        channels: Channels that the ladder is for, twice the pairs unless an odd one is left over.
        whole: Channels of the whole head; a ladder's exponent may run over them.
        attention_factor: The factor on cosine and sine, with its bound.
        modulo: If not None, rates are known only up to multiples of it (one rotation per step of the positions). Then
            a high rate may look like 0 or like a negative one.
    """

    rates: np.ndarray
    bounds: np.ndarray
    channels: int
    whole: int
    attention_factor: Interval
    modulo: float | None
    turning: int = field(init=False)

    def __post_init__(self) -> None:
        """Count the pairs that rotate; pairs of rate 0 are at the low-frequency end."""
        moving = np.flatnonzero(np.abs(self.rates) > self.bounds)
        object.__setattr__(self, "turning", int(moving[-1]) + 1 if moving.size else 0)

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.rates)

    @property
    def logarithms(self) -> np.ndarray:
        """``ln rate`` of the pairs that rotate; an impossible number for measured rates of 0 or below."""
        return np.log(np.maximum(self.rates[: self.turning], 1e-300))

    @property
    def relative(self) -> np.ndarray:
        """Error bounds of the logarithms."""
        known = slice(self.turning)
        return -np.log1p(-np.minimum(self.bounds[known] / np.maximum(self.rates[known], 1e-300), 0.5))

    def difference(self, rates: Sequence[float] | np.ndarray) -> float:
        """The largest difference from the measured rates in units of the bounds."""
        away = np.asarray(rates) - self.rates
        if self.modulo is not None:
            away = away - self.modulo * np.round(away / self.modulo)
        with np.errstate(over="ignore"):  # an infinite difference is a valid result
            return float(np.max(np.abs(away) / self.bounds, initial=0.0))

    def fits(
        self,
        spacing: Spacing,
        scaling: Scaling | None = None,
        cost: float = 0.0,
        undetermined: tuple[tuple[str, tuple[float, float]], ...] = (),
    ) -> Iterator[Fit]:
        """This description if rates and attention factor fit; else nothing."""
        try:
            ladder = spacing.ladder(self.pairs, self.channels)
            if scaling is not None:
                ladder = scaling(ladder)
        except ClockhandsError:  # these numbers give no valid ladder
            return
        difference = self.difference(ladder.rates)
        if difference <= 1 and self.attention_factor.holds(ladder.attention_factor):
            yield Fit(spacing, scaling, difference, cost, undetermined)


@dataclass(frozen=True, eq=False)
class FittedLine:
    """A geometric ladder of all pairs that rotate, possibly with all rates divided by one number.

    Attributes:
        measured: The measured rates.
        spacing: The ladder before the division.
        cost: The complexity of the description.
        slowed: The divisor of all rates; 1 if they are not divided.
        plain: Whether the ladder alone gives all the rates.
    """

    measured: MeasuredRates
    spacing: Geometric
    cost: float
    slowed: float
    plain: bool


class Shares:
    """The ratio of each measured rate to that of a geometric ladder, ``rate_j / w_j``, with error bounds.

    Attributes:
        measured: The measured rates.
        spacing: The ladder.
        below: Its rates ``w_j``.
        fall: ``ln(w_j / w_(j+1))``.
        kept: The ratios.
        reach: The error bound of each.
        index: The indices of the pairs.
    """

    def __init__(self, measured: MeasuredRates, spacing: Geometric) -> None:
        ladder = spacing.ladder(measured.pairs, measured.channels)
        self.measured: MeasuredRates = measured
        self.spacing: Geometric = spacing
        self.below: np.ndarray = np.array(ladder.rates)
        self.fall: float = math.log(spacing.base) / float(spacing.denominator(measured.channels))
        # Ratios of noise may overflow; `possible` rejects what is not finite.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            self.kept: np.ndarray = measured.rates / self.below
            self.reach: np.ndarray = measured.bounds / self.below
        self.index: np.ndarray = np.arange(measured.pairs)

    @property
    def possible(self) -> bool:
        """Whether the ratios decrease from 1 to a number above 0."""
        if not np.isfinite([self.kept, self.reach]).all():
            return False
        lowest, highest = self.kept - self.reach, self.kept + self.reach
        falling = (np.diff(self.kept) <= self.reach[1:] + self.reach[:-1]).all()
        return bool(falling and highest[0] >= 1 and (lowest <= 1).all() and highest[-1] < 1 and lowest[-1] > 0)

    def near(self, slowed: np.ndarray, factor: float) -> bool:
        """Whether these parts of the scaling nearly give the ratios, so that the exact ladder is worth computing."""
        made = 1 - slowed * (1 - 1 / factor)
        return bool((np.abs(made - self.kept) <= 2 * self.reach + 1e-12).all())

    def slowest(self, share: float) -> float | None:
        """The factor, as the shortest decimal, if the last pair gets ``share`` of the scaling."""
        if share <= 0:
            return None
        low, high = (1 - (1 - self.kept[-1] - side * self.reach[-1]) / share for side in (-1, 1))
        if low <= 0:
            return None
        factor = shortest(Interval(1 / high, 1 / low))
        return factor if 1 < factor < 1e6 else None

    def plateau(self) -> float | None:
        """The factor common to the lowest rates, if they are divided by the same one."""
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
        """The part of the scaling that these pairs get, lowest and highest possible value."""
        whole = 1 - 1 / factor
        kept, reach = self.kept[pairs], self.reach[pairs]
        return (1 - kept - reach) / whole, (1 - kept + reach) / whole


@dataclass(frozen=True, eq=False)
class Beyond:
    """Measured rates at a length beyond the original one, with the description found up to the original length.

    Attributes:
        scaling: The scaling found up to the original length, or None.
        attention_factor: The factor on cosine and sine.
        plain: The rates without a scaling, rad/token.
        rates: The rates at ``length``.
        bounds: The error bound of each.
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
