"""Attention biases at traced positions: inside ``jit``, ``vmap`` and ``compile``.

A traced position is an integer of the framework. Distances are computed exactly in integers: in JAX with 32 bits modulo
2**32, with the sign from a comparison, so that they are right from -2**31 to 2**31 - 1; in PyTorch in int64, up to
2**62. Buckets and table rows are those of the exact distance. Computed biases are float32 (float64 on request), from
the distance and constants rounded once each. Traced values cannot be checked, so a token outside the window gets NaN,
which stays visible in every later sum.
"""

from typing import Any

import numpy as np

from clockhands.encodings import traces
from clockhands.encodings.biases.codes import BiasCode
from clockhands.encodings.biases.values import Values, values_of
from clockhands.encodings.dtypes import NAMES
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

_NARROW = 2**31
_LOOKED_UP = 1 << 16  # the largest distance whose bucket is read from a table: 256 KiB
# A tuple: PyTorch's compiler cannot trace a union of types.
_NUMPY = (np.ndarray, np.generic)
_WHOLE = (int, np.integer)


class TracedDistances:
    """Query positions minus key positions, with the fields of `clockhands.biases.distances.Distances`."""

    def __init__(self, queries: Any, keys: Any, xp: Any, dtype: Any) -> None:
        self.negative = queries < keys
        if _is_wide(queries, xp):
            self.whole = xp.where(self.negative, keys - queries, queries - keys)
        else:  # two's complement: the difference of two 32-bit integers has 32 bits and a sign
            query, key = xp.astype(queries, xp.uint32), xp.astype(keys, xp.uint32)
            self.whole = xp.where(self.negative, key - query, query - key)
        size = xp.astype(self.whole, dtype)
        self.reals = xp.where(self.negative, -size, size)
        self.past = xp.where(self.negative, xp.zeros_like(size), size)


class TracedPairs:
    """Pairs of a query and a key, with the interface of `clockhands.biases.distances.QueryKeyPairs`.

    Attributes:
        xp: The array library.
        queries, keys: Integers that broadcast together, [..., queries, 1] and [..., 1, keys].
        distances: Query positions minus key positions.
    """

    def __init__(self, queries: Any, keys: Any, xp: Any, dtype: Any) -> None:
        self.xp, self.dtype = xp, dtype
        self.queries, self.keys = queries, keys
        self.distances = TracedDistances(queries, keys, xp, dtype)
        self.shape = tuple(self.distances.negative.shape)

    @property
    def query_tokens(self) -> Any:
        """Query positions as real numbers."""
        return self.xp.astype(self.queries, self.dtype)

    @property
    def key_tokens(self) -> Any:
        """Key positions as real numbers."""
        return self.xp.astype(self.keys, self.dtype)

    @property
    def past_last(self) -> Any:
        """Key positions minus the position of the last key."""
        return TracedDistances(self.keys, self.keys[..., -1:], self.xp, self.dtype).reals

    def steps(self, spec: Any) -> Any:
        """The number of bucket boundaries that each distance has reached: from a table, beyond it by comparisons.

        Not by `searchsorted` in the boundaries, which ONNX lacks.
        """
        xp, wide, whole = self.xp, _is_wide(self.queries, self.xp), self.distances.whole
        if traces.is_compiling():
            table = traces.known_array(_reached, spec).to(self.queries.device)
        else:
            table = traces.constant(_reached(spec), self.queries)
        within = self.clipped(table.shape[0] - 1)
        taken = xp.take(table, xp.reshape(within, (-1,)), axis=0)
        reached = xp.reshape(xp.astype(taken, xp.int64 if wide else xp.int32), whole.shape)
        most = 2**63 if wide else 2**32
        for limit in traces.known_numbers(spec, "boundaries"):
            if _LOOKED_UP < limit < most:
                reached = reached + xp.astype(whole >= xp.full_like(whole, limit), reached.dtype)
        return reached

    def clipped(self, most: int, spec: Any = None) -> Any:
        """The size of each distance, clipped to ``most``; ``spec`` is used in errors only, and this raises none."""
        whole = self.distances.whole
        within = self.xp.where(whole > most, self.xp.full_like(whole, most), whole)
        return within if _is_wide(self.queries, self.xp) else self.xp.astype(within, self.xp.int32)


