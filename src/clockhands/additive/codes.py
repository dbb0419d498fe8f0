"""What every additive code is: numbers for positions, added to the tokens once at the bottom."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from clockhands.arguments import shown
from clockhands.dtypes import before_rounding
from clockhands.errors import InvalidValue
from clockhands.ladders import Ladder
from clockhands.layouts import Layout, pair_channels, place
from clockhands.phases import fill, units
from clockhands.positions import Positions, positions_of

Order = Literal["sin-cos", "cos-sin"]


def order_of(name: object) -> Order:
    """The order of sine and cosine of this name.

    Raises:
        InvalidValue: There is none.
    """
    if name not in ("sin-cos", "cos-sin"):
        raise InvalidValue(
            f'`order` must be "sin-cos" or "cos-sin", got {shown(name)}.', "It says which of the two stands first."
        )
    return name  # type: ignore[return-value]


@dataclass(frozen=True)
class Clock:
    """A ladder and how its hands are written into channels.

    Attributes:
        ladder: The rates of the hands.
        layout: Which two channels belong to a hand.
        order: Whether sine or cosine stands first.
        width: Channels that are written, ``2 * pairs``, or one less where the last hand has no second.
    """

    ladder: Ladder
    layout: Layout
    order: Order
    width: int

    def write(self, out: np.ndarray, positions: Positions, threads: int | None) -> None:
        """Write the hands at these (flattened) positions into ``out`` [rows, width]."""

        def write(rows: slice, pairs: slice, block: np.ndarray) -> None:
            place(out[rows, : self.width], before_rounding(block, out.dtype), pairs, self.layout)

        fine = out.dtype == np.float64
        fill(write, self.ladder, positions, swapped=self.order == "sin-cos", fine=fine, threads=threads)

    def shift(self, distance: int | float) -> np.ndarray:
        """The rotation of all hands by ``distance`` tokens, float64 [2 pairs, 2 pairs]."""
        turn = units(self.ladder, positions_of([distance], "k"))[0]
        first, second = pair_channels(self.ladder.pairs, self.layout).T
        # (sin, cos) turns against (cos, sin).
        sine = turn.imag if self.order == "sin-cos" else -turn.imag
        matrix = np.zeros((2 * self.ladder.pairs,) * 2)
        matrix[first, first] = matrix[second, second] = turn.real
        matrix[first, second], matrix[second, first] = sine, -sine
        return matrix


class AdditiveCode(ABC):
    """Numbers for positions, added to the tokens.

    A code is a frozen, hashable value; learned numbers are passed beside it as ``values``.
    """

    width: int
    # Position of a sequence's first token, where nobody says otherwise.
    first: int = 0
    learned: ClassVar[bool] = False

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
            "Sinusoidal has both: each hand keeps its sine and its cosine.",
        )

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "its rows are not those of a clock"
