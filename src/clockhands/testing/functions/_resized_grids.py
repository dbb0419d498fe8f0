"""Functions that resize a learned table to another grid, checked with a table of the check's own."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clockhands.encodings.additive import resize
from clockhands.errors import ClockhandsError
from clockhands.recognition.calling import Refused, as_numpy, kind_of
from clockhands.recognition.suspects import resizing_mistakes, resizing_ways
from clockhands.testing._checks import named
from clockhands.testing._number_rules import InputNumbers, NamedCall, NumberRule, first_judged, judged, named_parameters
from clockhands.testing._usual_names import meanings
from clockhands.testing.functions._argument_names import NAMES, RESIZING
from clockhands.testing.reports import Report

_NAMES: Mapping[str, tuple[str, ...]] = {
    **{word: NAMES[word] for word in RESIZING},
    "table": (
        *NAMES["table"], "pos_param", "pos_table", "pos_emb", "position_table", "pos_embedding_table", "weight",
        "embeddings", "learned_table", "pe",
    ),
    "size": (*NAMES["size"], "grid", "hw", "shape", "out_size", "target_shape", "new_shape"),
    "height": (*NAMES["height"], "grid_h", "new_h", "target_h", "h1", "patches_h", "num_patches_h", "height_patches"),
    "width": (*NAMES["width"], "grid_w", "new_w", "target_w", "w1", "patches_w", "num_patches_w", "width_patches"),
    "tokens": ("patches", "x", "hidden_states", "patch_embeds", "tokens"),
}  # fmt: skip
_KNOWN = meanings(_NAMES)
_SIDES = (8, 4, 6, 7, 10, 12, 14, 16, 24, 27, 32)
_WIDTHS = (16, 8, 32, 64)
_ERROR = 1e-4
_SHAPES: Mapping[str, Callable[[np.ndarray, tuple[int, int]], np.ndarray]] = {
    "rows, width": lambda table, _: table,
    "1, rows, width": lambda table, _: table[None],
    "height, width, channels": lambda table, old: table.reshape(*old, -1),
    "1, height, width, channels": lambda table, old: table.reshape(1, *old, -1),
    "1, channels, height, width": lambda table, old: np.moveaxis(table.reshape(*old, -1), -1, 0)[None],
}
_OBLONG = "an old grid that is not square"


class Resizing(NamedTuple):
    """A table [kept + cells of the old grid, width], and the new grid; ``kept`` rows at its start are of no grid."""

    values: np.ndarray
    old: tuple[int, int]
    rows: tuple[int, int]
    kept: int


def resizing_taken(function: Callable[..., Any]) -> dict[str, str] | None:
    """What the parameters of a function mean, if they are a learned table and the size of another grid."""
    takes = named_parameters(function, _KNOWN)
    words = {*takes.values()} if takes else set()
    return takes if "table" in words and ("size" in words or {"height", "width"} <= words) else None


def check_resizing(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on a function that resizes a learned table to another grid: from a square, and from an oblong grid.

    Any interpolation of `clockhands.additive.resize` is right; rows in another order, of a grid whose sizes are
    exchanged, or of the old grid are not.

    Raises:
        CannotCheck: It cannot be called, or its rows are those of no known way.
    """
    called = NamedCall(function, takes, backend, timeout)

    def attempt(kept: int, width: int, side: int, shape: str) -> Report:
        values = np.random.default_rng(5).standard_normal((kept + side * side, width))
        halved = (side // 2, side)
        grids = [((side, side), halved), ((side, side), (side - 1, side // 2))]  # not larger: ways differ at edges
        left_out = {_OBLONG: "it takes no such grid with as many rows"}
        if "old_size" in takes.values() and side % 2 == 0:
            left_out = {}
            grids += [((side // 2, 2 * side), halved), ((side // 2, 2 * side), (side, side))]
        asked: list[InputNumbers] = []
        for old, rows in grids:
            one = Resizing(values, old, rows, kept)
            given = {
                "table": _SHAPES[shape](values, old), "old_size": old, "size": rows, "height": rows[0],
                "width": rows[1], "prefix": kept, "tokens": np.zeros((kept + rows[0] * rows[1], width)),
            }  # fmt: skip
            try:
                got = called.answer(given, rows[0] * rows[1], lambda answer, it=one: _read(answer, it))
            except Refused as error:
                if old[0] == old[1]:
                    raise
                left_out[_OBLONG] = f"it takes no such grid: {error}"
                continue
            asked.append(InputNumbers(f"{old[0]} x {old[1]} rows for {rows[0]} x {rows[1]}", one, got))
        report = judged(named(function, None), "additive", asked, _readings(asked[0].given), called, error=_ERROR)
        return replace(report, left_out=left_out)

    return first_judged(
        (f"a table [{shape}]", partial(attempt, kept, width, side, shape))
        for kept, width, side, shape in itertools.product((0, 1), _WIDTHS, _SIDES, _SHAPES)
        if not kept or "height" not in shape
    )


def _read(answer: Any, one: Resizing) -> np.ndarray:
    """The rows of the new grid, [rows, width]."""
    if not hasattr(answer, "shape") or as_numpy(answer).dtype.kind != "f":
        raise Refused(f"it returned {kind_of(answer)}, not a table")
    array, width = as_numpy(answer).astype(np.float64), one.values.shape[1]
    if array.shape[-1] != width and array.shape[-3:] == (width, *one.rows):
        array = np.moveaxis(array, -3, -1)
    if array.size != (one.kept + one.rows[0] * one.rows[1]) * width or array.shape[-1] != width:
        raise Refused(f"it returned shape {list(array.shape)} for a grid of {one.rows[0]} x {one.rows[1]}")
    return array.reshape(-1, width)


def _readings(first: Resizing) -> Iterator[NumberRule]:
    """The table in every way of interpolating it, and with the mistakes that do not depend on the way."""
    words = f"learned table of {' x '.join(map(str, first.old))} rows, resized to another grid"
    for way in resizing_ways():
        yield NumberRule(
            lambda one, way=way: _resized(one, way),
            f"{words}: {', '.join(f'{name}={value!r}' for name, value in way.items())}",
        )
    for way in resizing_ways():
        for used, other in _OTHER_GRIDS.items():
            told = {"used": used, "declared": "the grids that are passed in, rows before columns"}
            yield NumberRule(
                lambda one, way=way, other=other: _resized(other(one), way), code="rows-moved", parameters=told
            )
        told = {"used": "row p is row p of the old table, where the new grid has as many cells"}
        yield NumberRule(lambda one, way=way: _unchanged(one, way), code="rows-of-old-grid", parameters=told)
        for code, told, _ in resizing_mistakes(first.values, _declared(first, way)):
            if code in {"rows-of-old-grid", "rows-in-another-order"}:
                yield NumberRule(partial(_mistaken, way=way, code=code, told=told), code=code, parameters=told)


_OTHER_GRIDS: Mapping[str, Callable[[Resizing], Resizing]] = {
    "the numbers of rows and columns of the new grid are exchanged": lambda one: one._replace(rows=one.rows[::-1]),
    "the numbers of rows and columns of the old grid are exchanged": lambda one: one._replace(old=one.old[::-1]),
    "a square of as many cells is the old grid": lambda one: one._replace(old=(math.isqrt(math.prod(one.old)),) * 2),
}


def _resized(one: Resizing, way: Mapping[str, Any]) -> np.ndarray:
    try:
        return resize(one.values, one.rows, kept=one.kept, grid=one.old, **way)
    except ClockhandsError:
        return np.empty((0, 0))


def _unchanged(one: Resizing, way: Mapping[str, Any]) -> np.ndarray:
    return one.values if math.prod(one.old) == math.prod(one.rows) else _resized(one, way)


def _declared(one: Resizing, way: Mapping[str, Any]) -> dict[str, Any]:
    return {**way, "rows": one.rows, "grid": one.old, "kept": one.kept}


def _mistaken(one: Resizing, way: Mapping[str, Any], code: str, told: Mapping[str, str]) -> np.ndarray:
    made = resizing_mistakes(one.values, _declared(one, way))
    return next((rows for other, words, rows in made if (other, words) == (code, told)), np.empty((0, 0)))
