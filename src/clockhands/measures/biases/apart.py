"""Measures which distances have different biases in a head, after the biases are rounded to a dtype.

A head cannot distinguish two distances with the same bias. The biases are those of the last token, by distance from it,
each rounded once to the dtype; rounding when they are added to a score is not counted. With a causal mask, the key form
of ALiBi has the same effect as the distance form, since softmax does not change when a constant is added to a row. But
its values grow with the position, so rounding merges the nearest keys of a late token, while in the distance form it
merges the farthest keys.

Numbers, all whole and exact; distances in tokens, lists by head:

* ``distances``: the number of distances that are compared, 0 to ``length - 1``, or fewer if all distances beyond some
  distance share one bucket. For windows: the number of steps down and across that are compared.
* ``distinct_by_head``: how many different values the distances have in each head; ``fewest_distinct`` and
  ``fewest_distinct_head``: the smallest of these counts and its head.
* ``first_merged_by_head``: for each head, two distances with the same bias: the smallest distance that has the bias of
  a smaller distance, and before it this smaller distance; None where the biases of all distances differ.
  ``first_merged``: the first such two distances over all heads. For windows, both figures name rows of the table
  instead of distances.
* ``distinct_together``, ``first_merged_together``: the same figures for all heads together, where two distances count
  as one if they have the same value in every head.
* ``keys_after``: which bias keys after the query get: ``"as before"`` (left and right are the same), ``"as itself"``,
  ``"more"`` (a causal mask is needed) or ``"own"``.
* ``values_known``: False if the biases are learned and the learned values are not given. Then the buckets of the
  distances are compared instead of the biases: two distances in one bucket count as equal.

``holds``: in every head, all distances within the length have different biases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.biases import Buckets, CeilingBuckets, Clipped, LogWindow, TableCode, Window, row_numbers
from clockhands.encodings.biases.linear import LinearCode
from clockhands.encodings.biases.values import values_of
from clockhands.encodings.dtypes import before_rounding
from clockhands.errors import InvalidValue
from clockhands.measures.biases._lines import (
    after_says,
    line,
    name,
    refuse_more,
    refuse_others,
    unknown,
)
from clockhands.measures.biases.edges import Plane, rows_of_window, sides
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode


@measure
def told_apart(subject: MeasuredCode) -> Property:
    """Which distances have different biases in the subject's dtype; see the module.

    Not applicable to codes without a bias for a distance. Not computed where needed learned values are not given, a
    value does not fit the dtype, or there would be too many values.
    """
    spec = subject.spec
    refuse_others(subject, "told_apart")
    missing = unknown(subject)
    if isinstance(spec, Window | LogWindow):
        return _of_window(subject, spec, missing)
    if isinstance(spec, Buckets | CeilingBuckets | Clipped):
        # One distance beyond the start of the last bucket: after it no new value occurs.
        number = min(subject.length, sides(spec)[0].firsts[-1] + 2)
        heads = 1 if missing else spec.heads
    elif missing:
        return missing
    else:
        number, heads = subject.length, spec.heads  # type: ignore[union-attr]
    refuse_more(subject, heads * number)
    if missing:
        assert isinstance(spec, TableCode)
        return _property_of(subject, row_numbers(spec, range(number), [0]).T.astype(np.float64), False)
    try:
        return _property_of(subject, line(subject, number), True)
    except InvalidValue as refused:
        return not_computed(f"{refused.message} {refused.hint}")


def distinct(numbers: np.ndarray) -> tuple[list[int], list[list[int] | None]]:
    """The number of different values in each row, and the first two places with the same value.

    Args:
        numbers: [rows, places].

    Returns:
        For each row its count, and ``[earlier, later]``: the smallest place whose value occurred before, and the first
        place with that value; None if all values differ.

    >>> distinct(np.array([[5, 7, 7, 5], [1, 2, 3, 4]]))
    ([2, 4], [[1, 2], None])
    """
    places = numbers.shape[1]
    order = numbers.argsort(axis=1, kind="stable")
    sorted_ = np.take_along_axis(numbers, order, axis=1)
    again = sorted_[:, 1:] == sorted_[:, :-1]
    # A stable sort keeps equal values in the order of their places: all but the first are repeats.
    later = np.where(again, order[:, 1:], places).min(axis=1, initial=places)
    firsts: list[list[int] | None] = [
        None if place == places else [int((row == row[place]).argmax()), int(place)]
        for row, place in zip(numbers, later.tolist(), strict=True)
    ]
    return (places - again.sum(axis=1)).tolist(), firsts


def _together(numbers: np.ndarray) -> tuple[int, list[int] | None]:
    """The same for all rows together: two places are equal if they are equal in every row."""
    columns = np.ascontiguousarray(numbers.T) + 0.0  # removes minus zeros, which have other bytes
    keys = columns.view(f"V{columns.shape[1] * columns.itemsize}")[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[which] != np.arange(len(keys)))
    return len(first), None if not repeated.size else [int(first[which[repeated[0]]]), int(repeated[0])]


@dataclass(frozen=True)
class _Apart:
    """How many different values each head has over some places, and the first two places that are equal.

    Attributes:
        places: How many there are.
        counts: Different values by head.
        merged: The first two places with the same value, by head.
        together: The same two figures for all heads together.
    """

    places: int
    counts: list[int]
    merged: list[list[int] | None]
    together: tuple[int, list[int] | None]

    @property
    def fewest(self) -> int:
        """The head with the fewest different values."""
        return min(range(len(self.counts)), key=self.counts.__getitem__)

    @property
    def first(self) -> list[int] | None:
        """The first two places that are equal in any head."""
        return min((pair for pair in self.merged if pair is not None), key=lambda pair: pair[1], default=None)

    def numbers(self) -> dict[str, Any]:
        """The figures by name."""
        return {
            "distances": self.places,
            "distinct_by_head": self.counts,
            "fewest_distinct": self.counts[self.fewest],
            "fewest_distinct_head": self.fewest,
            "first_merged_by_head": self.merged,
            "first_merged": self.first,
            "distinct_together": self.together[0],
            "first_merged_together": self.together[1],
        }


def _apart(numbers: np.ndarray, names: Sequence[int] | None = None) -> _Apart:
    """Compare the values [heads, places]; each place has a name, or its index if it has none."""
    counts, merged = distinct(numbers)
    together = _together(numbers) if any(merged) else (numbers.shape[1], None)

    def named(pair: list[int] | None) -> list[int] | None:
        return pair if pair is None or names is None else [int(names[place]) for place in pair]

    return _Apart(numbers.shape[1], counts, list(map(named, merged)), (together[0], named(together[1])))


def _property_of(subject: MeasuredCode, numbers: np.ndarray, known: bool) -> Property:
    """The property of a line, [heads, distances], or of the buckets [1, distances] where values are not known."""
    spec: Any = subject.spec
    apart = _apart(numbers)
    worst = apart.merged[apart.fewest]
    of_keys = known and isinstance(spec, LinearCode) and spec.form == "key"
    words = {
        **_words(apart), "bias": name(spec), "dtype": subject.dtype.name, "length": subject.length,
        "one_key": of_keys and worst is None, "merges": of_keys and worst is not None,
    }  # fmt: skip
    pair = worst if known else apart.first
    said = "distinct" if pair is None else "merged"
    if not known:
        said = "one_bucket" if pair is None and apart.places == 1 else f"{said}_buckets"
    told = sentence(f"told_apart.{said}", **words), after_says(spec)
    more = {"keys_after": spec.keys_after, "values_known": known}
    case = f"told_apart.{'all' if worst is None else 'two_equal'}"
    return answer(case, *told, holds=worst is None, words=words, **apart.numbers(), **more)


def _words(apart: _Apart) -> dict[str, Any]:
    """What sentences say of the head with the fewest different values."""
    near, far = apart.merged[apart.fewest] or (None, None)
    which = f"Head {apart.fewest}" if len(apart.counts) > 1 else "The head"
    return {
        "places": apart.places, "head": apart.fewest, "which": which, "values": apart.counts[apart.fewest],
        "near": near, "far": far,
    }  # fmt: skip


def _of_window(subject: MeasuredCode, spec: Plane, missing: Property | None) -> Property:
    """The steps of a window take the role of distances; rows of a class token are separate and left out."""
    if missing and isinstance(spec, LogWindow):
        return missing
    used = np.flatnonzero(rows_of_window(spec, subject.length)[: spec.differences])
    if not used.size:
        return not_computed(sentence("reach.class_token", bias=name(spec)))
    words = {"tokens": min(subject.length, spec.tokens), "steps": used.size, "dtype": subject.dtype.name}
    if missing:
        known = {"distances": int(used.size), "keys_after": "own", "values_known": False}
        return answer("told_apart.steps_with_rows", holds=True, words=words, **known)
    table = np.asarray(spec.table(values_of(type(spec).__name__, subject.values, spec.shapes)))[used].T
    with np.errstate(over="ignore"):
        rounded = before_rounding(table, subject.dtype).astype(subject.dtype).astype(np.float64)
    if not np.isfinite(rounded).all():
        return not_computed(sentence("told_apart.too_large", largest=np.abs(table).max(), **words))
    apart = _apart(rounded, used.tolist())
    holds = apart.merged[apart.fewest] is None
    numbers = {**apart.numbers(), "keys_after": "own", "values_known": True}
    case = f"told_apart.{'distinct_steps' if holds else 'merged_steps'}"
    return answer(case, holds=holds, words=words | _words(apart), **numbers)
