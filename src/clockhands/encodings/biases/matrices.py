"""`bias`, the matrix of an attention bias for given queries and keys, and `row_numbers`, the rows of its table."""

import math
from typing import Any

import numpy as np

from clockhands.arguments import truth
from clockhands.encodings.biases._kernels import Fire
from clockhands.encodings.biases._traced import is_inside, traced_bias
from clockhands.encodings.biases.codes import BiasCode, TableCode
from clockhands.encodings.biases.distances import Batches, QueryKeyGrid, batches_of
from clockhands.encodings.biases.linear import some_heads
from clockhands.encodings.biases.values import Values, refuse_distributed, values_of, values_of_heads
from clockhands.encodings.dtypes import before_rounding, output_dtype
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import refuse_not_dense
from clockhands.encodings.traces import in_full, library, library_of, refuse_recording
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

_BLOCK = 1 << 18  # pairs at once where each pair is computed separately

_NETWORK_BLOCK = 1 << 16  # pairs at once for a network: its intermediate values stay in the cache of one core

_PARTS = "Ask for fewer queries at once: bias(spec, range(a, b), keys) gives the same rows."


def bias(
    spec: BiasCode,
    queries: Any,
    keys: Any,
    *,
    values: Any = None,
    dtype: object = "float32",
    causal: bool = False,
    heads: range | None = None,
) -> Any:
    """The numbers that a bias adds to the scores of these queries and keys, [heads, queries, keys].

    Args:
        spec: A bias.
        queries: Positions: a range, a list or an array, [queries] or [batch, queries]; or a count, which means the
            positions of the last keys, so that 1 is a decoding step. [batch, heads, queries] has positions of its own
            for each head.
        keys: Positions, likewise, or a count n for 0 to n - 1. Integers up to 2**63 are exact.
        values: Learned numbers, if the bias has some: an array, or a dict of arrays by name. With PyTorch or JAX
            arrays the bias is in that library, and gradients reach them.
        dtype: float64, float32, float16 or bfloat16.
        causal: Whether keys after the query get minus infinity. By default nothing is masked.
        heads: A range of heads, such as those of one rank: ``range(4, 8)`` is heads 4 to 7 of ``spec.heads``.
            Slopes are those that they have among all heads; learned numbers are those of these heads only.

    Returns:
        The bias, [heads, queries, keys], after a batch axis if positions have one: a NumPy array, or one of the library
        of the values or of the traced positions.

    Accuracy: as stated by the spec; equal distances have equal numbers. Inside a trace (``jit``, ``vmap``,
    ``compile``) positions are integers, their distances are exact from -2**31 to 2**31 - 1, and a computed number is
    within a relative 3 x 2**-24 in float32; see `clockhands.biases._traced`. A number that does not fit the dtype
    (float16 ends at 65,504) is refused in NumPy; in another library, and inside a trace, it is infinite.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The bias would not fit in memory.

    >>> from clockhands.encodings.biases import Alibi
    >>> bias(Alibi(heads=2), 1, 4)[0].tolist()
    [[-0.1875, -0.125, -0.0625, 0.0]]
    """
    _check_spec(spec, "bias")
    whole, spec = spec, some_heads(spec, heads)
    truth("causal", causal, "It says whether keys after the query get minus infinity.")
    if causal and not spec.ordered:
        raise InvalidValue(
            f"{type(spec).__name__} is for tokens on a plane, where no token comes before another, so it has no causal "
            "form.",
            "Leave `causal` out.",
        )
    refuse_recording(queries, keys, *(values.values() if isinstance(values, dict) else (values,)))
    if _axes_of(queries) == 3 or _axes_of(keys) == 3:
        return _of_each_head(whole, queries, keys, values, heads, {"dtype": dtype, "causal": causal})
    refuse_distributed(queries, keys, values)
    if is_inside(queries, keys):
        return traced_bias(spec, queries, keys, values, dtype, causal)
    refuse_not_dense(queries, "queries")
    refuse_not_dense(keys, "keys")
    at, kind = batches_of(queries, keys), output_dtype(dtype)
    refuse_larger((*at.batch, spec.heads, *at.shape), kind.itemsize, "A bias", _PARTS)
    learned = values_of(type(spec).__name__, values, spec.shapes)
    if not learned.in_numpy:
        return _elsewhere(spec, at, learned, kind, causal)
    wrong = spec.refuse(learned.arrays)
    if wrong:
        raise InvalidValue(
            wrong, "Clamp the learned values before you pass them; implementations clamp them before each use."
        )
    out = np.empty((*at.batch, spec.heads, *at.shape), kind)
    if out.size:
        for matrix, grid in zip(out.reshape(-1, spec.heads, *at.shape), at.grids(), strict=True):
            _fill(matrix, spec, grid, learned, causal)
    return out


