"""Measures whether every token has a unique row: the first two equal rows, and the two nearest ones.

Numbers of `unique`; positions in tokens, distances Euclidean:

* ``distinct``: the number of positions whose row, rounded to the dtype, differs from the rows of all earlier positions;
  ``first_collision``: the first position with the row of an earlier position, as ``[earlier, later]``, or None. Rows
  are compared number by number (see `clockhands.measures.tokens.collisions`), so ``distinct`` and ``first_collision``
  are exact for the rows that the encoding computes.
* ``nearest_pair`` and ``nearest_distance``: the two positions whose rows are nearest, and the distance of these rows.
  For sines and cosines, ``nearest_distance`` is computed from unrounded rows, and ``rounding_moves_distance_by`` is the
  largest change of this distance by rounding to the dtype. For other encodings, ``nearest_distance`` is computed from
  the rows in the dtype. Both ``nearest_pair`` and ``nearest_distance`` are None for a table with more than 16,384 rows
  and no formula. Accuracy: see `clockhands.measures.tokens.nearest`.
* ``nearest_offset``: for sines and cosines, the distance in tokens between the two positions whose rows are nearest to
  each other.
* ``positions_distinct_in_dtype``: how many different positions would be left if positions were rounded to the dtype
  before the encoding is computed; ``first_positions_merged``: the first two positions that would become equal.
* ``comes_round_after``: the number of tokens, a real number, after which all dimension pairs are back at their starting
  angles; None where the pairs are never back at their starting angles together. ``nearly_comes_round_after``: for
  evenly spaced frequencies, the number of tokens after which the angles of all dimension pairs are their starting
  angles plus one common angle.
* ``does_not_fit_from``: the first position whose values the dtype cannot represent, or None; ``why_it_does_not_fit``: a
  sentence that gives the reason.
* ``axis``: for an encoding with several axes, the axis with the worst result; all figures of the property are those of
  this axis. Axes have separate dimensions, so two tokens have the same row only if their rows are the same on each
  axis. (In Fourier features the axes share dimensions, and each axis is measured alone.)

A dtype of ``p`` significant bits holds every whole number up to ``2 ** p``, and ``2 ** (p - 1)`` of those between a
power of two and the next from there on; all beyond its largest number become infinite, which is one number more. So
what is left of positions ``0 … n - 1`` that are rounded to it can be counted without making any.
"""

from typing import Any

import numpy as np

from clockhands.encodings.additive import FourierFeatures
from clockhands.encodings.dtypes import limits
from clockhands.errors import ClockhandsError, InvalidValue
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import (
    MakeRows,
    MeasuredCode,
    PairLadders,
    channel_pairs,
    different_axes,
    rounding_distance,
    rows_of,
    zero_tokens,
)
from clockhands.measures.tokens.collisions import collisions
from clockhands.measures.tokens.nearest import LARGEST_TABLE, near_period, nearest_offset, nearest_rows, period
from clockhands.phrases import listed

_MOST_NUMBERS = 1 << 31  # of rows that are made and hashed
_MOVED = "rounding_moves_distance_by"
_MOST_KERNELS = 1 << 32  # pairs x distances


@measure
def unique(subject: MeasuredCode) -> Property:
    """Whether no two tokens within the length have the same row in the dtype.

    For a rotary code the question is whether the rotations of two positions are the same. The module lists the numbers.

    Source: elementary. "Unique for every position" is true for whole positions and exact numbers, since pi is
    irrational; for rounded numbers it has to be measured.
    """
    rounded = _rounded_positions(subject)
    if subject.kind == "none":
        alone = subject.length == 1
        return answer(
            "unique.nothing_of_one" if alone else "unique.nothing",
            holds=alone,
            distinct=1,
            first_collision=None if alone else [0, 1],
            nearest_pair=None if alone else [0, 1],
            nearest_distance=None if alone else 0.0,
        )
    if subject.missing is not None:
        return not_computed(subject.missing, **rounded)
    hands = channel_pairs(subject)
    try:
        each = [_along(subject, hands, axis) for axis in different_axes(subject)]
    except ClockhandsError as error:
        return not_computed(error.message, **rounded)
    # The fewest distinct tokens, then the nearest pair.
    worst = min(each, key=lambda found: (found["distinct"], found["nearest_distance"] or 0.0))
    numbers = {**worst, **rounded}
    return _property_of(subject, hands, numbers)


