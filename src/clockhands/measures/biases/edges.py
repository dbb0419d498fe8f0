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
from typing import Any

import numpy as np

from clockhands.encodings.biases import Buckets, CeilingBuckets, Clipped, LogWindow, Window, row_numbers
from clockhands.encodings.biases.linear import LinearCode
from clockhands.measures.biases._lines import MOST_DISTANCE, name, refuse_others
from clockhands.measures.property import Property, answer, measure, not_applicable, sentence
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


@measure
def edges(subject: MeasuredCode) -> Property:
    """At which distances a bucket begins, exactly as given by the formula in real numbers.

    Not applicable to codes without buckets: each distance has a separate bias, or none has one.
    """
    spec = subject.spec
    refuse_others(subject, "edges")
    if isinstance(spec, Window | LogWindow):
        return _of_window(spec, subject.length)
    if not isinstance(spec, Bucketed):
        of = "position of a key" if isinstance(spec, LinearCode) and spec.form == "key" else "distance"
        return not_applicable(sentence("edges.no_buckets", bias=name(spec), of=of))  # type: ignore[arg-type]
    before, after = sides(spec)
    used = {*before.within(subject.length).rows, *after.within(subject.length).rows}
    ever = {*before.rows, *after.rows}
    unused = [row for row in range(spec.rows) if row not in used]
    never = [row for row in range(spec.rows) if row not in ever]
    numbers = {
        "rows": spec.rows,
        "first_distances_before": list(before.firsts),
        "first_distances_after": list(after.firsts),
        "exact_through_before": before.exact_through,
        "exact_through_after": after.exact_through,
        "last_from_before": before.firsts[-1],
        "last_from_after": after.firsts[-1],
        "rows_used": len(used),
        "rows_unused": unused,
        "rows_never_used": never,
    }
    return answer(
        f"edges.{_course(before)}",
        _says(before, "before"),
        _setting(spec, max(before.firsts[-1], after.firsts[-1])),
        _after_says(before, after),
        _used(subject.length, numbers),
        words=_words(before),
        **numbers,
    )


def _course(side: BucketSide) -> str:
    """How the buckets of a side go on: one for all distances, each distance alone up to the last bucket, or wider."""
    own, last = side.exact_through, side.firsts[-1]
    return "one_bucket" if last == 0 else "alone" if last == own + 1 else "wider"


def _words(side: BucketSide) -> dict[str, Any]:
    own = side.exact_through
    return {"own": own, "to": "each to" if own else "own for", "next": own + 1, "last": side.firsts[-1]}


def _says(side: BucketSide, way: str) -> str:
    own = "each" if side.exact_through else "only"
    values = _words(side) | {"way": sentence(f"edges.ways.{way}")}
    return sentence(f"edges.says.{_course(side)}", **values, each=sentence(f"edges.{own}", **values))


def _after_says(before: BucketSide, after: BucketSide) -> str:
    if len(after.firsts) == 1:
        return sentence("edges.after_as_itself")
    return sentence("edges.after_as_before") if after.firsts == before.firsts else _says(after, "after")


def _setting(spec: Bucketed, last: int) -> str:
    """The effect of the named setting, where the last bucket begins before the distance in that setting."""
    if isinstance(spec, Clipped) or last >= spec.max_distance:
        return ""
    return sentence("edges.setting", most=spec.max_distance)


def _used(length: int, numbers: dict[str, Any]) -> str:
    rows, never = numbers["rows"], numbers["rows_never_used"]
    taken = "some_rows" if numbers["rows_unused"] else "all_rows"
    values = {"rows": rows, "taken": rows - len(numbers["rows_unused"]), "length": length}
    which = "unused_row" if len(never) == 1 else "unused_rows"
    unused = sentence(f"edges.{which}", number=len(never), first=never[0]) if never else ""
    return sentence(f"edges.{taken}", **values, unused=unused)


def _of_window(spec: Plane, length: int) -> Property:
    used = rows_of_window(spec, length)
    numbers = {
        "rows": spec.rows,
        "tokens": spec.tokens,
        "steps_down": spec.height - 1,
        "steps_across": spec.width - 1,
        "rows_used": int(used.sum()),
        "rows_unused": np.flatnonzero(~used).tolist(),
        "rows_never_used": np.flatnonzero(~rows_of_window(spec, spec.tokens)).tolist(),
    }
    words = {
        "height": spec.height,
        "width": spec.width,
        "steps": spec.differences,
        "of_a_network": isinstance(spec, LogWindow),
        "of_a_table": isinstance(spec, Window),
        "extra": spec.rows > spec.differences,
    }
    return answer("edges.window", _used(min(length, spec.tokens), numbers), words=words, **numbers)
