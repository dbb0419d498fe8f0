"""Bias suspects that keep state: a matrix kept from an earlier call, caches without their key."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from clockhands.biases import BiasCode
from clockhands.faults.biasing import Apply, Biasing
from clockhands.faults.fault import Suspect

Values = Callable[[BiasCode], Any]


def stateful(spec: BiasCode, values: Values) -> Iterator[Suspect]:
    """Suspects whose answers depend on what was asked before."""
    if spec.ordered:
        when = ", once a longer pass was made"
        yield Suspect(("bias-of-first-rows",), {"when": when}, lambda: lambda it: _Kept(it, values))
        when = ", once a pass as long was made"
        yield Suspect(("bias-of-first-rows",), {"when": when}, lambda: lambda it: _Kept(it, values, square=True))
        yield Suspect(("bias-dropped",), {"when": " once a longer pass was made"}, lambda: lambda it: _Once(it, values))
        yield Suspect(("cache-keeps-first-length",), {}, lambda: lambda it: _First(it, values))
    if hasattr(spec, "octaves"):
        yield Suspect(("cache-without-slopes",), {}, lambda: _shared("octaves", values))
    if hasattr(spec, "max_distance"):
        yield Suspect(("cache-without-max-distance",), {}, lambda: _shared("max_distance", values))
    if not spec.learned:
        yield Suspect(("cache-without-heads",), {}, lambda: _shared("heads", values))
        yield Suspect(("cache-without-heads",), {}, lambda: _shared(None, values))


def _shared(field: str | None, values: Values) -> Callable[[BiasCode], Apply]:
    """A process whose models share what the first one made, though they differ in this field, or in all."""
    models: dict[Any, Apply] = {}

    def build(spec: BiasCode) -> Apply:
        fields = [name for name in spec.__dataclass_fields__ if name != field]  # type: ignore[attr-defined]
        key = tuple(getattr(spec, name) for name in fields) if field is not None else ()

        def apply(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
            # As caches do, it is filled by the first call, not when the model is built.
            held = models.setdefault(key, Biasing(spec, values(spec)))
            return held(queries, keys)

        return apply

    return build


class _Kept:
    """Keeps the matrix of the longest pass and cuts later ones from its first rows and columns."""

    def __init__(self, spec: BiasCode, values: Values, square: bool = False) -> None:
        self.right, self.square = Biasing(spec, values(spec)), square
        self.kept: np.ndarray | None = None

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        rows, columns = len(queries), len(keys)
        if self.kept is None or self.kept.shape[-1] < columns or (self.square and self.kept.shape[-2] < rows):
            self.kept = self.right(queries, keys)
        cut = self.kept[:, :rows, :columns]
        # One row that was kept stands for all; fewer do not fit, and the call fails.
        if cut.shape[1] not in (1, rows):
            return np.full((len(cut), rows, columns), np.nan)
        return np.broadcast_to(cut, (len(cut), rows, columns))


class _Once:
    """Has no bias where a longer pass was made before."""

    def __init__(self, spec: BiasCode, values: Values) -> None:
        self.right, self.longest = Biasing(spec, values(spec)), 0

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        found = self.right(queries, keys)
        dropped = len(keys) <= self.longest
        self.longest = max(self.longest, len(keys))
        return np.zeros_like(found) if dropped else found


class _First:
    """Keeps the numbers of the first call with so many queries and keys, wherever they stand."""

    def __init__(self, spec: BiasCode, values: Values) -> None:
        self.right = Biasing(spec, values(spec))
        self.kept: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return self.kept.setdefault((len(queries), len(keys)), self.right(queries, keys))