def _rounded_positions(subject: MeasuredCode) -> dict[str, Any]:
    positions = range(subject.first, subject.last + 1)
    merged = first_merged(positions, subject.dtype)
    return {
        "positions_distinct_in_dtype": distinct_positions(positions, subject.dtype),
        "first_positions_merged": None if merged is None else list(merged),
    }


def _along(subject: MeasuredCode, hands: PairLadders | None, axis: int) -> dict[str, Any]:
    """The numbers along one axis.

    Raises:
        InvalidValue: There are too many tokens, or none fits the dtype.
    """
    make = rows_of(subject, axis)
    fits, why = _fitting(make, subject.length, subject.dtype)
    if not fits and why is not None:
        raise why
    width = make(0, 1).shape[1]
    if fits * width > _MOST_NUMBERS:
        raise InvalidValue(
            f"{fits:,} rows of {width:,} values are too many to compare: use at most {_MOST_NUMBERS // width:,} "
            "tokens.",
            "Use fewer tokens.",
        )
    found = collisions(make, fits)
    numbers: dict[str, Any] = {
        "distinct": found.distinct,
        "first_collision": None if found.first is None else [subject.first + row for row in found.first],
        "does_not_fit_from": None if why is None else subject.first + fits,
        "why_it_does_not_fit": None if why is None else why.message,
        "nearest_pair": None,
        "nearest_distance": None,
        "axis": axis if subject.axes > 1 else None,
    }
    if hands is not None:
        numbers |= _nearest_of_pairs(subject, hands, axis)
    elif found.first is not None:
        numbers |= {"nearest_pair": numbers["first_collision"], "nearest_distance": 0.0}
    elif 2 <= fits <= LARGEST_TABLE:
        earlier, later, distance = nearest_rows(make(0, fits))
        numbers |= {"nearest_pair": [subject.first + earlier, subject.first + later], "nearest_distance": distance}
    return numbers


def _nearest_of_pairs(subject: MeasuredCode, hands: PairLadders, axis: int) -> dict[str, Any]:
    ladder = hands.ladders[axis]
    told: dict[str, Any] = {
        _MOVED: rounding_distance(subject, hands, axis),
        "comes_round_after": period(ladder),
        "nearly_comes_round_after": near_period(ladder),
    }
    if subject.length > 1 and subject.length * ladder.pairs <= _MOST_KERNELS:
        k, distance = nearest_offset(ladder, subject.length)
        told |= {
            "nearest_offset": k,
            "nearest_pair": [subject.first, subject.first + k],
            "nearest_distance": hands.factor * distance,
        }
    return told


def _fitting(make: MakeRows, length: int, dtype: np.dtype) -> tuple[int, ClockhandsError | None]:
    """How many tokens, from the first on, have numbers that fit the dtype, and why the next one does not."""

    def refused(row: int) -> ClockhandsError | None:
        try:
            rows = make(row, row + 1)
        except ClockhandsError as error:
            return error
        if np.isfinite(rows.astype(np.float64)).all():
            return None
        return InvalidValue(f"The values are too large for {dtype.name}.", "Use a dtype with a wider range.")

    if refused(length - 1) is None:
        return length, None
    # Numbers that overflow a dtype grow from token to token.
    low, high = 0, length - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if refused(middle) is None else (low, middle)
    return low, refused(low)


