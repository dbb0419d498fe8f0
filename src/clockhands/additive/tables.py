"""Tables of additive codes, and adding them to tokens."""

from typing import Any

import numpy as np

from clockhands.additive.codes import AdditiveCode
from clockhands.arguments import count, shown
from clockhands.dtypes import NAMES, before_rounding, output_dtype
from clockhands.errors import InvalidType, InvalidValue
from clockhands.memory import refuse_larger
from clockhands.positions import Positions, numpy_of, positions_of
from clockhands.traces import as_traced, counted, is_traced, library


def table(
    spec: AdditiveCode,
    positions: Any,
    dtype: object = "float32",
    *,
    values: Any = None,
    threads: int | None = None,
) -> np.ndarray:
    """The numbers of an additive code at these positions, of shape [*positions, width].

    Args:
        spec: An additive code.
        positions: A count n (0 to n - 1), a range, a list of ints and floats, or an array of
            integers or floats; up to 2**63 in size.
        dtype: float64, float32, float16 or bfloat16.
        values: Learned numbers: the rows of a table [rows, width], or the scale of a scaled code; for no other code.
        threads: Threads for large tables; ``CLOCKHANDS_THREADS`` or all cores unless said.

    Accuracy: float32 within 2**-25 x 1.01 of the real number, float64 within 4 ulp of 1, float16 and
    bfloat16 rounded once from such a float64; derived in `clockhands.phases`.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The table would not fit in memory.

    >>> from clockhands.additive import Sinusoidal
    >>> table(Sinusoidal(width=4), 2).round(4).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8414999842643738, 0.5403000116348267, 0.009999999776482582, 1.0]]
    """
    _check_spec(spec, "table")
    if threads is not None:  # a wrong number is refused for small tables too, which need no second thread
        count("threads", threads)
    return _table_at(spec, positions_of(positions), output_dtype(dtype), values, threads)


def _table_at(
    spec: AdditiveCode,
    at: Positions,
    kind: np.dtype,
    values: Any,
    threads: int | None = None,
) -> np.ndarray:
    shape = (*at.shape, spec.width)
    refuse_larger(shape, kind.itemsize, "A table")
    given = _values_of(spec, values)
    if given is not None:
        rows = spec.from_values(given, at, np, np.float64)
        try:
            with np.errstate(over="raise"):
                return before_rounding(rows, kind).astype(kind)
        except FloatingPointError:
            raise InvalidValue(f"A number of `values` does not fit {kind.name}.", "Use dtype float64.") from None
    out = np.empty((at.size, spec.width), kind)
    spec.write(out, at, threads)
    return out.reshape(shape)


def add(x: Any, spec: AdditiveCode, positions: Any = None, *, values: Any = None) -> Any:
    """``x`` plus the code of its positions, in ``x``'s library, dtype and place.

    The sum is made in float32 (float64 for a float64 ``x``) and rounded once to ``x``'s dtype, so the
    code does not depend on the dtype. ``x`` is not changed.

    Args:
        x: Tokens of shape [..., seq, width]: a NumPy, PyTorch or JAX array, or any array-API library's.
        spec: An additive code of that width.
        positions: [seq], or [batch, seq] where ``batch`` is axis 0 of ``x`` (or 1). None is the positions of a
            sequence's tokens from the first on: 0 to seq - 1, from ``spec.first`` where the code says so.
        values: Learned numbers, as in `table`; gradients reach them.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.

    >>> from clockhands.additive import Sinusoidal
    >>> add(np.zeros((1, 2, 4)), Sinusoidal(width=4)).shape
    (1, 2, 4)
    """
    _check_spec(spec, "add")
    shape, kind = _tokens(x, spec)
    xp = library(x)
    work = xp.float64 if kind == "float64" else xp.float32
    if positions is None:
        positions = counted(spec.first, shape[-2], x)
    positions = as_traced(positions, x)
    if is_traced(positions):
        return _add_traced(x, spec, positions, values, work)
    at = positions_of(positions)
    _check_shape(at.shape, shape)
    if spec.learned and _is_of(xp, values):
        # Made in the values' own library, so that gradients reach them.
        spec.check_values(tuple(values.shape))
        rows = spec.from_values(values, at, xp, work)
    else:
        made = _table_at(spec, at, np.dtype(np.float64 if kind == "float64" else np.float32), values)
        rows = xp.asarray(made, device=_device(x))
    return _sum(x, rows, at.shape, work)


