"""Functions that resize a learned table to another grid, checked with a table of the check's own."""

import itertools
from collections.abc import Callable, Iterator, Mapping
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
_SHAPES: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "rows, width": lambda table, _: table,
    "1, rows, width": lambda table, _: table[None],
    "height, width, channels": lambda table, side: table.reshape(side, side, -1),
    "1, height, width, channels": lambda table, side: table.reshape(1, side, side, -1),
    "1, channels, height, width": lambda table, side: np.moveaxis(table.reshape(side, side, -1), -1, 0)[None],
}


class Resizing(NamedTuple):
    """A table [kept + side * side, width], and the new grid; ``kept`` rows at its start are of no grid."""

    values: np.ndarray
    side: int
    rows: tuple[int, int]
    kept: int


def resizing_taken(function: Callable[..., Any]) -> dict[str, str] | None:
    """What the parameters of a function mean, if they are a learned table and the size of another grid."""
    takes = named_parameters(function, _KNOWN)
    words = {*takes.values()} if takes else set()
    return takes if "table" in words and ("size" in words or {"height", "width"} <= words) else None


def check_resizing(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on a function that resizes a learned table to a grid that is not square.

    Any interpolation of `clockhands.additive.resize` is right; rows in another order, of a grid whose sizes are
    exchanged, or of the old grid are not.

    Raises:
        CannotCheck: It cannot be called, or its rows are those of no known way.
    """
    called = NamedCall(function, takes, backend, timeout)

    def attempt(kept: int, width: int, side: int, shape: str) -> Report:
        values = np.random.default_rng(5).standard_normal((kept + side * side, width))
        asked = []
        for rows in ((side // 2, side), (side - 1, side // 2)):  # not larger, where ways differ at the edges
            one = Resizing(values, side, rows, kept)
            given = {
                "table": _SHAPES[shape](values, side), "old_size": (side, side), "size": rows, "height": rows[0],
                "width": rows[1], "prefix": kept, "tokens": np.zeros((kept + rows[0] * rows[1], width)),
            }  # fmt: skip
            got = called.answer(given, rows[0] * rows[1], lambda answer, it=one: _read(answer, it))
            asked.append(InputNumbers(f"a grid of {rows[0]} x {rows[1]}", one, got))
        rules = _readings(asked[0].given)
        return judged(named(function, None), "additive", asked, rules, called, error=_ERROR)

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
    words = f"learned table of {first.side} x {first.side} rows, resized to another grid"
    for way in resizing_ways():
        yield NumberRule(
            lambda one, way=way: _resized(one, way),
            f"{words}: {', '.join(f'{name}={value!r}' for name, value in way.items())}",
        )
    for way in resizing_ways():
        used = "the numbers of rows and columns of the new grid are exchanged"
        yield NumberRule(
            lambda one, way=way: _resized(one._replace(rows=one.rows[::-1]), way),
            code="rows-moved", parameters={"used": used, "declared": "rows, then columns"},
        )  # fmt: skip
        for number, (code, parameters) in enumerate(_mistakes(first, way)):
            if code in {"rows-of-old-grid", "rows-in-another-order"}:
                yield NumberRule(
                    lambda one, way=way, number=number: _mistaken(one, way, number), code=code, parameters=parameters
                )


def _resized(one: Resizing, way: Mapping[str, Any]) -> np.ndarray:
    try:
        return resize(one.values, one.rows, kept=one.kept, grid=(one.side, one.side), **way)
    except ClockhandsError:
        return np.empty((0, 0))


def _declared(one: Resizing, way: Mapping[str, Any]) -> dict[str, Any]:
    return {**way, "rows": one.rows, "grid": (one.side, one.side), "kept": one.kept}


def _mistakes(one: Resizing, way: Mapping[str, Any]) -> list[tuple[str, dict[str, str]]]:
    return [(code, parameters) for code, parameters, _ in resizing_mistakes(one.values, _declared(one, way))]


def _mistaken(one: Resizing, way: Mapping[str, Any], number: int) -> np.ndarray:
    made = list(resizing_mistakes(one.values, _declared(one, way)))
    return made[number][2] if number < len(made) else np.empty((0, 0))
