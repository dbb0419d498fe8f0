"""Naive additive codes (counter, binary, sine only, …), each with its weakness.

They are for teaching and measuring; their numbers are as exact as those of the other codes.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from clockhands.arguments import count, one_of, positive, real, set_fields
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.clocks import Clock, Order, order_of
from clockhands.encodings.dtypes import before_rounding
from clockhands.encodings.ladders import EvenSteps, Geometric, Ladder
from clockhands.encodings.layouts import Layout, layout_of
from clockhands.encodings.phases import fill
from clockhands.encodings.positions import Positions, positions_of
from clockhands.errors import InvalidValue


@dataclass(frozen=True)
class Counter(AdditiveCode):
    """The position itself in every channel: ``PE(p)[c] = p``.

    Weakness: it grows without bound. At position 100 the code is far larger than any token embedding, and a length
    not seen in training gives numbers not seen in training.

    Attributes:
        width: Channels of a token.
    """

    width: int

    def __post_init__(self) -> None:
        """Check the value."""
        set_fields(self, width=count("width", self.width))

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the positions."""
        _assign(out, positions.as_float64()[:, None])

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "a step adds to the encoding, and no matrix changes the zeros at position 0"


@dataclass(frozen=True)
class NormalizedCounter(AdditiveCode):
    """The position divided by the last one: ``PE(p)[c] = p / (length - 1)``, 0 for the first token, 1 for the last.

    Weakness: the step between neighbours depends on the sequence length, so the same difference means different
    distances, and neighbours in a long text are almost equal.

    Attributes:
        width: Channels of a token.
        length: Tokens of the sequence.
    """

    width: int
    length: int

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, width=count("width", self.width), length=count("length", self.length, least=2))

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the normalised positions."""
        _assign(out, (positions.as_float64() / (self.length - 1))[:, None])

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "a step adds a number that depends on the length of the text"


@dataclass(frozen=True)
class Binary(AdditiveCode):
    """The digits of the position in base 2: ``PE(p)[c] = floor(p / 2**c) mod 2``.

    Weakness: it is not continuous. From 7 to 8 four channels change, from 8 to 9 one: neighbours can be far apart and
    distant positions close. There is no value between two positions, and the code repeats after ``2 ** width``.

    Attributes:
        width: Channels of a token, the lowest digit first.
    """

    width: int

    def __post_init__(self) -> None:
        """Check the value."""
        set_fields(self, width=count("width", self.width))

    @property
    def limit(self) -> float | None:
        """A digit is 0 or 1."""
        return 1.0

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the digits."""
        sizes = positions.sizes(0, positions.size)
        if sizes.part is not None or sizes.negative is not None:
            raise InvalidValue(
                "Binary digits exist for whole positions of at least 0 only.", "Use positions 0, 1, 2 and so on."
            )
        for channel in range(self.width):
            out[:, channel] = (sizes.whole >> np.uint64(channel)) & np.uint64(1) if channel < 64 else 0

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "a step flips digits that depend on the position"


@dataclass(frozen=True)
class SineOnly(AdditiveCode):
    """A sine in every channel and no cosine: ``PE(p)[c] = sin(p base ** (-c / width))``.

    Weakness: a sine value alone does not say whether the sine rises or falls, so two positions share it, and no matrix
    shifts the code: ``sin(a + b)`` needs ``cos(a)``.

    Attributes:
        width: Channels of a token.
        base: The base of the geometric ladder.
    """

    width: int
    base: float = 10_000.0

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, width=count("width", self.width), base=real("base", self.base))
        _ = self.ladder

    @cached_property
    def ladder(self) -> Ladder:
        """One rate for each channel."""
        return Geometric(self.base).ladder(self.width, 2 * self.width)

    @property
    def limit(self) -> float | None:
        """A wave is at most 1 in size."""
        return 1.0

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the sines."""

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            out[rows, pairs] = before_rounding(np.imag(block), out.dtype)

        fill(write, self.ladder, positions, swapped=False, fine=out.dtype == np.float64, threads=threads)

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "sin(a + b) needs cos(a), which the encoding does not contain"


@dataclass(frozen=True)
class _OtherSpacing(AdditiveCode):
    """A sinusoidal code whose ladder is not geometric."""

    width: int
    layout: Layout = field(default="interleaved", kw_only=True)
    order: Order = field(default="sin-cos", kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, width=_even_width(self.width))
        layout_of(self.layout)
        order_of(self.order)
        self.clock()

    @abstractmethod
    def _spacing_of_rates(self) -> EvenSteps:
        """How the rates are spaced."""

    @cached_property
    def ladder(self) -> Ladder:
        """The ladder of the rates."""
        return self._spacing_of_rates().ladder(self.width // 2, self.width)

    @property
    def rates(self) -> tuple[float, ...]:
        """The rate of each pair in radians per token, nearest float64."""
        return self.ladder.rates

    def clock(self) -> Clock:
        """The clock that defines the code."""
        return Clock(self.ladder, self.layout, self.order, self.width)

    @property
    def limit(self) -> float | None:
        """A wave is at most 1 in size."""
        return 1.0

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the sines and cosines."""
        self.clock().write(out, positions, threads)


