"""Measures the angle between tokens and position rows, and whether a token can be identified from the sum."""

from dataclasses import dataclass

import numpy as np

_SEARCHED = 1000


@dataclass(frozen=True)
class TrainedCosines:
    """Cosines of every token with every row.

    Attributes:
        mean: Their mean.
        deviation: The root of their mean square; ``1 / sqrt(width)`` for random vectors.
        largest: The largest absolute value.
        centred: The root of the mean square once the mean token and the mean row are subtracted.
        found: Share of sums of a token and a row, drawn evenly, that are nearest to their own token.
    """

    mean: float
    deviation: float
    largest: float
    centred: float
    found: float


def token_cosines(tokens: np.ndarray, rows: np.ndarray) -> TrainedCosines:
    """Measure tokens [vocabulary, width] and rows [positions, width]."""
    cosines = _cosines(tokens, rows)
    centred = _cosines(tokens - tokens.mean(0), rows - rows.mean(0))
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(tokens), _SEARCHED)
    sums = tokens[chosen] + rows[rng.integers(0, len(rows), _SEARCHED)]
    nearest = ((tokens**2).sum(1) - 2 * sums @ tokens.T).argmin(1)
    return TrainedCosines(
        float(cosines.mean()),
        float(np.sqrt((cosines**2).mean())),
        float(np.abs(cosines).max()),
        float(np.sqrt((centred**2).mean())),
        float((nearest == chosen).mean()),
    )


def _cosines(tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
    one, other = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-30) for each in (tokens, rows))
    return one @ other.T
