"""Computes where the buckets of a bias begin, and which rows of its table no pair of tokens uses.

Numbers of buckets (`Buckets`, `CeilingBuckets`, `Clipped`), all whole and exact:

* ``rows``: the number of rows of the learned table.
* ``first_distances_before``, ``first_distances_after``: the smallest distance (tokens) of each bucket, for keys at or
  before the query (``first_distances_before``) and for keys after the query (``first_distances_after``), whatever the
  length. In both lists, distance 0 is the query's own position.
* ``exact_through_before``, ``exact_through_after``: the largest distance up to which every distance has a separate
  bucket; -1 where distance 0 too shares its bucket with another distance.
* ``last_from_before``, ``last_from_after``: the distance from which on all distances share one bucket.
* ``rows_used``: the number of rows of the table that some pair of tokens within the length uses.
* ``rows_unused``: the rows that no pair of tokens within the length uses; ``rows_never_used``: the rows that no pair of
  tokens uses at any length.
* ``tokens``: for windows (``Window``, ``LogWindow``), the number of tokens of the window; ``steps_down``,
  ``steps_across``: the largest difference of the row numbers and of the column numbers of two tokens. For windows, no
  other figures are given except those whose names begin with ``rows``.
"""

from dataclasses import dataclass

import numpy as np

from clockhands.encodings.biases import Buckets, CeilingBuckets, Clipped, LogWindow, Window, row_numbers
from clockhands.encodings.biases.linear import LinearCode
from clockhands.measures.biases._lines import MOST_DISTANCE, name, refuse_others
from clockhands.measures.property import Property, measure, measured, not_applicable
from clockhands.measures.subject import MeasuredCode

Bucketed = Buckets | CeilingBuckets | Clipped
Plane = Window | LogWindow


@dataclass(frozen=True)
class BucketSide:
    """The buckets in one direction from the query.

    Attributes:
        firsts: The smallest distance of each bucket; the first is 0.
        rows: The row of the table that each bucket uses.
    """

    firsts: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def exact_through(self) -> int:
        """The largest distance up to which every distance has a separate bucket; -1 if there is none."""
        ends = (*self.firsts[1:], None)
        own = (
            end == first + 1 == number + 1 for number, (first, end) in enumerate(zip(self.firsts, ends, strict=True))
        )
        return next((number for number, alone in enumerate(own) if not alone), len(self.firsts)) - 1

    def within(self, length: int) -> "BucketSide":
        """The buckets that distances below the length use."""
        reached = sum(first < length for first in self.firsts)
        return BucketSide(self.firsts[:reached], self.rows[:reached])


def sides(spec: Bucketed) -> tuple[BucketSide, BucketSide]:
    """The buckets of keys at or before the query, and of keys after it (both begin with the query itself).

    >>> before, after = sides(Buckets(heads=1, buckets=16, max_distance=64))
    >>> before.firsts, after.rows
    ((0, 1, 2, 3, 4, 8, 16, 32), (0, 9, 10, 11, 12, 13, 14, 15))
    """
    known = range(1, spec.span + 1) if isinstance(spec, Clipped) else spec.boundaries
    places = np.array([0, *(each for each in known if each < MOST_DISTANCE)], np.uint64)
    return _side(places, row_numbers(spec, places, [0])[:, 0]), _side(places, row_numbers(spec, [0], places)[0])


def _side(places: np.ndarray, rows: np.ndarray) -> BucketSide:
    begins = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return BucketSide(tuple(places[begins].tolist()), tuple(rows[begins].tolist()))


def rows_of_window(spec: Plane, length: int) -> np.ndarray:
    """Which rows of a window's table some pair of its first ``length`` tokens uses, bool [rows]."""
    number = min(length, spec.tokens) - spec.first_token
    used = np.zeros((2 * spec.height - 1, 2 * spec.width - 1), bool)
    lines, left = divmod(max(number, 0), spec.width)
    down, across = spec.height - 1, spec.width - 1  # the row of a difference of 0
    if lines:
        used[down : down + lines] = True
    if left:
        used[down, across : across + left] = True
        # From the last, incomplete line to every token of a line above it.
        used[down + 1 : down + lines + 1, : across + left] = True
    used |= used[::-1, ::-1]
    extra = spec.rows - used.size  # rows of a class token: to a token, from a token, to itself
    return np.concatenate([used.reshape(-1), np.array([number > 0, number > 0, True][:extra], bool)])


