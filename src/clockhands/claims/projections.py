"""Claims about adding a code to a token, and about what projections make of it."""

import math

import numpy as np

from clockhands.additive import Sinusoidal, table
from clockhands.claims.claim import Numbers, at_most, claim, near
from clockhands.measures import (
    commuting_form,
    cosine_below,
    cosine_deviation,
    cosine_quantile,
    deviation_needed,
    drawn_projections,
    expected_offset_share,
    expected_share,
    expected_terms,
    offset_share,
    pair_error,
)


def _rows(width: int, positions: int = 512) -> np.ndarray:
    return table(Sinusoidal(width=width), positions, "float64")


def _drawn_shares(width: int, head_width: int, heads: int = 12) -> np.ndarray:
    """The offset's share behind projections of independent N(0, 1 / width), over 512 positions."""
    rows, rng = _rows(width), np.random.default_rng(0)
    return np.array([offset_share(drawn_projections(rng, width, head_width), rows) for _ in range(heads)])


@claim(
    "scores-depend-on-the-offset",
    "PE(p)·PE(q) depends only on q − p, so with sinusoids the position part of attention scores does too.",
    "only if",
    condition="W_Q W_Kᵀ commutes with the rotations: blocks [[a, b], [−b, a]] on the pairs, in whichever layout.",
    numbers={
        "lost_by_commuting_blocks_interleaved": at_most("1e-12"),
        "lost_by_commuting_blocks_halves": at_most("1e-12"),
        "share_of_the_offset_behind_blocks_of_the_other_layout": near("0.204"),
        "share_of_the_offset_behind_random_projections": near("0.0805"),
    },
    argument=(
        "The dot product is a function of the offset because R_kᵀ R_k = 1. In a score M = W_Q W_Kᵀ stands between, and "
        "R_pᵀ M R_q is one of q − p alone where M commutes with R. Random matrices do not."
    ),
    source=(
        "Vaswani et al. 2017, arXiv:1706.03762, section 3.5, hopes for relative positions; computed at width 512 over "
        "512 positions: the best function of the offset, as a share of the variance of all position-position scores"
    ),
)
def scores_depend_on_the_offset() -> Numbers:
    """What the best function of the offset leaves of the scores behind drawn blocks, and behind random projections."""
    a, b = np.random.default_rng(0).standard_normal((2, 256))
    rows, halves = _rows(512), table(Sinusoidal(width=512, layout="halves"), 512, "float64")
    form, other = (commuting_form(256, layout, a, b) for layout in ("interleaved", "halves"))
    return {
        "lost_by_commuting_blocks_interleaved": 1 - offset_share(form, rows),
        "lost_by_commuting_blocks_halves": 1 - offset_share(other, halves),
        "share_of_the_offset_behind_blocks_of_the_other_layout": offset_share(other, rows),
        "share_of_the_offset_behind_random_projections": expected_offset_share(rows),
    }


@claim(
    "projections-destroy-the-offset",
    "Random query and key projections destroy the offset-only form of the position-position scores.",
    "true",
    numbers={
        "expected_share_at_width_64": near("0.0814"),
        "expected_share_at_width_512": near("0.0805"),
        "mean_of_12_heads_of_16_at_width_64": near("0.100"),
        "their_deviation_at_width_64": near("0.045"),
        "mean_of_12_heads_of_64_at_width_512": near("0.077"),
        "their_deviation_at_width_512": near("0.050"),
        "expected_share_over_32_positions_at_width_512": near("0.199"),
        "chance_over_512_positions": near("0.0039"),
    },
    argument=(
        "Over 512 positions a function of the offset explains about 8 % of their variance: 20 times chance, far from "
        "all. Training can bring it back: 12 to 86 % in the first layer's heads of all-MiniLM-L6-v2 on its own table."
    ),
    source=(
        "computed: projections of independent N(0, 1/width); the expectation is a ratio of expected sums of squares, "
        "which follows from the Gram matrix of the rows. The trained heads: tests/measures/test_score_terms.py"
    ),
)
def projections_destroy_the_offset() -> Numbers:
    """Expected and drawn shares."""
    narrow, wide = _drawn_shares(64, 16), _drawn_shares(512, 64)
    return {
        "expected_share_at_width_64": expected_offset_share(_rows(64)),
        "expected_share_at_width_512": expected_offset_share(_rows(512)),
        "mean_of_12_heads_of_16_at_width_64": narrow.mean(),
        "their_deviation_at_width_64": narrow.std(ddof=1),
        "mean_of_12_heads_of_64_at_width_512": wide.mean(),
        "their_deviation_at_width_512": wide.std(ddof=1),
        "expected_share_over_32_positions_at_width_512": expected_offset_share(_rows(512, 32)),
        "chance_over_512_positions": 2 / 513,
    }


