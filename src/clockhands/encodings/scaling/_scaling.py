"""The protocol of scalings, their declaration in configs, and checks of values that several of them have."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Protocol, runtime_checkable

from clockhands.arguments import count, not_negative, positive, real
from clockhands.encodings.ladders import Ladder
from clockhands.errors import InvalidValue
from clockhands.phrases import shown

# The exact value of a float. Unlike `Decimal`, it does not depend on the caller's decimal context.
exact = Decimal.from_float


@runtime_checkable
class Scaling(Protocol):
    """A frozen value that can be called as a function ladder -> ladder."""

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder at a context length of ``length`` tokens."""
        ...


@dataclass(frozen=True)
class Spelling:
    """A declaration of a scaling in configs.

    Each quantity has its name in `clockhands.configs`, which may differ from the key in a file.

    Attributes:
        name: The value of ``rope_type``.
        make: Makes the scaling from the values read, by quantity; ``share`` is the share of RoPE dimensions.
        needs: Required quantities.
        may: Optional quantities.
        original: The source of the original length: none; the file, or else the context length; or always the context
            length.
        reaches_context: Whether the factor times the original length is the context length.
        magnitude: Quantities that set the attention factor; the first declared ones count.
    """

    name: str
    make: Callable[[Mapping[str, Any]], Scaling]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    original: Literal["none", "declared", "context"] = "none"
    reaches_context: bool = False
    magnitude: tuple[tuple[str, ...], ...] = ()


def factor_of(value: object) -> float:
    """Check a factor: finite, and at least 1."""
    number = real("factor", value)
    if not 1 <= number < math.inf:
        raise InvalidValue(
            f"`factor` must be finite and at least 1, got {shown(value)}.",
            "A scaling divides frequencies; 1 leaves them unchanged.",
        )
    return number


def positive_or_none(name: str, value: object) -> float | None:
    """Check a number above 0, or None."""
    return None if value is None else positive(name, value)


def not_negative_or_none(name: str, value: object) -> float | None:
    """Check a number of at least 0, or None."""
    return None if value is None else not_negative(name, value)


def length_of(length: int | None) -> int | None:
    """Check a number of tokens, or None."""
    return None if length is None else count("length", length)
