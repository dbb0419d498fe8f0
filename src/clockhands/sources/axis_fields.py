"""Which coordinate turns which pair, where tokens have several: declared sections (M-RoPE), and towers of images."""

from typing import Any

from clockhands.errors import ClockhandsError
from clockhands.ladders import Explicit, Geometric, Joined, geometric
from clockhands.rotary.axes import interleaved
from clockhands.sources.fields import Fields, Found
from clockhands.sources.model_types import Row

# Time, rows and columns; a list of more sections goes round them again.
COORDINATES = 3


def axes_of(block: Fields | None, row: Row, pairs: int, type_source: str) -> Found[tuple[int, ...]] | None:
    """The axis of each pair, or None for a type whose tokens have one position.

    The value is None where what is declared cannot be used, which is a fact.

    Args:
        block: The rotary block of the config.
        row: The code of the type: the order of its sections, and those that its class takes where none are declared.
        pairs: How many pairs turn.
        type_source: How what follows from the type is named as a source.
    """
    if row.sections is None:
        return None
    declared = None if block is None else block.items("sections")
    if declared is None or block is None:
        return Found(axes_in_order(row.section_sizes, row.sections, pairs), type_source)
    if declared.value is None:
        return Found(None, declared.source)
    axes = axes_in_order(declared.value, row.sections, pairs)
    if axes is None:
        if all(type(size) is int and size >= 0 for size in declared.value) and len(declared.value) >= COORDINATES:
            evidence = {declared.source: declared.value, "together": sum(declared.value), "pairs": pairs}
            block.note("mrope-sections", {**evidence, "order": row.sections})
        else:
            key = declared.source.rsplit(":", 1)[-1].removeprefix(block.path)
            order = "side by side" if row.sections == "chunked" else "taking turns"
            block.impossible(key, f"pairs of time, rows and columns, {order}, {pairs} together")
    return Found(axes, f"{declared.source}, {type_source}")


def in_grid(order: str, pairs: int, base: float) -> dict[str, Any]:
    """The fields of a rotary spec that turns half of its pairs by rows, half by columns, each by a ladder of its own.

    Args:
        order: ``together``, where all pairs share one layout, ``apart``, where each half is a layout of its own, or
            ``in turns``, where a pair of the rows and one of the columns follow each other.
        pairs: How many pairs turn, an even number.
        base: Base of both ladders.
    """
    half = pairs // 2
    if order == "in turns":
        each = Explicit(tuple(rate for rate in geometric(half, base).rates for _ in range(2)))
        return {"base": None, "spacing": each, "axes": (0, 1) * half}
    spacing = Joined(((half, Geometric(base)), (half, Geometric(base))))
    blocks = (half, half) if order == "apart" else ()
    return {"base": None, "spacing": spacing, "axes": (0,) * half + (1,) * half, "blocks": blocks}


def axes_in_order(sizes: object, order: str, pairs: int) -> tuple[int, ...] | None:
    """The axis of each pair for sections of these sizes, ``chunked`` or ``interleaved``; None if they do not fit."""
    if not isinstance(sizes, list | tuple) or not all(type(size) is int and 0 <= size <= pairs for size in sizes):
        return None
    if sum(sizes) != pairs or len(sizes) < COORDINATES or len(sizes) > pairs:
        return None
    if order == "chunked":
        axes = tuple(place % COORDINATES for place, size in enumerate(sizes) for _ in range(size))
    else:
        try:
            axes = interleaved(sizes[:COORDINATES]) if len(sizes) == COORDINATES else ()
        except ClockhandsError:
            return None
    return axes if set(axes) == set(range(COORDINATES)) else None
