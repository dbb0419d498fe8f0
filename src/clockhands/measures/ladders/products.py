"""Products of matrices that stay in the calling thread.

The sums of cosines of a ladder are products of a tall or wide matrix with one of a few hundred columns. OpenBLAS gives
such a product to all cores, though it takes less time than handing it out; where other processes run, its threads wait
for each other, up to a hundred times as long as the product takes. Up to a size it works in the calling thread, so a
product is cut into pieces of that size.
"""

from typing import Any

import numpy as np

# Multiplications up to which OpenBLAS uses one thread (SMP_THRESHOLD_MIN x GEMM_MULTITHREAD_THRESHOLD of its source).
_ONE_THREAD = 2**18


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left @ right``, in pieces of rows of ``left``; the same up to the order in which sums are rounded.

    Args:
        left: [*batch, rows, inner].
        right: [*batch, inner, columns].

    >>> product(np.arange(6.0).reshape(3, 2), np.eye(2)).tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    rows, inner = left.shape[-2:]
    columns = right.shape[-1]
    together = max(1, _ONE_THREAD // max(1, inner * columns))
    if rows <= together:
        return left @ right
    made: Any = np.empty((*left.shape[:-1], columns), np.result_type(left, right))
    for row in range(0, rows, together):
        np.matmul(left[..., row : row + together, :], right, out=made[..., row : row + together, :])
    return made
