"""Claims about longer texts: what is defined beyond the training length, and what RoPE scalings change."""

import math
from statistics import fmean

import numpy as np

from clockhands.encodings.additive import Learned, Sinusoidal, table
from clockhands.encodings.clocks import shift
from clockhands.encodings.ladders import geometric
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.encodings.scaling import Linear, Llama3, Ntk, Yarn
from clockhands.errors import InvalidValue
from clockhands.measures import first_failing_distance, smallest_sound_base
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.frequencies import distances_apart, seeds_that_recall
from clockhands.measures.claims.studies import AS_TRAINED, measured, real_model


@claim("sinusoids-extrapolate")
def sinusoids_extrapolate() -> Numbers:
    """A row at a far position, the rows of a long table, wavelengths above 512; losses and copies of trained models."""
    waves = 2 * math.pi / np.array(geometric(256).rates)
    rows = table(Sinusoidal(width=64), 65_536)
    spec = Sinusoidal(width=512)
    far = table(spec, [10**6, 10**6 + 7], "float64")
    study, copies = measured("extrapolation"), measured("quick")
    twice = study.value("language", "sinusoidal", "loss_ratio", length=128)
    return {
        "largest_number_at_a_million": float(np.abs(far[0]).max()),
        "distinct_rows_of_65536": len({row.tobytes() for row in rows}),
        "largest_difference_of_a_shift_at_a_million": float(np.abs(far[1] - shift(spec, 7) @ far[0]).max()),
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


@claim("rotary-any-length")
def rotary_any_length() -> Numbers:
    """Rotations of the ladder of 64 pairs at the ends of two lengths; losses of trained models."""
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


@claim("learned-tables-end")
def learned_tables_end() -> Numbers:
    """A table of 512 rows, used at its end and beyond."""
    spec, values = Learned(width=4, rows=512), np.ones((512, 4))
    inside = table(spec, [511], values=values)
    try:
        table(spec, [512], values=values)
    except InvalidValue:
        refused = True
    else:
        refused = False
    return {"position_511_has_a_row": bool((inside == 1).all()), "position_512_is_refused": refused}


@claim("interpolation-divides-the-rates")
def interpolation_divides_the_rates() -> Numbers:
    """Vectors of ones, rotated either way; a float32 product of numbers up to 1.42 is off by at most 2**-23."""
    ones = np.ones((64, 128), np.float32)
    plain, divided = Rotary(head_width=128), Rotary(head_width=128, scaling=Linear(4))
    apart = rotate(ones, plain, np.arange(64) / 4) - rotate(ones, divided, np.arange(64))
    ratios = np.array(plain.rates) / np.array(divided.rates)
    return {
        "largest_difference_of_the_turned_queries": float(np.abs(apart).max()),
        "ratio_of_the_rates": ratios[np.argmax(np.abs(ratios - 4))],
    }


@claim("larger-base-is-interpolation")
def larger_base_is_interpolation() -> Numbers:
    """The frequencies before scaling over those after `Ntk`, and over those of the larger base."""
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


@claim("ntk-keeps-the-fastest-pair")
def ntk_keeps_the_fastest_pair() -> Numbers:
    """The 60-digit frequencies before and after, compared."""
    before = geometric(64).exact
    after = Ntk(4)(geometric(64)).exact
    same = [one == other for one, other in zip(before, after, strict=True)]
    return {
        "fastest_rate_is_the_same": same[0],
        "pairs_of_64_that_are_the_same": sum(same),
        "slowing_of_the_second_pair": float(before[1] / after[1]),
    }


@claim("yarn-leaves-high-frequencies")
def yarn_leaves_high_frequencies() -> Numbers:
    """The frequencies before and after, compared."""
    after = Yarn(4, 4096)(geometric(64))
    return {**_split(geometric(64).exact, after.exact, 4), "factor_on_cosine_and_sine": after.attention_factor}


@claim("llama3-29-6-29")
def llama3_29_6_29() -> Numbers:
    """The frequencies before and after, compared."""
    before = geometric(64, 500_000.0)
    return _split(before.exact, Llama3(8, 8192)(before).exact, 8)


def _split(before: tuple, after: tuple, factor: int) -> Numbers:
    """How many frequencies are kept, how many are divided by the factor (to 28 digits), and how many lie between."""
    kept = sum(one == other for one, other in zip(before, after, strict=True))
    divided = sum(abs(one / (factor * other) - 1) < 1e-26 for one, other in zip(before, after, strict=True))
    return {"pairs_kept": kept, "pairs_blended": len(before) - kept - divided, f"pairs_divided_by_{factor}": divided}


@claim("yarn-without-training")
def yarn_without_training() -> Numbers:
    """Rotations of two pairs at the ends of both lengths; losses and recall of small models, glassllm and SmolLM2."""
    before = np.array(geometric(64).rates) / (2 * math.pi)
    after = np.array(Yarn(4, 4096)(geometric(64)).rates) / (2 * math.pi)
    text, recall = measured("scaling"), measured("drope")
    longer = real_model("smollm2_in_twice_its_context")["recall"]
    log_probability = {(each["depth"], each["scaling"]): each["log_probability"] for each in longer}
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
        "measured_loss_of_glassllm_at_128_trained_tokens": recall.value("glassllm", "glass_rotary").mean,
        "measured_loss_of_glassllm_at_512_tokens_with_yarn": recall.value(
            "glassllm", "glass_rotary", length=512, variant="yarn"
        ).mean,
        "measured_loss_of_glassllm_at_512_tokens_without_yarn": recall.value(
            "glassllm", "glass_rotary", length=512
        ).mean,
        "in_smollm2_keys_recalled_of_2_in_its_context": sum(
            each["greedy"] == 1 for each in real_model("smollm2_in_its_context")["recall"] if each["depth"] is not None
        ),
        "in_smollm2_keys_recalled_of_2_in_twice_its_context_with_yarn": sum(
            each["greedy"] == 1 for each in longer if each["scaling"] == "yarn"
        ),
        "in_smollm2_keys_recalled_of_2_in_twice_its_context_without_yarn": sum(
            each["greedy"] == 1 for each in longer if each["scaling"] is None and each["depth"] is not None
        ),
        "in_smollm2_log_probability_of_a_far_key_with_yarn": log_probability[0.1, "yarn"],
        "in_smollm2_log_probability_of_a_near_key_with_yarn": log_probability[0.9, "yarn"],
        "in_smollm2_log_probability_of_a_near_key_without_yarn": log_probability[0.9, None],
        "in_smollm2_log_probability_of_a_key_that_was_not_given": log_probability[None, None],
    }


