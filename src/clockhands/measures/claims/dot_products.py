"""Claims about dot products and shifts: how the encodings of two positions are related."""

import math

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.clocks import kernel, shift
from clockhands.measures import kernel_by_distance
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.quantities import dot_product

SPEC = Sinusoidal(width=512)


@claim("dot-product-of-the-offset")
def dot_product_of_the_offset() -> Numbers:
    """Dot products from rows at several places; entries off by 3.2 ulp of 1 move each by 512 √2 × 3.2 × 2**-52."""
    dots = [dot_product(SPEC, [place, place + 10]) for place in (0, 1, 7, 1000, 10**6, 10**9, 10**18)]
    return {"largest_difference_over_positions": max(dots) - min(dots)}


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


@claim("shift-is-linear")
def shift_is_linear() -> Numbers:
    """R_7 and the rotations by 3 and 4; entries are off by 0.8 ulp of 1."""
    turn = shift(SPEC, 7)
    return {
        "largest_difference_of_two_shifts_from_their_sum": float(np.abs(shift(SPEC, 3) @ shift(SPEC, 4) - turn).max()),
        "largest_difference_from_orthogonal": float(np.abs(turn @ turn.T - np.eye(512)).max()),
    }


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
    }


@claim("negative-means-far")
def negative_means_far() -> Numbers:
    """The smallest dot product by distance."""
    alike = kernel_by_distance(SPEC.ladder, 100_000) / 256
    return {"smallest_likeness_within_100000": alike.min(), "likeness_of_opposite_rows": math.cos(math.pi)}
