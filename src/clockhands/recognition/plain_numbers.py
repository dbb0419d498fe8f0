"""Numbers that somebody wrote, told from numbers that were only measured.

A measured number lies within its uncertainty of many decimals. One of few digits is believed to be meant only where
there are so few of its kind that one would hardly lie there by chance.
"""

import math
from fractions import Fraction

# A plain number is taken for the meant one where fewer than this many of its kind are expected in the interval.
CHANCE = 0.01
_SIGMAS = 4.0
UNKNOWN = 17  # digits of a number that is none of these


def plain(value: float, doubt: float, published: tuple[float, ...] = ()) -> tuple[int, float]:
    """How many digits say a number, and the number they say: the one measured, if none of few digits fits.

    Args:
        value: What was measured.
        doubt: One standard deviation of it.
        published: Numbers that count as one digit, whatever they are written as.

    >>> plain(9999.7, 0.2), plain(0.333333336, 1e-8), plain(3217.4512, 0.3)
    ((1, 10000.0), (2, 0.3333333333333333), (17, 3217.4512))
    """
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
        # Fractions of denominators up to q lie about 3 / q**2 apart.
        few = 2 * reach / unit * fraction.denominator**2 / 3
        if fraction and abs(number - value) <= reach and few <= CHANCE:
            return cost + len(f"{fraction.numerator}{fraction.denominator}"), number
    return UNKNOWN, value
