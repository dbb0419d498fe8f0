"""The YaRN RoPE scaling."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import ClassVar, Literal

import numpy as np

from clockhands.arguments import count, positive, set_fields, truth
from clockhands.encodings.ladders import TWO_PI, Ladder, working
from clockhands.encodings.scaling._known import KnownScaling, Mistake
from clockhands.encodings.scaling._ramps import LENGTHS, fits_by_rotations, length_cost
from clockhands.encodings.scaling._scaling import (
    Scaling,
    Spelling,
    exact,
    factor_of,
    not_negative_or_none,
    positive_or_none,
)
from clockhands.encodings.scaling.measured import SCALED, Fit, MeasuredRates, Shares, first_of
from clockhands.encodings.usual_values import YARN_FACTORS
from clockhands.encodings.written_numbers import Interval, roundest, shortest, significant
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

# Rates are kept to 60 digits; two ratios of a geometric ladder differ by less than this.
_SAME = Decimal("1e-56")
# Numbers of rotations at the ends of ramps, the usual ones first.
_BETAS = ((32.0, 1.0), (16.0, 1.0), (32.0, 2.0), (16.0, 2.0), (64.0, 1.0))

# (pair, rate) -> how much of the scaling a pair gets, before clipping to [0, 1].
_Blend = Callable[[int, Decimal], Decimal]


@dataclass(frozen=True)
class Yarn(KnownScaling):
    """YaRN: low frequencies interpolated, high ones unchanged, a ramp in between; ``w_j (g_j / f + 1 - g_j)``.

    The ramp ``g`` is 0 for pairs that complete more than ``beta_fast`` rotations within the original length and 1 for
    fewer than ``beta_slow``. In between it is linear

    * ``ramp="index"``: in the pair's index, as in the released code and its successors. The pair with ``r`` rotations
      is ``c(r) = ln(L0 w_0 / (2 pi r)) / ln(w_j / w_(j+1))``; the line goes from ``floor(c(beta_fast))`` (at least 0)
      to ``ceil(c(beta_slow))`` (at most d - 1, which by a slip in the released code is a channel index), without floor
      and ceil if ``truncate`` is False; if both ends are the same pair, the end is moved by 0.001;
    * ``ramp="turns"``: in the number of rotations ``t_j``, as in the paper's equation for "NTK-by-parts".

    Cosine and sine are multiplied by ``attention_factor``. If it is None, the factor is ``g(mscale) /
    g(mscale_all_dim)`` if both are given and not 0, else ``g(1)``, with ``g(m) = 0.1 m ln f + 1``. Runtimes differ if
    both are given; this follows Transformers.

    Raises:
        InvalidValue: A value is not allowed; or, on use, the ladder is not geometric (``ramp="index"``).

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

    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
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
        set_fields(
            self,
            factor=factor_of(self.factor),
            original=count("original", self.original),
            beta_fast=positive("beta_fast", self.beta_fast),
            beta_slow=positive("beta_slow", self.beta_slow),
            mscale=not_negative_or_none("mscale", self.mscale),
            mscale_all_dim=not_negative_or_none("mscale_all_dim", self.mscale_all_dim),
            attention_factor=positive_or_none("attention_factor", self.attention_factor),
        )
        truth("truncate", self.truncate, "Leave it out for True.")
        if self.beta_fast < self.beta_slow:
            raise InvalidValue(
                f"`beta_fast` must not be below `beta_slow`, got {self.beta_fast:g} and {self.beta_slow:g}.",
                "YaRN's released code uses 32 and 1.",
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
            blend = self._by_rotations() if self.ramp == "turns" else self._by_index(ladder)

        def change(pair: int, rate: Decimal) -> Decimal:
            slowed = min(max(blend(pair, rate), Decimal(0)), Decimal(1))
            return rate / factor * slowed + rate * (1 - slowed)

        return ladder.mapped(change, f"YaRN by {self.factor:g} from {self.original}", self._attention_factor())

    def _by_rotations(self) -> _Blend:
        slow, fast = Decimal(self.beta_slow), Decimal(self.beta_fast)
        if fast == slow:  # a step instead of a ramp
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

    @classmethod
    def fits_shares(cls, shares: Shares) -> Iterator[Fit]:
        """A ramp in the pair's index; or one in the number of rotations, if the attention factor is not 1."""
        measured = shares.measured
        yield from first_of((_usual(shares), _solved(shares)))
        if not measured.attention_factor.holds(1.0):

            def make(factor: float, original: int, low: float, high: float) -> Iterator[tuple[Scaling, float]]:
                for attention, more in _attention(measured, factor):
                    yield cls(factor, original, high, low, attention_factor=attention, ramp="turns"), 2 + more

            yield from fits_by_rotations(shares, make)

    @classmethod
    def of_magnitude(cls, attention_factor: float) -> "Yarn":
        """YaRN with factor 1."""
        return cls(1.0, 1, attention_factor=attention_factor, ramp="turns")

    def mistakes(self, length: int | None) -> Iterator[Mistake]:
        """The ramp reversed, its ends rounded or not, the default betas, and the factor inside the power.

        With the factor f inside the power, the interpolated pair i of n has 1 / (f base)**(i / n).
        """
        yield Mistake("ramp-reversed", {}, rates=lambda plain, right: plain + plain / self.factor - right)
        if self.factor != 1:
            yield Mistake("factor-in-power", {"factor": f"{self.factor:g}"}, rates=self._with_factor_in_power)
        for changed in ({"truncate": not self.truncate}, {"beta_fast": 32.0}, {"beta_slow": 1.0}):
            other = replace(self, **changed)
            if other != self:
                yield Mistake("another-scaling", scaling=other)

    def _with_factor_in_power(self, plain: np.ndarray, right: np.ndarray) -> np.ndarray:
        kept = (right / plain - 1 / self.factor) / (1 - 1 / self.factor)  # the share of a pair that is not interpolated
        return plain * (kept + (1 - kept) * self.factor ** -(np.arange(len(plain)) / len(plain)))


def _magnitude(factor: float, mscale: float) -> Decimal:
    return 1 + Decimal("0.1") * Decimal(mscale) * Decimal(factor).ln()


def yarn_magnitude(factor: float, mscale: float = 1.0) -> float:
    """YaRN's attention factor: ``g(m) = 0.1 m ln f + 1``, nearest float64; 1 for a factor up to 1.

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
        f"YaRN's ramp needs geometric frequencies, got {ladder.origin}.",
        'Use ramp="turns", which uses the rotations of each pair.',
    )


def _usual(shares: Shares) -> Iterator[Fit]:
    for betas, original, truncate in itertools.product(_BETAS, LENGTHS, (True, False)):
        begin, end = _ramp(shares, original, *betas, truncate)
        factor = shares.slowest(min(max((shares.measured.pairs - 1 - begin) / (end - begin), 0.0), 1.0))
        if factor is not None:
            yield from _yarn(shares, factor, original, betas, truncate)


def _ramp(shares: Shares, original: float, fast: float, slow: float, truncate: bool) -> tuple[float, float]:
    """The pair indices at which the ramp of `Yarn` begins and ends."""
    begin, end = (math.log(original / (2 * math.pi * turns)) / shares.fall for turns in (fast, slow))
    if truncate:
        begin, end = float(math.floor(begin)), float(math.ceil(end))
    begin, end = max(begin, 0.0), min(end, 2.0 * shares.measured.pairs - 1)
    return begin, end + 0.001 if begin == end else end


def _yarn(shares: Shares, factor: float, original: int, betas: tuple[float, float], truncate: bool) -> Iterator[Fit]:
    measured, (fast, slow) = shares.measured, betas
    begin, end = _ramp(shares, original, fast, slow, truncate)
    if not shares.near(np.clip((shares.index - begin) / (end - begin), 0, 1), factor):
        return
    # The range of lengths with which the ramp begins and ends at the same pairs.
    same = ()
    if truncate:
        lengths = _same_lengths(shares, begin, end, fast, slow)
        same = () if lengths is None else (("original", (lengths.low, lengths.high)),)
    cost = SCALED + significant(factor) + (0 if truncate else 1) + length_cost(original)
    cost += 0 if (fast, slow) == (32.0, 1.0) else 3 + significant(fast) + significant(slow)
    for attention, more in _attention(measured, factor):
        scaling = Yarn(factor, original, fast, slow, truncate, attention_factor=attention)
        yield from measured.fits(shares.spacing, scaling, cost + more, same)


def _attention(measured: MeasuredRates, factor: float) -> Iterator[tuple[float | None, float]]:
    """The value of ``attention_factor`` and its cost in a fit: None where it is the usual one."""
    if measured.attention_factor.holds(yarn_magnitude(factor)):
        yield None, 0
    elif (own := shortest(measured.attention_factor)) > 0:
        yield own, significant(own)


def _same_lengths(shares: Shares, begin: float, end: float, fast: float, slow: float) -> Interval | None:
    """The range of original lengths that give these rounded ends of the ramp."""
    turn = 2 * math.pi
    last = 2.0 * shares.measured.pairs - 1
    beginning = Interval(
        turn * fast * math.exp(shares.fall * begin) if begin > 0 else 0.0,
        turn * fast * math.exp(shares.fall * (begin + 1)),
    )
    ending = Interval(
        turn * slow * math.exp(shares.fall * (end - 1)),
        turn * slow * math.exp(shares.fall * end) if end < last else math.inf,
    )
    both = beginning.meet(ending)
    return None if both is None or math.isinf(both.high) else both


def _solved(shares: Shares) -> Iterator[Fit]:
    """YaRN with other betas or lengths: the ends of the ramp are solved for first."""
    plateau = shares.plateau()
    for factor in _unseen_factors(shares) if plateau is None else (plateau,):
        yield from _yarns_by(shares, factor)


def _unseen_factors(shares: Shares) -> Iterator[float]:
    """Candidate factors if the ramp extends past the last pair: from the attention factor, then common ones."""
    factor = shares.measured.attention_factor
    if factor.low > 1:
        yield shortest(Interval(math.exp((factor.low - 1) / 0.1), math.exp((factor.high - 1) / 0.1)))
    yield from YARN_FACTORS


def _yarns_by(shares: Shares, factor: float) -> Iterator[Fit]:
    for begin, end, truncate in _ends(shares, factor):
        if truncate:
            lengths = _same_lengths(shares, begin, end, 32.0, 1.0)
            original = None if lengths is None else roundest(lengths)
            if original is not None:
                yield from _yarn(shares, factor, original, (32.0, 1.0), truncate)
            for original in LENGTHS:
                fast, slow = (
                    shortest(Interval(*(original / (2 * math.pi * math.exp(shares.fall * pair)) for pair in ends)))
                    for ends in ((begin + 1 - 1e-9, begin), (end, end - 1 + 1e-9))
                )
                if fast >= slow > 0 and significant(fast) <= 3 and significant(slow) <= 3:
                    yield from _yarn(shares, factor, original, (fast, slow), truncate)
        else:
            yield from _untruncated(shares, factor, begin, end)


def _untruncated(shares: Shares, factor: float, begin: float, end: float) -> Iterator[Fit]:
    """YaRN with unrounded ends of the ramp: each end determines the length over the number of rotations."""
    reach = 1e-3
    over = [2 * math.pi * math.exp(shares.fall * pair) for pair in (begin, end)]
    for slow in (1.0, 2.0, 0.5, 4.0):
        lengths = Interval.around(slow * over[1], slow * over[1] * reach)
        original = roundest(lengths)
        if original is None:
            continue
        for digits in (1, 2, 3, 4, 6, 8):
            fast = float(f"{original / over[0]:.{digits - 1}e}")
            if fast >= slow:
                yield from _yarn(shares, factor, original, (fast, slow), truncate=False)


def _ends(shares: Shares, factor: float) -> Iterator[tuple[float, float, bool]]:
    """Candidate ends of the ramp, in pairs, and whether they are rounded."""
    pairs = shares.between(factor)
    last = 2 * shares.measured.pairs - 1
    if len(pairs) < 2:
        kept = int(np.flatnonzero(shares.kept + shares.reach >= 1)[-1])
        if not len(pairs):
            yield float(kept), float(kept + 1), True
            return
        low, high = shares.slowing(factor, pairs)
        for begin, end in itertools.product(range(kept + 1), range(int(pairs[0]) + 1, last + 1)):
            if begin < end and low[0] <= (pairs[0] - begin) / (end - begin) <= high[0]:
                yield float(begin), float(end), True
        return
    low, high = shares.slowing(factor, pairs)
    slope, at_zero = np.polyfit(pairs, (low + high) / 2, 1, w=1 / (high - low))
    if slope <= 0:
        return
    begin, end = -at_zero / slope, (1 - at_zero) / slope
    if not -last <= begin < end <= 4 * last:
        return
    whole = float(max(round(begin), 0)), float(min(round(end), last))
    if whole[0] < whole[1]:
        yield *whole, True
    yield float(begin), float(end), False
