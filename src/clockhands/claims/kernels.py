"""Claims about dot products and shifts: what two positions have to do with each other."""

import math

import numpy as np

from clockhands.additive import EvenlySpaced, Sinusoidal, table
from clockhands.claims.claim import Numbers, at_most, claim, exactly, near
from clockhands.claims.frequencies import PAPER
from clockhands.clocks import kernel, shift
from clockhands.measures import first_negative, first_rise, kernel_by_distance, out_of_order

SPEC = Sinusoidal(width=512)


@claim(
    "dot-product-of-the-offset",
    "The dot product of two rows depends only on their offset.",
    "true",
    numbers={
        "at_offset_10": near("173.7897"),
        "largest_difference_over_positions": at_most("1.1e-12"),
        "at_offset_10_from_sines_then_cosines": near("173.7897"),
    },
    argument=(
        "sin a sin b + cos a cos b = cos(a − b), so the sum over pairs is Σ cos(rate × offset): the same at position 0 "
        "and at 10^18, in any order of the channels. It is said of the raw rows; learned projections change it."
    ),
    source=PAPER,
)
def dot_product_of_the_offset() -> Numbers:
    """Dot products from rows at several places; entries off by 3.2 ulp of 1 move each by 512 √2 × 3.2 × 2**-52."""
    places = [0, 1, 7, 1000, 10**6, 10**9, 10**18]
    dots = [_dot(SPEC, place, 10) for place in places]
    halves = Sinusoidal(width=512, layout="halves")
    return {
        "at_offset_10": dots[0],
        "largest_difference_over_positions": max(dots) - min(dots),
        "at_offset_10_from_sines_then_cosines": _dot(halves, 1000, 10),
    }


def _dot(spec: Sinusoidal, place: int, offset: int) -> float:
    one, other = table(spec, [place, place + offset], "float64")
    return math.fsum(one * other)


@claim(
    "blind-to-direction",
    "From the dot product of two rows a model can tell which comes first.",
    "false",
    numbers={
        "ten_tokens_ahead": near("173.7897"),
        "ten_tokens_behind": near("173.7897"),
        "difference": at_most("1e-12"),
        "difference_of_the_two_shift_matrices": near("19.84"),
    },
    argument=(
        "Σ cos(rate × offset) is even: ten ahead and ten behind give the same number. The rows themselves know the "
        "direction, since the matrices of the two shifts differ; a projection between the rows can use it."
    ),
    source="Yan et al. 2019, arXiv:1911.04474 (TENER)",
)
def blind_to_direction() -> Numbers:
    """The kernel both ways, and the two shift matrices."""
    ahead, behind = kernel(SPEC, [10, -10])
    return {
        "ten_tokens_ahead": ahead,
        "ten_tokens_behind": behind,
        "difference": ahead - behind,
        "difference_of_the_two_shift_matrices": float(np.linalg.norm(shift(SPEC, 10) - shift(SPEC, -10))),
    }


@claim(
    "monotone-decay",
    "The nearer two positions, the larger their dot product: it decays with the distance.",
    "false",
    numbers={
        "falls_until_at_width_512": exactly(43),
        "share_of_the_first_511_steps_that_rise": near("0.393"),
        "share_of_pairs_of_512_out_of_order": near("0.0633"),
        "first_negative_at_width_512": exactly(3_284),
        "likeness_at_1000": near("0.176"),
        "falls_until_at_width_64": exactly(5),
        "falls_until_at_width_128": exactly(11),
        "falls_until_at_width_1024": exactly(68),
        "first_negative_at_width_64": exactly(725),
        "first_negative_at_width_128": exactly(1_707),
        "first_negative_at_width_1024": exactly(4_075),
    },
    argument=(
        "There is a trend, not a law. At width 512 it falls to distance 43, rises to 44, and 39 % of the first steps "
        "rise; 6.3 % of pairs of distances below 512 are out of order, and from 3,284 on it can be negative."
    ),
    source="computed; the sentence is met in many articles",
)
def monotone_decay() -> Numbers:
    """The kernel by distance, at four widths."""
    found: Numbers = {}
    for width in (64, 128, 512, 1024):
        alike = kernel_by_distance(Sinusoidal(width=width).ladder, 4200)
        found[f"falls_until_at_width_{width}"] = first_rise(alike) or 0
        found[f"first_negative_at_width_{width}"] = first_negative(alike) or 0
        if width == 512:
            near_by = alike[:512]
            found["share_of_the_first_511_steps_that_rise"] = float((np.diff(near_by) > 0).mean())
            found["share_of_pairs_of_512_out_of_order"] = out_of_order(near_by) / math.comb(512, 2)
            found["likeness_at_1000"] = alike[1000] / alike[0]
    return found


