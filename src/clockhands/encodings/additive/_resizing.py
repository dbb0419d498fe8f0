"""Resize a learned position table by interpolation: rows for more positions, or for a grid of another size.

Resizing is linear in the rows, so it is a matrix. The matrix is computed in float64 and applied in the library of the
rows, so that gradients pass. The two axes of a grid are resized one after the other.

Each choice below gives a different table. None raises an error, and a model with the wrong table only becomes less
accurate:

* *positions of the new rows* among the ``old`` ones. ``align_corners=False``: row ``i`` of ``new`` is at
  ``(i + 1/2) old / new - 1/2``, so that the outer edges coincide. ``align_corners=True``: at
  ``i (old - 1) / (new - 1)``, so that the first and last rows coincide.
* *the weights* of old rows at distance ``x``. Linear: ``1 - |x|``. Cubic, with ``a = cubic``:
  ``(a + 2)|x|**3 - (a + 3)|x|**2 + 1`` up to 1, ``a (|x|**3 - 5|x|**2 + 8|x| - 4)`` up to 2 (Keys 1981).
* *edges*: without ``antialias`` the outermost row stands in for rows beyond it; with it, the other weights are
  renormalised.
* *shrinking*: ``antialias=True`` widens the weights by ``old / new``, so that no row is skipped.
"""

import math
from typing import Any, Literal, get_args

import numpy as np

from clockhands.arguments import count, one_of, positive, real, truth
from clockhands.encodings.dtypes import before_rounding, name_of
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import refuse_not_dense
from clockhands.encodings.traces import device_of, in_full, is_traced, library
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

Kind = Literal["linear", "cubic"]


def resize(
    values: Any,
    rows: int | tuple[int, int],
    kind: Kind = "linear",
    *,
    grid: tuple[int, int] | None = None,
    kept: int = 0,
    align_corners: bool = False,
    antialias: bool = False,
    cubic: float | None = None,
    scale_factor: float | tuple[float, float] | None = None,
) -> Any:
    """A learned table resized to another number of positions, in the library, dtype and device of ``values``.

    ``resized = M @ values`` with the matrix of `resize_matrix`; for a grid, one matrix along each axis.

    Args:
        values: [..., rows, width]: a NumPy, PyTorch or JAX array, or one of another array-API library.
        rows: Number of new rows, without the kept ones; (height, width) for a grid, whose cells are in the table in
            row-major order (the width index varies fastest).
        kind: ``"linear"`` (bilinear on a grid) or ``"cubic"`` (bicubic).
        grid: The size of the old grid, (height, width); a square by default.
        kept: Rows at the start that are copied: a class token's, or those before position 0 (`Learned.offset`).
        align_corners: See the module.
        antialias: See the module.
        cubic: ``a`` of the cubic weights; by default -0.75 without ``antialias`` and -0.5 with it, as in PyTorch.
            JAX, TensorFlow and Pillow use -0.5.
        scale_factor: The scale factor for code that passes PyTorch one instead of a size, where it is not exactly
            ``rows / old`` (DINO: ``(rows + 0.1) / old``); one for each axis of a grid.

    Accuracy: NumPy arrays in float64, rounded once; others in float32 (float64 for float64), within 2**-20 of the
    largest number. The numbers are those of ``torch.nn.functional.interpolate`` with the same arguments.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The matrix would not fit in memory.

    Source: Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.2; Keys 1981, doi:10.1109/TASSP.1981.1163711;
    PyTorch 2.13, ``torch.nn.functional.interpolate``.

    >>> resize(np.array([[0.0], [1.0]]), 4).tolist()
    [[0.0], [0.25], [0.75], [1.0]]
    >>> resize(np.array([[0.0], [1.0]]), 5, align_corners=True).tolist()
    [[0.0], [0.25], [0.5], [0.75], [1.0]]
    """
    shape, dtype = _table(values)
    kept = count("kept", kept, least=0)
    new = _sizes("rows", rows)
    moving = shape[-2] - kept
    if moving < 1:
        raise InvalidValue(
            f"`kept` must be below the number of rows, {shape[-2]}, got {kept}.",
            "Leave at least one row to resize.",
        )
    old = _old(moving, grid, len(new))
    factors = _factors(scale_factor, len(new))
    matrices = [
        resize_matrix(
            before, after, kind, align_corners=align_corners, antialias=antialias, cubic=cubic, scale_factor=factor
        )
        for before, after, factor in zip(old, new, factors, strict=True)
    ]
    if isinstance(values, np.ndarray):
        moved = _applied(_finite(values[..., kept:, :].astype(np.float64), np), matrices, np)
        moved = before_rounding(moved, values.dtype).astype(values.dtype)
        return np.concatenate([values[..., :kept, :], moved], axis=-2)
    xp = library(values)
    fine = dtype == "float64"
    there = [
        xp.asarray(matrix.astype(np.float64 if fine else np.float32), device=device_of(values)) for matrix in matrices
    ]
    with in_full(values):
        given = xp.astype(values[..., kept:, :], xp.float64 if fine else xp.float32)
        moved = _applied(given if is_traced(values) else _finite(given, xp), there, xp)
    return xp.concat([values[..., :kept, :], xp.astype(moved, values.dtype)], axis=-2)


