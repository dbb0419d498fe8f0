"""Tokens at any positions for functions that count their rows themselves, or are given where the first one is."""

from collections.abc import Callable, Iterator

import numpy as np


def numbered(
    ask: Callable[..., np.ndarray], x: np.ndarray, positions: np.ndarray, most: int | None = None
) -> np.ndarray:
    """Call a function that counts its rows itself: each token is put in the row of its position, among zero rows.

    With `most`, the number of rows is a power of two of at least 64, but no more than `most`: libraries that compile do
    so for each number of rows. Returns the rows of the tokens, of x's shape.
    """
    out = np.empty(x.shape)
    for batch, at in _sequences(x, positions):
        number = int(at.max(initial=-1)) + 1
        if most is not None and number:
            number = max(number, min(max(64, 1 << (number - 1).bit_length()), most))
        left = np.arange(len(at))
        while True:  # a repeated position needs a second call
            places, first = np.unique(at[left], return_index=True)
            rows = left[first]
            whole = np.zeros((*x[batch].shape[:2], number, x.shape[-1]))
            whole[:, :, places] = x[batch][:, :, rows]
            out[batch][:, :, rows] = ask(whole, np.arange(number))[:, :, places]
            left = np.delete(left, first)
            if not left.size:
                break
    return out


def in_runs(ask: Callable[..., np.ndarray], x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Call a function that takes the position of its first row: once for each run of consecutive positions."""
    out = np.empty(x.shape)
    for batch, at in _sequences(x, positions):
        for run in runs(at):
            out[batch, :, run] = ask(x[batch, :, run], at[run])
    return out


def _sequences(x: np.ndarray, positions: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Slices of the batch and their positions [seq]; a single slice if all sequences have the same positions."""
    rows = np.broadcast_to(positions, (len(x), x.shape[-2]))
    if all(np.array_equal(row, rows[0]) for row in rows):
        yield slice(None), rows[0]
        return
    for place, at in enumerate(rows):
        yield slice(place, place + 1), at


def runs(positions: np.ndarray) -> Iterator[slice]:
    """The slices of consecutive positions."""
    start = 0
    for place in range(1, len(positions) + 1):
        if place == len(positions) or positions[place] != positions[place - 1] + 1:
            yield slice(start, place)
            start = place
