"""Frequency ladders: the RoPE frequency of each dimension pair, in radians per token.

Every sinusoidal or rotary encoding is computed from a ladder. A rate (RoPE frequency) is the real number that its
convention defines, not the nearest float64: at position 10**15 that difference alone is a tenth of a radian. So a
ladder stores each rate as a decimal number of ``DIGITS`` significant digits; ``phases`` converts them to fixed point,
and ``rates`` gives the nearest float64.

Accuracy: each of the functions below that make a ladder does at most ``pairs`` multiplications, one power and one
division in ``WORKING`` digits, each with a relative error below 10**(1 - WORKING); for up to 10**6 pairs a rate is
within a relative 10**-62 of the real number, then rounded to ``DIGITS``
digits: together a relative 10**(1 - DIGITS), about 2**-196.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, localcontext
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from clockhands.arguments import count, not_negative, positive, real, set_fields, truth
from clockhands.encodings.constants import Source
from clockhands.encodings.spec_fields import KnowsItsNames
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

DIGITS = 60
WORKING = 70

# 2 pi, with more digits than the working precision (OEIS A019692).
TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281257241799725606965068")

# A larger rate would overflow the 64 bits that `phases` has for whole rotations per token.
FASTEST = Decimal(2) ** 63

# The accuracy stated above is derived for at most this many pairs; more would take minutes.
MOST_PAIRS = 10**6

Span = Literal["open", "closed"] | float


def working() -> Context:
    """The decimal context in which ladders are computed: ``WORKING`` digits, any exponent.

    A new context, so that the caller's precision and traps do not change a rate. A result that overflows becomes
    infinite, and `Ladder` refuses it.
    """
    traps = [InvalidOperation, DivisionByZero]
    return Context(prec=WORKING, rounding=ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9, traps=traps)


def _pairs(pairs: int) -> int:
    if count("pairs", pairs) > MOST_PAIRS:
        raise InvalidValue(f"At most {MOST_PAIRS:,} pairs are allowed, got {pairs:,}.", "Use a smaller width.")
    return pairs


class Turns(NamedTuple):
    """Full rotations (turns) per token of each pair in fixed point: ``whole + high / 2**64 + low / 2**128``.

    Each field is uint64 of shape [pairs], read-only. The sum is within 2**-129 of the rate
    divided by 2 pi.
    """

    whole: np.ndarray
    high: np.ndarray
    low: np.ndarray


@dataclass(frozen=True)
class Ladder(Source):
    """The RoPE frequency of each dimension pair, and the attention factor of a scaled ladder.

    A ladder compares and hashes by its numbers, so it can be a cache key or a static argument of ``jax.jit``.

    Attributes:
        exact: The frequency of each pair in radians per token, as decimals of ``DIGITS`` digits. A pair of rate 0 never
            rotates.
        attention_factor: The factor on cosine and sine where the ladder was scaled (YaRN, LongRoPE), else 1.
        ratio: Ratio of neighbouring rates if they are a geometric progression, else None. Not compared, because it
            follows from the rates; with a single rate it does not, and is needed.
        origin: The call that made the ladder, for messages; not compared.

    Raises:
        InvalidValue: There is no rate, or one is negative, infinite, NaN or above 2**63; or the
            attention factor is not a positive finite number.
    """

    exact: tuple[Decimal, ...]
    attention_factor: float = 1.0
    ratio: Decimal | None = field(default=None, compare=False)
    origin: str = field(default="custom", compare=False)

    def __post_init__(self) -> None:
        """Check the rates and round them to ``DIGITS`` digits."""
        if not self.exact:
            raise InvalidValue(
                "At least one frequency is needed, got none.", "Pass one frequency for each dimension pair."
            )
        for pair, rate in enumerate(self.exact):
            if not isinstance(rate, Decimal):
                raise InvalidType(
                    f"Frequencies must be Decimal numbers, got {shown(rate)} for pair {pair}.",
                    "Make them with geometric, evenly_spaced or explicit of clockhands.ladders.",
                )
            if not (rate.is_finite() and 0 <= rate < FASTEST):
                raise InvalidValue(
                    f"Frequencies must be finite, not negative and below 2**63 rad/token, got {rate:.6g} for pair "
                    f"{pair}.",
                    "Check the base, the multiplier and the scaling that the frequencies were computed from.",
                )
        if not 0 < self.attention_factor < math.inf:
            raise InvalidValue(
                f"`attention_factor` must be finite and positive, got {self.attention_factor}.",
                "Leave it out to compute it from the scaling.",
            )
        stored = Context(prec=DIGITS, rounding=ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
        set_fields(self, exact=tuple(map(stored.plus, self.exact)))

    @property
    def pairs(self) -> int:
        """Number of channel pairs."""
        return len(self.exact)

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """The float64 nearest to each rate, in radians per token."""
        return tuple(map(float, self.exact))

    @cached_property
    def wavelengths(self) -> tuple[float, ...]:
        """Wavelength of each pair in tokens, 2 pi / rate; infinite for a rate of 0."""
        return tuple(2 * math.pi / rate if rate else math.inf for rate in self.rates)

    @cached_property
    def turns(self) -> Turns:
        """The rates as turns per token in fixed point, made once.

        Accuracy: half a unit of 2**-128 turns; the decimals are good to 2**-190 of the rate, which
        below 2**63 rad/token is less than a thousandth of that unit's half.
        """
        with localcontext(working()):
            unit = 2**128 / TWO_PI
            fixed = [int((rate * unit).to_integral_value()) for rate in self.exact]
        limbs = np.frombuffer(b"".join(number.to_bytes(24, "little") for number in fixed), "<u8").reshape(-1, 3)
        low, high, whole = (np.ascontiguousarray(limbs[:, limb], np.uint64) for limb in range(3))
        for limb in (low, high, whole):
            limb.flags.writeable = False
        return Turns(whole, high, low)

    def __getstate__(self) -> dict[str, object]:
        """The state for pickling and copying: the fields without the values cached from them."""
        return {name: self.__dict__[name] for name in ("exact", "attention_factor", "ratio", "origin")}

    def mapped(self, change: Callable[[int, Decimal], Decimal], origin: str, attention_factor: float = 1.0) -> "Ladder":
        """The ladder whose pair ``i`` has the rate ``change(i, rate)``, computed in ``WORKING`` digits.

        The attention factors multiply, so that scalings can follow one another.
        """
        with localcontext(working()):
            rates = [change(pair, rate) for pair, rate in enumerate(self.exact)]
        return self.with_rates(rates, origin, attention_factor)

    def with_rates(self, rates: Iterable[Decimal], origin: str, attention_factor: float = 1.0) -> "Ladder":
        """As `mapped`, where all rates are already computed."""
        factor = self.attention_factor * attention_factor
        return Ladder(tuple(rates), factor, origin=f"{origin} of {self.origin}")


@dataclass(frozen=True)
class Geometric(KnowsItsNames):
    """Rates in geometric progression: ``rate_i = multiplier * base ** (-i / den)``.

    In papers this is ``base ** (-2 i / d)``; in checkpoints the rates are called ``inv_freq`` and the
    base ``rope_theta``. The span defines ``den``:

    * ``"open"``: ``d / 2``, as in the papers; the ladder ends one step before ``1 / base``;
    * ``"closed"``: ``d // 2 - 1``, as in tensor2tensor; the last rate is exactly ``1 / base``;
    * a number: that denominator, for a ladder that continues past the RoPE dimensions.

    Attributes:
        base: The base; positive and not 1. Below 1 the rates increase with ``i``.
        span: Where the ladder ends.
        multiplier: The first rate, in radians per token: the real number that the float64 represents. Where a
            convention says 2 pi, ``2 * math.pi`` is 2.5e-16 rad too small for each rotation of the pair.

    Raises:
        InvalidValue: A value is not allowed, or the span does not exist for this width.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5; Su et al. 2021, arXiv:2104.09864,
    section 3.2.2; tensor2tensor 1.15.7, ``get_timing_signal_1d`` (closed).
    """

    base: float = 10_000.0
    span: Span = "open"
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, base=real("base", self.base))
        if not 0 < self.base < math.inf or self.base == 1:
            raise InvalidValue(
                f"`base` must be a finite positive number other than 1, got {shown(self.base)}.",
                "Usual bases are 10000 (the paper) and 500000 (Llama 3); with base 1 all pairs have the same "
                "frequency.",
            )
        if self.span not in ("open", "closed"):
            if isinstance(self.span, str):
                raise InvalidValue(
                    f'`span` must be "open", "closed" or a positive number, got {self.span!r}.',
                    'Use "open" for denominators d/2 (the paper), "closed" for d/2 - 1 (tensor2tensor).',
                )
            set_fields(self, span=positive("span", self.span))
        set_fields(self, multiplier=positive("multiplier", self.multiplier))

    def denominator(self, channels: int) -> Decimal:
        """The ``den`` of the formula for a width of ``channels``."""
        if self.span == "open":
            return Decimal(channels) / 2
        if self.span == "closed":
            if channels // 2 < 2:
                raise InvalidValue(
                    f"A closed span divides by d/2 - 1, which is 0 or less at width {channels}.",
                    'Use at least 4 dimensions, or span="open" (the paper\'s, which divides by d/2).',
                )
            return Decimal(channels // 2 - 1)
        return Decimal(self.span)

    def ladder(self, pairs: int, channels: int) -> Ladder:
        """The ladder of ``pairs`` rates for ``channels`` channels."""
        _pairs(pairs)
        make = _geometric if pairs <= _KEPT_PAIRS else _geometric.__wrapped__
        return make(self, pairs, channels)


_KEPT_PAIRS = 1 << 12  # the ladders that are kept take at most 30 MB


@lru_cache(maxsize=32)
def _geometric(spacing: Geometric, pairs: int, channels: int) -> Ladder:
    """The ladder, kept because specs that are equal ask for the same one, and its fixed point takes longest."""
    with localcontext(working()):
        ratio = (-Decimal(spacing.base).ln() / spacing.denominator(channels)).exp()
        rate, rates = Decimal(spacing.multiplier), []
        for _ in range(pairs):
            rates.append(rate)
            rate *= ratio
    span = spacing.span if isinstance(spacing.span, str) else f"{spacing.span:g}"
    return Ladder(tuple(rates), ratio=ratio, origin=f"geometric frequencies (base {spacing.base:g}, span {span})")


@dataclass(frozen=True)
class EvenSteps(KnowsItsNames):
    """Evenly spaced rates: ``rate_i = multiplier * (first + i * (last - first) / (pairs - 1))``.

    Attributes:
        first: The first rate before the multiplier, in radians per token.
        last: The last rate before the multiplier. With a single pair only ``first`` is used.
        multiplier: A factor on all rates.

    Raises:
        InvalidValue: A value is negative or not finite.

    Source: Jaegle et al. 2021, Perceiver, arXiv:2103.03206, section 3.2 (linear frequency bands).
    """

    first: float
    last: float
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("first", "last"):
            set_fields(self, **{name: not_negative(name, getattr(self, name))})
        set_fields(self, multiplier=positive("multiplier", self.multiplier))

    def ladder(self, pairs: int, channels: int) -> Ladder:
        """The ladder of ``pairs`` rates; the width does not matter."""
        _pairs(pairs)
        with localcontext(working()):
            first, last, steps = Decimal(self.first), Decimal(self.last), max(pairs - 1, 1)
            # A sum of non-negative terms: no cancellation, so a small rate keeps all its digits.
            rates = tuple(
                Decimal(self.multiplier) * (first * (steps - pair) + last * pair) / steps for pair in range(pairs)
            )
        return Ladder(rates, origin=f"evenly spaced frequencies ({self.first:g} to {self.last:g})")


@dataclass(frozen=True)
class Explicit(KnowsItsNames):
    """Rates given one by one; each is exactly the real number that its float64 represents.

    Attributes:
        rates: Radians per token, one for each pair.

    Raises:
        InvalidValue: A rate is negative or not finite, or there is none; or, when the ladder is
            made, their number is not the number of pairs.
    """

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the values."""
        if isinstance(self.rates, str | bytes) or not isinstance(self.rates, Sequence):
            try:
                given = tuple(self.rates)
            except TypeError:
                raise InvalidType(
                    f"`rates` must be a sequence of numbers, got {type(self.rates).__name__}.",
                    "Pass one frequency in rad/token for each pair.",
                ) from None
            set_fields(self, rates=given)
        set_fields(self, rates=tuple(not_negative("rates", rate) for rate in self.rates))
        if not self.rates:
            raise InvalidValue(
                "`rates` must contain at least one frequency, got none.", "Pass one frequency for each pair."
            )

    def ladder(self, pairs: int, channels: int) -> Ladder:
        """The ladder; raises InvalidValue unless there are ``pairs`` rates."""
        if pairs != len(self.rates):
            raise InvalidValue(
                f"{len(self.rates)} frequencies were given for the {pairs} pairs of {channels} dimensions.",
                "Pass one frequency for each pair.",
            )
        return Ladder(tuple(map(Decimal.from_float, self.rates)), origin=f"{pairs} explicit frequencies")


