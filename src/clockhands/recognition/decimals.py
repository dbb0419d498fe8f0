"""Numbers that people write: the shortest decimal, or the roundest length, that an interval holds."""

import math
from dataclasses import dataclass


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
        """What both hold, or None."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high) if low <= high else None


def shortest(interval: Interval) -> float:
    """The number of the fewest significant digits in an interval, of several the one nearest to its middle.

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
    """The roundest length in an interval: the multiple of the highest power of two, nearest to 1 times it; or None.

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
