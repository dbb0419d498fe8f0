"""Claims about longer texts: what is defined beyond the training length, and what the scalings of a ladder do."""

import math

import numpy as np

from clockhands.additive import Learned, Sinusoidal, table
from clockhands.claims.claim import Numbers, at_most, claim, exactly, near
from clockhands.claims.frequencies import distances_apart
from clockhands.claims.measured import AS_TRAINED, measured
from clockhands.errors import InvalidValue
from clockhands.ladders import geometric
from clockhands.measures import first_failing_distance, smallest_sound_base
from clockhands.rotary import Rotary, rotate
from clockhands.scaling import Linear, Llama3, Ntk, Yarn

KERPLE = "KERPLE, arXiv:2205.09921"


@claim(
    "sinusoids-extrapolate",
    "The sinusoidal code lets a model handle texts longer than those it was trained on.",
    "only if",
    condition='"handle" means that the code is defined there, bounded, and different at every position.',
    numbers={
        "largest_number_at_a_million": near("1.00000"),
        "distinct_rows_of_65536": exactly(65_536),
        "pairs_of_256_with_unseen_angles_at_1024": exactly(133),
        "measured_loss_at_64_trained_tokens": near("1.966"),
        "measured_loss_at_128_tokens": near("2.554"),
        "measured_loss_at_128_tokens_without_a_code": near("2.446"),
        "measured_loss_ratio_of_128_to_64_tokens": near("1.299"),
        "measured_loss_ratio_of_128_to_64_tokens_least": near("1.277"),
        "measured_loss_ratio_of_512_to_64_tokens": near("1.532"),
        "measured_share_of_right_copies_at_64_trained_tokens": near("1.000"),
        "measured_share_of_right_copies_at_256_tokens": near("0.336"),
    },
    argument=(
        "The table has no end, but 133 of 256 pairs do not complete a period in 512 tokens: at position 1,024 their "
        "angles are new to a model trained at 512. Trained at 64 tokens, a model of 0.13 million parameters is worse "
        "at 128 tokens than one without any code."
    ),
    source=(
        f"Vaswani et al. 2017, section 3.5, hoped for it; Kazemnejad et al. 2023, arXiv:2305.19466, and {KERPLE}, "
        "measured perplexities that explode in larger models"
    ),
    measured=("extrapolation", "quick"),
)
def sinusoids_extrapolate() -> Numbers:
    """A row far out, the rows of a long table, the wavelengths above 512; losses and copies of trained models."""
    waves = 2 * math.pi / np.array(geometric(256).rates)
    rows = table(Sinusoidal(width=64), 65_536)
    study, copies = measured("extrapolation"), measured("quick")
    twice = study.value("language", "sinusoidal", "loss_ratio", length=128)
    return {
        "largest_number_at_a_million": float(np.abs(table(Sinusoidal(width=512), [10**6], "float64")).max()),
        "distinct_rows_of_65536": len({row.tobytes() for row in rows}),
        "pairs_of_256_with_unseen_angles_at_1024": int((waves > 512).sum()),
        "measured_loss_at_64_trained_tokens": study.value("language", "sinusoidal", length=64).mean,
        "measured_loss_at_128_tokens": study.value("language", "sinusoidal", length=128).mean,
        "measured_loss_at_128_tokens_without_a_code": study.value("language", "none", length=128).mean,
        "measured_loss_ratio_of_128_to_64_tokens": twice.mean,
        "measured_loss_ratio_of_128_to_64_tokens_least": twice.least,
        "measured_loss_ratio_of_512_to_64_tokens": study.value("language", "sinusoidal", "loss_ratio", length=512).mean,
        "measured_share_of_right_copies_at_64_trained_tokens": copies.value(
            "copy", "sinusoidal", "accuracy", length=64
        ).mean,
        "measured_share_of_right_copies_at_256_tokens": copies.value("copy", "sinusoidal", "accuracy", length=256).mean,
    }


