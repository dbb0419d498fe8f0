"""Simulates adding the paper's sinusoid to random tokens: figures by width, each with its exact expectation.

Tokens, pairs of tokens and projections are random, not trained; the generator is seeded. Every figure comes with the
one that `_recoverable` and `_score_terms` derive. An embedding of ``width`` channels is drawn at one of three scales:

* ``"1/sqrt(width)"``: entries N(0, 1 / width), a token of length about 1;
* ``"1"``: entries N(0, 1), which is also the result of the factor sqrt(width) of Vaswani et al. on the first;
* ``"sqrt(width)"``: that factor on entries N(0, 1).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.additive import Sinusoidal, table
from clockhands.measures.adding._recoverable import (
    Recovered,
    cosine_below,
    cosine_deviation,
    cosine_quantile,
    pair_error,
    recovered,
    wilson,
)
from clockhands.measures.adding._score_terms import (
    Terms,
    commuting_form,
    drawn_projections,
    expected_offset_share,
    expected_terms,
    four_terms,
    offset_share,
)

POSITIONS = 512  # rows of the sinusoid, from the first on
HEAD_WIDTHS = (16, 64)
_TRIALS = 200  # number of tokens that are searched for
_PAIRS = 2000
_DRAWS = 24  # random heads
_TOKENS = 256  # positions of a score matrix


@dataclass(frozen=True)
class PairErrors:
    """How often another random token is nearer to token + position than the token itself.

    Attributes:
        width: Channels.
        token_scale: How the tokens are drawn; ``token_deviation`` as a number.
        row_norm: Norm of the row.
        expected: The exact probability; ``wide_limit`` is the Gaussian tail that it tends to, ``Q(s sqrt(width))``.
        share: The share in ``trials`` simulated pairs, with the ends of Wilson's interval of 95 %.
    """

    width: int
    token_scale: str
    token_deviation: float
    row_norm: float
    expected: float
    wide_limit: float
    share: float
    low: float
    high: float
    trials: int


@dataclass(frozen=True)
class TokenCosines:
    """The cosine between random tokens and the rows of the code.

    Attributes:
        width: Channels.
        expected_deviation: ``1 / sqrt(width)``; ``deviation`` is that of ``trials`` simulated cosines.
        cosine_999: 999 of 1,000 cosines are below this in absolute value; ``below_999`` is the simulated share.
        below_a_quarter: The exact share of tokens whose cosine is below 1/4 in absolute value.
    """

    width: int
    expected_deviation: float
    deviation: float
    cosine_999: float
    below_999: float
    below_a_quarter: float
    trials: int


@dataclass(frozen=True)
class HeadTerms:
    """Shares of the four terms in the scores of random heads.

    Attributes:
        width, head_width: Channels of a token and of the head.
        token_scale: How the tokens are drawn.
        expected: Ratios of expectations; ``mean`` and ``deviation`` are over ``draws`` heads, each with other tokens.
    """

    width: int
    head_width: int
    token_scale: str
    expected: Terms
    mean: Terms
    deviation: Terms
    draws: int


@dataclass(frozen=True)
class OffsetShares:
    """How much of the position-position scores is a function of the offset.

    Attributes:
        width, head_width: Channels of a token and of the head.
        positions: Number of rows, from the first one on.
        commuting_interleaved: The share for blocks [[a, b], [-b, a]] drawn for the pairs, in the layout interleaved;
            ``commuting_halves`` in the other.
        expected: Ratio of expectations for random projections; ``mean`` and ``deviation`` are over ``draws`` of them.
        chance: The share for scores of independent random numbers.
    """

    width: int
    head_width: int
    positions: int
    commuting_interleaved: float
    commuting_halves: float
    expected: float
    mean: float
    deviation: float
    chance: float
    draws: int


@dataclass(frozen=True)
class AddingFigures:
    """What adding does to the token: all figures.

    Attributes:
        seed: The random seed.
        positions: Rows of the sinusoid that were used.
        found: How many tokens are identified, by width, size of the vocabulary and scale.
        pairs: How often another token is nearer, by width and scale.
        angles: The angle between token and position, by width.
        terms: The four terms of a score, by width, width of the head and scale.
        offsets: How much of the fourth term is a function of the offset, by width and width of the head.
    """

    seed: int
    positions: int
    found: tuple[Recovered, ...]
    pairs: tuple[PairErrors, ...]
    angles: tuple[TokenCosines, ...]
    terms: tuple[HeadTerms, ...]
    offsets: tuple[OffsetShares, ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        return {
            name: [asdict(each) for each in value] if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    def sentences(self) -> tuple[str, ...]:
        """The main figures as sentences: those of the largest width and vocabulary, one or two for each question."""
        width = max(each.width for each in self.angles)
        size = max(each.vocabulary for each in self.found)
        small, unit, *_ = (each for each in self.found if (each.width, each.vocabulary) == (width, size))
        angle = next(each for each in self.angles if each.width == width)
        terms = next(each.expected for each in self.terms if each.width == width and each.token_scale == "1")
        heads = [each for each in self.offsets if each.width == width]
        head = heads[-1]
        commuting = min(min(each.commuting_interleaved, each.commuting_halves) for each in heads)
        return (
            f"Of {size:,} random tokens of width {width} and standard deviation 1, {unit.expected:.1%} are still the "
            f"nearest token to the sum after a position is added (sampled: {unit.share:.1%}, 95% interval "
            f"{unit.low:.1%} to {unit.high:.1%}). With standard deviation 1/sqrt({width}), {small.expected:.1%} are "
            f"(sampled: {small.share:.1%}, {small.low:.1%} to {small.high:.1%}). If the position is known, subtracting "
            f"its row recovers {min(unit.known, small.known):.1%}, even in bfloat16.",
            "Token and position are nearly orthogonal: the standard deviation of their cosine is "
            f"{angle.expected_deviation:.4f} (sampled: {angle.deviation:.4f}), and 999 of 1,000 cosines are below "
            f"{angle.cosine_999:.3f}.",
            "With random projections and tokens of standard deviation 1, the variances of a score's terms have these "
            f"shares: content-content makes {terms.content_content:.1%}, the two content-position cross terms "
            f"{terms.content_position + terms.position_content:.1%} and position-position "
            f"{terms.position_position:.1%}.",
            f"With random projections, the distance of two positions explains {head.expected:.1%} of the variance of "
            f"their position-position scores over {head.positions} positions (sampled: {head.mean:.1%} ± "
            f"{head.deviation:.1%}; chance: {head.chance:.1%}). If the projections commute with the rotations, it "
            f"explains {commuting:.1%}.",
        )


def adding_measured(
    widths: Sequence[int] = (16, 64, 512), vocabularies: Sequence[int] = (1_000, 50_000), seed: int = 0
) -> AddingFigures:
    """Draw tokens and heads, add the paper's sinusoid, and measure the effect on the token.

    Args:
        widths: Even widths of tokens, of at least 16 channels.
        vocabularies: Sizes, each at least 200.
        seed: Seed of NumPy's generator; the same seed gives the same figures.

    Raises:
        InvalidValue, InvalidType: A number cannot be used.
    """
    seed = count("seed", seed, least=0)
    sizes = tuple(count("vocabularies", each, least=_TRIALS) for each in vocabularies)
    found, pairs, angles, terms, offsets = [], [], [], [], []
    for width in (count("widths", each, least=HEAD_WIDTHS[0]) for each in widths):
        rows = table(Sinusoidal(width=width), POSITIONS, "float64")
        rng = np.random.default_rng([seed, width])
        scales = {"1/sqrt(width)": 1 / math.sqrt(width), "1": 1.0, "sqrt(width)": math.sqrt(width)}
        found += recovered(rows, tuple(scales.values()), sizes, trials=_TRIALS, seed=rng)
        tokens = rng.standard_normal((2 * _PAIRS, width))
        pairs += [_pair_errors(rows, tokens, name, scale) for name, scale in scales.items()]
        angles.append(_angles(rows, tokens))
        for head_width in (each for each in HEAD_WIDTHS if each <= width):
            heads = [drawn_projections(rng, width, head_width) for _ in range(_DRAWS)]
            terms += _head_terms(rows, heads, scales, rng)
            offsets.append(_offsets(rows, heads, rng))
    return AddingFigures(seed, POSITIONS, *(tuple(each) for each in (found, pairs, angles, terms, offsets)))


def _pair_errors(rows: np.ndarray, tokens: np.ndarray, name: str, scale: float) -> PairErrors:
    width, norm = rows.shape[1], math.sqrt(rows.shape[1] / 2)
    added = rows[np.arange(_PAIRS) % len(rows)]
    apart = scale * (tokens[:_PAIRS] - tokens[_PAIRS:])
    nearer = int(((apart**2).sum(-1) + 2 * (apart * added).sum(-1) < 0).sum())
    limit = NormalDist().cdf(-scale * math.sqrt(width))
    expected = pair_error(width, norm, scale)
    return PairErrors(
        width, name, scale, norm, expected, limit, nearer / _PAIRS, *wilson(nearer, _PAIRS), trials=_PAIRS
    )


def _angles(rows: np.ndarray, tokens: np.ndarray) -> TokenCosines:
    width = rows.shape[1]
    added = rows[np.arange(len(tokens)) % len(rows)]
    cosines = (tokens * added).sum(-1) / np.linalg.norm(tokens, axis=1) / np.linalg.norm(added, axis=1)
    most = cosine_quantile(width, 0.999)
    return TokenCosines(
        width,
        cosine_deviation(width),
        math.sqrt(float((cosines**2).mean())),
        most,
        float((np.abs(cosines) < most).mean()),
        cosine_below(width, 0.25),
        len(tokens),
    )


def _head_terms(
    rows: np.ndarray, heads: list[tuple[np.ndarray, np.ndarray]], scales: dict[str, float], rng: np.random.Generator
) -> list[HeadTerms]:
    width, head_width = heads[0][0].shape
    p = rows[:_TOKENS]
    drawn = [four_terms(rng.standard_normal(p.shape), p, *head) for head in heads]
    shares = np.array([list(each.to_dict().values()) for each in drawn])
    told = []
    for name, scale in scales.items():
        # Tokens s times as long make the first term s**4 times as large and the crossed ones s**2 times.
        scaled = shares * np.array([scale**4, scale**2, scale**2, 1])
        scaled /= scaled.sum(-1, keepdims=True)
        mean, deviation = (Terms(*each.tolist()) for each in (scaled.mean(0), scaled.std(0, ddof=1)))
        told.append(HeadTerms(width, head_width, name, expected_terms(p, scale), mean, deviation, len(heads)))
    return told


def _offsets(rows: np.ndarray, heads: list[tuple[np.ndarray, np.ndarray]], rng: np.random.Generator) -> OffsetShares:
    number, width = rows.shape
    a, b = rng.standard_normal((2, width // 2))
    halves = table(Sinusoidal(width=width, layout="halves"), number, "float64")
    shares = np.array([offset_share(head, rows) for head in heads])
    return OffsetShares(
        width,
        heads[0][0].shape[1],
        number,
        commuting_interleaved=offset_share(commuting_form(width // 2, "interleaved", a, b), rows),
        commuting_halves=offset_share(commuting_form(width // 2, "halves", a, b), halves),
        expected=expected_offset_share(rows),
        mean=float(shares.mean()),
        deviation=float(shares.std(ddof=1)),
        chance=2 / (number + 1),
        draws=len(heads),
    )
