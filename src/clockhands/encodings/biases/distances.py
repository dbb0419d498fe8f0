"""Exact distances (query position minus key position), and the pairs of queries and keys that they belong to.

Positions are stored as ``sign x (whole + part)`` and subtracted in integers: the distance of two integer positions is
exact at 10**18 too. It is rounded, once, only where a formula needs a float.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.positions import Positions, Sizes, positions_of
from clockhands.errors import InvalidValue

_MOST = np.uint64(2**64 - 1)


class Distances(NamedTuple):
    """Query positions minus key positions.

    Attributes:
        whole: Size of the distance, uint64; None where a position is not an integer. The largest distance, 2**64 (from
            -2**63 to 2**63), is stored as 2**64 - 1, which is the same float64.
        negative: Whether the key is after the query.
        reals: The distance in tokens, float64: an integer rounded once, a real one within 2**-53 of its size
            plus 2**-53.
    """

    whole: np.ndarray | None
    negative: np.ndarray
    reals: np.ndarray

    @property
    def past(self) -> np.ndarray:
        """The distance to keys before the query, 0 for keys after it."""
        return np.where(self.negative, 0.0, self.reals)


def difference(queries: Sizes, keys: Sizes) -> Distances:
    """The distances of queries from keys, element by element, broadcast together."""
    below = np.False_ if queries.negative is None else queries.negative
    key_below = np.False_ if keys.negative is None else keys.negative
    apart = np.maximum(queries.whole, keys.whole) - np.minimum(queries.whole, keys.whole)
    with np.errstate(over="ignore"):
        together = queries.whole + keys.whole
    together = np.where(together < queries.whole, _MOST, together)
    whole = np.where(below != key_below, together, apart)
    behind = np.where(below != key_below, below, (queries.whole < keys.whole) != below) & (whole != 0)
    reals = np.where(behind, -1.0, 1.0) * whole.astype(np.float64)
    if queries.part is None and keys.part is None:
        return Distances(whole, behind, reals)
    reals = reals + (_signed(queries.part, below) - _signed(keys.part, key_below))
    return Distances(None, reals < 0, reals)


def reals_of(sizes: Sizes) -> np.ndarray:
    """Positions as float64."""
    reals = sizes.whole.astype(np.float64)
    if sizes.part is not None:
        reals = reals + sizes.part
    return reals if sizes.negative is None else np.where(sizes.negative, -reals, reals)


def _signed(part: np.ndarray | None, negative: Any) -> Any:
    return 0.0 if part is None else np.where(negative, -part, part)


@dataclass(frozen=True, eq=False)
class QueryKeyPairs:
    """Pairs of a query and a key: positions that broadcast together.

    Attributes:
        queries, keys: Positions of the queries and of the keys.
        last: Position of the last key of the whole sequence.
    """

    queries: Sizes
    keys: Sizes
    last: Sizes

    # For traced positions, `clockhands.biases._traced.TracedPairs` has the same interface.
    xp: ClassVar[Any] = np

    @property
    def query_tokens(self) -> np.ndarray:
        """Query positions as real numbers."""
        return reals_of(self.queries)

    @property
    def key_tokens(self) -> np.ndarray:
        """Key positions as real numbers."""
        return reals_of(self.keys)

    @property
    def past_last(self) -> np.ndarray:
        """Key positions minus the position of the last key."""
        return difference(self.keys, self.last).reals

    def steps(self, spec: Any) -> np.ndarray:
        """The number of bucket boundaries that each distance has reached.

        Raises:
            InvalidValue: A distance is not an integer.
        """
        limits = np.array(spec.boundaries, np.uint64)
        return np.searchsorted(limits, self._whole(spec), side="right").astype(np.int64)

    def clipped(self, most: int, spec: Any = None) -> np.ndarray:
        """The size of each distance, clipped to ``most``."""
        return np.minimum(self._whole(spec), np.uint64(most)).astype(np.int64)

    def _whole(self, spec: Any) -> np.ndarray:
        distances = self.distances
        if distances.whole is None:
            odd = distances.reals[distances.reals % 1 != 0]
            raise InvalidValue(
                f"{type(spec).__name__} has rows for whole distances only, "
                f"got {odd.flat[0] if odd.size else 'real positions'}.",
                "Give positions as whole numbers.",
            )
        return distances.whole

    @cached_property
    def distances(self) -> Distances:
        """Query positions minus key positions."""
        return difference(self.queries, self.keys)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the pairs."""
        return np.broadcast_shapes(self.queries.whole.shape, self.keys.whole.shape)