@dataclass(frozen=True)
class Joined(KnowsItsNames):
    """The ladders of several axes joined into one; each axis has a number of pairs and a spacing.

    The pairs of the first axis come first, then those of the next. With ``in_turns`` the axes alternate: the first
    pair of each, then the second of each, and so on. The spacing of an axis with ``n`` pairs is for ``2 n`` channels.

    Attributes:
        parts: For each axis the number of its pairs and the spacing of their rates.
        in_turns: Whether the axes alternate instead of following one another.

    Raises:
        InvalidValue, InvalidType: A part is not a number and a spacing; alternating parts have different lengths; or,
            when the ladder is made, the parts do not add up to the number of pairs.

    Source: diffusers 0.42.1, ``FluxPosEmbed`` (one after another), ``LTXVideoRotaryPosEmbed`` (in turns).

    >>> Joined([(2, Geometric(100.0)), (1, Geometric())]).ladder(3, 6).rates
    (1.0, 0.1, 1.0)
    """

    parts: "tuple[tuple[int, Geometric | EvenSteps | Explicit], ...]"
    in_turns: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, parts=tuple(map(_part, _sequence("parts", self.parts))))
        if not self.parts:
            raise InvalidValue("`parts` must hold at least one part, got none.", "Give (pairs, spacing) for each axis.")
        truth("in_turns", self.in_turns, "Leave it out for False.")
        lengths = [pairs for pairs, _ in self.parts]
        if self.in_turns and len(set(lengths)) > 1:
            raise InvalidValue(
                f"With in_turns, all parts must have the same number of pairs, got {lengths}.", "Leave out in_turns."
            )

    def ladder(self, pairs: int, channels: int) -> Ladder:
        """The ladder; raises InvalidValue unless the parts have ``pairs`` pairs in all."""
        lengths = [own for own, _ in self.parts]
        if sum(lengths) != pairs:
            raise InvalidValue(
                f"The parts have {lengths} pairs, but there are {pairs} pairs of {channels} dimensions.",
                "The pairs of all parts must add up to half of the dimensions.",
            )
        ladders = [spacing.ladder(own, 2 * own) for own, spacing in self.parts]
        rates = [ladder.exact for ladder in ladders]
        order = itertools.chain.from_iterable(zip(*rates, strict=True) if self.in_turns else rates)
        return Ladder(tuple(order), origin="; then ".join(ladder.origin for ladder in ladders))


