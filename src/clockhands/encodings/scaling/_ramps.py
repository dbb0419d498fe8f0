"""Fits shared by YaRN and Llama 3: the scaling of a pair is a linear ramp in its number of rotations.

The usual numbers are tried first (1 and 4 rotations, a length that is a power of two); else the line is solved for.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from clockhands.encodings.scaling._scaling import Scaling
from clockhands.encodings.scaling.measured import SCALED, Fit, Shares, first_of
from clockhands.encodings.written_numbers import Interval, roundest, significant

LENGTHS = tuple(1 << power for power in range(7, 25))
_USUAL_LENGTHS = tuple(1 << power for power in range(11, 18))
# Numbers of rotations at the ends of ramps, the usual ones first.
_TURNS = ((1.0, 4.0), (1.0, 1.0), (2.0, 4.0), (1.0, 2.0), (1.0, 8.0), (2.0, 8.0), (4.0, 8.0))

Make = Callable[[float, int, float, float], Iterable[tuple[Scaling, float]]]
"""``(factor, original, fewest rotations, most rotations) ->`` scalings with this ramp, and the added cost of each."""


def length_cost(original: int) -> float:
    """The cost of an original length in a fit."""
    return 0 if original in _USUAL_LENGTHS else 2 if original in LENGTHS else 3


def fits_by_rotations(shares: Shares, make: Make) -> Iterator[Fit]:
    """Scalings that apply fully to pairs of few rotations, not to pairs of many, and partly in between."""
    return first_of((_usual(shares, make), _solved(shares, make)))


def _usual(shares: Shares, make: Make) -> Iterator[Fit]:
    turns = shares.below / (2 * math.pi)
    for original, (low, high) in itertools.product(LENGTHS, _TURNS):
        slowest = original * turns[-1]
        share = 1.0 if slowest <= low else 1 - (slowest - low) / (high - low) if slowest < high else 0.0
        factor = shares.slowest(share)
        if factor is not None:
            yield from _of_ramp(shares, make, factor, original, (low, high))


def _solved(shares: Shares, make: Make) -> Iterator[Fit]:
    factor = shares.plateau()
    if factor is None or len(pairs := shares.between(factor)) < 2:
        return
    turns = shares.below / (2 * math.pi)
    lowest, highest = shares.slowing(factor, pairs)
    slope, at_zero = np.polyfit(turns[pairs], 1 - (lowest + highest) / 2, 1, w=1 / (highest - lowest))
    if slope <= 0 or at_zero >= 0:
        return
    # 1 - slowing = (original x turns - low) / (high - low)
    low_over, high_over = -at_zero / slope, (1 - at_zero) / slope
    for low in (1.0, 2.0, 4.0, 8.0, 0.5, 1.5, 3.0, 0.25):
        original = roundest(Interval.around(low / low_over, 1e-3 * low / low_over))
        if original is not None:
            # The line that goes exactly through the chosen length.
            for digits in (1, 2, 3, 4, 6, 8):
                high = float(f"{original * high_over:.{digits - 1}e}")
                yield from _of_ramp(shares, make, factor, original, (low, high))


def _of_ramp(shares: Shares, make: Make, factor: float, original: int, between: tuple[float, float]) -> Iterator[Fit]:
    low, high = between
    turns = original * shares.below / (2 * math.pi)
    slowed = np.clip((high - turns) / (high - low), 0, 1) if high > low else (turns < high).astype(float)
    if high < low or not shares.near(slowed, factor):
        return
    cost = SCALED + significant(factor) + length_cost(original)
    cost += 0 if between == _TURNS[0] else significant(low) + significant(high)
    for scaling, more in make(factor, original, low, high):
        yield from shares.measured.fits(shares.spacing, scaling, cost + more)
