"""Relative biases of image windows (Swin, BEiT): they depend on the row distance and the column distance."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.arguments import count, set_fields, truth
from clockhands.encodings.biases.codes import Reads, TableCode
from clockhands.encodings.biases.distances import QueryKeyPairs
from clockhands.encodings.biases.matrices import row_numbers
from clockhands.encodings.biases.values import Values
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.encodings.positions import Sizes
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown


class _Plane(TableCode):
    """A table row for every displacement between two tokens of a window: ``(2 height - 1) (2 width - 1)`` rows."""

    height: int
    width: int

    @property
    def reads(self) -> Reads:
        """Query and key: an equal difference of token numbers may be within one row or across rows."""
        return "both"

    @property
    def ordered(self) -> bool:
        """False: tokens in a plane have no order, so a causal mask is not meaningful."""
        return False

    @property
    def first_token(self) -> int:
        """The position of the window's first token."""
        return 0

    @property
    def tokens(self) -> int:
        """Number of positions."""
        return self.height * self.width + self.first_token

    @property
    def differences(self) -> int:
        """Number of displacements (rows, columns) between two tokens."""
        return (2 * self.height - 1) * (2 * self.width - 1)

    def places(self, positions: Any) -> Any:
        """A number for each token such that the difference of two gives the table row, int64.

        The row of a query and a key is the query's number minus the key's, plus half of ``differences``.

        Raises:
            InvalidValue: A position is not a token of the window.
        """
        if not isinstance(positions, Sizes):  # traced, where an invalid position cannot be detected; see `has_rows`
            index = positions - self.first_token
            return index + (index // self.width) * (self.width - 1)
        wrong = positions.whole >= np.uint64(self.tokens)
        for limb in (positions.negative, positions.part):
            if limb is not None:
                wrong = wrong | (limb != 0)
        if wrong.any():
            first = int(positions.whole[wrong].flat[0])
            raise InvalidValue(
                f"A window of {self.height} x {self.width} has the positions 0 to {self.tokens - 1}, "
                f"got {'-' if positions.negative is not None and positions.negative[wrong].flat[0] else ''}{first}"
                f"{' and a fraction' if positions.part is not None else ''}.",
                "They are token numbers, row by row" + (" after the class token." if self.first_token else "."),
            )
        down, across = np.divmod(positions.whole.astype(np.int64) - self.first_token, self.width)
        return down * (2 * self.width - 1) + across

    def row_numbers(self, pairs: QueryKeyPairs) -> Any:
        """The row of each pair; an arbitrary one for a traced pair that has none."""
        rows = self.places(pairs.queries) - self.places(pairs.keys) + self.differences // 2
        known = self.has_rows(pairs)
        return rows if known is None else pairs.xp.where(known, rows, 0 * rows)

    def has_rows(self, pairs: Any) -> Any:
        """Which traced pairs are tokens of the window; None where the positions were checked before."""
        if isinstance(pairs.queries, Sizes):
            return None
        query, key = ((at >= 0) & (at < self.tokens) for at in (pairs.queries, pairs.keys))
        return query & key


@dataclass(frozen=True)
class Window(_Plane):
    """Swin's and BEiT's relative biases: a row of a learned table for every row and column displacement.

    If the query is ``dy`` rows below and ``dx`` columns to the right of the key, the table row is
    ``(dy + height - 1) (2 width - 1) + (dx + width - 1)``. Positions are token numbers in row-major order. A class
    token, as in BEiT, is position 0, before the others; the last three table rows are for it: to a token, from a token,
    and to itself.

    Attributes:
        heads: Number of heads.
        height: Rows of tokens in the window.
        width: Tokens in a row.
        class_token: Whether there is a class token before the window.

    Values: ``table`` [rows, heads].

    Accuracy: the rows are exact; the numbers are those of the table, rounded once.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Liu et al. 2021, arXiv:2103.14030, section 3.2; microsoft/Swin-Transformer at f82860b, WindowAttention;
    Bao et al. 2022, arXiv:2106.08254; transformers 5.23.0, models/beit/modeling_beit.py, BeitRelativePositionBias.
    """

    heads: int
    height: int
    width: int
    class_token: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        truth("class_token", self.class_token, "It selects whether there is a class token before the window.")
        set_fields(
            self,
            heads=count("heads", self.heads),
            height=count("height", self.height),
            width=count("width", self.width),
        )

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self.differences + 3 * self.class_token

    @property
    def first_token(self) -> int:
        """The position of the window's first token."""
        return int(self.class_token)

    def row_numbers(self, pairs: QueryKeyPairs) -> np.ndarray:
        """The row of each pair."""
        rows = super().row_numbers(pairs)
        if not self.class_token:
            return rows
        from_class, to_class = ((at.whole if isinstance(at, Sizes) else at) == 0 for at in (pairs.queries, pairs.keys))
        where, none = pairs.xp.where, 0 * rows
        rows = where(from_class, none + (self.rows - 3), where(to_class, none + (self.rows - 2), rows))
        return where(from_class & to_class, none + (self.rows - 1), rows)


@dataclass(frozen=True)
class LogWindow(_Plane):
    """Swin-V2's continuous biases: a small network of the row and column displacement on a logarithmic scale.

    Each displacement ``delta`` becomes ``c = 8 delta / (size - 1)`` and then ``sign(c) log2(1 + |c|) / log2(8)``, where
    ``size`` is the height or width of the window, or of the window in training. The bias is
    ``16 sigmoid(w2 relu(w1 (row, column) + b1))``, one output per head.

    Attributes:
        heads: Number of heads.
        height: Rows of tokens in the window.
        width: Tokens in a row.
        trained: Height and width of the window in training, if different (``pretrained_window_size``).
        hidden: Channels of the hidden layer.

    Values: ``w1`` [hidden, 2], ``b1`` [hidden], ``w2`` [heads, hidden].

    Accuracy: coordinates within 2 ulp in float64; the network in float64 in NumPy, rounded once, else in the
    values' library.

    Raises:
        InvalidValue, InvalidType: A number is not allowed.

    Source: Liu et al. 2022, arXiv:2111.09883, section 3.3; transformers 5.23.0, models/swinv2/modeling_swinv2.py,
    Swinv2SelfAttention.
    """

    heads: int
    height: int
    width: int
    trained: tuple[int, int] | None = None
    hidden: int = 512

    def __post_init__(self) -> None:
        """Check the values."""
        if self.trained is not None:
            if not isinstance(self.trained, tuple | list) or len(self.trained) != 2:
                raise InvalidType(
                    f"`trained` must be (height, width) or None, got {shown(self.trained)}.",
                    "It is the window size that the model was trained with.",
                )
            set_fields(self, trained=tuple(count("trained", size, least=2) for size in self.trained))
        set_fields(
            self,
            heads=count("heads", self.heads),
            height=count("height", self.height),
            width=count("width", self.width),
            hidden=count("hidden", self.hidden),
        )

    @property
    def rows(self) -> int:
        """Number of displacements for which the network is evaluated."""
        return self.differences

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The network."""
        return {"w1": (self.hidden, 2), "b1": (self.hidden,), "w2": (self.heads, self.hidden)}

    def coordinates(self) -> np.ndarray:
        """The inputs of the network, float64 [2 height - 1, 2 width - 1, 2]: row and column displacement."""
        sizes = self.trained or (self.height, self.width)
        scaled = [
            _logarithmic(8 * np.arange(1 - own, own) / max(size - 1, 1))
            for own, size in zip((self.height, self.width), sizes, strict=True)
        ]
        return np.stack(np.meshgrid(*scaled, indexing="ij"), axis=-1)

    def table(self, values: Values) -> Any:
        """The numbers of all displacements, [differences, heads]."""
        xp, arrays = values.xp, values.arrays
        given = xp.reshape(values.known(self, "coordinates"), (-1, 2))
        hidden = xp.matmul(given, xp.permute_dims(arrays["w1"], (1, 0))) + arrays["b1"]
        hidden = xp.where(hidden > 0, hidden, xp.zeros_like(hidden))
        return 16 / (1 + xp.exp(-xp.matmul(hidden, xp.permute_dims(arrays["w2"], (1, 0)))))

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The error is propagated through the network layer by layer, as for `Fire`.

        The inputs are logarithms of quotients: six roundings, relative. A sigmoid has a slope of at most a quarter.
        """
        single = UNIT_ROUNDOFF["float32"]
        first, offset, second = (np.abs(np.asarray(values[name], np.float64)) for name in ("w1", "b1", "w2"))
        sums = (np.abs(self.coordinates().reshape(-1, 2)) @ first.T + offset) @ second.T
        table = 16 * single * ((12 + self.hidden + 3) * sums / 4 + 4)
        rows = row_numbers(self, queries, keys)
        return np.moveaxis(table[rows], -1, 0) + unit * sizes, np.zeros((1, 1, 1))


def _logarithmic(scaled: np.ndarray) -> np.ndarray:
    return np.sign(scaled) * np.log2(1 + np.abs(scaled)) / 3
