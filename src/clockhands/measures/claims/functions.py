"""Claims about other functions of the position: the index itself, one frequency, sines alone, p², log p, 1/p."""

import math

import numpy as np

from clockhands.encodings.additive import (
    Counter,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.measures import best_linear_map, out_of_order
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.quantities import distance, norm


@claim("index-is-enough")
def index_is_enough() -> Numbers:
    """A row of `Counter` after LayerNorm, added to a token of mean 0 and variance 1."""
    row = table(Counter(width=512), [100], "float64")[0]
    token = np.array([0.0, 0.0] + [math.sqrt(512 / 510), -math.sqrt(512 / 510)] * 255)
    alone, everywhere, in_one = (_layer_norm(token + more) for more in (0.0, row, row * (np.arange(512) == 0)))
    return {
        "norm_of_a_token_of_unit_variance": math.sqrt(512),
        "times_the_token": norm(Counter(width=512), [100]) / math.sqrt(512),
        "change_after_layernorm_if_in_every_dimension": float(np.abs(everywhere - alone).max()),
        "token_divided_by_if_in_one_dimension": float((token[2] - token[3]) / (in_one[2] - in_one[3])),
        "norm_after_layernorm_if_in_one_dimension": float(np.linalg.norm(in_one)),
    }


def _layer_norm(row: np.ndarray) -> np.ndarray:
    """A row less its mean, over its standard deviation."""
    return (row - row.mean()) / row.std()


@claim("normalised-index")
def normalised_index() -> Numbers:
    """`NormalizedCounter` at two lengths; a length of N + 1 gives the divisor N."""

    def values(tokens: int, divisor: int) -> np.ndarray:
        return table(NormalizedCounter(width=1, length=divisor + 1), tokens, "float64")[:, 0]

    short, long, short_by_n, long_by_n = values(10, 9), values(1000, 999), values(10, 10), values(1000, 1000)
    return {
        "step_in_10_tokens": short[1],
        "step_in_1000_tokens": long[1],
        "ratio": short[1] / long[1],
        "step_in_10_tokens_divided_by_N": short_by_n[1],
        "step_in_1000_tokens_divided_by_N": long_by_n[1],
        "ratio_divided_by_N": short_by_n[1] / long_by_n[1],
        "last_of_10_tokens_divided_by_N": short_by_n[-1],
        "last_of_10_tokens_divided_by_N_less_1": short[-1],
    }


@claim("positions-1-and-100-alike")
def positions_1_and_100_alike() -> Numbers:
    """Distances of rows of one frequency."""
    rows = table(SingleFrequency(width=2), 1000, "float64")
    apart = np.linalg.norm(rows - rows[1], axis=1)
    apart[1] = np.inf
    return {
        "distance_at_wavelength_99": distance(SingleFrequency(width=2, rate=2 * math.pi / 99), [1, 100]),
        "nearest_to_position_1_at_rate_1": int(np.argmin(apart)),
        "its_distance": apart.min(),
        "turns_in_99_tokens": 99 / (2 * math.pi),
    }


@claim("sine-alone-is-ambiguous")
def sine_alone_is_ambiguous() -> Numbers:
    """The closest two of the first 355 and of the first 100,000 sines, and of the first 355 points on the circle."""
    sines, many = (np.sort(table(SineOnly(width=1), number, "float64")[:, 0]) for number in (355, 100_000))
    circle = table(Sinusoidal(width=2), 355, "float64")
    # A shift changes no distance, so the row nearest to the first gives the smallest distance of any two.
    apart = np.linalg.norm(circle[1:] - circle[0], axis=1)
    twin = math.pi - 1
    same = abs(float(np.subtract(*table(SineOnly(width=1), [1.0, twin], "float64")[:, 0]))) < 1e-15
    return {
        "distinct_of_355_sines": len(set(sines.tolist())),
        "nearest_two_of_355_sines": float(np.diff(sines).min()),
        "nearest_two_of_100000_sines": float(np.diff(many).min()),
        "nearest_two_of_355_with_the_cosine": apart.min(),
        "real_position_with_the_sine_of_1": twin if same else math.nan,
    }


@claim("cosines-are-decoration")
def cosines_are_decoration() -> Numbers:
    """The residual of the best linear map by one step, with and without cosines."""
    sines, both = (table(spec, 513, "float64") for spec in (SineOnly(width=64), Sinusoidal(width=64)))
    return {
        "share_lost_by_the_best_step_of_64_sines": _lost(sines),
        "share_lost_by_the_best_step_of_32_sines_and_cosines": _lost(both),
    }


def _lost(rows: np.ndarray) -> float:
    """The share of the sum of squares that the best linear map from each row to the next does not explain."""
    before, after = rows[:-1], rows[1:]
    best = np.linalg.lstsq(before, after, rcond=None)[0]
    return float(np.sum((after - before @ best) ** 2) / np.sum(after**2))


@claim("squared-positions")
def squared_positions() -> Numbers:
    """What one fitted matrix leaves; the norm of unrelated rows."""
    return {
        "share_left_by_a_fitted_shift_by_3": _left_by_a_shift("square"),
        "distance_of_unrelated_rows": math.sqrt(512),
        "tokens_moved_by_a_step_at_1000": 1001**2 - 1000**2,
    }


def _left_by_a_shift(warp: str) -> float:
    """The share of the variance of the rows 3 tokens later that a fitted matrix leaves, on a third that is held out.

    Positions 1 to 512; directions below 1e-4 of the largest singular value are left out: the matrix stays small.
    """
    spec = WarpedPosition(width=512, warp=warp)  # type: ignore[arg-type]
    rows = table(spec, range(1, 516), "float64")
    before, after, fitted = rows[:-3], rows[3:], np.arange(512) // 8 % 3 != 1
    matrix, _ = best_linear_map(before[fitted], after[fitted], 1e-4)
    expected = after[~fitted]
    left = expected - before[~fitted] @ matrix.T
    return float((left**2).sum() / ((expected - expected.mean(axis=0)) ** 2).sum())


@claim("logarithmic-positions")
def logarithmic_positions() -> Numbers:
    """What one fitted matrix leaves."""
    return {"share_left_by_a_fitted_shift_by_3": _left_by_a_shift("log")}


@claim("position-in-the-denominator")
def position_in_the_denominator() -> Numbers:
    """What one fitted matrix leaves; half of bfloat16's step above 1 is its step below."""
    return {"bfloat16_step_at_1": 2.0**-8, "share_left_by_a_fitted_shift_by_3": _left_by_a_shift("reciprocal")}


@claim("same-sine-opposite-cosine")
def same_sine_opposite_cosine() -> Numbers:
    """Rows of one pair at 1,000 angles and at what they are short of π, and at two whole positions."""
    angles = np.linspace(-math.pi / 2, math.pi / 2, 1000)
    spec = Sinusoidal(width=2)
    one, other = table(spec, angles, "float64"), table(spec, math.pi - angles, "float64")
    early, late = table(spec, [11, 344], "float64")
    return {
        "largest_difference_of_the_sines": float(np.abs(one[:, 0] - other[:, 0]).max()),
        "largest_sum_of_the_cosines": float(np.abs(one[:, 1] + other[:, 1]).max()),
        "difference_of_the_sines_of_11_and_344": float(abs(early[0] - late[0])),
        "cosine_of_11": early[1],
        "cosine_of_344": late[1],
    }


@claim("counters-have-no-structure")
def counters_have_no_structure() -> Numbers:
    """Steps, order, size and products of `Counter`."""
    rows = table(Counter(width=1), 4096, "float64")[:, 0]
    return {
        "step_at_position_1": rows[2] - rows[1],
        "step_at_position_1001": rows[1002] - rows[1001],
        "pairs_of_distances_out_of_order": out_of_order(-np.abs(rows[:512] - rows[0])),
        "largest_number_in_4096_tokens": int(rows.max()),
        "largest_number_in_64_tokens": int(rows[:64].max()),
        "product_of_1_and_2": int(rows[1] * rows[2]),
        "product_of_1001_and_1002": int(rows[1001] * rows[1002]),
    }
