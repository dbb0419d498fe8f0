"""Claims about frequencies and wavelengths: how fast each pair rotates, and after how many tokens its values repeat."""

import math

import numpy as np

from clockhands.encodings.ladders import geometric
from clockhands.measures import kernel_by_distance
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.quantities import divisor, orders_of_magnitude, wavelength


@claim("wavelengths-to-ten-thousand-turns")
def wavelengths_to_ten_thousand_turns() -> Numbers:
    """The last divisor over the base, by width."""
    return {f"share_reached_at_width_{d}": divisor(geometric(d // 2)) / 10_000 for d in (64, 512, 4096)}


@claim("divisor-9956")
def divisor_9956() -> Numbers:
    """The exponent of 9,956."""
    return {"numerator_that_9956_needs": 512 * math.log(9956) / math.log(10_000)}


@claim("ratio-1.036")
def ratio_1036() -> Numbers:
    """The ratio of two neighbours, cut to three decimals, to the power 255."""
    return {"last_divisor_by_the_cut_ratio": 1.036**255}


@claim("fastest-pair-at-nyquist")
def fastest_pair_at_nyquist() -> Numbers:
    """The fastest frequency of a ladder, compared with π."""
    return {"share_of_the_nyquist_rate": max(geometric(256).rates) / math.pi}


@claim("the-code-is-periodic")
def the_code_is_periodic() -> Numbers:
    """Unrelated rows of norm 16 are at right angles."""
    return {"distance_of_unrelated_positions": math.sqrt(512)}


@claim("four-to-five-orders")
def four_to_five_orders() -> Numbers:
    """The bases for which the logarithm of the ratio of fastest to slowest frequency is 4 or 5."""
    needed = {each: 10 ** (each * 512 / 510) for each in (4, 5)}
    return {
        f"smallest_base_with_{each}_orders_at_width_512": base
        if math.isclose(orders_of_magnitude(geometric(256, base)), each, rel_tol=1e-12)
        else math.nan
        for each, base in needed.items()
    }


@claim("pairs-cover-62000")
def pairs_cover_62000() -> Numbers:
    """Half of the longest wavelength of 256 pairs."""
    return {"half_of_the_longest_wavelength": wavelength(geometric(256)) / 2}


@claim("base-a-million")
def base_a_million() -> Numbers:
    """The longest wavelengths of both ladders with the base 10^6."""
    return {"share_reached": wavelength(geometric(256, 1e6)) / wavelength(geometric(256, 1e6, span="closed"))}


@claim("8192-instead-of-10000")
def base_8192_instead_of_10000() -> Numbers:
    """The frequencies and the dot products of both ladders of 256 pairs, compared."""
    one, other = geometric(256, 8192.0), geometric(256)
    changes = kernel_by_distance(one, 512) - kernel_by_distance(other, 512)
    return {
        "largest_ratio_of_two_divisors": max(np.array(one.rates) / np.array(other.rates)),
        "largest_change_of_similarity_in_512": float(np.abs(changes).max()) / 256,
    }


@claim("any-large-constant")
def any_large_constant() -> Numbers:
    """The sine of a hundredth of a rotation."""
    return {"largest_sine_after_a_hundredth_of_a_rotation": math.sin(2 * math.pi / 100)}
