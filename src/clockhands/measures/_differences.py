"""Compares the frequencies of two rotary codes: which pairs differ, from which distance on, by how many radians.

Scores depend on the distance only. So two ladders ``w`` and ``v`` with the same number of pairs differ, at distance
``p``, by the *phase error* ``p (w_j - v_j)`` of each pair ``j`` (radians, not reduced). A query and a key that are
rotated by one ladder, where the other is expected, are off by that angle in each pair. If a score is spread evenly over
all pairs, the share of it that remains is the mean cosine ``mean_j cos(p (w_j - v_j))``: 1 means that nothing is lost,
0 that nothing is left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from clockhands.arguments import count
from clockhands.errors import InvalidValue

# Frequencies of the same real numbers are within a few ulp of each other, however they were computed in double
# precision; numbers that a file rounds (a factor of nine digits) differ by more.
SAME_RATE = 1e-12
# Files hold factors with seven digits or more: an error of 1e-6 in a score is below the spacing of float32.
SAME_FACTOR = 1e-6
_LONGEST = 2**53  # tokens; no text is as long


@dataclass(frozen=True)
class LadderDifference:
    """How two ladders with the same number of pairs differ.

    Attributes:
        pairs: How many pairs both have.
        first: The first pair whose frequencies differ, counted from 0; None if none differs.
        last: The last such pair.
        ratio: The largest ratio of the two frequencies of one pair, at least 1; infinite if only one of them is 0.
        ratio_pair: The pair with that ratio; None if none differs.
        drift: The largest phase error for each token of distance, ``max_j |w_j - v_j|``, in rad/token.
        drift_pair: The pair with that drift; None if none differs.
        factor_ratio: The attention factor of the first over that of the second; scores are in the ratio of the squares.
    """

    pairs: int
    first: int | None
    last: int | None
    ratio: float
    ratio_pair: int | None
    drift: float
    drift_pair: int | None
    factor_ratio: float
    _errors: np.ndarray = field(repr=False, compare=False)

    @property
    def same_rates(self) -> bool:
        """Whether every pair has the same frequency in both."""
        return self.first is None

    @property
    def same_factor(self) -> bool:
        """Whether both have the same attention factor, up to the rounding of numbers in files."""
        return abs(self.factor_ratio - 1) <= SAME_FACTOR

    @property
    def same(self) -> bool:
        """Whether both compute the same."""
        return self.same_rates and self.same_factor

    def phase_error(self, distance: int) -> float:
        """The largest phase error at a distance: ``p max_j |w_j - v_j|``, in radians, not reduced to one turn."""
        return distance * self.drift

    def angle_error(self, distance: int) -> float:
        """The largest angle between the two at a distance, measured on the circle: at most pi, in radians."""
        turned = distance * self._errors
        return float(np.abs(turned - 2 * np.pi * np.round(turned / (2 * np.pi))).max(initial=0.0))

    def reaches(self, radians: float) -> int | None:
        """The first distance below 2**53 at which a pair is off by more than this many radians; None if none is."""
        reached = math.inf if self.drift == 0 else radians / self.drift
        return math.floor(reached) + 1 if reached < _LONGEST else None

    def mean_cosine(self, distance: int) -> float:
        """``mean_j cos(p (w_j - v_j))`` at distance ``p``."""
        return float(np.cos(distance * self._errors).mean())


def difference(
    rates: Sequence[float], others: Sequence[float], *, factor: float = 1.0, other_factor: float = 1.0
) -> LadderDifference:
    """Compare two ladders pair by pair.

    Args:
        rates: Frequencies of the first, in rad/token.
        others: Frequencies of the second, the same number.
        factor: Attention factor of the first: what cosine and sine are multiplied by.
        other_factor: Attention factor of the second.

    Raises:
        InvalidValue: They have different numbers of pairs, so that pairs do not correspond, or no pairs.

    >>> import math
    >>> found = difference((1.0, 0.1), (1.0, 0.2))
    >>> found.first, found.ratio, found.reaches(1.0)
    (1, 2.0, 11)
    >>> math.isclose(found.mean_cosine(10), (1 + math.cos(1)) / 2)
    True
    """
    if len(rates) != len(others) or not len(rates):
        raise InvalidValue(
            f"Frequencies are compared pair by pair, but one encoding has {len(rates)} pairs and the other "
            f"{len(others)}.",
            "Compare encodings with the same number of RoPE dimensions.",
        )
    ours, theirs = np.asarray(rates, np.float64), np.asarray(others, np.float64)
    errors = ours - theirs
    larger, smaller = np.maximum(ours, theirs), np.minimum(ours, theirs)
    parted = np.abs(errors) > SAME_RATE * larger
    places = np.flatnonzero(parted)
    errors = np.where(parted, errors, 0.0)
    if not places.size:
        return LadderDifference(len(ours), None, None, 1.0, None, 0.0, None, factor / other_factor, errors)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.where(parted, larger / smaller, 1.0)
    steepest, fastest = int(ratios.argmax()), int(np.abs(errors).argmax())
    return LadderDifference(
        pairs=len(ours),
        first=int(places[0]),
        last=int(places[-1]),
        ratio=float(ratios[steepest]),
        ratio_pair=steepest,
        drift=float(abs(errors[fastest])),
        drift_pair=fastest,
        factor_ratio=factor / other_factor,
        _errors=errors,
    )


def distances(context: int | None, asked: int | None = None) -> tuple[int, ...]:
    """Distances at which ladders are compared: 1, 16, 256, 1,024, 4,096, …, the context and four times the context.

    A distance that the caller asks for is added.

    >>> distances(8192), distances(None, 1000)
    ((1, 16, 256, 1024, 4096, 8192, 32768), (1, 16, 256, 1000, 1024, 4096))
    """
    if asked is not None:
        return tuple(sorted({*distances(context), count("asked", asked)}))
    if context is None:
        return (1, 16, 256, 1024, 4096)
    context = count("context", context)
    steps = [1, 16, 256]
    while steps[-1] * 4 < context:
        steps.append(steps[-1] * 4)
    return (*(step for step in steps if step < context), context, 4 * context)
