"""`table`, the numbers of an additive code at given positions, and `add`, which adds them to token embeddings."""

import math
from typing import Any

import numpy as np

from clockhands.arguments import count
from clockhands.encodings.additive.codes import AdditiveCode
from clockhands.encodings.dtypes import NAMES, before_rounding, float_of, name_of, output_dtype
from clockhands.encodings.grids import Grid, without_prefix
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import (
    Positions,
    numpy_of,
    positions_of,
    refuse_narrow,
    refuse_no_array,
    refuse_not_dense,
    refuse_single,
)
from clockhands.encodings.sharding import RankPart, is_sharded
from clockhands.encodings.traces import (
    as_traced,
    counted,
    device_of,
    is_compiling,
    is_traced,
    known_array,
    library,
    refuse_recording,
    unwrapped,
)
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown


def table(
    spec: AdditiveCode,
    positions: Any,
    dtype: object = "float32",
    *,
    values: Any = None,
    threads: int | None = None,
) -> np.ndarray:
    """The numbers of an additive code at these positions, [*positions, width]; the coordinate axis is dropped.

    Args:
        spec: An additive code.
        positions: A count n (0 to n - 1), a range, a list of ints and floats, an array of integers or floats, or a
            `clockhands.grids.Grid`; up to 2**63 in size. A code of several axes takes [..., axes].
        dtype: float64, float32, float16 or bfloat16.
        values: Learned numbers: the rows of a table [rows, width], the rates of Fourier features [axes, pairs], or the
            scale of a scaled code; for no other code.
        threads: Threads for large tables; by default ``CLOCKHANDS_THREADS`` or all cores.

    Accuracy: float32 within 2**-25 x 1.01 of the real number, float64 within 4 ulp of 1, float16 and
    bfloat16 rounded once from such a float64; derived in `clockhands.encodings.phases`.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The table would not fit in memory.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> table(Sinusoidal(width=4), 2).round(4).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8414999842643738, 0.5403000116348267, 0.009999999776482582, 1.0]]
    """
    _check_spec(spec, "table")
    if threads is not None:  # an invalid number is refused for small tables too, which use one thread
        count("threads", threads)
    prefix, cells = without_prefix(positions)
    at = positions_of(cells)
    _check_axes(spec, at)
    return _table_at(spec, at, output_dtype(dtype), values, prefix=prefix, threads=threads)


def _table_at(
    spec: AdditiveCode,
    at: Positions,
    kind: np.dtype,
    values: Any,
    *,
    prefix: int,
    threads: int | None = None,
) -> np.ndarray:
    """The table of these positions, after ``prefix`` rows of zeros for rows without a position."""
    standing = _standing(spec, at.shape)
    shape = (prefix + standing[0], *standing[1:], spec.width) if prefix else (*standing, spec.width)
    refuse_larger(shape, kind.itemsize, "A table")
    given = _values_of(spec, values)
    out = np.empty((math.prod(shape[:-1]), spec.width), kind)
    out[:prefix] = 0
    if given is None:
        spec.write(out[prefix:], at, threads)
        return out.reshape(shape)
    rows = spec.from_values(given, at, np, np.float64).reshape(-1, spec.width)
    try:
        with np.errstate(over="raise"):
            out[prefix:] = before_rounding(rows, kind).astype(kind)
    except FloatingPointError:
        raise InvalidValue(f"A number in `values` is too large for {kind.name}.", "Use dtype float64.") from None
    return out.reshape(shape)


