"""Scalings: how a trained ladder is slowed down to serve longer contexts.

Each scaling is a frozen value that is a function ``ladder -> ladder``; what it does to cosine and sine
beyond the rates is the ``attention_factor`` of the ladder that it returns. ``length`` is the number of
tokens in use; only `Dynamic` and `LongRope` look at it, and without it they take the trained length.

In the formulas ``w_j`` is the rate of pair ``j`` of ``n = d / 2`` pairs, ``f`` the factor, ``L0`` the original
length that the model was trained on, and ``t_j = L0 w_j / (2 pi)`` the turns that a pair makes in it.

All are computed in the decimal arithmetic of `clockhands.ladders`: a scaled rate is within a relative
10**-58 of the real number.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Literal, Protocol, runtime_checkable

from clockhands.arguments import count, not_negative, positive, real, settle, shown
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import TWO_PI, Ladder, working

# Rates are kept to 60 digits; two ratios of a geometric ladder differ by less than this.
_SAME = Decimal("1e-56")

# The number that a float holds. Unlike `Decimal`, it does not ask the caller's context for leave.
_exact = Decimal.from_float

# (pair, rate) -> how much of the slowing a pair gets, before it is held to [0, 1].
_Blend = Callable[[int, Decimal], Decimal]


@runtime_checkable
class Scaling(Protocol):
    """A frozen value that is a function ladder -> ladder."""

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder, as it is used at ``length`` tokens."""
        ...


@dataclass(frozen=True)
class Linear:
    """Position interpolation: ``w_j / f``; all hands slower alike.

    Raises:
        InvalidValue: The factor is below 1 or not finite.

    Source: Chen et al. 2023, arXiv:2306.15595, section 3.2; Transformers ``rope_type: linear``.
    """

    factor: float

    def __post_init__(self) -> None:
        """Check the values."""
        settle(self, factor=_factor("factor", self.factor))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        factor = _exact(self.factor)
        return ladder.mapped(lambda _, rate: rate / factor, f"linear scaling by {self.factor:g}")


@dataclass(frozen=True)
class Ntk:
    """NTK-aware: ``w_j f ** (-j / (n - 1))``; the fastest hand keeps its rate, the slowest is slowed ``f`` times.

    On the paper's ladder that is the base times ``f ** (d / (d - 2))``. Hunyuan's ``alpha`` is this factor.

    Raises:
        InvalidValue: The factor is below 1 or not finite; or, on use, there is a single pair.

    Source: bloc97 2023 ("NTK-aware scaled RoPE"); Peng et al. 2023, arXiv:2309.00071, section 3.1.
    """

    factor: float

    def __post_init__(self) -> None:
        """Check the values."""
        settle(self, factor=_factor("factor", self.factor))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        return _ntk(ladder, _exact(self.factor), f"NTK-aware scaling by {self.factor:g}")


