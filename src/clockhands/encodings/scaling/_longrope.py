"""LongRoPE: a divisor for each RoPE frequency, from one of two lists."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import ClassVar

import numpy as np

from clockhands.arguments import count, positive, set_fields
from clockhands.encodings.ladders import Geometric, Ladder, working
from clockhands.encodings.scaling._known import KnownScaling, Mistake
from clockhands.encodings.scaling._scaling import Spelling, factor_of, length_of, positive_or_none
from clockhands.encodings.scaling.measured import Beyond, Fit, MeasuredRates
from clockhands.encodings.usual_values import USUAL_BASES
from clockhands.encodings.written_numbers import Interval, shortest, significant
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# The cost of a list of divisors, to which a quarter of its digits is added.
_DIVISORS = 12
# The numbers must be this much rarer than decimals that fit by chance, as a power of 10.
_RARER = 6.0
_FINE = 1e-5
_CHANCE = 0.1


@dataclass(frozen=True)
class LongRope(KnownScaling):
    """LongRoPE: each rate divided by a separate number, ``w_j / short_j`` up to ``L0`` tokens, ``w_j / long_j`` beyond.

    Cosine and sine are multiplied by ``attention_factor``, or if it is None by ``sqrt(1 + ln f / ln L0)``, at every
    length. ``short_mscale`` and ``long_mscale`` (Phi-MoE) give a separate factor for each list.

    Attributes:
        short: One divisor for each pair, up to the original length.
        long: One divisor for each pair, beyond it.
        original: The original length ``L0``.
        factor: The extended context length over the original length.

    Raises:
        InvalidValue: A value is not allowed; or, on use, the lists do not have one number per pair.

    Source: Ding et al. 2024, arXiv:2402.13753; Transformers ``rope_type: longrope`` (Phi-3).
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    factor: float
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None

    BY_LENGTH: ClassVar[bool] = True
    BY_FACTOR: ClassVar[bool] = False
    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling(
            "longrope",
            needs=("short", "long"),
            may=("factor", "original", "attention_factor", "short_mscale", "long_mscale"),
            original="declared",
            reaches_context=True,
            magnitude=(("attention_factor",), ("short_mscale", "long_mscale")),
            make=lambda said: LongRope(
                said["short"],
                said["long"],
                said["original"],
                said["factor"],
                attention_factor=said.get("attention_factor"),
                short_mscale=said.get("short_mscale"),
                long_mscale=said.get("long_mscale"),
            ),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            short=_divisors("short", self.short),
            long=_divisors("long", self.long),
            original=count("original", self.original, least=2),
            factor=factor_of(self.factor),
            attention_factor=positive_or_none("attention_factor", self.attention_factor),
            short_mscale=positive_or_none("short_mscale", self.short_mscale),
            long_mscale=positive_or_none("long_mscale", self.long_mscale),
        )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The ladder in effect at ``length`` tokens."""
        beyond = (length_of(length) or self.original) > self.original
        name, divisors = ("long", self.long) if beyond else ("short", self.short)
        if len(divisors) != ladder.pairs:
            raise InvalidValue(
                f"`{name}` has {len(divisors)} numbers for {ladder.pairs} pairs.",
                "Pass one for each pair: half the number of RoPE dimensions.",
            )
        return ladder.mapped(
            lambda pair, rate: rate / Decimal(divisors[pair]),
            f"LongRoPE ({name}) from {self.original}",
            self._attention_factor(self.long_mscale if beyond else self.short_mscale),
        )

    def _attention_factor(self, of_regime: float | None) -> float:
        if of_regime is not None:
            return of_regime
        if self.attention_factor is not None:
            return self.attention_factor
        return longrope_magnitude(self.factor, self.original)

    @classmethod
    def fits_rates(cls, measured: MeasuredRates) -> Iterator[Fit]:
        """Rates divided by short decimals each, far more of them than chance would give."""
        best: tuple[float, float, tuple[float, ...]] | None = None
        for base in USUAL_BASES:
            below = np.array(Geometric(base).ladder(measured.pairs, measured.channels).rates)
            low, high = below / (measured.rates + measured.bounds), below / (measured.rates - measured.bounds)
            if (high < 1).any() or (high > 1e4).any():  # rates are lowered
                continue
            found = _divisors_in(low, high)
            rare, divisors = sum(rare for _, rare in found), tuple(number for number, _ in found)
            # With a precise measurement, an arbitrary number is no rarer than chance.
            fine = (high - low) / low < _FINE
            if np.mean([own < 1 for (_, own), known in zip(found, fine, strict=True) if known] or [0]) > _CHANCE:
                continue
            if best is None or rare > best[0]:
                best = rare, base, divisors
        if best is None or best[0] < _RARER + 0.5 * measured.pairs or 2 * best[2].count(1.0) > measured.pairs:
            return
        _, base, divisors = best
        cost = _DIVISORS + sum(min(significant(number), 6) for number in divisors) / 4
        factor = measured.attention_factor
        attention = shortest(factor)
        if attention <= 0:
            return
        usual = _usual_magnitude(factor)
        if usual is not None:
            scaling = cls(divisors, divisors, *usual)
            yield from measured.fits(Geometric(base), scaling, cost, (("long", (0.0, math.inf)),))
        else:
            scaling = cls(divisors, divisors, 4096, 1.0, attention_factor=attention)
            unknown = (("original", (2.0, 2.0**63)),)
            yield from measured.fits(Geometric(base), scaling, cost + significant(attention), unknown)

    @classmethod
    def fits_beyond(cls, beyond: Beyond) -> "Iterator[LongRope]":
        """The long list, given the known short one; the factor follows from the attention factor."""
        plain, rates, bounds = beyond.plain, beyond.rates, beyond.bounds
        short = beyond.scaling.short if isinstance(beyond.scaling, LongRope) else (1.0,) * len(plain)
        long = tuple(number for number, _ in _divisors_in(plain / (rates + bounds), plain / (rates - bounds)))
        # sqrt(1 + ln f / ln L0) is the attention factor, where it is the usual one.
        factor, original = beyond.attention_factor, beyond.original
        served = original ** (factor**2 - 1)
        served = max(1.0, shortest(Interval.around(served, 4e-6 * served * math.log(original))))
        attention = None if abs(longrope_magnitude(served, original) - factor) <= 1e-6 else factor
        yield cls(short, long, original, served, attention_factor=attention)

    def mistakes(self, length: int | None) -> Iterator[Mistake]:
        """The short and the long list swapped."""
        beyond = length is not None and length > self.original
        words = {"declared": "long" if beyond else "short", "used": "short" if beyond else "long"}
        yield Mistake("lists-swapped", words, replace(self, short=self.long, long=self.short))

    def regimes(self, which: str | None, reach: int | None) -> Iterator[tuple[str, int]]:
        """The ladder of each list."""
        if which != "long":
            yield f"up to {self.original:,} tokens", 1
        if which not in ("original", "short"):
            yield f"beyond {self.original:,} tokens", self.original + 1


def longrope_magnitude(factor: float, original: float) -> float:
    """LongRoPE's attention factor: ``sqrt(1 + ln f / ln L0)``, nearest float64; 1 for a factor up to 1.

    >>> round(longrope_magnitude(32.0, 4096), 12)
    1.190238071424
    """
    if factor <= 1 or original <= 1:
        return 1.0
    with localcontext(working()):
        return float((1 + Decimal(factor).ln() / Decimal(original).ln()).sqrt())


def _divisors(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InvalidType(f"`{name}` must be a list of numbers, got {shown(values)}.", "Give one number for each pair.")
    return tuple(positive(name, value) for value in values)


def _divisors_in(low: np.ndarray, high: np.ndarray) -> list[tuple[float, float]]:
    """A short decimal between each pair of bounds, and how much rarer than chance it is."""
    return [_divisor_in(Interval(float(a), float(b))) for a, b in zip(low, high, strict=True)]


def _divisor_in(interval: Interval) -> tuple[float, float]:
    """A short decimal, or its nearest float32 as in configs, and how much rarer than chance it is."""
    middle = interval.middle
    for digits in range(1, 7):
        decimal = float(f"{middle:.{digits - 1}e}")
        number = next((one for one in (decimal, float(np.float32(decimal))) if interval.holds(one)), None)
        if number is not None:
            # The number of decimals expected in such a narrow interval.
            chance = (interval.high - interval.low) * 10 ** (digits - 1 - math.floor(math.log10(middle)))
            return number, max(0.0, -math.log10(max(chance, 1e-300)))
    return shortest(interval), 0.0


def _usual_magnitude(factor: Interval) -> tuple[int, float] | None:
    """The original length and the factor, both powers of two, that give this attention factor; else None."""
    for original in (4096, 8192, 2048, 32768, 1024, 16384, 65536):
        for power in range(13):
            if factor.holds(longrope_magnitude(float(1 << power), original)):
                return original, float(1 << power)
    return None