def _reached(spec: Any) -> np.ndarray:
    """The number of bucket boundaries that each distance has reached, for all distances of the look-up table."""
    boundaries = np.array(spec.boundaries, np.uint64)
    last = int(boundaries[boundaries <= _LOOKED_UP].max(initial=0))
    return np.searchsorted(boundaries, np.arange(last + 1, dtype=np.uint64), side="right").astype(np.int32)


def is_inside(queries: Any, keys: Any) -> bool:
    """Whether one of the two is traced; while PyTorch compiles, all are."""
    return traces.is_compiling() or traces.is_traced(queries) or traces.is_traced(keys)


def traced_bias(  # noqa: PLR0917 - the arguments of `bias`
    spec: BiasCode, queries: Any, keys: Any, values: Any, dtype: object, causal: bool
) -> Any:
    """`clockhands.bias` where queries or keys are traced, [heads, queries, keys] in their library.

    Raises:
        InvalidValue, InvalidType: The positions are not integers, or their shapes do not match; known positions do not
            fit the integer dtype of the traced ones; values are missing or of another library.
    """
    if traces.is_compiling():
        keys = traces.as_tensor(keys, _place(queries, values))
    traced = queries if traces.is_traced(queries) else keys
    xp = traces.library(traced)
    name = _dtype_name(dtype)
    kind = getattr(xp, name)
    work = "float64" if name == "float64" else "float32"
    at_queries, at_keys = _positions(queries, keys, traced, xp)
    batched = len(at_queries.shape) == 2 or len(at_keys.shape) == 2
    if batched:
        at_queries, at_keys = (at if len(at.shape) == 2 else at[None] for at in (at_queries, at_keys))
    learned = _learned(spec, values, xp, work, traced)
    pairs: Any = TracedPairs(at_queries[..., :, None], at_keys[..., None, :], xp, getattr(xp, work))
    with traces.in_full(traced):
        made = xp.broadcast_to(spec.numbers(pairs, learned), (spec.heads, *pairs.shape))
    if causal:
        made = xp.where(pairs.distances.negative, xp.full_like(made, -np.inf), made)
    if batched:
        made = xp.permute_dims(made, (1, 0, 2, 3))
    made = xp.astype(made, kind)
    if name not in str(made.dtype):
        raise InvalidValue(
            f"The array library computed {made.dtype}, but {name} was requested.",
            'Request another dtype; for float64, JAX needs jax.config.update("jax_enable_x64", True).',
        )
    return made


def _dtype_name(dtype: object) -> str:
    name = str(getattr(dtype, "__name__", None) or dtype).removeprefix("torch.").removeprefix("jax.numpy.")
    if name not in NAMES:
        raise InvalidValue(f"`dtype` must be one of {', '.join(NAMES)}, got {shown(dtype)}.", "The default is float32.")
    return name


def _is_wide(array: Any, xp: Any) -> bool:
    return "torch" in xp.__name__ or "64" in str(array.dtype)


def _device(array: Any) -> Any:
    return getattr(array, "device", None)  # JAX's tracers have none


def _place(*given: Any) -> Any:
    """The device of the first argument that is a tensor or contains one."""
    for each in given:
        for one in each.values() if isinstance(each, dict) else (each,):
            if traces.is_traced(one):
                return one.device
    return None


