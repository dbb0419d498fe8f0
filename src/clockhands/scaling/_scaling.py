"""What a scaling is, how configs declare one, and checks of the values that several have."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Protocol, runtime_checkable

from clockhands.arguments import count, not_negative, positive, real, shown
from clockhands.errors import InvalidValue
from clockhands.ladders import Ladder

# The number that a float holds. Unlike `Decimal`, it does not ask the caller's context for leave.
exact = Decimal.from_float


@runtime_checkable
class Scaling(Protocol):
    """A frozen value that is a function ladder -> ladder."""

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder, as it is used at ``length`` tokens."""
        ...


@dataclass(frozen=True)
class Spelling:
    """How configs declare a scaling.

    Each quantity has the name that `clockhands.sources` gives it, whatever a file's key for it is.

    Attributes:
        name: The value of ``rope_type``.
        make: The scaling of the values read, by quantity; ``share`` is the share of the head that turns.
        needs: Quantities that it cannot do without.
        may: Quantities that it may have.
        original: Where its original length is from: it has none; the file says it, or else the context is it; or the
            context is it whatever the file says.
        reaches_context: Whether the factor times the original length is the context.
        magnitude: Quantities that say what cosine and sine are multiplied by, the first that are declared.
    """

    name: str
    make: Callable[[Mapping[str, Any]], Scaling]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    original: Literal["none", "declared", "context"] = "none"
    reaches_context: bool = False
    magnitude: tuple[tuple[str, ...], ...] = ()


def factor_of(value: object) -> float:
    """A factor: finite, and at least 1."""
    number = real("factor", value)
    if not 1 <= number < math.inf:
        raise InvalidValue(
            f"`factor` must be finite and at least 1, got {shown(value)}.",
            "A scaling divides frequencies; 1 leaves them unchanged.",
        )
    return number


def positive_or_none(name: str, value: object) -> float | None:
    """A number above 0, or None."""
    return None if value is None else positive(name, value)


def not_negative_or_none(name: str, value: object) -> float | None:
    """A number of at least 0, or None."""
    return None if value is None else not_negative(name, value)


def length_of(length: int | None) -> int | None:
    """A number of tokens, or None."""
    return None if length is None else count("length", length)
