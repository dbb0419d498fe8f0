"""Measures what adding a code does to a token: the norm of its rows, and whether the token can still be identified.

Numbers of the property, for a vocabulary of 50,000 random tokens (`_recoverable`) and random projections
(`_score_terms`); all are computed from formulas, none is simulated:

* ``positions_measured``: the number of rows that were measured: the first 128 and 64 that are evenly spaced over the
  length; of a learned table all rows. ``first_positions``: the number of the first positions, at most 128, for which
  ``position_position_share`` and ``offset_share`` are computed.
* ``row_norm_least``, ``row_norm_mean``, ``row_norm_largest``: the smallest, the mean and the largest Euclidean norm of
  a row, in the dtype.
* ``token_norm_at_deviation_1``: ``sqrt(width)``, the norm of a token of independent N(0, 1) values. Embeddings N(0, 1 /
  width) have this norm with the factor sqrt(width) of Vaswani et al., and the norm 1 without the factor. Embeddings
  N(0, 1) have the norm ``width`` with the factor. ``row_over_token``: ``row_norm_mean`` divided by
  ``token_norm_at_deviation_1``.
* ``found_at_deviation_1``, ``found_at_deviation_one_over_root_width``, ``found_at_deviation_root_width``: the share of
  tokens that are nearest to themselves among 50,000 after the longest row is added, without knowing the position
  (absolute accuracy 1e-6). ``deviation_needed``: the smallest standard deviation at which 99 of 100 tokens are nearest
  to themselves (relative accuracy 1e-4).
* ``vocabulary``: the number of random tokens among which a token must be identified after the encoding is added.
* ``cosine_deviation``: ``1 / sqrt(width)``, the standard deviation of the cosine of token and row; ``cosine_999``: the
  number below which 999 of 1,000 such cosines are in size (accuracy 1e-12; None for one dimension).
* ``sum_rounding``: the rounding error of the sum of token and row in the dtype, for tokens of standard deviation 1: the
  root mean square over the dimensions of the row with the largest error. Near a value v of the row, neighbouring
  numbers of the dtype are h = ``spacing(max(|v|, 1))`` apart. Rounding therefore changes a normal token z by ``z - h
  round(z / h)``, whose mean square is ``h**2 (1/12 + sum_k (-1)**k exp(-2 (pi k / h)**2) / (pi k)**2)``: ``h**2 / 12``
  for small h, and 1 for an h so large that nothing of the token is left. If v is near a power of two, where h changes,
  ``sum_rounding`` is off by up to a factor of 2.
* ``position_position_share``: the expected share of the position-position term in the variance of a score, for tokens
  of deviation 1 and random projections.
* ``offset_share``: the share of the variance of the position-position term that a function of the offset explains with
  random projections (accuracy 1e-9); ``offset_share_of_noise``: the share that a function of the offset would explain
  of random numbers. Both ``offset_share`` and ``offset_share_of_noise`` are None for fewer than 3 positions, or if all
  rows are equal.

The property holds where at least 99 % of the tokens are found at deviation 1. Codes of several axes are measured along
each axis with the other coordinates at the first position; the worst axis is reported.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode, Learned, table
from clockhands.encodings.dtypes import limits
from clockhands.errors import InvalidValue
from clockhands.measures.adding._recoverable import cosine_deviation, cosine_quantile, deviation_needed, expected_share
from clockhands.measures.adding._score_terms import expected_offset_share, expected_terms
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode, row_norms

VOCABULARY = 50_000
"""Tokens of the drawn vocabulary."""

FOUND = 0.99
"""Share of tokens that must be found again for the property to hold."""

_FIRST, _SPREAD = 128, 64


@measure
def adding(subject: MeasuredCode) -> Property:
    """Whether a token can be identified after the code was added; the module's docstring lists the numbers."""
    if subject.missing is not None:
        return not_computed(subject.missing)
    try:
        first = [subject.rows(0, min(subject.length, _FIRST), axis) for axis in range(subject.axes)]
        rows = [*first]
        if subject.length > _FIRST:
            rows += [_spread(subject, axis) for axis in range(subject.axes)]
    except InvalidValue as refused:
        return not_computed(sentence("adding.refused", dtype=subject.dtype.name, why=refused.message))
    lengths = np.concatenate([row_norms(each.astype(np.float64)) for each in rows])
    if not np.isfinite(lengths).all():
        return not_computed(sentence("adding.overflows", dtype=subject.dtype.name))
    farthest = max(rows, key=lambda each: float(np.abs(each).max(initial=0)))
    return _measured(subject, lengths, farthest, [each.astype(np.float64) for each in first])


