"""The numbers of claims about adding and projecting, from definitions, other integrals and plain NumPy."""

import functools
import math

import mpmath
import numpy as np

from measures.claims.ladders import MEASURED

MINILM = MEASURED["minilm"]["token_cosines"]


def rows(width, positions=512, layout="interleaved"):
    """The table in double precision."""
    angles = np.outer(np.arange(positions), 10_000.0 ** (-np.arange(width // 2) / (width // 2)))
    both = np.sin(angles), np.cos(angles)
    if layout == "halves":
        return np.concatenate(both, axis=1)
    return np.stack(both, axis=-1).reshape(positions, width)


def explained(scores):
    """The share that the means of diagonals explain: of the definition, one diagonal after another."""
    n = len(scores)
    centred = scores - scores.mean()
    within = sum(len(line := np.diagonal(centred, k)) * line.var() for k in range(1 - n, n))
    return 1 - within / (centred**2).sum()


def expected(width, positions=512):
    """Of random projections, from the kernel: the cosines' sums by offset and nothing else."""
    n = positions
    g = np.cos(np.outer(np.arange(n), 10_000.0 ** (-np.arange(width // 2) / (width // 2)))).sum(1)

    def square(values, m):
        return m * values[0] + 2 * ((m - np.arange(1, m)) * values[1:m]).sum()

    along = square(g**2, n) / n + 2 * sum(square(g**2, m) / m for m in range(1, n))
    mean = square(g, n) ** 2 / n**2
    return (along - mean) / ((n * g[0]) ** 2 - mean)


def blocks(a, b, layout):
    """[[a, b], [-b, a]] on each pair, entry by entry."""
    pairs = len(a)
    form = np.zeros((2 * pairs, 2 * pairs))
    for pair in range(pairs):
        one, two = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, pairs + pair)
        form[one, one] = form[two, two] = a[pair]
        form[one, two], form[two, one] = b[pair], -b[pair]
    return form


def heads(width, head_width):
    table, rng = rows(width), np.random.default_rng(0)
    shares = []
    for _ in range(12):
        query, key = rng.standard_normal((2, width, head_width))
        shares.append(explained((table @ query) @ (table @ key).T))
    return np.mean(shares), np.std(shares, ddof=1)


def shares_of_terms(deviation):
    """Of the variances of the four terms, with the mean row by cosines and sines of all positions."""
    content, mean = 512 * deviation**2, (rows(512).mean(0) ** 2).sum()
    variances = np.array([content**2, content * 256, content * 256, 256**2 - mean**2])
    return variances / variances.sum()


# A noncentral chi-square of d degrees has the characteristic function exp(i u n / (1 - 2 i u)) (1 - 2 i u)**(-d / 2),
# which Imhof's formula inverts (1961, Biometrika 48, 419-426): here at many noncentralities n at once.
def phase_and_size(width, beyond, noncentral, u):
    turned = 0.5 * (width * np.arctan(u) + noncentral * u / (1 + u**2) - beyond * u)
    shrunk = -width / 4 * np.log1p(u**2) - 0.5 * noncentral * u**2 / (1 + u**2)
    return turned, np.exp(shrunk)


def frequencies(width, noncentral, steps=3000):
    """Up to where the size has fallen below 1e-17."""
    last = 9.0 / math.sqrt(width / 4 + noncentral / 2)
    last = last if last < 0.5 else 40.0
    step = last / steps
    return (np.arange(steps) + 0.5) * step, step


def below(width, square, noncentral):
    """Probability that the variable is below a square, for an array of noncentralities."""
    u, step = frequencies(width, float(np.min(noncentral)))
    turned, size = phase_and_size(width, square, np.asarray(noncentral)[:, None], u)
    return 0.5 - (np.sin(turned) / u * size).sum(-1) * step / math.pi


@functools.cache
def found(width, norm, deviation=1.0):
    """E[(1 - chance) ** 49,999] over the squared length of token + row, itself such a variable."""
    square = (norm / deviation) ** 2
    spread = math.sqrt(2 * (width + 2 * square))
    at = width + square + np.linspace(-min(8 * spread, width + square - 1e-3), 12 * spread, 601)
    u, step = frequencies(width, square)
    turned, size = phase_and_size(width, at[:, None], square, u)
    density = (np.cos(turned) * size).sum(-1) * step / (2 * math.pi)
    kept = (1 - np.clip(below(width, square, at), 0, 1)) ** 49_999
    return (density * kept).sum() / density.sum()


def needed():
    """By bisection."""
    low, high = 0.2, 0.22
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if found(512, 16.0, middle) < 0.99 else (low, middle)
    return high


def beta_quantile():
    """Where the integral of the cosine's density up to it is 0.999, by Newton's steps."""
    half = mpmath.mpf(511) / 2
    cosine = mpmath.mpf("0.14")
    for _ in range(8):
        over = mpmath.betainc(0.5, half, 0, cosine**2, regularized=True) - mpmath.mpf("0.999")
        cosine -= over * mpmath.beta(0.5, half) / (2 * (1 - cosine**2) ** (half - 1))
    return cosine


def offsets():
    a, b = np.random.default_rng(0).standard_normal((2, 256))
    table = rows(512)
    return {
        "share_of_the_offset_behind_blocks_of_the_other_layout": explained(table @ blocks(a, b, "halves") @ table.T),
        "share_of_the_offset_behind_random_projections": expected(512),
    }


def random_heads():
    (narrow, narrow_spread), (wide, wide_spread) = heads(64, 16), heads(512, 64)
    return {
        "expected_share_at_width_64": expected(64),
        "expected_share_at_width_512": expected(512),
        "mean_of_12_heads_of_16_at_width_64": narrow,
        "their_deviation_at_width_64": narrow_spread,
        "mean_of_12_heads_of_64_at_width_512": wide,
        "their_deviation_at_width_512": wide_spread,
        "expected_share_over_32_positions_at_width_512": expected(512, 32),
        "chance_over_512_positions": (2 * 512 - 2) / (512**2 - 1),
        # `test_mechanism_on_real_models.py` trains the last of these models again.
        "in_the_small_model_before_training": of_heads("lab_language", "untrained"),
        "in_the_small_model_trained_on_text": of_heads("lab_language", "trained"),
        "in_the_small_model_trained_to_copy": of_heads("lab_copy", "trained"),
    }


def of_heads(model, state):
    shares = MEASURED[model][state]["distance_explains"]["trained"]
    return sum(shares) / len(shares)


def crossed():
    rng, table = np.random.default_rng(0), rows(512)
    tokens = rng.standard_normal((512, 512))
    form = blocks(*rng.standard_normal((2, 256)), "interleaved")
    return {
        "share_of_the_offset_position_position_random": expected(512),
        "share_of_the_offset_position_position_commuting": explained(table @ form @ table.T),
        "share_of_the_offset_crossed_terms": explained(tokens @ form @ table.T),
        "share_of_the_offset_whole_score_commuting": explained((tokens + table) @ form @ (tokens + table).T),
        "crossed_terms_in_the_variance": shares_of_terms(1.0)[1:3].sum(),
    }


def left_of_bits():
    """What the best matrix fitted to two thirds of 509 rows of bits leaves of the others, by the normal equations."""
    bits = np.array([[1.0 if place >> bit & 1 else -1.0 for bit in range(9)] for place in range(512)])
    fitted = np.arange(509) // 8 % 3 != 1
    before, after = bits[:-3], bits[3:]
    best = np.linalg.solve(before[fitted].T @ before[fitted], before[fitted].T @ after[fitted])
    wanted = after[~fitted]
    return ((wanted - before[~fitted] @ best) ** 2).sum() / ((wanted - wanted.mean(0)) ** 2).sum()


def of_different_rows():
    """What a function of the offset explains of the products of different rows, diagonal by diagonal."""
    drawn = np.random.default_rng(0).standard_normal((512, 64))
    found = {}
    for name, table in (("random_rows", drawn), ("sinusoids", rows(64))):
        lines = [np.diagonal(table @ table.T, offset) for offset in range(1, 512)]
        every = np.concatenate(lines)
        within = sum(len(line) * line.var() for line in lines)
        found[f"share_that_the_offset_explains_with_{name}"] = 1 - within / (len(every) * every.var())
    return found