@claim(
    "rotary-any-length",
    "Rotary codes work for any length, because they only use distances.",
    "only if",
    condition='"work" means that scores are defined; distances beyond the training length are angles never trained.',
    numbers={
        "pairs_of_64_with_unseen_angles_past_4096": exactly(18),
        "largest_trained_turn_of_the_slowest_pair": near("0.0753"),
        "its_turn_at_four_times_the_length": near("0.301"),
        "measured_loss_ratio_of_128_to_64_trained_tokens": near("1.127"),
        "measured_loss_ratio_of_128_to_64_trained_tokens_least": near("1.098"),
        "measured_loss_ratio_of_256_to_64_trained_tokens": near("1.470"),
        "measured_loss_ratio_of_512_to_64_trained_tokens": near("1.656"),
        "measured_loss_ratio_of_512_to_64_trained_tokens_for_alibi": near("0.994"),
    },
    argument=(
        "At head width 128 and base 10,000 the slowest pair turns by at most 0.075 of a circle in 4,096 tokens; at "
        "16,384 it is at 0.30, an angle never trained, and so are 17 other pairs. Trained at 64 tokens, a model of "
        "0.13 million parameters has 1.13 times the loss at 128 tokens and 1.66 times at 512."
    ),
    source="Su et al. 2021, arXiv:2104.09864; Chen et al. 2023, arXiv:2306.15595, section 2.2 measured the failure",
    measured=("extrapolation",),
)
def rotary_any_length() -> Numbers:
    """Turns of the ladder of 64 pairs at the ends of two lengths; losses of trained models."""
    turns = np.array(geometric(64).rates) / (2 * math.pi)
    study = measured("extrapolation")
    ratios = {n: study.value("language", "rotary", "loss_ratio", length=n) for n in (128, 256, 512)}
    return {
        "pairs_of_64_with_unseen_angles_past_4096": int((turns * 4096 < 1).sum()),
        "largest_trained_turn_of_the_slowest_pair": turns[-1] * 4096,
        "its_turn_at_four_times_the_length": turns[-1] * 16_384,
        "measured_loss_ratio_of_128_to_64_trained_tokens": ratios[128].mean,
        "measured_loss_ratio_of_128_to_64_trained_tokens_least": ratios[128].least,
        "measured_loss_ratio_of_256_to_64_trained_tokens": ratios[256].mean,
        "measured_loss_ratio_of_512_to_64_trained_tokens": ratios[512].mean,
        "measured_loss_ratio_of_512_to_64_trained_tokens_for_alibi": study.value(
            "language", "alibi", "loss_ratio", length=512
        ).mean,
    }


@claim(
    "learned-tables-end",
    "A learned table has nothing to say beyond its last row.",
    "true",
    numbers={"position_511_has_a_row": exactly(True), "position_512_is_refused": exactly(True)},
    argument=(
        "There is one row of numbers for each trained position and no formula for the next. Stretching the table by "
        "interpolation moves every row, so the model has to be trained on."
    ),
    source="Gehring et al. 2017, arXiv:1705.03122; Devlin et al. 2019 (BERT: 512 rows)",
)
def learned_tables_end() -> Numbers:
    """A table of 512 rows, asked at its end and beyond."""
    spec, values = Learned(width=4, rows=512), np.ones((512, 4))
    inside = table(spec, [511], values=values)
    try:
        table(spec, [512], values=values)
    except InvalidValue:
        refused = True
    else:
        refused = False
    return {"position_511_has_a_row": bool((inside == 1).all()), "position_512_is_refused": refused}


