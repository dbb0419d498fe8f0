"""Claims about rotary codes: what a rotation keeps, what the scores see, and which details matter."""

import math

import numpy as np

from clockhands.claims.claim import Numbers, at_most, claim, exactly, near
from clockhands.clocks import kernel, shift
from clockhands.layouts import permutation
from clockhands.positions import positions_of
from clockhands.rotary import Rotary, rerotate, rotate
from clockhands.rotary.formula import plain
from clockhands.rotary.rotating import cosine_sine

ROFORMER = "Su et al. 2021, arXiv:2104.09864, section 3"
SPEC = Rotary(head_width=128)


def drawn(*shape: int) -> np.ndarray:
    """Numbers of unit variance, the same ones each time."""
    return np.random.default_rng(0).standard_normal(shape)


@claim(
    "rotation-keeps-norms",
    "Rotary codes leave the length of queries and keys alone.",
    "true",
    numbers={
        "largest_relative_difference": at_most("1e-14"),
        "channels_that_stay_if_half_turn": exactly(64),
    },
    argument=(
        "A rotation keeps lengths, pair by pair. The exceptions are named: a scaling with an attention factor (YaRN) "
        "multiplies, and xPos lets scores decay. Channels that are not rotated stay bit for bit."
    ),
    source=ROFORMER,
)
def rotation_keeps_norms() -> Numbers:
    """Norms before and after, far out too; each square is off by some ulp."""
    queries = drawn(6, 128)
    places = [0, 1, 100, 10**6, 10**12, 10**18]
    norms = np.linalg.norm(rotate(queries, SPEC, places), axis=1) / np.linalg.norm(queries, axis=1)
    half = rotate(queries, Rotary(head_width=128, rotated=64), places)
    return {
        "largest_relative_difference": float(np.abs(norms - 1).max()),
        "channels_that_stay_if_half_turn": int((half == queries).all(axis=0).sum()),
    }


@claim(
    "identity-at-position-0",
    "At position 0 a rotary code does nothing.",
    "true",
    numbers={"queries_are_the_same_bit_for_bit": exactly(True)},
    argument=(
        "Every pair is turned by 0 × rate = 0: cosine 1, sine 0. It is the first test of a rotary function, and it "
        "finds swapped sines and cosines and shifted positions at once."
    ),
    source=ROFORMER,
)
def identity_at_position_0() -> Numbers:
    """Queries at position 0, before and after."""
    queries = drawn(1, 128).astype(np.float32)
    return {"queries_are_the_same_bit_for_bit": bool((rotate(queries, SPEC, [0]) == queries).all())}


@claim(
    "scores-depend-on-distance",
    "With rotary codes a score depends only on the distance of query and key.",
    "true",
    numbers={
        "change_by_a_shift_of_131072": at_most("3e-13"),
        "change_by_a_shift_of_ten_to_12": at_most("3e-13"),
        "size_of_the_score": near("13.35"),
    },
    argument=(
        "Turning the query by q × rate and the key by k × rate leaves the difference of the two angles, (q − k) × "
        "rate. With exact angles it holds at any position; how far rounding breaks it is another claim."
    ),
    source=ROFORMER,
)
def scores_depend_on_distance() -> Numbers:
    """The score of a query 10 tokens past its key; 128 products of numbers up to 4, each off by some ulp."""
    query, key = drawn(2, 1, 128)

    def score(shift: int) -> float:
        return math.fsum((rotate(query, SPEC, [10 + shift]) * rotate(key, SPEC, [shift]))[0])

    return {
        "change_by_a_shift_of_131072": score(131_072) - score(0),
        "change_by_a_shift_of_ten_to_12": score(10**12) - score(0),
        "size_of_the_score": score(0),
    }


@claim(
    "rotary-scores-decay",
    "Rotary scores decay with the distance, so a head prefers near tokens.",
    "false",
    numbers={
        "distance_of_the_largest_score_of_a_key_turned_by_100": exactly(100),
        "share_of_the_first_511_steps_that_rise_for_equal_ones": near("0.468"),
        "size_of_unrelated_scores_at_distance_1": near("11.314"),
        "size_of_unrelated_scores_at_distance_1000": near("11.314"),
    },
    argument=(
        "Only an upper bound decays. Turn the key's weights by 100 tokens and the score is largest at distance 100; "
        "for unrelated queries and keys of unit variance scores are 0 ± √128 at every distance alike."
    ),
    source="Su et al. 2021, section 3.4.3, gives the bound; Barbero et al. 2025, arXiv:2410.06205, section 3",
)
def rotary_scores_decay() -> Numbers:
    """Scores by distance of a key that was turned and of ones; E (q · R k)² is the sum of the squares of R."""
    query = drawn(1, 128)
    key = rotate(query, SPEC, [100])
    scores = (np.repeat(rotate(query, SPEC, [1000]), 1000, axis=0) * rotate(np.repeat(key, 1000, axis=0), SPEC)).sum(1)
    ones = kernel(SPEC, range(512))
    return {
        "distance_of_the_largest_score_of_a_key_turned_by_100": 1000 - int(np.argmax(scores)),
        "share_of_the_first_511_steps_that_rise_for_equal_ones": float((np.diff(ones) > 0).mean()),
        "size_of_unrelated_scores_at_distance_1": float(np.linalg.norm(shift(SPEC, 1))),
        "size_of_unrelated_scores_at_distance_1000": float(np.linalg.norm(shift(SPEC, 1000))),
    }


