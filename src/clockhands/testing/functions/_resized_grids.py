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
from clockhands.testing.functions._table_functions import TableFunction
from clockhands.testing.reports import Report

_KNOWN = meanings("table", "size", "old_size", "height", "width", "prefix", "patches")
_SIDES = (8, 4, 6, 7, 10, 12, 14, 16, 24, 27, 32)
_WIDTHS = (16, 8, 32, 64)
_ERROR = 1e-4
_SHAPES: Mapping[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    "seq, width": lambda table, _: table,
    "batch, seq, width": lambda table, _: table[None],
    "height, width, channels": lambda table, old: table.reshape(*old, -1),
    "batch, height, width, channels": lambda table, old: table.reshape(1, *old, -1),
    "batch, channels, height, width": lambda table, old: np.moveaxis(table.reshape(*old, -1), -1, 0)[None],
}
"""The shapes of a table, made of its rows and its grid; those with a height have no rows of other tokens."""
_OBLONG = "an old grid that is not square"


class Resizing(NamedTuple):
    """A table [kept + cells of the old grid, width], and the new grid; ``kept`` rows at its start are of no grid."""

    values: np.ndarray
    old: tuple[int, ...]
    rows: tuple[int, ...]
    kept: int

    def given(self, shape: str) -> dict[str, Any]:
        """What a function is given that takes the table in a shape."""
        number = self.kept + math.prod(self.rows)
        return {
            "table": _SHAPES[shape](self.values, self.old), "size": self.rows, "old_size": self.old,
            "height": self.rows[0], "width": self.rows[-1], "prefix": self.kept,
            "patches": np.zeros((number, self.values.shape[1])),
        }  # fmt: skip

    def read(self, answer: Any) -> np.ndarray:
        """The rows of the new grid in an answer, [rows, width]."""
        if not hasattr(answer, "shape") or as_numpy(answer).dtype.kind not in "fV":
            raise Refused(f"it returned {kind_of(answer)}, not a table")
        array, width = as_numpy(answer).astype(np.float64), self.values.shape[1]
        if array.shape[-1] != width and array.shape[1 - array.ndim :][-3:] == (width, *self.rows):
            array = np.moveaxis(array, -3, -1)
        if array.size != (self.kept + math.prod(self.rows)) * width or array.shape[-1] != width:
            grid = " x ".join(map(str, self.rows))
            raise Refused(f"it returned shape {list(array.shape)} for a grid of {grid} and {self.kept} other rows")
        return array.reshape(-1, width)


class ResizedTable(TableFunction):
    """A user's function of a learned table and a size, as a function of positions."""

    def __init__(self, function: Callable[..., Any], takes: Mapping[str, str], one: Resizing, **options: Any) -> None:
        """See `TableFunction`."""
        self.one, self.form = one, ""
        super().__init__(function, takes, one.values.shape[1], wrapping="resized(table, size)", **options)

    def rows_at(self, positions: np.ndarray, dtype: str) -> np.ndarray:
        """See `TableFunction`; the first call finds the shape in which it takes the table."""
        refused: dict[str, Refused] = {}
        for form in (self.form,) if self.form else ("batch, seq, width", *_SHAPES):  # most libraries have a batch
            if "height" in form and (self.one.kept or len(self.one.old) == 1):
                continue
            try:
                answer = self.answered(self.one.given(form), len(self.one.values), dtype)
                rows = self.one.read(answer)
            except Refused as error:
                refused[form] = error
                continue
            self.numbers(answer)
            self.form = form
            return rows[positions]
        raise Refused("; ".join(f"with a table [{form}] {error}" for form, error in refused.items()))

    @property
    def shape_words(self) -> dict[str, Any]:
        """See `Called`."""
        words = (f"table [{self.form}]" if word == "table" else word for word in self.takes.values())
        return {"shape": f"function({', '.join(words)})"}


resizing_taken = partial(named_parameters, known=_KNOWN, enough=(("table", "size"), ("table", "height", "width")))
"""What the parameters of a function mean, if they are a learned table and the size of another grid."""


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
            try:
                got = called.answer(one.given(shape), math.prod(rows), one.read)
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


def _readings(first: Resizing) -> Iterator[NumberRule]:
    """The table in every way of interpolating it, and with the mistakes that do not depend on the way."""
    words = f"learned table of {' x '.join(map(str, first.old))} rows, resized to another grid"
    for way in resizing_ways():
        said = ", ".join(f"{name}={value!r}" for name, value in way.items())
        yield NumberRule(partial(_resized, way=way), f"{words}: {said}")
    for way in resizing_ways():
        for used, other in _OTHER_GRIDS.items():
            told = {"used": used, "declared": "the grids that are passed in, rows before columns"}
            yield NumberRule(
                lambda one, way=way, other=other: _resized(other(one), way), code="rows-moved", parameters=told
            )
        told = {"used": "row p is row p of the old table, where the new grid has as many cells"}
        yield NumberRule(partial(_unchanged, way=way), code="rows-of-old-grid", parameters=told)
        made: _Mistakes = {}
        for code, told, _ in resizing_mistakes(first.values, _declared(first, way)):
            if code in {"rows-of-old-grid", "rows-in-another-order"}:
                rows = partial(_mistaken, way=way, used=told["used"], made=made)
                yield NumberRule(rows, code=code, parameters=told)


_Mistakes = dict[tuple[tuple[int, ...], ...], dict[str, np.ndarray]]
"""The rows of each mistake, by what it uses: of one way, for each two grids."""


_OTHER_GRIDS: Mapping[str, Callable[[Resizing], Resizing]] = {
    "the numbers of rows and columns of the new grid are exchanged": lambda one: one._replace(rows=one.rows[::-1]),
    "the numbers of rows and columns of the old grid are exchanged": lambda one: one._replace(old=one.old[::-1]),
    "a square of as many cells is the old grid": lambda one: one._replace(old=(math.isqrt(math.prod(one.old)),) * 2),
}


def _resized(one: Resizing, way: Mapping[str, Any]) -> np.ndarray:
    try:
        return resize(one.values, **_declared(one, way))
    except ClockhandsError:
        return np.empty((0, 0))


def _unchanged(one: Resizing, way: Mapping[str, Any]) -> np.ndarray:
    return one.values if math.prod(one.old) == math.prod(one.rows) else _resized(one, way)


def _declared(one: Resizing, way: Mapping[str, Any]) -> dict[str, Any]:
    return {**way, "rows": one.rows, "grid": one.old, "kept": one.kept}


def _mistaken(one: Resizing, way: Mapping[str, Any], used: str, made: _Mistakes) -> np.ndarray:
    grids = one.old, one.rows
    if grids not in made:
        mistakes = resizing_mistakes(one.values, _declared(one, way))
        made[grids] = {told["used"]: rows for _, told, rows in mistakes}
    return made[grids].get(used, np.empty((0, 0)))