def _axes_of(given: Any) -> int:
    """The number of axes of positions; 0 for a range or a count."""
    if isinstance(given, int):  # also a symbolic one, of which PyTorch's compiler allows no other question
        return 0
    axes = 0
    while isinstance(given, (list, tuple)):
        given, axes = given[0] if given else None, axes + 1
    if getattr(given, "is_nested", False):  # it has no shape, and is refused later
        return 0
    return axes + (len(given.shape) if hasattr(given, "shape") else 0)


def _of_each_head(  # noqa: PLR0917 - the arguments of `bias`
    spec: BiasCode, queries: Any, keys: Any, values: Any, heads: range | None, further: dict[str, Any]
) -> Any:
    """`bias` at positions of which each head has its own, [batch, heads, queries, keys]."""
    own = some_heads(spec, heads)
    places = []
    for given, name in ((queries, "queries"), (keys, "keys")):
        several = np.asarray(given) if isinstance(given, list | tuple) else given
        if _axes_of(several) == 3 and several.shape[1] != own.heads:
            raise InvalidValue(
                f"`{name}` must have positions for each of {own.heads} heads, [batch, {own.heads}, {name}], got "
                f"{list(several.shape)}.",
                f"Give [batch, {name}] for positions that all heads share.",
            )
        places.append(several)
    made = []
    for place, head in enumerate(range(spec.heads) if heads is None else heads):
        at = [given[:, place, :] if _axes_of(given) == 3 else given for given in places]
        single = range(head, head + 1)
        part = some_heads(spec, single)
        mine = values_of_heads(values, own.shapes, part.shapes, range(place, place + 1))
        made.append(bias(spec, *at, values=mine, heads=single, **further))
    if isinstance(made[0], np.ndarray):
        return np.concatenate(made, axis=-3)
    return library(made[0]).concat(made, axis=-3)


def row_numbers(spec: TableCode, queries: Any, keys: Any) -> np.ndarray:
    """The row of the learned table for each query and key, int64 [queries, keys].

    Published code calls these buckets or relative position index. Queries and keys are as for `bias`.

    Raises:
        InvalidValue, InvalidType: An argument cannot be used; the message says which and why.
        TooLarge: The numbers would not fit in memory.

    >>> from clockhands.encodings.biases import Buckets
    >>> row_numbers(Buckets(heads=1, bidirectional=False), 2, 20).tolist()[1][:8]
    [17, 16, 16, 16, 15, 14, 13, 12]
    """
    if not isinstance(spec, TableCode):
        raise InvalidType(
            f"`row_numbers` takes a bias with a learned table, got {_name_of(spec)}.",
            "These are Buckets, CeilingBuckets, Clipped, Window and LogWindow.",
        )
    at = batches_of(queries, keys)
    refuse_larger((*at.batch, *at.shape), 8, "Row numbers", _PARTS)
    out = np.empty((*at.batch, *at.shape), np.int64)
    if out.size:
        out.reshape(-1, *at.shape)[...] = [spec.row_numbers(grid.rows(0, at.shape[0])) for grid in at.grids()]
    return out


