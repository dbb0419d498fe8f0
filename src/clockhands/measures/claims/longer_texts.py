"""Claims about longer texts: what is defined beyond the training length, and what RoPE scalings change."""

import math

import numpy as np

from clockhands.encodings.additive import Learned, table
from clockhands.encodings.ladders import geometric
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.encodings.scaling import Linear, Llama3, Ntk, Yarn
from clockhands.errors import InvalidValue
from clockhands.measures import smallest_sound_base
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.quantities import rotations
from clockhands.measures.claims.studies import real_model


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
    """Rotations of two pairs at the end of the longer texts; recall of SmolLM2."""
    ladder = Yarn(4, 4096)(geometric(64))
    longer = real_model("smollm2_in_twice_its_context")["recall"]
    log_probability = {(each["depth"], each["scaling"]): each["log_probability"] for each in longer}
    return {
        "slowest_turn_at_four_times_the_length": rotations(ladder, 16_384),
        "middle_turns_at_four_times_the_length": rotations(ladder, 16_384, pair=32),
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
    """The last pair of Gemma 7B's head width 256; the pairs of SmolLM2."""
    return {
        "its_cosine_there": math.cos(geometric(128).rates[-1] * 8192),
        "in_smollm2_share_of_the_slower_half": sum(real_model("smollm2")["share_of_query_and_key"][16:]),
    }


@claim("base-10000-for-any-length")
def base_10000_for_any_length() -> Numbers:
    """The smallest base without a negative sum below 4,096, negative sums of two pairs, and the slowest pair alone."""
    sums = np.cos(np.outer(np.arange(1, 63), geometric(2).rates)).sum(axis=1)
    return {
        "negative_sums_with_2_pairs_at_1_to_62_tokens": int((sums < 0).sum()),
        "first_distance_with_the_slowest_pair_alone": math.floor(math.pi / 2 / geometric(64).rates[-1]) + 1,
        "smallest_sound_base_for_4096_tokens_in_thousands": (smallest_sound_base(64, 4096) or math.nan) / 1000,
    }
