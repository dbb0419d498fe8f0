"""The learned numbers of somebody's own table: measured, and asked whether its rows are apart."""

from typing import Any

import numpy as np

from clockhands.biases import TableCode, row_numbers
from clockhands.faults.biasing import alone, table_of
from clockhands.testing.bias_bounds import near_edge
from clockhands.testing.bias_experiments import experiment, standing
from clockhands.testing.bounds import UNIT
from clockhands.testing.experiments import Answer


def measured(it: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Numbers of a function that show every row of its table: queries, keys and numbers [heads, queries, keys].

    Those at keys that nobody sees are left out (NaN).
    """
    spec = it.spec
    blocks = []
    if not it.takes_positions or not spec.ordered:
        number = min(it.length, max(64, int((2**18 / spec.heads) ** 0.5))) if spec.ordered else it.length
        blocks.append(standing(it, number, number))
        if spec.ordered and it.aligned == "end" and _rows_in(spec, number) < _rows_in(spec, it.length):
            blocks.append(standing(it, 1, it.length))
    else:
        at = np.arange(it.length)
        blocks += [(at[-1:], at), (at[:1], at)]
    found = []
    for queries, keys in blocks:
        unseen = it.causal & (queries[:, None] < keys[None, :])
        found.append((queries, keys, np.where(unseen, np.nan, it(queries, keys))))
    return found


def _rows_in(spec: TableCode, length: int) -> int:
    """How many rows the last query of so many keys takes."""
    return len(np.unique(row_numbers(spec, 1, length)))


def table_seen(spec: TableCode, blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """The table that gives these numbers, [rows, heads]; NaN where no number shows a row.

    Numbers at distances on an edge of two buckets are not looked at: they may be in either.
    """
    parts = []
    for queries, keys, numbers in blocks:
        apart = queries[:, None] - keys[None, :]
        edge = near_edge(spec, apart) if spec.reads == "distance" else np.zeros(apart.shape, bool)
        parts.append((row_numbers(spec, queries, keys), np.where(edge, np.nan, numbers)))
    return table_of(parts, spec.rows)


def rows_apart(it: Any) -> list[Answer]:
    """Distances of different buckets have different numbers, in one head at least."""
    table = table_seen(it.spec, measured(it))
    taken = np.flatnonzero(np.isfinite(table).all(axis=-1))
    found = alone(table[taken], 8 * max(UNIT[it.dtype], 2.0**-24)).astype(float)
    shape = (1, 1, len(taken))
    return [
        Answer("rows of the table", found.reshape(shape), np.ones(shape), np.full(shape, 0.5), taken.reshape(shape))
    ]


MEASURED = (experiment("buckets of their own", rows_apart),)
"""Asked where a function's own learned numbers are measured."""
