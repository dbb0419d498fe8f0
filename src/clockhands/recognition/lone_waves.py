"""Tables whose columns are waves of one rate each, in no convention that is known: what can be said of them.

A wave of any phase keeps ``d_(r+1) + d_(r-1) = 2 cos(angle) d_r``, where ``d`` is how much it changes from row to row,
whatever was added to it. A column is a wave where that leaves less than a fiftieth of how ``d`` changes, over at least
half a turn.
"""

import math
from typing import Any

import numpy as np

from clockhands.recognition.given import Given

_ROWS, _CHANNELS = 1024, 512  # looked at, at most
_LEFT = 0.02
_SHARE = 0.1  # of the columns that must be waves, and 4, to speak of them


def lone_waves(given: Given) -> tuple[str, dict[str, Any]]:
    """A sentence about the columns that are waves, with what was seen of them; nothing where there are few."""
    rows = given.at(slice(0, min(_ROWS, given.rows)))[:, :: max(1, given.width // _CHANNELS)]
    if len(rows) < 16:
        return "", {}
    change = np.diff(rows, axis=0)
    middle, both = change[1:-1], change[2:] + change[:-2]
    power = np.maximum((middle**2).sum(axis=0), 1e-300)
    cosine = np.clip((middle * both).sum(axis=0) / (2 * power), -1, 1)
    left = np.sqrt(((both - 2 * cosine * middle) ** 2).sum(axis=0) / power)
    angle = np.arccos(cosine)
    moves = np.abs(change).max(axis=0) > 8 * given.rounding * np.abs(rows).max()
    waves = moves & (left <= _LEFT * 2 * (1 - cosine)) & (angle * len(rows) >= math.pi)
    number = int(waves.sum())
    if number < max(4, _SHARE * rows.shape[1]):
        return "", {}
    rates = angle[waves]
    words = (
        f"{number} of {rows.shape[1]} columns turn evenly, each at one rate of {rates.min():.3g} to {rates.max():.3g} "
        "rad per row, but not as pairs of any convention that is known."
    )
    return words, {"columns_that_turn": number, "rates_per_row": [float(f"{one:.6g}") for one in rates[:64]]}
