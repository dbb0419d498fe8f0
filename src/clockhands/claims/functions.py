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
from clockhands.claims.claim import Numbers, at_most, claim, exactly, near


@claim(
    "index-is-enough",
    "One could simply add the index 0, 1, 2, … to the token.",
    "false",
    numbers={
        "norm_at_position_100_and_width_512": near("2,262.7"),
        "norm_of_a_token_of_unit_variance": near("22.6"),
        "times_the_token": near("100.0"),
    },
    argument=(
        "The index has no bound: at position 100 it is a hundred times the size of a token of unit variance, and "
        "layer normalisation then leaves hardly anything of the token. A sinusoid has the norm 16 everywhere."
    ),
    source="computed at width 512",
)
def index_is_enough() -> Numbers:
    """The norm of a row of `Counter`."""
    norm = float(np.linalg.norm(table(Counter(width=512), [100], "float64")))
    return {
        "norm_at_position_100_and_width_512": norm,
        "norm_of_a_token_of_unit_variance": math.sqrt(512),
        "times_the_token": norm / math.sqrt(512),
    }


@claim(
    "normalised-index",
    "The index divided by the length, from 0 to 1, is bounded and therefore a good code.",
    "false",
    numbers={"step_in_10_tokens": near("0.1111"), "step_in_1000_tokens": near("0.001001"), "ratio": near("111.0")},
    argument=(
        "The same distance then means other things in other texts: a step is 1/9 in ten tokens and 1/999 in a "
        "thousand, and the code of a token changes when the text grows."
    ),
    source="computed at width 1",
)
def normalised_index() -> Numbers:
    """Steps of `NormalizedCounter` at two lengths."""
    short, long = (
        float(np.diff(table(NormalizedCounter(width=1, length=n), 2, "float64"), axis=0)[0, 0]) for n in (10, 1000)
    )
    return {"step_in_10_tokens": short, "step_in_1000_tokens": long, "ratio": short / long}


@claim(
    "positions-1-and-100-alike",
    "With a single frequency positions 1 and 100 would get the same code.",
    "only if",
    condition="the wavelength divides 99 tokens, such as 99, 33, 11 or 9.",
    numbers={
        "distance_at_rate_1": near("1.3858"),
        "distance_at_wavelength_99": at_most("1e-14"),
        "nearest_to_position_1_at_rate_1": exactly(711),
        "its_distance": near("6.03e-5"),
        "turns_in_99_tokens": near("15.76"),
    },
    argument=(
        "At 1 rad per token 99 tokens are 15.76 turns, so 1 and 100 are far apart. In real numbers no two whole "
        "positions are alike at that rate; the first near miss is 710 tokens away."
    ),
    source="computed; the example is met in articles",
)
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


@claim(
    "sine-alone-is-ambiguous",
    "Sines without cosines are ambiguous: two positions share the same code.",
    "only if",
    condition="positions are real numbers: whole ones never share a sine at 1 rad per token, but come very near.",
    numbers={
        "distinct_of_355_sines": exactly(355),
        "nearest_two_of_355_sines": near("1.33e-7"),
        "nearest_two_of_355_with_the_cosine": near("0.00882"),
        "real_position_with_the_sine_of_1": near("2.14159"),
    },
    argument=(
        "sin p = sin q needs p − q or p + q to be a multiple of π, and none is a whole number. But p + q near 355 = "
        "113π is enough in practice: two sines differ by 1.3e-7, where with the cosine 0.0088 is the least."
    ),
    source="computed; sin(π − 1) = sin 1 shows the real case",
)
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


@claim(
    "cosines-are-decoration",
    "Sines at enough frequencies would do as well; the cosines add nothing.",
    "false",
    numbers={
        "share_lost_by_the_best_step_of_64_sines": near("0.071"),
        "share_lost_by_the_best_step_of_32_sines_and_cosines": at_most("1e-20"),
        "smallest_step_of_64_sines": near("0.756"),
        "largest_step_of_64_sines": near("1.819"),
        "step_of_32_sines_and_cosines": near("1.472"),
    },
    argument=(
        "sin(a + b) needs cos a. No matrix makes the next row from a row of sines: the best one loses 7 % over 512 "
        "positions. And a step is 0.76 in one place and 1.82 in another, where the pairs have 1.47 everywhere."
    ),
    source="computed at width 64: least squares from rows 0 to 511 to rows 1 to 512",
)
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


@claim(
    "squared-positions",
    "Any function of the position will do in the sine, p² for instance.",
    "false",
    numbers={
        "step_at_1": near("9.41"),
        "step_at_100": near("17.96"),
        "step_at_1000": near("21.67"),
        "distance_of_unrelated_rows": near("22.63"),
        "tokens_moved_by_a_step_at_1000": exactly(2_001),
    },
    argument=(
        "A step from p turns the hands by 2p + 1 tokens' worth, so there is no one matrix for a shift, and steps grow: "
        "from position 1,000 on neighbours are almost as far apart as unrelated rows."
    ),
    source="computed at width 512 with the paper's ladder",
)
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


@claim(
    "logarithmic-positions",
    "Using log p in the sine suits long texts, since far positions matter less.",
    "false",
    numbers={
        "step_at_1": near("2.604"),
        "step_at_100": near("0.03776"),
        "step_at_1000": near("0.00379"),
        "step_at_1000_of_the_sinusoid": near("3.714"),
    },
    argument=(
        "It is the position, not the distance, whose logarithm is taken: neighbours at position 1,000 are a thousand "
        "times closer than in the usual code, however near the query is to them."
    ),
    source="computed at width 512 with the paper's ladder",
)
def logarithmic_positions() -> Numbers:
    """Distances of neighbours at three positions."""
    usual = table(Sinusoidal(width=512), [1000, 1001], "float64")
    return {**_steps("log"), "step_at_1000_of_the_sinusoid": float(np.linalg.norm(usual[1] - usual[0]))}


@claim(
    "position-in-the-denominator",
    "The position may stand in the denominator: sin(1/(p · 10000^(2i/d))).",
    "false",
    numbers={
        "step_at_1": near("1.887"),
        "step_at_100": near("3.76e-4"),
        "step_at_1000": near("3.79e-6"),
        "bfloat16_step_at_1": near("0.0039"),
    },
    argument=(
        "All far positions are then almost 1/p = 0: the step falls as 1/p², to 3.8e-6 at position 1,000, a thousandth "
        "of what bfloat16 tells apart near 1. Position 0 has no code at all."
    ),
    source="computed at width 512 with the paper's ladder; the formula is met in articles, by misreading a fraction",
)
def position_in_the_denominator() -> Numbers:
    """Distances of neighbours at three positions; half of bfloat16's step above 1 is its step below."""
    return {**_steps("reciprocal"), "bfloat16_step_at_1": 2.0**-8}