@claim(
    "interpolation-divides-the-rates",
    "Interpolating positions by a factor is the same as dividing every rate by it.",
    "true",
    numbers={"largest_difference_of_the_turned_queries": at_most("2e-7"), "ratio_of_the_rates": near("4.000")},
    argument=(
        "A pair's angle is position × rate, so it does not matter which of the two is divided. Rotated queries at "
        "positions p/4 and queries at p with rates over 4 agree to the rounding of float32."
    ),
    source="Chen et al. 2023, arXiv:2306.15595, section 3.2",
)
def interpolation_divides_the_rates() -> Numbers:
    """Ones turned either way at 64 positions; each float32 product of numbers up to 1.42 is off by 2**-23 at most."""
    ones = np.ones((64, 128), np.float32)
    plain, divided = Rotary(head_width=128), Rotary(head_width=128, scaling=Linear(4))
    apart = rotate(ones, plain, np.arange(64) / 4) - rotate(ones, divided, np.arange(64))
    ratios = np.array(plain.rates) / np.array(divided.rates)
    return {
        "largest_difference_of_the_turned_queries": float(np.abs(apart).max()),
        "ratio_of_the_rates": ratios[np.argmax(np.abs(ratios - 4))],
    }


@claim(
    "larger-base-is-interpolation",
    "Raising the base is the same as interpolating the positions.",
    "false",
    numbers={
        "slowing_of_the_fastest_pair": near("1.000"),
        "slowing_of_the_middle_pair": near("2.022"),
        "slowing_of_the_slowest_pair": near("4.000"),
        "base_that_does_it": near("40,889.9"),
    },
    argument=(
        "Interpolation by 4 slows every pair 4 times. The base that slows the slowest pair as much, 10,000 × "
        "4^(128/126) at head width 128, leaves the fastest alone and slows the middle one 2 times."
    ),
    source="bloc97 2023 (NTK-aware scaled RoPE); Peng et al. 2023, arXiv:2309.00071, section 3.1",
)
def larger_base_is_interpolation() -> Numbers:
    """The rates before over those after `Ntk`, and over those of the base."""
    before = geometric(64)
    after = Ntk(4)(before)
    slowing = np.array(before.rates) / np.array(after.rates)
    base = 10_000 * 4 ** (128 / 126)
    same = np.allclose(geometric(64, base).rates, after.rates, rtol=1e-14, atol=0)
    return {
        "slowing_of_the_fastest_pair": slowing[0],
        "slowing_of_the_middle_pair": slowing[32],
        "slowing_of_the_slowest_pair": slowing[-1],
        "base_that_does_it": base if same else math.nan,
    }


@claim(
    "ntk-keeps-the-fastest-pair",
    "NTK-aware scaling leaves the fastest pair alone.",
    "true",
    numbers={
        "fastest_rate_is_the_same": exactly(True),
        "pairs_of_64_that_are_the_same": exactly(1),
        "slowing_of_the_second_pair": near("1.022"),
    },
    argument=(
        "Pair j of n is slowed by f^(j/(n−1)), which is 1 for j = 0. But it is the only one: pair 1 is already slowed, "
        "if only by 2.2 %."
    ),
    source="bloc97 2023 (NTK-aware scaled RoPE); Peng et al. 2023, arXiv:2309.00071, section 3.1",
)
def ntk_keeps_the_fastest_pair() -> Numbers:
    """The 60-digit rates before and after, compared."""
    before = geometric(64).exact
    after = Ntk(4)(geometric(64)).exact
    same = [one == other for one, other in zip(before, after, strict=True)]
    return {
        "fastest_rate_is_the_same": same[0],
        "pairs_of_64_that_are_the_same": sum(same),
        "slowing_of_the_second_pair": float(before[1] / after[1]),
    }


