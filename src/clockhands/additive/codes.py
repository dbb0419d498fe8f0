"""What every additive code is: numbers for positions, added to the tokens once at the bottom."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from clockhands.clocks import Clock
from clockhands.errors import InvalidValue
from clockhands.positions import Positions
from clockhands.traces import made_outside


class AdditiveCode(ABC):
    """Numbers for positions, added to the tokens.

    A code is a frozen, hashable value; learned numbers are passed beside it as ``values``.
    """

    width: int
    # Position of a sequence's first token, where nobody says otherwise.
    first: int = 0

    def __new__(cls, *_given: Any, **_named: Any) -> Self:
        """A new code, outside of what PyTorch compiles."""
        made_outside(cls.__name__)
        return super().__new__(cls)

    @property
    def number_of_axes(self) -> int:
        """Coordinates of a position."""
        return 1

    @property
    def values_shape(self) -> tuple[int, ...] | None:
        """Shape of the trained numbers, which are passed as ``values``; None where there are none."""
        return None

    @property
    def learned(self) -> bool:
        """Whether the code has trained numbers."""
        return self.values_shape is not None

    @property
    def limit(self) -> float | None:
        """No number is larger than this in size, at any position; None where that is not so, or not known."""
        return None

    @property
    def padding_position(self) -> int | None:
        """Where padding stands that is not counted; None where it is counted like any other token."""
        return None

    def check_values(self, shape: tuple[int, ...] | None) -> None:
        """Refuse learned numbers of this shape, or their absence, None.

        Raises:
            InvalidValue: The code has none, needs them, or has others.
        """
        if shape is not None:
            raise InvalidValue(
                f"{type(self).__name__} is computed by a formula, so it takes no values.", "Leave `values` out."
            )

    def from_values(self, values: Any, positions: Positions, xp: Any, work: Any) -> Any:
        """The numbers made from learned ones, [*positions, width] of the dtype ``work``, in the values' own library."""
        raise AssertionError("the code has no learned numbers")

    @abstractmethod
    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the numbers at these (flattened) positions into ``out`` [rows, width]."""

    def clock(self) -> Clock:
        """The clock behind the code: what `shift` and `kernel` are made from.

        Raises:
            InvalidValue: The code is no clock; the message says why no matrix shifts it.
        """
        raise InvalidValue(
            f"{type(self).__name__} has no shift matrix and no kernel: {self.why_no_shift()}.",
            "Use Sinusoidal, which has both: each of its pairs is a sine and a cosine.",
        )

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "its rows are not sines and cosines"
