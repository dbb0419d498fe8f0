"""Claims about dot products and shifts: how the encodings of two positions are related."""

import math

import numpy as np

from clockhands.encodings.additive import EvenlySpaced, Sinusoidal, table
from clockhands.encodings.clocks import kernel, shift
from clockhands.measures import first_negative, first_rise, kernel_by_distance, out_of_order
from clockhands.measures.claims.claim import Numbers, claim

SPEC = Sinusoidal(width=512)


@claim("dot-product-of-the-offset")
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


@claim("blind-to-direction")
def blind_to_direction() -> Numbers:
    """The kernel both ways, and the two shift matrices."""
    ahead, behind = kernel(SPEC, [10, -10])
    return {
        "ten_tokens_ahead": ahead,
        "ten_tokens_behind": behind,
        "difference": ahead - behind,
        "difference_of_the_two_shift_matrices": float(np.linalg.norm(shift(SPEC, 10) - shift(SPEC, -10))),
    }


@claim("monotone-decay")
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


@claim("shift-is-linear")
def shift_is_linear() -> Numbers:
    """R_7 on rows at several places; entries off by 3.2 ulp of 1 (the matrix by 0.8), rotated and rounded."""
    places = [0, 1, 500, 10**6, 10**12, 10**18]
    before, after = (table(SPEC, [place + k for place in places], "float64") for k in (0, 7))
    turn = shift(SPEC, 7)
    return {
        "largest_difference_at_any_position": float(np.abs(after - before @ turn.T).max()),
        "largest_difference_of_two_shifts_from_their_sum": float(np.abs(shift(SPEC, 3) @ shift(SPEC, 4) - turn).max()),
        "largest_difference_from_orthogonal": float(np.abs(turn @ turn.T - np.eye(512)).max()),
    }


@claim("geometric-makes-shifts-linear")
def geometric_makes_shifts_linear() -> Numbers:
    """R_7 on rows with geometric and with other frequencies; accuracy as in `shift_is_linear`."""
    found: Numbers = {}
    for name, spec in (("evenly_spaced", EvenlySpaced(width=512)), ("geometric", SPEC)):
        before, after = table(spec, [3, 1000], "float64"), table(spec, [10, 1007], "float64")
        found[f"largest_difference_if_{name}"] = float(np.abs(after - before @ shift(spec, 7).T).max())
    return found


@claim("pairs-must-be-adjacent")
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


@claim("negative-means-far")
def negative_means_far() -> Numbers:
    """The smallest dot product by distance."""
    alike = kernel_by_distance(SPEC.ladder, 100_000) / 256
    return {"smallest_likeness_within_100000": alike.min(), "likeness_of_opposite_rows": math.cos(math.pi)}
