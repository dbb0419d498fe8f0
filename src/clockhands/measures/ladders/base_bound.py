"""Length limits from the frequencies: the base bound of Men et al. 2024, the critical dimension of Liu et al. 2023.

**The bound.** With equal weight in every pair, a query at a distance of ``m`` tokens scores a matching key in
proportion to ``sum_i cos(m rate_i)`` in the mean, and a random key 0. Where that sum is negative, the matching key
scores below a random one in the mean; single keys may score otherwise, and so may heads that weight pairs differently.
A ladder is valid for a length if the sum is at least 0 at every distance from 1 to the length minus 1. The numbers of
`base_bound`:

* ``first_failing_distance``: the first distance, in tokens, at which the sum of the cosines of all pairs is negative;
  None where no sum is negative. For an encoding with several axes: the smallest ``m`` such that some offset of at most
  ``m`` along each axis has a negative sum (the sum of the lowest sums of all axes).
* ``first_failing_distance_in_step``: for an encoding with several axes, the first distance at which the sum of the
  cosines of all pairs is negative if all coordinates grow together, as the coordinates of text tokens do.
* ``looked_to``: distances below this number were searched. ``pairs``: the number of pairs; ``pairs_standing_still``:
  the number of pairs of frequency 0, or of dimensions of the head that are not rotated. Each pair of frequency 0 adds 1
  to the sum of cosines; where at least half of all pairs have frequency 0, the sum is never negative.
* ``smallest_sound_base``: the smallest valid base for unscaled frequencies of this many pairs at this length; 1.0 where
  every base is valid; None where no valid base was found or the search would be too coarse. ``searched``: whether bases
  were searched; ``search_step``: the step from one searched base to the next, as a share of the base.
* ``failing_above``: the ranges, as [first, last], of bases above the smallest valid base for which the sum of cosines
  is negative at some distance within the length, up to the base ``searched_to``.
  ``clockhands.measures.ladders.sound_bases`` documents the accuracy of these ranges.

**The critical dimension** is the number of RoPE dimensions whose pair completes a rotation within the trained length;
in longer texts the other pairs reach angles that did not occur in training. For unscaled geometric frequencies over
``d`` dimensions it is ``2 ceil(d / 2 log_base(length / (2 pi)))``, from 0 to ``d``. The numbers of
`critical_dimension`:

* ``channels``: the number of RoPE dimensions; ``critical_dimension``: the number of RoPE dimensions whose pair
  completes a rotation; ``by_axis``: the critical dimension of each axis.
* ``by_formula``: the critical dimension by the formula of Liu et al. 2023; None where the RoPE frequencies are scaled.

Accuracy: sums are within ``pairs x length x 2**-50``; a real sum closer to 0 than that may be counted either way.
Counts as in `clockhands.measures.ladders.turning`.

Source: Men et al. 2024, arXiv:2405.14591, section 4; Liu et al. 2023, arXiv:2310.05209, section 4.
"""

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from clockhands.encodings.additive import SineOnly, WarpedPosition
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.rotary import Rotary
from clockhands.measures.ladders.sound_bases import product, search_step, searchable, smallest_sound_base, sound_bases
from clockhands.measures.ladders.turning import rotating_ladders, turned_through
from clockhands.measures.property import Property, answer, measure, not_applicable, sentence
from clockhands.measures.shifts._kernels import kernel_by_distance
from clockhands.measures.subject import MeasuredCode

__all__ = [
    "base_bound",
    "critical_dimension",
    "farthest_looked_at",
    "first_failing_distance",
    "smallest_sound_base",
    "sound_bases",
]

# Gaps above the smallest valid base are searched up to this many times that base, and up to twice as far while the last
# gap lies in the upper half.
_TIMES, _MOST_TIMES = 4, 32
# The most cosines that are summed: an unlimited context would take hours. Ladders in use fail or hold long before.
_MOST_COSINES = 2**29
_ROW = 1024  # distances of a row; each row is one vector times a matrix that is computed once
_ROWS = 64  # rows that are computed together
_MOST_AT_ONCE = 2**22  # cosines of that matrix