@dataclass(frozen=True)
class Dynamic:
    """Dynamic NTK: `Ntk` by ``f L / L0 - (f - 1)``, where ``L = max(length, L0)``.

    Up to the original length the ladder is untouched. Keys that were cached at a shorter length hold
    another ladder's phases.

    Raises:
        InvalidValue: A value is impossible; or, on use, there is a single pair.

    Source: Transformers ``rope_type: dynamic``; Peng et al. 2023, arXiv:2309.00071, section 3.3.
    """

    factor: float
    original: int

    def __post_init__(self) -> None:
        """Check the values."""
        settle(self, factor=_factor("factor", self.factor), original=count("original", self.original))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The ladder in use at ``length`` tokens."""
        reach = max(_length(length) or self.original, self.original)
        with localcontext(working()):
            factor = Decimal(self.factor) * reach / self.original - (Decimal(self.factor) - 1)
        return _ntk(ladder, factor, f"dynamic NTK by {self.factor:g} at length {reach}")


@dataclass(frozen=True)
class Yarn:
    """YaRN: slow hands interpolated, fast hands kept, a ramp between; ``w_j (g_j / f + 1 - g_j)``.

    The ramp ``g`` is 0 for hands that make more than ``beta_fast`` turns in the original length and 1 for
    fewer than ``beta_slow``. Between them it is a straight line

    * ``ramp="index"``: in the pair's index, as in the released code and all that follow it. The pair
      that makes ``r`` turns is ``c(r) = ln(L0 w_0 / (2 pi r)) / ln(w_j / w_(j+1))``; the line goes from
      ``floor(c(beta_fast))`` (at least 0) to ``ceil(c(beta_slow))`` (at most d - 1, a channel index by
      the original's slip), without floor and ceil where ``truncate`` is False; where both ends are one
      pair, the end is moved by 0.001;
    * ``ramp="turns"``: in the turns ``t_j``, as in the paper's equation for "NTK-by-parts".

    Cosine and sine are multiplied by ``attention_factor``; where it is None, by ``g(mscale) /
    g(mscale_all_dim)`` if both are given and not 0, else by ``g(1)``, with ``g(m) = 0.1 m ln f + 1``.
    Readers differ on the case with both; Transformers' reading is taken.

    Raises:
        InvalidValue: A value is impossible; or, on use, the ladder is not geometric (``ramp="index"``).

    Source: Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4; jquesnelle/yarn at 995db5b;
    Transformers 5.23.0 ``_compute_yarn_parameters``.
    """

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    ramp: Literal["index", "turns"] = "index"

    def __post_init__(self) -> None:
        """Check the values."""
        settle(
            self,
            factor=_factor("factor", self.factor),
            original=count("original", self.original),
            beta_fast=positive("beta_fast", self.beta_fast),
            beta_slow=positive("beta_slow", self.beta_slow),
            mscale=_not_negative_or_none("mscale", self.mscale),
            mscale_all_dim=_not_negative_or_none("mscale_all_dim", self.mscale_all_dim),
            attention_factor=_positive_or_none("attention_factor", self.attention_factor),
        )
        if not isinstance(self.truncate, bool):
            raise InvalidType(
                f"`truncate` must be True or False, got {shown(self.truncate)}.", "Leave it out for True."
            )
        if self.beta_fast < self.beta_slow:
            raise InvalidValue(
                f"`beta_fast` must not be below `beta_slow`, got {self.beta_fast:g} and {self.beta_slow:g}.",
                "The released values are 32 and 1.",
            )
        if self.ramp not in ("index", "turns"):
            raise InvalidValue(
                f'`ramp` must be "index" or "turns", got {shown(self.ramp)}.',
                'Use "index" for the released code, "turns" for the paper\'s equation.',
            )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        factor = _exact(self.factor)
        with localcontext(working()):
            blend = self._by_turns() if self.ramp == "turns" else self._by_index(ladder)

        def change(pair: int, rate: Decimal) -> Decimal:
            slowed = min(max(blend(pair, rate), Decimal(0)), Decimal(1))
            return rate / factor * slowed + rate * (1 - slowed)

        return ladder.mapped(change, f"YaRN by {self.factor:g} from {self.original}", self._attention_factor())

    def _by_turns(self) -> _Blend:
        slow, fast = Decimal(self.beta_slow), Decimal(self.beta_fast)
        if fast == slow:  # a step instead of a line
            return lambda _, rate: Decimal(self.original * rate / TWO_PI < fast)
        return lambda _, rate: (fast - self.original * rate / TWO_PI) / (fast - slow)

    def _by_index(self, ladder: Ladder) -> _Blend:
        fall = -_log_ratio(ladder)
        first = ladder.exact[0]

        def pair_that_makes(turns: float) -> Decimal:
            return (self.original * first / (TWO_PI * Decimal(turns))).ln() / fall

        begin, end = pair_that_makes(self.beta_fast), pair_that_makes(self.beta_slow)
        if self.truncate:
            begin, end = begin.to_integral_value(ROUND_FLOOR), end.to_integral_value(ROUND_CEILING)
        begin, end = max(begin, Decimal(0)), min(end, Decimal(2 * ladder.pairs - 1))
        if begin == end:
            end += Decimal("0.001")
        return lambda pair, _: (pair - begin) / (end - begin)

    def _attention_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor

        with localcontext(working()):
            if self.mscale and self.mscale_all_dim:
                return float(_magnitude(self.factor, self.mscale) / _magnitude(self.factor, self.mscale_all_dim))
        return yarn_magnitude(self.factor)


def _magnitude(factor: float, mscale: float) -> Decimal:
    return 1 + Decimal("0.1") * Decimal(mscale) * Decimal(factor).ln()


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """What YaRN multiplies cosine and sine by: ``g(m) = 0.1 m ln f + 1``, nearest float64; 1 for a factor up to 1.

    >>> round(yarn_magnitude(4.0), 12)
    1.138629436112
    """
    with localcontext(working()):
        return 1.0 if factor <= 1 else float(_magnitude(factor, mscale))


def longrope_magnitude(factor: float, original: float) -> float:
    """What LongRoPE multiplies them by: ``sqrt(1 + ln f / ln L0)``, nearest float64; 1 for a factor up to 1.

    >>> round(longrope_magnitude(32.0, 4096), 12)
    1.190238071424
    """
    if factor <= 1 or original <= 1:
        return 1.0
    with localcontext(working()):
        return float((1 + Decimal(factor).ln() / Decimal(original).ln()).sqrt())


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

    def __post_init__(self) -> None:
        """Check the values."""
        settle(
            self,
            short=_divisors("short", self.short),
            long=_divisors("long", self.long),
            original=count("original", self.original, least=2),
            factor=_factor("factor", self.factor),
            attention_factor=_positive_or_none("attention_factor", self.attention_factor),
            short_mscale=_positive_or_none("short_mscale", self.short_mscale),
            long_mscale=_positive_or_none("long_mscale", self.long_mscale),
        )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The ladder in use at ``length`` tokens."""
        beyond = (_length(length) or self.original) > self.original
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


@dataclass(frozen=True)
class Llama3:
    """Llama 3's: hands of fewer than ``low`` turns slowed ``f`` times, of more than ``high`` kept, a blend between.

    With ``s = (t_j - low) / (high - low)`` held to [0, 1] the rate is ``(1 - s) w_j / f + s w_j``. Where ``low`` equals
    ``high`` (Llama 4 Scout) nothing is blended.

    Raises:
        InvalidValue: A value is impossible.

    Source: meta-llama/llama-models, ``apply_scaling``; Transformers ``rope_type: llama3``.
    """

    factor: float
    original: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        """Check the values."""
        settle(
            self,
            factor=_factor("factor", self.factor),
            original=count("original", self.original),
            low_freq_factor=positive("low_freq_factor", self.low_freq_factor),
            high_freq_factor=positive("high_freq_factor", self.high_freq_factor),
        )
        if self.high_freq_factor < self.low_freq_factor:
            raise InvalidValue(
                f"`high_freq_factor` must not be below `low_freq_factor`, got {self.high_freq_factor:g} "
                f"and {self.low_freq_factor:g}.",
                "Llama 3.1's values are 4 and 1.",
            )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        given = (self.factor, self.low_freq_factor, self.high_freq_factor)
        factor, low, high = map(_exact, given)

        def change(_: int, rate: Decimal) -> Decimal:
            turns = self.original * rate / TWO_PI
            if turns >= high:
                return rate
            if turns <= low:
                return rate / factor
            kept = (turns - low) / (high - low)
            return (1 - kept) * rate / factor + kept * rate

        return ladder.mapped(change, f"Llama-3 scaling by {self.factor:g} from {self.original}")


@dataclass(frozen=True)
class Proportional:
    """Proportional (Gemma 4): the first ``int(fraction n)`` hands keep the whole head's rates, the rest stand still.

    Unlike a partial rotary, whose exponent runs over the rotated channels only. All rates are divided by ``factor``.

    Raises:
        InvalidValue: A value is impossible.

    Source: Transformers 5.23.0 ``rope_type: proportional``.
    """

    fraction: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Check the values."""
        settle(self, fraction=positive("fraction", self.fraction), factor=_factor("factor", self.factor))
        if self.fraction > 1:
            raise InvalidValue(
                f"`fraction` must be at most 1, got {self.fraction:g}.", "It is the share of the pairs that turn."
            )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        turning, factor = int(self.fraction * ladder.pairs), _exact(self.factor)
        return ladder.mapped(
            lambda pair, rate: rate / factor if pair < turning else Decimal(0),
            f"proportional scaling ({self.fraction:g} of the pairs)",
        )


def _ntk(ladder: Ladder, factor: Decimal, origin: str) -> Ladder:
    if ladder.pairs < 2:
        raise InvalidValue(
            "NTK-aware scaling spreads its factor over the pairs, and there is only one.",
            "Rotate at least 4 channels, or use linear scaling.",
        )
    with localcontext(working()):
        step = (-factor.ln() / (ladder.pairs - 1)).exp()
        shares = [Decimal(1)]
        for _ in range(ladder.pairs - 1):
            shares.append(shares[-1] * step)
    return ladder.mapped(lambda pair, rate: rate * shares[pair], origin)


def _log_ratio(ladder: Ladder) -> Decimal:
    """``ln(w_(j+1) / w_j)`` of a geometric ladder."""
    if ladder.ratio is not None:
        return ladder.ratio.ln()
    rates = ladder.exact
    if len(rates) > 1 and all(rates):
        ratio = rates[1] / rates[0]
        if all(abs(after / before / ratio - 1) < _SAME for before, after in itertools.pairwise(rates)):
            return ratio.ln()
    raise InvalidValue(
        f"YaRN's ramp counts the pairs of a geometric ladder; this is {ladder.origin}.",
        'Use ramp="turns", which asks each pair for its own turns.',
    )


def _factor(name: str, value: object) -> float:
    number = real(name, value)
    if not 1 <= number < math.inf:
        raise InvalidValue(
            f"`{name}` must be finite and at least 1, got {shown(value)}.",
            "A scaling stretches a ladder; 1 leaves it as it is.",
        )
    return number


def _positive_or_none(name: str, value: object) -> float | None:
    return None if value is None else positive(name, value)


def _not_negative_or_none(name: str, value: object) -> float | None:
    return None if value is None else not_negative(name, value)


def _divisors(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InvalidType(f"`{name}` must be a list of numbers, got {shown(values)}.", "Give one number for each pair.")
    return tuple(positive(name, value) for value in values)


def _length(length: int | None) -> int | None:
    return None if length is None else count("length", length)
