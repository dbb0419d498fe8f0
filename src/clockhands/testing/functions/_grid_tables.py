"""Tables of the cells of a grid, from its sizes: which coordinate each column follows, and in which order rows come."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from clockhands.phrases import listed
from clockhands.recognition.calling import Refused, as_numpy, kind_of
from clockhands.testing._checks import named
from clockhands.testing._number_rules import (
    InputNumbers,
    NamedCall,
    NumberRule,
    first_judged,
    judged,
    named_parameters,
)
from clockhands.testing._usual_names import meanings
from clockhands.testing.reports import CannotCheck, Report

_KNOWN = meanings("height", "width", "frames", "size", "latents", "channels")
_NO_DEFAULT = inspect.Parameter.empty
_AXES = ("time", "row", "column")
_BLOCKS = "cells in blocks of 2 x 2, as Qwen2-VL merges them"
_SIZES = (3, 8, 12)  # of different lengths, so that one axis cannot be taken for another
_SIDE = 32  # of a grid whose rows are compared with those of an encoding
_WIDTHS = (64, 48, 32, 16, 96, 128, 24, 256)
_ERROR = 1e-4

T = TypeVar("T")


class GridTable(NamedTuple):
    """A table of a grid.

    Attributes:
        sizes: The cells along each axis: frames, rows and columns.
        columns: Its numbers [cells, columns]; complex if the function returned cosines and sines.
    """

    sizes: tuple[int, int, int]
    columns: np.ndarray


def grid_taken(function: Callable[..., Any]) -> dict[str, str] | None:
    """What the parameters of a function mean, if they are the sizes of a grid."""
    takes = named_parameters(function, _KNOWN, (("height", "width"), ("size",), ("latents",)))
    if takes is None:
        return None
    given = inspect.signature(getattr(function, "forward", function)).parameters
    return {name: word for name, word in takes.items() if word != "channels" or given[name].default is _NO_DEFAULT}


# Without an expected encoding it is not known which columns a coordinate should have: heads may see one of them alone.
_UNCOMPARED = {"frequencies, and which columns each coordinate has": "no expected encoding is named"}

# A function of one side alone.
_SQUARE = {"which of two coordinates is the row": "it takes no two sides: its grids are square"}


def check_grid(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on a function that makes the table of a grid.

    Raises:
        CannotCheck: It cannot be called, its columns follow no single coordinate, or only an encoding can say whether
            its frequencies are right.
    """
    called = NamedCall(function, takes, backend, timeout)

    def judge(table: GridTable) -> Report:
        asked = [InputNumbers("cells of a grid", table, _real(table.columns))]
        report = judged(named(function, None), "additive", asked, list(_readings(table)), called, error=_ERROR)
        report = _unless_stretched(report, table)
        square = table.sizes[1] == table.sizes[2] > 1
        return replace(report, left_out=_UNCOMPARED | (_SQUARE if square else {})) if report.sound else report

    return first_judged(_attempts(called, _SIZES, judge))


def rows_at_positions(
    function: Callable[..., Any], takes: Mapping[str, str], spec: Any, backend: Any, timeout: float
) -> tuple[Callable[[np.ndarray], Any], int]:
    """A function(positions [seq, axes]) of the rows of a grid's table, and the number of positions on each axis.

    Raises:
        CannotCheck: The function cannot be called.
    """
    called = NamedCall(function, takes, backend, timeout)
    width = getattr(spec, "head_width", None) or spec.width
    table: GridTable = first_judged(_attempts(called, (_SIDE, _SIDE, _SIDE), lambda table: table, (width, *_WIDTHS)))
    sizes = table.sizes[3 - spec.number_of_axes :]

    def rows(positions: np.ndarray) -> Any:
        found = table.columns[np.ravel_multi_index(tuple(np.asarray(positions).T), sizes)]
        return (np.real(found), np.imag(found)) if np.iscomplexobj(found) else found

    return rows, min(sizes)


