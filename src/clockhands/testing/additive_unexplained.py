"""What can be said of an additive failure that no suspect explains, by rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clockhands.additive import Learned
from clockhands.faults.additive_rows import ADDITIVE
from clockhands.testing.additive_experiments import EVERY
from clockhands.testing.colliding import collided
from clockhands.testing.experiments import Answer
from clockhands.testing.explaining import Asked, failed_of, told_of
from clockhands.testing.reports import Explanation
from clockhands.testing.unexplained import AFTER_COARSER, not_finite

# Rows of another table are not told from rows that were resized otherwise where more than this share of their spread
# is different.
_ALIKE = 0.5


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """What the failures have in common."""
    failed = failed_of(asked)
    if told := not_finite(asked):
        return told
    if it.called.changed:
        return (told_of(ADDITIVE["changes-its-arguments"], {"names": " and ".join(sorted(it.called.changed))}),)
    if failed and set(failed) <= {"coarser tokens"}:
        return (told_of(ADDITIVE["coarse-path-differs"], {"dtype": it.coarse}),)
    after = AFTER_COARSER & set(failed)
    if after and set(failed) <= {*after, "coarser tokens"}:
        # Right before coarser tokens came, wrong after them.
        kept = told_of(ADDITIVE["cache-keeps-first-dtype"], {"dtype": it.coarse})
        return (
            (kept, told_of(ADDITIVE["coarse-path-differs"], {"dtype": it.coarse}))
            if "coarser tokens" in failed
            else (kept,)
        )
    every = failed.get(EVERY.name)
    if every is None:
        return ()
    which = _few_numbers(every.answers[0])
    if which:
        return (told_of(ADDITIVE["one-number-wrong"], {"which": which}),)
    if isinstance(it.spec, Learned):
        one = every.answers[0]
        return _resized(it.right.rows(np.arange(it.lowest, it.length))[0], (one.got - one.wanted)[0, 0])
    return collided(it, ADDITIVE) if it.spec.number_of_axes == 1 and it.right.grid is None else ()


def _few_numbers(answer: Answer) -> str:
    """The few positions at which a code is wrong that is right elsewhere, in words."""
    wrong = answer.shares[0, 0] > 1
    rows = np.flatnonzero(wrong.any(axis=-1))
    if not len(rows) or len(rows) > max(8, len(wrong) // 200):
        return ""
    places = rows if answer.positions is None else np.broadcast_to(answer.positions, (1, 1, len(wrong)))[0, 0, rows]
    where = f"position {places[0]:,}" if len(rows) == 1 else f"{len(rows)} positions (the first is {places[0]:,})"
    channels = np.flatnonzero(wrong.any(axis=0))
    return f"{where}, in channel{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels[:6]))}"


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
