"""How well one matrix shifts the position part of hidden states by k tokens: the best one, and the encoding's own.

The position part is the mean over windows, centred. Means over two halves of the windows have the same position part
and independent contents, so products of one with the other hold no variance of contents.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.clocks import shift

SHIFTS = (1, 8)
"""Tokens."""

_TOKENS_PER_CHANNEL = 2
_LEAST = 1e-3
"""Share of the position part below which what a matrix leaves of it is not said."""


@dataclass(frozen=True)
class StateShifts:
    """The position part after one layer.

    Attributes:
        share: Its share in the variance of the hidden states.
        best: What the best matrix from token t to token t + k leaves of it on tokens that were left out, by k.
            None where too few tokens are left to fit it to.
        own: What the matrix of the encoding leaves, R_k of ``row(t + k) = R_k row(t)``; None without one.
    """

    share: float
    best: dict[int, float] | None
    own: dict[int, float] | None


def state_shifts(states: np.ndarray, spec: Any) -> StateShifts | None:
    """Measure the hidden states after a layer; None of one window, and where there is next to no position part.

    Args:
        states: [windows, length, width].
        spec: The encoding that was added before the first layer.
    """
    windows, length, width = states.shape
    if windows < 2:
        return None
    halves = [states[first::2].astype(np.float64).mean(0) for first in (0, 1)]
    one, two = (each - each.mean(0) for each in halves)
    share = float((one * two).sum(1).mean() / states.astype(np.float64).var((0, 1)).sum())
    if share < _LEAST:
        return None
    own = None
    if isinstance(spec, Sinusoidal) and spec.width == width and width % 2 == 0:
        own = {k: _left(one, two, k, shift(spec, k).T) for k in SHIFTS}
    known = {k: ~(_left_out(length)[:-k] | _left_out(length)[k:]) for k in SHIFTS}
    best = None
    if min(each.sum() for each in known.values()) >= _TOKENS_PER_CHANNEL * width:
        fitted = {k: np.linalg.lstsq(one[:-k][rows], one[k:][rows], rcond=1e-6)[0] for k, rows in known.items()}
        best = {k: _left(one, two, k, matrix) for k, matrix in fitted.items()}
    return StateShifts(share, best, own)


def _left_out(length: int) -> np.ndarray:
    """Every third run of eight tokens."""
    return np.arange(length) // 8 % 3 == 1


def _left(one: np.ndarray, two: np.ndarray, k: int, matrix: np.ndarray) -> float:
    """What a matrix leaves of tokens t + k that were left out, as a share of their variance."""
    judged = _left_out(len(one))[k:]
    apart = [_centred(each[k:][judged] - each[:-k][judged] @ matrix) for each in (one, two)]
    sizes = [_centred(each[k:][judged]) for each in (one, two)]
    return float((apart[0] * apart[1]).sum() / (sizes[0] * sizes[1]).sum())


def _centred(rows: np.ndarray) -> np.ndarray:
    return rows - rows.mean(0)
