"""Additive suspects that resize a learned table in another way, or not at all."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode, Learned, resize
from clockhands.errors import ClockhandsError
from clockhands.recognition.suspects._additive_code import AdditiveObservations, StagedAdditive
from clockhands.recognition.suspects._fault_model import FaultModel

_Mistake = tuple[str, dict[str, str], np.ndarray]
"""The code of a fault, its parameters, and the rows that it gives."""


def resized_otherwise(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects that resize the table with one or two other arguments of `clockhands.additive.resize`, or without it."""
    if not isinstance(spec, Learned) or seen.resized is None or seen.given is None:
        return
    declared = {"kind": "linear", "align_corners": False, "antialias": False, "cubic": None} | dict(seen.resized)
    tried: list[np.ndarray] = []
    for code, parameters, rows in itertools.chain(
        _with_arguments(seen.given, declared), resizing_mistakes(seen.given, declared)
    ):
        same = any(np.array_equal(rows, other) for other in tried)
        if not same and rows.shape == (spec.rows, spec.width):
            tried.append(rows)
            yield seen.built(
                code, parameters, lambda it, rows=rows: StagedAdditive(it, rows, token_scale=seen.token_scale)
            )


def _with_arguments(given: np.ndarray, declared: dict[str, Any]) -> Iterator[_Mistake]:
    """The table with other arguments, those that differ in one first."""
    new, old = _grids(len(given) - declared.get("kept", 0), declared)
    ways = sorted(_ways(declared, new, old), key=lambda way: sum(way[name] != declared.get(name) for name in way))
    for way in ways:
        changed = {name: value for name, value in way.items() if value != declared.get(name)}
        if not changed:
            continue
        try:
            rows = resize(given, **way)
        except ClockhandsError:
            continue
        moved = not changed.keys().isdisjoint({"align_corners", "rows", "grid", "scale_factor"})
        before = {name: declared.get(name) for name in changed}
        words = {"used": _arguments_as_text(changed), "declared": _arguments_as_text(before)}
        yield "rows-moved" if moved else "rows-rescaled", words, rows


def resizing_ways() -> Iterator[dict[str, Any]]:
    """The usual interpolations, as arguments of `clockhands.additive.resize`."""
    kinds = (("linear", None), ("cubic", None), ("cubic", -0.5), ("cubic", -0.75))
    for (kind, cubic), corners, antialias in itertools.product(kinds, (False, True), (False, True)):
        if not (corners and antialias):
            yield {"kind": kind, "cubic": cubic, "align_corners": corners, "antialias": antialias}


def _ways(declared: dict[str, Any], new: tuple[int, ...], old: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for interpolation in resizing_ways():
        way, corners = declared | interpolation, interpolation["align_corners"]
        yield way
        sizes, grid = declared.get("rows"), declared.get("grid")
        if isinstance(sizes, tuple) and len(set(sizes)) > 1:
            yield way | {"rows": sizes[::-1]}
        if isinstance(grid, tuple) and len(set(grid)) > 1:
            yield way | {"grid": grid[::-1]}
        if declared.get("scale_factor") is not None:
            yield way | {"scale_factor": None}
        elif not corners and len(new) == len(old) > 1:  # as in DINO
            yield way | {"scale_factor": tuple((after + 0.1) / before for after, before in zip(new, old, strict=True))}


def resizing_mistakes(given: np.ndarray, declared: dict[str, Any]) -> Iterator[_Mistake]:
    """The table with rows that no argument of `resize` gives: a code, its parameters, and the rows of each."""
    kept = declared.get("kept", 0)
    new, old = _grids(len(given) - kept, declared)
    if not old:
        return
    first, cells = given[:kept], given[kept:].reshape(*old, -1)

    def with_first(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([first, rows.reshape(-1, given.shape[-1])])

    def taken(*rows: np.ndarray) -> np.ndarray:
        return with_first(cells[np.ix_(*rows)])

    method = {"declared": _arguments_as_text({"kind": declared["kind"]})}
    nearest = [np.arange(after) * before // after for after, before in zip(new, old, strict=True)]
    yield "rows-rescaled", {"used": "the nearest row is taken", **method}, taken(*nearest)
    number, flat = math.prod(new), given[kept:]
    rows = with_first(flat[np.arange(number) % len(flat)])
    yield "rows-of-old-grid", {"used": "row p of the old table is taken for row p of the new one"}, rows
    if len(new) > 1 and all(after <= before for after, before in zip(new, old, strict=True)):
        rows = taken(*map(np.arange, new))
        yield "rows-of-old-grid", {"used": "the first rows and columns of the old grid are taken"}, rows
    right = resize(given, **declared)
    if len(new) > 1:
        turned = np.swapaxes(right[kept:].reshape(*new, -1), 0, 1)
        words = {"used": "column by column", "declared": "row by row"}
        yield "rows-in-another-order", words, with_first(turned)
        words = {"used": "all rows as one line", "declared": "the two axes of the grid"}
        for kind in dict.fromkeys((declared["kind"], "linear")):
            yield "rows-moved", words, with_first(resize(flat, number, kind))
    if kept:
        ends = {"used": f"the {kept} rows that are not resized come last", "declared": "they come first"}
        yield "rows-in-another-order", ends, np.concatenate([right[kept:], first])
    # Without the half pixel: row i of the new grid is at i old / new.
    at = [np.arange(after) * before / after for after, before in zip(new, old, strict=True)]
    plain: Any = cells
    for axis, places in enumerate(at):
        low = np.floor(places).astype(int)
        high, share = np.minimum(low + 1, old[axis] - 1), places - low
        share = share.reshape(-1, *[1] * (plain.ndim - 1 - axis))
        plain = np.take(plain, low, axis) * (1 - share) + np.take(plain, high, axis) * share
    words = {"used": "row i is at i * old / new (no half pixel)", "declared": "at (i + 1/2) * old / new - 1/2"}
    yield "rows-moved", words, with_first(plain)


def _grids(cells: int, declared: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The new and the old sizes; the old ones are empty if they are not known."""
    new = declared["rows"]
    if isinstance(new, int):
        return (new,), (cells,)
    side = math.isqrt(cells)
    grid = declared.get("grid") or ((side, side) if side * side == cells else ())
    return tuple(new), tuple(grid)


def _arguments_as_text(way: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in way.items())