def _fill(out: np.ndarray, spec: BiasCode, grid: QueryKeyGrid, values: Values, causal: bool) -> None:
    """Write one sequence's bias into ``out`` [heads, queries, keys]."""
    queries, keys = grid.shape
    if spec.reads == "distance" and grid.even:
        pairs = grid.diagonals()
        line = _rounded(spec.numbers(pairs, values), out.dtype)
        if causal:
            line[:, pairs.distances.negative] = -np.inf
        # The last query's row is the first window of the array of distances, the row above it the next.
        out[...] = np.lib.stride_tricks.sliding_window_view(line, keys, axis=-1)[:, ::-1]
        return
    if spec.reads == "key":
        out[...] = _rounded(spec.numbers(grid.columns(), values), out.dtype)[:, None]
        if not causal:
            return
    step = max(1, _BLOCK // keys)
    for begin in range(0, queries, step):
        rows = slice(begin, min(begin + step, queries))
        pairs = grid.rows(rows.start, rows.stop)
        if spec.reads != "key":
            out[:, rows] = _rounded(spec.numbers(pairs, values), out.dtype)
        if causal:
            out[:, rows][:, pairs.distances.negative] = -np.inf


def _rounded(numbers: np.ndarray, kind: np.dtype) -> np.ndarray:
    try:
        with np.errstate(over="raise"):
            return before_rounding(numbers, kind).astype(kind)
    except FloatingPointError:
        raise InvalidValue(
            f"A bias with the absolute value {float(np.abs(numbers).max()):.3g} is too large for {kind.name}.",
            "Use float32, or bfloat16.",
        ) from None


def _elsewhere(spec: BiasCode, at: Batches, values: Values, kind: np.dtype, causal: bool) -> Any:
    """The bias in the library of the values, by differentiable operations."""
    xp, shape = values.xp, (*at.batch, spec.heads, *at.shape)
    with in_full(next(iter(values.arrays.values()))):
        made = [_matrix(spec, grid, values, causal) for grid in at.grids()] if math.prod(shape) else []
    whole = xp.reshape(xp.stack(made), shape) if made else values.reals(np.empty(shape))
    given = getattr(xp, kind.name, None)
    result = whole if given is None or given == whole.dtype else xp.astype(whole, given)  # `astype` always copies
    if kind.name not in str(result.dtype):
        raise InvalidValue(
            f"The library of `values` computed {result.dtype}, but {kind.name} was requested.",
            'Request another dtype; for float64, JAX needs jax.config.update("jax_enable_x64", True).',
        )
    return result


def _matrix(spec: BiasCode, grid: QueryKeyGrid, values: Values, causal: bool) -> Any:
    xp, (queries, keys) = values.xp, grid.shape
    if spec.reads == "distance" and grid.even:
        pairs = grid.diagonals()
        line = _masked(spec.numbers(pairs, values), pairs.distances.negative, values, causal)
        diagonal = np.arange(keys) - np.arange(queries)[:, None] + queries - 1
        flat = xp.take(line, values.whole(diagonal.reshape(-1)), axis=1)
        return xp.reshape(flat, (spec.heads, queries, keys))
    step = max(1, _NETWORK_BLOCK // max(keys, 1))
    if not isinstance(spec, Fire) or step >= queries or library_of(next(iter(values.arrays.values()))) != "torch":
        pairs = grid.rows(0, queries)
        return _masked(spec.numbers(pairs, values), pairs.distances.negative, values, causal)
    rows = [range(begin, min(begin + step, queries)) for begin in range(0, queries, step)]
    return xp.concat([_some_rows(spec, grid, part, values, causal) for part in rows], axis=1)


def _some_rows(spec: BiasCode, grid: QueryKeyGrid, rows: range, values: Values, causal: bool) -> Any:
    """Some rows of the matrix; trailing keys that no row sees are masked without being computed."""
    xp, keys = values.xp, grid.shape[1]
    pairs = grid.rows(rows.start, rows.stop)
    after = pairs.distances.negative
    visible = np.flatnonzero(~after.all(axis=0)) if causal else np.array([keys - 1])
    seen = int(visible[-1]) + 1 if visible.size else 1
    if seen < keys:
        pairs = grid.rows(rows.start, rows.stop, seen)
    numbers = _masked(spec.numbers(pairs, values), after[:, :seen], values, causal)
    if seen == keys:
        return numbers
    hidden = xp.full_like(numbers[:, :, :1], -xp.inf)
    return xp.concat([numbers, xp.broadcast_to(hidden, (*numbers.shape[:2], keys - seen))], axis=2)


def _masked(numbers: Any, after: np.ndarray, values: Values, causal: bool) -> Any:
    if not causal:
        return numbers
    xp = values.xp
    return xp.where(values.whole(after), xp.full_like(numbers, -xp.inf), numbers)


def _name_of(spec: object) -> str:
    return f"the string {shown(spec)}" if isinstance(spec, str) else type(spec).__name__


def _check_spec(spec: object, call: str) -> None:
    if not isinstance(spec, BiasCode):
        hint = "Biases are Alibi, Buckets and those of clockhands.biases."
        if isinstance(spec, str):
            hint = f"Write clockhands.preset({shown(spec)})."
        raise InvalidType(f"`{call}` takes a bias, got {_name_of(spec)}.", hint)
