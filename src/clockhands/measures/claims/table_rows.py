"""Claims about the rows of a table: whether they differ, how near and how large they are, which channels they use."""

import math
from itertools import pairwise

import numpy as np

from clockhands.encodings.additive import Binary, EvenlySpaced, Learned, Sinusoidal, table
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.ladders import TWO_PI, geometric
from clockhands.measures.claims.claim import Numbers, claim
from clockhands.measures.claims.frequencies import distances_apart
from clockhands.measures.claims.studies import measured


@claim("unique-for-every-position")
def unique_for_every_position() -> Numbers:
    """Unique rows of tables of 65,536 positions, compared as bytes, and the first repeated row among more positions."""
    found: Numbers = {
        f"distinct_of_65536_at_width_{width}_in_{dtype}": distinct(table(Sinusoidal(width=width), 65_536, dtype))
        for width, dtype in ((4, "float32"), (4, "float16"), (4, "bfloat16"), (64, "bfloat16"))
    }
    first, again = first_alike(table(Sinusoidal(width=4), 100_000, "bfloat16"))
    return {
        **found,
        "first_two_alike_at_width_4_in_bfloat16": first,
        "the_same_again_at_width_4_in_bfloat16": again,
    }


def distinct(rows: np.ndarray) -> int:
    """How many different rows there are, compared bit by bit except for the sign of zero."""
    whole = np.ascontiguousarray(rows + 0).view(np.uint8).reshape(len(rows), -1)
    return len(np.unique(whole.view(f"V{whole.shape[1]}")))


def first_alike(rows: np.ndarray) -> tuple[int, int]:
    """The first row that is equal to an earlier one, bit by bit: (earlier position, this position)."""
    seen: dict[bytes, int] = {}
    for position, row in enumerate(rows):
        before = seen.setdefault(row.tobytes(), position)
        if before != position:
            return before, position
    raise AssertionError(f"all {len(rows)} rows differ")


@claim("two-channels-are-enough")
def two_channels_are_enough() -> Numbers:
    """The first repeated row, in each dtype."""
    found: Numbers = {"distinct_of_65536_in_float32": distinct(table(Sinusoidal(width=2), 65_536))}
    for dtype in ("float16", "bfloat16"):
        first, again = first_alike(table(Sinusoidal(width=2), 1024, dtype))
        found |= {f"first_two_alike_in_{dtype}": first, f"the_same_again_in_{dtype}": again}
    far = table(Sinusoidal(width=2), [1_804, 10_840_506])
    return {
        **found,
        "turns_in_710_tokens": 710 / float(TWO_PI),
        "rows_1804_and_10840506_are_the_same_in_float32": bool((far[0] == far[1]).all()),
    }


@claim("positions-in-bfloat16")
def positions_in_bfloat16() -> Numbers:
    """Whole numbers after rounding to a dtype."""
    found: Numbers = {}
    for dtype in ("bfloat16", "float16"):
        rounded = np.arange(4096).astype(output_dtype(dtype)).astype(int)
        found[f"distinct_of_4096_in_{dtype}"] = len(set(rounded.tolist()))
        found[f"first_position_that_merges_in_{dtype}"] = int(np.flatnonzero(rounded != np.arange(4096))[0])
    return found


