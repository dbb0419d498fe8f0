"""The numbers of claims about tables and other functions of the position, from mpmath and plain Python."""

import math
from itertools import pairwise

import mpmath
import numpy as np
from mpmath import mp, mpf

from measures.claims.ladders import alike, rates


def row(width, position):
    """Sines, then cosines."""
    angles = [position * rate for rate in rates(width)]
    return [mpmath.sin(angle) for angle in angles] + [mpmath.cos(angle) for angle in angles]


def between(one, other):
    return mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))


def doubles(width, positions):
    """The table in double precision, sines and cosines by halves."""
    angles = np.outer(positions, 10_000.0 ** (-np.arange(width // 2) / (width // 2)))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def first_again(round_to, rates=(1.0,), most=1024):
    seen = {}
    for position in range(most):
        row = tuple(round_to(wave(position * rate)) for rate in rates for wave in (math.sin, math.cos))
        if row in seen:
            return seen[row], position
        seen[row] = position
    raise AssertionError("no two rows are alike")


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
    by_offset = alike(512, 10_000.0, np.arange(512)) / 256
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


def nearest_of_all_sines(number):
    """The closest two sines, to 40 digits: those of the ten nearest neighbours among the sorted ones."""
    order = sorted(range(number), key=math.sin)
    near = sorted(pairwise(order), key=lambda two: math.sin(two[1]) - math.sin(two[0]))[:10]
    return min(abs(mpmath.sin(q) - mpmath.sin(p)) for p, q in near)


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


def uniform_rates():
    """Distances of rows whose 256 frequencies are drawn uniformly, from the parts of the rows themselves."""
    turning = np.random.default_rng(0).uniform(1e-4, 1, 256)
    apart = [np.linalg.norm(np.exp(1j * turning * offset) - 1) for offset in range(1, 20_001)]
    return {
        "distance_of_neighbours_if_drawn_uniformly": apart[0],
        "smallest_distance_of_others_up_to_20000_if_drawn_uniformly": min(apart[1:]),
    }


def left_by_a_shift(warp):
    """What a matrix fitted to runs of eight positions, but for every third one, leaves of the others; by `pinv`."""
    turning = 10_000.0 ** (-np.arange(256) / 256)
    hands = np.exp(1j * np.multiply.outer(warp(np.arange(1.0, 516.0)), turning))
    rows = np.concatenate([hands.real, hands.imag], axis=1)
    fitted = np.arange(512) // 8 % 3 != 1
    matrix = np.linalg.pinv(rows[:-3][fitted], rcond=1e-4) @ rows[3:][fitted]
    wanted = rows[3:][~fitted]
    return ((wanted - rows[:-3][~fitted] @ matrix) ** 2).sum() / ((wanted - wanted.mean(0)) ** 2).sum()
