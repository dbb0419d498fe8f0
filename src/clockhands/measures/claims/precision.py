"""Claims about rounding: which rounding errors matter, and where.

Float32 arithmetic is emulated step by step: products and quotients are rounded by NumPy; powers, exponentials, sines
and cosines are computed in double precision and then rounded, so that the numbers do not depend on a machine's
libraries.
"""

import math

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.ladders import geometric
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.rotary.rotating import cosine_sine
from clockhands.measures import phase_errors
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.rotations import drawn

FLOAT32, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)


@claim("log-form-for-stability")
def log_form_for_stability() -> Numbers:
    """The largest relative error of ``exp(2i × (−ln 10,000 / d))`` with every step in float16, the factor too."""
    factor = np.asarray(-math.log(10_000) / 512).astype(FLOAT16)
    rates = np.exp((np.arange(0, 512, 2).astype(FLOAT16) * factor).astype(float)).astype(FLOAT16).astype(float)
    return {"relative_error_by_exp_in_float16": float(np.abs(rates / np.array(geometric(256).rates) - 1).max())}


@claim("float32-keeps-the-offset-form")
def float32_keeps_the_offset_form() -> Numbers:
    """Dot products of float32 rows ten tokens apart, computed both ways and summed in double precision."""
    rates = np.array(geometric(256).rates).astype(FLOAT32)

    def drifted(place: int) -> float:
        hands = []
        for position in (place, place + 10):
            angles = (np.float32(position) * rates).astype(float)
            hands.append(np.concatenate([np.sin(angles), np.cos(angles)]).astype(FLOAT32).astype(float))
        return math.fsum(hands[0] * hands[1])

    def rounded(place: int) -> float:
        one, other = table(Sinusoidal(width=512), [place, place + 10]).astype(float)
        return math.fsum(one * other)

    return {
        "drifted_at_100000": drifted(100_000),
        "drifted_at_1000000": drifted(1_000_000),
        "from_exact_angles_at_100000": rounded(100_000),
        "from_exact_angles_at_1000000": rounded(1_000_000),
    }


@claim("float32-fails-at-a-million")
def float32_fails_at_a_million() -> Numbers:
    """Float32 rows against float64 rows, and the sines of angles in float32; 2**-25 × 1.01 is 3.01e-8."""
    spec = Sinusoidal(width=512)
    fine = table(spec, [10**6, 10**18], "float64")
    apart = np.abs(table(spec, [10**6, 10**18]) - fine).max(axis=1)
    angles = (np.float32(10**6) * np.array(spec.rates).astype(FLOAT32)).astype(float)
    usual = np.abs(np.sin(angles) - fine[0, 0::2]).max()
    return {
        "largest_error_at_a_million": apart[0],
        "largest_error_at_ten_to_18": apart[1],
        "largest_error_of_the_usual_code_at_a_million": usual,
    }


@claim("fastest-pair-suffers-most")
def fastest_pair_suffers_most() -> Numbers:
    """Angles in float32 against exact ones, of 64 pairs."""
    near_by, far = np.abs(phase_errors(geometric(64), [32_768, 131_071], "float32", "throughout"))
    return {
        "error_of_pair_0_at_32768": near_by[0],
        "error_of_pair_0_at_131071": far[0],
        "pair_with_the_largest_error": int(np.argmax(far)),
    }


@claim("rotary-in-bfloat16")
def rotary_in_bfloat16() -> Numbers:
    """Scores of queries and keys at 64 positions, against the same after a shift."""
    queries, keys = drawn(2, 64, 64)

    def changes(way: str, *shifts: int) -> list[float]:
        first = _scores(queries, keys, way, 0)
        size = math.sqrt(np.mean(first**2))
        return [math.sqrt(np.mean((_scores(queries, keys, way, k) - first) ** 2)) / size for k in shifts]

    angles = changes("angles", 16, 256, 4096)
    hands = changes("hands", 16, 131_072)
    return {
        "change_by_a_shift_of_16_if_angles_are_bfloat16": angles[0],
        "change_by_a_shift_of_256_if_angles_are_bfloat16": angles[1],
        "change_by_a_shift_of_4096_if_angles_are_bfloat16": angles[2],
        "change_by_a_shift_of_16_if_only_hands_and_heads_are": hands[0],
        "change_by_a_shift_of_131072_if_only_hands_and_heads_are": hands[1],
        "change_by_a_shift_of_131072_in_float32": changes("float32", 131_072)[0],
        "change_by_a_shift_of_131072_with_exact_angles": changes("exact", 131_072)[0],
    }


def _scores(queries: np.ndarray, keys: np.ndarray, way: str, shift: int) -> np.ndarray:
    """All scores of 64 queries and keys at positions ``shift`` and later, rotated in one of four ways."""
    spec = Rotary(head_width=64)
    places = np.arange(shift, shift + 64)
    rates = np.array(spec.rates)
    if way == "angles":
        angles = _bfloat16(_bfloat16(places)[:, None] * _bfloat16(rates))
        cosine, sine = np.cos(angles), np.sin(angles)
    elif way == "float32":
        angles = (places.astype(FLOAT32)[:, None] * rates.astype(FLOAT32)).astype(float)
        cosine, sine = np.cos(angles), np.sin(angles)
    else:
        cosine, sine = cosine_sine(spec, positions_of(range(shift, shift + 64)), FLOAT32)
    if way == "hands":
        turned = (
            _bfloat16(_rotated_in_double(_bfloat16(x), _bfloat16(cosine), _bfloat16(sine))) for x in (queries, keys)
        )
    else:
        turned = (_rotated_in_double(x, cosine, sine) for x in (queries, keys))
    one, other = turned
    return one @ other.T


def _rotated_in_double(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """Pairs in the half-split layout, rotated in double precision."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cosine - second * sine, first * sine + second * cosine], axis=-1)


def _bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Values rounded to bfloat16, as doubles."""
    return numbers.astype(output_dtype("bfloat16")).astype(float)


@claim("large-base-is-unstable")
def large_base_is_unstable() -> Numbers:
    """Angles in float32 and tables by base; frequencies in float16 that are 0; 2**-25 × 1.01 is 3.01e-8."""
    ladders = {n: geometric(256, 10.0**n) for n in (4, 6, 8)}
    places = range(131_008, 131_072)
    specs = [Sinusoidal(width=512, base=10.0**n) for n in ladders]
    tables = [np.abs(table(spec, [131_071]) - table(spec, [131_071], "float64")).max() for spec in specs]
    return {
        **{
            f"angle_error_up_to_131071_with_ten_to_{n}": float(
                np.abs(phase_errors(ladder, places, "float32", "throughout")).max()
            )
            for n, ladder in ladders.items()
        },
        "largest_error_of_a_table_from_exact_angles": float(max(tables)),
        "frequencies_of_256_that_are_0_in_float16_with_ten_to_8": int(
            (np.array(ladders[8].rates).astype(FLOAT16) == 0).sum()
        ),
    }
