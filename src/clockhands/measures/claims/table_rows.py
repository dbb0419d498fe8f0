"""Claims about the rows of a table: whether they differ, how near and how large they are, which channels they use."""

import math
from itertools import pairwise

import numpy as np

from clockhands.encodings.additive import Binary, Learned, Sinusoidal, table
from clockhands.encodings.ladders import TWO_PI, geometric
from clockhands.measures.claims.claim import Numbers, claim


@claim("two-channels-are-enough")
def two_channels_are_enough() -> Numbers:
    """Two rows far apart, compared number by number."""
    one, other = table(Sinusoidal(width=2), [1_804, 10_840_506])
    return {"rows_1804_and_10840506_are_the_same_in_float32": bool((one == other).all())}


@claim("unique-for-real-positions")
def unique_for_real_positions() -> Numbers:
    """The row at the slowest wavelength against the row at 0; as a float 6,283.2 is off by at most 2**-41."""
    worst = 0.0
    for width in (2, 4, 8):
        period = float(TWO_PI / geometric(width // 2).exact[-1])
        rows = table(Sinusoidal(width=width), [0.0, period], "float64")
        worst = max(worst, float(np.abs(rows[1] - rows[0]).max()))
    return {"largest_difference_after_a_period": worst}


@claim("step-shrinks-with-width")
def step_shrinks_with_width() -> Numbers:
    """The integral that the square of the distance of neighbours over the width tends to."""
    return {"distance_over_root_of_width_in_the_limit": math.sqrt(_missing_likeness())}


def _missing_likeness() -> float:
    """The mean of ``1 - cos(10000**-s)`` over s from 0 to 1, by the midpoint rule with a million parts (to 1e-12)."""
    middle = (np.arange(10**6) + 0.5) / 10**6
    return float(np.mean(1 - np.cos(10_000.0**-middle)))


@claim("neighbours-nearly-alike")
def neighbours_nearly_alike() -> Numbers:
    """The limit of the mean of the cosines of the frequencies."""
    missing = _missing_likeness()
    return {"cosine_in_the_limit": 1 - missing, "distance_over_norm_in_the_limit": math.sqrt(2 * missing)}


@claim("constant-norm")
def constant_norm() -> Numbers:
    """The norms of rows 0 to 999 and of far rows; 512 entries off by 3.2 ulp of 1 and their sum add 5e-13."""
    norms = np.linalg.norm(table(Sinusoidal(width=512), [*range(1000), 10**6, 10**12, 10**18], "float64"), axis=1)
    return {"largest_difference": float(np.abs(norms - 16).max())}


@claim("sinusoids-orthogonal")
def sinusoids_orthogonal() -> Numbers:
    """The cosines between all rows, and between all channels that are not all 0, of a table of 512 by 512."""
    rows = table(Sinusoidal(width=512), 512, "float64")
    alike = rows @ rows.T / 256
    apart = ~np.eye(512, dtype=bool)
    channels = rows / np.linalg.norm(rows, axis=0)
    return {
        "smallest_cosine_of_512_rows": alike.min(),
        "mean_size_of_cosine_of_two_rows": float(np.abs(alike[apart]).mean()),
        "largest_cosine_of_two_channels_over_512_rows": float(np.abs(channels.T @ channels)[apart].max()),
    }


@claim("any-different-frequencies-do")
def any_different_frequencies_do() -> Numbers:
    """Distances of rows for frequencies drawn at random."""
    rates = np.random.default_rng(0).uniform(1e-4, 1, 256)
    drawn = np.sqrt([2 * (256 - np.cos(rates * offset).sum()) for offset in range(1, 20_001)])
    return {
        "distance_of_neighbours_if_drawn_uniformly": drawn[0],
        "smallest_distance_of_others_up_to_20000_if_drawn_uniformly": drawn[1:].min(),
    }


@claim("binary-counting")
def binary_counting() -> Numbers:
    """Bits that flip, the ratio between successive bits, and the octaves of 256 pairs."""
    digits = table(Binary(width=12), [2046, 2047, 2048])
    flips = [int(np.abs(one - other).sum()) for one, other in pairwise(digits)]
    rising = np.diff(table(Binary(width=4), 64), axis=0) > 0
    periods = [int(np.diff(np.flatnonzero(bit))[0]) for bit in rising[:, :3].T]
    rates = geometric(256).rates
    return {
        "factor_between_bits": max(slow / fast for fast, slow in pairwise(periods)),
        "bits_that_flip_from_2046_to_2047": flips[0],
        "bits_that_flip_from_2047_to_2048": flips[1],
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
