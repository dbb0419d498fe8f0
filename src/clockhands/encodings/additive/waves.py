"""Waves: which of sine and cosine is written into the two channels of a dimension pair.

Most codes write one sine and one cosine. Funnel's factorised tables write two sines or two cosines, and one table
negates the sine.
"""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clockhands.arguments import one_of
from clockhands.encodings.clocks import Order
from clockhands.errors import InvalidValue

Waves = Literal["sin-cos", "cos-sin", "sin-sin", "cos-cos", "-sin-cos", "cos--sin"]

# The order of the clock that a pair forms, if any: a minus reverses the direction of rotation.
_CLOCKS: dict[str, Order] = {
    "sin-cos": "sin-cos",
    "cos-sin": "cos-sin",
    "-sin-cos": "cos-sin",
    "cos--sin": "sin-cos",
}


def waves_of(name: object) -> Waves:
    """The waves with this name.

    Raises:
        InvalidValue: The name is unknown.
    """
    return one_of(
        "order", name, get_args(Waves), 'It selects which of sine and cosine comes first; "sin-cos" is the paper\'s.'
    )


def clock_order(waves: Waves) -> Order | None:
    """The order of the clock that rotates like these waves; None where no rotation shifts them."""
    return _CLOCKS.get(waves)


def sine_first(waves: Waves) -> bool:
    """Whether `clockhands.encodings.phases.fill` must be called with ``swapped`` (``sin + i cos``)."""
    return waves.startswith(("sin", "-sin"))


def into_waves(block: NDArray[np.complexfloating], waves: Waves) -> None:
    """Convert a block of `phases.fill` (``swapped`` as `sine_first` says) in place: first + i second."""
    if waves == "-sin-cos":
        np.negative(block.real, out=block.real)
    elif waves == "cos--sin":
        np.negative(block.imag, out=block.imag)
    elif waves in ("sin-sin", "cos-cos"):
        block.imag = block.real


def both_waves(cosine: Any, sine: Any, waves: Waves) -> tuple[Any, Any]:
    """The first and the second number of each pair, in any array library."""
    first = -sine if waves == "-sin-cos" else sine if sine_first(waves) else cosine
    second = -sine if waves == "cos--sin" else sine if waves.endswith("sin") else cosine
    return first, second


def check_fits(largest: float, dtype: np.dtype) -> None:
    """Refuse a scale that gives numbers beyond the range of the dtype."""
    with np.errstate(over="ignore"):
        if not np.isfinite(np.array(largest).astype(dtype).astype(np.float64)):
            raise InvalidValue(
                f"Numbers up to {largest:g} are too large for {dtype.name}.",
                "Use a dtype with a wider range, or a smaller `scale`.",
            )
