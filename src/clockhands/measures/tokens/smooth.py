"""Measures the distance of neighbouring rows: is it the same everywhere, and smaller than for random pairs?

Numbers of `smooth`, distances Euclidean, in the numbers' own unit; positions in tokens:

* ``adjacent_distance``: the distance of the rows of neighbouring positions, ``factor sqrt(sum_i 4 sin(rate_i / 2) **
  2)`` for sines and cosines, otherwise the mean of these distances over the measured length; ``smallest_step``,
  ``largest_step``: the smallest and the largest distance between the rows of neighbouring positions;
  ``largest_step_from``: the position from which the largest step is taken.
* ``same_everywhere``: whether all steps between neighbouring positions have the same size.
* ``relative_to_norm``: the adjacent distance divided by the norm of a row; ``cosine_of_neighbours``: the cosine of the
  angle between the rows of two neighbouring positions, or the mean of this cosine if it varies. Both figures are None
  where a row is zero.
* ``random_pair_distance``: root of the mean squared distance of two different tokens of the length, drawn at random:
  ``sqrt(2 (mean |row| ** 2 - |mean row| ** 2) n / (n - 1))``.
* ``of_random_pair``: the adjacent distance divided by ``random_pair_distance``.
* ``row_norm``: the Euclidean norm of a position's row, or the mean of these norms if they vary; ``axis``: for an
  encoding with several axes, the axis with the worst result, otherwise None.
* ``rounding_moves_steps_by``: for sines and cosines, the largest change of the distance of neighbouring rows by
  rounding to the dtype.

The steps are computed before rounding to the dtype; learned numbers are used as they are in the dtype.

Accuracy: for codes of cosine-sine pairs ``factor sqrt(2 pairs) 1.55 x 2**-53`` and a relative ``(pairs + 3) 2**-53``;
for other codes the 4 ulp of float64 rows, times ``2 sqrt(width)``.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from clockhands.encodings.additive import Learned
from clockhands.encodings.ladders import Ladder
from clockhands.encodings.phases import units
from clockhands.encodings.positions import positions_of
from clockhands.errors import ClockhandsError
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import (
    MakeRows,
    MeasuredCode,
    PairLadders,
    channel_pairs,
    different_axes,
    rounding_distance,
    row_norms,
    rows_of,
)

_MOST_NUMBERS = 1 << 28  # rows that are computed for a code without a formula
_BLOCK = 1 << 20


def adjacent_distance(ladder: Ladder) -> float:
    """The distance of neighbouring rows, the same everywhere: ``sqrt(sum_i 4 sin(rate_i / 2) ** 2)``.

    For pairs of norm 1, a cosine and a sine for each frequency. For a geometric ladder of base 10,000 it tends to
    0.1614 sqrt(width) as the width grows.

    Accuracy: as `step_distances`.

    >>> from clockhands.encodings.ladders import geometric
    >>> round(adjacent_distance(geometric(256)), 3), round(adjacent_distance(geometric(32)), 3)
    (3.714, 1.472)
    """
    return float(step_distances(ladder, [1])[0])


def step_distances(ladder: Ladder, distances: Sequence[int] | np.ndarray) -> np.ndarray:
    """The distance of two tokens ``k`` apart for each ``k``, [distances]: ``sqrt(sum_i 4 sin(k rate_i / 2) ** 2)``.

    Accuracy: each pair is within ``sqrt(2)`` times 1.55 x 2**-53, so the distance is within ``sqrt(2 pairs)`` times
    that and a relative ``(pairs + 3) 2**-53``.

    Raises:
        InvalidValue: The absolute value of ``k`` is above 2**63.
    """
    out = np.empty(len(distances))
    height = max(1, _BLOCK // ladder.pairs)
    for begin in range(0, len(out), height):
        turned = units(ladder, positions_of(distances[begin : begin + height])) - 1
        out[begin : begin + height] = np.sqrt((turned.real**2 + turned.imag**2).sum(axis=1))
    return out


def random_pair_distance(ladder: Ladder, length: int) -> float:
    """The root mean squared distance of two different tokens among ``length``, for pairs of norm 1.

    ``sqrt(2 n / (n - 1) sum_i (1 - m_i ** 2))`` with ``m_i = |1 - exp(i n rate_i)| / (n |1 - exp(i rate_i)|)``, the
    norm of the mean of a pair over ``n`` tokens.

    Accuracy: a relative 1e-7; only pairs that rotate by less than 0.001 rad in total come near that; for them the first
    term of a series is used.
    """
    rates = np.array(ladder.rates)
    exact = np.abs(1 - units(ladder, positions_of([1, length])))
    # A small sine keeps the digits that a small difference from 1 loses.
    single = np.where(rates < 1, 2 * np.sin(np.minimum(rates, 1) / 2), exact[0])
    whole = np.where(length * rates < 1, 2 * np.sin(np.minimum(length * rates, 1) / 2), exact[1])
    still = length * rates < 1e-3
    mean = whole / (length * np.where(single == 0, 1, single))
    lost = np.where(still, (length**2 - 1.0) * rates**2 / 12, 1 - np.minimum(mean, 1) ** 2)
    return math.sqrt(2 * length / (length - 1) * float(lost.sum()))


@measure
def smooth(subject: MeasuredCode) -> Property:
    """Whether a step of one token is small, and the same everywhere.

    It holds if every step has the same size and is smaller than ``random_pair_distance``: neighbouring rows are then
    closer than random ones. With fewer than three tokens all pairs are neighbours, and there is no answer. The module
    lists the numbers.

    Source: claims about it: every article on the subject; the O(1/d) that some give is O(sqrt(d)).
    """
    if subject.missing is not None:
        return not_computed(subject.missing)
    hands = channel_pairs(subject)
    if hands is not None:
        return _of_pairs(subject, hands)
    if subject.length < 2:
        return answer("smooth.one_token")
    return _of_rows(subject)


def _of_pairs(subject: MeasuredCode, hands: PairLadders) -> Property:
    steps = [hands.factor * adjacent_distance(ladder) for ladder in hands.ladders]
    n = subject.length
    pairs = [hands.factor * random_pair_distance(ladder, n) for ladder in hands.ladders] if n > 2 else []
    shares = [step / pair if pair else math.inf for step, pair in zip(steps, pairs, strict=True)] if pairs else steps
    axis = int(np.argmax(shares))
    step, norm = steps[axis], hands.norm
    cosine = 1 - (step / norm) ** 2 / 2
    numbers = {
        "adjacent_distance": step,
        "smallest_step": step,
        "largest_step": step,
        "same_everywhere": True,
        "row_norm": norm,
        "relative_to_norm": step / norm,
        "cosine_of_neighbours": cosine,
        "random_pair_distance": pairs[axis] if pairs else None,
        "of_random_pair": step / pairs[axis] if pairs and pairs[axis] else None,
        "rounding_moves_steps_by": rounding_distance(subject, hands, axis),
        "axis": axis if len(steps) > 1 else None,
    }
    return _property_of(numbers, n)


def _of_rows(subject: MeasuredCode) -> Property:
    try:
        # Learned rows are used as they are in the dtype; other rows before rounding.
        kind = subject.dtype if isinstance(subject.spec, Learned) else np.dtype(np.float64)
        makers = {axis: rows_of(subject, axis, kind) for axis in different_axes(subject)}
        width = makers[0](0, 1).shape[1]
    except ClockhandsError as error:
        return not_computed(sentence("smooth.no_values", why=error.message))
    if subject.length * width > _MOST_NUMBERS:
        most = _MOST_NUMBERS // width
        return not_computed(sentence("smooth.too_long", length=subject.length, width=width, most=most))
    try:
        each = [{**_steps(make, subject), "axis": axis} for axis, make in makers.items()]
    except ClockhandsError as error:
        return not_computed(sentence("smooth.no_values_for", length=subject.length, why=error.message))
    worst = max(each, key=lambda found: found["of_random_pair"] or 0.0)
    return _property_of(worst if subject.axes > 1 else {**worst, "axis": None}, subject.length)


def _steps(make: MakeRows, subject: MeasuredCode) -> dict[str, Any]:
    """The numbers of the module, from rows that are computed block by block."""
    length = subject.length
    origin = make(0, 1).astype(np.float64)
    width = origin.shape[1]
    height = max(2, min(length, _BLOCK // width))
    steps, norms, cosines = np.empty(length - 1), np.empty(length), np.full(length - 1, math.nan)
    total, squares = np.zeros(width), 0.0
    before = origin
    for start in range(0, length, height):
        rows = make(start, min(start + height, length)).astype(np.float64)
        moved = rows - origin
        total += moved.sum(axis=0)
        squares += float(np.einsum("rc,rc->", moved, moved))
        norms[start : start + len(rows)] = row_norms(rows)
        chain = rows if start == 0 else np.concatenate([before, rows])
        first = start - (start > 0)
        apart = chain[1:] - chain[:-1]
        steps[first : first + len(apart)] = row_norms(apart)
        lengths = norms[first : first + len(chain)]
        product = lengths[1:] * lengths[:-1]
        dots = np.einsum("rc,rc->r", chain[1:], chain[:-1])
        np.divide(dots, product, out=cosines[first : first + len(apart)], where=product > 0)
        before = rows[-1:]
    spread = max(0.0, squares / length - float((total / length) @ (total / length)))
    random = math.sqrt(2 * spread * length / (length - 1)) if length > 2 else None
    rounding = 0.0 if isinstance(subject.spec, Learned) else 2 * 4 * 2.0**-52 * width**0.5 * max(1.0, norms.max())
    mean, smallest, largest = float(steps.mean()), float(steps.min()), float(steps.max())
    norm = float(norms.mean())
    return {
        "adjacent_distance": mean,
        "smallest_step": smallest,
        "largest_step": largest,
        "largest_step_from": subject.first + int(np.argmax(steps)),
        "same_everywhere": bool(largest - smallest <= rounding),
        "row_norm": norm,
        "relative_to_norm": mean / norm if norm else None,
        "cosine_of_neighbours": None if np.isnan(cosines).any() else float(cosines.mean()),
        "random_pair_distance": random,
        "of_random_pair": mean / random if random else None,
    }


def _property_of(numbers: dict[str, Any], length: int) -> Property:
    random, same, axis = (numbers[name] for name in ("random_pair_distance", "same_everywhere", "axis"))
    share = numbers["of_random_pair"]
    words = {
        "along": "" if axis is None else f" along axis {axis}", "length": length, "mean": "" if same else " on average",
        "normed": numbers["relative_to_norm"] is not None, "angled": numbers["cosine_of_neighbours"] is not None,
    }  # fmt: skip
    words["step"] = sentence(f"smooth.{'equal_steps' if same else 'steps'}", **words, **numbers)
    if random is None:
        return answer("smooth.short", words=words, **numbers)
    holds = same and share is not None and share < 1
    return answer(f"smooth.{'even' if holds else 'large' if same else 'uneven'}", holds=holds, words=words, **numbers)
