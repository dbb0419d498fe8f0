"""What the output rows of a function depend on, and up to which position it can be called.

Each check is one or two calls with a few rows, compared with earlier outputs for the same rows. A position encoding
changes each row by the position of this row alone. Other dependencies are found by changing one other position at a
time, and are named, so that a dependence on other rows is not mistaken for one on ``x``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from clockhands.recognition._functions_calling import Caller, Refused, RowCaller
from clockhands.recognition.functions._phases import SPACING

LONGEST_CALL = 4_097
"""Number of rows of the longest call."""
# One output row is compared while one other position is changed. Each change keeps the order: the first position stays
# neither the smallest nor the largest, the smallest stays the smallest.
_PLACES = np.array([10, 4, 7, 20, 6, 12])
_LOOKED_AT = 2
_MOVED = {"first": (0, 11), "smallest": (1, 3), "largest": (3, 24), "last": (5, 13), "others": (4, 8)}
# The most positions of a function that counts its rows; reading position p needs a call of p + 1 rows.
_COUNTED = 4096
# If the length of a row changes with the position (xPos), positions are used up to a change by this factor.
_GROWTH = 64.0
_PAD = 64
ALWAYS_ANOTHER = "A repeated call returns a different result"


def equal(caller: Caller, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two outputs differ by at most 4 spacings of the dtype, as another order of additions can cause."""
    scale = max(float(np.abs(one).max(initial=0)), 1e-30)
    return bool(np.abs(one - other).max(initial=0) <= 4 * SPACING.get(caller.output, 2.0**-23) * scale)


