"""Learned tables of positions (BERT, GPT-2, OPT), and models without position information (NoPE)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.arguments import count, set_fields
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.positions import Positions
from clockhands.encodings.traces import device_of
from clockhands.errors import InvalidValue


@dataclass(frozen=True)
class Learned(AdditiveCode):
    """A trained table: the token at position ``p`` gets row ``p + offset``.

    Weakness: there is no row after the last one, and neighbouring rows are unrelated parameters. The rows are passed as
    ``values`` [rows, width]. A factor on the token embeddings, such as sqrt(width), belongs to the model.

    Families differ in which row a token gets; `token_rows` computes it:

    =========================  ===========  ===============  =======================================
    family                     ``offset``   ``padding_row``  as their code writes it
    =========================  ===========  ===============  =======================================
    BERT, GPT-2                0            None             ``arange(seq)``
    BART, mBART                2            None             ``arange(seq) + 2``
    RoBERTa, XLM-R, ESM        padding + 1  padding          ``cumsum(real) * real + padding``
    OPT                        2            1                ``cumsum(mask) * mask - 1 + 2``
    GPT-2 in batches           0            1                ``cumsum(mask) - 1``, and 1 for padding
    =========================  ===========  ===============  =======================================

    Attributes:
        width: Channels of a token.
        rows: Rows of the table.
        offset: Row of position 0.
        padding_row: Row of padding tokens where padding is not counted; None where it is counted like other tokens.

    Raises:
        InvalidValue: A number is not allowed, or no position has a row.

    Source: Gehring et al. 2017, arXiv:1705.03122, section 3.1; Devlin et al. 2018, arXiv:1810.04805; the rules:
    transformers 5.23.0, ``RobertaEmbeddings``, ``OPTLearnedPositionalEmbedding``, ``BartLearnedPositionalEmbedding``.
    """

    width: int
    rows: int
    offset: int = 0
    padding_row: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            width=count("width", self.width),
            rows=count("rows", self.rows),
            offset=count("offset", self.offset, least=0),
        )
        if self.offset >= self.rows:
            raise InvalidValue(
                f"`offset` must be below the number of rows, {self.rows}, got {self.offset}.",
                "`offset` is the row of position 0.",
            )
        if self.padding_row is None:
            return
        set_fields(self, padding_row=count("padding_row", self.padding_row, least=0))
        if self.padding_row >= self.rows:
            raise InvalidValue(
                f"`padding_row` must be below the number of rows, {self.rows}, got {self.padding_row}.",
                "Leave it out if padding tokens have positions like all other tokens.",
            )

    @property
    def values_shape(self) -> tuple[int, int]:
        """Shape of the trained table, [rows, width]."""
        return self.rows, self.width

    @property
    def padding_position(self) -> int | None:
        """The position whose row is `padding_row`; None where padding is counted."""
        return None if self.padding_row is None else self.padding_row - self.offset

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
            padding = self.padding_position
            before = 0 if padding is None or padding > 0 else -padding
            beyond |= sizes.negative & (sizes.whole != np.uint64(before))
        if beyond.any():
            raise InvalidValue(
                f"The table has rows for positions 0 to {self.usable - 1}, "
                f"got {positions.element(int(np.flatnonzero(beyond)[0]))}.",
                f"It has {self.rows} rows, of which the first {self.offset} come before position 0.",
            )
        found = sizes.whole.astype(np.int64)
        if sizes.negative is not None:
            found = np.where(sizes.negative, -found, found)
        return (found + self.offset).reshape(positions.shape)

    def check_values(self, shape: tuple[int, ...] | None) -> None:
        """Raise InvalidValue unless the values have the shape of the table."""
        if shape is None:
            raise InvalidValue(
                "Learned is a trained table, but its rows were not given.", "Pass the rows as values=, [rows, width]."
            )
        if shape != self.values_shape:
            raise InvalidValue(
                f"`values` must be of shape [{self.rows}, {self.width}], got {list(shape)}.",
                "Pass the rows of the table.",
            )

    def from_values(self, values: Any, positions: Positions, xp: Any, work: Any) -> Any:
        """The rows of the positions, [*positions, width]."""
        chosen = xp.asarray(self.row_numbers(positions).reshape(-1), device=device_of(values))
        rows = xp.astype(xp.take(values, chosen, axis=0), work)
        return xp.reshape(rows, (*positions.shape, self.width))

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Not used: the rows are taken from ``values`` in `from_values`."""
        raise AssertionError("a learned code is written from its values")

    def why_no_shift(self) -> str:
        """Why no fixed matrix moves this code from one position to another."""
        return "its rows are trained separately"


@dataclass(frozen=True)
class NoPosition(AdditiveCode):
    """No position encoding (NoPE): zeros.

    Weakness: attention without a mask is then independent of token order. A causal mask gives back some order
    information, because each token sees only the tokens before it.

    Attributes:
        width: Channels of a token.

    Raises:
        InvalidValue: The width is not positive.

    Source: Haviv et al. 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466.
    """

    width: int

    def __post_init__(self) -> None:
        """Check the value."""
        set_fields(self, width=count("width", self.width))

    def write(self, out: np.ndarray, positions: Positions, threads: int | None = None) -> None:
        """Write zeros."""
        out[...] = 0

    def why_no_shift(self) -> str:
        """Why no shift matrix is defined: every matrix shifts zeros."""
        return "all its rows are zero, so every matrix is a shift matrix"
