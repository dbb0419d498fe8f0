"""Codes whose numbers are trained, or not there at all."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clockhands.additive.codes import AdditiveCode
from clockhands.arguments import count, settle
from clockhands.errors import InvalidValue
from clockhands.positions import Positions


@dataclass(frozen=True)
class Learned(AdditiveCode):
    """A trained table: the token at position ``p`` gets row ``p + offset``.

    How it fails: past its last row there is nothing, and nothing ties one row to the next. The rows are
    passed as ``values`` [rows, width].

    Attributes:
        width: Channels of a token.
        rows: Rows of the table.
        offset: Row of position 0 (OPT and BART: 2, beside ``rows = positions + 2``).

    Raises:
        InvalidValue: A number is not allowed, or no row is left.

    Source: Gehring et al. 2017, arXiv:1705.03122, section 3.1; Devlin et al. 2018, arXiv:1810.04805.
    """

    width: int
    rows: int
    offset: int = 0
    learned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the values."""
        settle(
            self,
            width=count("width", self.width),
            rows=count("rows", self.rows),
            offset=count("offset", self.offset, least=0),
        )
        if self.offset >= self.rows:
            raise InvalidValue(
                f"`offset` must be below the {self.rows} rows, got {self.offset}.", "It is the row of position 0."
            )

    @property
    def usable(self) -> int:
        """Number of positions that have a row."""
        return self.rows - self.offset

    def row_numbers(self, positions: Positions) -> np.ndarray:
        """The row of each position, int64 in the positions' shape.

        Raises:
            InvalidValue: A position is not whole or has no row.
        """
        sizes = positions.sizes(0, positions.size)
        if sizes.part is not None:
            fraction = positions.element(int(np.flatnonzero(sizes.part)[0]))
            raise InvalidValue(
                f"A learned table has rows for whole positions only, got {fraction}.", "Round the positions first."
            )
        beyond = sizes.whole >= np.uint64(self.usable)
        if sizes.negative is not None:
            beyond |= sizes.negative
        if beyond.any():
            raise InvalidValue(
                f"The table has rows for positions 0 to {self.usable - 1}, "
                f"got {positions.element(int(np.flatnonzero(beyond)[0]))}.",
                f"It has {self.rows} rows, of which the first {self.offset} come before position 0.",
            )
        return (sizes.whole.astype(np.int64) + self.offset).reshape(positions.shape)

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Nothing to write: the rows are the caller's values."""
        raise AssertionError("a learned code is written from its values")

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "its rows are trained one by one, and nothing ties them together"


@dataclass(frozen=True)
class NoPosition(AdditiveCode):
    """No position at all: zeros.

    How it fails: attention without a mask then cannot tell any order from any other; a causal mask gives some of
    it back, since it lets a token count those before it.

    Attributes:
        width: Channels of a token.

    Raises:
        InvalidValue: The width is not positive.

    Source: Haviv et al. 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466.
    """

    width: int

    def __post_init__(self) -> None:
        """Check the value."""
        settle(self, width=count("width", self.width))

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write zeros."""
        out[...] = 0

    def why_no_shift(self) -> str:
        """Why no fixed matrix is told from any other."""
        return "all its rows are zero, so every matrix shifts it and none says anything"
