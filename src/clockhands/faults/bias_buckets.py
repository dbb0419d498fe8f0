"""Suspects of biases by buckets: another number, another end, rounded the other way, one side for two."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.biases import BiasCode, Buckets, CeilingBuckets, Clipped
from clockhands.errors import ClockhandsError
from clockhands.faults.biasing import Apply, Biasing
from clockhands.faults.fault import Suspect

Values = Callable[[BiasCode], Any]


@dataclass(frozen=True)
class _Log:
    """Buckets that are even in the logarithm of the distance, as code computes them: in float64, or in float32.

    Attributes:
        first: Distances with a bucket of their own, below this one.
        last: Where the last bucket begins.
        steps: Buckets in between.
        up: Whether the logarithm is rounded up.
        single: Whether it is made in float32.
        added: Inside the logarithm.
    """

    first: int
    last: float
    steps: int
    up: bool
    single: bool
    added: float = 0.0

    def __call__(self, sizes: np.ndarray) -> np.ndarray:
        """The bucket of each size of a distance, before it is cut."""
        kind = np.float32 if self.single else np.float64
        far = np.maximum(sizes, self.first).astype(kind) / kind(self.first) + kind(self.added)
        y = np.log(far) / kind(math.log(self.last / self.first)) * kind(self.steps)
        if not self.single:
            near = np.round(y)
            y = np.where(np.abs(y - near) < 1e-9, near, y)
        return self.first + (np.ceil(y) if self.up else np.floor(y)).astype(np.int64)


def bucket_suspects(spec: Buckets | CeilingBuckets | Clipped, values: Values) -> Iterator[Suspect]:
    """Every way in which another bucket is taken."""
    if isinstance(spec, Buckets):
        yield from _of_t5(spec, values)
    elif isinstance(spec, CeilingBuckets):
        yield from _of_deberta(spec, values)
    else:
        for span in _others(spec.span):
            yield from _other(
                "another-max-distance", {"used": span, "declared": spec.span}, replace(spec, span=span), values
            )
            yield _clipped_about(spec, span, values)


def _others(number: int) -> list[int]:
    found = {number // 2, 2 * number, number - 1, number + 1, 4 * number, number // 4}
    return sorted((found | {8, 16, 32, 64, 128, 256, 320, 512, 800, 1024}) - {number})


def _suspect(code: str, parameters: dict[str, Any], build: Callable[[Any], Apply]) -> Suspect:
    return Suspect((code,), parameters, lambda: build)


def _other(code: str, parameters: dict[str, Any], other: BiasCode, values: Values) -> Iterator[Suspect]:
    """A code with another field; of another model it has that field too."""
    table = values(other)
    if table is None:
        return
    yield _suspect(code, parameters, lambda _: Biasing(other, table))
    for rows in _rows_of(other):
        yield _suspect(code, parameters, lambda _, rows=rows: Biasing(other, _scaled(other, table), rows=rows))


def _scaled(spec: BiasCode, table: Any) -> Any:
    return np.asarray(table, np.float64) * getattr(spec, "scale", 1.0)


def _rows_of(spec: BiasCode) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """The rows that float32 takes, which differ at some edges."""
    if isinstance(spec, Buckets):
        yield _t5_rows(spec, up=False, single=True)
    elif isinstance(spec, CeilingBuckets):
        yield _deberta_rows(spec, up=True, single=True)


def _t5_rows(spec: Buckets, *, up: bool, single: bool) -> Callable[[np.ndarray], np.ndarray]:
    way = spec.buckets // 2 if spec.bidirectional else spec.buckets
    first = way // 2
    log = _Log(first, spec.max_distance, way - first, up, single, spec.epsilon)

    def rows(apart: np.ndarray) -> np.ndarray:
        sizes = np.abs(apart) if spec.bidirectional else np.maximum(apart, 0)
        found = np.where(sizes < first, sizes, np.minimum(log(sizes), way - 1))
        return found + way * ((apart < 0) & spec.bidirectional)

    return rows


def _deberta_rows(spec: CeilingBuckets, *, up: bool, single: bool) -> Callable[[np.ndarray], np.ndarray]:
    first = spec.span // 2
    log = _Log(first, spec.max_distance - 1, first - 1, up, single)

    def rows(apart: np.ndarray) -> np.ndarray:
        sizes = np.abs(apart)
        found = np.where(sizes <= first, sizes, log(sizes)) * np.where(apart < 0, -1, 1)
        return np.clip(found + spec.span, 0, 2 * spec.span - 1)

    return rows


def _of_t5(spec: Buckets, values: Values) -> Iterator[Suspect]:
    table = values(spec)
    sides = (
        replace(spec, bidirectional=not spec.bidirectional)
        if _possible(spec, bidirectional=not spec.bidirectional)
        else None
    )
    if sides is not None:
        code = "one-sided-buckets" if spec.bidirectional else "two-sided-buckets"
        yield from _other(code, {}, sides, values)
    for number in _others(spec.buckets):
        if _possible(spec, buckets=number):
            yield from _other(
                "another-number-of-buckets",
                {"used": number, "declared": spec.buckets},
                replace(spec, buckets=number),
                values,
            )
    for furthest in _others(spec.max_distance):
        if _possible(spec, max_distance=furthest):
            yield from _other(
                "another-max-distance",
                {"used": furthest, "declared": spec.max_distance},
                replace(spec, max_distance=furthest),
                values,
            )
    for single in (False, True):
        rows = _t5_rows(spec, up=True, single=single)
        own = _measured(spec, rows, values) if table is not None else None
        if own is not None:
            yield _suspect(
                "buckets-rounded-up",
                {},
                lambda it, rows=rows, own=own: Biasing(it, _scaled(it, own), rows=rows),
            )


def _of_deberta(spec: CeilingBuckets, values: Values) -> Iterator[Suspect]:
    for span in _others(spec.span):
        if _possible(spec, span=span):
            other = replace(spec, span=span)
            yield from _other("another-number-of-buckets", {"used": span, "declared": spec.span}, other, values)
    for furthest in _others(spec.max_distance):
        if _possible(spec, max_distance=furthest):
            other = replace(spec, max_distance=furthest)
            yield from _other("another-max-distance", {"used": furthest, "declared": spec.max_distance}, other, values)
    for single in (False, True):
        rows = _deberta_rows(spec, up=False, single=single)
        own = _measured(spec, rows, values)
        if own is not None:
            yield _suspect("buckets-rounded-down", {}, lambda it, rows=rows, own=own: Biasing(it, own, rows=rows))


def _measured(spec: BiasCode, rows: Callable[[np.ndarray], np.ndarray], values: Values) -> Any:
    """The table behind these rows: the one that is known, or what was measured."""
    measured = getattr(values, "behind", None)
    return values(spec) if measured is None else measured(rows, spec)


def _clipped_about(spec: Clipped, span: int, values: Values) -> Suspect:
    """Distances cut nearer or further, around the middle of the same table."""

    def rows(apart: np.ndarray) -> np.ndarray:
        return np.clip(np.clip(apart, -span, span) + spec.span, 0, 2 * spec.span - 1)

    own = _measured(spec, rows, values)
    own = values(spec) if own is None else own
    return _suspect(
        "another-max-distance",
        {"used": span, "declared": spec.span},
        lambda it: Biasing(it, np.asarray(own, np.float64), rows=rows),
    )


def _possible(spec: Any, **fields: Any) -> bool:
    try:
        replace(spec, **fields)
    except ClockhandsError:
        return False
    return True
