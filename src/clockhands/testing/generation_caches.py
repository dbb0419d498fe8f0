"""Caches of any model, which are nests of arrays: copied, pickled, and with some of their rows.

Nothing is known of a cache but what it shows: the axis of the keys is the one that grows with the tokens.
"""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from clockhands.calling import FLOATS, as_numpy, dtype_of
from clockhands.testing.experiments import Unasked

Path = tuple[Any, ...]


def copied(cache: Any) -> Any:
    """A copy that shares nothing.

    Raises:
        Unasked: It cannot be copied.
    """
    try:
        return copy.deepcopy(cache)
    except Exception as error:
        raise Unasked(f"its cache cannot be copied: {type(error).__name__}: {error}") from error


def pickled(cache: Any) -> Any:
    """What comes back of a pickled cache.

    Raises:
        Unasked: It cannot be pickled.
    """
    try:
        return pickle.loads(pickle.dumps(cache))
    except Exception as error:
        raise Unasked(f"its cache cannot be pickled: {type(error).__name__}: {error}") from error


def key_axes(before: Any, after: Any, grown: int, *, floats: bool = False) -> dict[Path, int]:
    """For each array of a cache the axis that grew by this many rows; empty where none did.

    Args:
        before: The cache before some tokens.
        after: The cache after them.
        grown: How many there were.
        floats: Whether arrays of whole numbers are left out: those that number the keys.
    """
    first, second = dict(_arrays(before)), dict(_arrays(after))
    axes = {}
    for path, array in second.items():
        older = first.get(path)
        if older is None or older.ndim != array.ndim or (floats and dtype_of(array) not in FLOATS):
            continue
        more = [axis for axis in range(array.ndim) if array.shape[axis] != older.shape[axis]]
        if len(more) == 1 and array.shape[more[0]] - older.shape[more[0]] == grown:
            axes[path] = more[0]
    return axes


def with_rows(cache: Any, rows: np.ndarray, axes: dict[Path, int]) -> Any:
    """A copy of the cache with these rows of its keys and values, in this order; what it counts stays as it is."""
    rows = np.ascontiguousarray(rows)

    def taken(path: Path, array: Any) -> Any:
        axis = axes.get(path)
        return array if axis is None else array[(slice(None),) * axis + (rows,)]

    return mapped(copied(cache), taken)


def first_rows(cache: Any, axes: dict[Path, int]) -> np.ndarray:
    """The rows of its first array, [rows, numbers]."""
    path, axis = next(iter(axes.items()))
    array = as_numpy(dict(_arrays(cache))[path]).astype(np.float64)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def mapped(cache: Any, change: Callable[[Path, Any], Any], path: Path = (), seen: frozenset[int] = frozenset()) -> Any:
    """The same nest with every array changed; objects are written to, and only where something in them changed."""
    if _is_array(cache):
        return change(path, cache)
    if id(cache) in seen:
        return cache
    seen |= {id(cache)}
    if isinstance(cache, dict):
        made = {key: mapped(value, change, (*path, key), seen) for key, value in cache.items()}
        return cache if all(made[key] is cache[key] for key in made) else type(cache)(made)
    if isinstance(cache, tuple | list):
        values = [mapped(value, change, (*path, place), seen) for place, value in enumerate(cache)]
        if all(new is old for new, old in zip(values, cache, strict=True)):
            return cache
        return type(cache)(*values) if hasattr(cache, "_fields") else type(cache)(values)
    if hasattr(cache, "__dict__") and not isinstance(cache, type) and not callable(cache):
        for name, value in list(vars(cache).items()):
            changed = mapped(value, change, (*path, name), seen)
            if changed is not value:
                object.__setattr__(cache, name, changed)
    return cache


def _arrays(cache: Any) -> Iterator[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []

    def noted(path: Path, array: Any) -> Any:
        found.append((path, array))
        return array

    # An object is given back itself, and written to only where something in it changed.
    mapped(cache, noted)
    yield from found


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim") and value.ndim > 0  # type: ignore[attr-defined]
