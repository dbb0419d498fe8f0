"""The numbers of claims about dot products, rotary codes, biases and rounding, from mpmath and plain Python."""

import cmath
import math

import mpmath
import numpy as np
from mpmath import mpf

from measures.claims.ladders import rates
from measures.claims.roundings import brain, single


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


def ladder_by_exp(rounded):
    factor = rounded(-math.log(10_000) / 512)
    return [rounded(float(mpmath.exp(rounded(2 * pair * factor)))) for pair in range(256)]


def ladder_by_power(rounded):
    return [rounded(1 / rounded(float(mpmath.power(10_000, rounded(2 * pair / 512))))) for pair in range(256)]


def worst_rate(ladder):
    return max(abs(rate / exact - 1) for rate, exact in zip(ladder, rates(512), strict=True))


def worst_angle(ladder):
    return max(131_072 * abs(rate - exact) for rate, exact in zip(ladder, rates(512), strict=True))


def float32_angle_error(base):
    """The largest error of an angle at the last 64 of 131,072 positions, frequency and product each rounded once."""
    # The lower half of the frequencies is far from the largest error, which is at most position x frequency x 2**-23.
    high = [rate for rate in rates(512, base) if rate > 0.01]
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
