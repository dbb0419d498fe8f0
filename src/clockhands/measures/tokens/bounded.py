"""Measures how large the numbers of a code get, and whether they stay within a bound at any length.

Numbers of `bounded`, in the code's own unit:

* ``largest``: the largest absolute value of the encoding over all positions of the measured length, before rounding;
  None where the value was not computed (a computed encoding with more than 16 million values and no formula).
* ``limit``: the bound that no value of the encoding exceeds at any length; None where no bound exists or no bound is
  known.
* ``row_norm``: the Euclidean norm of a position's row, if all rows have the same norm: ``factor sqrt(pairs)`` for sines
  and cosines, sqrt(width / 2) for the table of Vaswani et al.; otherwise ``smallest_row_norm`` and
  ``largest_row_norm``.
* ``norm_factor``: of RoPE, the attention factor, by which the norm of the rotated part of a query is multiplied.
* ``largest_of_dtype``: the largest number that the dtype holds; ``fits_dtype``: whether ``largest`` is at most this
  number.
* For xPos, ``largest`` is the largest factor by which a key or a query is multiplied (None where float64 cannot
  represent this factor), and ``growth_per_token`` is the natural logarithm of the growth of this factor for each token
  away from the centre. For encodings whose values grow with the position, ``growth_per_token`` is the growth of a value
  for each token. For biases, see `clockhands.measures.biases.bounded`.

Accuracy: limits and norms of codes of cosine-sine pairs within a relative 4 x 2**-53; figures from rows are as exact as
the rows in float64.
"""

import math
from typing import Any

import numpy as np

from clockhands.encodings.additive import Counter, FourierFeatures, Learned, NormalizedCounter, Sinusoidal
from clockhands.encodings.dtypes import limits
from clockhands.encodings.rotary import Rotary
from clockhands.errors import ClockhandsError
from clockhands.measures.biases.bounded import bounded_bias
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode, PairLadders, channel_pairs, different_axes, row_norms, rows_of

_MOST_NUMBERS = 1 << 24
_BLOCK = 1 << 20


@measure
def bounded(subject: MeasuredCode) -> Property:
    """Whether the numbers of the code have a limit that holds at any length.

    For a rotary code the question is how it changes the norm of a query or key: only by its attention factor, unless
    xPos makes keys grow. For a bias, how large the number added to a score gets. The module lists the numbers.

    Source: arithmetic; for the codes see their own modules.
    """
    spec = subject.spec
    if subject.kind == "bias":
        return bounded_bias(subject)
    if subject.kind == "none":
        return answer("bounded.nothing", holds=True, largest=0.0, limit=0.0)
    if isinstance(spec, Rotary):
        return _xpos(subject, spec) if spec.xpos is not None else _rotary(subject, spec)
    if subject.missing is not None:
        return _without_values(subject)
    try:
        hands = channel_pairs(subject)
        return _by_kind(subject) if hands is None else _clock(subject, hands)
    except ClockhandsError as error:  # a table for standardisation that is too large, or has no spread
        return not_computed(sentence("bounded.no_values", why=error.message))


def _dtype(subject: MeasuredCode, largest: float | None) -> dict[str, Any]:
    most = limits(subject.dtype)[1]
    return {"largest_of_dtype": most, "fits_dtype": None if largest is None else largest <= most}


def _clock(subject: MeasuredCode, hands: PairLadders) -> Property:
    # At position 0 every cosine is 1.
    # At position 0 every cosine is 1.
    largest = hands.factor if subject.first == 0 else _looked_for(subject).get("largest")
    numbers = {"largest": largest, "limit": hands.factor, "row_norm": hands.norm, **_dtype(subject, largest)}
    return answer("bounded.pairs", holds=True, **numbers)


def _rotary(subject: MeasuredCode, spec: Rotary) -> Property:
    factor = spec.attention_factor
    return answer(
        "bounded.rotations" if factor == 1 else "bounded.scaled_rotations",
        holds=True,
        largest=factor,
        limit=factor,
        row_norm=factor * len(spec.rates) ** 0.5,
        norm_factor=factor,
        **_dtype(subject, factor),
    )


