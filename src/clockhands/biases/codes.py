"""What every bias is: numbers for pairs of a query and a key, added to their scores in each head."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from clockhands.arguments import shown
from clockhands.biases.distances import QueryKeyPairs
from clockhands.biases.values import Values
from clockhands.dtypes import UNIT_ROUNDOFF
from clockhands.errors import InvalidType, InvalidValue
from clockhands.traces import made_outside

# What a number of a bias depends on, beside its head: the distance alone (then it is constant along diagonals),
# the key alone, or query and key.
Reads = Literal["distance", "key", "both"]
# What a bias gives to keys after the query: the number of the key as far before it; that of the query itself; more, the
# later they stand; or a number of their own.
After = Literal["as before", "as itself", "more", "own"]


class BiasCode(ABC):
    """Numbers for pairs of a query and a key, one in each head, added to the scores before the softmax.

    A code is a frozen, hashable value; learned numbers are passed beside it as ``values``.
    """

    heads: int

    def __new__(cls, *_given: Any, **_named: Any) -> Self:
        """A new code, outside of what PyTorch compiles."""
        made_outside(cls.__name__)
        return super().__new__(cls)

    def __copy__(self) -> Self:
        """Itself: it never changes, and PyTorch's compiler recognises a spec only as the object that it is."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself, as `__copy__`."""
        return self

    @property
    def reads(self) -> Reads:
        """What a number depends on, beside its head."""
        return "distance"

    @property
    def keys_after(self) -> After:
        """What keys after the query get."""
        return "own"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The learned numbers by name, each with its shape; empty for a code that is computed."""
        return {}

    @property
    def learned(self) -> bool:
        """Whether the code needs learned numbers."""
        return bool(self.shapes)

    @property
    def looked_up(self) -> bool:
        """Whether the learned numbers are a table, whose rows can be told apart without knowing them."""
        return False

    @property
    def log_buckets(self) -> "LogBuckets | None":
        """The buckets that are even in the logarithm of the distance; None where there are none."""
        return None

    @property
    def slopes(self) -> tuple[float, ...] | None:
        """The bias lost per token in each head of a code that is a slope times a number of tokens, else None."""
        return None

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """How far each number may be off that is made in float32 and rounded to a dtype, to first order.

        What is looked up is rounded once; where it is scaled, the scale and the product are rounded too.

        Args:
            queries: Their positions, [queries].
            keys: Theirs, [keys].
            sizes: The right numbers without their signs, float64 [heads, queries, keys].
            values: Learned numbers, or None.
            unit: What a rounding to the dtype is off by, relative.

        Returns:
            Two arrays that broadcast to [heads, queries, keys]: the error, and a relative one that a whole row has in
            common (that of a slope).
        """
        return unit * (1 + 2 * (getattr(self, "scale", 1.0) != 1)) * sizes, np.zeros((1, 1, 1))

    @property
    def ordered(self) -> bool:
        """Whether its positions come one after another, so that a causal mask means something."""
        return True

    def refuse(self, values: dict[str, np.ndarray]) -> str | None:
        """What is wrong with learned numbers that are all known, or None."""
        return None

    @abstractmethod
    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs, [heads, *pairs], in the library of the values."""


@dataclass(frozen=True)
class LogBuckets:
    """Buckets that are even in the logarithm of a distance ``d``: ``y = ln(d / first + added) / ln(last / first) s``.

    Attributes:
        first: Distances below it have a bucket of their own.
        last: The distance at which ``y`` is ``steps``.
        steps: The number ``s`` of buckets in between.
        added: Inside the logarithm.
        up: Whether ``y`` is rounded up, as in DeBERTa; else down, as in T5.
        beyond: How many more buckets begin above ``last``.
    """

    first: int
    last: int
    steps: int
    added: float = 0.0
    up: bool = False
    beyond: int = 0

    def near_edge(self, sizes: np.ndarray) -> np.ndarray:
        """Which sizes of distances lie so near an edge of two buckets that float32 may put them on either side.

        In float32, with ``e = 2**-24``, the quotient is off by ``e``, the logarithm ``L`` by ``e (1 + 2 L)``, the
        constant below it, the quotient, the product and a sum with ``first`` by ``e`` each: together
        ``e (s / ln(last / first) (1 + 2 L) + 4 (first + y))``. A distance whose ``y`` is nearer than that to a whole
        number may be in either bucket; no other may.
        """
        sizes = np.abs(np.asarray(sizes, np.float64))
        logarithm = np.log(np.maximum(sizes, self.first) / self.first + self.added)
        whole = math.log(self.last / self.first)
        y = logarithm / whole * self.steps
        off = UNIT_ROUNDOFF["float32"] * (self.steps / whole * (1 + 2 * logarithm) + 4 * (self.first + y))
        at = np.round(y)
        return (sizes >= self.first) & (np.abs(y - at) <= off) & (at <= self.steps + self.beyond)


class TableCode(BiasCode):
    """A bias that is looked up: each pair takes a row of a learned table, each head a column."""

    name: ClassVar[str] = "table"

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows of the table."""

    @property
    def looked_up(self) -> bool:
        """Whether the table itself is learned, not made by a learned network."""
        return self.name in self.shapes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The table, [rows, heads]."""
        return {self.name: (self.rows, self.heads)}

    def has_rows(self, pairs: QueryKeyPairs) -> Any:
        """Which pairs of a trace have a row; None where all have one, or the others were refused."""
        return None

    @abstractmethod
    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The row that each pair takes, int64 in the pairs' shape."""

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


def truth(name: str, value: object, says: str) -> bool:
    """``value``, if it is True or False.

    Raises:
        InvalidType: It is neither.
    """
    if not isinstance(value, bool):
        raise InvalidType(f"`{name}` must be True or False, got {shown(value)}.", says)
    return value


def one_of(name: str, value: object, allowed: tuple[str, ...], hint: str) -> Any:
    """``value``, if it is one of some words.

    Raises:
        InvalidValue: It is not.
    """
    if not isinstance(value, str) or value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise InvalidValue(f"`{name}` must be one of {words}, got {shown(value)}.", hint)
    return value
