"""What can be said of an additive failure that no suspect explains, by rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clockhands.additive import Learned
from clockhands.faults import ADDITIVE
from clockhands.testing.additive_experiments import EVERY
from clockhands.testing.colliding import collided
from clockhands.testing.explaining import Asked, failed_of, told_of
from clockhands.testing.reports import Explanation
from clockhands.testing.unexplained import few_numbers, of_any_code

# Rows of another table are not told from rows that were resized otherwise where more than this share of their spread
# is different.
_ALIKE = 0.5


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What the failures have in common."""
    if told := of_any_code(it, asked, ADDITIVE):
        return told
    every = failed_of(asked).get(EVERY.name)
    if every is None:
        return ()
    few = few_numbers(every.answers[0])
    if few:
        return (told_of(ADDITIVE["one-number-wrong"], {"which": few}),)
    if isinstance(it.spec, Learned):
        one = every.answers[0]
        return _resized(it.right.rows(np.arange(it.lowest, it.length))[0], (one.got - one.wanted)[0, 0])
    return collided(it, ADDITIVE) if it.spec.number_of_axes == 1 and it.right.grid is None else ()


def _resized(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    """A learned table that is like the right one [rows, width], but off: its rows moved, or mixed otherwise.

    Rows that stand at ``p + d(p)`` with a small ``d(p) = u + v p`` differ by ``d(p)`` times the slope of the rows, by
    which ``u`` and ``v`` are measured.
    """
    spread = float(((right - right.mean(axis=0)) ** 2).sum())
    if len(right) < 8 or not np.isfinite(off).all() or (off**2).sum() > _ALIKE * spread:
        return ()
    return _moved(right, off)


def _moved(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    at = np.arange(len(right), dtype=np.float64)
    slope = np.gradient(right, axis=0)
    parts = np.stack([slope.reshape(-1), (slope * at[:, None]).reshape(-1)], axis=1)
    (start, growth), *_ = np.linalg.lstsq(parts, off.reshape(-1), rcond=None)
    there = at + start + growth * at
    moved = np.stack([np.interp(there, at, column) for column in right.T], axis=-1)
    left = float(((right + off - moved) ** 2).sum() / (off**2).sum())
    if left < _ALIKE:
        used = (
            f"row p is that of position {1 + growth:.5g} p {start:+.3g}, by linear interpolation ({1 - left:.0%} of the"
        )
        used += " squared difference)"
        return (told_of(ADDITIVE["rows-moved"], {"used": used, "declared": "position p"}),)
    largest = float(np.abs(off).max())
    used = f"each row is a mixture of those near it, off by up to {largest:.3g}"
    return (told_of(ADDITIVE["rows-rescaled"], {"used": used, "declared": "the rows that were given"}),)
