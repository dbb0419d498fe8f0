"""Claims about adding a position encoding to a token, and about the effect of projections on the sum."""

import math

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.measures import (
    commuting_form,
    drawn_projections,
    expected_offset_share,
    expected_terms,
    offset_share,
)
from clockhands.measures.claims.claim import Numbers, claim


def _rows(width: int, positions: int = 512) -> np.ndarray:
    return table(Sinusoidal(width=width), positions, "float64")


def _drawn_shares(width: int, head_width: int, heads: int = 12) -> np.ndarray:
    """The share that the offset explains after random projections of variance 1 / width, over 512 positions."""
    rows, rng = _rows(width), np.random.default_rng(0)
    return np.array([offset_share(drawn_projections(rng, width, head_width), rows) for _ in range(heads)])


@claim("scores-depend-on-the-offset")
def scores_depend_on_the_offset() -> Numbers:
    """What the best function of the offset leaves unexplained, for commuting blocks and random projections."""
    a, b = np.random.default_rng(0).standard_normal((2, 256))
    rows, halves = _rows(512), table(Sinusoidal(width=512, layout="halves"), 512, "float64")
    form, other = (commuting_form(256, layout, a, b) for layout in ("interleaved", "halves"))
    return {
        "lost_by_commuting_blocks_interleaved": 1 - offset_share(form, rows),
        "lost_by_commuting_blocks_halves": 1 - offset_share(other, halves),
        "share_of_the_offset_behind_blocks_of_the_other_layout": offset_share(other, rows),
        "share_of_the_offset_behind_random_projections": expected_offset_share(rows),
    }


@claim("projections-destroy-the-offset")
def projections_destroy_the_offset() -> Numbers:
    """Expected and simulated shares."""
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


@claim("crossed-terms-destroy-the-rotation")
def crossed_terms_destroy_the_rotation() -> Numbers:
    """The share that the offset explains in each term, and in the score of random tokens with a commuting matrix."""
    rows, rng = _rows(512), np.random.default_rng(0)
    tokens = rng.standard_normal(rows.shape)
    form = commuting_form(256, "interleaved", *rng.standard_normal((2, 256)))
    terms = expected_terms(rows)
    # x_i M p_j is the form of the rows (x, 0) and (0, p) with a matrix that is M in one corner.
    crossed = np.block([[np.zeros_like(form), form], [np.zeros_like(form), np.zeros_like(form)]])
    return {
        "share_of_the_offset_position_position_random": expected_offset_share(rows),
        "share_of_the_offset_position_position_commuting": offset_share(form, rows),
        "share_of_the_offset_crossed_terms": offset_share(crossed, np.concatenate([tokens, rows], axis=1)),
        "share_of_the_offset_whole_score_commuting": offset_share(form, tokens + rows),
        "crossed_terms_in_the_variance": terms.content_position + terms.position_content,
    }


@claim("factor-root-width")
def factor_root_width() -> Numbers:
    """Norms, and the share that a nearest-neighbour search finds."""
    small = 512**-0.5
    return {
        "row_over_token_without": 16.0 / (small * math.sqrt(512)),
        "row_over_token_with": 16.0 / math.sqrt(512),
        "another_token_is_nearer_in_the_limit": math.erfc(math.sqrt(0.5)) / 2,
    }


@claim("scores-are-content")
def scores_are_content() -> Numbers:
    """The expected shares of the four terms, for two token norms."""
    rows = _rows(512)
    unit, small = expected_terms(rows), expected_terms(rows, 512**-0.5)
    return {
        "content_content_at_deviation_1": unit.content_content,
        "crossed_at_deviation_1": unit.content_position + unit.position_content,
        "position_position_at_deviation_1": unit.position_position,
        "position_position_without_the_factor": small.position_position,
        "content_content_without_the_factor": small.content_content,
    }