def _property_of(subject: MeasuredCode, hands: PairLadders | None, numbers: dict[str, Any]) -> Property:
    length, along = subject.length, "" if numbers["axis"] is None else f" along axis {numbers['axis']}"
    what = "rotation" if subject.kind == "rotary" else "encoding"
    collision, beyond = numbers["first_collision"], numbers["does_not_fit_from"]
    nearest, merged, zeros = numbers["nearest_distance"], numbers["first_positions_merged"], zero_tokens(subject)
    words = {
        "dtype": subject.dtype.name, "length": length, "along": along, "what": what, "moved": numbers.get(_MOVED, -1.0)
    }  # fmt: skip
    told = []
    if collision is not None:
        case = "equal" if numbers["distinct"] > 1 else "all_equal"
        words |= dict(zip(("earlier", "later"), collision, strict=True))
    elif beyond is not None:
        case = "no_values"
    else:
        case = "one_token" if length == 1 else "distinct"
        if nearest is not None and nearest <= words["moved"]:
            case = "by_rounding"
    if beyond is not None:
        told.append("beyond")
    if nearest is not None and (collision is None or hands is not None):
        told.append("nearest_rows" if hands is None else "nearest_offset")
        words |= {"two": _listed(numbers["nearest_pair"]), "close": words["moved"] >= nearest}
        if hands is not None:
            which = "neighbours" if numbers["nearest_offset"] == 1 else "apart"
            words["which"] = sentence(f"unique.{which}", **numbers)
    elif collision is None and length > LARGEST_TABLE:
        told.append("not_searched")
        words["most"] = LARGEST_TABLE
    if isinstance(subject.spec, FourierFeatures) and subject.axes > 1:
        told.append("shared_axes")
    if zeros:
        told.append("zeros")
        words |= {"zeros": zeros, "of_zeros": _listed(zeros)}
    tokens = numbers.get("comes_round_after")
    if tokens is not None:
        told.append("whole_period" if abs(tokens - round(tokens)) < 1e-9 * tokens else "period")
    if numbers.get("nearly_comes_round_after") is not None:
        told.append("near_period")
    if merged is not None:
        told.append("merged")
        words |= dict(zip(("one", "other"), merged, strict=True))
    more = [sentence(f"unique.{each}", **(numbers | words)) for each in told]
    return answer(f"unique.{case}", *more, holds=collision is None and beyond is None, words=words, **numbers)


def _listed(positions: list[int]) -> str:
    plural = "s" * (len(positions) > 1)
    shown = [f"{position:,}" for position in positions[:4]]
    return f"position{plural} {listed(shown)}" + (" and more" if len(positions) > 4 else "")


# Positions that are rounded to a dtype before a code is made from them


def distinct_positions(positions: range, dtype: np.dtype) -> int:
    """How many different values consecutive whole positions have in a dtype.

    Accuracy: exact, for positions of any size; rounding is to nearest, ties to even.

    >>> distinct_positions(range(4096), np.dtype(np.float16))
    3073
    """
    if not positions:
        return 0
    bits, _ = limits(dtype)
    alone = range(positions.start, min(positions.stop, 2**bits + 1))
    rest = range(max(positions.start, 2**bits + 1), positions.stop)
    if not rest:
        return len(alone)
    before = _place(rest.start, dtype) - 1 if not alone else _place(2**bits, dtype)
    return len(alone) + _place(rest[-1], dtype) - before


def first_merged(positions: range, dtype: np.dtype) -> tuple[int, int] | None:
    """The first two neighbouring positions that become equal in a dtype, or None.

    >>> first_merged(range(4096), np.dtype(np.float16))
    (2048, 2049)
    """
    later = max(positions.start + 1, 2 ** limits(dtype)[0] + 1)
    while later < positions.stop:  # of three neighbours past 2 ** p two are always equal
        if _place(later - 1, dtype) == _place(later, dtype):
            return later - 1, later
        later += 1
    return None


def _place(position: int, dtype: np.dtype) -> int:
    """The index of the dtype's number to which a position is rounded, counted from ``2 ** p`` on."""
    bits, largest = limits(dtype)
    octave = position.bit_length() - bits
    if octave <= 0:
        return position - 2**bits
    head, tail = divmod(position, 2**octave)
    half = 2 ** (octave - 1)
    head += tail > half or (tail == half and head % 2 == 1)
    # Each octave past 2 ** (p - 1) … 2 ** p has 2 ** (p - 1) numbers.
    place = (octave - 1) * 2 ** (bits - 1) + head - 2 ** (bits - 1)
    most = int(largest)
    above = most.bit_length() - bits
    infinite = (above - 1) * 2 ** (bits - 1) + (most >> above) - 2 ** (bits - 1) + 1
    return min(place, infinite)