def _measured(subject: MeasuredCode, lengths: np.ndarray, farthest: np.ndarray, first: list[np.ndarray]) -> Property:
    number, width = first[0].shape
    root = math.sqrt(width)
    longest, mean = float(lengths.max()), float(lengths.mean())
    found, small, large = (expected_share(width, longest, each, VOCABULARY) for each in (1.0, 1 / root, root))
    needed = deviation_needed(width, longest, FOUND, VOCABULARY)
    varied = [each for each in first if number > 2 and not (each == each[0]).all()]
    offset = min((expected_offset_share(each) for each in varied), default=None)
    numbers: dict[str, Any] = {
        "positions_measured": len(lengths),
        "first_positions": number,
        "vocabulary": VOCABULARY,
        "row_norm_least": float(lengths.min()),
        "row_norm_mean": mean,
        "row_norm_largest": longest,
        "token_norm_at_deviation_1": root,
        "row_over_token": mean / root,
        "found_at_deviation_1": found,
        "found_at_deviation_one_over_root_width": small,
        "found_at_deviation_root_width": large,
        "deviation_needed": needed,
        "cosine_deviation": cosine_deviation(width),
        "cosine_999": cosine_quantile(width, 0.999) if width > 1 else None,
        "sum_rounding": _sum_rounding(farthest, subject.dtype),
        "position_position_share": max(expected_terms(each).position_position for each in first),
        "offset_share": offset,
        "offset_share_of_noise": None if offset is None else 2 / (number + 1),
    }
    off = numbers["sum_rounding"]
    words = {
        "longest": _short(longest),
        "varied": not math.isclose(longest, lengths.min(), rel_tol=1e-2),
        "found": _percent(found),
        "token": _short(root),
        "deviation": _short(1 / root),
        "width": width,
        "found_small": _percent(small),
        "most": _percent(FOUND),
        "needed": _short(needed),
        "explained": "" if offset is None else _percent(offset),
        "chance": _percent(2 / (number + 1)),
        "off": off if off > 0.05 else None,
        "dtype": subject.dtype.name,
        "lost": off > 0.9,
    }
    holds = found >= FOUND
    more = [sentence("adding.rounding", **words)] if off > 0.05 else []
    return answer(f"adding.{'found' if holds else 'not_found'}", *more, holds=holds, words=words, **numbers)


def _spread(subject: MeasuredCode, axis: int) -> np.ndarray:
    """Positions beyond the first ones: of a learned table all, else at most 64, evenly spaced, including the last."""
    if isinstance(subject.spec, Learned) or subject.length <= _FIRST + _SPREAD:
        return subject.rows(_FIRST, subject.length, axis)
    assert isinstance(subject.spec, AdditiveCode)
    # Computed with Python integers: float64 skips positions above 2**53, and the last may be 2**63, which int64 cannot
    # hold.
    apart = subject.length - 1 - _FIRST
    places: Any = np.array([subject.first + _FIRST + round(Fraction(apart * i, _SPREAD - 1)) for i in range(_SPREAD)])
    if subject.axes > 1:
        places, along = np.full((_SPREAD, subject.axes), subject.first, places.dtype), places
        places[:, axis] = along
    return table(subject.spec, places, subject.dtype, values=subject.values)


def _sum_rounding(rows: np.ndarray, dtype: np.dtype) -> float:
    sizes = np.maximum(np.abs(rows.astype(np.float64)), 1)
    exponents = np.floor(np.log2(sizes)).astype(np.int64)
    each, places = np.unique(exponents, return_inverse=True)
    after_first = limits(dtype)[0] - 1  # bits
    squares = np.array([_rounded_off(2.0 ** (int(one) - after_first)) for one in each])
    return math.sqrt(float(squares[places.reshape(rows.shape)].mean(-1).max()))


def _rounded_off(spacing: float) -> float:
    """Mean square of ``z - h round(z / h)`` for a standard normal z."""
    if spacing > 16:  # |z| above 8 has the probability 1e-15
        return 1.0
    waves = np.arange(1, 3 + math.ceil(3 * spacing))
    signs = np.where(waves % 2, -1.0, 1.0)
    series = (signs * np.exp(-2 * (np.pi * waves / spacing) ** 2) / (np.pi * waves) ** 2).sum()
    return spacing**2 * float(1 / 12 + series)


def _percent(share: float) -> str:
    """A share in whole per cent, with one digit more below 10; 0 % and 100 % only if they are exact."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "under 0.1%"
    if 99.5 <= percent < 100 - 1e-4:
        return "over 99%"
    return f"{percent:.0f}%" if percent >= 10 or percent == 0 else f"{percent:.1f}%"


def _short(number: float) -> str:
    """A number as text: three digits, or a whole number."""
    return f"{number:,.0f}" if 1000 <= number < 1e6 else f"{number:.3g}"
