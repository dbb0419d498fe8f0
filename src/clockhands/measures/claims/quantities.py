"""The quantities that the numbers of claims are taken from: a row of a claim's file names one, with its arguments.

Of a geometric ladder, the arguments are those of `clockhands.encodings.ladders.geometric`, by default with 256 pairs,
the width of Vaswani et al. 2017.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clockhands.encodings.additive import AdditiveCode, table
from clockhands.encodings.clocks import shift
from clockhands.encodings.ladders import Ladder, geometric
from clockhands.encodings.specs import Spec, from_dict
from clockhands.measures._measuring import MEASURES
from clockhands.measures.adding._recoverable import (
    cosine_below,
    cosine_deviation,
    cosine_quantile,
    deviation_needed,
    expected_share,
    pair_error,
)
from clockhands.measures.claims.studies import of_results
from clockhands.measures.ladders._angle_errors import phase_error, phase_errors
from clockhands.measures.ladders.base_bound import first_failing_distance
from clockhands.measures.shifts._kernels import kernel_by_distance
from clockhands.measures.subject import subject_of
from clockhands.measures.tokens.nearest import nearest_offset
from clockhands.measures.tokens.smooth import step_distances


def of_ladder(ladder: str, pairs: int = 256, base: float = 10_000.0, span: Any = "open", **more: Any) -> Any:
    """A quantity of a geometric ladder."""
    return LADDERS[ladder](geometric(pairs, base, span), **more)


def wavelength(ladder: Ladder, pair: int = -1) -> float:
    """Tokens of a rotation, by default of the slowest pair."""
    return ladder.wavelengths[pair]


def divisor(ladder: Ladder) -> float:
    """The reciprocal of the slowest frequency."""
    return 1 / ladder.rates[-1]


def ratio_of_neighbours(ladder: Ladder) -> float:
    """The first frequency over the second."""
    return ladder.rates[0] / ladder.rates[1]


def orders_of_magnitude(ladder: Ladder) -> float:
    """The decimal logarithm of the ratio of the fastest to the slowest frequency."""
    return math.log10(ladder.rates[0] / ladder.rates[-1])


def rotations(ladder: Ladder, tokens: float, pair: int = -1) -> float:
    """Rotations within so many tokens, by default of the slowest pair."""
    return ladder.rates[pair] / (2 * math.pi) * tokens


def pairs_with_wavelengths(ladder: Ladder, above: float = 0.0, up_to: float = math.inf) -> int:
    """How many pairs have a wavelength above one number of tokens and at most another."""
    return sum(above < wave <= up_to for wave in ladder.wavelengths)


def share_with_wavelengths(ladder: Ladder, above: float) -> float:
    """The share of the pairs with a wavelength above a number of tokens."""
    return pairs_with_wavelengths(ladder, above) / ladder.pairs


def pairs_in_an_octave(ladder: Ladder) -> float:
    """How many pairs there are for each doubling of the wavelength."""
    return math.log(2) / math.log(ladder.rates[0] / ladder.rates[1])


def similarity(ladder: Ladder, offset: int) -> float:
    """The dot product of the rows of two positions, by their offset."""
    return float(kernel_by_distance(ladder, offset + 1)[offset])


def distance_of_rows(ladder: Ladder, offset: int) -> float:
    """The Euclidean distance of the rows of two positions, by their offset."""
    return float(step_distances(ladder, [offset])[0])


def nearest(ladder: Ladder, farthest: int) -> int:
    """The offset, up to the farthest, at which two rows are nearest."""
    return nearest_offset(ladder, farthest + 1)[0]


def distance_of_nearest(ladder: Ladder, farthest: int) -> float:
    """The Euclidean distance of the two nearest rows with an offset up to the farthest."""
    return nearest_offset(ladder, farthest + 1)[1]


def frequency_error(ladder: Ladder, dtype: str, way: str) -> float:
    """The largest relative error of a frequency that is computed in a dtype, one of `phase_errors`' ways."""
    return float(np.abs(phase_errors(ladder, [1], dtype, way)[0] / np.array(ladder.rates)).max())


