"""Biases of windows in the plane: tokens in rows and columns, told apart by how far they are in each."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.arguments import count, settle, shown
from clockhands.biases.codes import Reads, TableCode, truth
from clockhands.biases.distances import QueryKeyPairs
from clockhands.biases.matrices import row_numbers
from clockhands.biases.values import Values
from clockhands.dtypes import UNIT_ROUNDOFF
from clockhands.errors import InvalidType, InvalidValue
from clockhands.positions import Sizes


class _Plane(TableCode):
    """A row of the table for every difference of two tokens in a window: ``(2 height - 1) (2 width - 1)`` of them."""

    height: int
    width: int

    @property
    def reads(self) -> Reads:
        """What a number depends on: query and key, since a step in token numbers may be a step along or a new line."""
        return "both"

    @property
    def ordered(self) -> bool:
        """A plane has no before and after."""
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
        """Number of differences of two tokens, down and across."""
        return (2 * self.height - 1) * (2 * self.width - 1)

    def places(self, positions: Any) -> Any:
        """A number for each token of the plane whose differences are those of the rows of the table, int64.

        The row of a query and a key is the query's place minus the key's, plus half of the differences.

        Raises:
            InvalidValue: A position is no token of the window.
        """
        if not isinstance(positions, Sizes):  # of a trace, where a wrong one is not seen; see `has_rows`
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
        """The row of each pair; where a pair of a trace has none, any."""
        rows = self.places(pairs.queries) - self.places(pairs.keys) + self.differences // 2
        known = self.has_rows(pairs)
        return rows if known is None else pairs.xp.where(known, rows, 0 * rows)

    def has_rows(self, pairs: Any) -> Any:
        """Which pairs of a trace are tokens of the window; None where others were refused."""
        if isinstance(pairs.queries, Sizes):
            return None
        query, key = ((at >= 0) & (at < self.tokens) for at in (pairs.queries, pairs.keys))
        return query & key


@dataclass(frozen=True)
class Window(_Plane):
    """Swin's and BEiT's relative biases: a row of a learned table for every step down and across.

    For the query ``dy`` rows below and ``dx`` columns after the key, the row ``(dy + height - 1) (2 width - 1) +
    (dx + width - 1)``. Positions are token numbers, row by row. With a class token, as in BEiT, it is position 0, the
    others follow, and the last three rows are its own: to a token, from a token, and to itself.

    Attributes:
        heads: Number of heads.
        height: Rows of tokens in the window.
        width: Tokens in a row.
        class_token: Whether a class token stands before the window.

    Values: ``table`` [rows, heads].

    Accuracy: exact; the numbers are the table's, rounded once.

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
        settle(
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
    """Swin-V2's continuous biases: a small network of how far a key is down and across, on a logarithmic scale.

    Each coordinate ``delta`` becomes ``c = 8 delta / (size - 1)`` and then ``sign(c) log2(1 + |c|) / log2(8)``, where
    ``size`` is the window's, or that of the window that the network was trained with. The bias is
    ``16 sigmoid(w2 relu(w1 (down, across) + b1))``, one output for each head.

    Attributes:
        heads: Number of heads.
        height: Rows of tokens in the window.
        width: Tokens in a row.
        trained: Height and width of the window of training, where it was another (``pretrained_window_size``).
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
            settle(self, trained=tuple(count("trained", size, least=2) for size in self.trained))
        settle(
            self,
            heads=count("heads", self.heads),
            height=count("height", self.height),
            width=count("width", self.width),
            hidden=count("hidden", self.hidden),
        )

    @property
    def rows(self) -> int:
        """Number of differences that the network is asked for."""
        return self.differences

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The network."""
        return {"w1": (self.hidden, 2), "b1": (self.hidden,), "w2": (self.heads, self.hidden)}

    def coordinates(self) -> np.ndarray:
        """What the network is given, float64 [2 height - 1, 2 width - 1, 2]: how far down and how far across."""
        sizes = self.trained or (self.height, self.width)
        scaled = [
            _logarithmic(8 * np.arange(1 - own, own) / max(size - 1, 1))
            for own, size in zip((self.height, self.width), sizes, strict=True)
        ]
        return np.stack(np.meshgrid(*scaled, indexing="ij"), axis=-1)

    def table(self, values: Values) -> Any:
        """The numbers of all differences, [differences, heads]."""
        xp, arrays = values.xp, values.arrays
        given = xp.reshape(values.known(self, "coordinates"), (-1, 2))
        hidden = xp.matmul(given, xp.permute_dims(arrays["w1"], (1, 0))) + arrays["b1"]
        hidden = xp.where(hidden > 0, hidden, xp.zeros_like(hidden))
        return 16 / (1 + xp.exp(-xp.matmul(hidden, xp.permute_dims(arrays["w2"], (1, 0)))))

    def rounding_error(
        self, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any, unit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The network is followed layer by layer, as that of `Fire`.

        Coordinates are logarithms of quotients: six roundings, relative. A sigmoid passes on at most a quarter.
        """
        single = UNIT_ROUNDOFF["float32"]
        first, offset, second = (np.abs(np.asarray(values[name], np.float64)) for name in ("w1", "b1", "w2"))
        sums = (np.abs(self.coordinates().reshape(-1, 2)) @ first.T + offset) @ second.T
        table = 16 * single * ((12 + self.hidden + 3) * sums / 4 + 4)
        rows = row_numbers(self, queries, keys)
        return np.moveaxis(table[rows], -1, 0) + unit * sizes, np.zeros((1, 1, 1))


def _logarithmic(scaled: np.ndarray) -> np.ndarray:
    return np.sign(scaled) * np.log2(1 + np.abs(scaled)) / 3