@claim("low-frequencies-carry-meaning")
def low_frequencies_carry_meaning() -> Numbers:
    """The last pair of Gemma 7B's head width 256 and of Llama 3.1's 128 before scaling; the pairs of SmolLM2."""
    pairs = real_model("smollm2")
    fast, slow = pairs["groups"][0], pairs["groups"][-1]
    gemma, llama = geometric(128).rates[-1], geometric(64, 500_000.0).rates[-1]
    return {
        "turn_of_the_slowest_pair_in_8192_tokens_base_10000": gemma * 8192 / (2 * math.pi),
        "its_cosine_there": math.cos(gemma * 8192),
        "turn_of_the_slowest_pair_in_8192_tokens_base_500000": llama * 8192 / (2 * math.pi),
        "in_smollm2_share_of_the_slower_half": sum(pairs["share_of_query_and_key"][16:]),
        "in_smollm2_nats_without_the_fastest_quarter": fast["removed"]["nats"],
        "in_smollm2_nats_if_it_does_not_rotate": fast["unrotated"]["nats"],
        "in_smollm2_nats_without_the_slowest_quarter": slow["removed"]["nats"],
        "in_smollm2_nats_if_that_does_not_rotate": slow["unrotated"]["nats"],
    }


@claim("far-positions-look-alike")
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


@claim("base-10000-for-any-length")
def base_10000_for_any_length() -> Numbers:
    """The first negative sums by base, the smallest base without one below 4,096, and recall of trained models."""
    study = measured("base-bound")
    learnt = {base: seeds_that_recall(base) for base in (10, 100, 400, 10_000)}
    far = study.places("recall", "base_100")["56–62"]
    longer = real_model("lab_bases")["models"]["recall"]["base_10_long"]["accuracy_64_whole"]
    return {
        "first_distance_at_which_likeness_counts_against_base_10000": _fails_at(10_000.0),
        "first_distance_with_base_500000": _fails_at(500_000.0),
        "smallest_sound_base_for_4096_tokens_in_thousands": (smallest_sound_base(64, 4096) or math.nan) / 1000,
        "first_distance_with_base_100_in_16_pairs": first_failing_distance(geometric(16, 100.0).rates, 1000) or 0,
        **{f"measured_seeds_of_3_that_learn_to_recall_with_base_{base}": seeds for base, seeds in learnt.items()},
        "measured_keys_found_at_56_to_62_tokens_with_base_100_once_learnt": max(far.seeds.values()),
        "measured_keys_found_with_base_10": study.value("recall", "base_10", "accuracy").mean,
        "keys_found_with_base_10_after_2250_steps": fmean(longer),
        "keys_found_with_base_10_after_2250_steps_by_the_best_of_3": max(longer),
        "seeds_of_3_that_learn_to_recall_with_base_10_in_2250_steps": sum(share >= 0.9 for share in longer),
    }


def _fails_at(base: float) -> int:
    """The first distance below 100,000 at which the sum of 64 pairs is negative; 0 if there is none."""
    return first_failing_distance(geometric(64, base).rates, 100_000) or 0


@claim("larger-base-is-safer")
def larger_base_is_safer() -> Numbers:
    """The first negative sums of 64 pairs, by base."""
    return {f"base_{base}_fails_at": _fails_at(float(base)) for base in (26_960, 28_000, 35_000, 60_000)}
