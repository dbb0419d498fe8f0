"""Rotations that are fitted to queries or keys at several positions: cosines and sines of pairs, and sizes."""

import numpy as np


def growth(rows: np.ndarray, allowed: float) -> np.ndarray:
    """What rows [positions, rows, channels] are multiplied by as a whole at each position, beside the first one.

    All ones where no single number of each position does that, or none shows.
    """
    sizes = np.linalg.norm(rows, axis=-1)
    sizes = sizes[:, sizes.any(axis=0)]  # rows of zeros are multiplied by any number
    if not sizes.size:
        return np.ones(len(rows))
    ratio = sizes / np.maximum(sizes[:1], 1e-30)
    mean = ratio.mean(axis=1)
    one = np.abs(ratio - mean[:, None]).max() <= allowed * mean.max() and np.abs(mean - 1).max() > allowed
    return mean if one else np.ones(len(rows))


def fitted(rows: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Cosines and sines [positions, pairs] of channels [pairs, 2], and the residual as a share of their size.

    A norm after the rotation with a weight for each channel turns a rotation ``R`` into ``D R D^-1``: the trace is
    still twice the cosine, and the other two elements have the product minus the squared sine.
    """
    both = rows[..., pairs].transpose(2, 0, 1, 3)  # pair, position, row, 2
    first = both[:, :1]
    gram = np.einsum("pxri,pxrj->pxij", first, first)
    cross = np.einsum("pxri,ptrj->ptij", first, both)
    matrix = np.einsum("pxij,ptjk->ptik", np.linalg.pinv(gram, hermitian=True), cross)  # rows times this
    left = both - np.einsum("pxri,ptij->ptrj", first, matrix)
    size = np.sqrt((both**2).mean(axis=(2, 3)))
    worst = float((np.sqrt((left**2).mean(axis=(2, 3))) / np.maximum(size, size.max() * 1e-3)).max())
    cosine = (matrix[..., 0, 0] + matrix[..., 1, 1]) / 2
    upper, lower = matrix[..., 0, 1], matrix[..., 1, 0]
    sine = np.sign(upper - lower) * np.sqrt(np.maximum(-upper * lower, 0))
    return cosine.T, sine.T, worst
