"""What a row depends on beside its own position: the other positions of its call, or how many rows that has.

A code of positions turns each row by its own position alone. What else a function looks at is found by calls of the
same rows in other company, and named, so that a dependence on the company is not taken for one on ``x``.
"""

import numpy as np

from clockhands.recognition.functions_calling import Caller, Refused
from clockhands.recognition.functions_equal import equal

LONGEST_CALL = 4_097
"""Rows of the longest call that is made."""

# One row is looked at while one other position moves. Each moves to where it keeps its part: the first stays neither
# smallest nor largest, the smallest stays the smallest.
_PLACES = np.array([10, 4, 7, 20, 6, 12])
_LOOKED_AT = 2
_MOVED = {"first": (0, 11), "smallest": (1, 3), "largest": (3, 24), "last": (5, 13), "others": (4, 8)}


def company(caller: Caller) -> tuple[str, ...]:
    """Which other positions of a call a row depends on: first, smallest, largest, last or others."""
    x = np.random.default_rng(8).integers(-96, 97, (len(_PLACES), caller.width)) / 64
    before = caller(x, _PLACES)[_LOOKED_AT]
    found = []
    for name, (row, position) in _MOVED.items():
        moved = _PLACES.copy()
        moved[row] = position
        if not equal(caller, before, caller(x, moved)[_LOOKED_AT]):
            found.append(name)
    return tuple(found)


def linear_in_company(caller: Caller) -> bool:
    """Whether a sum of rows comes out as the sum, with the same positions in the same order every time."""
    draw = np.random.default_rng(9)
    one, other = draw.integers(-96, 97, (2, len(_PLACES), caller.width)) / 64
    sums = caller(one, _PLACES) + caller(other, _PLACES)
    scale = max(1.0, float(np.abs(sums).max()))
    return bool(np.abs(caller(one + other, _PLACES) - sums).max() <= 4 * scale * _unit(caller))


def _unit(caller: Caller) -> float:
    return {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(caller.output, 2.0**-22)


def company_in_words(names: tuple[str, ...], caller: Caller) -> str:
    """Why a function whose rows depend on these other positions is no code."""
    which = "the others" if "others" in names else " and ".join(f"the {name}" for name in names)
    return (
        f"A row depends on the other positions of its call ({which}), and a code of positions turns each row by its "
        f"own position.{_linear(caller)}"
    )


def _linear(caller: Caller) -> str:
    return " With the same positions in a call it is linear in x." if linear_in_company(caller) else ""


def not_linear(caller: Caller, position: int, rows: int) -> str:
    """Why rows of one call are not the sums of rows of another, longer one at other positions.

    Args:
        caller: The function.
        position: Where the rows of the short call stood; it had two.
        rows: How many the longer one had.
    """
    if not linear_in_company(caller):
        return "It is not a rotation: it is not linear in x (a sum of rows is not turned as the rows are)."
    x = np.random.default_rng(2).integers(-96, 97, (2, caller.width)) / 64
    alone = caller(x, np.full(2, position))
    beside = caller(np.concatenate([x, np.zeros((rows - 2, caller.width))]), np.full(rows, position))[:2]
    what = "the other positions of its call" if equal(caller, alone, beside) else "how many rows its call has"
    return (
        f"It is linear in x where the other rows stay where they are, but a row depends on {what}, and a code of "
        "positions turns each row by its own position."
    )


def last_length_alike(caller: Caller, counts: bool) -> int | None:
    """The most rows that a call may have before that changes what its rows become; None if it changes nothing.

    Looked at in one call of the most rows; where that differs, the length is found by halving, which takes twelve more.

    Args:
        caller: The function.
        counts: Whether it counts its rows instead of looking at positions.
    """
    x, at = np.random.default_rng(8).integers(-96, 97, (4, caller.width)) / 64, np.array([5, 3, 13, 8])

    def seen(rows: int) -> np.ndarray:
        places = np.arange(rows) if counts else np.concatenate([at, np.full(rows - 4, at[0])])
        return caller(np.concatenate([x, np.zeros((rows - 4, caller.width))]), places)[:4]

    first = seen(16)
    try:
        if equal(caller, first, seen(LONGEST_CALL)):
            return None
        low, high = 16, LONGEST_CALL  # alike, not alike
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if equal(caller, first, seen(middle)) else (low, middle)
    except Refused:  # it takes fewer rows
        return None
    return low


def length_in_words(last: int) -> str:
    """What to say of a function whose rows are others in calls of more than so many rows."""
    return (
        f"A row depends on how many rows its call has: up to {last:,} it is one code, beyond it another for the whole "
        f"call, and here are the numbers of calls of at most {last:,} rows."
    )
