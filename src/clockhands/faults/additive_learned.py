"""Suspects of a learned table that is resized: its rows are made of those before by other weights."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode, Learned, resize
from clockhands.errors import ClockhandsError
from clockhands.faults.adding import Adding
from clockhands.faults.additive_seen import Seen
from clockhands.faults.fault import Suspect


def resized_otherwise(spec: AdditiveCode, seen: Seen) -> Iterator[Suspect]:
    """The other ways of `clockhands.additive.resize`, one argument or two of them at once."""
    if not isinstance(spec, Learned) or seen.resized is None or seen.given is None:
        return
    declared = {"kind": "linear", "align_corners": False, "antialias": False, "cubic": None} | dict(seen.resized)
    tried: list[np.ndarray] = []
    ways = sorted(_ways(declared), key=lambda way: sum(way[name] != declared[name] for name in way))
    for way in ways:
        changed = {name: value for name, value in way.items() if value != declared[name]}
        if not changed:
            continue
        try:
            rows = resize(seen.given, **way)
        except ClockhandsError:
            continue
        same = any(np.array_equal(rows, other) for other in tried)
        if same or rows.shape != (spec.rows, spec.width):
            continue
        tried.append(rows)
        moved = "align_corners" in changed or "rows" in changed or "grid" in changed
        yield _with_rows(
            "rows-moved" if moved else "rows-rescaled",
            {"used": _said(changed), "declared": _said({name: declared[name] for name in changed})},
            rows,
            seen,
        )
    nearest = _nearest(seen.given, declared)
    if nearest is not None and nearest.shape == (spec.rows, spec.width):
        said = {"used": "the nearest row is taken", "declared": _said({"kind": declared["kind"]})}
        yield _with_rows("rows-rescaled", said, nearest, seen)


def _with_rows(code: str, parameters: dict[str, str], rows: np.ndarray, seen: Seen) -> Suspect:
    return seen.built(code, parameters, lambda spec: Adding(spec, rows, token_scale=seen.token_scale))


def _ways(declared: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kinds = (("linear", None), ("cubic", None), ("cubic", -0.5), ("cubic", -0.75))
    for (kind, cubic), corners, antialias in itertools.product(kinds, (False, True), (False, True)):
        way = declared | {"kind": kind, "cubic": cubic, "align_corners": corners, "antialias": antialias}
        if corners and antialias:
            continue
        yield way
        sizes, grid = declared.get("rows"), declared.get("grid")
        if isinstance(sizes, tuple) and len(set(sizes)) > 1:
            yield way | {"rows": sizes[::-1]}
        if isinstance(grid, tuple) and len(set(grid)) > 1:
            yield way | {"grid": grid[::-1]}
        if declared.get("scale_factor") is not None:
            yield way | {"scale_factor": None}


def _nearest(given: np.ndarray, declared: dict[str, Any]) -> np.ndarray | None:
    """What interpolation by the nearest row makes, of a table of one axis."""
    kept, rows = declared.get("kept", 0), declared["rows"]
    if not isinstance(rows, int):
        return None
    moving = given[kept:]
    return np.concatenate([given[:kept], moving[np.arange(rows) * len(moving) // rows]])


def _said(way: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in way.items())