def _attempts(
    called: NamedCall, sizes: tuple[int, int, int], then: Callable[[GridTable], T], widths: Sequence[int] = _WIDTHS
) -> Iterator[tuple[str, Callable[[], T]]]:
    """The ways to call a function for the table of a grid, and what is then made of the table."""
    words = {*called.takes.values()}

    def attempt(three: bool, channels: int, square: bool = False) -> T:
        frames, height, width = (sizes[0], sizes[2], sizes[2]) if square else sizes
        given = {
            "frames": frames, "height": height, "width": width,
            "size": width if square else sizes if three else sizes[1:],
            "channels": channels, "latents": np.zeros((1, channels, *(sizes if three else sizes[1:]))),
        }  # fmt: skip
        cells = (frames if three and words & {"frames", "size", "latents"} else 1, height, width)
        made: list[GridTable] = []

        def read(answer: Any) -> np.ndarray:
            made.append(_read(answer, cells))
            return _real(made[-1].columns)

        called.answer(given, int(np.prod(cells)), read)
        return then(made[-1])

    for three, channels in itertools.product((True, False), widths):
        if three or "frames" not in words:
            yield "frames, rows and columns" if three else "rows and columns", partial(attempt, three, channels)
    for channels in widths if "size" in words else ():
        yield "one side of a square", partial(attempt, False, channels, square=True)


def _unless_stretched(report: Report, table: GridTable) -> Report:
    cells = _cells_of_blocks(table)
    if _BLOCKS in report.like and cells is not None:
        table = table._replace(columns=table.columns[np.argsort(cells)])
    if report.sound and (stretched := _stretched(table)):
        raise CannotCheck(
            f"The highest frequency of {stretched}: right only for a model that declares it. Each column follows one "
            f"coordinate, and the order of the cells is a published one.",
            "Name the encoding that is expected: --like PRESET:field=value or --like FILE.json of clockhands.to_json.",
        )
    return report