def resize_matrix(
    old: int,
    new: int,
    kind: Kind = "linear",
    *,
    align_corners: bool = False,
    antialias: bool = False,
    cubic: float | None = None,
    scale_factor: float | None = None,
) -> np.ndarray:
    """The matrix that interpolates ``new`` rows from ``old`` ones, float64 [new, old]; each row sums to 1.

    Args:
        old: Number of old rows.
        new: Number of new rows.
        kind: ``"linear"`` or ``"cubic"``.
        align_corners: See the module.
        antialias: See the module.
        cubic: See `resize`.
        scale_factor: See `resize`.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The matrix would not fit in memory.

    >>> resize_matrix(2, 3).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    """
    old, new = count("old", old), count("new", new)
    one_of("kind", kind, get_args(Kind), "A grid's bilinear is linear along both axes, its bicubic cubic.")
    for name, flag in (("align_corners", align_corners), ("antialias", antialias)):
        truth(name, flag, "Leave it out for False.")
    if antialias and align_corners:
        raise InvalidValue(
            "`antialias` and `align_corners` cannot both be True: antialiasing widens the weights, so the corners "
            "would not stay aligned.",
            "Use one of them.",
        )
    if align_corners and scale_factor is not None:
        raise InvalidValue("`scale_factor` has no effect if `align_corners` is True.", "Leave one of them out.")
    if kind == "linear" and cubic is not None:
        raise InvalidValue(f"`cubic` is for cubic weights only, got {shown(cubic)}.", 'Write kind="cubic".')
    refuse_larger((new, old), 8, "A matrix", "Ask for fewer rows: each takes a number for every row that there is.")
    index = np.arange(new)
    if align_corners:
        at, stretch = index * (old - 1) / max(new - 1, 1), 1.0
    else:
        step = old / new if scale_factor is None else 1 / positive("scale_factor", scale_factor)
        at, stretch = (index + 0.5) * step - 0.5, max(step, 1.0) if antialias else 1.0
    sharp = (-0.5 if antialias else -0.75) if cubic is None else real("cubic", cubic)
    if not math.isfinite(sharp):
        raise InvalidValue(f"`cubic` must be finite, got {shown(cubic)}.", "Leave it out for PyTorch's default.")
    reach = 1 if kind == "linear" else 2
    matrix = np.zeros((new, old))
    if antialias:
        matrix[...] = _weights((np.arange(old) - at[:, None]) / stretch, kind, sharp)
        return matrix / matrix.sum(axis=1, keepdims=True)
    for tap in range(1 - reach, 1 + reach):
        row = np.floor(at) + tap
        # Rows beyond the edge are the outermost row again, so several weights may go to one row.
        np.add.at(matrix, (index, np.clip(row, 0, old - 1).astype(np.int64)), _weights(row - at, kind, sharp))
    return matrix