def _standing(spec: AdditiveCode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the rows for positions of this shape: without the coordinate axis."""
    return shape if spec.number_of_axes == 1 else shape[:-1]


def _check_axes(spec: AdditiveCode, at: Positions) -> None:
    axes = spec.number_of_axes
    if at.grid is not None and at.grid.axes != axes:
        theirs = f"{at.grid.axes} {'axis' if at.grid.axes == 1 else 'axes'}"
        raise InvalidValue(
            f"`positions` is a grid of {theirs}, but the encoding has {axes}.",
            "Give the grid one size for each axis of the encoding, in the same order.",
        )
    if axes == 1 or (len(at.shape) > 1 and at.shape[-1] == axes):
        return
    hint = "Give one coordinate for each axis, in the order of the code's axes; clockhands.grids.Grid makes a grid's."
    if at.shape[:1] == (axes,) and len(at.shape) > 1:
        hint = "Move the axis of the coordinates to the end."
    raise InvalidValue(
        f"`positions` must be of shape [..., {axes}] for a code of {axes} axes, got {list(at.shape)}.", hint
    )


def add(x: Any, spec: AdditiveCode, positions: Any = None, *, values: Any = None) -> Any:
    """``x`` plus the code of its positions, in the library, dtype and device of ``x``.

    The sum is computed in float32 (float64 for a float64 ``x``) and rounded once to the dtype of ``x``, so the code
    itself does not depend on that dtype. ``x`` is not changed.

    Args:
        x: Tokens [..., seq, width]: a NumPy, PyTorch or JAX array, or one of another array-API library. At a
            `clockhands.grids.Grid` of several axes also [..., rows, columns, width], the axes in the grid's order.
        spec: An additive code of that width.
        positions: [seq], or [batch, seq] where ``batch`` is axis 0 of ``x`` (or 1); with one more axis, the
            coordinates, for codes of several axes; or a `clockhands.grids.Grid`. None means consecutive
            positions from ``spec.first`` on where the code has that field, else 0 to seq - 1.
        values: Learned numbers, as in `table`; gradients reach them.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.

    >>> from clockhands.encodings.additive import Sinusoidal
    >>> add(np.zeros((1, 2, 4)), Sinusoidal(width=4)).shape
    (1, 2, 4)
    """
    _check_spec(spec, "add")
    refuse_recording(x)
    shape, kind = _tokens(x, spec)
    xp = library(x)
    values = unwrapped(values)
    refuse_not_dense(values, "values")
    work = xp.float64 if kind == "float64" else xp.float32
    if positions is None:
        if spec.number_of_axes > 1:
            raise InvalidValue(
                f"An encoding of {spec.number_of_axes} axes has no default positions.",
                "Give positions of shape [seq, axes], or a clockhands.grids.Grid.",
            )
        positions = counted(spec.first, shape[-2], x)
    refuse_single(positions)
    if isinstance(positions, Grid) and _lies_on(positions, shape):
        flat = xp.reshape(x, (*shape[: -1 - positions.axes], positions.cells, shape[-1]))
        return xp.reshape(add(flat, spec, positions, values=values), shape)
    if is_sharded(x, positions, values):
        return _add_on_this_rank(x, spec, positions, values)
    if is_compiling() and isinstance(positions, Grid):
        if not spec.learned:
            rows = known_array(_grid_rows, spec, positions, known=(kind, shape))
            return _sum(x, rows.to(x.device), 1, work)
        prefix = positions.prefix
        positions = as_traced(positions, x)[prefix:]  # these rows have position 0 there
    else:
        prefix, positions = without_prefix(positions)
    positions = as_traced(positions, x)
    if is_traced(positions):
        return _add_traced(x, spec, positions, values, work, prefix=prefix)
    at = positions_of(positions)
    if at.grid is not None:
        _check_axes(spec, at)
    _check_shape(at.shape, spec, shape, prefix=prefix)
    return _add_known(x, spec, at, values, prefix=prefix)


def _lies_on(grid: Grid, shape: tuple[int, ...]) -> bool:
    """Whether tokens of this shape have an axis for each axis of the grid, and not one for all cells."""
    sizes = tuple(grid.sizes[axis] for axis in grid.order)
    return grid.axes > 1 and not grid.prefix and shape[-2] != grid.cells and shape[-1 - grid.axes : -1] == sizes


def _add_known(x: Any, spec: AdditiveCode, at: Positions, values: Any, *, prefix: int) -> Any:
    """`add` at known positions whose shape has been checked."""
    xp, wide = library(x), name_of(x) == "float64"
    work = xp.float64 if wide else xp.float32
    if spec.learned and _is_of(xp, values):
        # Computed in the library of the values, so that gradients reach them.
        spec.check_values(tuple(values.shape))
        rows = _led(spec.from_values(values, at, xp, work), prefix, xp)
    else:
        made = _table_at(spec, at, np.dtype(np.float64 if wide else np.float32), values, prefix=prefix)
        rows = xp.asarray(made, device=device_of(x))
    return _sum(x, rows, len(_standing(spec, at.shape)), work)


def _add_on_this_rank(x: Any, spec: AdditiveCode, positions: Any, values: Any) -> Any:
    """`add` to a DTensor: each rank adds the code of its own tokens."""
    part, several = RankPart(x, len(x.shape) - 2), spec.number_of_axes > 1
    values = part.values(values)
    prefix, positions = without_prefix(positions)
    positions = as_traced(positions, x)
    if is_sharded(positions) or is_traced(positions):
        _check_shape(tuple(positions.shape), spec, tuple(x.shape), prefix=prefix)
        mine = part.positions(positions, len(positions.shape) - several)
        return part.wrapped(add(part.local, spec, mine, values=values))
    at = positions_of(positions)
    if at.grid is not None:
        _check_axes(spec, at)
    _check_shape(at.shape, spec, tuple(x.shape), prefix=prefix)
    if not prefix:
        mine = part.positions(at, len(at.shape) - several)
        return part.wrapped(_add_known(part.local, spec, mine, values, prefix=0))
    tokens = part.tokens(x.shape[part.axis])
    first, last = (max(0, end - prefix) for end in (tokens.start, tokens.stop))
    blank = min(tokens.stop, prefix) - min(tokens.start, prefix)
    return part.wrapped(_add_known(part.local, spec, at.taken(slice(first, last)), values, prefix=blank))


def _grid_rows(spec: AdditiveCode, grid: Grid, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """The table of a grid for tokens of this shape and dtype."""
    _check_shape((len(grid),), spec, shape, coordinates=False)
    return table(spec, grid, "float64" if kind == "float64" else "float32")


def _add_traced(x: Any, spec: AdditiveCode, positions: Any, values: Any, work: Any, *, prefix: int) -> Any:
    """`add` at positions that exist only inside a trace."""
    from clockhands.encodings.additive._tracing import traced_rows

    _check_shape(tuple(positions.shape), spec, tuple(x.shape), prefix=prefix)
    refuse_narrow(positions)
    xp = library(x)
    if library(positions) is not xp:
        raise InvalidType(
            f"`positions` must be an array of the same library as `x`, got {type(positions).__module__}."
            f"{type(positions).__name__}.",
            "Give NumPy values, a list, or an array of the library of x.",
        )
    if spec.learned and values is not None and not _is_of(xp, values):
        values = xp.asarray(np.asarray(values), device=device_of(x))
    spec.check_values(None if values is None else tuple(values.shape))
    rows = _led(traced_rows(spec, positions, values, work), prefix, xp)
    return _sum(x, rows, len(_standing(spec, tuple(positions.shape))), work)


def _led(rows: Any, prefix: int, xp: Any) -> Any:
    """``prefix`` rows of zeros, then the rows."""
    if not prefix:
        return rows
    where = {"device": rows.device} if "torch" in xp.__name__ else {}
    return xp.concat([xp.zeros((prefix, rows.shape[-1]), dtype=rows.dtype, **where), rows], axis=0)


def _sum(x: Any, rows: Any, axes: int, work: Any) -> Any:
    """``x`` plus rows [seq, width] or [batch, seq, width] (``axes`` is 1 or 2), computed in ``work``, rounded once."""
    xp, shape = library(x), tuple(x.shape)
    middle = (1,) * (len(shape) - 3)
    rows = xp.reshape(rows, (rows.shape[0], *middle, *shape[-2:]) if axes == 2 else shape[-2:])
    if x.dtype == work == rows.dtype:  # `astype` always copies
        return x + rows
    return xp.astype(xp.astype(x, work) + rows, x.dtype)


def _check_spec(spec: object, call: str) -> None:
    if isinstance(spec, AdditiveCode):
        return
    if isinstance(spec, str):
        raise InvalidType(
            f"`{call}` takes a spec, got the string {shown(spec)}.", f"Write clockhands.preset({shown(spec)})."
        )
    raise InvalidType(
        f"`{call}` takes an additive encoding, got {type(spec).__name__}.",
        "Additive encodings are Sinusoidal, Learned, NoPosition and those of clockhands.additive; RoPE rotates "
        "queries and keys instead of being added.",
    )


def _values_of(spec: AdditiveCode, values: Any) -> np.ndarray | None:
    if values is None or not spec.learned:
        spec.check_values(None if values is None else ())
        return None
    rows = numpy_of(values, "values")
    spec.check_values(rows.shape)
    if rows.dtype.kind not in "iuf" and rows.dtype.name not in NAMES:
        raise InvalidType(
            f"`values` must be numbers, got an array of {rows.dtype}.",
            "Pass the table's float rows." if rows.ndim else "Pass one float.",
        )
    return rows


def _is_of(xp: Any, values: Any) -> bool:
    """Whether the values are arrays of the tokens' library, if it is not NumPy (which has no gradients to keep)."""
    if not hasattr(values, "dtype") or isinstance(values, (np.ndarray, np.generic)):
        return False
    try:
        theirs = library(values)
    except TypeError:  # not an array of a supported library
        return False
    if theirs is not xp:
        kind = f"{type(values).__module__}.{type(values).__name__}"
        raise InvalidType(
            f"`values` must be a NumPy array or of the same library as `x`, got {kind}.",
            "Convert them first, such as with numpy.asarray.",
        )
    return True


def _tokens(x: Any, spec: AdditiveCode) -> tuple[tuple[int, ...], str]:
    refuse_no_array(x, "x")
    shape = tuple(x.shape)
    if len(shape) < 2 or shape[-1] != spec.width:
        raise InvalidValue(
            f"`x` must be of shape [..., seq, {spec.width}], got {list(shape)}.", "The last axis is the code's width."
        )
    return shape, float_of(x, "x", "Add the encoding to token embeddings, not to token ids.")


def _check_shape(
    given: tuple[int, ...], spec: AdditiveCode, shape: tuple[int, ...], *, prefix: int = 0, coordinates: bool = True
) -> None:
    """Check the shape of positions (or of rows, without ``coordinates``) for tokens of ``shape``, after a prefix."""
    axes, several = spec.number_of_axes, coordinates and spec.number_of_axes > 1
    seq = shape[-2] - prefix
    body = given[:-1] if several else given
    complete = not several or (len(given) > 1 and given[-1] == axes)
    batched = len(body) == 2 and len(shape) >= 3 and body[0] in (1, shape[0])
    if complete and body[-1:] == (seq,) and (len(body) == 1 or batched):
        return
    tail = f", {axes}]" if several else "]"
    allowed = f"[{seq}{tail}" if len(shape) < 3 else f"[{seq}{tail} or [{shape[0]}, {seq}{tail}"
    hint = "They are [seq], or [batch, seq] where batch is axis 0 of x."
    if several:
        hint = "They are [seq, axes], or [batch, seq, axes] where batch is axis 0 of x."
        if given[:1] == (axes,):
            hint = "Move the axis of the coordinates to the end, [seq, axes] or [batch, seq, axes]."
    beside = f" and {prefix} rows without a position" if prefix else ""
    raise InvalidValue(
        f"`positions` must be of shape {allowed} for x of shape {list(shape)}{beside}, got {list(given)}.", hint
    )
