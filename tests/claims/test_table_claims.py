"""The numbers of claims about tables and other functions of the position, from mpmath and plain Python."""

import math
import struct
from itertools import combinations, pairwise

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from clockhands.claims import functions, table_rows
from clockhands.claims.claim import Claim


@pytest.fixture(autouse=True)
def forty_digits():
    with mpmath.workdps(40):
        yield


def rates(width):
    return [mpmath.power(10_000, -mpf(2 * pair) / width) for pair in range(width // 2)]


def row(width, position, of=rates):
    """Sines, then cosines."""
    angles = [position * rate for rate in of(width)]
    return [mpmath.sin(angle) for angle in angles] + [mpmath.cos(angle) for angle in angles]


def between(one, other):
    return mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))


def doubles(width, positions):
    """The table in double precision, sines and cosines by halves."""
    angles = np.outer(positions, 10_000.0 ** (-np.arange(width // 2) / (width // 2)))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def bits_of_bfloat16(number):
    """A double cut to the 8 significant bits of bfloat16, to nearest, ties to even, by hand on its bits."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return (bits + (1 << 44) - 1 + ((bits >> 45) & 1)) >> 45


def bits_of_float16(number):
    return struct.pack("<e", number)


def first_again(round_to, rates=(1.0,), most=1024):
    seen = {}
    for position in range(most):
        row = tuple(round_to(wave(position * rate)) for rate in rates for wave in (math.sin, math.cos))
        if row in seen:
            return seen[row], position
        seen[row] = position
    raise AssertionError("no two rows are alike")


def row_in_float32(position):
    """Sine and cosine of a whole number to 40 digits, then rounded as NumPy rounds a double that is as near."""
    return [np.float32(wave(mpf(position))) for wave in (mpmath.sin, mpmath.cos)]


def whole_in_bfloat16(position):
    (number,) = struct.unpack("<d", struct.pack("<Q", bits_of_bfloat16(position) << 45))
    return int(number)


def whole_in_float16(position):
    return int(struct.unpack("<e", struct.pack("<e", position))[0])


def first_merged(rounded):
    return next(position for position in range(4096) if rounded(position) != position)


def missing_likeness():
    """The mean of 1 - cos(10000**-s): by the cosine integral, with u = 10000**-s."""
    full = mpmath.log(10_000)
    return (mp.euler + full - (mpmath.ci(1) - mpmath.ci(mpf(10) ** -4)) - mp.euler) / full


def rounded_rows(width, number, round_to):
    table = doubles(width, np.arange(number))
    return len({tuple(map(round_to, each)) for each in table.tolist()})


def even_row(position):
    step = (mpf(1) - mpf("1e-4")) / 255
    angles = [position * (1 - pair * step) for pair in range(256)]
    return [mpmath.sin(angle) for angle in angles] + [mpmath.cos(angle) for angle in angles]


def far_apart(width, most):
    """How far rows k apart are, k from 1, by sums of cosines."""
    turning = 10_000.0 ** (-np.arange(width // 2) / (width // 2))
    parts = np.array_split(np.arange(1, most + 1), 20)
    return np.sqrt(width - 2 * np.concatenate([np.cos(np.outer(part, turning)).sum(1) for part in parts]))


def spectrum():
    """Variances along principal directions from the covariance, not from the table."""
    table = doubles(512, np.arange(512))
    centred = table - table.mean(0)
    energy = np.sort(np.linalg.eigvalsh(centred @ centred.T))[::-1]
    reached = np.cumsum(energy) / energy.sum()
    return {
        "dimensions_with_90_percent_of_the_variance": int((reached < 0.9).sum()) + 1,
        "dimensions_with_99_percent": int((reached < 0.99).sum()) + 1,
        "participation_ratio": energy.sum() ** 2 / (energy**2).sum(),
        "share_of_the_mean_row_in_the_norm": np.sqrt((table.mean(0) ** 2).sum() / 256),
    }


def cosines_of_rows():
    """By offset: every two of 512 rows at offset k have the cosine Σ cos(rate k) / 256."""
    turning = 10_000.0 ** (-np.arange(256) / 256)
    by_offset = np.cos(np.outer(np.arange(512), turning)).mean(1)
    pairs = np.arange(512, 0, -1)
    table = doubles(512, np.arange(512))
    slow = table[:, 510:]  # the last two cosines: both all but 1
    return {
        "cosine_of_neighbouring_rows": by_offset[1],
        "smallest_cosine_of_512_rows": by_offset.min(),
        "mean_size_of_cosine_of_two_rows": (abs(by_offset[1:]) * pairs[1:]).sum() / pairs[1:].sum(),
        "largest_cosine_of_two_channels_over_512_rows": (
            (slow[:, 0] * slow[:, 1]).sum() / math.sqrt((slow[:, 0] ** 2).sum() * (slow[:, 1] ** 2).sum())
        ),
    }


def nearest_sines():
    """The closest two of 355 sines, by trying all pairs: |sin p - sin q| = 2 |sin((p-q)/2) cos((p+q)/2)|."""
    p, q = np.triu_indices(355, 1)
    return float(np.abs(2 * np.sin((p - q) / 2) * np.cos((p + q) / 2)).min())


def nearest_of_all_sines(number):
    """The closest two sines, to 40 digits: those of the ten nearest neighbours among the sorted ones."""
    order = sorted(range(number), key=math.sin)
    near = sorted(pairwise(order), key=lambda two: math.sin(two[1]) - math.sin(two[0]))[:10]
    return min(abs(mpmath.sin(q) - mpmath.sin(p)) for p, q in near)


def out_of_order_by_pairs():
    """The share of pairs of offsets below 512 whose larger one has the larger sum of cosines, pair by pair."""
    turning = 10_000.0 ** (-np.arange(256) / 256)
    alike = np.cos(np.outer(np.arange(512), turning)).sum(1)
    near, far = np.triu_indices(512, 1)
    return (alike[near] < alike[far]).mean()


def linear(inputs, outputs):
    return inputs * outputs + outputs


NORM = 2 * 768


def bert_base():
    """BERT base, matrix by matrix, with its biases, its LayerNorms and its pooler."""
    layer = 4 * linear(768, 768) + NORM + linear(768, 3072) + linear(3072, 768) + NORM
    return 30_522 * 768 + 512 * 768 + 2 * 768 + NORM + 12 * layer + linear(768, 768)


def gpt2():
    """The smallest GPT-2, matrix by matrix; its output shares the words' table."""
    layer = NORM + linear(768, 3 * 768) + linear(768, 768) + NORM + linear(768, 3072) + linear(3072, 768)
    return 50_257 * 768 + 1024 * 768 + 12 * layer + NORM


def lost_by_the_best_step():
    """The residual of a projection, by an orthonormal basis of the columns instead of least squares."""
    turning = 10_000.0 ** (-np.arange(64) / 64)
    table = np.sin(np.outer(np.arange(513), turning))
    left, sizes, _ = np.linalg.svd(table[:-1], full_matrices=False)
    basis = left[:, sizes > 512 * 2.0**-52 * sizes[0]]
    after = table[1:]
    return ((after - basis @ (basis.T @ after)) ** 2).sum() / (after**2).sum()


def steps_of_64_sines():
    turning = 10_000.0 ** (-np.arange(64) / 64)
    middle = np.outer(np.arange(511) + 0.5, turning)
    return np.sqrt(((2 * np.sin(turning / 2) * np.cos(middle)) ** 2).sum(1))


def warped_steps(warp):
    def step(place):
        one, other = warp(mpf(place)), warp(mpf(place + 1))
        # Turning by rate × (g(p + 1) - g(p)): |step|² = Σ 2 (1 - cos)
        return mpmath.sqrt(sum(2 * (1 - mpmath.cos(rate * (other - one))) for rate in rates(512)))

    return {f"step_at_{place}": step(place) for place in (1, 100, 1000)}


def distance(width, offset):
    return mpmath.sqrt(2 * sum(1 - mpmath.cos(rate * offset) for rate in rates(width)))


INDEPENDENT = {
    "unique-for-every-position": lambda: {
        "distinct_of_65536_at_width_4_in_float32": rounded_rows(4, 65_536, np.float32),
        "distinct_of_65536_at_width_4_in_float16": rounded_rows(4, 65_536, bits_of_float16),
        "distinct_of_65536_at_width_4_in_bfloat16": rounded_rows(4, 65_536, bits_of_bfloat16),
        # eight of the 64 channels are already enough
        "distinct_of_65536_at_width_64_in_bfloat16": rounded_rows(8, 65_536, bits_of_bfloat16),
        "first_two_alike_at_width_4_in_bfloat16": first_again(bits_of_bfloat16, (1.0, 0.01), 90_000)[0],
        "the_same_again_at_width_4_in_bfloat16": first_again(bits_of_bfloat16, (1.0, 0.01), 90_000)[1],
    },
    "two-channels-are-enough": lambda: {
        "distinct_of_65536_in_float32": rounded_rows(2, 65_536, np.float32),
        "first_two_alike_in_float16": first_again(bits_of_float16)[0],
        "the_same_again_in_float16": first_again(bits_of_float16)[1],
        "first_two_alike_in_bfloat16": first_again(bits_of_bfloat16)[0],
        "the_same_again_in_bfloat16": first_again(bits_of_bfloat16)[1],
        "turns_in_710_tokens": 355 / mp.pi,
        "rows_1804_and_10840506_are_the_same_in_float32": row_in_float32(1_804) == row_in_float32(10_840_506),
    },
    "positions-in-bfloat16": lambda: {
        "distinct_of_4096_in_bfloat16": len(set(map(whole_in_bfloat16, range(4096)))),
        "distinct_of_4096_in_float16": len(set(map(whole_in_float16, range(4096)))),
        "first_position_that_merges_in_bfloat16": first_merged(whole_in_bfloat16),
        "first_position_that_merges_in_float16": first_merged(whole_in_float16),
    },
    "unique-for-real-positions": lambda: {
        f"period_at_width_{width}": 2 * mp.pi * mpmath.power(10_000, 1 - mpf(2) / width) for width in (2, 4, 8)
    },
    "unique-up-to-62000": lambda: {
        "nearest_offset_up_to_200000": 1 + int(np.argmin(far_apart(512, 20_000))),
        "distance_of_neighbours": distance(512, 1),
        "distance_after_62832_tokens": distance(512, 62_832),
    },
    "step-shrinks-with-width": lambda: {
        **{f"distance_at_width_{width}": distance(width, 1) for width in (64, 128, 512, 4096)},
        "distance_over_root_of_width_in_the_limit": mpmath.sqrt(missing_likeness()),
    },
    "neighbours-nearly-alike": lambda: {
        "cosine_at_width_512": sum(mpmath.cos(rate) for rate in rates(512)) / 256,
        "cosine_in_the_limit": 1 - missing_likeness(),
        "distance_over_norm_in_the_limit": mpmath.sqrt(2 * missing_likeness()),
    },
    "constant-norm": lambda: {"norm_at_width_512": mpmath.sqrt(sum(each**2 for each in row(512, 10**18)))},
    "sinusoids-orthogonal": cosines_of_rows,
    "all-channels-are-used": spectrum,
    "any-different-frequencies-do": lambda: {
        "tokens_until_each_pair_gains_a_turn_on_the_next": 2 * mp.pi * 255 / (1 - mpf("1e-4")),
        "distance_after_1602_tokens_if_evenly_spaced": between(even_row(0), even_row(1602)),
        "distance_of_neighbours_if_evenly_spaced": between(even_row(0), even_row(1)),
        "distance_after_1602_tokens_if_geometric": between(row(512, 0), row(512, 1602)),
    },
    "binary-counting": lambda: {
        "factor_between_bits": mpf(2),
        "factor_between_pairs_at_width_512": mpmath.root(10_000, 256),
        "bits_that_flip_from_2046_to_2047": (2046 ^ 2047).bit_count(),
        "bits_that_flip_from_2047_to_2048": (2047 ^ 2048).bit_count(),
        "pairs_in_one_octave": 256 * mpmath.log(2, 10_000),
        "octaves_of_the_ladder": mpmath.log(10_000, 2) * 255 / 256,
    },
    "index-is-enough": lambda: {
        "norm_at_position_100_and_width_512": 100 * mpmath.sqrt(512),
        "norm_of_a_token_of_unit_variance": mpmath.sqrt(512),
        "times_the_token": mpf(100),
        # The variance of a token is 1, that of a lone 100 among 512 numbers 100²/512 − (100/512)².
        "token_divided_by_if_in_one_dimension": mpmath.sqrt(1 + mpf(100**2) / 512 * (1 - mpf(1) / 512)),
        "norm_after_layernorm_if_in_one_dimension": mpmath.sqrt(512),
    },
    "normalised-index": lambda: {
        "step_in_10_tokens": mpf(1) / 9,
        "step_in_1000_tokens": mpf(1) / 999,
        "ratio": mpf(999) / 9,
        "step_in_10_tokens_divided_by_N": mpf(1) / 10,
        "step_in_1000_tokens_divided_by_N": mpf(1) / 1000,
        "ratio_divided_by_N": mpf(1000) / 10,
        "last_of_10_tokens_divided_by_N": mpf(9) / 10,
        "last_of_10_tokens_divided_by_N_less_1": mpf(9) / 9,
    },
    "positions-1-and-100-alike": lambda: {
        "distance_at_rate_1": abs(2 * mpmath.sin(mpf(99) / 2)),
        "nearest_to_position_1_at_rate_1": 1 + min(range(1, 999), key=lambda k: abs(math.sin(k / 2))),
        "its_distance": abs(2 * mpmath.sin(mpf(710) / 2)),
        "turns_in_99_tokens": 99 / (2 * mp.pi),
    },
    "sine-alone-is-ambiguous": lambda: {
        "distinct_of_355_sines": len({math.sin(place) for place in range(355)}),
        "nearest_two_of_355_sines": nearest_sines(),
        "nearest_two_of_100000_sines": nearest_of_all_sines(100_000),
        "nearest_two_of_355_with_the_cosine": min(abs(2 * mpmath.sin(mpf(k) / 2)) for k in range(1, 355)),
        "real_position_with_the_sine_of_1": mp.pi - 1,
    },
    "same-sine-opposite-cosine": lambda: {
        "difference_of_the_sines_of_11_and_344": abs(2 * mpmath.cos(mpf(355) / 2) * mpmath.sin(mpf(333) / 2)),
        "cosine_of_11": mpmath.cos(11),
        "cosine_of_344": mpmath.cos(344),
        "distance_of_11_and_344": abs(2 * mpmath.sin(mpf(333) / 2)),
    },
    "counters-have-no-structure": lambda: {
        "step_at_position_1": mpf(2 - 1),
        "step_at_position_1001": mpf(1002 - 1001),
        "pairs_of_distances_out_of_order": sum(a >= b for a, b in combinations(range(512), 2)),
        "share_out_of_order_for_sinusoids": out_of_order_by_pairs(),
        "largest_number_in_4096_tokens": max(range(4096)),
        "largest_number_in_64_tokens": max(range(64)),
        "product_of_1_and_2": 1 * 2,
        "product_of_1001_and_1002": 1001 * 1002,
    },
    "sinusoids-are-cheaper": lambda: {
        "learned_numbers_of_bert_base": 512 * 768,
        "parameters_of_bert_base": bert_base(),
        "share_of_bert_base": mpf(512 * 768) / bert_base(),
        "learned_numbers_of_gpt2": 1024 * 768,
        "parameters_of_gpt2": gpt2(),
        "share_of_gpt2": mpf(1024 * 768) / gpt2(),
        "megabytes_to_train_the_table_of_bert_base": mpf(512 * 768 * 16) / 10**6,
        "megabytes_of_the_table_of_bert_base": mpf(512 * 768 * 4) / 10**6,
        "megabytes_of_as_many_sinusoids": mpf(512 * 768 * 4) / 10**6,
    },
    "cosines-are-decoration": lambda: {
        "share_lost_by_the_best_step_of_64_sines": lost_by_the_best_step(),
        "smallest_step_of_64_sines": steps_of_64_sines().min(),
        "largest_step_of_64_sines": steps_of_64_sines().max(),
        "step_of_32_sines_and_cosines": distance(64, 1),
    },
    "squared-positions": lambda: {
        **warped_steps(lambda place: place**2),
        "distance_of_unrelated_rows": mpmath.sqrt(512),
        "tokens_moved_by_a_step_at_1000": 2 * 1000 + 1,
    },
    "logarithmic-positions": lambda: {
        **warped_steps(mpmath.log),
        "step_at_1000_of_the_sinusoid": distance(512, 1),
    },
    "position-in-the-denominator": lambda: {
        **warped_steps(lambda place: 1 / place),
        "bfloat16_step_at_1": mpf(1) / 256,
    },
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_another_way_gives_the_same(name, agrees):
    agrees(name, INDEPENDENT[name]())


def test_no_claim_is_left_out():
    told = [each.id for module in (table_rows, functions) for each in vars(module).values() if isinstance(each, Claim)]
    assert set(told) == set(INDEPENDENT)


def test_another_number_does_not_agree(agrees):
    right = INDEPENDENT["positions-in-bfloat16"]()
    with pytest.raises(AssertionError, match=r"distinct_of_4096"):
        agrees("positions-in-bfloat16", right | {"distinct_of_4096_in_bfloat16": 768})