@dataclass(frozen=True)
class SingleFrequency(_OtherSpacing):
    """One rate in all pairs: ``sin(p rate)`` and ``cos(p rate)`` in every pair.

    Weakness: all pairs are equal. The code repeats after ``2 pi / rate`` tokens, so positions one period apart are
    almost the same. A smaller rate has a longer period, but its neighbours differ less.

    Attributes:
        width: Channels of a token.
        rate: Radians per token.
        layout: See `Sinusoidal`.
        order: See `Sinusoidal`.
    """

    rate: float = 1.0

    def _spacing_of_rates(self) -> EvenSteps:
        rate = positive("rate", self.rate)
        return EvenSteps(rate, rate)


@dataclass(frozen=True)
class EvenlySpaced(_OtherSpacing):
    """Evenly spaced rates instead of a geometric progression: ``first + i (last - first) / (pairs - 1)``.

    Weakness: it nearly repeats. After ``2 pi (pairs - 1) / |last - first|`` tokens the phases of neighbouring pairs
    differ by exactly one more rotation, so all pairs are back at almost the same relative phase: at width 512 and rates
    from 1 to 1/10,000 after 1,602 tokens. Also, half of the pairs rotate fast, so the similarity of positions some
    hundred tokens apart looks like noise.

    Attributes:
        width: Channels of a token.
        first_rate: Rate of the first pair, in radians per token.
        last_rate: Rate of the last pair.
        layout: See `Sinusoidal`.
        order: See `Sinusoidal`.
    """

    first_rate: float = 1.0
    last_rate: float = 1e-4

    def _spacing_of_rates(self) -> EvenSteps:
        return EvenSteps(self.first_rate, self.last_rate)


@dataclass(frozen=True)
class WarpedPosition(AdditiveCode):
    """A sinusoid of a nonlinear function of the position: ``sin(g(p) rate_i)`` and ``cos(g(p) rate_i)``.

    Weakness: there is no fixed shift matrix. The change of ``g`` per token depends on the position, so each step
    rotates the pairs by a different angle: with ``square`` ever more, until neighbours are unrelated; with ``log`` and
    ``reciprocal`` ever less, until neighbours are equal.

    Accuracy: ``square`` is exact where the square is an integer or a float64. Otherwise ``g(p)`` is rounded to float64,
    which adds at most ``|g(p)| rate 2**-53`` rad to the bounds of `clockhands.encodings.phases`.

    Attributes:
        width: Channels of a token.
        warp: ``"square"`` (p squared), ``"log"`` (natural logarithm, p above 0) or ``"reciprocal"`` (1/p, p not 0).
        base: Ratio that spans the ladder.
        layout: See `Sinusoidal`.
        order: See `Sinusoidal`.
    """

    width: int
    warp: Literal["square", "log", "reciprocal"] = "square"
    base: float = 10_000.0
    layout: Layout = field(default="interleaved", kw_only=True)
    order: Order = field(default="sin-cos", kw_only=True)

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, width=_even_width(self.width))
        one_of("warp", self.warp, _WARPS, "It replaces the position.")
        layout_of(self.layout)
        order_of(self.order)
        _ = self.ladder

    @cached_property
    def ladder(self) -> Ladder:
        """The ladder of the rates."""
        return Geometric(self.base).ladder(self.width // 2, self.width)

    @property
    def limit(self) -> float | None:
        """A wave is at most 1 in size."""
        return 1.0

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the sines and cosines at the warped positions."""
        warped = [_WARPS[self.warp](positions.element(index)) for index in range(positions.size)]
        Clock(self.ladder, self.layout, self.order, self.width).write(out, positions_of(warped, "g(p)"), threads)

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "a step rotates its pairs by an angle that depends on the position"


def _even_width(width: int) -> int:
    number = count("width", width)
    if number % 2:
        raise InvalidValue(
            f"`width` must be even, because each pair has a sine and a cosine, got {number}.", "Use an even width."
        )
    return number


def _log(position: float) -> float:
    if position <= 0:
        raise InvalidValue(f"The logarithm needs positions above 0, got {position}.", "Start at 1: range(1, n + 1).")
    return math.log(position)


def _reciprocal(position: float) -> float:
    if not abs(position) * 2.0**63 >= 1:
        raise InvalidValue(
            f"1/p needs a position p of at least 2**-63, or at most -2**-63, got {position}.",
            "Start at 1: range(1, n + 1).",
        )
    return 1 / position


_WARPS = {"square": lambda position: position * position, "log": _log, "reciprocal": _reciprocal}


def _assign(out: np.ndarray, numbers: np.ndarray) -> None:
    try:
        with np.errstate(over="raise"):
            out[...] = before_rounding(numbers, out.dtype)
    except FloatingPointError:
        raise InvalidValue(
            f"The value {np.abs(numbers).max():g} is too large for {out.dtype.name}.",
            "Use dtype float32 or float64.",
        ) from None
