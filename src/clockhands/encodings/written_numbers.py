"""Recover the round number that a person wrote (10000, 0.25, 8192) from a measured value and its error.

An interval contains many decimals: `shortest` picks the one with the fewest digits, `roundest` the roundest length.
`plain` replaces a measured value by a round number only where such numbers are so rare that one near the value by
chance is unlikely.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

# A round number is accepted where fewer than this many numbers of its kind are expected in the interval.
CHANCE = 0.01
_SIGMAS = 4.0
UNKNOWN = 17  # digits of a number that is not round


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``."""

    low: float
    high: float

    @classmethod
    def around(cls, middle: float, reach: float) -> "Interval":
        """All numbers at most ``reach`` away."""
        return cls(middle - reach, middle + reach)

    @property
    def middle(self) -> float:
        """The number in the middle."""
        return self.low + (self.high - self.low) / 2

    def holds(self, number: float) -> bool:
        """Whether a number lies in it."""
        return self.low <= number <= self.high

    def meet(self, other: "Interval") -> "Interval | None":
        """The intersection, or None if it is empty."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high) if low <= high else None


def shortest(interval: Interval) -> float:
    """The number with the fewest significant digits in an interval; of several, the one nearest to its middle.

    >>> shortest(Interval(9998.7, 10001.2)), shortest(Interval(0.24999, 0.25003)), shortest(Interval(1 / 3, 1 / 3))
    (10000.0, 0.25, 0.3333333333333333)
    """
    if interval.holds(0.0):
        return 0.0
    middle = interval.middle
    for digits in range(1, 17):
        number = float(f"{middle:.{digits - 1}e}")
        if interval.holds(number):
            return number
    return middle


def significant(number: float) -> int:
    """How many significant digits a number is written with; 0 for 0.

    >>> significant(10000.0), significant(0.25), significant(8192.0)
    (1, 2, 4)
    """
    digits = f"{abs(number):.16e}".partition("e")[0] if number != float(repr(number)) else repr(abs(number))
    digits = digits.partition("e")[0].replace(".", "").strip("0")
    return len(digits)


def roundest(interval: Interval) -> int | None:
    """The roundest length in an interval: a small multiple of the highest possible power of two; or None.

    >>> roundest(Interval(3900.0, 4300.0)), roundest(Interval(5000.0, 6200.0)), roundest(Interval(10.2, 10.4))
    (4096, 6144, None)
    """
    lowest, highest = max(1, math.ceil(interval.low)), math.floor(interval.high)
    if lowest > highest:
        return None
    for power in range(highest.bit_length(), -1, -1):
        step = 1 << power
        number = -(-lowest // step) * step
        if number <= highest:
            return number
    return None


def plain(value: float, doubt: float, published: tuple[float, ...] = ()) -> tuple[int, float]:
    """The number of digits of the round number nearest to a measurement, and that number; else the measured value.

    Args:
        value: The measured value.
        doubt: Its standard deviation.
        published: Numbers that count as having one digit, however they are written.

    >>> plain(9999.7, 0.2), plain(0.333333336, 1e-8), plain(3217.4512, 0.3)
    ((1, 10000.0), (2, 0.3333333333333333), (17, 3217.4512))
    """
    if not math.isfinite(value):  # rows of noise may fit any number
        return UNKNOWN, value
    reach = max(_SIGMAS * doubt, 4 * abs(value) * 2.0**-53)
    if abs(value) <= reach:
        return (0, 0.0) if reach < 0.5 else (UNKNOWN, value)
    for number in published:
        if abs(number - value) <= reach:
            return 1, number
    size = math.floor(math.log10(abs(value)))
    near = round(value)
    if near and abs(near - value) <= reach and 2 * reach <= 0.1 and abs(near) < 2**40:
        return len(str(abs(near)).strip("0")), float(near)
    for digits in range(1, 9):
        number = float(f"{value:.{digits - 1}e}")
        spacing = 10.0 ** (size - digits + 1)
        if abs(number - value) <= reach and 2 * reach <= CHANCE * spacing:
            return digits, number
    for unit, cost in ((1.0, 0), (math.pi, 1)):
        fraction = Fraction(value / unit).limit_denominator(64)
        number = float(fraction) if unit == 1 else fraction.numerator * unit / fraction.denominator
        # Fractions with denominators up to q are about 3 / q**2 apart.
        few = 2 * reach / unit * fraction.denominator**2 / 3
        if fraction and abs(number - value) <= reach and few <= CHANCE:
            return cost + len(f"{fraction.numerator}{fraction.denominator}"), number
    return UNKNOWN, value
