"""The interface of additive codes: numbers for each position, added once to the token embeddings."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from clockhands.encodings.clocks import Clock
from clockhands.encodings.constants import Source
from clockhands.encodings.positions import Positions
from clockhands.encodings.spec_fields import OneLine, refuse_unknown
from clockhands.encodings.traces import made_outside
from clockhands.errors import InvalidValue


class AdditiveCode(OneLine, Source, ABC):
    """Base class of additive codes: numbers for positions, added to the tokens.

    A code is a frozen, hashable value; learned numbers are passed separately as ``values``.
    """

    width: int
    # Position of a sequence's first token by default.
    first: int = 0

    def __new__(cls, *_given: Any, **named: Any) -> Self:
        """Make a new code outside of a graph that PyTorch compiles."""
        made_outside(cls.__name__)
        refuse_unknown(cls, named)
        return super().__new__(cls)

    @property
    def number_of_axes(self) -> int:
        """Number of coordinates of a position."""
        return 1

    @property
    def values_shape(self) -> tuple[int, ...] | None:
        """Shape of the trained numbers, which are passed as ``values``; None for codes without any."""
        return None

    @property
    def learned(self) -> bool:
        """Whether the code has trained numbers."""
        return self.values_shape is not None

    @property
    def limit(self) -> float | None:
        """An upper bound on the size of the numbers at every position; None where there is none, or it is not known."""
        return None

    @property
    def padding_position(self) -> int | None:
        """The position of padding tokens that are not counted; None where padding is counted like other tokens."""
        return None

    def check_values(self, shape: tuple[int, ...] | None) -> None:
        """Check the shape of the learned numbers; None means that none were given.

        Raises:
            InvalidValue: The code has no learned numbers, needs them, or needs another shape.
        """
        if shape is not None:
            raise InvalidValue(
                f"{type(self).__name__} is computed by a formula, so it takes no values.", "Leave `values` out."
            )

    def from_values(self, values: Any, positions: Positions, xp: Any, work: Any) -> Any:
        """The numbers computed from learned ones, [*positions, width] in dtype ``work`` and the values' library."""
        raise AssertionError("the code has no learned numbers")

    @abstractmethod
    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write the numbers at these (flattened) positions into ``out`` [rows, width]."""

    def clock(self) -> Clock:
        """The clock that defines the code, from which `shift` and `kernel` are computed.

        Raises:
            InvalidValue: The code has no clock; the message says why no matrix shifts it.
        """
        raise InvalidValue(
            f"{type(self).__name__} has no shift matrix and no kernel: {self.why_no_shift()}.",
            "Use Sinusoidal, which has both: each of its pairs is a sine and a cosine.",
        )

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "its rows are not sines and cosines"
