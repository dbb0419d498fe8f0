"""Measures whether a bias depends on the distance only: it is then constant along the diagonals of [queries, keys].

If a bias depends on the distance only, moving the query and the key by the same number of tokens changes nothing.
Softmax does not change when a constant is added to a whole row, so a bias that is constant along the diagonals *up to a
constant in each row* has the same effect.

**The numbers** (tokens; a bias has the unit of a score):

* ``depends_on``: what the definition of the encoding uses: ``"distance"``, ``"key"`` (the position of the key) or
  ``"both"``.
* ``tokens``: the number of queries, and of keys, whose biases were measured: the last tokens of the length, where
  rounding errors are largest.
* ``largest_difference``: the largest difference, in float64, of two biases at the same distance (on one diagonal of the
  bias matrix).
* ``largest_difference_within_rows``: the largest difference of two biases at the same distance, after the bias at
  distance 0 is subtracted from each row of the bias matrix.
* ``largest_difference_rounded``: the same difference as ``largest_difference_within_rows``, for biases rounded to the
  measured dtype; None where the dtype cannot represent the biases.

If the learned numbers of a table are not known, the row numbers of the table are compared (a difference of 0 then means
that every table is constant along diagonals). For a network whose numbers are not known the answer follows from its
formula, and the differences are None.

**Accuracy.** Numbers in float64 are within a few ulp of the largest; a difference below 1e-9 of it counts as none.
"""

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.biases import BiasCode, TableCode, bias, row_numbers
from clockhands.errors import InvalidValue
from clockhands.measures.property import Property, answer, not_computed, sentence
from clockhands.measures.subject import MeasuredCode

_SIDE = 48
_SAME = 1e-9


def along_diagonals(square: NDArray[np.float64]) -> float:
    """The largest difference of two neighbouring entries on a diagonal of [..., queries, keys]; 0 for a single token.

    0 means that every diagonal is constant.

    >>> along_diagonals(np.array([[0.0, 1.0], [2.0, 0.5]]))
    0.5
    """
    return float(np.abs(square[..., 1:, 1:] - square[..., :-1, :-1]).max(initial=0))


def diagonals(subject: MeasuredCode) -> Property:
    """Whether a bias depends on the distance only, possibly up to a constant in each row.

    Accuracy: see the module.
    """
    spec = subject.spec
    assert isinstance(spec, BiasCode)
    if subject.length == 1:
        return not_computed(sentence("shift.one_token"))
    number = min(subject.length, getattr(spec, "tokens", subject.length))
    side = min(number, _SIDE)
    places = range(number - side, number)
    figures: dict[str, object] = {"depends_on": spec.reads, "tokens": side}
    if spec.learned and subject.values is None:
        if not isinstance(spec, TableCode):
            return _property_of(spec, figures, spec.reads == "distance", None, "by_formula")
        square = row_numbers(spec, places, places).astype(np.float64)[None]
        figures |= {"largest_difference": along_diagonals(square)}
        return _property_of(spec, figures, not figures["largest_difference"], None, "for_any_values")
    square = np.asarray(bias(spec, places, places, values=subject.values, dtype="float64"))
    within = _without_own(square)
    size = max(float(np.abs(square).max(initial=0)), 1e-300)
    plain, by_row = along_diagonals(square), along_diagonals(within)
    try:
        rounded = np.asarray(bias(spec, places, places, values=subject.values, dtype=subject.dtype)).astype(np.float64)
        in_dtype = along_diagonals(_without_own(rounded)) if np.isfinite(rounded).all() else None
    except InvalidValue:
        in_dtype = None
    figures |= {
        "largest_difference": plain,
        "largest_difference_within_rows": by_row,
        "largest_difference_rounded": in_dtype,
    }
    only_by_row = by_row <= _SAME * size < plain
    return _property_of(spec, figures, plain <= _SAME * size or only_by_row, in_dtype if only_by_row else None, "")


def _without_own(square: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row minus its value at distance 0."""
    return square - np.diagonal(square, axis1=-2, axis2=-1)[..., None]


def _property_of(
    spec: BiasCode,
    figures: dict[str, object],
    holds: bool,
    rounded: float | None,
    how: str,  # how it is known: the name of a sentence
) -> Property:
    where = "positions" if spec.ordered else "places"
    case = where if not holds else "keys" if spec.reads == "key" else "distances"
    words = {
        "bias": type(spec).__name__,
        "how": sentence(f"shift.bias.{how}") if how else "",
        "rounded": rounded,
        "within": spec.reads != "distance",
    }
    return answer(f"shift.bias.{case}", holds=holds, words=words, **figures)
