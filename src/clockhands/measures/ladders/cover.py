"""Measures which distances some dimension pair resolves, and which none does.

A distance of ``k`` tokens is *covered* (resolved) if some pair rotates by 1/8 to 1/2 of a full rotation over it: its
wavelength is from ``2 k`` to ``8 k`` tokens. A pair that rotates less is nearly unchanged (its cosine is still above
0.7); a pair that rotates by more than half looks like a shorter distance in the other direction. So a pair of
wavelength ``w`` covers the distances from ``w / 8`` to ``w / 2``, and successive wavelengths with a ratio of at most 4
leave no gap. A distance that is not covered is still determined by all pairs together, but by no single pair.

The distances are 1 to ``length - 1``. The numbers of `cover`, for the axis that covers least (``axis``, from 0):

* ``covered_share``: the share of the distances within the length that some pair resolves; ``uncovered_distances``: the
  number of distances that no pair resolves; ``first_uncovered_distance``, ``shortest_covered_distance``,
  ``longest_covered_distance``: distances in tokens; each is None if the distance that it names does not exist.
* ``shortest_wavelength``, ``longest_wavelength``: the wavelengths, in tokens, of the fastest and of the slowest pair
  that rotates; None where no pair rotates.
* ``largest_ratio``: the largest ratio of two successive wavelengths. The wavelengths from 2 tokens to ``2 (length -
  1)`` are compared, and the next wavelength beyond each of these two ends; None where there are fewer than two
  wavelengths.
* ``wasted_pairs``: the number of dimension pairs that resolve no distance within the length, because a pair is too slow
  even for the longest distance, has frequency 0, or rotates by more than half a rotation per token.
  ``pairs_beyond_the_length``: the number of dimension pairs that do not complete a rotation within the length.
* For comparison, the figures ``covered_share``, ``first_uncovered_distance``, ``longest_covered_distance``,
  ``largest_ratio``, ``wasted_pairs`` and ``pairs_beyond_the_length`` are also given for the same number of pairs with
  other frequencies. For the bases 100, 8,192, 10,000 and 1,000,000 the names begin with ``base_100_`` and so on; for
  frequencies evenly spaced from 1 to 1/10,000 they begin with ``evenly_spaced_``.

Accuracy: a wavelength is within a relative 2**-51; an end of a covered range that is within a relative 1e-12 of a whole
number is taken as this number.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from clockhands.encodings.additive import WarpedPosition
from clockhands.encodings.ladders import evenly_spaced, geometric
from clockhands.measures.ladders.turning import rotating_ladders, turned_through, wavelengths
from clockhands.measures.property import Property, answer, measure, not_applicable, sentence
from clockhands.measures.subject import MeasuredCode
from clockhands.phrases import listed, percent

# A pair covers the distances over which it rotates by 1/8 to 1/2 of a full rotation.
_LEAST, _MOST = 8, 2
_ROUNDING = 1e-12
_BASES = (100, 8192, 10_000, 1_000_000)
_COMPARED = {
    "covered_share", "first_uncovered_distance", "longest_covered_distance", "largest_ratio", "wasted_pairs",
    "pairs_beyond_the_length",
}  # fmt: skip


def covered_by(wavelength: float) -> tuple[int, int]:
    """The first and last distance (tokens) covered by a pair of this wavelength (tokens); none if last < first.

    >>> import math
    >>> covered_by(16.0), covered_by(2 * math.pi / 1.0), covered_by(2 * math.pi / 4.0)
    ((2, 8), (1, 3), (1, 0))
    """
    if math.isinf(wavelength):
        return 1, 0
    first = math.ceil(wavelength / _LEAST * (1 - _ROUNDING))
    return max(first, 1), math.floor(wavelength / _MOST * (1 + _ROUNDING))


def stretches_covered(rates: Sequence[float], length: int) -> list[tuple[int, int]]:
    """The ranges of covered distances from 1 to ``length - 1``, each as (first, last), in order and disjoint.

    >>> stretches_covered((1.0, 0.1, 0.001), 2000)
    [(1, 3), (8, 31), (786, 1999)]
    """
    found: list[tuple[int, int]] = []
    spans = ((first, min(last, length - 1)) for first, last in map(covered_by, wavelengths(rates)))
    for first, last in sorted(span for span in spans if span[0] <= span[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def cover_of(rates: Sequence[float], length: int) -> dict[str, Any]:
    """What a ladder covers of the distances below a length of at least 2; the module lists the numbers."""
    slow = wavelengths(rates)
    spans = list(map(covered_by, slow))
    stretches = stretches_covered(rates, length)
    covered = sum(last - first + 1 for first, last in stretches)
    before = stretches[0][1] + 1 if stretches and stretches[0][0] == 1 else 1
    return {
        "covered_share": covered / (length - 1),
        "uncovered_distances": length - 1 - covered,
        "first_uncovered_distance": before if before < length else None,
        "shortest_covered_distance": stretches[0][0] if stretches else None,
        "longest_covered_distance": stretches[-1][1] if stretches else None,
        "largest_ratio": _largest_ratio(slow, length),
        "wasted_pairs": sum(not first <= min(last, length - 1) for first, last in spans),
        "pairs_beyond_the_length": len(rates) - turned_through(rates, length),
    }


def _largest_ratio(found: Iterable[float], length: int) -> float | None:
    """The largest ratio of successive wavelengths among those that matter within the length."""
    ordered = sorted(set(filter(math.isfinite, found)))
    longest = 2 * (length - 1)
    ratios = [slow / fast for fast, slow in itertools.pairwise(ordered) if slow > 2 and fast < longest]
    return max(ratios, default=None)


@lru_cache(maxsize=128)
def _alternatives(pairs: int, length: int) -> dict[str, Any]:
    """The cover of the same number of pairs with other frequencies."""
    others = {f"base_{base}": geometric(pairs, base).rates for base in _BASES}
    others["evenly_spaced"] = evenly_spaced(pairs, 1.0, 1e-4).rates
    return {
        f"{name}_{key}": number
        for name, rates in others.items()
        for key, number in cover_of(rates, length).items()
        if key in _COMPARED
    }


@measure
def cover(subject: MeasuredCode) -> Property:
    """Which distances some dimension pair resolves; the module lists the numbers."""
    ladders = rotating_ladders(subject)
    if isinstance(subject.spec, WarpedPosition):
        return not_applicable(sentence("cover.warped"))
    if subject.length == 1:
        return not_applicable(sentence("cover.one_token"))
    each = [cover_of(ladder.rates, subject.length) for ladder in ladders]
    axis = min(range(len(each)), key=lambda one: each[one]["covered_share"])
    own, ladder = each[axis], ladders[axis]
    moving = [slow for slow in ladder.wavelengths if math.isfinite(slow)]
    numbers = {
        "axis": axis,
        "pairs": ladder.pairs,
        **own,
        "shortest_wavelength": min(moving, default=None),
        "longest_wavelength": max(moving, default=None),
        **_alternatives(ladder.pairs, subject.length),
    }
    return _property_of(subject, numbers, several=len(each) > 1)


def _property_of(subject: MeasuredCode, numbers: dict[str, Any], *, several: bool) -> Property:
    first, longest = numbers["first_uncovered_distance"], numbers["longest_covered_distance"]
    covered = "every" if first is None else "none" if longest is None else "some"
    if first is None:
        case = "every_distance"
    elif longest is None or first > longest:
        case = "no_distance" if first == 1 else "none_from"
    elif numbers["uncovered_distances"] == numbers["shortest_covered_distance"] - 1:
        case = "none_below"
    else:
        case = "some_are_not"
    left = {base: 1 - numbers[f"base_{base}_covered_share"] for base in _BASES}
    values = {
        **numbers,
        "left": 1 - numbers["covered_share"],
        "along": f" along axis {numbers['axis']}" if several else "",
        "distances": subject.length - 1,
        "length": subject.length,
        "at_bases": listed(f"{percent(left[base])} at base {base:,}" for base in _BASES[1:]),
        "left_first": left[_BASES[0]],
        "first_base": str(_BASES[0]),
        "left_evenly": 1 - numbers["evenly_spaced_covered_share"],
    }
    said = sentence(f"cover.{covered if subject.length > 2 or covered == 'some' else f'{covered}_of_one'}", **values)
    said = f"{said[0].upper()}{said[1:]}"  # "over 99.9%" may begin a sentence
    holds = numbers["covered_share"] == 1
    return answer(f"cover.{case}", said, sentence("cover.others", **values), holds=holds, words=values, **numbers)
