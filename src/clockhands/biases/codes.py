"""What every bias is: numbers for pairs of a query and a key, added to their scores in each head."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np

from clockhands.arguments import shown
from clockhands.biases.distances import QueryKeyPairs
from clockhands.biases.values import Values
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
    def ordered(self) -> bool:
        """Whether its positions come one after another, so that a causal mask means something."""
        return True

    def refuse(self, values: dict[str, np.ndarray]) -> str | None:
        """What is wrong with learned numbers that are all known, or None."""
        return None

    @abstractmethod
    def numbers(self, pairs: QueryKeyPairs, values: Values) -> Any:
        """The numbers of all heads at these pairs, [heads, *pairs], in the library of the values."""


class TableCode(BiasCode):
    """A bias that is looked up: each pair takes a row of a learned table, each head a column."""

    name: ClassVar[str] = "table"

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows of the table."""

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