def standardised(values: Any, divisor: float = 10.0) -> np.ndarray:
    """A table standardised to mean 0 and standard deviation ``1 / divisor``: ``(v - mean) / (divisor std)``.

    The standard deviation is the sample's (n - 1), over all numbers of the table. PatchTST initialises its learned rows
    in this way from a sinusoid. Every number depends on the number of rows, so this initialises ``values`` and is not
    a code by itself.

    Args:
        values: A NumPy array, [rows, width].
        divisor: The inverse of the resulting standard deviation.

    Accuracy: computed in float64 for every input dtype.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used, or all numbers are equal.

    Source: transformers 5.23.0, models/patchtst/modeling_patchtst.py, ``_init_pe``.

    >>> standardised(np.array([[1.0, 3.0]]), 1.0).round(4).tolist()
    [[-0.7071, 0.7071]]
    """
    if not isinstance(values, np.ndarray):
        raise InvalidType(
            f"`values` must be a NumPy array, got {type(values).__name__}.", "Compute the table with clockhands.table."
        )
    held = values.astype(np.float64)
    spread = held.std(ddof=1) if held.size > 1 else 0.0
    if not spread > 0:
        raise InvalidValue(
            "`values` must hold different numbers: standardising divides by their standard deviation.",
            "Give a table of several rows.",
        )
    return (held - held.mean()) / (positive("divisor", divisor) * spread)


def _finite(values: Any, xp: Any) -> Any:
    if not bool(xp.all(xp.isfinite(values))):
        raise InvalidValue(
            "`values` hold NaN or infinite numbers, which resizing would spread to other rows.",
            "Replace them first; rows at the start that `kept` counts are not resized.",
        )
    return values


def _weights(away: np.ndarray, kind: Kind, sharp: float) -> np.ndarray:
    size = np.abs(away)
    if kind == "linear":
        return np.maximum(1 - size, 0)
    near = ((sharp + 2) * size - (sharp + 3)) * size**2 + 1
    far = sharp * (((size - 5) * size + 8) * size - 4)
    return np.where(size <= 1, near, np.where(size < 2, far, 0))


def _applied(table: Any, matrices: list[Any], xp: Any) -> Any:
    if len(matrices) == 1:
        return xp.matmul(matrices[0], table)
    high, wide = matrices
    *lead, _, width = table.shape
    table = xp.matmul(wide, xp.reshape(table, (*lead, high.shape[1], wide.shape[1], width)))
    table = xp.matmul(high, xp.reshape(table, (*lead, high.shape[1], wide.shape[0] * width)))
    return xp.reshape(table, (*lead, high.shape[0] * wide.shape[0], width))


def _table(values: Any) -> tuple[tuple[int, ...], str]:
    if not hasattr(values, "shape") or not hasattr(values, "dtype"):
        raise InvalidType(
            f"`values` must be an array, got {type(values).__name__}.", "Give a NumPy, PyTorch or JAX array."
        )
    refuse_not_dense(values, "values")
    shape, dtype = tuple(values.shape), name_of(values)
    if len(shape) < 2:
        raise InvalidValue(
            f"`values` must be of shape [..., rows, width], got {list(shape)}.", "Pass the rows of the table."
        )
    if not dtype.startswith(("float", "bfloat")):
        raise InvalidType(f"`values` must be of a float dtype, got {dtype}.", "Pass the table's float rows.")
    return shape, dtype


def _sizes(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, tuple | list):
        return (count(name, given),)
    if len(given) != 2:
        raise InvalidValue(
            f"`{name}` must be one number, or (height, width) of a grid, got {shown(given)}.", "Give two numbers."
        )
    return tuple(count(name, size) for size in given)


def _old(moving: int, grid: Any, axes: int) -> tuple[int, ...]:
    if axes == 1:
        if grid is not None:
            raise InvalidValue(
                f"`grid` is for resizing a grid: `rows` is one number, got grid={shown(grid)}.",
                "Give rows=(height, width) too, or leave `grid` out.",
            )
        return (moving,)
    if grid is None:
        side = math.isqrt(moving)
        if side * side != moving:
            raise InvalidValue(
                f"The table has {moving} rows to resize, but they are not a square grid.",
                "Give grid=(height, width), and kept= for rows outside of the grid, such as a class token's.",
            )
        return side, side
    sizes = _sizes("grid", grid)
    if len(sizes) != 2 or math.prod(sizes) != moving:
        raise InvalidValue(
            f"`grid` must be (height, width) of the {moving} rows to resize, got {shown(grid)}.",
            "Give kept= for rows outside of the grid, such as a class token's.",
        )
    return sizes


def _factors(given: Any, axes: int) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        return (given,) * axes
    if len(given) != axes:
        raise InvalidValue(
            f"`scale_factor` must be one number for each of {axes} axes, got {shown(given)}.",
            "Give one number for each number in `rows`.",
        )
    return tuple(given)