def _read(answer: Any, sizes: tuple[int, int, int]) -> GridTable:
    """The table in an answer: an array, complex or real, or cosines and sines."""
    parts = (
        list(answer.values())
        if isinstance(answer, Mapping)
        else answer
        if isinstance(answer, tuple | list)
        else [answer]
    )
    if not 0 < len(parts) < 3 or not all(hasattr(part, "shape") and hasattr(part, "dtype") for part in parts):
        raise Refused(f"it returned {kind_of(answer)}, not a table or cosines and sines")
    arrays = [as_numpy(part) for part in parts]
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim < 2 or arrays[0].dtype.kind not in "fc":
        raise Refused(f"it returned shapes {listed(str(list(array.shape)) for array in arrays)}")
    for patch in ((1, 1, 1), (1, 2, 2), (2, 2, 2), (1, 4, 4)):
        cells = (sizes[0] // patch[0], sizes[1] // patch[1], sizes[2] // patch[2])
        rows = [found for array in arrays if (found := _rows(array, cells)) is not None]
        if rows and any(np.ptp(np.abs(row - row[0])) > 0.01 for row in rows):  # constants are the table of no grid
            return GridTable(cells, rows[0] if len(rows) == 1 else rows[0] + 1j * rows[1])
    raise Refused(f"it returned shape {list(arrays[0].shape)} for {' x '.join(map(str, sizes))} cells")


def _rows(array: np.ndarray, cells: tuple[int, ...]) -> np.ndarray | None:
    """An array as [cells, columns], from that, [*grid, columns] or [columns, *grid]; axes of size 1 do not matter."""
    shape = [size for size in array.shape if size > 1]
    number, grid = int(np.prod(cells)), [size for size in cells if size > 1]
    array = array.reshape(shape)
    if len(shape) == 2 and shape[0] == number:
        return array
    if shape[:-1] == grid:
        return array.reshape(number, -1)
    if shape[1:] == grid:
        return np.moveaxis(array, 0, -1).reshape(number, -1)
    return None


def _real(columns: np.ndarray) -> np.ndarray:
    return np.concatenate([np.real(columns), np.imag(columns)], -1) if np.iscomplexobj(columns) else columns


def _followed(table: GridTable, order: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The table made again of one coordinate for each column, with the axes in an order; and that coordinate's axis."""
    cells = table.columns.reshape(*(table.sizes[axis] for axis in order), -1)
    made = []
    for axis in range(3):
        only = tuple(slice(None) if each == axis else slice(0, 1) for each in range(3))
        made.append(np.broadcast_to(cells[only], cells.shape).reshape(table.columns.shape))
    off = np.stack([np.abs(each - table.columns).max(0) for each in made])
    nearest = off.argmin(0)
    return np.choose(nearest, [each.astype(table.columns.dtype) for each in made]), np.asarray(order)[nearest]


def _readings(table: GridTable) -> Iterator[NumberRule]:
    """Cells row by row with each column of the coordinate of its ladder; other orders, and columns of another axis."""
    rows, axes = _followed(table, (0, 1, 2))
    kind = "rotary tables" if np.iscomplexobj(table.columns) else "additive table"
    axis_words = listed(name for axis, name in enumerate(_AXES) if (axes == axis).any() and table.sizes[axis] > 1)
    words = f"{kind} of a grid, cells row by row, each column of one coordinate ({axis_words})"
    misplaced = _misplaced(table, axes)
    expected = rows.copy()
    for column, axis in misplaced.items():
        expected[:, column] = _wave(table, column, int(axes[column]), axis)
    yield NumberRule(lambda _: _real(expected), words)
    cells = _cells_of_blocks(table)
    if cells is not None:
        by_rows, _ = _followed(table._replace(columns=table.columns[np.argsort(cells)]), (0, 1, 2))
        blocks = words.replace("cells row by row", _BLOCKS)
        yield NumberRule(lambda _: _real(by_rows[cells]), blocks)
    if misplaced:
        columns = listed(f"{column} ({_AXES[axis]})" for column, axis in misplaced.items())
        yield NumberRule(lambda _: _real(rows), code="columns-of-next-axis", parameters={"columns": columns})
    for order in itertools.permutations(range(3)):
        kept = [axis for axis in order if table.sizes[axis] > 1]
        if kept != sorted(kept):
            other, _ = _followed(table, order)
            used = f"{' by '.join(_AXES[axis] for axis in kept)}, the {_AXES[kept[-1]]} changes fastest"
            parameters = {"used": used, "declared": f"the {_AXES[max(kept)]} changes fastest"}
            yield NumberRule(lambda _, other=other: _real(other), code="rows-in-another-order", parameters=parameters)


def _cells_of_blocks(table: GridTable) -> np.ndarray | None:
    """The cells, numbered row by row, in the order of blocks of 2 x 2; None of a grid that has none."""
    frames, height, width = table.sizes
    if height % 2 or width % 2:
        return None
    cells = np.arange(frames * height * width).reshape(frames, height // 2, 2, width // 2, 2)
    return cells.swapaxes(2, 3).ravel()


def _rate(table: GridTable, column: int, axis: int) -> float:
    """The angle from one cell to the next along an axis, of a column of cosines and sines."""
    cells = np.moveaxis(table.columns.reshape(*table.sizes, -1), axis, 0)[:, 0, 0, column]
    return float(np.angle(cells[1] / cells[0])) if len(cells) > 1 and cells[0] else 0.0


def _misplaced(table: GridTable, axes: np.ndarray) -> dict[int, int]:
    """Columns at the start of an axis that go on with the ladder of the axis before, each with that axis."""
    if not np.iscomplexobj(table.columns):
        return {}
    rates = [_rate(table, column, int(axis)) for column, axis in enumerate(axes)]
    starts = [0, *(np.flatnonzero(np.diff(axes)) + 1), len(axes)]
    found: dict[int, int] = {}
    for first, start, end in zip(starts, starts[1:], starts[2:], strict=False):
        before = [rate for rate in dict.fromkeys(np.round(rates[first:start], 7)) if rate > 0]
        rising = [column for column in range(start + 1, end) if rates[column] > 2 * rates[column - 1] > 0]
        if len(before) < 3 or len(rising) != 1:
            continue
        early = rates[start : rising[0]]
        # Of the ladder before they have its last frequency, or the one that comes after it.
        ladder = (before[-1], before[-1] ** 2 / before[-2])
        if all(any(abs(rate / each - 1) < 0.02 for each in ladder) for rate in early):
            found |= dict.fromkeys(range(int(start), rising[0]), int(axes[first]))
    return found


def _wave(table: GridTable, column: int, axis: int, other: int) -> np.ndarray:
    """A column that follows another axis with its own frequency."""
    at = np.indices(table.sizes)[other].reshape(-1)
    return table.columns[0, column] * np.exp(1j * _rate(table, column, axis) * at)


def _stretched(table: GridTable) -> str:
    """The coordinates whose highest frequency is not 1, with it, where that of another is; empty if there are none."""
    if not np.iscomplexobj(table.columns):
        return ""
    axes = _followed(table, (0, 1, 2))[1]
    highest = {
        axis: max(abs(_rate(table, int(column), axis)) for column in np.flatnonzero(axes == axis))
        for axis in range(3)
        if table.sizes[axis] > 1 and (axes == axis).any()
    }
    if not any(abs(rate - 1) < _ERROR for rate in highest.values()):
        return ""
    others = [f"the {_AXES[axis]} coordinate is {rate:.6g}" for axis, rate in highest.items() if abs(rate - 1) > _ERROR]
    return listed(others)