@claim(
    "shift-is-linear",
    "PE(p + k) is a linear function of PE(p), with one matrix for every p.",
    "true",
    numbers={
        "largest_difference_at_any_position": at_most("2.4e-15"),
        "largest_difference_of_two_shifts_from_their_sum": at_most("2.4e-15"),
        "largest_difference_from_orthogonal": at_most("2.4e-15"),
    },
    argument=(
        "The matrix turns each pair by k × rate. It is orthogonal, made of 2×2 blocks, and R_j R_k = R_(j+k): moving "
        "by 3 and then by 4 is moving by 7."
    ),
    source=PAPER,
)
def shift_is_linear() -> Numbers:
    """R_7 on rows at several places; entries off by 3.2 ulp of 1 (the matrix by 0.8), turned and rounded."""
    places = [0, 1, 500, 10**6, 10**12, 10**18]
    before, after = (table(SPEC, [place + k for place in places], "float64") for k in (0, 7))
    turn = shift(SPEC, 7)
    return {
        "largest_difference_at_any_position": float(np.abs(after - before @ turn.T).max()),
        "largest_difference_of_two_shifts_from_their_sum": float(np.abs(shift(SPEC, 3) @ shift(SPEC, 4) - turn).max()),
        "largest_difference_from_orthogonal": float(np.abs(turn @ turn.T - np.eye(512)).max()),
    }


@claim(
    "geometric-makes-shifts-linear",
    "It is the geometric progression of frequencies that makes a shift linear.",
    "false",
    numbers={
        "largest_difference_if_evenly_spaced": at_most("2.4e-15"),
        "largest_difference_if_geometric": at_most("2.4e-15"),
    },
    argument=(
        "A sine and a cosine at the same rate make a shift a rotation, whatever the rates are. The progression decides "
        "which distances are told apart, not whether a shift is linear."
    ),
    source="computed with rates at equal distances",
)
def geometric_makes_shifts_linear() -> Numbers:
    """R_7 on rows of two ladders; accuracy as in `shift_is_linear`."""
    found: Numbers = {}
    for name, spec in (("evenly_spaced", EvenlySpaced(width=512)), ("geometric", SPEC)):
        before, after = table(spec, [3, 1000], "float64"), table(spec, [10, 1007], "float64")
        found[f"largest_difference_if_{name}"] = float(np.abs(after - before @ shift(spec, 7).T).max())
    return found


@claim(
    "pairs-must-be-adjacent",
    "The sine and cosine of a pair must stand side by side, or the circle is lost.",
    "false",
    numbers={
        "rows_are_the_same_but_for_their_order": exactly(True),
        "largest_difference_of_dot_products": at_most("3e-11"),
        "largest_difference_of_the_shift": at_most("2.4e-15"),
    },
    argument=(
        "All sines first and then all cosines is the same code with its channels in another order: distances, dot "
        "products and shifts stay. Only what was trained on one order must keep it."
    ),
    source="tensor2tensor and fairseq concatenate sines and cosines; the paper's formula interleaves them",
)
def pairs_must_be_adjacent() -> Numbers:
    """Both layouts' rows; sums of 512 products in another order differ by 2 × 512 × 2**-53 × 256 at most."""
    halves = Sinusoidal(width=512, layout="halves")
    beside, apart = (table(spec, 200, "float64") for spec in (SPEC, halves))
    return {
        "rows_are_the_same_but_for_their_order": bool(
            (np.concatenate([beside[:, 0::2], beside[:, 1::2]], axis=1) == apart).all()
        ),
        "largest_difference_of_dot_products": float(np.abs(beside @ beside.T - apart @ apart.T).max()),
        "largest_difference_of_the_shift": float(np.abs(apart[7:] - apart[:-7] @ shift(halves, 7).T).max()),
    }


@claim(
    "negative-means-far",
    "A negative dot product means that two positions are opposite.",
    "false",
    numbers={
        "smallest_likeness_within_100000": near("-0.148"),
        "likeness_of_opposite_rows": near("-1.0"),
    },
    argument=(
        "Up to 100,000 tokens apart the likeness never falls below −0.15 of its value at 0 (width 512): the rows are "
        "about orthogonal, as random rows are, and never opposite."
    ),
    source="computed at width 512",
)
def negative_means_far() -> Numbers:
    """The smallest number of the kernel by distance."""
    alike = kernel_by_distance(SPEC.ladder, 100_000) / 256
    return {"smallest_likeness_within_100000": alike.min(), "likeness_of_opposite_rows": math.cos(math.pi)}
