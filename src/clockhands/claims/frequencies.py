"""Claims about rates and wavelengths: how fast each pair turns, and in how many tokens it comes round."""

import math

import numpy as np

from clockhands.additive import Sinusoidal, table
from clockhands.claims.claim import Numbers, claim
from clockhands.ladders import TWO_PI, Ladder, geometric
from clockhands.measures import kernel_by_distance


@claim("slowest-wavelength-62832")
def slowest_wavelength_62832() -> Numbers:
    """2π over the last rate of both ladders of 256 pairs."""
    return {
        "wavelength_by_the_paper": 2 * math.pi / geometric(256).rates[-1],
        "wavelength_by_tensor2tensor": 2 * math.pi / geometric(256, span="closed").rates[-1],
    }


@claim("wavelengths-to-ten-thousand-turns")
def wavelengths_to_ten_thousand_turns() -> Numbers:
    """The last divisor over the base, by width."""
    return {f"share_reached_at_width_{d}": 1 / geometric(d // 2).rates[-1] / 10_000 for d in (64, 512, 4096)}


@claim("divisor-9956")
def divisor_9956() -> Numbers:
    """The reciprocals of last rates, and the exponent of 9,956."""
    return {
        "divisor_by_the_paper": 1 / geometric(256).rates[-1],
        "divisor_by_tensor2tensor": 1 / geometric(256, span="closed").rates[-1],
        # A rate of its own for every channel: the last of 512 then has the exponent 511/512.
        "divisor_of_the_exponent_511_512": 1 / geometric(512).rates[-1],
        "numerator_that_9956_needs": 512 * math.log(9956) / math.log(10_000),
    }


@claim("ratio-1.036")
def ratio_1036() -> Numbers:
    """The first rate over the second, and what 255 steps of a ratio come to."""
    ladders = {"ratio_by_the_paper": geometric(256), "ratio_by_tensor2tensor": geometric(256, span="closed")}
    return {
        **{name: ladder.rates[0] / ladder.rates[1] for name, ladder in ladders.items()},
        "last_divisor_by_the_cut_ratio": 1.036**255,
        "last_divisor_by_the_paper": 1 / geometric(256).rates[-1],
    }


@claim("lower-dimensions-change-slowly")
def lower_dimensions_change_slowly() -> Numbers:
    """The wavelengths of the ladder of 256 pairs, and those of at most 100."""
    waves = 2 * math.pi / np.array(geometric(256).rates)
    return {
        "first_wavelength": waves[0],
        "last_wavelength": waves[-1],
        "pairs_that_turn_within_100_tokens": int((waves <= 100).sum()),
    }


@claim("ten-thousand-is-a-length-limit")
def ten_thousand_is_a_length_limit() -> Numbers:
    """The slowest pair's turns, the rows of a table of 20,000, and a row far out."""
    rows = table(Sinusoidal(width=64), 20_000)
    return {
        "turns_of_the_slowest_pair_at_10000": 10_000 * geometric(256).rates[-1] / (2 * math.pi),
        "distinct_rows_of_20000_in_float32": len({row.tobytes() for row in rows}),
        "largest_number_at_position_ten_to_18": float(np.abs(table(Sinusoidal(width=64), [10**18], "float64")).max()),
    }


@claim("fastest-pair-at-nyquist")
def fastest_pair_at_nyquist() -> Numbers:
    """The fastest rate of a ladder, against π."""
    fastest = max(geometric(256).rates)
    return {"tokens_in_a_turn": 2 * math.pi / fastest, "share_of_the_nyquist_rate": fastest / math.pi}


@claim("the-code-is-periodic")
def the_code_is_periodic() -> Numbers:
    """The distance between rows at these offsets, from the rows themselves."""
    rows = table(Sinusoidal(width=512), [0, 60_611, 62_832], "float64")
    return {
        "distance_after_one_slowest_turn_at_width_512": float(np.linalg.norm(rows[1] - rows[0])),
        "distance_after_62832_tokens": float(np.linalg.norm(rows[2] - rows[0])),
        "distance_of_unrelated_positions": math.sqrt(512),
    }


@claim("every-pair-turns-in-training")
def every_pair_turns_in_training() -> Numbers:
    """Wavelengths of 64 pairs beyond a length."""
    waves = [TWO_PI / rate for rate in geometric(64).exact]
    within = sum(wave <= 4096 for wave in waves)
    return {
        "pairs_of_64_that_never_turn_in_4096": 64 - within,
        "pairs_of_64_that_never_turn_in_512": sum(wave > 512 for wave in waves),
        "channels_that_turn_in_4096": 2 * within,
    }


@claim("small-base-repeats")
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