@claim(
    "yarn-leaves-high-frequencies",
    "YaRN leaves the high frequencies alone and interpolates the low ones.",
    "true",
    numbers={
        "pairs_kept": exactly(21),
        "pairs_blended": exactly(25),
        "pairs_divided_by_4": exactly(18),
        "factor_on_cosine_and_sine": near("1.1386"),
    },
    argument=(
        "From 4,096 tokens, by 4, at head width 128: 21 of 64 pairs are kept, 18 divided by 4, and 25 between blended. "
        "What the sentence leaves out: cosine and sine are multiplied too, by 0.1 ln 4 + 1."
    ),
    source="Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4",
)
def yarn_leaves_high_frequencies() -> Numbers:
    """The rates before and after, compared."""
    after = Yarn(4, 4096)(geometric(64))
    return {**_split(geometric(64).exact, after.exact, 4), "factor_on_cosine_and_sine": after.attention_factor}


@claim(
    "llama3-29-6-29",
    "Llama 3.1's scaling keeps 29 of 64 pairs, blends 6 and divides 29 by 8.",
    "true",
    numbers={"pairs_kept": exactly(29), "pairs_blended": exactly(6), "pairs_divided_by_8": exactly(29)},
    argument=(
        "Base 500,000, head width 128, original length 8,192: pairs of more than 4 turns in it are kept, of fewer than "
        "one divided by 8. The blend between spans only two octaves, so it takes few pairs."
    ),
    source="meta-llama/llama-models, apply_scaling; the config of Llama 3.1",
)
def llama3_29_6_29() -> Numbers:
    """The rates before and after, compared."""
    before = geometric(64, 500_000.0)
    return _split(before.exact, Llama3(8, 8192)(before).exact, 8)


def _split(before: tuple, after: tuple, factor: int) -> Numbers:
    """How many rates are kept, divided by the factor (to the 28 digits of decimal), or something between."""
    kept = sum(one == other for one, other in zip(before, after, strict=True))
    divided = sum(abs(one / (factor * other) - 1) < 1e-26 for one, other in zip(before, after, strict=True))
    return {"pairs_kept": kept, "pairs_blended": len(before) - kept - divided, f"pairs_divided_by_{factor}": divided}


@claim(
    "yarn-without-training",
    "YaRN makes a model read four times as far without any training.",
    "only if",
    condition='"read" means a low loss; in large models retrieval past the trained length was found to fail.',
    numbers={
        "slowest_turn_trained": near("0.0753"),
        "slowest_turn_at_four_times_the_length": near("0.0753"),
        "middle_turns_trained": near("6.52"),
        "middle_turns_at_four_times_the_length": near("17.05"),
        "measured_loss_ratio_of_256_to_64_trained_tokens": near("1.079"),
        "measured_the_same_without_yarn": near("1.470"),
        "measured_right_recalls_at_256_tokens": near("0.982"),
        "measured_right_recalls_at_256_tokens_without_yarn": near("0.758"),
    },
    argument=(
        "The slowest pair has at 16,384 the angle that it had at 4,096; pairs that are kept or blended do meet new "
        "angles. At 0.1 million parameters 98 % of recalls are right at 4 times the trained length, 76 % without YaRN. "
        "Published tests of large models found retrieval no better than cropping the text."
    ),
    source="Peng et al. 2023, arXiv:2309.00071; DroPE, figure 5 (cited, not recomputed)",
    measured=("scaling", "drope"),
    waits_for="retrieval by depth and length of a large model with and without YaRN, untrained at that length.",
)
def yarn_without_training() -> Numbers:
    """Turns of the slowest and the middle pair at the ends of both lengths."""
    before = np.array(geometric(64).rates) / (2 * math.pi)
    after = np.array(Yarn(4, 4096)(geometric(64)).rates) / (2 * math.pi)
    text, recall = measured("scaling"), measured("drope")
    ratios = {
        each: text.value("language", "rotary", "loss_ratio", length=256, variant=each) for each in ("yarn", AS_TRAINED)
    }
    right = {
        each: recall.value("recall", "rotary", "accuracy", length=256, variant=each) for each in ("yarn", AS_TRAINED)
    }
    return {
        "slowest_turn_trained": before[-1] * 4096,
        "slowest_turn_at_four_times_the_length": after[-1] * 16_384,
        "middle_turns_trained": before[32] * 4096,
        "middle_turns_at_four_times_the_length": after[32] * 16_384,
        "measured_loss_ratio_of_256_to_64_trained_tokens": ratios["yarn"].mean,
        "measured_the_same_without_yarn": ratios[AS_TRAINED].mean,
        "measured_right_recalls_at_256_tokens": right["yarn"].mean,
        "measured_right_recalls_at_256_tokens_without_yarn": right[AS_TRAINED].mean,
    }


