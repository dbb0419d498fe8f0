"""Claims about rates and wavelengths: how fast each pair turns, and in how many tokens it comes round."""

import math

import numpy as np

from clockhands.additive import Sinusoidal, table
from clockhands.claims.claim import Numbers, claim, exactly, near
from clockhands.ladders import TWO_PI, Ladder, geometric
from clockhands.measures import kernel_by_distance

PAPER = "Vaswani et al. 2017, arXiv:1706.03762, section 3.5"


@claim(
    "slowest-wavelength-62832",
    "At width 512 the slowest pair has a wavelength of 62,832 tokens.",
    "only if",
    condition="the exponent is divided by d/2 − 1 instead of d/2, as tensor2tensor and fairseq compute it.",
    numbers={"wavelength_by_the_paper": near("60,611.5"), "wavelength_by_tensor2tensor": near("62,831.9")},
    argument=(
        "The paper's last pair, i = 255, has the divisor 10000^(510/512), so it comes round after 2π × 9,646.62 "
        "tokens. 62,832 is 2π × 10,000, which only a ladder that ends exactly at its base reaches."
    ),
    source=f"{PAPER}; fairseq, modules/sinusoidal_positional_embedding.py",
)
def slowest_wavelength_62832() -> Numbers:
    """2π over the last rate of both ladders of 256 pairs."""
    return {
        "wavelength_by_the_paper": 2 * math.pi / geometric(256).rates[-1],
        "wavelength_by_tensor2tensor": 2 * math.pi / geometric(256, span="closed").rates[-1],
    }