def _positions(queries: Any, keys: Any, traced: Any, xp: Any) -> tuple[Any, Any]:
    """Both as integers of one dtype; a count of queries means the positions of the last keys."""
    wide = _is_wide(traced, xp)
    at_keys = _axes(_integers(keys, "keys", traced, xp, wide), "keys")
    if _is_count(queries):
        number = queries  # unchanged: it may be symbolic in PyTorch's compiler, and `int` would fix its value
        if not 0 <= number <= at_keys.shape[-1]:
            raise InvalidValue(
                f"A count of `queries` means the last key positions, so it must be 0 to {at_keys.shape[-1]}; got "
                f"{number}.",
                "Give the positions of the queries as an array.",
            )
        return at_keys[..., at_keys.shape[-1] - number :], at_keys
    at_queries = _axes(_integers(queries, "queries", traced, xp, wide), "queries")
    batches = [at.shape[0] for at in (at_queries, at_keys) if len(at.shape) == 2 and at.shape[0] != 1]
    if len(batches) == 2 and batches[0] != batches[1]:
        raise InvalidValue(
            f"`queries` and `keys` must have the same batch size, got {batches[0]} and {batches[1]} sequences.",
            "Give both as [seq], or as [batch, seq] with the same batch size.",
        )
    return at_queries, at_keys


def _integers(given: Any, name: str, traced: Any, xp: Any, wide: bool) -> Any:
    kind = xp.int64 if wide else xp.int32
    if _is_count(given):
        if wide:
            return xp.arange(given, dtype=kind, device=_device(traced))
        given = range(int(given))
    # In this order: PyTorch 2.5 cannot compile `hasattr` of the others.
    if not isinstance(given, (*_NUMPY, range)) and hasattr(given, "dtype"):
        if traces.library_of(given) != traces.library_of(traced):
            raise InvalidType(
                f"`{name}` are an array of {traces.library_of(given)}, but the other positions are an array of "
                f"{traces.library_of(traced)}.",
                "Give both in one library, or one of them as NumPy values.",
            )
        traces.integer_of(given)
        return xp.astype(given, kind)
    if isinstance(given, range) and wide:
        return xp.arange(given.start, given.stop, given.step, dtype=kind, device=_device(traced))
    known = np.asarray(given)
    if known.dtype.kind not in "iu":
        raise InvalidType(
            f"`{name}` must be whole numbers, because the other positions are inside a trace; got {known.dtype}.",
            "For fractional positions, give queries and keys outside of the trace.",
        )
    if not wide and known.size and not -_NARROW <= int(known.min()) <= int(known.max()) < _NARROW:
        raise InvalidValue(
            f"`{name}` must fit in 32 bits, like the other positions, which are inside a trace; got up to "
            f"{int(np.abs(known).max())}.",
            "Give all positions outside of the trace, or subtract one number from all: a bias depends on distances "
            "only.",
        )
    known = known.astype(np.int64 if wide else np.int32)
    return xp.asarray(known, device=_device(traced))


def _is_count(given: Any) -> bool:
    # By its type: PyTorch's compiler does not support protocol checks of symbolic numbers.
    return isinstance(given, _WHOLE) and not isinstance(given, bool)


def _axes(at: Any, name: str) -> Any:
    if len(at.shape) not in (1, 2):
        raise InvalidValue(
            f"`{name}` must be of shape [{name}] or [batch, {name}], got {list(at.shape)}.",
            "Give a count, a range, or an array of one or two axes.",
        )
    return at


def _learned(spec: BiasCode, values: Any, xp: Any, work: str, traced: Any) -> Values:
    """The learned numbers in the library of the positions."""
    device = _device(traced)
    if traces.is_compiling():
        # A module's parameters have been checked already, and PyTorch's compiler cannot trace the checks.
        given = values if isinstance(values, dict) else dict.fromkeys(spec.shapes, values)
        arrays = {name: xp.astype(given[name], getattr(xp, work)) for name in spec.shapes}
        return Values(xp, arrays, work, device)
    given = values_of(type(spec).__name__, values, spec.shapes)
    if given.in_numpy:
        wrong = spec.refuse(given.arrays)
        if wrong:
            raise InvalidValue(
                wrong, "Clamp the learned values before you pass them; implementations clamp them before each use."
            )
        made = Values(xp, {}, work, device)
        for name, array in given.arrays.items():
            made.arrays[name] = made.reals(array)
        return made
    if given.xp is not xp:
        raise InvalidType(
            "`values` are not arrays of the same library as the positions.", "Convert `values` to that library first."
        )
    return given
