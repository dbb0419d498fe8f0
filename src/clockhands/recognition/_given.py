"""An array of any library as rows of numbers that are read block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.arguments import shown
from clockhands.dtypes import UNIT_ROUNDOFF, output_dtype
from clockhands.errors import InvalidType, InvalidValue

# Dtypes in which positions and phases of a usual length are no longer told apart.
LOW_PRECISION = ("bfloat16", "float16")

_BLOCK = 1 << 23  # numbers looked at together: 32 MB of float32


@dataclass(frozen=True, eq=False)
class GivenTable:
    """Rows of numbers, read only where they are asked for.

    Attributes:
        array: NumPy array [rows, width], possibly a file's.
        dtype: What the numbers were rounded to, by name.
        positions: float64 [rows] where the caller said where the rows stand, else None.
    """

    array: np.ndarray
    dtype: str
    positions: np.ndarray | None = None

    @property
    def rounding(self) -> float:
        """The relative error of one rounding to the dtype."""
        return UNIT_ROUNDOFF[self.dtype]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.array.shape[0]

    @property
    def width(self) -> int:
        """Number of channels."""
        return self.array.shape[1]

    def at(self, rows: np.ndarray | slice) -> np.ndarray:
        """Some rows in float64."""
        return np.asarray(self.array[rows]).astype(np.float64)

    def blocks(self, numbers: int = _BLOCK) -> Iterator[tuple[int, np.ndarray]]:
        """All rows, a block at a time, with the number of a block's first row."""
        height = max(64, numbers // max(1, self.width) // 64 * 64)
        for begin in range(0, self.rows, height):
            yield begin, np.asarray(self.array[begin : begin + height])


def given_of(array: Any) -> tuple[np.ndarray, str]:
    """A NumPy array that holds the same numbers, and the name of the dtype that they came in.

    Raises:
        InvalidType: It is no array, or holds something else than numbers.
        InvalidValue: It is a masked array, some of whose numbers are hidden.
    """
    hidden = _hidden(array)
    if hidden:
        raise InvalidValue(
            f"`given` must not hide numbers, got a masked array that hides {hidden} of {array.size}.",
            "Pass the visible rows, with positions= for their positions.",
        )
    name = str(getattr(array, "dtype", "")).rpartition(".")[2]
    try:
        if hasattr(array, "detach"):
            array = array.detach().cpu()
            array = _from_torch(array, name)
        rows = np.asarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidType(
            f"`given` must be an array of numbers, got {type(array).__name__} ({type(error).__name__}).",
            "Give a NumPy, PyTorch or JAX array, outside of jit, vmap and compile.",
        ) from None
    if rows.dtype.kind not in "biufc" and not rows.dtype.name.startswith(("bfloat16", "float8")):
        raise InvalidType(
            f"`given` must be an array of numbers or a function, got {type(array).__name__} {shown(array)}.",
            "Give a table [rows, width] of floats, or a function(x, positions).",
        )
    if rows.dtype.kind == "f" and rows.dtype.itemsize > 8:
        rows = rows.astype(np.float64)
    return rows, name if name.startswith("float8") else rows.dtype.name


def _hidden(array: Any) -> int:
    """Numbers of a masked array that are not to be seen."""
    return int(np.ma.getmaskarray(array).sum()) if isinstance(array, np.ma.MaskedArray) else 0


def _from_torch(tensor: Any, dtype: str) -> np.ndarray:
    """The numbers of a tensor: those of NumPy's own dtype where there is one, of ``ml_dtypes`` for bfloat16."""
    if dtype == "bfloat16":
        return tensor.float().numpy().astype(output_dtype(dtype))  # exact: they were bfloat16 before
    return tensor.float().numpy() if dtype.startswith("float8") else tensor.numpy()
