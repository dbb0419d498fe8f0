"""Claims about frequencies and wavelengths: how fast each pair rotates, and after how many tokens its values repeat."""

import math

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.ladders import TWO_PI, Ladder, geometric
from clockhands.measures import kernel_by_distance
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.studies import measured


@claim("slowest-wavelength-62832")
def slowest_wavelength_62832() -> Numbers:
    """2π over the last frequency, for both ladders of 256 pairs."""
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
    """The reciprocals of the last frequencies, and the exponent of 9,956."""
    return {
        "divisor_by_the_paper": 1 / geometric(256).rates[-1],
        "divisor_by_tensor2tensor": 1 / geometric(256, span="closed").rates[-1],
        # A separate frequency for every channel: the last of 512 then has the exponent 511/512.
        "divisor_of_the_exponent_511_512": 1 / geometric(512).rates[-1],
        "numerator_that_9956_needs": 512 * math.log(9956) / math.log(10_000),
    }


@claim("ratio-1.036")
def ratio_1036() -> Numbers:
    """The first frequency over the second, and that ratio to the power 255."""
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
    """The rotations of the slowest pair, the rows of a table of 20,000 positions, and a row at a far position."""
    rows = table(Sinusoidal(width=64), 20_000)
    return {
        "turns_of_the_slowest_pair_at_10000": 10_000 * geometric(256).rates[-1] / (2 * math.pi),
        "distinct_rows_of_20000_in_float32": len({row.tobytes() for row in rows}),
        "largest_number_at_position_ten_to_18": float(np.abs(table(Sinusoidal(width=64), [10**18], "float64")).max()),
    }


@claim("fastest-pair-at-nyquist")
def fastest_pair_at_nyquist() -> Numbers:
    """The fastest frequency of a ladder, compared with π."""
    fastest = max(geometric(256).rates)
    return {"tokens_in_a_turn": 2 * math.pi / fastest, "share_of_the_nyquist_rate": fastest / math.pi}


@claim("the-code-is-periodic")
def the_code_is_periodic() -> Numbers:
    """The distance between rows at these offsets, computed from the rows."""
    rows = table(Sinusoidal(width=512), [0, 60_611, 62_832], "float64")
    return {
        "distance_after_one_slowest_turn_at_width_512": float(np.linalg.norm(rows[1] - rows[0])),
        "distance_after_62832_tokens": float(np.linalg.norm(rows[2] - rows[0])),
        "distance_of_unrelated_positions": math.sqrt(512),
    }


@claim("every-pair-turns-in-training")
def every_pair_turns_in_training() -> Numbers:
    """Wavelengths of 64 pairs that exceed a length."""
    waves = [TWO_PI / rate for rate in geometric(64).exact]
    within = sum(wave <= 4096 for wave in waves)
    return {
        "pairs_of_64_that_never_turn_in_4096": 64 - within,
        "pairs_of_64_that_never_turn_in_512": sum(wave > 512 for wave in waves),
        "channels_that_turn_in_4096": 2 * within,
    }


@claim("small-base-repeats")
def small_base_repeats() -> Numbers:
    """The nearest two rows and their distance, from the dot products by offset."""
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
    """The Euclidean distance of the rows of two positions, by their offset from 0 to ``length - 1``: float64.

    ``sqrt(2 (n - sum_i cos(rate_i k)))`` for ``n`` pairs; squares are off by twice `kernel_bound`.
    """
    return np.sqrt(np.maximum(2 * (ladder.pairs - kernel_by_distance(ladder, length)), 0))


