"""The numbers of claims about dot products, rotary codes, biases and rounding, from mpmath and plain Python."""

import cmath
import math
import struct
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

from clockhands.claims import dot_products, precision, rotations, score_biases
from clockhands.claims.claim import Claim


@pytest.fixture(autouse=True)
def forty_digits():
    with mpmath.workdps(40):
        yield


def rates(width):
    return [mpmath.power(10_000, -mpf(2 * pair) / width) for pair in range(width // 2)]


def alike(width, offset):
    return sum(mpmath.cos(rate * offset) for rate in rates(width))


def by_distance(width, number):
    """Σ cos(rate k), one multiplication a token: each hand is turned on from where it stands."""
    hands = np.ones(width // 2, complex)
    turn = np.exp(1j * 10_000.0 ** (-np.arange(width // 2) / (width // 2)))
    found = np.empty(number)
    for place in range(number):
        found[place] = hands.real.sum()
        hands *= turn
    return found


def decay(width):
    found = by_distance(width, 4200).tolist()
    return {
        f"falls_until_at_width_{width}": next(k for k in range(4199) if found[k + 1] > found[k]),
        f"first_negative_at_width_{width}": next(k for k in range(4200) if found[k] < 0),
    }


def monotone_decay():
    near = by_distance(512, 512).tolist()
    wrong = sum(near[k] < near[j] for k in range(512) for j in range(k + 1, 512))
    return {
        **decay(64), **decay(128), **decay(512), **decay(1024),
        "share_of_the_first_511_steps_that_rise": sum(near[k + 1] > near[k] for k in range(511)) / 511,
        "share_of_pairs_of_512_out_of_order": wrong / (512 * 511 / 2),
        "likeness_at_1000": alike(512, 1000) / 256,
    }  # fmt: skip


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def halves(x):
    return x[..., : x.shape[-1] // 2] + 1j * x[..., x.shape[-1] // 2 :]


def neighbours(x):
    return x[..., 0::2] + 1j * x[..., 1::2]


def turned(pairs, places):
    """Complex pairs, turned by position × rate in double precision: positions here are small."""
    number = pairs.shape[-1]
    return pairs * np.exp(1j * np.outer(places, 10_000.0 ** (-np.arange(number) / number)))


def scores(queries, keys):
    return (queries @ keys.conj().T).real


def layouts():
    queries, keys = drawn(2, 64, 128)
    places = np.arange(64)
    right, wrong = (
        scores(turned(pairs(queries), places), turned(pairs(keys), places)) for pairs in (halves, neighbours)
    )
    return {"change_of_scores_if_the_weights_stay": math.sqrt(((wrong - right) ** 2).mean() / (right**2).mean())}


def backward():
    """|z e^(-ia) - z e^(ia)| = 2 |sin a| |z|."""
    _, keys = drawn(2, 64, 128)
    sizes = abs(halves(keys)) ** 2
    angles = np.outer(np.arange(64), 10_000.0 ** (-np.arange(64) / 64))
    return {"change_of_keys": math.sqrt((4 * np.sin(angles) ** 2 * sizes).sum() / sizes.sum())}


def score_of_ten():
    query, key = drawn(2, 1, 128)
    return {"size_of_the_score": scores(turned(halves(query), [10]), halves(key))[0, 0]}


def key_turned_by_100():
    sizes = abs(halves(drawn(1, 128))[0]) ** 2
    turning = 10_000.0 ** (-np.arange(64) / 64)
    by_distance_of_it = [(sizes * np.cos((k - 100) * turning)).sum() for k in range(1, 1001)]
    ones = by_distance(128, 512).tolist()
    return {
        "distance_of_the_largest_score_of_a_key_turned_by_100": 1 + int(np.argmax(by_distance_of_it)),
        "share_of_the_first_511_steps_that_rise_for_equal_ones": sum(ones[k + 1] > ones[k] for k in range(511)) / 511,
        # An orthogonal matrix of 128 rows of length 1
        "size_of_unrelated_scores_at_distance_1": mpmath.sqrt(128),
        "size_of_unrelated_scores_at_distance_1000": mpmath.sqrt(128),
    }


def sine_twice():
    sines = [[float(mpmath.sin(place * rate)) for rate in rates(64)] for place in range(64)]
    norms = [math.sqrt(2 * sum(sine**2 for sine in row) / 32) for row in sines]
    changed = before = 0.0
    for q in range(32):
        for k in range(32):
            for pair in range(32):
                old, new = 2 * sines[q][pair] * sines[k][pair], 2 * sines[q + 32][pair] * sines[k + 32][pair]
                changed, before = changed + (new - old) ** 2, before + old**2
    x, sine = 1.0, sines[5][0]  # (x, 0) -> (x sin - 0, 0 + x sin)
    return {
        "norm_at_position_0": norms[0],
        "mean_norm_over_32_positions": sum(norms[:32]) / 32,
        "change_of_scores_by_a_shift_of_32": math.sqrt(changed / before),
        "angle_of_the_turn_at_any_position": math.degrees(cmath.phase(complex(x * sine, x * sine))) % 180,
    }


def t5_bucket(distance, buckets, most=128):
    """As the paper's code counts: half of the buckets exact, the others by the logarithm."""
    exact = buckets // 2
    if distance < exact:
        return distance
    more = mpmath.log(mpf(distance) / exact) / mpmath.log(mpf(most) / exact) * (buckets - exact)
    return min(exact + int(mpmath.floor(more + mpf(10) ** -30)), buckets - 1)


def t5():
    found = [t5_bucket(distance, 32) for distance in range(301)]
    return {
        "buckets": len(set(found)),
        "distances_with_a_bucket_of_their_own": sum(found.count(bucket) == 1 for bucket in range(32)),
        "first_distance_of_the_last_bucket": found.index(31),
        "learned_numbers_of_12_heads": 32 * 12,
    }


def attention_of(slope, of):
    """Shares of 64 keys for each of 64 queries."""
    found = []
    for q in range(64):
        weights = [math.exp(-slope * of(q, k)) for k in range(64)]
        found.append([weight / math.fsum(weights) for weight in weights])
    return np.array(found)


def symmetric_differs():
    slopes = [2.0**-head for head in range(1, 9)]
    return max(
        abs(attention_of(slope, lambda q, k: q - k) - attention_of(slope, lambda q, k: abs(q - k))).max()
        for slope in slopes
    )


def single(number):
    """The nearest float32."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def half(number):
    """The nearest float16."""
    return struct.unpack("<e", struct.pack("<e", number))[0]


def brain(number):
    """The nearest bfloat16."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return struct.unpack("<d", struct.pack("<Q", (bits + (1 << 44) - 1 + ((bits >> 45) & 1)) >> 45 << 45))[0]


def ladder_by_exp(rounded):
    factor = rounded(-math.log(10_000) / 512)
    return [rounded(float(mpmath.exp(rounded(2 * pair * factor)))) for pair in range(256)]


def ladder_by_power(rounded):
    return [rounded(1 / rounded(float(mpmath.power(10_000, rounded(2 * pair / 512))))) for pair in range(256)]


def worst_rate(ladder):
    return max(abs(rate / exact - 1) for rate, exact in zip(ladder, rates(512), strict=True))


def worst_angle(ladder):
    return max(131_072 * abs(rate - exact) for rate, exact in zip(ladder, rates(512), strict=True))


def of_base(base):
    return [mpmath.power(base, -mpf(pair) / 256) for pair in range(256)]


def float32_angle_error(base):
    """The largest error of an angle at the last 64 of 131,072 positions, frequency and product each rounded once."""
    # The lower half of the frequencies is far from the largest error, which is at most position x frequency x 2**-23.
    high = [rate for rate in of_base(base) if rate > 0.01]
    return max(abs(single(at * single(float(rate))) - at * rate) for rate in high for at in range(131_008, 131_072))


def drifted(place):
    ladder = [single(float(rate)) for rate in rates(512)]
    rows = [
        [single(of(single(position * rate))) for rate in ladder for of in (math.sin, math.cos)]
        for position in (place, place + 10)
    ]
    return math.fsum(one * other for one, other in zip(*rows, strict=True))


def undrifted(place):
    rows = [
        [single(float(of(position * rate))) for rate in rates(512) for of in (mpmath.sin, mpmath.cos)]
        for position in (place, place + 10)
    ]
    return math.fsum(one * other for one, other in zip(*rows, strict=True))


def usual_error():
    return max(abs(math.sin(single(10**6 * single(float(rate)))) - mpmath.sin(10**6 * rate)) for rate in rates(512))


def angle_errors(place):
    return [abs(single(place * single(float(rate))) - place * rate) for rate in rates(128)]


def each(rounded, numbers):
    return np.vectorize(rounded, otypes=[float])(numbers)


def bfloat16_scores():
    queries, keys = drawn(2, 64, 64)
    ladder = [float(rate) for rate in rates(64)]

    def angles(shift):
        return np.array([[brain(brain(shift + place) * brain(rate)) for rate in ladder] for place in range(64)])

    def float32(shift):
        return np.array([[single((shift + place) * single(rate)) for rate in ladder] for place in range(64)])

    def with_angles(made):
        return lambda shift: scores(halves(queries) * np.exp(1j * made(shift)), halves(keys) * np.exp(1j * made(shift)))

    def with_hands(shift):
        exact = [[(shift + place) * rate for rate in rates(64)] for place in range(64)]
        cosine, sine = (
            np.array([[brain(single(float(of(angle)))) for angle in row] for row in exact])
            for of in (mpmath.cos, mpmath.sin)
        )
        both = []
        for x in (queries, keys):
            first, second = np.split(each(brain, x), 2, axis=-1)
            moved = np.concatenate([first * cosine - second * sine, first * sine + second * cosine], axis=-1)
            both.append(each(brain, moved))
        return both[0] @ both[1].T

    def change(made, shift):
        first = made(0)
        return math.sqrt(((made(shift) - first) ** 2).mean() / (first**2).mean())

    return {
        **{
            f"change_by_a_shift_of_{shift}_if_angles_are_bfloat16": change(with_angles(angles), shift)
            for shift in (16, 256, 4096)
        },
        **{
            f"change_by_a_shift_of_{shift}_if_only_hands_and_heads_are": change(with_hands, shift)
            for shift in (16, 131_072)
        },
        "change_by_a_shift_of_131072_in_float32": change(with_angles(float32), 131_072),
    }


INDEPENDENT = {
    "dot-product-of-the-offset": lambda: {
        "at_offset_10": alike(512, 10),
        "at_offset_10_from_sines_then_cosines": alike(512, 10),
    },
    "blind-to-direction": lambda: {
        "ten_tokens_ahead": alike(512, 10),
        "ten_tokens_behind": alike(512, -10),
        # R - R^T of a turn by a has the two entries 2 sin a
        "difference_of_the_two_shift_matrices": mpmath.sqrt(sum(8 * mpmath.sin(10 * rate) ** 2 for rate in rates(512))),
    },
    "monotone-decay": monotone_decay,
    "shift-is-linear": dict,
    "geometric-makes-shifts-linear": dict,
    "pairs-must-be-adjacent": lambda: {"rows_are_the_same_but_for_their_order": True},
    "negative-means-far": lambda: {
        "smallest_likeness_within_100000": by_distance(512, 100_000).min() / 256,
        "likeness_of_opposite_rows": mpf(-1),
    },
    "rotation-keeps-norms": lambda: {"channels_that_stay_if_half_turn": 128 - 64},
    "identity-at-position-0": lambda: {"queries_are_the_same_bit_for_bit": True},
    "scores-depend-on-distance": score_of_ten,
    "rotary-scores-decay": key_turned_by_100,
    "rotary-is-the-sinusoid": lambda: {
        # (1, 1) turned by a against (1, 1): 2 cos a
        "score_of_ones_at_distance_10": 2 * alike(128, 10),
        "twice_the_dot_product_of_sinusoids": 2 * alike(128, 10),
    },
    "layouts-are-interchangeable": layouts,
    "turning-backward": backward,
    "cached-keys-are-fixed": dict,
    "sine-table-twice": sine_twice,
    "t5-base-1000": t5,
    "t5-any-distance": lambda: {
        "distances_told_apart_of_1000_in_the_decoder": len({t5_bucket(distance, 32) for distance in range(1000)}),
        "distances_told_apart_of_1000_in_the_encoder": len({t5_bucket(distance, 16) for distance in range(1000)}),
        "bucket_of_113": t5_bucket(113, 32),
        "bucket_of_100000": t5_bucket(100_000, 32),
        "first_distance_of_the_last_bucket_in_the_encoder": [t5_bucket(k, 16) for k in range(128)].index(15),
    },
    "alibi-slopes-geometric": lambda: {
        "first_slope_of_8_heads": Fraction(1, 2),
        "last_slope_of_8_heads": Fraction(1, 256),
        "ratio_of_slopes_of_8_heads": Fraction(1, 2),
        "ninth_slope_of_12_heads": mpmath.power(2, mpf(-8) / 16),
        "ninth_slope_of_12_heads_by_the_text": mpmath.power(2, mpf(-8) * 9 / 12),
    },
    "alibi-slopes-from-a-quarter": lambda: {
        "first_slope": Fraction(1, 2),
        "last_slope": Fraction(1, 256),
        "factor_on_every_bias_if_one_step_late": Fraction(1, 4) / Fraction(1, 2),
    },
    "alibi-needs-distances": lambda: {"difference_of_the_symmetric_form_without_a_mask": symmetric_differs()},
    "alibi-uses-longer-context": lambda: {
        "heads_of_8_that_reach_1024_tokens": sum(10 * 2**head >= 1024 for head in range(1, 9)),
        "a_bias_of_10_divides_a_share_by": mpmath.exp(10),
        "reach_of_the_steepest_head": mpf(20),
        "reach_of_the_flattest_head": mpf(2560),
        # A geometric series with ratio e^-1/2; 4,096 terms are all of it
        "share_of_the_last_20_tokens_in_the_steepest_head": 1 - mpmath.exp(-10),
    },
    "alibi-slopes-are-essential": lambda: {
        "slopes_that_stay_if_all_are_halved": len(set(range(2, 10)) & set(range(1, 9))),
        "reach_of_the_steepest_head_then": mpf(10) * 4,
        "octaves_of_reach_with_8_heads": mpf(8 - 1),
    },
    "log-form-for-stability": lambda: {
        "relative_error_by_exp_in_float32": worst_rate(ladder_by_exp(single)),
        "relative_error_by_power_in_float32": worst_rate(ladder_by_power(single)),
        "relative_error_by_exp_in_float16": worst_rate(ladder_by_exp(half)),
        "relative_error_by_power_in_float16": worst_rate(ladder_by_power(half)),
        "largest_power": 1 / rates(512)[-1],
    },
    "log-form-for-angles": lambda: {
        "angle_error_at_131072_by_exp": worst_angle(ladder_by_exp(single)),
        "angle_error_at_131072_by_power": worst_angle(ladder_by_power(single)),
        "angle_error_at_131072_by_rounding_the_exact_rate": worst_angle([single(float(rate)) for rate in rates(512)]),
    },
    "large-base-is-unstable": lambda: {
        **{f"angle_error_up_to_131071_with_ten_to_{n}": float32_angle_error(10**n) for n in (4, 6, 8)},
        **{
            f"frequency_error_in_float16_with_ten_to_{n}": max(
                abs(half(float(rate)) / rate - 1) for rate in of_base(10**n)
            )
            for n in (4, 6)
        },
        # The smallest number of float16 is 2**-24; what is half of it or less becomes 0.
        "frequencies_of_256_that_are_0_in_float16_with_ten_to_8": sum(rate <= mpf(2) ** -25 for rate in of_base(10**8)),
    },
    "float32-keeps-the-offset-form": lambda: {
        "exact": alike(512, 10),
        "drifted_at_100000": drifted(100_000),
        "drifted_at_1000000": drifted(1_000_000),
        "from_exact_angles_at_100000": undrifted(100_000),
        "from_exact_angles_at_1000000": undrifted(1_000_000),
    },
    "float32-fails-at-a-million": lambda: {"largest_error_of_the_usual_code_at_a_million": usual_error()},
    "fastest-pair-suffers-most": lambda: {
        "error_of_pair_0_at_32768": angle_errors(32_768)[0],
        "error_of_pair_0_at_131071": angle_errors(131_071)[0],
        "largest_error_at_131071": max(angle_errors(131_071)),
        "pair_with_the_largest_error": int(np.argmax([float(error) for error in angle_errors(131_071)])),
    },
    "rotary-in-bfloat16": bfloat16_scores,
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_another_way_gives_the_same(name, agrees):
    agrees(name, INDEPENDENT[name]())


def test_no_claim_is_left_out():
    files = (dot_products, rotations, score_biases, precision)
    told = [each.id for module in files for each in vars(module).values() if isinstance(each, Claim)]
    assert set(told) == set(INDEPENDENT)


def test_another_number_does_not_agree(agrees):
    right = INDEPENDENT["t5-base-1000"]()
    with pytest.raises(AssertionError, match=r"buckets"):
        agrees("t5-base-1000", right | {"buckets": 31})


def test_the_roundings_are_those_of_the_formats():
    assert (single(1 + 2**-24), single(1 + 3 * 2**-25)) == (1.0, 1 + 2**-23)
    assert (half(2049), brain(257), brain(259)) == (2048, 256, 260)
    assert mp.pi > 3
