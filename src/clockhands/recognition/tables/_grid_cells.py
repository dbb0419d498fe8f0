"""The grid of the rows of a table.

In a table of grid cells, a channel of one axis does not depend on the other coordinates. So the size of the fastest
axis is the number of rows after which its channels repeat, while the other channels are constant within these rows.
The constant channels form a table of the remaining axes, with one row for each block.
"""

import math
from dataclasses import dataclass

import numpy as np

from clockhands.recognition._given import GivenTable

_LOADED = 1 << 23  # the most numbers that are used to find the grid
_MOST = 5  # the most axes that are split off, one after another
_MOVED = 0.05  # the largest difference of cells in a table that is near a code, relative to its largest numbers
_ALIKE = 0.9  # the least share of cells that must agree in such a table
_LOOSE = 1 << 20  # the largest such table, in numbers
UNKNOWN_AXIS = -1


@dataclass(frozen=True, eq=False)
class Cells:
    """The grid of the rows of a table.

    Attributes:
        sizes: Number of cells of each axis, the slowest axis first.
        owner: The axis of each channel as index into ``sizes``, [width]; `UNKNOWN_AXIS` for a constant channel.
        lines: For each axis the rows [cells, width] along it, with the other axes at one cell.
    """

    sizes: tuple[int, ...]
    owner: np.ndarray
    lines: list[np.ndarray]


def cells_of(given: GivenTable) -> Cells | None:
    """The grid of a table, or None if its channels cannot be divided into axes."""
    rows = given.rows
    if rows * given.width > _LOADED and rows > _LOADED // 8:
        return None
    step = max(1, -(-rows * given.width // _LOADED))
    some = given.at(slice(None)) if step == 1 else np.asarray(given.array[:, ::step]).astype(np.float64)
    within = 4 * given.rounding * float(np.abs(some).max(initial=0.0))
    sizes, owner = _split(some, within)
    if len(sizes) < 2:
        return None
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    lines = [given.at(stride * np.arange(size)) for stride, size in zip(strides, sizes, strict=True)]
    if step > 1:  # only some channels were used to find the grid; the axis of each channel needs few rows
        owner = np.full(given.width, UNKNOWN_AXIS)
        for axis, line in enumerate(lines):
            owner[np.abs(line - line[0]).max(axis=0) > within] = axis
    return Cells(sizes, owner, lines)


def loose_cells(given: GivenTable) -> Cells | None:
    """The grid of a table with some wrong rows, or with all rows moved a little; or None.

    A line along an axis is the median over the other axes, so that a few wrong rows do not change it.
    """
    if given.rows * given.width > _LOOSE:
        return None
    rows = given.at(slice(None))
    sizes, owner = _split(rows, _MOVED * float(np.quantile(np.abs(rows), 0.99)), loose=True)
    if len(sizes) < 2:
        return None
    cube = rows.reshape(*sizes, given.width)
    every = range(len(sizes))
    lines = [np.median(cube, axis=tuple(other for other in every if other != axis)) for axis in every]
    return Cells(sizes, owner, lines)


def _split(
    rows: np.ndarray, within: float, *, loose: bool = False, depth: int = 0
) -> tuple[tuple[int, ...], np.ndarray]:
    """Sizes (slowest axis first) and the axis of each channel of rows [rows, channels]; ``loose`` allows wrong rows."""
    number = len(rows)

    def middle(blocks: np.ndarray, axis: int) -> np.ndarray:
        return np.median(blocks, axis=axis, keepdims=True) if loose else blocks.take([0], axis)

    def alike(blocks: np.ndarray, axis: int) -> np.ndarray:
        apart = blocks - middle(blocks, axis)
        near = np.abs(apart, out=apart) <= within
        return np.asarray(near.mean(axis=(0, 1)) >= _ALIKE if loose else near.all(axis=(0, 1)))

    for fast in range(2, number // 2 + 1) if depth < _MOST else ():
        if number % fast:
            continue
        blocks = rows.reshape(-1, fast, rows.shape[1])
        # A few channels, or the first three blocks, are checked first, because they rule out most lengths.
        few = blocks[:, :, :: max(1, rows.shape[1] // 8)] if loose else blocks[:3]
        again = still = np.zeros(rows.shape[1], bool)
        for part in (few, blocks):
            again, still = alike(part, 0), alike(part, 1)
            if not (again | still).all():
                break
        else:
            if (again & ~still).any() and (still & ~again).any():
                rest = still & ~again
                sizes, inner = _split(middle(blocks, 1)[:, 0, rest], within, loose=loose, depth=depth + 1)
                owner = np.full(rows.shape[1], UNKNOWN_AXIS)
                owner[rest] = inner
                owner[again & ~still] = len(sizes)
                return (*sizes, fast), owner
    return (number,), np.zeros(rows.shape[1], int)