@claim(
    "wavelengths-to-ten-thousand-turns",
    "The wavelengths form a geometric progression from 2π to 10,000 · 2π.",
    "only if",
    condition="the width is large: the last pair stops one step of the progression short of the base.",
    numbers={
        "share_reached_at_width_64": near("0.7499"),
        "share_reached_at_width_512": near("0.9647"),
        "share_reached_at_width_4096": near("0.9955"),
    },
    argument=(
        "The formula beside that sentence gives 10000^((d−2)/d), so the progression ends at 75 % of 10,000 · 2π for "
        "d = 64 and at 96 % for d = 512. The sentence is the paper's own."
    ),
    source=PAPER,
)
def wavelengths_to_ten_thousand_turns() -> Numbers:
    """The last divisor over the base, by width."""
    return {f"share_reached_at_width_{d}": 1 / geometric(d // 2).rates[-1] / 10_000 for d in (64, 512, 4096)}


@claim(
    "divisor-9956",
    "At width 512 the divisor of the last pair is 9,956.",
    "false",
    numbers={
        "divisor_by_the_paper": near("9,646.62"),
        "divisor_by_tensor2tensor": near("10,000.00"),
        "divisor_of_the_exponent_511_512": near("9,821.72"),
        "numerator_that_9956_needs": near("511.755"),
    },
    argument=(
        "Pair 255 is divided by 10000^(510/512) = 9,646.62. No convention gives 9,956: it would need the exponent "
        "511.755/512, and even a last channel of its own, 511/512, gives 9,821.72."
    ),
    source=f"{PAPER}; the number is met in articles",
)
def divisor_9956() -> Numbers:
    """The reciprocals of last rates, and the exponent of 9,956."""
    return {
        "divisor_by_the_paper": 1 / geometric(256).rates[-1],
        "divisor_by_tensor2tensor": 1 / geometric(256, span="closed").rates[-1],
        # A rate of its own for every channel: the last of 512 then has the exponent 511/512.
        "divisor_of_the_exponent_511_512": 1 / geometric(512).rates[-1],
        "numerator_that_9956_needs": 512 * math.log(9956) / math.log(10_000),
    }


@claim(
    "ratio-1.036",
    "At width 512 each wavelength is 1.036 times the one before.",
    "false",
    numbers={
        "ratio_by_the_paper": near("1.036633"),
        "ratio_by_tensor2tensor": near("1.036779"),
        "last_divisor_by_the_cut_ratio": near("8,255"),
        "last_divisor_by_the_paper": near("9,646.62"),
    },
    argument=(
        "10000^(2/512) = 1.036633, which rounds to 1.037: 1.036 is cut off, not rounded. Over 255 steps the lost "
        "digits matter: 1.036^255 is about 8,255, 14 % short of 9,646.62."
    ),
    source=f"{PAPER}; the number is met in articles",
)
def ratio_1036() -> Numbers:
    """The first rate over the second, and what 255 steps of a ratio come to."""
    ladders = {"ratio_by_the_paper": geometric(256), "ratio_by_tensor2tensor": geometric(256, span="closed")}
    return {
        **{name: ladder.rates[0] / ladder.rates[1] for name, ladder in ladders.items()},
        "last_divisor_by_the_cut_ratio": 1.036**255,
        "last_divisor_by_the_paper": 1 / geometric(256).rates[-1],
    }


@claim(
    "lower-dimensions-change-slowly",
    "The lower dimensions change slowly and the higher ones rapidly.",
    "false",
    numbers={
        "first_wavelength": near("6.2832"),
        "last_wavelength": near("60,611.5"),
        "pairs_that_turn_within_100_tokens": exactly(77),
    },
    argument=(
        "It is the other way round: the exponent grows with the dimension, so the rate falls. Pair 0 comes round in "
        "6.28 tokens, pair 255 in 60,611; only the first 77 of 256 pairs come round within 100 tokens."
    ),
    source=f"{PAPER}; said on two pages that draw the table",
)
def lower_dimensions_change_slowly() -> Numbers:
    """The wavelengths of the ladder of 256 pairs, and those of at most 100."""
    waves = 2 * math.pi / np.array(geometric(256).rates)
    return {
        "first_wavelength": waves[0],
        "last_wavelength": waves[-1],
        "pairs_that_turn_within_100_tokens": int((waves <= 100).sum()),
    }


@claim(
    "ten-thousand-is-a-length-limit",
    "The encoding works for texts of up to about 10,000 tokens, because of the 10,000 in it.",
    "false",
    numbers={
        "turns_of_the_slowest_pair_at_10000": near("0.165"),
        "distinct_rows_of_20000_in_float32": exactly(20_000),
        "largest_number_at_position_ten_to_18": near("0.9997"),
    },
    argument=(
        "10,000 is the base that spans the rates, not a length. At position 10,000 the slowest pair has made a sixth "
        "of its first turn, all rows of twice that length differ, and numbers stay within 1 at any position."
    ),
    source=f"{PAPER}; limits in practice are the training length, and buffers such as fairseq's max_positions = 1e5",
)
def ten_thousand_is_a_length_limit() -> Numbers:
    """The slowest pair's turns, the rows of a table of 20,000, and a row far out."""
    rows = table(Sinusoidal(width=64), 20_000)
    return {
        "turns_of_the_slowest_pair_at_10000": 10_000 * geometric(256).rates[-1] / (2 * math.pi),
        "distinct_rows_of_20000_in_float32": len({row.tobytes() for row in rows}),
        "largest_number_at_position_ten_to_18": float(np.abs(table(Sinusoidal(width=64), [10**18], "float64")).max()),
    }


@claim(
    "fastest-pair-at-nyquist",
    "The fastest pair sits at the Nyquist limit: any faster and tokens could no longer sample it.",
    "false",
    numbers={"tokens_in_a_turn": near("6.283"), "share_of_the_nyquist_rate": near("0.318")},
    argument=(
        "Nyquist's limit is half a turn per token, π rad. The fastest pair turns 1 rad per token: a third of it, more "
        "than six tokens in a turn. No pair of the ladder is undersampled by whole positions."
    ),
    source=f"{PAPER}; the sampling theorem",
)
def fastest_pair_at_nyquist() -> Numbers:
    """The fastest rate of a ladder, against π."""
    fastest = max(geometric(256).rates)
    return {"tokens_in_a_turn": 2 * math.pi / fastest, "share_of_the_nyquist_rate": fastest / math.pi}


@claim(
    "the-code-is-periodic",
    "The code repeats after the longest wavelength.",
    "false",
    numbers={
        "distance_after_one_slowest_turn_at_width_512": near("23.50"),
        "distance_after_62832_tokens": near("23.36"),
        "distance_of_unrelated_positions": near("22.63"),
    },
    argument=(
        "After the slowest pair's turn the other 255 stand anywhere: the row is as far from the first as unrelated "
        "rows are, √512. All pairs together never come round, since no whole number is a multiple of 2π."
    ),
    source=f"{PAPER}; π is irrational",
)
def the_code_is_periodic() -> Numbers:
    """The distance between rows at these offsets, from the rows themselves."""
    rows = table(Sinusoidal(width=512), [0, 60_611, 62_832], "float64")
    return {
        "distance_after_one_slowest_turn_at_width_512": float(np.linalg.norm(rows[1] - rows[0])),
        "distance_after_62832_tokens": float(np.linalg.norm(rows[2] - rows[0])),
        "distance_of_unrelated_positions": math.sqrt(512),
    }


@claim(
    "every-pair-turns-in-training",
    "During training a model sees every pair at every angle.",
    "false",
    numbers={
        "pairs_of_64_that_never_turn_in_4096": exactly(18),
        "pairs_of_64_that_never_turn_in_512": exactly(33),
        "channels_that_turn_in_4096": exactly(92),
    },
    argument=(
        "At head width 128 and base 10,000, 18 of 64 pairs have a wavelength above 4,096 tokens, and 33 above 512. "
        "Past the training length these reach angles that no gradient has seen."
    ),
    source="Liu et al. 2023, arXiv:2310.05209 (critical dimension, 92 for Llama 2)",
)
def every_pair_turns_in_training() -> Numbers:
    """Wavelengths of 64 pairs beyond a length."""
    waves = [TWO_PI / rate for rate in geometric(64).exact]
    within = sum(wave <= 4096 for wave in waves)
    return {
        "pairs_of_64_that_never_turn_in_4096": 64 - within,
        "pairs_of_64_that_never_turn_in_512": sum(wave > 512 for wave in waves),
        "channels_that_turn_in_4096": 2 * within,
    }


@claim(
    "small-base-repeats",
    "With base 100 the code would repeat after about 628 tokens.",
    "false",
    numbers={
        "slowest_wavelength_at_width_512": near("617.1"),
        "nearest_offset_up_to_200000": exactly(1),
        "distance_of_neighbours": near("5.208"),
        "distance_after_617_tokens": near("22.75"),
    },
    argument=(
        "The slowest pair then comes round after 617 tokens, but the others do not with it. Up to 200,000 tokens apart "
        "the closest two rows are still neighbours; what base 100 lacks is a slow hand that orders far positions."
    ),
    source="computed; the ladder is Vaswani et al. 2017's with another base",
)
def small_base_repeats() -> Numbers:
    """The nearest pair of rows by distance, from the dot products by offset."""
    ladder = geometric(256, 100.0)
    apart = distances_apart(ladder, 200_001)
    nearest = 1 + int(np.argmin(apart[1:]))
    return {
        "slowest_wavelength_at_width_512": 2 * math.pi / ladder.rates[-1],
        "nearest_offset_up_to_200000": nearest,
        "distance_of_neighbours": apart[1],
        "distance_after_617_tokens": apart[617],
    }


def distances_apart(ladder: Ladder, length: int) -> np.ndarray:
    """How far the rows of two positions are apart, by their offset 0 to ``length - 1``: float64.

    ``sqrt(2 (n - sum_i cos(rate_i k)))`` for ``n`` pairs; squares are off by twice `kernel_bound`.
    """
    return np.sqrt(np.maximum(2 * (ladder.pairs - kernel_by_distance(ladder, length)), 0))