@claim(
    "rotary-is-the-sinusoid",
    "Rotary and sinusoidal codes are the same clock, used in two ways.",
    "true",
    numbers={
        "score_of_ones_at_distance_10": near("85.64"),
        "twice_the_dot_product_of_sinusoids": near("85.64"),
        "largest_difference_to_distance_1000": at_most("1e-12"),
    },
    argument=(
        "Both turn pair i by position × 10000^(−2i/d). A query and a key of ones, turned, have twice the dot product "
        "that two rows of the sinusoidal table have. One adds the hands to the token, the other turns it by them."
    ),
    source=f"{ROFORMER}.3; computed at width 128",
)
def rotary_is_the_sinusoid() -> Numbers:
    """Scores of ones by distance, against the kernel."""
    ones = np.ones((1001, 128))
    scores = rotate(ones, SPEC) @ rotate(ones[:1], SPEC, [0])[0]
    rows = 2 * kernel(SPEC, range(1001))
    return {
        "score_of_ones_at_distance_10": scores[10],
        "twice_the_dot_product_of_sinusoids": rows[10],
        "largest_difference_to_distance_1000": float(np.abs(scores - rows).max()),
    }


@claim(
    "layouts-are-interchangeable",
    "Which channels form a pair, neighbours or halves, makes no difference.",
    "only if",
    condition="the weights were trained with it, or their channels are put in the other order.",
    numbers={
        "change_of_scores_if_the_weights_stay": near("1.060"),
        "change_of_scores_if_they_are_reordered": at_most("1e-13"),
    },
    argument=(
        "The two are the same code up to the order of channels. Read weights of one with the other and scores change "
        "by more than their own size, 106 % (RMS), with no error message anywhere."
    ),
    source=(
        "GPT-J and Meta's Llama pair neighbours; GPT-NeoX and Transformers' Llama pair halves; computed over 64 tokens "
        "at head width 128"
    ),
)
def layouts_are_interchangeable() -> Numbers:
    """Scores of 64 drawn queries and keys in both layouts, against those of the right one."""
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


@claim(
    "turning-backward",
    "Turning clockwise instead of anticlockwise makes another code.",
    "only if",
    condition="queries and keys are turned in different directions, or cached keys are read by the other kind.",
    numbers={
        "change_of_scores_if_both_turn_backward_and_keys_follow": at_most("1e-13"),
        "change_of_keys": near("0.980"),
    },
    argument=(
        "With both turned backward the score sees the angle −(q − k) × rate: the same as turning forward with the "
        "second channel of each pair negated, which training does not notice. The keys in a cache do differ."
    ),
    source="nanochat turns backward; computed",
)
def turning_backward() -> Numbers:
    """Scores of drawn queries and keys whose second channels are negated, in both directions."""
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


@claim(
    "cached-keys-are-fixed",
    "A key in the cache is bound to its position and cannot be moved.",
    "false",
    numbers={"largest_difference_of_a_key_moved_and_one_made_there": at_most("1e-14")},
    argument=(
        "A rotation by the difference of the two positions moves it: R(to − from) R(from) = R(to). A cache that drops "
        "old tokens can do so. In bfloat16 each move rounds once more."
    ),
    source="computed: R_j R_k = R_(j+k)",
)
def cached_keys_are_fixed() -> Numbers:
    """Keys turned for 100 and moved to 7, against keys turned for 7."""
    keys = drawn(1, 128)
    moved = rerotate(rotate(keys, SPEC, [100]), SPEC, [100], [7])
    return {
        "largest_difference_of_a_key_moved_and_one_made_there": float(np.abs(moved - rotate(keys, SPEC, [7])).max())
    }


@claim(
    "sine-table-twice",
    "x · sin + rotate_half(x) · sin is a rotary code, and a plot made with it shows that rotary codes extrapolate.",
    "false",
    numbers={
        "norm_at_position_0": exactly(0),
        "mean_norm_over_32_positions": near("0.625"),
        "change_of_scores_by_a_shift_of_32": near("1.24"),
        "angle_of_the_turn_at_any_position": near("45.0"),
    },
    argument=(
        "With the sine in both places every pair is turned by 45° wherever it stands and scaled by √2 sin: position 0 "
        "erases the token, and scores change by 124 % of their size when the text moves by 32."
    ),
    source="code published beside a blog post on length extrapolation; a test of position 0 and of norms finds it",
)
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
