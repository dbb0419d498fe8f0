"""LongRoPE."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar

from clockhands.arguments import count, positive, settle, shown
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import Ladder, working
from clockhands.scaling._scaling import Spelling, factor_of, length_of, positive_or_none


@dataclass(frozen=True)
class LongRope:
    """LongRoPE: each hand slowed by a number of its own, ``w_j / short_j`` up to ``L0``, ``w_j / long_j`` beyond.

    Cosine and sine are multiplied by ``attention_factor``; where it is None, by ``sqrt(1 + ln f / ln L0)``, at
    every length. ``short_mscale`` and ``long_mscale`` (Phi-MoE) say the factor for each of the two.

    Attributes:
        short: One divisor for each pair, up to the original length.
        long: One divisor for each pair, beyond it.
        original: The original length ``L0``.
        factor: Served length over original length.

    Raises:
        InvalidValue: A value is impossible; or, on use, the lists are not as long as the ladder.

    Source: Ding et al. 2024, arXiv:2402.13753; Transformers ``rope_type: longrope`` (Phi-3).
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    factor: float
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None

    SPELLINGS: ClassVar = (
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
        settle(
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
        """The ladder in use at ``length`` tokens."""
        beyond = (length_of(length) or self.original) > self.original
        name, divisors = ("long", self.long) if beyond else ("short", self.short)
        if len(divisors) != ladder.pairs:
            raise InvalidValue(
                f"`{name}` has {len(divisors)} numbers for {ladder.pairs} pairs.",
                "Give one for each pair, half as many as there are rotated channels.",
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


def longrope_magnitude(factor: float, original: float) -> float:
    """What LongRoPE multiplies them by: ``sqrt(1 + ln f / ln L0)``, nearest float64; 1 for a factor up to 1.

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
