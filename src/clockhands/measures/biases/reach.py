"""Measures how far each head sees: the distances at which its bias reduces the weight of a key to 1/2, 1/e and 1/100.

The bias of a head falls by ``fall(d) = b(0) - b(d)`` from the query itself to a key ``d`` tokens back. For equal
contents, the weight of that key is ``exp(-fall(d))`` times that of the query's own position, so the three falls are
``ln 2``, 1 and ``ln 100``. The reach is the distance at which a key has a hundredth of the weight.

Numbers, lists by head; a distance in tokens, None where the fall is never reached below 2**63 tokens:

* ``half_weight_distance_by_head``, ``fall_of_one_distance_by_head``, ``hundredth_weight_distance_by_head``. These three
  distances are real numbers if the bias has a formula: ``fall / slope`` for ``Alibi`` and ``Decay``, ``(exp(fall / p) -
  1) / a`` and ``(fall / a) ** (1 / p)`` for ``Kerple``, where ``fall`` is the fall of the bias. For learned tables and
  networks, each of the three distances is the first integer distance at which the bias has fallen by this much. For
  ``Fire``, the three distances are measured from the last token and within the length. For windows, the distance of two
  tokens is the larger of the steps down and across, and the bias at a distance is the mean over all steps of this
  distance.
* ``shortest_reach``, ``longest_reach``: the smallest and the largest number of ``hundredth_weight_distance_by_head``;
  ``shortest_reach_head``, ``longest_reach_head``: the heads that have these reaches.
* ``farthest_distance``: ``length - 1``, or the largest step of a window. ``farthest_fall_by_head``: for each head, the
  fall of the bias at the farthest distance; ``farthest_weight_by_head``: for each head, the weight ``exp(-fall)`` at
  the farthest distance; ``smallest_farthest_weight``: the smallest of these weights.
* ``heads``: the number of heads.
* ``heads_seeing_all``: the number of heads in which the farthest key has at least a hundredth of the weight of the
  query's own position.
* ``strongest_distance_by_head``: of learned biases, the distance within the length at which the bias is largest.
* ``keys_after``: which bias keys after the query get; the possible values are listed under ``told_apart``.
* ``slopes_by_head``: of biases that are straight lines, the slope of each head in 1/token.

Accuracy: float64, with ``u = 2**-53`` for one rounding. Distances of straight lines are within a relative ``3.01 u`` of
the real number: the slope, ``fall`` and their quotient are each the nearest float64. Those of the logarithmic kernel
are within ``(5 + 2 fall / p) u``, of the power kernel within ``(4 + (2 + |ln(fall / a)|) / p) u``. Weights of formulas
are within a relative ``(3 + 5 fall) u`` down to 2.3e-308; below 5e-324 they are 0. A fall that float64 does not hold is
None.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.biases import Buckets, CeilingBuckets, Clipped, Fire, Kerple, LogWindow, Window
from clockhands.encodings.biases.linear import LinearCode
from clockhands.encodings.biases.values import values_of
from clockhands.measures.biases._lines import (
    MOST_DISTANCE,
    after_says,
    line,
    name,
    refuse_more,
    refuse_others,
    tokens,
    unknown,
)
from clockhands.measures.biases.edges import Plane, rows_of_window, sides
from clockhands.measures.property import Property, answer, measure, not_computed, sentence
from clockhands.measures.subject import MeasuredCode

HALF, ONE, HUNDREDTH = math.log(2), 1.0, math.log(100)

_FALLS = {"half_weight": HALF, "fall_of_one": ONE, "hundredth_weight": HUNDREDTH}


@measure
def reach(subject: MeasuredCode) -> Property:
    """How far each head sees; the module lists the numbers and their accuracy.

    Not applicable to codes without a bias for a distance; not computed where learned values are not given.
    """
    spec = subject.spec
    refuse_others(subject, "reach")
    missing = unknown(subject)
    if missing is not None:
        return _without_values(subject, missing)
    if isinstance(spec, LinearCode):
        return _property_of(subject, _of_line(spec, subject.length - 1), slopes_by_head=list(spec.slopes))
    if isinstance(spec, Kerple):
        return _property_of(subject, _of_kernel(spec, subject.values, subject.length - 1))
    if isinstance(spec, Window | LogWindow):
        return _of_window(subject, spec)
    if isinstance(spec, Fire):
        refuse_more(subject, spec.heads * subject.length)
        return _of_steps(subject, range(subject.length), line(subject, subject.length, "float64"))
    assert isinstance(spec, Buckets | CeilingBuckets | Clipped)
    before = sides(spec)[0]
    scale = spec.scale if isinstance(spec, Buckets) else 1.0
    return _of_steps(subject, before.firsts, scale * subject.values["table"][list(before.rows)].T)


@dataclass(frozen=True)
class _Reached:
    """The reach of each head.

    Attributes:
        distances: For each named fall, the distance of each head at which it is reached.
        falls: The fall of each head at the farthest key.
        farthest: The distance of that key; in steps of a plane, or in tokens.
        plane: Whether distances are steps of a plane.
    """

    distances: dict[str, list[Any]]
    falls: np.ndarray
    farthest: int
    plane: bool = False

    @property
    def hundredths(self) -> list[Any]:
        """The distance in each head at which the weight is a hundredth."""
        return self.distances["hundredth_weight"]

    @property
    def weights(self) -> np.ndarray:
        """The weight of the farthest key in each head; at most exp(700), below the overflow of float64."""
        return np.exp(np.minimum(-self.falls, 700.0))

    @property
    def ends(self) -> tuple[int, int]:
        """The heads with the shortest and the longest reach."""
        known = [math.inf if each is None else each for each in self.hundredths]
        heads = range(len(known))
        return min(heads, key=known.__getitem__), max(heads, key=known.__getitem__)

    @property
    def seeing(self) -> int:
        """Heads in which the farthest key has at least a hundredth of the weight."""
        return int((self.weights >= 0.01).sum())


def _of_line(spec: LinearCode, farthest: int) -> _Reached:
    def distance(fall: float, slope: float) -> float | None:
        return fall / slope if fall < slope * MOST_DISTANCE else None

    reached = {each: [distance(fall, slope) for slope in spec.slopes] for each, fall in _FALLS.items()}
    return _Reached(reached, np.array(spec.slopes) * farthest, farthest)


def _of_kernel(spec: Kerple, values: dict[str, np.ndarray], farthest: int) -> _Reached:
    def distance(fall: float, p: float, a: float) -> float | None:
        try:
            found = math.expm1(fall / p) / a if spec.kernel == "log" else (fall / a) ** (1 / p)
        except OverflowError:
            return None
        return found if found < MOST_DISTANCE else None

    heads = list(zip(values["p"].tolist(), values["a"].tolist(), strict=True))
    falls = [p * math.log1p(a * farthest) if spec.kernel == "log" else a * float(farthest) ** p for p, a in heads]
    reached = {each: [distance(fall, *head) for head in heads] for each, fall in _FALLS.items()}
    return _Reached(reached, np.array(falls), farthest)


def _of_steps(subject: MeasuredCode, firsts: Sequence[int], numbers: np.ndarray) -> Property:
    """The reach of biases that are constant from one given distance to the next, [heads, distances]."""
    within = sum(first < subject.length for first in firsts)
    strongest = [firsts[int(place)] for place in numbers[:, :within].argmax(axis=1)]
    distances, falls = _first_falls(firsts, numbers)
    return _property_of(
        subject, _Reached(distances, falls[:, within - 1], subject.length - 1), strongest_distance_by_head=strongest
    )


def _first_falls(firsts: Sequence[int], numbers: np.ndarray) -> tuple[dict[str, list[Any]], np.ndarray]:
    """The first place in each head at which each fall is reached, and the falls, [heads, places]."""
    falls = numbers[:, :1] - numbers

    def first(fallen: np.ndarray) -> int | None:
        return int(firsts[int(fallen.argmax())]) if fallen.any() else None

    return {each: [first(head >= fall) for head in falls] for each, fall in _FALLS.items()}, falls


def _of_window(subject: MeasuredCode, spec: Plane) -> Property:
    """The reach over a plane: the mean bias of all steps of one size that occur between the tokens."""
    used = rows_of_window(spec, subject.length)[: spec.differences]
    down, across = np.indices((2 * spec.height - 1, 2 * spec.width - 1)).reshape(2, -1)
    steps = np.maximum(abs(down - spec.height + 1), abs(across - spec.width + 1))[used]
    if not steps.size:
        return not_computed(sentence("reach.class_token", bias=name(spec)))
    values = values_of(type(spec).__name__, subject.values, spec.shapes)
    table = np.asarray(spec.table(values))[: spec.differences][used]
    rings = np.array([np.bincount(steps, head) for head in table.T]) / np.bincount(steps)
    distances, falls = _first_falls(range(rings.shape[1]), rings)
    reached = _Reached(distances, falls[:, -1], rings.shape[1] - 1, plane=True)
    return _property_of(subject, reached, strongest_distance_by_head=rings.argmax(axis=1).tolist())


def _property_of(subject: MeasuredCode, reached: _Reached, **more: Any) -> Property:
    spec: Any = subject.spec
    shortest, longest = reached.ends
    near, far = reached.hundredths[shortest], reached.hundredths[longest]
    smallest = float(reached.weights.min())

    def at(distance: float) -> str:
        return f"{distance} steps away" if reached.plane else f"{tokens(distance)} back"

    words = {
        "bias": name(spec),
        "shortest": "" if near is None else tokens(near),
        "least": "" if near is None else tokens(near).rpartition(" ")[0],
        "longest": "" if far is None else tokens(far),
        "at_near": "" if near is None else at(near),
        "at_far": "" if far is None else at(far),
        "first": shortest,
        "last": longest,
        "away": f"{reached.farthest} steps away, on average" if reached.plane else at(reached.farthest),
        "keys": "keys" if reached.plane else "key",
        "have": "have" if reached.plane else "has",
        "smallest": "less than 1e-300" if smallest < 1e-300 else f"{smallest:.2g}",
        "seeing": reached.seeing,
        "of_heads": len(reached.hundredths),
    }
    one = len(reached.hundredths) == 1
    near_says = "any_distance" if near is None else "only_head" if one else "any_in_one" if far is None else "heads"
    told = sentence(f"reach.{near_says}", **words), sentence(f"reach.farthest{'_of_one' if one else ''}", **words)
    same = words["shortest"] == words["longest"]
    brief = "to_any" if near is None else "from" if far is None else "same" if same else "between"
    return answer(
        f"reach.{brief}",
        *told,
        after_says(spec),
        words=words,
        heads=len(reached.hundredths),
        **{f"{each}_distance_by_head": list(distances) for each, distances in reached.distances.items()},  # type: ignore[arg-type]
        shortest_reach=near,
        shortest_reach_head=shortest,
        longest_reach=far,
        longest_reach_head=longest,
        farthest_distance=reached.farthest,
        farthest_fall_by_head=[fall if math.isfinite(fall) else None for fall in reached.falls.tolist()],
        farthest_weight_by_head=reached.weights.tolist(),
        smallest_farthest_weight=smallest,
        heads_seeing_all=reached.seeing,
        keys_after=spec.keys_after,
        **more,
    )


def _without_values(subject: MeasuredCode, missing: Property) -> Property:
    """What the spec alone determines about the reach, where learned values are not known."""
    spec = subject.spec
    if isinstance(spec, Buckets | CeilingBuckets | Clipped):
        last = sides(spec)[0].firsts[-1]
        return not_computed(f"{missing.says} {sentence('reach.buckets_end', last=last)}", one_number_from=last)
    if isinstance(spec, LogWindow):
        least = math.exp(-16)
        return not_computed(f"{missing.says} {sentence('reach.sigmoid', least=least)}", least_weight=least)
    return missing
