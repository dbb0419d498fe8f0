"""The learned numbers of a bias, kept in their array library so that gradients reach them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import NAMES, name_of
from clockhands.encodings.positions import numpy_of, refuse_not_dense
from clockhands.encodings.sharding import refuse_sharded
from clockhands.encodings.traces import device_of, known_numbers, library, unwrapped
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

# A tuple: PyTorch's compiler cannot trace a union of types.
_NUMPY = (np.ndarray, np.generic)


@dataclass(frozen=True, eq=False)
class Values:
    """Learned numbers by name, checked and converted to one dtype.

    Attributes:
        xp: Their array API namespace; NumPy if there are no learned numbers.
        arrays: The numbers, all of ``dtype``.
        dtype: float64 in NumPy; elsewhere float64 if any of them is, else float32.
        device: Their device.
    """

    xp: Any = np
    arrays: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float64"
    device: Any = None

    @property
    def in_numpy(self) -> bool:
        """Whether the library is NumPy."""
        return self.xp is np

    def reals(self, array: np.ndarray) -> Any:
        """Known or traced numbers in the library, dtype and device of the learned ones."""
        if not self.in_numpy and not isinstance(array, _NUMPY):
            return self.xp.astype(array, getattr(self.xp, self.dtype))
        return self._placed(np.asarray(array, self.dtype))

    def whole(self, array: np.ndarray) -> Any:
        """Known or traced integers or booleans in the library and on the device of the learned numbers."""
        return self._placed(array) if isinstance(array, _NUMPY) else array

    def known(self, spec: Any, name: str) -> Any:
        """Numbers derived from a spec by a property or method, in the library, dtype and device of the learned ones."""
        found = known_numbers(spec, name)
        if isinstance(found, list):  # PyTorch is compiling and would turn NumPy arrays into tensors
            return self.xp.asarray(found, dtype=getattr(self.xp, self.dtype), device=self.device)
        return self.reals(np.asarray(found))

    def _placed(self, array: np.ndarray) -> Any:
        return array if self.in_numpy else self.xp.asarray(array, device=self.device)


def refuse_distributed(queries: Any, keys: Any, values: Any) -> None:
    """Refuse DTensors: positions and tables do not show which heads, queries and keys a rank has.

    Raises:
        InvalidType: An argument is a DTensor.
    """
    for array, name in ((queries, "queries"), (keys, "keys")):
        refuse_sharded(
            array, name, "Pass the positions of this rank: to_local(), or full_tensor() for those of all ranks."
        )
    for array in values.values() if isinstance(values, Mapping) else (values,):
        refuse_sharded(
            array,
            "values",
            "With FSDP, call the bias within a forward that it wraps (register_fsdp_forward_method); else pass "
            "to_local(), with heads=range(…) where a rank has some of the heads.",
        )


def values_of(name: str, given: Any, shapes: dict[str, tuple[int, ...]]) -> Values:
    """The learned numbers that a caller passed for the code with this name, checked.

    Raises:
        InvalidValue: Some are missing, unknown, or have another shape; or the code has none.
        InvalidType: They are not numbers, or are of several libraries.
    """
    words = "; ".join(f"{each} {list(shape)}" for each, shape in shapes.items())
    if not shapes:
        if given is not None:
            raise InvalidValue(f"{name} is computed by a formula, so it takes no values.", "Leave `values` out.")
        return Values()
    if given is None:
        raise InvalidValue(f"{name} has learned numbers, but they were not given.", f"Pass them as values=: {words}.")
    if len(shapes) == 1 and not isinstance(given, Mapping):
        given = {next(iter(shapes)): given}
    if not isinstance(given, Mapping):
        raise InvalidType(f"`values` of {name} must be a dict of arrays, got {type(given).__name__}.", f"Pass {words}.")
    if set(given) != set(shapes):
        raise InvalidValue(
            f"`values` of {name} must contain {words}, and nothing else; got {shown(list(given))}.",
            "Pass a dict with these names.",
        )
    given = {each: unwrapped(array) for each, array in given.items()}
    for each, array in given.items():
        refuse_not_dense(array, each)
    xp, device = _library(given)
    arrays = {each: array if _is_of(array) else numpy_of(array, each) for each, array in given.items()}
    for each, array in arrays.items():
        kind = name_of(array)
        if kind not in NAMES and not kind.startswith(("int", "uint")):
            raise InvalidType(
                f"`values` must be numbers, got `{each}` of dtype {str(array.dtype).removeprefix('torch.')}.",
                "Pass float arrays.",
            )
        if tuple(array.shape) != shapes[each]:
            raise InvalidValue(
                f"`{each}` of `values` must be of shape {list(shapes[each])}, got {list(array.shape)}.",
                f"{name} takes {words}.",
            )
    if xp is np:
        return Values(np, {each: array.astype(np.float64) for each, array in arrays.items()})
    dtype = "float64" if any("float64" in str(array.dtype) for array in arrays.values() if _is_of(array)) else "float32"
    made = Values(xp, {}, dtype, device)
    for each, array in arrays.items():
        made.arrays[each] = xp.astype(array, getattr(xp, dtype)) if _is_of(array) else made.reals(array)
    return made


def values_of_heads(
    given: Any, shapes: dict[str, tuple[int, ...]], own: dict[str, tuple[int, ...]], heads: range
) -> Any:
    """Learned numbers of some heads, from those of all; as given where they do not have the shapes of all.

    Args:
        given: An array, or a dict of arrays by name.
        shapes: Their shapes for all heads.
        own: Their shapes for these heads.
        heads: These heads.
    """
    if given is None or shapes == own:
        return given
    if not isinstance(given, Mapping):
        given = dict.fromkeys(shapes, given) if len(shapes) == 1 else {}
    taken = {}
    for name, array in given.items():
        whole, part = shapes.get(name), own.get(name)
        if whole is None or part is None or whole == part or tuple(np.shape(array)) != whole:
            taken[name] = array
            continue
        axis = next(axis for axis, sizes in enumerate(zip(part, whole, strict=True)) if sizes[0] != sizes[1])
        taken[name] = array[(slice(None),) * axis + (slice(heads.start, heads.stop, heads.step),)]
    return taken


def _is_of(array: Any) -> bool:
    """Whether this is an array of a library other than NumPy, which has no gradients to keep."""
    from array_api_compat import is_array_api_obj

    return is_array_api_obj(array) and not isinstance(array, _NUMPY)


def _library(given: Mapping[str, Any]) -> tuple[Any, Any]:
    arrays = [array for array in given.values() if _is_of(array)]
    if not arrays:
        return np, None
    if any(library(array) is not library(arrays[0]) for array in arrays):
        kinds = ", ".join(sorted({f"{type(array).__module__}.{type(array).__name__}" for array in arrays}))
        raise InvalidType(
            f"`values` must be arrays of one library, got {kinds}.", "Convert them first, such as to NumPy."
        )
    return library(arrays[0]), device_of(arrays[0])