def fails_at(ladder: Ladder, limit: int) -> int:
    """The first distance below a limit at which the sum of cosines is negative; 0 if there is none."""
    return first_failing_distance(ladder.rates, limit) or 0


LADDERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            wavelength, divisor, ratio_of_neighbours, orders_of_magnitude, rotations, pairs_with_wavelengths,
            share_with_wavelengths, pairs_in_an_octave, similarity, distance_of_rows, nearest, distance_of_nearest,
            fails_at, phase_error, frequency_error,
        )
    }
)  # fmt: skip
"""The quantities of a ladder, by name."""


def of_rows(rows: str, spec: Mapping[str, Any], at: Sequence[int], **more: Any) -> float:
    """A quantity of the rows of a table at some positions, in float64."""
    return ROWS[rows](from_dict(spec), at, **more)


def _rows(spec: Any, at: Sequence[int]) -> NDArray[np.float64]:
    return table(spec, list(at), "float64")


def distance(spec: AdditiveCode, at: Sequence[int]) -> float:
    """The Euclidean distance of two rows."""
    one, other = _rows(spec, at)
    return float(np.linalg.norm(other - one))


def dot_product(spec: AdditiveCode, at: Sequence[int]) -> float:
    """The dot product of two rows, rounded once."""
    one, other = _rows(spec, at)
    return math.fsum(one * other)


def norm(spec: AdditiveCode, at: Sequence[int]) -> float:
    """The Euclidean norm of a row."""
    return float(np.linalg.norm(_rows(spec, at)))


def largest(spec: AdditiveCode, at: Sequence[int]) -> float:
    """The largest absolute value of some rows."""
    return float(np.abs(_rows(spec, at)).max())


def shift_error(spec: AdditiveCode, at: Sequence[int], by: int) -> float:
    """The largest entry of ``table(t + k) - table(t) @ R_k.T`` over some positions ``t``.

    Entries are off by 3.2 ulp of 1, the matrix by 0.8; the product and the sum are rounded: at most 2.4e-15.
    """
    later = _rows(spec, [position + by for position in at])
    return float(np.abs(later - _rows(spec, at) @ shift(spec, by).T).max())


ROWS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {each.__name__: each for each in (distance, dot_product, norm, largest, shift_error)}
)
"""The quantities of rows, by name."""


@cache
def _numbers(name: str, spec: Spec, length: int, dtype: str) -> Mapping[str, Any]:
    return MEASURES[name](subject_of(spec, length, dtype, None)).numbers


def of_property(*, spec: Mapping[str, Any], figure: str, entry: int | None = None, **measured: Any) -> Any:
    """A number that `clockhands.properties` reports of a spec, given as JSON holds it.

    Args:
        spec: The spec.
        figure: The name of the number.
        entry: Of a list of numbers, the place.
        measured: The name of the ``property``, the ``length``, and the ``dtype`` where it is not float32.
    """
    dtype = measured.get("dtype", "float32")
    found = _numbers(measured["property"], from_dict(spec), measured["length"], dtype)[figure]
    return found if entry is None else found[entry]


def of_token(token: str, **arguments: Any) -> float:
    """A number of tokens to which a position is added."""
    return TOKENS[token](**arguments)


TOKENS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {
        each.__name__: each
        for each in (cosine_below, cosine_deviation, cosine_quantile, deviation_needed, expected_share, pair_error)
    }
)
"""The quantities of tokens to which a position is added, by name."""

_KINDS: Mapping[str, Callable[..., Any]] = {
    "ladder": of_ladder, "rows": of_rows, "property": of_property, "token": of_token, "study": of_results,
    "model": of_results,
}  # fmt: skip


def quantity(row: Mapping[str, Any]) -> float:
    """The number that a row refers to: its first argument says of what.

    >>> quantity({"ladder": "wavelength", "pairs": 64, "pair": 0}) == 2 * math.pi
    True
    """
    return _KINDS[next(iter(row))](**row)
