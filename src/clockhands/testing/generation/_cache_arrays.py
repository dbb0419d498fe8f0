"""KV caches of any model as nested arrays: copying, pickling, and taking rows of their keys and values.

No format of a cache is assumed: the axis of the keys is the one that grows with the number of tokens.
"""

import copy
import pickle
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from clockhands.recognition.calling import as_numpy
from clockhands.testing._experiments import Unasked

Path = tuple[Any, ...]


def copied(cache: Any) -> Any:
    """A copy that shares nothing."""
    try:
        return copy.deepcopy(cache)
    except Exception as error:
        raise Unasked(f"its cache cannot be copied: {type(error).__name__}: {error}") from error


def pickled(cache: Any) -> Any:
    """What comes back of a pickled cache."""
    try:
        return pickle.loads(pickle.dumps(cache))
    except Exception as error:
        raise Unasked(f"its cache cannot be pickled: {type(error).__name__}: {error}") from error


def key_axes(before: Any, after: Any, grown: int) -> dict[Path, int]:
    """For each array of a cache the axis that grew by this many rows; empty where none did."""
    older, axes = dict(arrays_of(before)), {}
    for path, array in arrays_of(after):
        if path not in older or older[path].ndim != array.ndim:
            continue
        more = [axis for axis in range(array.ndim) if array.shape[axis] != older[path].shape[axis]]
        if len(more) == 1 and array.shape[more[0]] - older[path].shape[more[0]] == grown:
            axes[path] = more[0]
    return axes


def token_counts(before: Any, after: Any, grown: int) -> frozenset[Path]:
    """The whole numbers of a cache, alone or in an array, that grew by the number of tokens: it counts them there."""
    older = dict(_leaves(before, _is_count))
    return frozenset(
        path
        for path, count in _leaves(after, _is_count)
        if path in older
        and np.shape(count) == np.shape(older[path])
        and (as_numpy(count).astype(np.int64) - as_numpy(older[path]).astype(np.int64) == grown).all()
    )


def with_counts(cache: Any, fewer: int, counts: Collection[Path]) -> Any:
    """A copy of the cache that has counted fewer tokens."""
    return mapped(copied(cache), lambda path, count: count - fewer if path in counts else count, is_leaf=_is_count)


def with_rows(cache: Any, rows: Callable[[int], np.ndarray], axes: dict[Path, int]) -> Any:
    """A copy of the cache with some rows of its keys and values: what it counts stays as it is.

    Args:
        cache: The cache.
        rows: From the number of rows of an array to those that are taken, in their order.
        axes: The axis of the rows of each array that has some.
    """

    def taken(path: Path, array: Any) -> Any:
        axis = axes.get(path)
        if axis is None:
            return array
        return array[(slice(None),) * axis + (np.ascontiguousarray(rows(array.shape[axis])),)]

    return mapped(copied(cache), taken)


def rows_of(cache: Any, path: Path, axis: int, text: int | None = None) -> np.ndarray:
    """The rows of one array of a cache, [rows, numbers], of all texts of the batch or of one."""
    array = as_numpy(dict(arrays_of(cache))[path]).astype(np.float64)
    if text is not None and axis > 0:
        array = array[text : text + 1]
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def mapped(
    cache: Any,
    change: Callable[[Path, Any], Any],
    path: Path = (),
    seen: frozenset[int] = frozenset(),
    is_leaf: Callable[[object], bool] | None = None,
) -> Any:
    """The same nest with every array, or leaf, changed; objects are written to only where something in them did."""
    if (is_leaf or _is_array)(cache):
        return change(path, cache)
    if id(cache) in seen:
        return cache
    seen |= {id(cache)}
    if isinstance(cache, dict):
        made = {key: mapped(value, change, (*path, key), seen, is_leaf) for key, value in cache.items()}
        return cache if all(made[key] is cache[key] for key in made) else type(cache)(made)
    if isinstance(cache, tuple | list):
        values = [mapped(value, change, (*path, place), seen, is_leaf) for place, value in enumerate(cache)]
        if all(new is old for new, old in zip(values, cache, strict=True)):
            return cache
        return type(cache)(*values) if hasattr(cache, "_fields") else type(cache)(values)
    if hasattr(cache, "__dict__") and not isinstance(cache, type) and not callable(cache):
        for name, value in list(vars(cache).items()):
            changed = mapped(value, change, (*path, name), seen, is_leaf)
            if changed is not value:
                object.__setattr__(cache, name, changed)
    return cache


def arrays_of(cache: Any) -> Iterator[tuple[Path, Any]]:
    """Every array of a cache, with its path."""
    yield from _leaves(cache, _is_array)


def _leaves(cache: Any, is_leaf: Callable[[object], bool]) -> list[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []

    def noted(path: Path, leaf: Any) -> Any:
        found.append((path, leaf))
        return leaf

    # An object is given back itself, and written to only where something in it changed.
    mapped(cache, noted, is_leaf=is_leaf)
    return found


def _is_count(value: object) -> bool:
    if isinstance(value, int | np.integer):
        return not isinstance(value, bool)
    return hasattr(value, "shape") and hasattr(value, "dtype") and "int" in str(value.dtype)  # type: ignore[attr-defined]


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim") and value.ndim > 0  # type: ignore[attr-defined]