@lru_cache(maxsize=64)
def first_failing_distance(rates: tuple[float, ...], limit: int) -> int | None:
    """The first distance ``m`` from 1 to ``limit - 1`` with ``sum_i cos(m rate_i) < 0``; None if there is none.

    With equal weight in every pair, a query scores a matching key in proportion to this sum in the mean, and a random
    key 0. The sum may become positive again; the bound is the first such distance.
    A rotation by ``a + b`` is the product of two rotations, so the sums over ``a`` rows of ``b`` distances are a
    product of two matrices, and nothing past the first negative block is computed.

    Args:
        rates: Radians per token of each pair.
        limit: Distances from 1 to ``limit - 1`` are searched, at most up to `farthest_looked_at`.

    Returns:
        The distance, or None if no sum is negative within the searched distances.

    Source: Men et al. 2024, arXiv:2405.14591, section 4.
    """
    if 2 * rates.count(0.0) >= len(rates):
        return None  # the other cosines cannot outweigh those of the pairs of frequency 0
    turning = np.array(rates)
    limit = farthest_looked_at(len(rates), limit)
    row = max(min(_ROW, _MOST_AT_ONCE // len(rates)), 1)
    fine = np.outer(turning, np.arange(row))
    by_distance = np.concatenate([np.cos(fine), -np.sin(fine)])
    for begin in range(0, limit, row * _ROWS):
        starts = np.outer(np.arange(begin, min(begin + row * _ROWS, limit), row), turning)
        sums = product(np.concatenate([np.cos(starts), np.sin(starts)], axis=1), by_distance).ravel()
        below = np.flatnonzero(sums[: limit - begin] < 0)
        if below.size:
            return begin + int(below[0])
    return None


def farthest_looked_at(pairs: int, limit: int) -> int:
    """The distance up to which a search goes: the limit, or until about 2**29 cosines are summed."""
    # For very many pairs only short rows fit, and the start of each row costs as much as 100 cosines within it.
    dear = max(pairs * _ROW // _MOST_AT_ONCE, 1)
    return min(limit, max(_MOST_COSINES // (max(pairs, 1) * dear), 2))


@measure
def base_bound(subject: MeasuredCode, search: bool = True) -> Property:
    """Whether a matching key scores as high as a random one in the mean at any distance, with equal weight of pairs.

    Without ``search`` no other bases are searched, which takes most of the time; ``searched`` is then False. The module
    lists the numbers.
    """
    spec = subject.spec
    assert isinstance(spec, Rotary)
    if subject.length == 1:
        return not_applicable(sentence("base_bound.one_token"))
    still = spec.head_width // 2 - spec.ladder.pairs
    first, looked, numbers = _own(subject, spec, still)
    found = {
        "first_failing_distance": first,
        "looked_to": looked,
        "pairs": spec.head_width // 2,
        "pairs_standing_still": still + spec.rates.count(0.0),
        **numbers,
        **_sound_plain_ladders(spec, subject.length, still, search),
    }
    words = {
        "axes": spec.number_of_axes,
        "still": found["pairs_standing_still"],
        "far": min(looked, subject.length),
        "never_in_step": found.get("first_failing_distance_in_step") is None,
        "along": f" along {spec.number_of_axes} axes" if spec.number_of_axes > 1 else "",
    }
    holds = None
    if first is not None:
        case, holds = "fails", False
        said = "fails_with_axes" if spec.number_of_axes > 1 else "fails_at"
    else:
        said = "never_negative" if 2 * words["still"] >= found["pairs"] else "holds"
        case, holds = ("yes_so_far", None) if looked < subject.length else ("yes", True)
    bases = "" if said == "never_negative" else _says_bases(found)
    return answer(f"base_bound.{case}", sentence(f"base_bound.{said}", **found, **words), bases, holds=holds, **found,
                  words=words)  # fmt: skip


def _own(subject: MeasuredCode, spec: Rotary, still: int) -> tuple[int | None, int, dict[str, int | None]]:
    """The first failing distance of the ladder itself, the searched distance, and the figures of its axes."""
    whole = spec.rates + (0.0,) * still
    looked = farthest_looked_at(len(whole), subject.length)
    if spec.number_of_axes == 1 and spec.xpos is None:
        return first_failing_distance(whole, looked), looked, {}
    decay = None if spec.xpos is None else spec.xpos.logarithms(spec.ladder.pairs)
    lowest = np.full(looked, float(still))
    for ladder in spec.ladders:
        lowest += np.minimum.accumulate(kernel_by_distance(ladder, looked, decay))
    below = np.flatnonzero(lowest < 0)
    first = int(below[0]) if below.size else None
    if spec.number_of_axes == 1:
        return first, looked, {}
    return first, looked, {"first_failing_distance_in_step": first_failing_distance(whole, looked)}


def _sound_plain_ladders(spec: Rotary, length: int, still: int, search: bool) -> dict[str, object]:
    """The valid bases of unscaled ladders with the same number of pairs at this length."""
    pairs = spec.ladder.pairs
    searched = search and spec.number_of_axes == 1 and spec.xpos is None and searchable(pairs, length)
    smallest = smallest_sound_base(pairs, length, still=still) if searched else None
    found: dict[str, object] = {"searched": searched, "smallest_sound_base": smallest}
    if smallest is None or smallest == 1:
        return found | {"search_step": None, "searched_to": None, "failing_above": []}
    end = _TIMES * smallest
    sound = list(sound_bases(pairs, length, smallest, end, still=still))
    gaps = _between(sound, end)
    while gaps and gaps[-1][1] > end / 2 and end < _MOST_TIMES * smallest:
        for first, last in sound_bases(pairs, length, end, 2 * end, still=still):
            sound.append((sound.pop()[0] if first == sound[-1][1] else first, last))
        end *= 2
        gaps = _between(sound, end)
    step = search_step(pairs, length, smallest)
    return found | {"search_step": step, "searched_to": end, "failing_above": gaps}


def _between(sound: list[tuple[float, float]], end: float) -> list[list[float]]:
    """The failing ranges between valid ranges, and between the last valid range and the end."""
    gaps = [[one[1], other[0]] for one, other in itertools.pairwise(sound)]
    return [*gaps, [sound[-1][1], end]] if sound[-1][1] < end else gaps


def _says_bases(found: dict[str, Any]) -> str:
    smallest, gaps = found["smallest_sound_base"], found["failing_above"]
    if smallest is None or smallest == 1:
        return ""
    if not gaps:
        return sentence("base_bound.no_gaps", **found)
    words = {"number": len(gaps), "step": 100 * found["search_step"], "first": gaps[-1][0], "last": gaps[-1][1]}
    return sentence("base_bound.gaps", **found, **words)


@measure
def critical_dimension(subject: MeasuredCode) -> Property:
    """How many RoPE dimensions have a pair that completes a rotation in training; the module lists the numbers."""
    ladders = rotating_ladders(subject)
    if isinstance(subject.spec, WarpedPosition | SineOnly):
        return not_applicable(sentence("critical_dimension.other_pairs", encoding=type(subject.spec).__name__))
    by_axis = [2 * turned_through(ladder.rates, subject.length) for ladder in ladders]
    channels, seen = 2 * sum(ladder.pairs for ladder in ladders), sum(by_axis)
    formula = _by_formula(subject, channels)
    numbers = {"critical_dimension": seen, "channels": channels, "by_formula": formula, "by_axis": by_axis}
    words = {"length": subject.length, "new": channels - seen}
    return answer(f"critical_dimension.{'all' if seen == channels else 'some'}", words=words, **numbers)


def _by_formula(subject: MeasuredCode, channels: int) -> int | None:
    """``2 ceil(d / 2 log_base(length / (2 pi)))``, from 0 to d; None unless the ladder is geometric and unscaled."""
    spacing = getattr(subject.spec, "spacing", None)
    if not isinstance(spacing, Geometric) or (spacing.span, spacing.multiplier) != ("open", 1.0) or spacing.base < 1:
        return None
    if len(subject.ladders) > 1 or getattr(subject.spec, "scaling", None) is not None:
        return None
    share = math.log(subject.length / (2 * math.pi)) / math.log(spacing.base)
    return min(max(2 * math.ceil(channels / 2 * share), 0), channels)
