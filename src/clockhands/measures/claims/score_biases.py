"""Claims about biases added to attention scores: T5's buckets and ALiBi's slopes."""

import math
from operator import truediv
from statistics import fmean

import numpy as np

from clockhands.encodings.biases import Alibi, Buckets, bias
from clockhands.encodings.biases.matrices import row_numbers
from clockhands.measures.claims.attention import softmax
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.studies import measured, real_model


@claim("t5-base-1000")
def t5_base_1000() -> Numbers:
    """The decoder's buckets by distance."""
    spec = Buckets(heads=12, bidirectional=False)
    rows = row_numbers(spec, [300], range(301))[0, ::-1]
    alone = np.bincount(rows)
    return {
        "buckets": len(alone),
        "distances_with_a_bucket_of_their_own": int((alone == 1).sum()),
        "first_distance_of_the_last_bucket": int(np.argmax(rows == 31)),
        "learned_numbers_of_12_heads": spec.rows * spec.heads,
    }


@claim("t5-any-distance")
def t5_any_distance() -> Numbers:
    """Buckets of keys at or before the query; losses of trained models."""
    ratios = {n: measured("extrapolation").value("language", "t5", "loss_ratio", length=n) for n in (128, 256, 512)}
    decoder = row_numbers(Buckets(heads=1, bidirectional=False), [100_000], range(100_001))[0, ::-1]
    encoder = row_numbers(Buckets(heads=1), [999], range(1000))[0, ::-1]
    short = row_numbers(Buckets(heads=1, bidirectional=False, max_distance=64), [999], range(1000))[0, ::-1]
    own = real_model("lab_buckets")["models"]["language"]["t5_64"]
    return {
        "distances_told_apart_of_1000_in_the_decoder": len(set(decoder[:1000].tolist())),
        "distances_told_apart_of_1000_in_the_encoder": len(set(encoder.tolist())),
        "bucket_of_113": int(decoder[113]),
        "bucket_of_100000": int(decoder[100_000]),
        "first_distance_of_the_last_bucket_in_the_encoder": int(np.argmax(encoder == encoder.max())),
        "measured_loss_ratio_of_128_to_64_trained_tokens": ratios[128].mean,
        "measured_loss_ratio_of_128_to_64_trained_tokens_least": ratios[128].least,
        "measured_loss_ratio_of_256_to_64_trained_tokens": ratios[256].mean,
        "measured_loss_ratio_of_512_to_64_trained_tokens": ratios[512].mean,
        "first_distance_of_the_last_bucket_with_max_distance_64": int(np.argmax(short == 31)),
        **{
            f"loss_ratio_of_{length}_to_64_trained_tokens_with_max_distance_64": fmean(
                map(truediv, own[f"loss_{length}_whole"], own["loss_64_whole"])
            )
            for length in (128, 256, 512)
        },
    }


@claim("alibi-slopes-geometric")
def alibi_slopes_geometric() -> Numbers:
    """The slopes of both series."""
    eight = Alibi(heads=8).slopes
    ratios = np.array(eight[1:]) / np.array(eight[:-1])
    return {
        "first_slope_of_8_heads": eight[0],
        "last_slope_of_8_heads": eight[-1],
        "ratio_of_slopes_of_8_heads": ratios[np.argmax(np.abs(ratios - 0.5))],
        "ninth_slope_of_12_heads": Alibi(heads=12).slopes[8],
        "ninth_slope_of_12_heads_by_the_text": Alibi(heads=12, series="plain").slopes[8],
    }


@claim("alibi-slopes-from-a-quarter")
def alibi_slopes_from_a_quarter() -> Numbers:
    """The slopes, and the late ones: all but the first of nine of the same series, for which octaves are 9."""
    right = Alibi(heads=8).slopes
    late = Alibi(heads=9, series="plain", octaves=9).slopes[1:]
    ratios = np.array(late) / np.array(right)
    return {
        "first_slope": right[0],
        "last_slope": right[-1],
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
    """Distances at which a bias is −10, shares of attention on scores of 0 over 4,096 tokens; losses measured."""
    study = measured("extrapolation")
    whole, sliding = (
        study.value("language", "alibi", "loss_ratio", length=512, protocol=each) for each in ("whole", "sliding")
    )
    slopes = np.array(Alibi(heads=8).slopes)
    shares = softmax(bias(Alibi(heads=8), [4095], 4096, dtype="float64"))[0, 0]
    return {
        "heads_of_8_that_reach_1024_tokens": int((10 / slopes >= 1024).sum()),
        "a_bias_of_10_divides_a_share_by": math.exp(10),
        "reach_of_the_steepest_head": 10 / slopes.max(),
        "reach_of_the_flattest_head": 10 / slopes.min(),
        "share_of_the_last_20_tokens_in_the_steepest_head": math.fsum(shares[-20:]),
        "measured_loss_ratio_at_512_tokens_whole_windows": whole.mean,
        "measured_loss_ratio_at_512_tokens_whole_windows_most": whole.most,
        "measured_loss_ratio_at_512_tokens_sliding_windows": sliding.mean,
        "measured_loss_ratio_at_512_tokens_sliding_windows_least": sliding.least,
    }


@claim("alibi-slopes-are-essential")
def alibi_slopes_are_essential() -> Numbers:
    """The slopes, and the same slopes halved; losses of models trained with other slopes."""
    slopes = Alibi(heads=8).slopes
    halved = {slope / 2 for slope in slopes}
    study = measured("slopes")
    less = {arm: study.difference("language", arm, "alibi") for arm in ("doubled", "halved", "drawn", "none")}
    ratios = [
        ratio
        for arm in ("doubled", "halved", "drawn")
        for ratio in study.value("language", arm, "loss_ratio", length=256).seeds.values()
    ]
    return {
        "slopes_that_stay_if_all_are_halved": len(halved & set(slopes)),
        "reach_of_the_steepest_head_then": 10 / max(halved),
        "octaves_of_reach_with_8_heads": math.log2(max(slopes) / min(slopes)),
        "measured_loss_with_all_doubled_less_the_own": less["doubled"].mean,
        "measured_loss_with_all_halved_less_the_own": less["halved"].mean,
        "measured_loss_with_drawn_slopes_less_the_own": less["drawn"].mean,
        "measured_loss_with_drawn_slopes_less_the_own_least": less["drawn"].least,
        "measured_loss_with_drawn_slopes_less_the_own_most": less["drawn"].most,
        "measured_loss_without_a_code_less_the_own": less["none"].mean,
        "measured_smallest_loss_ratio_of_256_to_64_tokens_in_9_models": min(ratios),
        "measured_largest_loss_ratio_of_256_to_64_tokens_in_9_models": max(ratios),
    }