@claim(
    "low-frequencies-carry-meaning",
    "In rotary models low frequencies carry meaning and high frequencies carry position.",
    "only if",
    condition="the model is one where it was found (Gemma 7B, Llama 3.1 8B), and the text is not too long.",
    numbers={
        "turn_of_the_slowest_pair_in_8192_tokens_base_10000": near("0.1401"),
        "its_cosine_there": near("0.637"),
        "turn_of_the_slowest_pair_in_8192_tokens_base_500000": near("0.00320"),
    },
    argument=(
        "A channel keeps a meaning at every distance only if its pair hardly turns. With Gemma 7B's base the slowest "
        "pair has lost 36 % of its likeness at 8,192 tokens; with Llama 3.1's it has hardly moved."
    ),
    source="Barbero et al. 2025, arXiv:2410.06205 (norms by pair, theorem 6.1), cited; the turns are computed",
    waits_for="the norms of queries and keys by pair, and what a model loses when pairs are switched off.",
)
def low_frequencies_carry_meaning() -> Numbers:
    """The last pair of Gemma 7B's head width 256 and of Llama 3.1's 128 before scaling."""
    gemma, llama = geometric(128).rates[-1], geometric(64, 500_000.0).rates[-1]
    return {
        "turn_of_the_slowest_pair_in_8192_tokens_base_10000": gemma * 8192 / (2 * math.pi),
        "its_cosine_there": math.cos(gemma * 8192),
        "turn_of_the_slowest_pair_in_8192_tokens_base_500000": llama * 8192 / (2 * math.pi),
    }


