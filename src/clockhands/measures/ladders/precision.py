"""Measures the errors of angles, or of biases, that are computed in a dtype.

`clockhands.measures.ladders._angle_errors` defines the ways of computing angles, and their errors. The numbers of
`precision` for codes with pairs, over all pairs of all axes:

* ``positions``: the positions at which angle errors are measured: the last position of the length; 1, 100, 1,000, …
  1,000,000; and 4,096, 131,072 and 1,000,000,000. At a power of two, and at the integer before a power of two, the
  errors are smaller than at most positions, because a number of the dtype is near.
* ``float32_throughout`` and so on, one figure for each dtype and each way of computing angles: the largest angle error
  of a dimension pair, in radians, at each position of ``positions``; None where a number is too large for the dtype.
  The ways ``power`` and ``exponential`` are measured only if the frequencies are geometric and not scaled.
* ``float32_throughout_first_off_by_a_tenth``, ``…_first_off_by_one``: the first position within the length at which the
  angle of some dimension pair is off by more than 0.1 rad or 1 rad; None where no angle is off by so much. Only the
  first ``2**20`` positions are searched. These figures are given for the ways ``throughout``, ``power`` and
  ``exponential``.
* ``base_10000_float32_throughout`` and so on: the largest angle errors that the same number of pairs has with unscaled
  frequencies of the bases 10,000, 500,000 and 1,000,000.

And for a bias that is computed from the distance, one number for each head, for the distances 0 to ``length - 1``:

* ``float32_largest_error`` and so on, one for each dtype: the largest change of a score by rounding the bias to the
  dtype; None where the bias overflows.
* ``float32_first_merged_distance``: the first distance that has the same value as the next distance; None where all
  values differ.
* ``float32_most_merged``: the largest number of consecutive distances that have the same bias; 1 where the biases of
  all distances differ. ``float32_merged_at_the_length``: the number of distances with the same bias as the longest
  distance. A bias that is computed from the key's position has its largest values, and therefore its largest rounding
  errors, for the nearest keys.

Accuracy: that of `clockhands.measures.ladders._angle_errors`; numbers of a bias are within 4 ulp of float64.
"""

import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.additive import WarpedPosition
from clockhands.encodings.biases import Fire, Kerple, bias
from clockhands.encodings.biases.linear import LinearCode
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.ladders import Ladder, geometric
from clockhands.measures.ladders._angle_errors import (
    DTYPES,
    FROM_A_BASE,
    LARGEST,
    WAYS,
    first_position_off,
    phase_error,
    phase_errors,
    precision_table,
    rounded,
)
from clockhands.measures.ladders.turning import rotating_ladders
from clockhands.measures.property import Property, answer, measure, not_applicable, not_computed, sentence
from clockhands.measures.subject import MeasuredCode
from clockhands.phrases import said

__all__ = ["WAYS", "first_position_off", "phase_error", "phase_errors", "precision", "precision_table"]

_FAR = 100_000  # the second position that a sentence names, beside the last one
_FIXED = (1, 100, 1000, 4096, 10_000, _FAR, 131_072, 10**6, 10**9)
_BASES = (10_000, 500_000, 1_000_000)
_FARTHEST_FIRST = 1 << 20  # positions that are searched one by one for the first large error
_MOST_NUMBERS = 1 << 22  # biases that are measured at most


@measure
def precision(subject: MeasuredCode) -> Property:
    """How large the errors of angles, or biases, are in a dtype; the module lists the numbers."""
    if subject.kind == "bias":
        return _of_bias(subject)
    ladders = rotating_ladders(subject)
    if isinstance(subject.spec, WarpedPosition):
        return not_computed(sentence("precision.warped"))
    plain = len(ladders) == 1 and ladders[0].ratio is not None
    whole = ladders[0] if len(ladders) == 1 else Ladder(sum((ladder.exact for ladder in ladders), ()))
    # The base of a geometric ladder; None for other ladders.
    base = getattr(getattr(subject.spec, "spacing", subject.spec), "base", None) if plain else None
    ways = tuple(way for way in WAYS if plain or way not in FROM_A_BASE)
    dtypes = (*DTYPES, *({subject.dtype.name} - set(DTYPES)))
    last = min(subject.last, LARGEST)
    at = tuple(sorted({last, *_FIXED}))
    numbers: dict[str, Any] = {"positions": list(at)}
    for dtype, by_way in precision_table(whole, at, dtypes, ways, base=base).items():
        numbers |= {f"{dtype}_{way}": errors for way, errors in by_way.items()}
    usual = "power" if plain else "throughout"
    limit = min(subject.last + 1, _FARTHEST_FIRST)
    for dtype, way, (size, radians) in itertools.product(dtypes, ways[3:], (("a_tenth", 0.1), ("one", 1.0))):
        first = first_position_off(whole, limit, dtype, way, radians, base=base)
        numbers[f"{dtype}_{way}_first_off_by_{size}"] = first
    numbers |= {name: list(errors) for name, errors in _bases(whole.pairs, at).items()}
    return _property_of(subject.dtype.name, last, numbers, usual)


