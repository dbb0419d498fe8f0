"""Claims about rotary encodings: what a rotation preserves, what the scores depend on, and which details matter."""

import math

import numpy as np

from clockhands.encodings.clocks import kernel, shift
from clockhands.encodings.layouts import permutation
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import Rotary, rerotate, rotate
from clockhands.encodings.rotary.formula import plain
from clockhands.encodings.rotary.rotating import cosine_sine
from clockhands.measures.claims.claim import Numbers, claim

SPEC = Rotary(head_width=128)


def drawn(*shape: int) -> np.ndarray:
    """Random numbers of unit variance, the same ones each time."""
    return np.random.default_rng(0).standard_normal(shape)


@claim("rotation-keeps-norms")
def rotation_keeps_norms() -> Numbers:
    """Norms before and after rotation, also at far positions; each square is off by a few ulp."""
    queries = drawn(6, 128)
    places = [0, 1, 100, 10**6, 10**12, 10**18]
    norms = np.linalg.norm(rotate(queries, SPEC, places), axis=1) / np.linalg.norm(queries, axis=1)
    half = rotate(queries, Rotary(head_width=128, rotated=64), places)
    return {
        "largest_relative_difference": float(np.abs(norms - 1).max()),
        "channels_that_stay_if_half_turn": int((half == queries).all(axis=0).sum()),
    }


@claim("identity-at-position-0")
def identity_at_position_0() -> Numbers:
    """Queries at position 0, before and after rotation."""
    queries = drawn(1, 128).astype(np.float32)
    return {"queries_are_the_same_bit_for_bit": bool((rotate(queries, SPEC, [0]) == queries).all())}


@claim("scores-depend-on-distance")
def scores_depend_on_distance() -> Numbers:
    """The score of a query 10 tokens after its key; 128 products of numbers up to 4, each off by a few ulp."""
    query, key = drawn(2, 1, 128)

    def score(shift: int) -> float:
        return math.fsum((rotate(query, SPEC, [10 + shift]) * rotate(key, SPEC, [shift]))[0])

    return {
        "change_by_a_shift_of_131072": score(131_072) - score(0),
        "change_by_a_shift_of_ten_to_12": score(10**12) - score(0),
        "size_of_the_score": score(0),
    }


@claim("rotary-scores-decay")
def rotary_scores_decay() -> Numbers:
    """Scores by distance of a rotated key; E (q · R k)² is the sum of the squares of R."""
    query = drawn(1, 128)
    key = rotate(query, SPEC, [100])
    scores = (np.repeat(rotate(query, SPEC, [1000]), 1000, axis=0) * rotate(np.repeat(key, 1000, axis=0), SPEC)).sum(1)
    return {
        "distance_of_the_largest_score_of_a_key_turned_by_100": 1000 - int(np.argmax(scores)),
        "size_of_unrelated_scores_at_distance_1": float(np.linalg.norm(shift(SPEC, 1))),
        "size_of_unrelated_scores_at_distance_1000": float(np.linalg.norm(shift(SPEC, 1000))),
    }


@claim("rotary-is-the-sinusoid")
def rotary_is_the_sinusoid() -> Numbers:
    """Rotary scores of vectors of ones by distance, compared with the kernel."""
    ones = np.ones((1001, 128))
    scores = rotate(ones, SPEC) @ rotate(ones[:1], SPEC, [0])[0]
    rows = 2 * kernel(SPEC, range(1001))
    return {
        "score_of_ones_at_distance_10": scores[10],
        "twice_the_dot_product_of_sinusoids": rows[10],
        "largest_difference_to_distance_1000": float(np.abs(scores - rows).max()),
    }


@claim("layouts-are-interchangeable")
def layouts_are_interchangeable() -> Numbers:
    """Scores of 64 random queries and keys in both layouts, compared with those of the correct one."""
    queries, keys = drawn(2, 64, 128)
    other = Rotary(head_width=128, layout="interleaved")
    order = permutation(64, "halves", "interleaved")
    right = rotate(queries, SPEC) @ rotate(keys, SPEC).T
    wrong = rotate(queries, other) @ rotate(keys, other).T
    moved = rotate(queries[:, order], other) @ rotate(keys[:, order], other).T
    size = math.sqrt(np.mean(right**2))
    return {
        "change_of_scores_if_the_weights_stay": math.sqrt(np.mean((wrong - right) ** 2)) / size,
        "change_of_scores_if_they_are_reordered": float(np.abs(moved - right).max()) / size,
    }


@claim("turning-backward")
def turning_backward() -> Numbers:
    """Scores of random queries and keys whose second channels are negated, rotated in both directions."""
    queries, keys = drawn(2, 64, 128)
    back = Rotary(head_width=128, direction="backward")
    mirror = np.concatenate([np.ones(64), -np.ones(64)])
    forward = rotate(queries, SPEC) @ rotate(keys, SPEC).T
    backward = rotate(queries * mirror, back) @ rotate(keys * mirror, back).T
    apart = rotate(keys, back) - rotate(keys, SPEC)
    return {
        "change_of_scores_if_both_turn_backward_and_keys_follow": (
            float(np.abs(backward - forward).max()) / math.sqrt(np.mean(forward**2))
        ),
        "change_of_keys": float(np.linalg.norm(apart) / np.linalg.norm(keys)),
    }


@claim("cached-keys-are-fixed")
def cached_keys_are_fixed() -> Numbers:
    """Keys rotated for position 100 and moved to 7, compared with keys rotated for 7."""
    keys = drawn(1, 128)
    moved = rerotate(rotate(keys, SPEC, [100]), SPEC, [100], [7])
    return {
        "largest_difference_of_a_key_moved_and_one_made_there": float(np.abs(moved - rotate(keys, SPEC, [7])).max())
    }


@claim("sine-table-twice")
def sine_table_twice() -> Numbers:
    """Root mean squares over pairs, for channels of unit variance; a score is then Σ 2 sin sin' (q · k) over pairs."""
    spec = Rotary(head_width=64, layout="interleaved")
    sines = cosine_sine(spec, positions_of(range(64)), np.dtype(float))[1]
    first, second = plain(np.eye(64)[:1], sines[5:6], sines[5:6], spec, np)[0, :2]
    norms = np.sqrt(2 * np.mean(sines**2, axis=1))
    before = 2 * sines[:32, None] * sines[None, :32]
    after = 2 * sines[32:, None] * sines[None, 32:]
    return {
        "norm_at_position_0": norms[0],
        "mean_norm_over_32_positions": norms[:32].mean(),
        "change_of_scores_by_a_shift_of_32": math.sqrt(np.mean((after - before) ** 2) / np.mean(before**2)),
        "angle_of_the_turn_at_any_position": math.degrees(math.atan2(second, first)) % 180,
    }