@measure()
def edges(subject: MeasuredCode) -> Property:
    """At which distances a bucket begins, exactly as given by the formula in real numbers.

    Not applicable to codes without buckets: each distance has a separate bias, or none has one.
    """
    spec = subject.spec
    refuse_others(subject, "there are no buckets of distances", "kernel")
    if isinstance(spec, Window | LogWindow):
        return _of_window(spec, subject.length)
    if not isinstance(spec, Bucketed):
        of = "position of a key" if isinstance(spec, LinearCode) and spec.form == "key" else "distance"
        return not_applicable(f"{name(spec)} has no buckets: a formula computes a separate bias value for every {of}.")  # type: ignore[arg-type]
    before, after = sides(spec)
    used = {*before.within(subject.length).rows, *after.within(subject.length).rows}
    ever = {*before.rows, *after.rows}
    unused = [row for row in range(spec.rows) if row not in used]
    never = [row for row in range(spec.rows) if row not in ever]
    return measured(
        _brief(before),
        f"{_says(before, 'For keys before the query')}{_setting(spec, max(before.firsts[-1], after.firsts[-1]))} "
        f"{_after_says(before, after)} {_used(spec.rows, unused, never, subject.length)}",
        rows=spec.rows,
        first_distances_before=list(before.firsts),
        first_distances_after=list(after.firsts),
        exact_through_before=before.exact_through,
        exact_through_after=after.exact_through,
        last_from_before=before.firsts[-1],
        last_from_after=after.firsts[-1],
        rows_used=len(used),
        rows_unused=unused,
        rows_never_used=never,
    )


def _brief(side: BucketSide) -> str:
    own, last = side.exact_through, side.firsts[-1]
    if last == 0:
        return "one for all distances"
    widens = ", then wider" if last > own + 1 else ""
    return f"{'each to ' if own else 'own for '}{own:,}{widens}, one from {last:,}"


def _says(side: BucketSide, way: str) -> str:
    own, last = side.exact_through, side.firsts[-1]
    if last == 0:
        return f"{way}, all distances share one bucket."
    each = f"each distance from 0 to {own:,} has a separate bucket" if own else "only distance 0 has a separate bucket"
    if last == own + 1:
        return f"{way}, {each}, and all distances from {last:,} on share one bucket."
    return (
        f"{way}, {each}, buckets become wider from distance {own + 1:,} on, and all distances from {last:,} on share "
        "the "
        "last bucket."
    )


def _after_says(before: BucketSide, after: BucketSide) -> str:
    if len(after.firsts) == 1:
        return "All keys after the query are in the bucket of distance 0."
    if after.firsts == before.firsts:
        return (
            "The buckets for keys after the query begin at the same distances as the buckets for keys before the query."
        )
    return _says(after, "For keys after the query")


def _setting(spec: Bucketed, last: int) -> str:
    """The effect of the named setting, where the last bucket begins before the distance in that setting."""
    if isinstance(spec, Clipped) or last >= spec.max_distance:
        return ""
    return (
        f" The setting max_distance={spec.max_distance:,} is not the distance at which the last bucket begins: "
        "max_distance only sets how fast buckets become wider."
    )


def _used(rows: int, unused: list[int], never: list[int], length: int) -> str:
    taken = f"{rows - len(unused):,} of the {rows:,} rows" if unused else f"all {rows:,} rows"
    said = f"A text of {length:,} token{'s' * (length > 1)} uses {taken} of the bias table"
    if not never:
        return f"{said}."
    which = f"row {never[0]:,} is" if len(never) == 1 else f"{len(never):,} rows are"
    return f"{said}; {which} used at no length."


def _of_window(spec: Plane, length: int) -> Property:
    used = rows_of_window(spec, length)
    unused = np.flatnonzero(~used).tolist()
    never = np.flatnonzero(~rows_of_window(spec, spec.tokens)).tolist()
    asked = "row of the bias table" if isinstance(spec, Window) else "bias value, computed by a network"
    extra = " Three more rows of the bias table are for the class token." if spec.rows > spec.differences else ""
    within = min(length, spec.tokens)
    return measured(
        f"a row for each of {spec.differences:,} steps",
        f"The window of {spec.height} x {spec.width} tokens has no buckets of distances: each of the "
        f"{spec.differences:,} steps between two tokens, of up to {spec.height - 1} rows and {spec.width - 1} "
        "columns, has "
        f"a separate {asked}.{extra} "
        f"{_used(spec.rows, unused, never, within)}",
        rows=spec.rows,
        tokens=spec.tokens,
        steps_down=spec.height - 1,
        steps_across=spec.width - 1,
        rows_used=int(used.sum()),
        rows_unused=unused,
        rows_never_used=never,
    )