def _xpos(subject: MeasuredCode, spec: Rotary) -> Property:
    assert spec.xpos is not None
    rate = float(np.abs(spec.xpos.logarithms(spec.rotated // 2)).max())
    exponent = rate * max(abs(subject.first - spec.xpos.centre), abs(subject.last - spec.xpos.centre))
    largest = spec.attention_factor * math.exp(exponent) if exponent < 700 else None
    shown = f"{largest:.4g}" if largest is not None else f"10**{exponent / math.log(10):.0f}"
    fits = {**_dtype(subject, largest), **({"fits_dtype": False} if largest is None else {})}
    words = {"shown": shown, "centre": spec.xpos.centre, "step": math.expm1(rate), "length": subject.length}
    return answer("bounded.xpos", holds=False, words=words, largest=largest, limit=None, growth_per_token=rate, **fits)


def _without_values(subject: MeasuredCode) -> Property:
    spec = subject.spec
    if isinstance(spec, FourierFeatures):
        return _beside_coordinates(subject) or _limited(subject, spec.scale, "for any frequencies")
    if isinstance(spec, Sinusoidal):
        return answer("bounded.by_its_scale", holds=True, largest=None, limit=None)
    assert subject.missing is not None
    return not_computed(subject.missing)


def _by_kind(subject: MeasuredCode) -> Property:
    """The property of codes that are not clocks, or whose pairs are incomplete."""
    spec = subject.spec
    if isinstance(spec, Counter):
        return _growing(subject, "every dimension contains the position itself", 1.0)
    if isinstance(spec, NormalizedCounter):
        if subject.length <= spec.length:
            return _limited(subject, 1.0, f"in texts of {spec.length:,} tokens")
        return _growing(
            subject, f"the counter continues past its length of {spec.length:,} tokens", 1 / (spec.length - 1)
        )
    if isinstance(spec, Learned):
        found = _looked_for(subject)
        numbers = {"limit": found["largest"], **found, **_dtype(subject, found["largest"])}
        return answer("bounded.learned", holds=True, words={"last": spec.rows - 1}, **numbers)
    if isinstance(spec, Sinusoidal):
        mean, factor = spec.affine
        return _limited(subject, factor * abs(subject.trained_scale) * (1 + abs(mean)), "at any position")
    beside = _beside_coordinates(subject)
    if beside is not None:
        return beside
    limit = getattr(spec, "limit", None)
    if limit is None:
        return not_computed(sentence("bounded.no_limit", encoding=type(spec).__name__))
    return _limited(subject, limit, "at any position")


def _beside_coordinates(subject: MeasuredCode) -> Property | None:
    """The property of a code with sines and cosines beside raw coordinates."""
    if getattr(subject.spec, "raw", None) is None:
        return None
    return _growing(subject, "the encoding contains the coordinates themselves", subject.scale)


def _limited(subject: MeasuredCode, limit: float, where: str) -> Property:
    found = _looked_for(subject)
    largest = found.get("largest")
    words = {"where": where, "length": subject.length}
    within = "" if largest is None else sentence("bounded.within_the_length", **words, **found)
    numbers = {"limit": limit, **found, **_dtype(subject, largest)}
    return answer("bounded.limited", within, holds=True, words=words, **numbers)


def _growing(subject: MeasuredCode, why: str, each: float) -> Property:
    """A code with a channel that is ``each`` times the position."""
    last, found = subject.last, _looked_for(subject)
    largest = found["largest"]
    if largest is None:
        # Too many rows, or rows that are not known: sines and cosines beside a coordinate are at most as large as its
        # unit.
        largest = each * max(last, 1 if not isinstance(subject.spec, Counter) else 0)
    numbers = {"limit": None, "growth_per_token": each, **found, "largest": largest, **_dtype(subject, largest)}
    return answer("bounded.grows", holds=False, words={"why": why, "last": last}, **numbers)


def _looked_for(subject: MeasuredCode) -> dict[str, Any]:
    """The largest number and the norms of rows, if rows can be computed and are not too many."""
    none = {"largest": None, "smallest_row_norm": None, "largest_row_norm": None}
    if subject.missing is not None:
        return none
    largest, smallest_norm, largest_norm = 0.0, math.inf, 0.0
    kind = subject.dtype if isinstance(subject.spec, Learned) else np.dtype(np.float64)
    for axis in different_axes(subject):
        make = rows_of(subject, axis, kind)
        width = make(0, 1).shape[1]
        # Learned rows are not computed: they are in memory already.
        if subject.length * width > _MOST_NUMBERS and not isinstance(subject.spec, Learned):
            return none
        height = max(1, _BLOCK // width)
        for start in range(0, subject.length, height):
            rows = make(start, min(start + height, subject.length)).astype(np.float64)
            norms = row_norms(rows)
            largest = max(largest, float(np.abs(rows).max()))
            smallest_norm, largest_norm = min(smallest_norm, float(norms.min())), max(largest_norm, float(norms.max()))
    return {"largest": largest, "smallest_row_norm": smallest_norm, "largest_row_norm": largest_norm}
