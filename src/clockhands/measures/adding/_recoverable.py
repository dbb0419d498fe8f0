"""Computes how many random tokens can be identified after a position was added, and the angle between the two.

The vocabulary is random: V tokens with independent normal channels, N(0, s**2), as embeddings are before training. For
trained embeddings this has to be measured. ``s`` is the *token deviation*: ``1 / sqrt(width)`` for tokens of length
about 1, 1 for unit normal channels; the factor sqrt(width) of Vaswani et al. turns the first into the second.

A token x at a position with row p becomes z = x + p. If the position is known, subtracting p gives x, up to the
rounding of the sum. If it is not known, a search for the nearest token fails when another token y has ``|z - y| <
|p|``. The distribution of normal tokens has no preferred direction, so the result depends on three numbers only: the
width d, V, and ``r = |p| / s``.

* With one other token, that token is nearer with probability ``B_d(r / sqrt(2), r / sqrt(2))`` (`pair_error`), where
  ``B_d(R, c)`` is the share of a standard normal of d channels that lies in a ball of radius R around a point at the
  distance c (`ball_share`). Wide tokens and a sinusoid, whose rows have the length ``sqrt(d / 2)``: a Gaussian tail,
  ``Q(s sqrt(d))``, because the difference of two tokens has the length ``s sqrt(2 d)`` and half of it must be overcome
  by the part of p along it, a normal of deviation ``|p| / sqrt(d)``.
* A token is nearest to itself among V with probability ``E[(1 - B_d(r, c)) ** (V - 1)]``, where c, the length of x + p
  over s, has the density ``dB_d(c, r) / dc`` (`expected_share`): one integral over c. At r = 0 that is 1; for r without
  bound it falls to 1 / V.

``B_d(R, c) = integral over t of f(R sin t) R cos t [Phi(R cos t - c) - Phi(-R cos t - c)]``, t from 0 to a quarter
turn, f the density of a chi variable of d - 1 degrees: the part of the normal beside the line from the origin to the
ball, and what is then left along it. The integrand is the exponential of a concave function of R sin t, so an interval
around its peak, found in closed form, leaves out next to nothing. Accuracy: `ball_share` a relative 1e-8,
`expected_share` an absolute 1e-6, held by the tests to mpmath and to closed forms.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from clockhands.arguments import count, not_negative, positive
from clockhands.encodings.dtypes import output_dtype

_NODES = 64  # nodes of each integral
_KNOTS = 33  # knots of the polynomial between the logarithms of two integrals
_PANELS = 64  # panels of the integral over the length of x + p, with _PER_PANEL nodes each
_PER_PANEL = 12
_DROP = 40.0  # exponents below the peak that are left out
_REACH = 9.0  # range of a length in standard deviations: outside it lies 1e-18
_FAR = 1e9  # a ball of that radius equals a half space within the accuracy
_BLOCK = 4096  # tokens of a random vocabulary that are processed at once


@dataclass(frozen=True)
class Recovered:
    """How many tokens of a random vocabulary are identified after the addition.

    Attributes:
        width: Channels of a token.
        vocabulary: Tokens.
        token_deviation: Standard deviation of a token's channels.
        row_norm: Mean norm of the position rows that were added.
        expected: Share that is nearest to itself, by the integral, for that norm.
        share: Share that a search identified without knowing the position; ``low`` and ``high`` are the ends of
            Wilson's interval of 95 %.
        known: Share that a search identifies after the row is subtracted from the sum, all in bfloat16: tokens that
            rounding moved by less than half the distance to the nearest other token.
        trials: Tokens that were searched for.
    """

    width: int
    vocabulary: int
    token_deviation: float
    row_norm: float
    expected: float
    share: float
    low: float
    high: float
    known: float
    trials: int

    def to_dict(self) -> dict[str, Any]:
        """The figures by name, as JSON values."""
        return asdict(self)


def ball_share(width: int, radius: float, distances: Any) -> np.ndarray:
    """Share of a standard normal of ``width`` channels in balls of one radius at these distances from its centre.

    This is the distribution function, at ``radius**2``, of the noncentral chi-square variables with ``width`` degrees
    of freedom and noncentralities ``distances**2``. Float64 in the shape of ``distances``; a relative 1e-8.

    >>> ball_share(1, 1.0, [0.0]).round(4).tolist()
    [0.6827]
    """
    return np.exp(_log_ball_share(count("width", width), positive("radius", radius), np.asarray(distances, np.float64)))


def pair_error(width: int, row_norm: float, token_deviation: float = 1.0) -> float:
    """Probability that another random token is nearer to token + position: ``B_d(r / sqrt 2, r / sqrt 2)``.

    >>> round(pair_error(2, row_norm=1.0), 5)  # (1 - exp(-1/2) I_0(1/2)) / 2
    0.17748
    """
    ratio = not_negative("row_norm", row_norm) / positive("token_deviation", token_deviation) / math.sqrt(2)
    return float(ball_share(width, ratio, [ratio])[0]) if ratio else 0.0


def expected_share(width: int, row_norm: float, token_deviation: float = 1.0, vocabulary: int = 50_000) -> float:
    """Share of tokens that are nearest to themselves after an unknown position was added.

    Args:
        width: Channels of a token.
        row_norm: Length of the position's row, ``sqrt(width / 2)`` for a sinusoid.
        token_deviation: Standard deviation of the channels of the drawn tokens.
        vocabulary: Tokens to choose from.

    Accuracy: 1e-6, absolute.

    >>> round(expected_share(512, 16.0), 6), round(expected_share(512, 16.0, token_deviation=512**-0.5), 6)
    (1.0, 0.003105)
    """
    width, others = count("width", width), count("vocabulary", vocabulary) - 1
    ratio = not_negative("row_norm", row_norm) / positive("token_deviation", token_deviation)
    if not ratio or not others:
        return 1.0
    ratio = min(ratio, _FAR)
    # The probability that any other token is nearer is at most the sum over the other tokens.
    if (lost := others * pair_error(width, ratio)) < 1e-8:
        return 1 - lost
    # The length of x + p in standard deviations: it varies by at most 1 around the root of its mean square.
    centre = math.hypot(ratio, math.sqrt(width))
    low, high = max(centre - _REACH, 0.0), centre + _REACH
    knots, fine, weights, between = _interpolation()
    lengths, at = ((low + high) / 2 + (high - low) / 2 * part for part in (knots, fine))
    # Both logarithms are smooth in the length, but their exponentials raised to the power V - 1 are not. So the
    # logarithms are computed at the knots of a polynomial, and the integral at many more lengths.
    logs = np.stack([_log_ball_share(width, ratio, lengths), _log_length_density(width, ratio, lengths)])
    error, angular = between @ logs[0], between @ logs[1]
    density = (width - 1) * np.log(at) - (at - ratio) ** 2 / 2 + angular
    density = weights * np.exp(density - density.max())
    kept = np.exp(others * np.log1p(-np.minimum(np.exp(error), 1 - 2.0**-53)))
    return float((density * kept).sum() / density.sum())


def deviation_needed(width: int, row_norm: float, share: float = 0.99, vocabulary: int = 50_000) -> float:
    """Smallest token deviation at which this share of tokens is nearest to itself, to a relative 1e-4.

    `expected_share` falls with the row's length over the deviation and depends on nothing else; the double logarithm of
    the share is nearly linear in the logarithm of that ratio, so the secant method finds it.

    >>> round(deviation_needed(512, 16.0), 3)
    0.21
    """
    if not not_negative("row_norm", row_norm) or vocabulary < 2:
        return 0.0

    def beyond(ratio: float) -> float:
        found = expected_share(width, math.exp(ratio), vocabulary=vocabulary)
        return math.log(-math.log(min(max(found, 1e-300), 1 - 2.0**-53))) - math.log(-math.log(share))

    # Start from the Gaussian tail, then use the secant through the last two points, by at most a factor e at once.
    tail = NormalDist().inv_cdf(1 - (1 - share) / vocabulary)
    before, at = math.log(width / tail), math.log(width / tail / math.sqrt(2))
    height, there = beyond(before), beyond(at)
    for _ in range(100):
        if abs(there) <= 1e-4 or at == before:
            break
        slope = (there - height) / (at - before)
        step = -there / slope if slope > 0 else -there
        before, height, at = at, there, at + min(1.0, max(-1.0, step))
        there = beyond(at)
    return row_norm / math.exp(at)


def cosine_deviation(width: int) -> float:
    """Standard deviation of the cosine between a random token and any fixed row: ``1 / sqrt(width)``, exactly.

    >>> round(cosine_deviation(512), 4)
    0.0442
    """
    return 1 / math.sqrt(count("width", width))


def cosine_below(width: int, cosine: float) -> float:
    """Share of random tokens whose cosine with a fixed row is smaller than this in absolute value.

    Its density is ``(1 - c**2) ** ((d - 3)/2)``, up to a factor; over the angle t that is ``sin(t) ** (d - 2)``, which
    is integrated here. At least two channels; absolute accuracy 1e-12.

    >>> round(cosine_below(3, 0.25), 12)  # of three channels every cosine is equally likely
    0.25
    """
    power = count("width", width, least=2) - 2
    angle = math.acos(min(1.0, not_negative("cosine", cosine)))
    # From the angle to pi/2; the whole integral is sqrt(pi) Gamma((d - 1)/2) / (2 Gamma(d/2)).
    reach = min(math.pi / 2 - angle, _REACH / math.sqrt(power + 1))
    nodes, weights = _quadrature(_NODES)
    part = (weights * np.cos((nodes + 1) / 2 * reach) ** power).sum() * reach / 2
    whole = math.exp(math.lgamma((power + 1) / 2) - math.lgamma(power / 2 + 1)) * math.sqrt(math.pi) / 2
    return float(min(1.0, part / whole))


def cosine_quantile(width: int, share: float) -> float:
    """The cosine that this share of random tokens stays below in absolute value, by bisection of `cosine_below`.

    >>> round(cosine_quantile(3, 0.25), 9)
    0.25
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if cosine_below(width, middle) < share else (low, middle)
    return (low + high) / 2


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: all shares whose distance from the counted one is at most z standard deviations.

    Source: Wilson 1927, J. Am. Stat. Assoc. 22, 209-212.

    >>> [round(end, 4) for end in wilson(10, 10)]
    [0.7225, 1.0]
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, much = successes / trials, z * z / trials
    middle = share + much / 2
    half = math.sqrt(much * (share * (1 - share) + much / 4))
    return max(0.0, (middle - half) / (1 + much)), min(1.0, (middle + half) / (1 + much))


