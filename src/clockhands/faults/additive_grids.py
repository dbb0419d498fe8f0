"""Additive suspects whose rows are the cells of a grid: in another order, from another end, or elsewhere."""

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.faults.adding import Hands
from clockhands.faults.additive_seen import Seen, wrapped
from clockhands.faults.fault import Suspect
from clockhands.grids import Grid


def other_cells(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """The cells stand otherwise."""
    if seen.grid is None:
        return
    hands = seen.adding(spec).hands
    if not seen.fine:
        yield from _other_order(seen, seen.grid)
        yield from _other_units(seen, seen.grid)
    elif hands is not None and len(hands.pairs):
        yield from _elsewhere(seen, seen.grid, hands)


def _other_order(seen: Seen, grid: Grid) -> Iterator[Suspect]:
    """The cells of a grid come in another order, or from the other end of an axis."""
    for order in itertools.permutations(range(grid.axes)):
        for turned in itertools.product((False, True), repeat=grid.axes):
            if order == grid.order and not any(turned):
                continue
            ends = [
                (start + (size - 1) * step, -step) if back else (start, step)
                for start, step, size, back in zip(grid.start, grid.step, grid.sizes, turned, strict=True)
            ]
            starts, steps = zip(*ends, strict=True)
            other = Grid(grid.sizes, start=starts, step=steps, order=order, prefix=grid.prefix)
            words = [f"axis {axis} from its end" for axis, back in enumerate(turned) if back]
            if order != grid.order:
                words.insert(0, f"axis {order[-1]} runs fastest")
            yield seen.suspect(
                "rows-in-another-order",
                {"used": " and ".join(words), "declared": f"axis {grid.order[-1]} runs fastest"},
                cells=np.asarray(other),
            )


def _other_units(seen: Seen, grid: Grid) -> Iterator[Suspect]:
    """Cells are counted where they should be measured; class tokens stand at the other end."""
    counted = Grid(grid.sizes, order=grid.order, prefix=grid.prefix)
    step = float(grid.step[0])
    if counted != grid and step:
        yield seen.suspect("positions-scaled", {"factor": 1 / step}, cells=np.asarray(counted))
    if grid.prefix:
        cells = np.asarray(grid)
        yield seen.suspect(
            "rows-in-another-order",
            {
                "used": f"the {grid.prefix} that stand nowhere come last",
                "declared": f"the {grid.prefix} that stand nowhere come first",
            },
            cells=np.concatenate([cells[grid.prefix :], cells[: grid.prefix]]),
        )


def _elsewhere(seen: Seen, grid: Grid, hands: Hands) -> Iterator[Suspect]:
    """Another start and step of each axis, as the phases of its pairs have them."""
    starts, steps = [], []
    for axis in range(grid.axes):
        found = _along(seen, grid, hands, axis)
        if found is None:
            return
        starts.append(found[0])
        steps.append(found[1])
    plain = [[Fraction(number).limit_denominator(512) for number in numbers] for numbers in (starts, steps)]
    for start, step in (plain, (starts, steps)):
        other = Grid(grid.sizes, start=tuple(start), step=tuple(step), order=grid.order, prefix=grid.prefix)
        near = np.allclose(np.asarray(other), np.asarray(grid), rtol=1e-4, atol=1e-6, equal_nan=True)
        if not near:
            yield seen.suspect(
                "cells-elsewhere", {"used": _said(other), "declared": _said(grid)}, cells=np.asarray(other)
            )


def _along(seen: Seen, grid: Grid, hands: Hands, axis: int) -> tuple[float, float] | None:
    """Where the first cell of an axis stands, and how far it is to the next."""
    numbers = np.asarray(Grid(grid.sizes, order=grid.order, prefix=grid.prefix)).reshape(len(grid), -1)[seen.positions]
    others = np.delete(numbers, axis, axis=1)
    rows = np.flatnonzero((others == 0).all(axis=1) & ~np.isnan(numbers[:, axis]))
    rows = rows[np.argsort(numbers[rows, axis])]
    cells = numbers[rows, axis]
    if len(rows) < 2 or cells[0] != 0 or cells[1] != 1:
        return None
    sine, cosine = hands.pairs.T
    own = hands.rates[axis if len(hands.rates) > 1 else 0, sine]
    units = (seen.rows[:, cosine] + 1j * seen.rows[:, sine])[rows][:, own > 0]
    rates = own[own > 0]
    sizes = np.abs(units)
    if not sizes.size or not np.isfinite(sizes).all() or np.ptp(sizes) > 0.01 * sizes.max():
        return None  # these are no pairs
    slow = np.argsort(rates)
    # From the slowest pair, which has turned least, to the fastest, which tells most; then on to the last cell.
    start = step = 0.0
    for pair in slow:
        start += wrapped(np.angle(units[0, pair]) - start * rates[pair]) / rates[pair]
        step += wrapped(np.angle(units[1, pair] * units[0, pair].conj()) - step * rates[pair]) / rates[pair]
    for cell, row in zip(cells[1:], units[1:], strict=True):
        fastest = rates[slow[-1]]
        angle = np.angle(row[slow[-1]] * units[0, slow[-1]].conj())
        step += wrapped(angle - step * cell * fastest) / (cell * fastest)
    return float(start), float(step)


def _said(grid: Grid) -> str:
    axes = [
        f"axis {axis} from {float(start):.6g} in steps of {float(step):.6g}"
        for axis, (start, step) in enumerate(zip(grid.start, grid.step, strict=True))
    ]
    return " and ".join(axes)
