"""The interface of attention biases: numbers for each query and key, added to their scores in each head."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from clockhands.encodings.biases.distances import QueryKeyPairs
from clockhands.encodings.biases.values import Values
from clockhands.encodings.constants import Source
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.encodings.spec_fields import OneLine, refuse_unknown
from clockhands.encodings.traces import made_outside
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

# What a bias depends on in each head: the distance only (constant along diagonals), the key only, or query and key.
Reads = Literal["distance", "key", "both"]
# The bias of keys after the query: that of the key at the same distance before the query; that of distance 0; a number
# that grows with the key's position; or a separate number.
After = Literal["as before", "as itself", "more", "own"]


class BiasCode(OneLine, Source, ABC):
    """Base class of attention biases: a number for each query, key and head, added before the softmax.

    A code is a frozen, hashable value; learned numbers are passed separately as ``values``.
    """

    heads: int

    def __new__(cls, *_given: Any, **named: Any) -> Self:
        """Make a new code outside of a graph that PyTorch compiles."""
        made_outside(cls.__name__)
        refuse_unknown(cls, named)
        return super().__new__(cls)

    def __copy__(self) -> Self:
        """The same object: it is immutable, and PyTorch's compiler recognises a spec by object identity only."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same object, as in `__copy__`."""
        return self

    @property
    def reads(self) -> Reads:
        """What a number depends on in each head; see `Reads`."""
        return "distance"

    @property
    def keys_after(self) -> After:
        """The bias of keys after the query; see `After`."""
        return "own"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the learned numbers; empty for a computed bias."""
        return {}

    @property
    def learned(self) -> bool:
        """Whether the code needs learned numbers."""
        return len(self.shapes) > 0  # PyTorch 2.5 cannot compile `bool` of a dict

    @property
    def looked_up(self) -> bool:
        """Whether the learned numbers are a table, whose rows are determined by positions alone."""
        return False

    @property
    def log_buckets(self) -> "LogBuckets | None":
        """The buckets of equal width in the logarithm of the distance; None for codes without any."""
        return None

    @property
    def slopes(self) -> tuple[float, ...] | None:
        """The slope of each head, in bias per token, if the bias is linear in the distance, else None."""
        return None

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first-order error bound of each number when computed in float32 and rounded to a dtype.

        A number from a table is rounded once; if it is scaled, the scale and the product are rounded too.

        Args:
            queries: Query positions, [queries].
            keys: Key positions, [keys].
            sizes: The absolute values of the correct numbers, float64 [heads, queries, keys].
            values: Learned numbers, or None.
            unit: The unit roundoff of the dtype.

        Returns:
            Two arrays that broadcast to [heads, queries, keys]: the error of each number, and the relative error that
            all numbers of a row share (that of a slope).
        """
        return unit * (1 + 2 * (getattr(self, "scale", 1.0) != 1)) * sizes, np.zeros((1, 1, 1))

    @property
    def ordered(self) -> bool:
        """Whether positions form a sequence, so that a causal mask is meaningful."""
        return True

    def refuse(self, values: dict[str, np.ndarray]) -> str | None:
        """The problem with known learned numbers, or None."""
        return None

    @abstractmethod
    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs, [heads, *pairs], in the library of the values."""


@dataclass(frozen=True)
class LogBuckets:
    """Buckets of equal width in the logarithm of the distance: ``y = ln(d / first + added) / ln(last / first) s``.

    Attributes:
        first: Each distance below it has a separate bucket.
        last: The distance at which ``y`` is ``steps``.
        steps: The number ``s`` of buckets in between.
        added: The constant ``added`` inside the logarithm.
        up: Whether ``y`` is rounded up, as in DeBERTa; else down, as in T5.
        beyond: Number of further buckets that begin above ``last``.
    """

    first: int
    last: int
    steps: int
    added: float = 0.0
    up: bool = False
    beyond: int = 0

    def near_edge(self, sizes: np.ndarray) -> np.ndarray:
        """Which distances are so close to a bucket boundary that float32 arithmetic may give either bucket.

        In float32, with ``e = 2**-24``, the quotient is off by ``e``, the logarithm ``L`` by ``e (1 + 2 L)``, and the
        divisor, the second quotient, the product and a sum with ``first`` by ``e`` each: together
        ``e (s / ln(last / first) (1 + 2 L) + 4 (first + y))``. Only a distance whose ``y`` is closer than that to an
        integer may be in either bucket. Rounded up, ``first`` itself is kept, without a logarithm.
        """
        sizes = np.abs(np.asarray(sizes, np.float64))
        logarithm = np.log(np.maximum(sizes, self.first) / self.first + self.added)
        whole = math.log(self.last / self.first)
        y = logarithm / whole * self.steps
        off = UNIT_ROUNDOFF["float32"] * (self.steps / whole * (1 + 2 * logarithm) + 4 * (self.first + y))
        at = np.round(y)
        computed = sizes > self.first if self.up else sizes >= self.first
        return computed & (np.abs(y - at) <= off) & (at <= self.steps + self.beyond)


class TableCode(BiasCode):
    """A bias from a learned table: a query and key give the row, the head gives the column."""

    name: ClassVar[str] = "table"

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows of the table."""

    @property
    def looked_up(self) -> bool:
        """Whether the table itself is learned, instead of being computed by a learned network."""
        return self.name in self.shapes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The table, [rows, heads]."""
        return {self.name: (self.rows, self.heads)}

    def has_rows(self, pairs: QueryKeyPairs) -> Any:
        """Which traced pairs have a row; None where all have one (others were refused before)."""
        return None

    @abstractmethod
    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The row of each pair, int64 in the shape of the pairs."""

    def table(self, values: Values) -> Any:
        """The table, [rows, heads]."""
        return values.arrays[self.name]

    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs."""
        xp, rows = values.xp, self.row_numbers(pairs)
        taken = xp.take(self.table(values), values.whole(rows.reshape(-1)), axis=0)
        found = xp.reshape(xp.permute_dims(taken, (1, 0)), (self.heads, *rows.shape))
        known = self.has_rows(pairs)
        return found if known is None else xp.where(known, found, xp.full_like(found, np.nan))


def one_of(name: str, value: object, allowed: tuple[str, ...], hint: str) -> Any:
    """``value``, if it is one of the allowed names.

    Raises:
        InvalidValue: ``value`` is not one of them.
    """
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise InvalidValue(f"`{name}` must be one of {words}, got {shown(value)}.", hint)
    return value