@claim("unique-for-real-positions")
def unique_for_real_positions() -> Numbers:
    """The slowest wavelength, and the row there against the row at 0; as a float 6,283.2 is off by at most 2**-41."""
    found: Numbers = {}
    worst = 0.0
    for width in (2, 4, 8):
        period = float(TWO_PI / geometric(width // 2).exact[-1])
        rows = table(Sinusoidal(width=width), [0.0, period], "float64")
        worst = max(worst, float(np.abs(rows[1] - rows[0]).max()))
        found[f"period_at_width_{width}"] = period
    return {**found, "largest_difference_after_a_period": worst}


@claim("unique-up-to-62000")
def unique_up_to_62000() -> Numbers:
    """Distances over offsets 1 to 200,000 at width 512."""
    apart = distances_apart(geometric(256), 200_001)
    return {
        "nearest_offset_up_to_200000": 1 + int(np.argmin(apart[1:])),
        "distance_of_neighbours": apart[1],
        "distance_after_62832_tokens": apart[62_832],
    }


@claim("step-shrinks-with-width")
def step_shrinks_with_width() -> Numbers:
    """The distance of rows 1000 and 1001 by width, and the integral that its square over the width tends to."""
    found: Numbers = {}
    for width in (64, 128, 512, 4096):
        rows = table(Sinusoidal(width=width), [1000, 1001], "float64")
        found[f"distance_at_width_{width}"] = float(np.linalg.norm(rows[1] - rows[0]))
    return {**found, "distance_over_root_of_width_in_the_limit": math.sqrt(_missing_likeness())}


def _missing_likeness() -> float:
    """The mean of ``1 - cos(10000**-s)`` over s from 0 to 1, by the midpoint rule with a million parts (to 1e-12)."""
    middle = (np.arange(10**6) + 0.5) / 10**6
    return float(np.mean(1 - np.cos(10_000.0**-middle)))


@claim("neighbours-nearly-alike")
def neighbours_nearly_alike() -> Numbers:
    """The mean of the cosines of the frequencies, and its limit."""
    missing = _missing_likeness()
    return {
        **{
            f"cosine_at_width_{width}": float(np.cos(geometric(width // 2).rates).mean())
            for width in (2, 4, 16, 64, 512)
        },
        "cosine_in_the_limit": 1 - missing,
        "distance_over_norm_in_the_limit": math.sqrt(2 * missing),
    }


@claim("constant-norm")
def constant_norm() -> Numbers:
    """The norms of rows 0 to 999 and of far rows; 512 entries off by 3.2 ulp of 1 and their sum add 5e-13."""
    norms = np.linalg.norm(table(Sinusoidal(width=512), [*range(1000), 10**6, 10**12, 10**18], "float64"), axis=1)
    return {"norm_at_width_512": norms[-1], "largest_difference": float(np.abs(norms - 16).max())}


@claim("sinusoids-orthogonal")
def sinusoids_orthogonal() -> Numbers:
    """The cosines between all rows, and between all channels that are not all 0, of a table of 512 by 512."""
    rows = table(Sinusoidal(width=512), 512, "float64")
    alike = rows @ rows.T / 256
    apart = ~np.eye(512, dtype=bool)
    channels = rows / np.linalg.norm(rows, axis=0)
    return {
        "cosine_of_neighbouring_rows": alike[0, 1],
        "smallest_cosine_of_512_rows": alike.min(),
        "mean_size_of_cosine_of_two_rows": float(np.abs(alike[apart]).mean()),
        "largest_cosine_of_two_channels_over_512_rows": float(np.abs(channels.T @ channels)[apart].max()),
    }


@claim("all-channels-are-used")
def all_channels_are_used() -> Numbers:
    """The squared singular values of a table minus its mean row."""
    rows = table(Sinusoidal(width=512), 512, "float64")
    mean = rows.mean(axis=0)
    energy = np.linalg.svd(rows - mean, compute_uv=False) ** 2
    reached = np.cumsum(energy) / energy.sum()
    return {
        "dimensions_with_90_percent_of_the_variance": 1 + int(np.searchsorted(reached, 0.9)),
        "dimensions_with_99_percent": 1 + int(np.searchsorted(reached, 0.99)),
        "participation_ratio": energy.sum() ** 2 / (energy**2).sum(),
        "share_of_the_mean_row_in_the_norm": float(np.linalg.norm(mean)) / 16,
    }


@claim("any-different-frequencies-do")
def any_different_frequencies_do() -> Numbers:
    """Distances of rows for three choices of frequencies; losses of models with two of them."""
    spec = EvenlySpaced(width=512)
    even = table(spec, [0, 1, 1602], "float64")
    usual = table(Sinusoidal(width=512), [0, 1602], "float64")
    rates = np.random.default_rng(0).uniform(1e-4, 1, 256)
    drawn = np.sqrt([2 * (256 - np.cos(rates * offset).sum()) for offset in range(1, 20_001)])
    trained = measured("spacing").difference("language", "even", "sinusoidal")
    return {
        "tokens_until_each_pair_gains_a_turn_on_the_next": 2 * math.pi / (spec.rates[0] - spec.rates[1]),
        "distance_after_1602_tokens_if_evenly_spaced": float(np.linalg.norm(even[2] - even[0])),
        "distance_of_neighbours_if_evenly_spaced": float(np.linalg.norm(even[1] - even[0])),
        "distance_after_1602_tokens_if_geometric": float(np.linalg.norm(usual[1] - usual[0])),
        "distance_of_neighbours_if_drawn_uniformly": drawn[0],
        "smallest_distance_of_others_up_to_20000_if_drawn_uniformly": drawn[1:].min(),
        "measured_loss_if_evenly_spaced_less_geometric": trained.mean,
        "measured_loss_if_evenly_spaced_less_geometric_least": trained.least,
        "measured_loss_if_evenly_spaced_less_geometric_most": trained.most,
    }


@claim("binary-counting")
def binary_counting() -> Numbers:
    """Bits that flip, and the ratio between successive pairs."""
    digits = table(Binary(width=12), [2046, 2047, 2048])
    flips = [int(np.abs(one - other).sum()) for one, other in pairwise(digits)]
    rates = geometric(256).rates
    rising = np.diff(table(Binary(width=4), 64), axis=0) > 0
    periods = [int(np.diff(np.flatnonzero(bit))[0]) for bit in rising[:, :3].T]
    return {
        "factor_between_bits": max(slow / fast for fast, slow in pairwise(periods)),
        "factor_between_pairs_at_width_512": rates[0] / rates[1],
        "bits_that_flip_from_2046_to_2047": flips[0],
        "bits_that_flip_from_2047_to_2048": flips[1],
        "pairs_in_one_octave": math.log(2) / math.log(rates[0] / rates[1]),
        "octaves_of_the_ladder": math.log2(rates[0] / rates[-1]),
    }


@claim("sinusoids-are-cheaper")
def sinusoids_are_cheaper() -> Numbers:
    """The numbers of both tables, and the parameters of the models, from their dimensions."""
    width, layers = 768, 12
    learned = {name: Learned(width, rows) for name, rows in (("bert_base", 512), ("gpt2", 1024))}
    rows = {name: table(spec, spec.rows, values=np.zeros((spec.rows, width))) for name, spec in learned.items()}
    # Attention and feed-forward network with biases, and two LayerNorms.
    body = layers * (12 * width**2 + 13 * width)
    whole = {
        # Words and two segments, a LayerNorm, and the pooler.
        "bert_base": (30_522 + 2) * width + 2 * width + body + width**2 + width,
        # Words, and the last LayerNorm.
        "gpt2": 50_257 * width + 2 * width + body,
    }
    found: Numbers = {}
    for name, each in rows.items():
        whole[name] += each.size
        found |= {
            f"learned_numbers_of_{name}": each.size,
            f"parameters_of_{name}": whole[name],
            f"share_of_{name}": each.size / whole[name],
        }
    return {
        **found,
        # Number, gradient and two moments.
        "megabytes_to_train_the_table_of_bert_base": 4 * rows["bert_base"].nbytes / 1e6,
        "megabytes_of_the_table_of_bert_base": rows["bert_base"].nbytes / 1e6,
        "megabytes_of_as_many_sinusoids": table(Sinusoidal(width), 512).nbytes / 1e6,
    }