@lru_cache(maxsize=64)
def _bases(pairs: int, positions: tuple[int, ...]) -> Mapping[str, tuple[float | None, ...]]:
    """The largest errors of unscaled ladders with other bases; the result is cached, so it must not be changed."""
    return {
        f"base_{base}_{name}_{way}": tuple(errors)
        for base in _BASES
        for name, by_way in precision_table(geometric(pairs, base), positions, ways=("throughout", "power")).items()
        for way, errors in by_way.items()
    }


def _radians(error: float | None) -> str:
    """An error as text.

    >>> _radians(0.0), _radians(0.000123), _radians(0.5), _radians(1234.5), _radians(2.5e7), _radians(None)
    ('0 rad', '1.2e-04 rad', '0.5 rad', '1,234 rad', '2.5e+07 rad', 'more than the dtype can hold')
    """
    if error is None:
        return "more than the dtype can hold"
    if 0 < error < 0.01 or error >= 1e6:
        return f"{error:.1e} rad"
    return f"{said(float(f'{error:.3g}') if error < 1000 else error)} rad"


def _property_of(name: str, last: int, numbers: dict[str, Any], usual: str) -> Property:
    def largest(dtype: str, position: int) -> str:
        found = numbers[f"{dtype}_{usual}"][numbers["positions"].index(position)]
        said = "overflows" if found is None else "largest"
        return sentence(f"precision.{said}", dtype=dtype, position=position, error=_radians(found))

    own = numbers[f"{name}_{usual}"][numbers["positions"].index(last)]
    words = {
        "dtype": name, "last": last, "error": _radians(own), "at_last": largest(name, last),
        "farther": largest(name, _FAR) if last < _FAR else "", "off": numbers[f"{name}_{usual}_first_off_by_a_tenth"],
    }  # fmt: skip
    others = [
        sentence(
            "precision.other",
            dtype=dtype,
            at_last=largest(dtype, last),
            off=numbers[f"{dtype}_{usual}_first_off_by_one"],
        )
        for dtype in ("float32", "bfloat16")
        if dtype != name
    ]
    case = "too_large" if own is None else "errors" if own else "exact"
    told = sentence("precision.in_the_dtype", **words)
    return answer(f"precision.{case}", told, *others, words=words, **numbers)


# Biases


def _of_bias(subject: MeasuredCode) -> Property:
    spec = subject.spec
    if not isinstance(spec, LinearCode | Kerple | Fire):
        return not_applicable(sentence("precision.table"))
    if spec.shapes and subject.values is None:
        return not_computed(sentence("precision.no_values", bias=type(spec).__name__))
    if spec.heads * subject.length > _MOST_NUMBERS:
        numbers = {"heads": spec.heads, "numbers": spec.heads * subject.length, "length": subject.length}
        return not_computed(sentence("precision.too_long", **numbers, most=_MOST_NUMBERS))
    exact = bias(spec, 1, subject.length, values=subject.values, dtype="float64")[:, 0, ::-1]
    numbers: dict[str, Any] = {}
    for name in (*DTYPES, *({subject.dtype.name} - set(DTYPES))):
        numbers |= {f"{name}_{key}": value for key, value in _merged(exact, output_dtype(name)).items()}
    firsts = [first for first in numbers[f"{subject.dtype.name}_first_merged_distance"] if first is not None]
    name, worst = subject.dtype.name, max(numbers["bfloat16_most_merged"])
    words = {
        "dtype": name,
        "last": subject.length - 1,
        "first": min(firsts, default=None),
        "next": min(firsts, default=0) + 1,
        "most": max(numbers[f"{name}_most_merged"]),
        "worst": worst if name != "bfloat16" and worst > 1 else None,
        "nearest": worst > 1 and spec.reads == "key",
    }
    return answer(f"precision.{'merged' if firsts else 'distinct'}", words=words, **numbers)


def _merged(exact: NDArray[np.float64], dtype: np.dtype) -> dict[str, list[Any]]:
    """The effect of rounding on the biases of each head by distance, [heads, distances]."""
    near = rounded(np.ascontiguousarray(exact), dtype)
    with np.errstate(invalid="ignore"):
        errors = np.abs(near - exact).max(axis=1)
    same = near[:, 1:] == near[:, :-1]
    apart = near[:, ::-1] != near[:, -1:]
    return {
        "largest_error": [float(error) if np.isfinite(error) else None for error in errors],
        "first_merged_distance": [int(head.argmax()) if head.any() else None for head in same],
        "most_merged": [_longest_run(head) for head in same],
        "merged_at_the_length": [int(head.argmax()) if head.any() else len(head) for head in apart],
    }


def _longest_run(same: NDArray[np.bool_]) -> int:
    """The length of the longest run of equal numbers, from whether each equals the next.

    >>> _longest_run(np.array([False, True, True, False])), _longest_run(np.array([], bool))
    (3, 1)
    """
    ends = np.flatnonzero(~np.concatenate([[False], same, [False]]))
    return int(np.diff(ends).max())
