"""Checks of single arguments, each with a message that names the argument and a hint.

They take the value apart from how it was spelled: NumPy scalars pass as the Python numbers they
hold, booleans and strings never pass as numbers.
"""

import math
from collections.abc import Iterable
from typing import Any

from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# Above this nothing that is counted (channels, rows, tokens) can be; it is also where positions end.
MOST = 2**63


def real(name: str, value: object) -> float:
    """``value`` as a float, if it is a real number; NaN and infinities pass."""
    if _is_boolean(value) or not hasattr(value, "__float__") or isinstance(value, str | bytes):
        raise InvalidType(f"`{name}` must be a number, got {shown(value)}.", f"Give `{name}` as an int or a float.")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(
            f"`{name}` must be a number that fits a float64, got {shown(value)}.",
            f"Give `{name}` as an int or a float.",
        ) from None


def positive(name: str, value: object) -> float:
    """``value`` as a float, if it is a finite number above 0."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise InvalidValue(
            f"`{name}` must be finite and positive, got {shown(value)}.", f"Give `{name}` as a number above 0."
        )
    return number


def not_negative(name: str, value: object) -> float:
    """``value`` as a float, if it is a finite number of at least 0."""
    number = real(name, value)
    if not 0 <= number < math.inf:
        raise InvalidValue(
            f"`{name}` must be finite and not negative, got {shown(value)}.",
            f"Give `{name}` as a number of at least 0.",
        )
    return number


def count(name: str, value: object, least: int = 1) -> int:
    """``value`` as an int, if it is a whole number from ``least`` to 2**63."""
    number = None
    if not _is_boolean(value) and hasattr(value, "__index__"):
        # Not `contextlib.suppress`, which PyTorch 2.5 cannot compile.
        try:  # noqa: SIM105
            number = value.__index__()  # type: ignore[attr-defined]
        except TypeError:  # arrays have the method, and few of them an answer
            pass
    if number is None:
        raise InvalidType(
            f"`{name}` must be a whole number, got {shown(value)}.", f"Give `{name}` as an int of at least {least}."
        )
    if not least <= number <= MOST:
        limit = f"at least {least}" if number < least else "at most 2**63"
        raise InvalidValue(
            f"`{name}` must be {limit}, got {shown(number)}.", f"Give `{name}` as an int of at least {least}."
        )
    return number


def one_of(name: str, value: object, allowed: Iterable[str], hint: str) -> Any:
    """``value``, if it is one of some words."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        mark = '"' * any("," in word for word in words)
        listed = ", ".join(f"{mark}{word}{mark}" for word in words)
        raise InvalidValue(f"`{name}` must be one of {listed}, got {shown(value)}.", hint)
    return value


def truth(name: str, value: object, hint: str) -> bool:
    """``value``, if it is True or False."""
    if not isinstance(value, bool):
        raise InvalidType(f"`{name}` must be True or False, got {shown(value)}.", hint)
    return value


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def set_fields(spec: object, **values: object) -> None:
    """Write checked values into the fields of a frozen dataclass, from its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)
