"""Pairs that never complete a turn within a length."""

import math
from collections.abc import Sequence

from clockhands.measures.property import Property, not_computed
from clockhands.measures.subject import Subject

# A pair whose wavelength equals the length completes its turn there: rounding must not say otherwise.
_TURN = 2 * math.pi * (1 - 1e-12)


def completes(rate: float, length: int) -> bool:
    """Whether a pair of this rate (rad/token) completes a turn within a length (tokens)."""
    return rate * length >= _TURN


def turned_through(rates: Sequence[float], length: int) -> int:
    """How many pairs complete a turn within a length; those of rate 0 never do.

    >>> turned_through((1.0, 0.01, 0.0), 629)
    2
    """
    return sum(completes(rate, length) for rate in rates)


def turning(subject: Subject) -> Property:
    """Not measured yet."""
    return not_computed(f"Not measured yet for a code of kind {subject.kind}.")
