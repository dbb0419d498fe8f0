"""YaRN."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import ClassVar, Literal

from clockhands.arguments import count, positive, settle, shown
from clockhands.errors import InvalidType, InvalidValue
from clockhands.ladders import TWO_PI, Ladder, working
from clockhands.scaling._scaling import Spelling, exact, factor_of, not_negative_or_none, positive_or_none

# Rates are kept to 60 digits; two ratios of a geometric ladder differ by less than this.
_SAME = Decimal("1e-56")

# (pair, rate) -> how much of the slowing a pair gets, before it is held to [0, 1].
_Blend = Callable[[int, Decimal], Decimal]


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

    SPELLINGS: ClassVar = (
        Spelling(
            "yarn",
            needs=("factor",),
            may=("original", "fast", "slow", "truncate", "mscale", "mscale_all", "attention_factor"),
            original="declared",
            reaches_context=True,
            magnitude=(("attention_factor",), ("mscale", "mscale_all")),
            make=lambda said: Yarn(
                said["factor"],
                said["original"],
                beta_fast=said.get("fast", 32.0),
                beta_slow=said.get("slow", 1.0),
                truncate=said.get("truncate", True),
                mscale=said.get("mscale"),
                mscale_all_dim=said.get("mscale_all"),
                attention_factor=said.get("attention_factor"),
            ),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        settle(
            self,
            factor=factor_of(self.factor),
            original=count("original", self.original),
            beta_fast=positive("beta_fast", self.beta_fast),
            beta_slow=positive("beta_slow", self.beta_slow),
            mscale=not_negative_or_none("mscale", self.mscale),
            mscale_all_dim=not_negative_or_none("mscale_all_dim", self.mscale_all_dim),
            attention_factor=positive_or_none("attention_factor", self.attention_factor),
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
        factor = exact(self.factor)
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