@dataclass(frozen=True)
class Repeated(KnowsItsNames):
    """Each rate of another spacing repeated: ``r0 r0 r1 r1 …``; the spacing is for ``1 / times`` of the channels.

    Attributes:
        spacing: The spacing of the distinct rates, for the channels that they need without repetition.
        times: How often each rate is repeated.

    Raises:
        InvalidValue, InvalidType: A value is not allowed; or, when the ladder is made, ``times`` does not divide the
            number of pairs.

    Source: SAM 2, ``get_1d_sine_pe``, which uses an index for interleaved channels with half-split ones.

    >>> Repeated(Geometric(100.0)).ladder(4, 8).rates
    (1.0, 1.0, 0.1, 0.1)
    """

    spacing: "Geometric | EvenSteps | Explicit"
    times: int = 2

    def __post_init__(self) -> None:
        """Check the values."""
        if not isinstance(self.spacing, Geometric | EvenSteps | Explicit):
            raise InvalidType(
                f"`spacing` must define how the different frequencies are spaced, got {shown(self.spacing)}.",
                "Use Geometric, EvenSteps or Explicit of clockhands.ladders.",
            )
        set_fields(self, times=count("times", self.times))

    def ladder(self, pairs: int, channels: int) -> Ladder:
        """The ladder; raises InvalidValue unless ``times`` divides ``pairs``."""
        if pairs % self.times:
            raise InvalidValue(
                f"{pairs} pairs cannot be divided into groups of {self.times} with one frequency each.",
                f"Use a width that is a multiple of {2 * self.times}.",
            )
        single = self.spacing.ladder(pairs // self.times, channels // self.times)
        rates = tuple(rate for rate in single.exact for _ in range(self.times))
        return Ladder(rates, origin=f"{single.origin}, each frequency {self.times} times")


def _sequence(name: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidType(f"`{name}` must be a sequence, got {shown(value)}.", "Give a tuple.")
    return tuple(value)


def _part(part: object) -> "tuple[int, Geometric | EvenSteps | Explicit]":
    pairs, spacing = given if len(given := _sequence("parts", part)) == 2 else (None, None)
    if not isinstance(spacing, Geometric | EvenSteps | Explicit):
        raise InvalidType(
            f"Each of `parts` must be a number of pairs and a spacing, got {shown(part)}.",
            "Write (8, Geometric(base=10_000)), for example.",
        )
    return count("parts", pairs), spacing


# A spacing is a rule that makes a ladder for any width. ``channels`` is the number of channels that the ladder is for
# (the width of a table, the RoPE dimensions of a head), ``pairs`` the number of rates.
Spacing = Geometric | EvenSteps | Explicit | Joined | Repeated


def geometric(pairs: int, base: float = 10_000.0, span: Span = "open", multiplier: float = 1.0) -> Ladder:
    """The usual ladder: the rate of pair ``i`` is ``multiplier * base ** (-i / den)`` radians per token.

    With ``d = 2 * pairs`` channels, ``den`` is ``d / 2`` (``span="open"``), ``d / 2 - 1``
    (``span="closed"``) or the number given.

    Accuracy: each rate within a relative 10**-59 of the real number; see the module.

    Raises:
        InvalidValue: A value is impossible; see `Geometric`.

    Source: Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2.

    >>> geometric(pairs=2, base=100.0).rates
    (1.0, 0.1)
    >>> geometric(pairs=3, base=100.0, span="closed").rates
    (1.0, 0.1, 0.01)
    """
    return Geometric(base, span, multiplier).ladder(pairs, 2 * pairs)


def evenly_spaced(pairs: int, first: float, last: float, multiplier: float = 1.0) -> Ladder:
    """Evenly spaced rates from ``first`` to ``last``, both included, times ``multiplier``.

    Raises:
        InvalidValue: A value is impossible; see `EvenSteps`.

    Source: Jaegle et al. 2021, Perceiver, arXiv:2103.03206, section 3.2.

    >>> evenly_spaced(3, 1.0, 2.0).rates
    (1.0, 1.5, 2.0)
    """
    return EvenSteps(first, last, multiplier).ladder(pairs, 2 * pairs)


def explicit(rates: Sequence[float]) -> Ladder:
    """The ladder of the given rates in radians per token, each exactly the value of its float64.

    Raises:
        InvalidValue: A rate is negative or not finite, or there is none.

    >>> explicit([1.0, 0.25]).pairs
    2
    """
    given = Explicit(rates)  # type: ignore[arg-type]
    return given.ladder(len(given.rates), 2 * len(given.rates))


def spacing_of(base: float | None, spacing: Spacing | None) -> Spacing:
    """The spacing of a spec that accepts ``base``, ``spacing``, or both.

    Raises:
        InvalidValue: Both are given and the spacing has no base.
        InvalidType: ``spacing`` is not a spacing.
    """
    if spacing is None:
        return Geometric() if base is None else Geometric(base)
    if not isinstance(spacing, Spacing):
        raise InvalidType(
            f"`spacing` must define how frequencies are spaced, got {shown(spacing)}.",
            "Use Geometric, EvenSteps, Explicit or Joined of clockhands.ladders.",
        )
    if base is None:
        return spacing
    if not isinstance(spacing, Geometric):
        raise InvalidValue(
            f"`base` needs geometric spacing, but the spacing is {type(spacing).__name__}.",
            "Leave `base` out, or give spacing=Geometric(base=…).",
        )
    return replace(spacing, base=base)