@claim(
    "crossed-terms-destroy-the-rotation",
    "The content-position cross terms destroy the rotation property of sinusoidal codes.",
    "only if",
    condition="the projections had kept it: behind random ones the position-position term alone has already lost it.",
    numbers={
        "share_of_the_offset_position_position_random": near("0.0805"),
        "share_of_the_offset_position_position_commuting": near("1.000"),
        "share_of_the_offset_crossed_terms": near("0.0024"),
        "share_of_the_offset_whole_score_commuting": near("0.070"),
        "crossed_terms_in_the_variance": near("0.453"),
    },
    argument=(
        "Crossed terms depend on which word stands where and on no offset, and make 45 % of a score's variance. "
        "But leaving them out gives back nothing that W_Q W_Kᵀ has taken from the position-position term before."
    ),
    source=(
        "computed at width 512, tokens of deviation 1, 512 positions. In BERT the crossed terms look uniform (Ke et "
        "al. 2021, TUPE, arXiv:2006.15595, figure 2): not recomputed here"
    ),
)
def crossed_terms_destroy_the_rotation() -> Numbers:
    """The offset's share in each part, and in the score of drawn tokens behind a form that commutes."""
    rows, rng = _rows(512), np.random.default_rng(0)
    tokens = rng.standard_normal(rows.shape)
    form = commuting_form(256, "interleaved", *rng.standard_normal((2, 256)))
    terms = expected_terms(rows)
    # x_i M p_j is that of the rows (x, 0) and (0, p) of a form that is M in one corner.
    crossed = np.block([[np.zeros_like(form), form], [np.zeros_like(form), np.zeros_like(form)]])
    return {
        "share_of_the_offset_position_position_random": expected_offset_share(rows),
        "share_of_the_offset_position_position_commuting": offset_share(form, rows),
        "share_of_the_offset_crossed_terms": offset_share(crossed, np.concatenate([tokens, rows], axis=1)),
        "share_of_the_offset_whole_score_commuting": offset_share(form, tokens + rows),
        "crossed_terms_in_the_variance": terms.content_position + terms.position_content,
    }


@claim(
    "adding-destroys-the-token",
    "Adding a position to the embedding destroys what the token was.",
    "only if",
    condition=(
        "the tokens are short beside the rows and nobody knows the position: of 50,000 random tokens of width 512, "
        "those below a deviation of 0.21 a channel."
    ),
    numbers={
        "found_among_50000_at_width_512_deviation_1": near("1.000000"),
        "found_among_50000_at_width_64_deviation_1": near("1.000000"),
        "found_among_50000_at_width_16_deviation_1": near("0.386"),
        "found_among_50000_at_width_512_without_the_factor": near("0.0031"),
        "deviation_needed_for_99_percent_at_width_512": near("0.210"),
    },
    argument=(
        "Another token is mistaken for it only if it lies in a ball of the row's length around the sum, and in many "
        "channels next to nothing does. Who knows the position, as every layer may, takes the row away again."
    ),
    source="computed: an integral over a noncentral chi-square; tokens of independent normal channels, rows √(d/2)",
)
def adding_destroys_the_token() -> Numbers:
    """Shares of tokens that are nearest to themselves."""
    return {
        "found_among_50000_at_width_512_deviation_1": expected_share(512, 16.0),
        "found_among_50000_at_width_64_deviation_1": expected_share(64, math.sqrt(32)),
        "found_among_50000_at_width_16_deviation_1": expected_share(16, math.sqrt(8)),
        "found_among_50000_at_width_512_without_the_factor": expected_share(512, 16.0, 512**-0.5),
        "deviation_needed_for_99_percent_at_width_512": deviation_needed(512, 16.0),
    }


