"""Claims about biases added to attention scores: T5's buckets and ALiBi's slopes."""

import math

import numpy as np

from clockhands.encodings.biases import Alibi, Buckets, bias
from clockhands.encodings.biases.matrices import row_numbers
from clockhands.measures.claims.attention import softmax
from clockhands.measures.claims.claim import Numbers, claim


@claim("t5-base-1000")
def t5_base_1000() -> Numbers:
    """The decoder's buckets by distance."""
    spec = Buckets(heads=12, bidirectional=False)
    rows = row_numbers(spec, [300], range(301))[0, ::-1]
    alone = np.bincount(rows)
    return {
        "distances_with_a_bucket_of_their_own": int((alone == 1).sum()),
        "learned_numbers_of_12_heads": spec.rows * spec.heads,
    }


@claim("t5-any-distance")
def t5_any_distance() -> Numbers:
    """Buckets of keys at or before the query."""
    decoder = row_numbers(Buckets(heads=1, bidirectional=False), [100_000], range(100_001))[0, ::-1]
    return {"bucket_of_113": int(decoder[113]), "bucket_of_100000": int(decoder[100_000])}


@claim("alibi-slopes-geometric")
def alibi_slopes_geometric() -> Numbers:
    """The slopes of both series."""
    eight = Alibi(heads=8).slopes
    ratios = np.array(eight[1:]) / np.array(eight[:-1])
    return {
        "ratio_of_slopes_of_8_heads": ratios[np.argmax(np.abs(ratios - 0.5))],
    }


@claim("alibi-slopes-from-a-quarter")
def alibi_slopes_from_a_quarter() -> Numbers:
    """The slopes, and the late ones: all but the first of nine of the same series, for which octaves are 9."""
    right = Alibi(heads=8).slopes
    late = Alibi(heads=9, series="plain", octaves=9).slopes[1:]
    ratios = np.array(late) / np.array(right)
    return {
        "factor_on_every_bias_if_one_step_late": ratios[np.argmax(np.abs(ratios - 0.5))],
    }


@claim("alibi-needs-distances")
def alibi_needs_distances() -> Numbers:
    """Attention of 8 heads over 64 tokens on scores of 0; biases up to 32, their exponentials off by a few ulp."""
    by_distance, by_key, symmetric = (
        softmax(bias(Alibi(heads=8, form=form), 64, 64, dtype="float64")) for form in ("distance", "key", "symmetric")
    )
    return {
        "largest_difference_of_attention": float(np.abs(by_distance - by_key).max()),
        "difference_of_the_symmetric_form_without_a_mask": float(np.abs(by_distance - symmetric).max()),
    }


@claim("alibi-uses-longer-context")
def alibi_uses_longer_context() -> Numbers:
    """Distances at which a bias is −10, shares of attention on scores of 0 over 4,096 tokens."""
    slopes = np.array(Alibi(heads=8).slopes)
    shares = softmax(bias(Alibi(heads=8), [4095], 4096, dtype="float64"))[0, 0]
    return {
        "heads_of_8_that_reach_1024_tokens": int((10 / slopes >= 1024).sum()),
        "a_bias_of_10_divides_a_share_by": math.exp(10),
        "reach_of_the_steepest_head": 10 / slopes.max(),
        "reach_of_the_flattest_head": 10 / slopes.min(),
        "share_of_the_last_20_tokens_in_the_steepest_head": math.fsum(shares[-20:]),
    }


@claim("alibi-slopes-are-essential")
def alibi_slopes_are_essential() -> Numbers:
    """The slopes, and the same slopes halved."""
    slopes = Alibi(heads=8).slopes
    halved = {slope / 2 for slope in slopes}
    return {
        "slopes_that_stay_if_all_are_halved": len(halved & set(slopes)),
        "reach_of_the_steepest_head_then": 10 / max(halved),
        "octaves_of_reach_with_8_heads": math.log2(max(slopes) / min(slopes)),
    }
