"""Claims about other functions of the position: the index itself, one frequency, sines alone, p², log p, 1/p."""

import math

import numpy as np

from clockhands.additive import (
    Counter,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.claims.claim import Numbers, claim


@claim("index-is-enough")
def index_is_enough() -> Numbers:
    """The norm of a row of `Counter`."""
    norm = float(np.linalg.norm(table(Counter(width=512), [100], "float64")))
    return {
        "norm_at_position_100_and_width_512": norm,
        "norm_of_a_token_of_unit_variance": math.sqrt(512),
        "times_the_token": norm / math.sqrt(512),
    }


@claim("normalised-index")
def normalised_index() -> Numbers:
    """Steps of `NormalizedCounter` at two lengths."""
    short, long = (
        float(np.diff(table(NormalizedCounter(width=1, length=n), 2, "float64"), axis=0)[0, 0]) for n in (10, 1000)
    )
    return {"step_in_10_tokens": short, "step_in_1000_tokens": long, "ratio": short / long}


@claim("positions-1-and-100-alike")
def positions_1_and_100_alike() -> Numbers:
    """Distances of rows of one frequency."""
    rows = table(SingleFrequency(width=2), 1000, "float64")
    apart = np.linalg.norm(rows - rows[1], axis=1)
    apart[1] = np.inf
    turn = table(SingleFrequency(width=2, rate=2 * math.pi / 99), [1, 100], "float64")
    return {
        "distance_at_rate_1": apart[100],
        "distance_at_wavelength_99": float(np.linalg.norm(turn[1] - turn[0])),
        "nearest_to_position_1_at_rate_1": int(np.argmin(apart)),
        "its_distance": apart.min(),
        "turns_in_99_tokens": 99 / (2 * math.pi),
    }


@claim("sine-alone-is-ambiguous")
def sine_alone_is_ambiguous() -> Numbers:
    """The closest two of the first 355 sines, and of the first 355 points on the circle."""
    sines = np.sort(table(SineOnly(width=1), 355, "float64")[:, 0])
    circle = table(Sinusoidal(width=2), 355, "float64")
    # A shift is the same everywhere, so the nearest row to the first is the nearest of any two.
    apart = np.linalg.norm(circle[1:] - circle[0], axis=1)
    twin = math.pi - 1
    same = abs(float(np.subtract(*table(SineOnly(width=1), [1.0, twin], "float64")[:, 0]))) < 1e-15
    return {
        "distinct_of_355_sines": len(set(sines.tolist())),
        "nearest_two_of_355_sines": float(np.diff(sines).min()),
        "nearest_two_of_355_with_the_cosine": apart.min(),
        "real_position_with_the_sine_of_1": twin if same else math.nan,
    }


@claim("cosines-are-decoration")
def cosines_are_decoration() -> Numbers:
    """The residual of the best linear map by one step, with and without cosines."""
    sines, both = (table(spec, 513, "float64") for spec in (SineOnly(width=64), Sinusoidal(width=64)))
    steps = np.linalg.norm(np.diff(sines[:512], axis=0), axis=1)
    return {
        "share_lost_by_the_best_step_of_64_sines": _lost(sines),
        "share_lost_by_the_best_step_of_32_sines_and_cosines": _lost(both),
        "smallest_step_of_64_sines": steps.min(),
        "largest_step_of_64_sines": steps.max(),
        "step_of_32_sines_and_cosines": float(np.linalg.norm(both[1] - both[0])),
    }


def _lost(rows: np.ndarray) -> float:
    """The share of the squares that the best linear map from each row to the next does not make."""
    before, after = rows[:-1], rows[1:]
    best = np.linalg.lstsq(before, after, rcond=None)[0]
    return float(np.sum((after - before @ best) ** 2) / np.sum(after**2))


@claim("squared-positions")
def squared_positions() -> Numbers:
    """Distances of neighbours at three positions."""
    return {
        **_steps("square"),
        "distance_of_unrelated_rows": math.sqrt(512),
        "tokens_moved_by_a_step_at_1000": 1001**2 - 1000**2,
    }


def _steps(warp: str) -> Numbers:
    """How far the next row is, at positions 1, 100 and 1,000."""
    spec = WarpedPosition(width=512, warp=warp)  # type: ignore[arg-type]
    rows = {place: table(spec, [place, place + 1], "float64") for place in (1, 100, 1000)}
    return {f"step_at_{place}": float(np.linalg.norm(two[1] - two[0])) for place, two in rows.items()}


@claim("logarithmic-positions")
def logarithmic_positions() -> Numbers:
    """Distances of neighbours at three positions."""
    usual = table(Sinusoidal(width=512), [1000, 1001], "float64")
    return {**_steps("log"), "step_at_1000_of_the_sinusoid": float(np.linalg.norm(usual[1] - usual[0]))}


@claim("position-in-the-denominator")
def position_in_the_denominator() -> Numbers:
    """Distances of neighbours at three positions; half of bfloat16's step above 1 is its step below."""
    return {**_steps("reciprocal"), "bfloat16_step_at_1": 2.0**-8}
