"""The numbers of claims about rates, wavelengths and longer texts, from mpmath and plain Python."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from clockhands.claims import CLAIMS, frequencies, longer_texts
from clockhands.claims.claim import Claim


@pytest.fixture(autouse=True)
def forty_digits():
    with mpmath.workdps(40):
        yield


def rates(width, base=10_000, last=None):
    """The ladder of the paper, or with another denominator than d/2."""
    return [mpmath.power(base, -mpf(pair) / (last or width // 2)) for pair in range(width // 2)]


def waves(*arguments):
    return [2 * mp.pi / rate for rate in rates(*arguments)]


def alike(width, base, offsets):
    """Σ cos(rate k) in double precision, term by term."""
    turning = base ** (-np.arange(width // 2) / (width // 2))
    return np.concatenate([np.cos(np.outer(part, turning)).sum(1) for part in np.array_split(offsets, 40)])


def apart(width, base, offsets):
    return np.sqrt(np.maximum(width - 2 * alike(width, base, np.asarray(offsets)), 0))


MEASURED = json.loads((Path(longer_texts.__file__).with_name("real_models.json")).read_text(encoding="utf-8"))
SMOLLM2, LONGER = MEASURED["smollm2"], MEASURED["smollm2_in_twice_its_context"]["recall"]
WITHIN = MEASURED["smollm2_in_its_context"]["recall"]


def of_key(depth, scaling):
    (found,) = (each for each in LONGER if (each["depth"], each["scaling"]) == (depth, scaling))
    return found


LARGE = {"100": 100, "ten_to_4": 10**4, "ten_to_6": 10**6, "ten_to_8": 10**8}

INDEPENDENT = {
    "slowest-wavelength-62832": lambda: {
        "wavelength_by_the_paper": waves(512)[-1],
        "wavelength_by_tensor2tensor": waves(512, 10_000, 255)[-1],
    },
    "wavelengths-to-ten-thousand-turns": lambda: {
        f"share_reached_at_width_{d}": mpmath.power(10_000, -mpf(2) / d) for d in (64, 512, 4096)
    },
    "divisor-9956": lambda: {
        "divisor_by_the_paper": mpmath.power(10_000, mpf(510) / 512),
        "divisor_by_tensor2tensor": mpmath.power(10_000, mpf(255) / 255),
        "divisor_of_the_exponent_511_512": mpmath.power(10_000, mpf(511) / 512),
        "numerator_that_9956_needs": 512 * mpmath.log(9956, 10_000),
    },
    "ratio-1.036": lambda: {
        "ratio_by_the_paper": mpmath.root(10_000, 256),
        "ratio_by_tensor2tensor": mpmath.root(10_000, 255),
        "last_divisor_by_the_cut_ratio": mpmath.exp(255 * mpmath.log(mpf("1.036"))),
        "last_divisor_by_the_paper": mpmath.root(10_000, 256) ** 255,
    },
    "lower-dimensions-change-slowly": lambda: {
        "first_wavelength": 2 * mp.pi,
        "last_wavelength": waves(512)[-1],
        # 2 pi 10000**(i/256) <= 100
        "pairs_that_turn_within_100_tokens": 1 + int(mpmath.floor(256 * mpmath.log(100 / (2 * mp.pi), 10_000))),
    },
    "ten-thousand-is-a-length-limit": lambda: {
        "turns_of_the_slowest_pair_at_10000": 10_000 / waves(512)[-1],
        "distinct_rows_of_20000_in_float32": different_hands(20_000),
        "largest_number_at_position_ten_to_18": max(
            max(abs(mpmath.sin(10**18 * rate)), abs(mpmath.cos(10**18 * rate))) for rate in rates(64)
        ),
    },
    "fastest-pair-at-nyquist": lambda: {"tokens_in_a_turn": 2 * mp.pi, "share_of_the_nyquist_rate": 1 / mp.pi},
    "the-code-is-periodic": lambda: {
        "distance_after_one_slowest_turn_at_width_512": exact_distance(512, 10_000, 60_611),
        "distance_after_62832_tokens": exact_distance(512, 10_000, 62_832),
        "distance_of_unrelated_positions": mpmath.sqrt(512),
    },
    "every-pair-turns-in-training": lambda: {
        "pairs_of_64_that_never_turn_in_4096": sum(wave > 4096 for wave in waves(128)),
        "pairs_of_64_that_never_turn_in_512": sum(wave > 512 for wave in waves(128)),
        # 2 ceil(d/2 log_base(T / 2 pi)), Liu et al. 2023
        "channels_that_turn_in_4096": 2 * int(mpmath.ceil(64 * mpmath.log(4096 / (2 * mp.pi), 10_000))),
    },
    "small-base-repeats": lambda: {
        "slowest_wavelength_at_width_512": waves(512, 100)[-1],
        "nearest_offset_up_to_200000": 1 + int(np.argmin(apart(512, 100.0, range(1, 20_001)))),
        "distance_of_neighbours": exact_distance(512, 100, 1),
        "distance_after_617_tokens": exact_distance(512, 100, 617),
    },
    "four-to-five-orders": lambda: {
        **{f"orders_at_width_{d}": 4 * mpf(d - 2) / d for d in (512, 64, 4096)},
        "orders_by_tensor2tensor": mpf(4),
        "smallest_base_with_4_orders_at_width_512": mpmath.power(10, mpf(4) * 256 / 255),
        "smallest_base_with_5_orders_at_width_512": mpmath.power(10, mpf(5) * 256 / 255),
        "orders_of_llama_3": mpf(63) / 64 * mpmath.log10(500_000),
    },
    "pairs-cover-62000": lambda: {
        "longest_wavelength": waves(512)[-1],
        "half_of_the_longest_wavelength": mp.pi * mpmath.power(10_000, mpf(255) / 256),
        # pi 10000**(i/256) >= distance
        **{
            f"pairs_within_half_a_rotation_at_{each}": 256 - int(mpmath.ceil(256 * mpmath.log(each / mp.pi, 10_000)))
            for each in (1_000, 10_000, 30_305, 30_306)
        },
        "smallest_distance_up_to_62000": exact_distance(512, 10_000, 1),
        "offset_of_the_smallest_distance": 1 + int(np.argmin(apart(512, 10_000.0, range(1, 62_001)))),
    },
    "base-a-million": lambda: {
        "divisor_by_the_paper": mpmath.power(10, mpf(6) * 255 / 256),
        "longest_wavelength_by_the_paper": 2 * mp.pi * mpmath.power(10, mpf(6) * 255 / 256),
        "longest_wavelength_by_tensor2tensor": 2 * mp.pi * 10**6,
        "share_reached": mpmath.power(10, -mpf(6) / 256),
    },
    "8192-instead-of-10000": lambda: {
        "largest_ratio_of_two_divisors": mpmath.power(mpf(10_000) / 8192, mpf(255) / 256),
        "largest_change_of_similarity_in_512": abs(
            alike(512, 8192.0, np.arange(512)) - alike(512, 10_000.0, np.arange(512))
        ).max()
        / 256,
        **{
            f"{name}_with_{base}": number
            for base in (8192, 10_000)
            for name, number in {
                "longest_wavelength": waves(512, base)[-1],
                "nearest_offset_up_to_200000": 1 + int(np.argmin(apart(512, float(base), range(1, 20_001)))),
                "distance_of_neighbours": exact_distance(512, base, 1),
                "dot_product_at_10_tokens": sum(mpmath.cos(10 * rate) for rate in rates(512, base)),
            }.items()
        },
    },
    "any-large-constant": lambda: {
        **{
            f"share_of_pairs_that_hardly_rotate_in_4096_with_{name}": mpf(
                sum(wave > 409_600 for wave in waves(512, base))
            )
            / 256
            for name, base in LARGE.items()
        },
        **{f"distance_of_neighbours_with_{name}": exact_distance(512, base, 1) for name, base in LARGE.items()},
        "longest_wavelength_with_100": waves(512, 100)[-1],
        "largest_sine_after_a_hundredth_of_a_rotation": mpmath.sin(mp.pi / 50),
    },
    "base-tuned-by-experiments": lambda: {
        f"distance_of_neighbours_with_base_{base}": exact_distance(512, base, 1) for base in (5_000, 10_000, 20_000)
    },
    "log-form-with-100000": lambda: {
        "last_divisor": mpmath.exp(mpmath.log(100_000) * 510 / 512),
        "last_divisor_with_10000": mpmath.exp(mpmath.log(10_000) * 510 / 512),
        "longest_wavelength": waves(512, 100_000)[-1],
        "longest_wavelength_with_10000": waves(512)[-1],
        "ratio_of_neighbouring_wavelengths": mpmath.root(100_000, 256),
        "ratio_with_10000": mpmath.root(10_000, 256),
        "pairs_of_256_that_complete_no_rotation_in_512": sum(wave > 512 for wave in waves(512, 100_000)),
        "with_10000_complete_no_rotation_in_512": sum(wave > 512 for wave in waves(512)),
        "distance_of_neighbours": exact_distance(512, 100_000, 1),
        "distance_of_neighbours_with_10000": exact_distance(512, 10_000, 1),
    },
    "sinusoids-extrapolate": lambda: {
        "largest_number_at_a_million": max(
            max(abs(mpmath.sin(10**6 * rate)), abs(mpmath.cos(10**6 * rate))) for rate in rates(512)
        ),
        "distinct_rows_of_65536": different_hands(65_536),
        "pairs_of_256_with_unseen_angles_at_1024": sum(wave > 512 for wave in waves(512)),
    },
    "rotary-any-length": lambda: {
        "pairs_of_64_with_unseen_angles_past_4096": sum(wave > 4096 for wave in waves(128)),
        "largest_trained_turn_of_the_slowest_pair": 4096 / waves(128)[-1],
        "its_turn_at_four_times_the_length": 16_384 / waves(128)[-1],
    },
    "learned-tables-end": lambda: {
        "position_511_has_a_row": 511 in range(512),
        "position_512_is_refused": 512 not in range(512),
    },
    "interpolation-divides-the-rates": lambda: {"ratio_of_the_rates": mpf(4)},
    "larger-base-is-interpolation": lambda: {
        "slowing_of_the_fastest_pair": mpf(1),
        "slowing_of_the_middle_pair": mpmath.power(4, mpf(32) / 63),
        "slowing_of_the_slowest_pair": mpf(4),
        "base_that_does_it": 10_000 * mpmath.power(4, mpf(128) / 126),
    },
    "ntk-keeps-the-fastest-pair": lambda: {
        "fastest_rate_is_the_same": mpmath.power(4, mpf(0) / 63) == 1,
        "pairs_of_64_that_are_the_same": sum(mpmath.power(4, mpf(pair) / 63) == 1 for pair in range(64)),
        "slowing_of_the_second_pair": mpmath.root(4, 63),
    },
    "yarn-leaves-high-frequencies": lambda: {
        **split([yarn_slowing(pair) for pair in range(64)], 4),
        "factor_on_cosine_and_sine": mpf(1) + mpmath.log(4) / 10,
    },
    "llama3-29-6-29": lambda: split([llama_slowing(8192 / wave) for wave in waves(128, 500_000)], 8),
    "yarn-without-training": lambda: {
        "slowest_turn_trained": 4096 / waves(128)[-1],
        "slowest_turn_at_four_times_the_length": 16_384 / waves(128)[-1] / yarn_slowing(63),
        "middle_turns_trained": 4096 / waves(128)[32],
        "middle_turns_at_four_times_the_length": 16_384 / waves(128)[32] / yarn_slowing(32),
        "in_smollm2_keys_recalled_of_2_in_its_context": int(sum(each["greedy"] for each in WITHIN)),
        "in_smollm2_keys_recalled_of_2_in_twice_its_context_with_yarn": int(
            of_key(0.1, "yarn")["greedy"] + of_key(0.9, "yarn")["greedy"]
        ),
        "in_smollm2_keys_recalled_of_2_in_twice_its_context_without_yarn": int(
            of_key(0.1, None)["greedy"] + of_key(0.9, None)["greedy"]
        ),
        "in_smollm2_log_probability_of_a_far_key_with_yarn": of_key(0.1, "yarn")["log_probability"],
        "in_smollm2_log_probability_of_a_near_key_with_yarn": of_key(0.9, "yarn")["log_probability"],
        "in_smollm2_log_probability_of_a_near_key_without_yarn": of_key(0.9, None)["log_probability"],
        "in_smollm2_log_probability_of_a_key_that_was_not_given": of_key(None, None)["log_probability"],
    },
    "low-frequencies-carry-meaning": lambda: {
        "turn_of_the_slowest_pair_in_8192_tokens_base_10000": 8192 / waves(256)[-1],
        "its_cosine_there": mpmath.cos(8192 * rates(256)[-1]),
        "turn_of_the_slowest_pair_in_8192_tokens_base_500000": 8192 / waves(128, 500_000)[-1],
        # `test_mechanism_on_real_models.py` measures these again.
        "in_smollm2_share_of_the_slower_half": 1 - sum(SMOLLM2["share_of_query_and_key"][:16]),
        "in_smollm2_nats_without_the_fastest_quarter": SMOLLM2["groups"][0]["removed"]["nats"],
        "in_smollm2_nats_if_it_does_not_rotate": SMOLLM2["groups"][0]["unrotated"]["nats"],
        "in_smollm2_nats_without_the_slowest_quarter": SMOLLM2["groups"][3]["removed"]["nats"],
        "in_smollm2_nats_if_that_does_not_rotate": SMOLLM2["groups"][3]["unrotated"]["nats"],
    },
    "far-positions-look-alike": lambda: {
        "nearest_offset_at_width_8": 1 + int(np.argmin(apart(8, 10_000.0, range(1, 200_001)))),
        "its_distance": exact_distance(8, 10_000, 169_646),
        "distance_of_neighbours_at_width_8": exact_distance(8, 10_000, 1),
        "nearest_offset_at_width_64": 1 + int(np.argmin(apart(64, 10_000.0, range(1, 200_001)))),
        "nearest_offset_at_width_512": 1 + int(np.argmin(apart(512, 10_000.0, range(1, 20_001)))),
    },
    "base-10000-for-any-length": lambda: {
        "first_distance_at_which_likeness_counts_against_base_10000": fails_at(10_000),
        "first_distance_with_base_500000": fails_at(500_000),
        "smallest_sound_base_for_4096_tokens_in_thousands": smallest_sound(4096) / 1000,
        "first_distance_with_base_100_in_16_pairs": fails_at(100, 16),
    },
    "larger-base-is-safer": lambda: {
        f"base_{base}_fails_at": fails_at(base) for base in (26_960, 28_000, 35_000, 60_000)
    },
}


def fails_at(base, pairs=64):
    """The first distance with a negative sum over the pairs, each hand turned on token by token."""
    hands, turn = np.ones(pairs, complex), np.exp(1j * float(base) ** (-np.arange(pairs) / pairs))
    for distance in range(20_000):
        if hands.real.sum() < 0:
            return distance
        hands *= turn
    raise AssertionError("no sum is negative")


def smallest_sound(length):
    """By trying bases from 20,000 on in steps of 1/1000, which step over no sound stretch before the first of them."""

    def sound(base):
        return np.cos(np.outer(np.arange(1, length), base ** (-np.arange(64) / 64))).sum(1).min() >= 0

    base = 20_000.0
    while not sound(base):
        base *= 1.001
    low, high = base / 1.001, base
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if sound(middle) else (middle, high)
    return high


def different_hands(number):
    """How many positions the first pair alone tells apart in float32."""
    return len({(np.float32(math.sin(place)), np.float32(math.cos(place))) for place in range(number)})


def exact_distance(width, base, offset):
    return mpmath.sqrt(2 * sum(1 - mpmath.cos(rate * offset) for rate in rates(width, base)))


def yarn_slowing(pair):
    """By 4 from 4,096 at head width 128: ramp from floor(c(32)) = 20 to ceil(c(1)) = 46, worked out by hand."""
    begin = math.floor(64 * math.log(4096 / (32 * 2 * math.pi)) / math.log(10_000))
    end = math.ceil(64 * math.log(4096 / (2 * math.pi)) / math.log(10_000))
    assert (begin, end) == (20, 46)
    ramp = min(max(mpf(pair - begin) / (end - begin), 0), 1)
    return 1 / (ramp / 4 + 1 - ramp)


def llama_slowing(turns):
    kept = min(max((turns - 1) / (4 - 1), 0), 1)
    return 1 / ((1 - kept) / 8 + kept)


def split(slowing, factor):
    kept, divided = sum(each == 1 for each in slowing), sum(each == factor for each in slowing)
    return {
        "pairs_kept": kept,
        "pairs_blended": len(slowing) - kept - divided,
        f"pairs_divided_by_{factor}": divided,
    }


@pytest.mark.parametrize("name", INDEPENDENT)
def test_another_way_gives_the_same(name, agrees):
    agrees(name, INDEPENDENT[name]())


def test_no_claim_is_left_out():
    told = [
        each.id for module in (frequencies, longer_texts) for each in vars(module).values() if isinstance(each, Claim)
    ]
    assert set(told) == set(INDEPENDENT)
    assert set(told) <= set(CLAIMS)


def test_another_number_does_not_agree(agrees):
    right = INDEPENDENT["divisor-9956"]()
    with pytest.raises(AssertionError, match=r"9956"):
        agrees("divisor-9956", right | {"divisor_by_the_paper": mpf(9956)})
