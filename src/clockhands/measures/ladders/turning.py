"""Counts the dimension pairs that complete a full rotation within a length, and those that do not.

A pair of frequency ``w`` (rad/token) completes a rotation in its wavelength, ``2 pi / w`` tokens. Within ``n`` tokens
it completes ``n w / (2 pi)`` rotations; if that is less than 1, the remaining angles occur at no position, and a model
trained at this length has never seen them. A pair of more than ``pi`` rad/token rotates by more than half a rotation
from one token to the next: it looks the same as a slower one that rotates in the other direction (aliasing).

The numbers of `turning`, counted over all axes; a pair whose wavelength equals the length completes its rotation:

* ``pairs``: the number of all dimension pairs; ``completing``: the number of pairs that complete a rotation within the
  length, which is where ``n w >= 2 pi``.
* ``never_completing``: the number of pairs that rotate and do not complete a rotation; ``standing_still``: the number
  of pairs of frequency 0.
* ``first_never_completing``: the index of the first dimension pair that does not complete a rotation within the length,
  or has frequency 0. Pairs are counted from 0 along the axis ``axis``; None where every pair completes a rotation.
* ``slowest_wavelength``: the wavelength of the slowest pair, in tokens; None where no pair rotates, or float64 cannot
  represent the wavelength. ``slowest_share_of_circle``: the number of rotations of the slowest pair within the length,
  ``n w / (2 pi)``.
* ``more_than_half_a_turn_a_token``: the number of dimension pairs that rotate by more than half a rotation per token
  (``w > pi``); None for a warped position, because the angle per token is then not constant.
* ``axis``: the axis of the slowest pair, counted from 0; ``never_completing_by_axis``: for each axis, the number of
  pairs that rotate and do not complete a rotation.

Accuracy: a wavelength and a share are within a relative 2**-51; in the counts, a product within a relative 1e-12 of ``2
pi`` counts as equal to it; ladders in use have no number so close to it by chance.
"""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

from clockhands.encodings.additive import FourierFeatures, SineOnly, WarpedPosition
from clockhands.encodings.ladders import Ladder, working
from clockhands.encodings.positions import numpy_of
from clockhands.measures.property import Property, Unanswered, answer, measure, not_applicable, not_computed, sentence
from clockhands.measures.subject import MeasuredCode
from clockhands.phrases import said

# A pair whose wavelength equals the length completes its rotation; rounding must not change that.
_TURN = 2 * math.pi * (1 - 1e-12)
_SAME = 1e-9  # relative: a pair that scaling moves back to its old last angle is not beyond it


def completes(rate: float, length: float) -> bool:
    """Whether a pair of this frequency (rad/token) completes a rotation within a length (tokens)."""
    return rate * length >= _TURN


def wavelength(rate: float) -> float:
    """The wavelength in tokens of a pair of this frequency (rad/token); infinite for frequency 0 and on overflow.

    >>> wavelength(0.0), wavelength(5e-324), round(wavelength(0.01), 3)
    (inf, inf, 628.319)
    """
    return 2 * math.pi / rate if rate else math.inf


def wavelengths(rates: Sequence[float]) -> list[float]:
    """The wavelength of each pair, as `wavelength` of its frequency."""
    return list(map(wavelength, rates))


def incomplete(rates: Sequence[float], length: float) -> list[float]:
    """The frequencies of the pairs that complete no rotation within a length."""
    return [rate for rate in rates if not completes(rate, length)]


def turned_through(rates: Sequence[float], length: float) -> int:
    """How many pairs complete a rotation within a length; those of frequency 0 do not.

    >>> turned_through((1.0, 0.01, 0.0), 629)
    2
    """
    return sum(completes(rate, length) for rate in rates)


def turned_beyond(before: Sequence[float], rates: Sequence[float], trained: float, served: float) -> tuple[bool, ...]:
    """For each pair: did it not complete a rotation in training, and does it rotate further in use than in training?

    Such a pair reaches angles at later positions that did not occur in training; a pair that completed a rotation has
    reached all angles.

    Args:
        before: The frequencies in training, rad/token.
        rates: The frequencies in use, pair by pair: after a scaling, or the same.
        trained: The trained length, in tokens.
        served: The length in use, in tokens.

    >>> turned_beyond((1.0, 0.01), (1.0, 0.01), 100, 200), turned_beyond((1.0, 0.01), (1.0, 0.005), 100, 200)
    ((False, True), (False, False))
    """
    return tuple(
        not completes(old, trained) and new * served > old * trained * (1 + _SAME)
        for old, new in zip(before, rates, strict=True)
    )


