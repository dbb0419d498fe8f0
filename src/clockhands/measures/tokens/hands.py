"""The hands behind a code, and its numbers block by block, where a measure needs no more than these.

A code whose tokens are hands of a clock is the same wherever one stands, so most of its facts follow from its rates.
Which codes these are is said here once: sinusoids of one axis or several, and rotations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from clockhands.additive.waves import check_fits
from clockhands.dtypes import before_rounding, limits, output_dtype
from clockhands.ladders import Ladder
from clockhands.measures.subject import Subject
from clockhands.phases import fill
from clockhands.positions import numpy_of, positions_of
from clockhands.rotary import Rotary

_THREADED = 1 << 22  # pairs from which a second thread is worth its start on a busy machine

MakeRows = Callable[[int, int], np.ndarray]


@dataclass(frozen=True)
class Hands:
    """Ladders that say everything about the distances between tokens of a code.

    Attributes:
        ladders: The rates in radians per token, one ladder for each axis.
        factor: What every cosine and sine is multiplied by.
    """

    ladders: tuple[Ladder, ...]
    factor: float

    @property
    def norm(self) -> float:
        """Euclidean length of a token's numbers, the same for all: ``factor sqrt(pairs)``."""
        return self.factor * sum(ladder.pairs for ladder in self.ladders) ** 0.5


def hands_of(subject: Subject) -> Hands | None:
    """The hands of a code; None where its tokens are not those of a clock.

    They are not where a hand has lost a channel or holds one wave twice, where raw coordinates stand beside them, where
    xPos lets them grow, and where a token among those measured has zeros in their place (padding's row). A learned
    scale that is not known makes no hands either.
    """
    spec = subject.spec
    if isinstance(spec, Rotary):
        return None if spec.xpos is not None else Hands(subject.ladders, spec.attention_factor)
    if subject.clock is None or zero_tokens(subject) or subject.missing is not None:
        return None
    factor = getattr(spec, "scale", 1.0)
    if subject.values is not None:
        factor *= abs(float(numpy_of(subject.values, "values").reshape(())))
    clock = subject.clock
    return Hands(clock.axes or (clock.ladder,), factor) if factor else None


def zero_tokens(subject: Subject) -> list[int]:
    """The positions among those measured whose row is zero by the code's rule."""
    last = subject.first + subject.length - 1
    return [row for row in getattr(subject.spec, "zero_rows", ()) if subject.first <= row <= last]


def different_axes(subject: Subject) -> list[int]:
    """The axes to be measured: of those with the same ladder the first, since their channels hold the same numbers."""
    if len(subject.ladders) != subject.axes:
        return list(range(subject.axes))
    first = {ladder: axis for axis, ladder in reversed(list(enumerate(subject.ladders)))}
    return sorted(first.values())


def rows_of(subject: Subject, axis: int = 0, dtype: object = None) -> MakeRows:
    """A function of ``(start, stop)`` that makes the numbers of these tokens, counted from the first.

    Of a clock only the hands of the axis are made, cosine beside sine, ``[tokens, 2 pairs]``: the channels of other
    axes do not change along this one, and the order of channels changes no distance. Of any other code the rows are
    `Subject.rows`.

    Accuracy: that of `clockhands.phases`, rounded once to the dtype.

    Raises:
        InvalidValue: The numbers do not fit the dtype.
    """
    kind = subject.dtype if dtype is None else output_dtype(dtype)
    hands = hands_of(subject)
    if hands is None:
        return lambda start, stop: subject.rows(start, stop, axis, kind)
    ladder, factor = hands.ladders[axis], hands.factor
    check_fits(factor, kind)
    threads = 1 if subject.length * ladder.pairs < _THREADED else None

    def make(start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, ladder.pairs, 2), kind)

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            if factor != 1:
                block = block * factor
            rounding = np.ascontiguousarray(before_rounding(block, kind))
            part = np.float32 if rounding.dtype == np.complex64 else np.float64
            out[rows, pairs] = rounding.view(part).reshape(*rounding.shape, 2)

        at = positions_of(range(subject.first + start, subject.first + stop))
        fill(write, ladder, at, swapped=False, fine=kind == np.float64, threads=threads)
        return out.reshape(stop - start, -1)

    return make


def rounding_distance(subject: Subject, hands: Hands, axis: int = 0) -> float:
    """By how much rounding to the dtype moves the distance of two tokens at most.

    Each of the ``2 pairs`` numbers of either token is off by at most ``e``, so their distance is by
    ``2 e sqrt(2 pairs)``. Of numbers up to ``f`` in size, ``e`` is half of the spacing that the dtype has just below
    ``f``, and a hundredth more for the arithmetic before it; for float64 the 4 ulp of `clockhands.additive.table`.
    """
    eps = 2.0 ** (1 - limits(subject.dtype)[0])
    share, power = math.frexp(hands.factor)  # factor = share 2**power, and a share of 1/2 is a power of two itself
    spacing = eps * 2.0 ** (power - 1 - (share == 0.5))
    error = 4 * eps * hands.factor if subject.dtype == np.float64 else 1.01 * spacing / 2
    return 2 * error * (2 * hands.ladders[axis].pairs) ** 0.5
