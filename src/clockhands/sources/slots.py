"""The slots of a projection: rows of one head's width, each a head's query, key or value, and how they follow."""

from typing import Literal

Part = Literal["first", "last"]

# How the slots of a tensor follow one another: heads alone; one head's channels, shared by all; groups of query heads
# with their key and value; all queries, all keys, all values; four parts, in each queries, values, keys.
Arrangement = Literal["heads", "head", "groups", "stacked", "quarters"]


def slots_of(arrangement: Arrangement, slots: int, heads: int | None) -> list[bool] | None:
    """For each of the slots of a tensor whether it turns; None where so many heads cannot be arranged so.

    Args:
        arrangement: How the slots follow one another.
        slots: How many there are.
        heads: Query heads of the model; only fused tensors need them.

    >>> slots_of("groups", 8, heads=4)  # two groups of two queries, a key and a value
    [True, True, True, False, True, True, True, False]
    """
    if arrangement == "head":
        return [True] if slots == 1 else None
    if arrangement == "heads":
        return [True] * slots if slots else None
    if heads is None or slots <= heads or (slots - heads) % 2:
        return None
    keys = (slots - heads) // 2
    if heads % keys:
        return None
    if arrangement == "groups":
        return ([True] * (heads // keys + 1) + [False]) * keys
    if arrangement == "stacked":
        return [True] * (heads + keys) + [False] * keys
    quarter = heads // 4
    if keys != heads or heads % 4:
        return None
    return ([True] * quarter + [False] * quarter + [True] * quarter) * 4