def rotating_ladders(subject: MeasuredCode) -> tuple[Ladder, ...]:
    """The frequencies of the pairs that rotate, one ladder for each axis.

    For Fourier features they are the absolute values of the frequencies in the learned values, in radians per unit of a
    coordinate.

    Raises:
        Unanswered: No pair rotates.
    """
    spec = subject.spec
    if isinstance(spec, FourierFeatures):
        if subject.values is None:
            raise Unanswered(not_computed(sentence("turning.no_frequencies")))
        rates = abs(numpy_of(subject.values, "values").astype("float64")).reshape(-1, spec.pairs)[: spec.axes]
        with localcontext(working()):
            factor = Decimal(spec.multiplier)
            return tuple(Ladder(tuple(Decimal(rate) * factor for rate in row)) for row in rates.tolist())
    if subject.ladders:
        return subject.ladders
    why = "learned_rows" if subject.spec_is_learned else "other_dimensions"
    why = {"bias": "no_pairs_of_a_bias", "none": "no_pairs_of_none"}.get(subject.kind, why)
    raise Unanswered(not_applicable(sentence(f"turning.{why}", encoding=type(spec).__name__)))


def span(subject: MeasuredCode) -> float:
    """The length in the unit of the frequencies' positions: the number of tokens, unless positions are warped."""
    if isinstance(subject.spec, WarpedPosition):
        begin, end = subject.first, subject.first + subject.length
        warp = {"square": lambda p: p * p, "log": math.log, "reciprocal": lambda p: 1 / p}[subject.spec.warp]
        return abs(warp(end) - warp(begin))
    return subject.length


@measure
def turning(subject: MeasuredCode) -> Property:
    """Which pairs complete a rotation within the length; the module lists the numbers."""
    ladders = rotating_ladders(subject)
    reach, warped = span(subject), isinstance(subject.spec, WarpedPosition)
    never = [sum(rate > 0 and not completes(rate, reach) for rate in ladder.rates) for ladder in ladders]
    still = sum(ladder.rates.count(0.0) for ladder in ladders)
    moving = [(rate, axis) for axis, ladder in enumerate(ladders) for rate in ladder.rates if rate]
    slowest, axis = min(moving, default=(0.0, 0))
    pairs = sum(ladder.pairs for ladder in ladders)
    missing = (pair for pair, rate in enumerate(ladders[axis].rates) if not completes(rate, reach))
    slow = wavelength(slowest)
    numbers = {
        "pairs": pairs,
        "completing": pairs - sum(never) - still,
        "never_completing": sum(never),
        "standing_still": still,
        "first_never_completing": next(missing, None),
        "slowest_wavelength": slow if math.isfinite(slow) else None,
        "slowest_share_of_circle": reach * slowest / (2 * math.pi) if slowest else None,
        "more_than_half_a_turn_a_token": None if warped else sum(rate > math.pi for rate, _ in moving),
        "axis": axis,
        "never_completing_by_axis": never,
    }
    return _property_of(subject, numbers, reach)


def _property_of(subject: MeasuredCode, numbers: dict[str, Any], reach: float) -> Property:
    never, still, first = (numbers[each] for each in ("never_completing", "standing_still", "first_never_completing"))
    pairs, slow, fast = (numbers[each] for each in ("pairs", "slowest_wavelength", "more_than_half_a_turn_a_token"))
    one, axes = "sine" if isinstance(subject.spec, SineOnly) else "pair", len(numbers["never_completing_by_axis"])
    warped = isinstance(subject.spec, WarpedPosition)
    words = {
        "incomplete": never + still,
        "turning": pairs - still,
        "one": one,
        "what": one if one == "sine" else f"dimension {one}",
        "since": str(first) if never and axes == 1 and first == pairs - never and not still else None,
        "length": subject.length,
        "units": reach if warped else None,
        "along": None if axes == 1 else str(numbers["axis"]),
        "needed": "more than 1e308" if slow is None else said(slow),
        "unit": "of these units" if warped else "tokens",
        "percent": 100 * (numbers["slowest_share_of_circle"] or 0),
    }
    told = ["never"] if never else ["some" if still else "all"] if still < pairs else []
    if still:
        told.insert(len(told) if never else 0, "still")
    if fast:
        told.append("aliased")
    more = [sentence(f"turning.{each}", **(numbers | words)) for each in told]
    return answer("turning.some_never" if never + still else "turning.all_complete", *more, words=words, **numbers)
