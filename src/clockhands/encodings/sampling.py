"""Positions drawn at random for training, so that a model sees positions beyond its training length.

A model generalises poorly to positions that it never saw in training, even if its encoding is defined there. Both
functions place short training sequences at large positions. They return positions for any encoding; all randomness
comes from the generator or seed that is passed in.
"""

from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.memory import refuse_larger
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown


def randomised(seq: int, length: int, rng: Any, batch: int | None = None) -> np.ndarray:
    """``seq`` distinct positions drawn from 0 to ``length - 1``, in ascending order; int64 [seq] or [batch, seq].

    Every set of positions is equally likely, and each sequence of a batch is drawn separately. A model learns the order
    of tokens instead of fixed distances, and sees every position below ``length``. The paper counts from 1.

    Args:
        seq: Tokens of a sequence.
        length: Number of positions to draw from: at least the longest sequence at inference.
        rng: A ``numpy.random.Generator``, whose state advances, or a seed.
        batch: Number of sequences; None is one, without the axis.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used, or there are fewer positions than tokens.
        TooLarge: The positions would not fit in memory.

    Source: Ruoss et al. 2023, arXiv:2305.16843, section 3.

    >>> randomised(4, 100, rng=0, batch=2).tolist()
    [[26, 50, 62, 82], [1, 4, 7, 29]]
    """
    seq, length, generator = count("seq", seq, least=0), count("length", length), _generator(rng)
    if length == 2**63:
        raise InvalidValue(
            f"`length` must be below 2**63, got {length}.", "This is the limit of NumPy's random generator."
        )
    if seq > length:
        raise InvalidValue(
            f"`length` must be at least the number of tokens, {seq}, got {length}.",
            "No two tokens can have the same position.",
        )
    rows = 1 if batch is None else count("batch", batch, least=0)
    refuse_larger((rows, seq), 8, "Positions")
    out = np.empty((rows, seq), np.int64)
    for row in out:
        row[...] = np.sort(generator.choice(length, seq, replace=False, shuffle=False))
    return out[0] if batch is None else out


def shifted(seq: int, largest: int, rng: Any, batch: int | None = None) -> np.ndarray:
    """Consecutive positions from a random start between 0 and ``largest``, inclusive; int64 [seq] or [batch, seq].

    Each sequence of a batch has a separate start. A model learns not to depend on absolute positions, while distances
    are kept; the scores of a rotary code do not change.

    Args:
        seq: Tokens of a sequence.
        largest: The largest start (the paper's K).
        rng: A ``numpy.random.Generator``, whose state advances, or a seed.
        batch: Number of sequences; None is one, without the axis.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used.
        TooLarge: The positions would not fit in memory.

    Source: Kiyono et al. 2021, SHAPE, arXiv:2109.05644, section 3.

    >>> shifted(3, 500, rng=0, batch=2).tolist()
    [[426, 427, 428], [319, 320, 321]]
    """
    seq, largest, generator = count("seq", seq, least=0), count("largest", largest, least=0), _generator(rng)
    if largest > 2**63 - 1 - seq:
        raise InvalidValue(
            f"`largest` plus the number of tokens, {seq}, must be below 2**63, got {largest}.",
            "Use a smaller `largest`.",
        )
    rows = 1 if batch is None else count("batch", batch, least=0)
    refuse_larger((rows, seq), 8, "Positions")
    out = generator.integers(0, largest, (rows, 1), np.int64, endpoint=True) + np.arange(seq)
    return out[0] if batch is None else out


def _generator(rng: Any) -> np.random.Generator:
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None or isinstance(rng, bool) or not hasattr(rng, "__index__"):
        raise InvalidType(
            f"`rng` must be a numpy.random.Generator or a seed, got {shown(rng)}.",
            "Write rng=numpy.random.default_rng(seed) once, and pass it on.",
        )
    return np.random.default_rng(count("rng", rng, least=0))