def halved(fine: Callable[[int], bool], low: int, high: int) -> int:
    """The last integer for which ``fine`` is true, by bisection between ``low`` (true) and ``high`` (false)."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fine(middle) else (low, middle)
    return low


def company(caller: Caller) -> tuple[str, ...]:
    """The other positions of a call that a row depends on: of first, smallest, largest, last and others."""
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
    """Whether the output is linear in ``x`` if all calls have the same positions in the same order."""
    draw = np.random.default_rng(9)
    one, other = draw.integers(-96, 97, (2, len(_PLACES), caller.width)) / 64
    sums = caller(one, _PLACES) + caller(other, _PLACES)
    scale = max(1.0, float(np.abs(sums).max()))
    unit = max(unit_of(caller.output), 2.0**-22)
    return bool(np.abs(caller(one + other, _PLACES) - sums).max() <= 4 * scale * unit)


def company_in_words(names: tuple[str, ...], caller: Caller) -> str:
    """The reason why a function with rows that depend on these other positions is not identified."""
    which = "the others" if "others" in names else " and ".join(f"the {name}" for name in names)
    linear = " With the same positions in a call it is linear in x." if linear_in_company(caller) else ""
    return (
        f"A row depends on the other positions of its call ({which}), but RoPE rotates each row by its own "
        f"position.{linear}"
    )


def not_linear(caller: Caller, position: int, rows: int) -> str:
    """The reason why outputs at this position differ from the matrix measured in longer calls of ``rows`` rows."""
    if not linear_in_company(caller):
        return "It is not a rotation: it is not linear in x (a sum of rows is not rotated like the rows)."
    x = np.random.default_rng(2).integers(-96, 97, (2, caller.width)) / 64
    alone = caller(x, np.full(2, position))
    beside = caller(np.concatenate([x, np.zeros((rows - 2, caller.width))]), np.full(rows, position))[:2]
    what = "the other positions of its call" if equal(caller, alone, beside) else "how many rows its call has"
    return (
        f"It is linear in x if the other rows keep their positions, but a row depends on {what}, but RoPE rotates "
        "each row by its own position."
    )


def last_length_alike(caller: Caller, counts: bool) -> int | None:
    """The most rows of a call before their number changes the outputs; None if it never does.

    One call with 4,097 rows shows whether there is a change; bisection then finds the number with 12 more calls.
    """
    x, at = np.random.default_rng(8).integers(-96, 97, (4, caller.width)) / 64, np.array([5, 3, 13, 8])

    def seen(rows: int) -> np.ndarray:
        places = np.arange(rows) if counts else np.concatenate([at, np.full(rows - 4, at[0])])
        return caller(np.concatenate([x, np.zeros((rows - 4, caller.width))]), places)[:4]

    first = seen(16)
    try:
        if equal(caller, first, seen(LONGEST_CALL)):
            return None
        return halved(lambda rows: equal(caller, first, seen(rows)), 16, LONGEST_CALL)
    except Refused:  # the function accepts fewer rows only
        return None


def length_in_words(last: int) -> str:
    """A sentence about a function whose outputs change in calls of more than ``last`` rows."""
    return (
        f"A row depends on how many rows its call has: up to {last:,} it is one code, beyond it another for the whole "
        f"call, and here are the numbers of calls of at most {last:,} rows."
    )


class Unfit(Exception):
    """A function cannot be identified; the message is the reason."""


@dataclass(eq=False)
class Behaviour:
    """The dependencies and limits of a function.

    Attributes:
        reader: Reads its output rows independently of each other.
        longest: The largest position that is used, a power of two.
        last: The last position that the function accepts, if it is below the requested one; else None.
        by_largest: Whether a row depends on the largest position of its call.
        last_length_alike: The most rows of a call with this code, if calls with more rows have another; else None.
        notes: Sentences for the user.
    """

    reader: RowCaller
    longest: int
    last: int | None = None
    by_largest: bool = False
    last_length_alike: int | None = None
    notes: list[str] = field(default_factory=list)


def look(caller: Caller, longest: int) -> Behaviour:
    """Find what the output rows depend on.

    Raises:
        Unfit: They depend on something that no position encoding depends on; the message says what.
        Refused: The function raised an error in an ordinary call.
    """
    x, at = _rows(caller.width), np.array([5, 3, 13, 8])
    first = caller(x, at)
    if not np.isfinite(first).all():
        raise Unfit("It returns values that are not finite, already for positions below 14.")
    if not equal(caller, first, caller(x, at)):
        raise Unfit(f"{ALWAYS_ANOTHER}: randomness, or state that every call changes.")
    notes = []
    if caller.changed:
        notes.append(f"It changes its own arguments: {' and '.join(sorted(caller.changed))}.")
    reader = RowCaller(caller, _most(caller))
    if equal(caller, first, caller(x, np.array([9, 4, 2, 30]))):
        alike = caller(np.repeat(x[:1], 4, axis=0), at)
        if equal(caller, alike, np.repeat(alike[:1], 4, axis=0)):
            raise Unfit("It ignores positions: the output for x is the same at every position.")
        reader.counts = True
        notes.append("It ignores the positions that it is given and counts its rows from 0.")
        if not equal(caller, first, caller(np.concatenate([x, np.zeros((9, caller.width))]), np.zeros(13, int))[:4]):
            reader.pad = _COUNTED // 8
            notes.append(_by_number(reader.pad))
    else:
        notes += _look_at_rows(reader, x, at, first)
    alike = None if reader.pad else last_length_alike(caller, reader.counts)
    if alike is not None:
        notes.append(length_in_words(alike))
        reader.most = min(reader.most, alike)
    if reader.counts:
        longest = min(longest, (reader.pad or alike or _COUNTED + 1) - 1)
    reach, last = _reach(reader, x, longest)
    found = Behaviour(reader, reach, last, last_length_alike=alike, notes=notes)
    if last is not None and not reader.counts:
        notes.append(f"It takes positions up to {last:,} only.")
    if not reader.counts and not reader.pad:
        found.by_largest = not equal(caller, reader(x, at), replace(reader, anchor=reach)(x, at))
    return found


def _look_at_rows(reader: RowCaller, x: np.ndarray, at: np.ndarray, first: np.ndarray) -> list[str]:
    """Check what a row depends on besides itself and its position: configures the reader and returns notes."""
    caller = reader.caller
    for kept in (0, -1):
        others = -2 * x[::-1].copy()
        others[kept] = x[kept]
        if not equal(caller, first[[kept]], caller(others, at)[[kept]]):
            raise Unfit("A row depends on the values of other rows: RoPE rotates each row separately.")
    if equal(caller, first, caller(x, at + 7)):
        beside = company(caller)
        if beside not in (("first",), ("smallest",)):
            raise Unfit(company_in_words(beside, caller))
        reader.lead = True
        return [f"It counts positions from the {beside[0]} of each call: [7, 8] is rotated as [0, 1]."]
    if not equal(caller, np.roll(first, 1, axis=0), caller(np.roll(x, 1, axis=0), np.roll(at, 1))):
        raise Unfit("A row depends on the order of the rows: the same rows in another order have other answers.")
    if beside := company(caller):
        raise Unfit(company_in_words(beside, caller))
    more = np.concatenate([x, np.zeros((9, caller.width))])
    if not equal(caller, first, caller(more, np.concatenate([at, np.full(9, at[0])]))[:4]):
        reader.pad = _PAD
        return [_by_number(_PAD)]
    return []


def _most(caller: Caller) -> int:
    """The most rows of a call that the function accepts, of 1024, 128, 32 and 4."""
    for rows in (1024, 128, 32):
        try:
            caller(np.zeros((rows, caller.width)), np.arange(rows) % 4)
        except Refused:
            continue
        return rows
    return 4


def _by_number(rows: int) -> str:
    return (
        f"A row depends on how many rows its call has; here are the numbers of calls of {rows:,} rows. Keys that were "
        "cached in a call of another length do not fit."
    )


def _reach(reader: RowCaller, x: np.ndarray, longest: int) -> tuple[int, int | None]:
    """The largest power of two that is used as position, and the last accepted position if it is below ``longest``."""

    def lengths(position: int) -> float | None:
        try:
            y = reader(x[:1], np.array([position]))
        except Refused:
            return None
        return float(np.linalg.norm(y)) if np.isfinite(y).all() else None

    def last(fine: Callable[[int], bool]) -> int:
        """The last position for which ``fine`` is true, by powers of two and then by bisection."""
        low = 1 << (longest.bit_length() - 1)
        while low > 4 and not fine(low):
            low //= 2
        return halved(fine, low, min(2 * low, longest + 1)) if low > 4 else low

    start = lengths(0) or 1.0
    taken = last(lambda position: lengths(position) is not None)
    small = last(lambda position: start / _GROWTH < (lengths(position) or 0.0) < start * _GROWTH)
    return 1 << (small.bit_length() - 1), taken if taken < longest else None


def _rows(width: int) -> np.ndarray:
    """Four random rows [4, width] that every float dtype holds exactly; the channels are different."""
    return np.random.default_rng(0).integers(-96, 97, (4, width)) / 64 + 1 / 128


def unit_of(output: str) -> float:
    """Spacing of numbers just below 1 in this dtype; more in float32 and float64, for the error of sine and cosine."""
    return {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float64": 2.0**-50}.get(output, 2.0**-23)