@claim(
    "far-positions-look-alike",
    "Positions far apart can come to look like neighbours.",
    "only if",
    condition="the code is narrow: at width 64 and more neighbours stay the closest rows up to 200,000 tokens apart.",
    numbers={
        "nearest_offset_at_width_8": exactly(169_646),
        "its_distance": near("0.0033"),
        "distance_of_neighbours_at_width_8": near("0.964"),
        "nearest_offset_at_width_64": exactly(1),
        "nearest_offset_at_width_512": exactly(1),
    },
    argument=(
        "Four hands come near their start again: at width 8 after 169,646 tokens to 0.0033, while neighbours are 0.96 "
        "apart. With 32 hands or more nothing up to 200,000 is closer than a neighbour."
    ),
    source="computed from the distance by offset, which is the same at every position",
)
def far_positions_look_alike() -> Numbers:
    """The smallest distance over offsets 1 to 200,000, by width."""
    nearest = {}
    for width in (8, 64, 512):
        apart = distances_apart(geometric(width // 2), 200_001)
        nearest[width] = 1 + int(np.argmin(apart[1:]))
    rows = table(Sinusoidal(width=8), [0, nearest[8], 1], "float64")
    return {
        "nearest_offset_at_width_8": nearest[8],
        "its_distance": float(np.linalg.norm(rows[1] - rows[0])),
        "distance_of_neighbours_at_width_8": float(np.linalg.norm(rows[2] - rows[0])),
        "nearest_offset_at_width_64": nearest[64],
        "nearest_offset_at_width_512": nearest[512],
    }


@claim(
    "base-10000-for-any-length",
    "A rotary model with base 10,000 can look for a like token at any distance.",
    "only if",
    condition="its heads weigh some pairs more than others; with equal weights it cannot from 1,707 tokens on.",
    numbers={
        "first_distance_at_which_likeness_counts_against_base_10000": exactly(1_707),
        "first_distance_with_base_500000": exactly(18_438),
        "smallest_sound_base_for_4096_tokens_in_thousands": near("26.95"),
        "first_distance_with_base_100_in_16_pairs": exactly(28),
        "measured_seeds_of_3_that_learn_to_recall_with_base_10": exactly(0),
        "measured_seeds_of_3_that_learn_to_recall_with_base_100": exactly(2),
        "measured_seeds_of_3_that_learn_to_recall_with_base_400": exactly(3),
        "measured_seeds_of_3_that_learn_to_recall_with_base_10000": exactly(2),
        "measured_keys_found_at_56_to_62_tokens_with_base_100_once_learnt": near("1.000"),
        "measured_keys_found_with_base_10": near("0.323"),
    },
    argument=(
        "With equal weights of all pairs a like key scores Σ cos(frequency × distance) above an unlike one. At head "
        "width 128 and base 10,000 that is negative from 1,707 tokens on, here and there. Models get around it: "
        "with 16 pairs base 100 is negative from 28 on, yet 2 of 3 models find all keys 56 to 62 tokens back, as "
        "many as with base 10,000. Base 10 learns nothing."
    ),
    source="Men et al. 2024, arXiv:2405.14591, section 4 (the condition; their 2.7e4 for 4k tokens)",
    measured=("base-bound",),
    waits_for=(
        "retrieval by distance of a large model with base 10,000 past 1,707 tokens; Men et al. report that retrieval "
        "fails below the bound."
    ),
)
def base_10000_for_any_length() -> Numbers:
    """The first negative sums by base, the smallest base that has none below 4,096, and recalls of trained models."""
    study = measured("base-bound")
    learnt = {
        base: sum(share >= 0.9 for share in study.value("recall", f"base_{base}", "accuracy").seeds.values())
        for base in (10, 100, 400, 10_000)
    }
    far = study.places("recall", "base_100")["56–62"]
    return {
        "first_distance_at_which_likeness_counts_against_base_10000": _fails_at(10_000.0),
        "first_distance_with_base_500000": _fails_at(500_000.0),
        "smallest_sound_base_for_4096_tokens_in_thousands": (smallest_sound_base(64, 4096) or math.nan) / 1000,
        "first_distance_with_base_100_in_16_pairs": first_failing_distance(geometric(16, 100.0).rates, 1000) or 0,
        **{f"measured_seeds_of_3_that_learn_to_recall_with_base_{base}": seeds for base, seeds in learnt.items()},
        "measured_keys_found_at_56_to_62_tokens_with_base_100_once_learnt": max(far.seeds.values()),
        "measured_keys_found_with_base_10": study.value("recall", "base_10", "accuracy").mean,
    }


def _fails_at(base: float) -> int:
    """The first distance below 100,000 at which the sum of 64 pairs is negative, 0 where there is none."""
    return first_failing_distance(geometric(64, base).rates, 100_000) or 0


@claim(
    "larger-base-is-safer",
    "Once a base is large enough for a length, every larger one is too.",
    "false",
    numbers={
        "base_26960_fails_at": exactly(4_189),
        "base_28000_fails_at": exactly(2_635),
        "base_35000_fails_at": exactly(3_377),
        "base_60000_fails_at": exactly(5_666),
    },
    argument=(
        "The set of bases that are sound for a length has gaps. For 4,096 tokens at head width 128 the base 26,960 is "
        "sound, 28,000 and 35,000 are not, and 60,000 is again: the sum of cosines dips below 0 earlier or later."
    ),
    source="computed; the condition is that of Men et al. 2024, arXiv:2405.14591, section 4",
)
def larger_base_is_safer() -> Numbers:
    """The first negative sums of 64 pairs, by base."""
    return {f"base_{base}_fails_at": _fails_at(float(base)) for base in (26_960, 28_000, 35_000, 60_000)}
