"""Paired differences of losses with intervals, and the threshold above which a difference counts."""

from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK = 64
"""Tokens that are resampled together: losses of neighbouring tokens depend on each other."""

RESAMPLES, LEVEL = 10_000, 0.95
LEAST, ERRORS = 0.01, 3.0
"""A difference is visible over this many nats and this many standard errors."""

FEWEST = 12
"""Blocks below which nothing is said: the standard error and the interval of fewer blocks are mostly too small."""


@dataclass(frozen=True)
class PairedDifference:
    """A mean paired difference.

    Attributes:
        mean: Nats per token.
        low: Lower end of the 95 % percentile bootstrap interval over blocks of tokens.
        high: Upper end.
        error: Standard error of the mean over blocks.
        blocks: How many blocks there are.
    """

    mean: float
    low: float
    high: float
    error: float
    blocks: int

    @property
    def interval(self) -> list[float] | None:
        """Low and high; None where there are fewer than `FEWEST` blocks."""
        return [self.low, self.high] if self.blocks >= FEWEST else None

    @property
    def estimate(self) -> tuple[float, float | None, float | None]:
        """Mean, low and high; the ends are None where there is no interval."""
        low, high = self.interval or (None, None)
        return self.mean, low, high

    def to_dict(self) -> dict[str, Any]:
        """The difference in JSON."""
        return {"nats": self.mean, "interval": self.interval, "visible": self.visible, "blocks": self.blocks}

    @property
    def visible(self) -> bool | None:
        """Whether it is over 0.01 nats and over 3 standard errors; None where there are fewer than `FEWEST` blocks."""
        if self.blocks < FEWEST:
            return None
        return abs(self.mean) > LEAST and abs(self.mean) > ERRORS * self.error


def difference(changed: np.ndarray, sound: np.ndarray) -> PairedDifference:
    """The mean difference of two losses of the same tokens.

    Args:
        changed: Nats of each token, [windows, tokens].
        sound: The same without the change.

    >>> found = difference(np.full((6, 128), 2.5), np.full((6, 128), 2.0))
    >>> found.mean, found.low, found.high, found.visible
    (0.5, 0.5, 0.5, True)
    >>> difference(np.full((4, 128), 2.5), np.full((4, 128), 2.0)).visible is None  # 8 blocks of 64 tokens
    True
    """
    apart = changed - sound
    # Blocks of nearly equal size cover every token, so that the interval belongs to the reported mean.
    pieces = np.array_split(apart, max(1, round(apart.shape[1] / BLOCK)), axis=1)
    blocks = np.stack([piece.mean(axis=1) for piece in pieces]).ravel()
    sizes = np.repeat([piece.shape[1] for piece in pieces], len(apart))
    error = float(blocks.std(ddof=1) / np.sqrt(len(blocks))) if len(blocks) > 1 else float("inf")
    drawn = np.random.default_rng(0).integers(0, len(blocks), (RESAMPLES, len(blocks)))
    means = (blocks * sizes)[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.percentile(means, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return PairedDifference(float(apart.mean()), float(low), float(high), error, len(blocks))
