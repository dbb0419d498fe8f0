"""Claims about biases of the scores: T5's buckets and ALiBi's slopes."""

import math

import numpy as np

from clockhands.biases import Alibi, Buckets, bias
from clockhands.biases.matrices import row_numbers
from clockhands.claims.claim import Numbers, at_most, claim, exactly, near
from clockhands.claims.measured import measured

T5 = "Raffel et al. 2020, arXiv:1910.10683, section 2.1"
ALIBI = "Press et al. 2022, arXiv:2108.12409, section 3"


@claim(
    "t5-base-1000",
    "T5 uses sinusoids with the base 1,000.",
    "false",
    numbers={
        "buckets": exactly(32),
        "distances_with_a_bucket_of_their_own": exactly(16),
        "first_distance_of_the_last_bucket": exactly(113),
        "learned_numbers_of_12_heads": exactly(384),
    },
    argument=(
        "T5 has no sinusoid and no base. It learns one number for each head and bucket of distances: in its decoder 16 "
        "buckets of one distance and 16 that widen up to distance 113 and beyond."
    ),
    source=f"{T5}; relative_attention_num_buckets = 32 and relative_attention_max_distance = 128 in its configs",
)
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


@claim(
    "t5-any-distance",
    "T5's relative biases tell every distance apart, so they suit any length.",
    "false",
    numbers={
        "distances_told_apart_of_1000_in_the_decoder": exactly(32),
        "distances_told_apart_of_1000_in_the_encoder": exactly(16),
        "bucket_of_113": exactly(31),
        "bucket_of_100000": exactly(31),
        "first_distance_of_the_last_bucket_in_the_encoder": exactly(91),
        "measured_loss_ratio_of_128_to_64_trained_tokens": near("1.074"),
        "measured_loss_ratio_of_128_to_64_trained_tokens_least": near("1.066"),
        "measured_loss_ratio_of_256_to_64_trained_tokens": near("1.292"),
        "measured_loss_ratio_of_512_to_64_trained_tokens": near("1.485"),
    },
    argument=(
        "They are defined for any distance, but from 113 tokens on (91 in the encoder) all distances share one number: "
        "far tokens differ from near ones, not from each other. Trained at 64 tokens, a model of 0.13 million "
        "parameters has 1.07 times the loss at 128 tokens and 1.49 times at 512."
    ),
    source=f"{T5}; Press et al. 2022, Table 2: perplexity ratio 0.96 at 2 times and 1.17 at 7 times 512 trained tokens",
    measured=("extrapolation",),
    waits_for=(
        "the loss of a model trained at more than 113 tokens, so that every bucket is trained; at 64 tokens the last "
        "buckets are not."
    ),
)
def t5_any_distance() -> Numbers:
    """Buckets of keys at or before the query; losses of trained models."""
    ratios = {n: measured("extrapolation").value("language", "t5", "loss_ratio", length=n) for n in (128, 256, 512)}
    decoder = row_numbers(Buckets(heads=1, bidirectional=False), [100_000], range(100_001))[0, ::-1]
    encoder = row_numbers(Buckets(heads=1), [999], range(1000))[0, ::-1]
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
    }


@claim(
    "alibi-slopes-geometric",
    "ALiBi's slopes are the powers of 2^(−8/n).",
    "only if",
    condition="the number of heads is a power of two, or a code follows the paper's text instead of its program.",
    numbers={
        "first_slope_of_8_heads": near("0.500000"),
        "last_slope_of_8_heads": near("0.00390625"),
        "ratio_of_slopes_of_8_heads": near("0.500000"),
        "ninth_slope_of_12_heads": near("0.70711"),
        "ninth_slope_of_12_heads_by_the_text": near("0.015625"),
    },
    argument=(
        "For 12 heads the released program takes the 8 slopes of 8 heads and then every other slope of 16: the ninth "
        "is 2^−0.5, steeper than the first. All published models with such heads have it so."
    ),
    source=f"{ALIBI}; ofirpress/attention_with_linear_biases, get_slopes",
)
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


@claim(
    "alibi-slopes-from-a-quarter",
    "ALiBi's slopes for 8 heads are 1/4, 1/8, … 1/512.",
    "false",
    numbers={
        "first_slope": near("0.500000"),
        "last_slope": near("0.00390625"),
        "factor_on_every_bias_if_one_step_late": near("0.500000"),
    },
    argument=(
        "They are 1/2 to 1/256: the exponent of the first head is −8/8 × 1. Counting from the second step halves every "
        "bias, as code published with a blog post does; a test of the first slope finds it."
    ),
    source=ALIBI,
)
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