@claim(
    "factor-root-width",
    "Embeddings are multiplied by √d so that the positions do not drown them.",
    "only if",
    condition="they were drawn with variance 1/d; those of variance 1 need no factor.",
    numbers={
        "row_over_token_without": near("16.0"),
        "row_over_token_with": near("0.707"),
        "another_token_is_nearer_without": near("0.159"),
        "another_token_is_nearer_in_the_limit": near("0.1587"),
        "found_among_50000_without": near("0.0031"),
        "found_among_50000_with": near("1.000000"),
    },
    argument=(
        "A row is √(d/2) long, a token of variance 1/d only 1. Each other token is then nearer to the sum with the "
        "probability Q(1) = 16 %. With the factor it is Q(√d). The paper has the factor and gives no reason."
    ),
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.4 (the factor); computed at width 512",
)
def factor_root_width() -> Numbers:
    """Lengths, and what a nearest neighbour finds."""
    small = 512**-0.5
    return {
        "row_over_token_without": 16.0 / (small * math.sqrt(512)),
        "row_over_token_with": 16.0 / math.sqrt(512),
        "another_token_is_nearer_without": pair_error(512, 16.0, small),
        "another_token_is_nearer_in_the_limit": math.erfc(math.sqrt(0.5)) / 2,
        "found_among_50000_without": expected_share(512, 16.0, small),
        "found_among_50000_with": expected_share(512, 16.0),
    }


@claim(
    "adding-is-orthogonal",
    "In high dimensions a position is almost orthogonal to the embedding, so adding loses nothing.",
    "only if",
    condition="tokens are drawn independently of the code and wide; for trained ones it is to be measured.",
    numbers={
        "cosine_deviation_at_width_512": near("0.0442"),
        "cosine_of_999_in_1000_below_at_width_512": near("0.145"),
        "cosine_deviation_at_width_16": near("0.250"),
        "share_below_a_quarter_at_width_16": near("0.667"),
        "found_among_50000_at_a_right_angle_all_the_same": near("0.0031"),
    },
    argument=(
        "The cosine of a random token with any row deviates from 0 by exactly 1/√d, whatever the token's length: also "
        "where it cannot be found again. Adding works because of lengths and of the few directions that rows fill."
    ),
    source="computed: the square of the cosine is Beta(1/2, (d − 1)/2)",
    waits_for="the cosines of trained embeddings with the table that they were trained with.",
)
def adding_is_orthogonal() -> Numbers:
    """The law of the cosine at two widths."""
    return {
        "cosine_deviation_at_width_512": cosine_deviation(512),
        "cosine_of_999_in_1000_below_at_width_512": cosine_quantile(512, 0.999),
        "cosine_deviation_at_width_16": cosine_deviation(16),
        "share_below_a_quarter_at_width_16": cosine_below(16, 0.25),
        "found_among_50000_at_a_right_angle_all_the_same": expected_share(512, 16.0, 512**-0.5),
    }


@claim(
    "scores-are-content",
    "Added positions are a small part of the attention scores; content decides.",
    "only if",
    condition="the embeddings are long beside the rows, as with the factor √d.",
    numbers={
        "content_content_at_deviation_1": near("0.453"),
        "crossed_at_deviation_1": near("0.453"),
        "position_position_at_deviation_1": near("0.093"),
        "position_position_without_the_factor": near("0.991"),
        "content_content_without_the_factor": at_most("1e-4"),
    },
    argument=(
        "Behind random projections a term's variance is the product of two squared lengths. Without the factor √d the "
        "rows are 16 times as long as the tokens at width 512, and 99 % of the variance is position with position."
    ),
    source=(
        "computed: expected shares of the four terms in the sum of their variances, width 512, 512 positions, a head "
        "of any width"
    ),
)
def scores_are_content() -> Numbers:
    """The expected shares of the four terms at two lengths of tokens."""
    rows = _rows(512)
    unit, small = expected_terms(rows), expected_terms(rows, 512**-0.5)
    return {
        "content_content_at_deviation_1": unit.content_content,
        "crossed_at_deviation_1": unit.content_position + unit.position_content,
        "position_position_at_deviation_1": unit.position_position,
        "position_position_without_the_factor": small.position_position,
        "content_content_without_the_factor": small.content_content,
    }