def recovered(
    rows: np.ndarray,
    token_deviations: tuple[float, ...],
    vocabularies: tuple[int, ...],
    *,
    trials: int = 200,
    seed: Any = 0,
) -> list[Recovered]:
    """Draw a random vocabulary, add positions to some of its tokens, and search for the nearest token.

    Smaller vocabularies and other deviations use the tokens of the largest one, cut and scaled. The intervals treat the
    trials as independent. They share a vocabulary, which matters little as long as no token is near to many sums at
    once (the tests count how often the interval contains the expected share).

    Args:
        rows: Position rows [positions, width]; the first ``trials`` tokens get them cyclically.
        token_deviations: Standard deviations of the tokens' channels.
        vocabularies: Sizes, each at least ``trials``.
        trials: Tokens that are searched for.
        seed: Seed of NumPy's generator, or a generator, whose state advances.
    """
    rows = np.asarray(rows, np.float32)
    width, sizes = rows.shape[1], sorted(set(vocabularies))
    count("vocabulary", sizes[0], least=trials)
    rng, coarse = np.random.default_rng(seed), output_dtype("bfloat16")
    added = rows[np.arange(trials) % len(rows)]
    norm = float(np.linalg.norm(added.astype(np.float64), axis=1).mean())
    own = rng.standard_normal((trials, width), np.float32)
    nearest = np.zeros((len(token_deviations), trials), np.int64)
    least = np.full(nearest.shape, np.inf, np.float32)
    closest = np.full(trials, np.inf, np.float32)
    moved = np.stack([_moved(own, added, deviation, coarse) for deviation in token_deviations])
    found: list[Recovered] = []
    for start, stop in _blocks([trials, *sizes]):
        tokens = rng.standard_normal((stop - start, width), np.float32) if start else own
        # |x + p / s - y|**2 / 2 minus what all y share, in token deviations; first without p.
        apart = (tokens**2).sum(-1) / 2 - own @ tokens.T
        added_part = added @ tokens.T
        for number, deviation in enumerate(token_deviations):
            distances = apart - added_part / np.float32(deviation)
            places = distances.argmin(-1)
            there = np.take_along_axis(distances, places[:, None], -1)[:, 0]
            nearest[number] = np.where(there < least[number], start + places, nearest[number])
            least[number] = np.minimum(there, least[number])
        if not start:
            np.fill_diagonal(apart, np.inf)
        closest = np.minimum(apart.min(-1), closest)
        if stop in sizes:
            right = (nearest == np.arange(trials)).sum(-1).tolist()
            half_way = np.sqrt(np.maximum((own**2).sum(-1) + 2 * closest, 0)) / 2
            certain = (moved < half_way).mean(-1).tolist()
            for deviation, count_of, known in zip(token_deviations, right, certain, strict=True):
                expected = expected_share(width, norm, deviation, stop)
                ends = wilson(count_of, trials)
                found.append(Recovered(width, stop, deviation, norm, expected, count_of / trials, *ends, known, trials))
    return found


