"""When two answers of a function are the same."""

import numpy as np

from clockhands.recognition.functions_arithmetic import SPACING
from clockhands.recognition.functions_calling import Caller


def equal(caller: Caller, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two answers differ by no more than the order of additions can make."""
    scale = max(float(np.abs(one).max(initial=0)), 1e-30)
    return bool(np.abs(one - other).max(initial=0) <= 4 * SPACING.get(caller.output, 2.0**-23) * scale)