@claim(
    "alibi-needs-distances",
    "A slope times the key's index alone is not ALiBi, which needs the distance.",
    "false",
    numbers={
        "largest_difference_of_attention": at_most("1e-12"),
        "difference_of_the_symmetric_form_without_a_mask": near("0.393"),
    },
    argument=(
        "−slope (q − k) and slope k differ by slope × q, the same for all keys of a query, and softmax does not see "
        "it. Only −slope |q − k|, for encoders, is another bias where keys may come after the query."
    ),
    source=f"{ALIBI}; the released program, Bloom and Falcon use the key's index",
)
def alibi_needs_distances() -> Numbers:
    """Attention of 8 heads over 64 tokens on scores of 0; biases up to 32, their exponentials off by some ulp."""
    by_distance, by_key, symmetric = (
        _softmax(bias(Alibi(heads=8, form=form), 64, 64, dtype="float64")) for form in ("distance", "key", "symmetric")
    )
    return {
        "largest_difference_of_attention": float(np.abs(by_distance - by_key).max()),
        "difference_of_the_symmetric_form_without_a_mask": float(np.abs(by_distance - symmetric).max()),
    }


def _softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


@claim(
    "alibi-uses-longer-context",
    "ALiBi lets a model use a longer context than it was trained on.",
    "only if",
    condition='"use" means that the loss does not rise; the tokens beyond the trained length add nothing.',
    numbers={
        "heads_of_8_that_reach_1024_tokens": exactly(2),
        "a_bias_of_10_divides_a_share_by": near("22,026"),
        "reach_of_the_steepest_head": near("20.00"),
        "reach_of_the_flattest_head": near("2,560.00"),
        "share_of_the_last_20_tokens_in_the_steepest_head": near("0.99995"),
        "measured_loss_ratio_at_512_tokens_whole_windows": near("0.9942"),
        "measured_loss_ratio_at_512_tokens_whole_windows_most": near("0.9954"),
        "measured_loss_ratio_at_512_tokens_sliding_windows": near("1.0012"),
        "measured_loss_ratio_at_512_tokens_sliding_windows_least": near("1.0009"),
    },
    argument=(
        "A bias of −10 divides a token's share by 22,000; only two of 8 heads reach 1,024 tokens before that. At 0.13 "
        "million parameters whole windows of 512 tokens look 0.6 % better than of 64, because fewer tokens are at the "
        "start of a window. Sliding windows, where each token has a full context, show no gain."
    ),
    source=f"{ALIBI} and its appendix B, which shows the same with 247 million parameters",
    measured=("extrapolation",),
)
def alibi_uses_longer_context() -> Numbers:
    """Distances at which a bias is −10, shares of attention on scores of 0 over 4,096 tokens; losses measured."""
    study = measured("extrapolation")
    whole, sliding = (
        study.value("language", "alibi", "loss_ratio", length=512, protocol=each) for each in ("whole", "sliding")
    )
    slopes = np.array(Alibi(heads=8).slopes)
    shares = _softmax(bias(Alibi(heads=8), [4095], 4096, dtype="float64"))[0, 0]
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


@claim(
    "alibi-slopes-are-essential",
    "ALiBi works with exactly its slopes and no others.",
    "false",
    numbers={
        "slopes_that_stay_if_all_are_halved": exactly(7),
        "reach_of_the_steepest_head_then": near("40.00"),
        "octaves_of_reach_with_8_heads": near("7.0"),
        "measured_loss_with_all_doubled_less_the_own": near("-0.081"),
        "measured_loss_with_all_halved_less_the_own": near("0.147"),
        "measured_loss_with_drawn_slopes_less_the_own": near("0.143"),
        "measured_loss_with_drawn_slopes_less_the_own_least": near("0.051"),
        "measured_loss_with_drawn_slopes_less_the_own_most": near("0.241"),
        "measured_loss_without_a_code_less_the_own": near("0.396"),
        "measured_largest_loss_ratio_of_256_to_64_trained_tokens": near("1.003"),
    },
    argument=(
        "Slopes halved, doubled or drawn all work: none loses more than 0.3 % at 4 times the trained length. They do "
        "change the loss: at 0.13 million parameters and 64 tokens doubled slopes are 0.08 nats better than ALiBi's "
        "own, halved 0.15 worse, drawn 0.05 to 0.24 worse; no code is 0.40 worse."
    ),
    source=f"{ALIBI}: the authors' remark that other sets work, also drawn ones",
    measured=("slopes",),
)
def alibi_slopes_are_essential() -> Numbers:
    """The slopes, and the same halved; losses of models trained with other ones."""
    slopes = Alibi(heads=8).slopes
    halved = {slope / 2 for slope in slopes}
    study = measured("slopes")
    less = {arm: study.difference("language", arm, "alibi") for arm in ("doubled", "halved", "drawn", "none")}
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
        "measured_largest_loss_ratio_of_256_to_64_trained_tokens": max(
            study.value("language", arm, "loss_ratio", length=256).mean
            for arm in ("alibi", "doubled", "halved", "drawn")
        ),
    }