def _moved(tokens: np.ndarray, added: np.ndarray, deviation: float, coarse: np.dtype) -> np.ndarray:
    """How far rounding moves tokens when a row is added and subtracted again, in token deviations."""
    row = added.astype(coarse).astype(np.float32)
    total = ((tokens * np.float32(deviation)).astype(coarse).astype(np.float32) + row).astype(coarse)
    back = (total.astype(np.float32) - row).astype(coarse).astype(np.float32)
    return np.linalg.norm(back / np.float32(deviation) - tokens, axis=1)


def _blocks(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Pieces of a vocabulary that end at each of these sizes."""
    start = 0
    for size in sizes:
        while start < size:
            stop = min(start + _BLOCK, size)
            yield start, stop
            start = stop


def _log_ball_share(width: int, radius: float, distances: np.ndarray) -> np.ndarray:
    """Natural logarithm of `ball_share`."""
    shape, c = distances.shape, distances.reshape(-1, 1)
    if width == 1:  # nothing lies beside the line in one dimension
        across, along = np.zeros_like(c), np.full_like(c, radius)
    else:
        across, along = _rings(width, radius, c)
    with np.errstate(divide="ignore", invalid="ignore"):
        near, far = _log_tail(along - c), _log_tail(-along - c)
        logs = across + near + np.log1p(-np.exp(far - near))
    return _log_sum(logs).reshape(shape)


def _rings(width: int, radius: float, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of f(r) a dt at the nodes of t, r = R sin t, and the half chords a = R cos t: [distances, nodes].

    The exponent ``(d - 2) log r - r**2 / 2 + log Phi(a - c)`` is concave in r. Its peak: where the chord reaches over
    the centre of the normal (a >= c), as if there were no ball, r**2 = d - 2; else about where
    ``(d - 2) / r = r c / a``, as the tail is nearly ``exp(-(c - a)**2 / 2)``. Left of the peak it is at least as curved
    as without the ball; right of it at least 1, and more where the tail bends it (a > 3, where that form holds).
    """
    power = width - 2
    free = min(power, radius**2)
    chord = math.sqrt(radius**2 - free)
    with np.errstate(divide="ignore", invalid="ignore"):
        pull = power / c
        peak = np.where(chord >= c, chord, 2 * radius**2 / (pull + np.sqrt(pull**2 + 4 * radius**2)))
        square = np.where(chord >= c, free, power * peak / c)
        tail = np.where(peak > 3, np.maximum(c - peak, 0) * (1 + square / peak**2) / peak + square / peak**2, 0.0)
        tail = np.where(chord >= c, 0.0, tail)
        left = np.where(square > 0, np.sqrt(2 * _DROP / (1 + power / square)), 0.0)
    middle = np.sqrt(square)
    low = np.arcsin(np.maximum(middle - left, 0) / radius)
    high = np.arcsin(np.minimum(middle + np.sqrt(2 * _DROP / (1 + tail)), radius) / radius)
    nodes, weights = _quadrature(_NODES)
    angle, half = (low + high) / 2 + (high - low) / 2 * nodes, (high - low) / 2
    across, along = radius * np.sin(angle), radius * np.cos(angle)
    chi = power * np.log(across) - across**2 / 2 - (power - 1) / 2 * math.log(2) - math.lgamma((power + 1) / 2)
    return chi + np.log(along) + np.log(half * weights), along


def _log_length_density(width: int, ratio: float, lengths: np.ndarray) -> np.ndarray:
    """Logarithm of ``dB_d(c, r) / dc`` less ``(d - 1) log c - (c - r)**2 / 2``, up to a constant.

    On a sphere of radius c the normal around a point at the distance r has, at the angle t from it, the share
    ``sin(t) ** (d - 2) exp(-(c**2 - 2 c r cos t + r**2) / 2)``.
    """
    if width == 1:
        return np.log1p(np.exp(-2 * ratio * lengths))
    power, pull = width - 2, (ratio * lengths)[:, None]
    # cos t at the peak, where (d - 2) cos t = c r sin(t)**2.
    cosine = 2 * pull / (power + np.sqrt(power**2 + 4 * pull**2))
    peak = np.arccos(np.minimum(cosine, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(peak > 0, np.sqrt(2 * _DROP / (power / np.sin(peak) ** 2 + pull * cosine)), 0.0)
    low = np.maximum(peak - left, 0)
    # cos t falls by at least a quarter of the square of t until t is close to pi.
    high = np.minimum(peak + np.sqrt(2 * _DROP / (power + pull / 4)), np.pi)
    nodes, weights = _quadrature(_NODES)
    angle = (low + high) / 2 + (high - low) / 2 * nodes
    logs = power * np.log(np.sin(angle)) - 2 * pull * np.sin(angle / 2) ** 2 + np.log((high - low) / 2 * weights)
    return _log_sum(logs)


def _log_sum(logs: np.ndarray) -> np.ndarray:
    """Logarithm of the sum of exponentials along the last axis."""
    top = logs.max(-1)
    return top + np.log(np.exp(logs - top[..., None]).sum(-1))


def _log_tail(z: np.ndarray) -> np.ndarray:
    """Logarithm of Phi(z), a relative 2e-10: `math.erfc` where it does not vanish, and its asymptotic series beyond."""
    out = np.empty_like(z)
    near = z > -30
    out[near] = np.log([math.erfc(one) / 2 for one in (z[near] / -math.sqrt(2)).tolist()])
    far = z[~near]
    least = 1 / far**2
    out[~near] = (
        -(far**2) / 2 - np.log(-far * math.sqrt(2 * math.pi)) + np.log1p(-least * (1 - least * (3 - 15 * least)))
    )
    return out


@cache
def _quadrature(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre quadrature on (-1, 1)."""
    return np.polynomial.legendre.leggauss(number)


@cache
def _interpolation() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Chebyshev knots; nodes and weights of panels on (-1, 1); the matrix from values at knots to values at nodes."""
    knots = np.cos((np.arange(_KNOTS) + 0.5) * np.pi / _KNOTS)
    nodes, weights = _quadrature(_PER_PANEL)
    starts = np.arange(_PANELS)[:, None] * 2 / _PANELS - 1
    fine = (starts + (nodes + 1) / _PANELS).ravel()
    terms = np.polynomial.chebyshev.chebvander(knots, _KNOTS - 1) * (2 / _KNOTS)
    terms[:, 0] /= 2
    between = np.polynomial.chebyshev.chebvander(fine, _KNOTS - 1) @ terms.T
    return knots, fine, np.tile(weights, _PANELS), between