@dataclass(frozen=True, eq=False)
class QueryKeyGrid:
    """All pairs of some queries [queries] and some keys [keys].

    Attributes:
        queries, keys: Positions of one axis.
    """

    queries: Positions
    keys: Positions

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self.queries.size, self.keys.size

    @property
    def even(self) -> bool:
        """Whether positions are equally spaced with the same step, so that each diagonal is one distance."""
        steps = {at.step for at in (self.queries, self.keys) if at.size > 1}
        return self.queries.progression and self.keys.progression and len(steps) <= 1 and 0 not in self.shape

    def diagonals(self) -> QueryKeyPairs:
        """One pair of each diagonal, from the last query at the first key to the first query at the last key.

        The pair ``(i, j)`` of an even grid is on the diagonal ``j - i + queries - 1``.
        """
        queries, keys = self._all()
        rows, columns = self.shape
        query = np.concatenate([np.arange(rows)[::-1], np.zeros(columns - 1, np.int64)])
        key = np.concatenate([np.zeros(rows, np.int64), np.arange(1, columns)])
        return QueryKeyPairs(_at(queries, query), _at(keys, key), self._last(keys))

    def columns(self) -> QueryKeyPairs:
        """One pair for each key, for codes that depend on the key only."""
        keys = self._all()[1]
        return QueryKeyPairs(_at(keys, slice(-1, None)), keys, self._last(keys))

    def rows(self, begin: int, end: int, stop: int | None = None) -> QueryKeyPairs:
        """The pairs of the queries ``begin`` to ``end - 1`` with the keys before ``stop``, or all, [rows, keys]."""
        queries, keys = self._all()
        return QueryKeyPairs(_at(queries, (slice(begin, end), None)), _at(keys, (None, slice(stop))), self._last(keys))

    def _all(self) -> tuple[Sizes, Sizes]:
        return self.queries.sizes(0, self.queries.size), self.keys.sizes(0, self.keys.size)

    def _last(self, keys: Sizes) -> Sizes:
        return _at(keys, slice(-1, None))


@dataclass(frozen=True, eq=False)
class Batches:
    """The grids of a batch, one for each sequence.

    Attributes:
        queries, keys: [seq], or [batch, seq] where sequences have different positions.
    """

    queries: Positions
    keys: Positions

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch axes of the result: empty where all positions have one axis."""
        return np.broadcast_shapes(self.queries.shape[:-1], self.keys.shape[:-1])

    @property
    def several(self) -> bool:
        """Whether there is more than one sequence; a single one applies to the whole batch."""
        return self.batch not in ((), (1,))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of queries and of keys in each sequence."""
        return self.queries.shape[-1], self.keys.shape[-1]

    def grids(self) -> Iterator[QueryKeyGrid]:
        """The grid of each sequence."""
        for sequence in range(*self.batch or (1,)):
            yield QueryKeyGrid(_sequence(self.queries, sequence), _sequence(self.keys, sequence))


def batches_of(queries: Any, keys: Any) -> Batches:
    """The positions that a caller's queries and keys describe.

    A count of keys means the positions 0 to n - 1; a count of queries means the positions of the last keys. Anything
    else is positions, [seq] or [batch, seq].

    Raises:
        InvalidValue: A count of queries is above the number of keys, the shapes do not match, or a position cannot be
            used.
        InvalidType: They are not numbers.
    """
    at_keys = _axes_checked(positions_of(keys, "keys"), "keys")
    if _is_count(queries):
        number = count("queries", queries, least=0)
        if number > at_keys.shape[-1]:
            raise InvalidValue(
                f"A count of `queries` means the last key positions, so it must be 0 to {at_keys.shape[-1]}; got "
                f"{number}.",
                "Give the positions of the queries as a range or an array.",
            )
        return Batches(_last_of(at_keys, number), at_keys)
    at_queries = _axes_checked(positions_of(queries, "queries"), "queries")
    sequences = {at.shape[0] for at in (at_queries, at_keys) if len(at.shape) == 2}
    if len(sequences - {1}) > 1:
        raise InvalidValue(
            f"`queries` and `keys` must have the same batch size, got {at_queries.shape[0]} and {at_keys.shape[0]}.",
            "Give both as [seq], or as [batch, seq] with the same batch size.",
        )
    return Batches(at_queries, at_keys)


def _is_count(given: Any) -> bool:
    return hasattr(given, "__index__") and not getattr(given, "shape", ()) and not isinstance(given, bool | np.bool_)


def _axes_checked(at: Positions, name: str) -> Positions:
    if len(at.shape) not in (1, 2):
        raise InvalidValue(
            f"`{name}` must be of shape [{name}], [batch, {name}] or [batch, heads, {name}], got {list(at.shape)}.",
            "Give a count, a range, or an array of one to three axes.",
        )
    return at


def _last_of(at: Positions, number: int) -> Positions:
    """The last positions of each sequence."""
    left = at.shape[-1] - number
    shape = (*at.shape[:-1], number)
    if at.progression:
        return Positions(shape, start=at.start + at.step * left, step=at.step)
    whole, part, negative = (None if limb is None else limb[..., left:] for limb in (at.whole, at.part, at.negative))
    return Positions(shape, whole, part, negative)


def _sequence(at: Positions, sequence: int) -> Positions:
    """The positions of one sequence of a batch."""
    if len(at.shape) == 1:
        return at
    row = sequence if at.shape[0] > 1 else 0
    whole, part, negative = (None if limb is None else limb[row] for limb in (at.whole, at.part, at.negative))
    return Positions(at.shape[1:], whole, part, negative)


def _at(sizes: Sizes, index: Any) -> Sizes:
    part, negative = (None if limb is None else limb[index] for limb in (sizes.part, sizes.negative))
    return Sizes(sizes.whole[index], part, negative)