@claim("four-to-five-orders")
def four_to_five_orders() -> Numbers:
    """The logarithms of the ratio of fastest to slowest frequency, and the bases for which they are 4 and 5."""

    def orders(ladder: Ladder) -> float:
        return math.log10(ladder.rates[0] / ladder.rates[-1])

    needed = {each: 10 ** (each * 512 / 510) for each in (4, 5)}
    return {
        **{f"orders_at_width_{width}": orders(geometric(width // 2)) for width in (512, 64, 4096)},
        "orders_by_tensor2tensor": orders(geometric(256, span="closed")),
        **{
            f"smallest_base_with_{each}_orders_at_width_512": base
            if math.isclose(orders(geometric(256, base)), each, rel_tol=1e-12)
            else math.nan
            for each, base in needed.items()
        },
        "orders_of_llama_3": orders(geometric(64, 500_000.0)),
    }


@claim("pairs-cover-62000")
def pairs_cover_62000() -> Numbers:
    """The half wavelengths of the ladder of 256 pairs that exceed a distance."""
    waves = np.array(geometric(256).wavelengths)
    apart = distances_apart(geometric(256), 62_001)[1:]
    return {
        "longest_wavelength": waves[-1],
        "half_of_the_longest_wavelength": waves[-1] / 2,
        **{
            f"pairs_within_half_a_rotation_at_{distance}": int((waves / 2 >= distance).sum())
            for distance in (1_000, 10_000, 30_305, 30_306)
        },
        "smallest_distance_up_to_62000": float(apart.min()),
        "offset_of_the_smallest_distance": 1 + int(apart.argmin()),
    }


@claim("base-a-million")
def base_a_million() -> Numbers:
    """The longest wavelength of both ladders with the base 10^6."""
    paper, closed = geometric(256, 1e6), geometric(256, 1e6, span="closed")
    return {
        "divisor_by_the_paper": 1 / paper.rates[-1],
        "longest_wavelength_by_the_paper": paper.wavelengths[-1],
        "longest_wavelength_by_tensor2tensor": closed.wavelengths[-1],
        "share_reached": paper.wavelengths[-1] / closed.wavelengths[-1],
    }


@claim("8192-instead-of-10000")
def base_8192_instead_of_10000() -> Numbers:
    """Wavelengths, distances and dot products of both ladders of 256 pairs."""
    ladders = {base: geometric(256, float(base)) for base in (8192, 10_000)}
    alike = {base: kernel_by_distance(ladder, 512) for base, ladder in ladders.items()}
    apart = {base: distances_apart(ladder, 200_001) for base, ladder in ladders.items()}
    ratios = np.array(ladders[8192].rates) / np.array(ladders[10_000].rates)
    return {
        **{f"longest_wavelength_with_{base}": ladder.wavelengths[-1] for base, ladder in ladders.items()},
        "largest_ratio_of_two_divisors": ratios.max(),
        **{f"nearest_offset_up_to_200000_with_{base}": 1 + int(np.argmin(apart[base][1:])) for base in ladders},
        **{f"distance_of_neighbours_with_{base}": apart[base][1] for base in ladders},
        **{f"dot_product_at_10_tokens_with_{base}": alike[base][10] for base in ladders},
        "largest_change_of_similarity_in_512": float(np.abs(alike[8192] - alike[10_000]).max()) / 256,
    }


@claim("any-large-constant")
def any_large_constant() -> Numbers:
    """Pairs with fewer than 0.01 rotations in 4,096 tokens, and distances of neighbours, by base."""
    ladders = {"100": geometric(256, 100.0)} | {f"ten_to_{n}": geometric(256, 10.0**n) for n in (4, 6, 8)}
    waves = {base: np.array(ladder.wavelengths) for base, ladder in ladders.items()}
    return {
        **{
            f"share_of_pairs_that_hardly_rotate_in_4096_with_{base}": float((4096 / each < 0.01).mean())
            for base, each in waves.items()
        },
        **{f"distance_of_neighbours_with_{base}": distances_apart(each, 2)[1] for base, each in ladders.items()},
        "longest_wavelength_with_100": waves["100"][-1],
        "largest_sine_after_a_hundredth_of_a_rotation": math.sin(2 * math.pi / 100),
    }


@claim("base-tuned-by-experiments")
def base_tuned_by_experiments() -> Numbers:
    """Distances of neighbours by base; the seeds that learn to recall in the study of bases."""
    return {
        **{
            f"distance_of_neighbours_with_base_{base}": distances_apart(geometric(256, float(base)), 2)[1]
            for base in (5_000, 10_000, 20_000)
        },
        **{
            f"measured_seeds_of_3_that_learn_to_recall_with_base_{base}": seeds_that_recall(base)
            for base in (100, 400, 10_000)
        },
        **{
            f"measured_right_recalls_with_base_{base}": measured("base-bound")
            .value("recall", f"base_{base}", "accuracy")
            .mean
            for base in (100, 10_000)
        },
    }


def seeds_that_recall(base: int) -> int:
    """How many models of the study of bases recall at least 0.9 of the keys."""
    shares = measured("base-bound").value("recall", f"base_{base}", "accuracy").seeds.values()
    return sum(share >= 0.9 for share in shares)


@claim("log-form-with-100000")
def log_form_with_100000() -> Numbers:
    """Both ladders of 256 pairs."""
    wrong, right = geometric(256, 100_000.0), geometric(256)
    return {
        "last_divisor": 1 / wrong.rates[-1],
        "last_divisor_with_10000": 1 / right.rates[-1],
        "longest_wavelength": wrong.wavelengths[-1],
        "longest_wavelength_with_10000": right.wavelengths[-1],
        "ratio_of_neighbouring_wavelengths": wrong.rates[0] / wrong.rates[1],
        "ratio_with_10000": right.rates[0] / right.rates[1],
        "pairs_of_256_that_complete_no_rotation_in_512": sum(wave > 512 for wave in wrong.wavelengths),
        "with_10000_complete_no_rotation_in_512": sum(wave > 512 for wave in right.wavelengths),
        "distance_of_neighbours": distances_apart(wrong, 2)[1],
        "distance_of_neighbours_with_10000": distances_apart(right, 2)[1],
    }
