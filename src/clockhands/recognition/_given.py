"""A NumPy, PyTorch or JAX array as a table [rows, width] that is read in blocks of rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import UNIT_ROUNDOFF, output_dtype
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# Dtypes that round neighbouring positions and phases of usual context lengths to the same number.
LOW_PRECISION = ("bfloat16", "float16")

_BLOCK = 1 << 23  # numbers per block: 32 MB of float32


@dataclass(frozen=True, eq=False)
class GivenTable:
    """The table to identify; its rows are read only when they are needed.

    Attributes:
        array: NumPy array [rows, width], possibly memory-mapped.
        dtype: Name of the dtype that the numbers were rounded to.
        positions: Position of each row as passed by the caller, float64 [rows], or None.
    """

    array: np.ndarray
    dtype: str
    positions: np.ndarray | None = None

    @property
    def rounding(self) -> float:
        """The largest relative error of one rounding to the dtype."""
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
        """These rows in float64, [rows, width]."""
        return np.asarray(self.array[rows]).astype(np.float64)

    def blocks(self, numbers: int = _BLOCK) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in blocks of about ``numbers`` numbers: the index of the first row, and the rows [height, width]."""
        height = max(64, numbers // max(1, self.width) // 64 * 64)
        for begin in range(0, self.rows, height):
            yield begin, np.asarray(self.array[begin : begin + height])


def given_of(array: Any) -> tuple[np.ndarray, str]:
    """A NumPy array with the same numbers, and the name of their original dtype.

    Raises:
        InvalidType: It is not an array, or its elements are not numbers.
        InvalidValue: It is a masked array with masked elements.
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
    """How many elements of a masked array are masked; 0 for other arrays."""
    return int(np.ma.getmaskarray(array).sum()) if isinstance(array, np.ma.MaskedArray) else 0


def _from_torch(tensor: Any, dtype: str) -> np.ndarray:
    """The tensor as a NumPy array: bfloat16 in the dtype of ``ml_dtypes``, 8-bit floats in float32, others as is."""
    if dtype == "bfloat16":
        return tensor.float().numpy().astype(output_dtype(dtype))  # exact: float32 holds every bfloat16
    return tensor.float().numpy() if dtype.startswith("float8") else tensor.numpy()