def _add_traced(x: Any, spec: AdditiveCode, positions: Any, values: Any, work: Any) -> Any:
    """`add` at positions that exist only inside a trace."""
    from clockhands.additive.tracing import traced_rows

    _check_shape(tuple(positions.shape), tuple(x.shape))
    xp = library(x)
    if library(positions) is not xp:
        raise InvalidType(
            f"`positions` must be of the library of `x`, got {type(positions).__module__}.{type(positions).__name__}.",
            "Give NumPy values, a list, or an array of the library of x.",
        )
    if spec.learned and values is not None and not _is_of(xp, values):
        values = xp.asarray(np.asarray(values), device=_device(x))
    spec.check_values(None if values is None else tuple(values.shape))
    return _sum(x, traced_rows(spec, positions, values, work), tuple(positions.shape), work)


def _sum(x: Any, rows: Any, at: tuple[int, ...], work: Any) -> Any:
    """``x`` plus the rows of positions of shape ``at``, made in ``work`` and rounded once."""
    xp, shape = library(x), tuple(x.shape)
    middle = (1,) * (len(shape) - 3)
    rows = xp.reshape(rows, (at[0], *middle, *shape[-2:]) if len(at) == 2 else shape[-2:])
    return xp.astype(xp.astype(x, work) + rows, x.dtype)


def _check_spec(spec: object, call: str) -> None:
    if isinstance(spec, AdditiveCode):
        return
    if isinstance(spec, str):
        raise InvalidType(
            f"`{call}` takes a spec, got the string {shown(spec)}.", f"Write clockhands.preset({shown(spec)})."
        )
    raise InvalidType(
        f"`{call}` takes an additive code, got {type(spec).__name__}.",
        "Additive codes are Sinusoidal, Learned, NoPosition and those of clockhands.additive; "
        "a rotary code turns queries and keys instead of being added.",
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
    """Whether these are values of the library of the tokens, other than NumPy, which has no gradients to keep."""
    if not hasattr(values, "dtype") or isinstance(values, (np.ndarray, np.generic)):
        return False
    try:
        theirs = library(values)
    except TypeError:  # no array of any library
        return False
    if theirs is not xp:
        kind = f"{type(values).__module__}.{type(values).__name__}"
        raise InvalidType(
            f"`values` must be of the library of `x` or NumPy's, got {kind}.",
            "Convert them first, such as with numpy.asarray.",
        )
    return True


def _tokens(x: Any, spec: AdditiveCode) -> tuple[tuple[int, ...], str]:
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise InvalidType(f"`x` must be an array, got {type(x).__name__}.", "Give a NumPy, PyTorch or JAX array.")
    shape, kind = tuple(x.shape), str(x.dtype).rpartition(".")[2]
    if len(shape) < 2 or shape[-1] != spec.width:
        raise InvalidValue(
            f"`x` must be of shape [..., seq, {spec.width}], got {list(shape)}.", "The last axis is the code's width."
        )
    if kind not in ("float64", "float32", "float16", "bfloat16"):
        raise InvalidType(
            f"`x` must be of a float dtype, got {kind}.", "Add a code to embedded tokens, not to their ids."
        )
    return shape, kind


def _check_shape(at: tuple[int, ...], shape: tuple[int, ...]) -> None:
    seq = shape[-2]
    batched = len(at) == 2 and len(shape) >= 3 and at[0] in (1, shape[0])
    if at[-1:] != (seq,) or not (len(at) == 1 or batched):
        allowed = f"[{seq}]" if len(shape) < 3 else f"[{seq}] or [{shape[0]}, {seq}]"
        raise InvalidValue(
            f"`positions` must be of shape {allowed} for x of shape {list(shape)}, got {list(at)}.",
            "They are [seq], or [batch, seq] where batch is axis 0 of x.",
        )


def _device(x: Any) -> Any:
    from array_api_compat import device

    return device(x)
