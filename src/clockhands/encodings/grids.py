"""Grids: the positions of the cells of an image, a video or a feature map, and the order of the cells.

In every published code of several axes the positions are affine in the cell index: offsets, normalised coordinates,
pixel centres, interpolation scales and crops are all a start and a step. Which axis varies fastest along the rows
differs between model families; a table read in the wrong order raises no error and gives wrong positions.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

import numpy as np

from clockhands.arguments import count, set_fields
from clockhands.encodings.constants import Source
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import HINT_RANGE, LARGEST, Positions, from_exact, positions_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown


@dataclass(frozen=True, init=False, repr=False)
class Grid(Source):
    """The cells of a grid: cell ``i`` of an axis is at ``start + step i``, and the grid is the product of its axes.

    A grid is accepted wherever positions are. Each coordinate ``start + step i`` is computed in exact fractions; its
    whole part is exact and its fractional part is rounded once to float64.

    ============================================== ==================================================================
    pixel centres, ``(i + 1/2) / n``               ``Grid.centres((n, m))``
    ``linspace(-1, 1, n)``                         ``Grid.between((n, m), -1, 1)``
    counted from 1, divided by the last, 2 pi      ``Grid((n, m), start=s, step=s)``, ``s_a = 2 pi / (n_a + 1e-6)``
    a crop from the middle of a larger grid        ``Grid((n, m), start=(top, left))``
    2 L - 1 distances, the largest first           ``Grid(2 * L - 1, start=L - 1, step=-1)``
    ============================================== ==================================================================

    Attributes:
        sizes: Cells of each axis, in the order of the code's axes; one number for a single axis.
        start: Position of the first cell of each axis; one number for all.
        step: Distance from one cell to the next, for each axis; one number for all.
        order: The axes from the slowest to the fastest varying along the rows; by default the order of the axes.
            ``(1, 0)`` is a code of (x, y) whose cells are listed row by row.
        prefix: Number of rows before the first cell that have no position (class and register tokens). An additive
            code gives them zeros; a rotary code does not rotate them (position 0).

    Raises:
        InvalidValue, InvalidType: A number is not allowed, or there is not one for each axis.

    >>> positions_of(Grid((2, 2), start=0.5, order=(1, 0))).as_float64().reshape(-1, 2).tolist()
    [[0.5, 0.5], [1.5, 0.5], [0.5, 1.5], [1.5, 1.5]]
    """

    sizes: tuple[int, ...]
    start: tuple[Fraction, ...]
    step: tuple[Fraction, ...]
    order: tuple[int, ...]
    prefix: int

    def __init__(
        self,
        sizes: int | Iterable[int],
        *,
        start: Any = 0,
        step: Any = 1,
        order: Iterable[int] | None = None,
        prefix: int = 0,
    ) -> None:
        """Check the numbers and convert them to fractions."""
        numbers = tuple(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str | bytes) else (sizes,)
        if not numbers:
            raise InvalidValue("`sizes` must hold at least one axis, got none.", "Write Grid((rows, columns)).")
        set_fields(self, sizes=tuple(count("sizes", size, least=0) for size in numbers))
        axes = len(self.sizes)
        set_fields(self, start=_each("start", start, axes), step=_each("step", step, axes))
        set_fields(self, order=_order(order, axes), prefix=count("prefix", prefix, least=0))
        for number, first, step_ in zip(self.sizes, self.start, self.step, strict=True):
            last = first + max(number - 1, 0) * step_
            if max(abs(first), abs(last)) > LARGEST:
                raise InvalidValue(
                    "Each position of a grid must be from -2**63 to 2**63, got "
                    f"{shown(float(max(first, last, key=abs)))}.",
                    HINT_RANGE,
                )

    @classmethod
    def between(cls, sizes: int | Iterable[int], first: Any, last: Any, **further: Any) -> "Grid":
        """The grid whose first cell is at ``first`` and whose last cell is at ``last``, as in ``linspace``.

        If an axis has one cell, it is at ``first``.

        >>> positions_of(Grid.between(3, -1, 1)).as_float64().tolist()
        [-1.0, 0.0, 1.0]
        """
        blank = cls(sizes)
        starts, ends = (_each(name, given, blank.axes) for name, given in (("first", first), ("last", last)))
        steps = (
            (end - begin) / max(number - 1, 1) for number, begin, end in zip(blank.sizes, starts, ends, strict=True)
        )
        return cls(sizes, start=starts, step=tuple(steps), **further)

    @classmethod
    def centres(cls, sizes: int | Iterable[int], first: Any = 0, last: Any = 1, **further: Any) -> "Grid":
        """The centres of ``n`` equal cells between ``first`` and ``last``: ``first + (last - first) (i + 1/2) / n``.

        >>> positions_of(Grid.centres(4)).as_float64().tolist()
        [0.125, 0.375, 0.625, 0.875]
        """
        blank = cls(sizes)
        starts, ends = (_each(name, given, blank.axes) for name, given in (("first", first), ("last", last)))
        steps = tuple(
            (end - begin) / max(number, 1) for number, begin, end in zip(blank.sizes, starts, ends, strict=True)
        )
        starts = tuple(begin + step / 2 for begin, step in zip(starts, steps, strict=True))
        return cls(sizes, start=starts, step=steps, **further)

    @property
    def axes(self) -> int:
        """Number of axes."""
        return len(self.sizes)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return math.prod(self.sizes)

    def __len__(self) -> int:
        """Number of rows: the cells and the rows without a position."""
        return self.prefix + self.cells

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The NumPy array: float64 [rows] or [rows, axes], NaN for rows without a position.

        Raises:
            InvalidValue: ``copy=False`` was given, but a grid stores no array that could be returned.
        """
        if copy is False:
            raise InvalidValue(
                "A grid can be converted to an array only by a copy, but copy=False was given.", "Leave `copy` out."
            )
        at = without_prefix(self)[1].as_positions().as_float64()
        at = at.reshape(self.cells, self.axes) if self.axes > 1 else at.reshape(self.cells)
        nowhere = np.full((self.prefix, *at.shape[1:]), np.nan)
        return np.concatenate((nowhere, at)).astype(dtype or np.float64, copy=False)

    def __repr__(self) -> str:
        """The call that makes it."""
        words = [repr(self.sizes)]
        for name, usual in (("start", 0), ("step", 1)):
            numbers = tuple(map(_as_number, getattr(self, name)))
            words += [f"{name}={numbers}"] if set(numbers) != {usual} else []
        words += [f"order={self.order}"] if self.order != tuple(range(self.axes)) else []
        words += [f"prefix={self.prefix}"] if self.prefix else []
        return f"Grid({', '.join(words)})"

    def line(self, axis: int) -> Positions:
        """The positions of the cells along one axis."""
        number, start, step = self.sizes[axis], self.start[axis], self.step[axis]
        if start.denominator == step.denominator == 1 and step:
            return Positions((number,), start=int(start), step=int(step))
        refuse_larger((number,), 17, "An axis")
        # Multiplied by their common denominator they are integers, of any size.
        scale = math.lcm(start.denominator, step.denominator)
        begin, move = int(start * scale), int(step * scale)
        return from_exact([_exact_quotient(begin + move * cell, scale) for cell in range(number)], (number,))

    def as_positions(self, name: str = "positions") -> Positions:
        """The positions of the cells, [cells] or [cells, axes].

        Raises:
            InvalidValue: The grid has rows without a position.
            TooLarge: The positions would not fit in memory.
        """
        if self.prefix:
            raise InvalidValue(
                f"`{name}` has {self.prefix} rows without a position, but positions are needed here.",
                "Leave out the grid's prefix.",
            )
        if self.axes == 1:
            return replace(self.line(0), grid=self)
        refuse_larger((self.cells, self.axes), 17, "A grid", "Ask for fewer cells at once.")
        lines = [self.line(axis) for axis in range(self.axes)]
        limbs = [line.sizes(0, line.size) for line in lines]
        whole = self._spread([limb.whole for limb in limbs], np.uint64)
        part = self._spread([limb.part for limb in limbs], np.float64)
        negative = self._spread([limb.negative for limb in limbs], bool)
        return Positions((self.cells, self.axes), whole, part, negative, grid=self)

    def _spread(self, limbs: list[Any], dtype: type) -> np.ndarray | None:
        """Spread the limbs of each axis over all cells, [cells, axes]; None where no axis has limbs."""
        if all(limb is None for limb in limbs):
            return None
        out = np.zeros((*(self.sizes[axis] for axis in self.order), self.axes), dtype)
        for axis, limb in enumerate(limbs):
            if limb is not None:
                along = [1] * self.axes
                along[self.order.index(axis)] = -1
                out[..., axis] = limb.reshape(along)
        return out.reshape(self.cells, self.axes)


def without_prefix(given: Any) -> tuple[int, Any]:
    """The number of rows of a grid without a position, and the other positions; 0 where ``given`` is not a grid."""
    if isinstance(given, Grid) and given.prefix:
        return given.prefix, Grid(given.sizes, start=given.start, step=given.step, order=given.order)
    return 0, given


def at_origin(given: Any, name: str = "positions") -> Positions:
    """`positions_of`, with position 0 on every axis for rows without a position."""
    prefix, cells = without_prefix(given)
    at = positions_of(cells, name)
    if not prefix:
        return at
    sizes = at.sizes(0, at.size)
    shape = (prefix + at.shape[0], *at.shape[1:])
    blank = prefix * math.prod(at.shape[1:])

    def led(limb: np.ndarray | None) -> np.ndarray | None:
        return None if limb is None else np.concatenate([np.zeros(blank, limb.dtype), limb]).reshape(shape)

    return Positions(shape, led(sizes.whole), led(sizes.part), led(sizes.negative))


def _each(name: str, given: Any, axes: int) -> tuple[Fraction, ...]:
    """One number per axis, as exact fractions."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes) and not hasattr(given, "__float__")
    numbers = tuple(given) if several else (given,) * axes
    if len(numbers) != axes:
        raise InvalidValue(
            f"`{name}` must be one number, or one for each of {axes} axes, got {len(numbers)}.",
            "Give them in the order of the axes.",
        )
    return tuple(_fraction(name, number) for number in numbers)


def _fraction(name: str, number: Any) -> Fraction:
    if isinstance(number, Rational) and not isinstance(number, bool):
        return Fraction(int(number.numerator), int(number.denominator))
    if not isinstance(number, Real) or isinstance(number, bool | np.bool_):
        raise InvalidType(
            f"`{name}` must be numbers, got {shown(number)}.", "Give ints, floats or fractions, one for each axis."
        )
    if not math.isfinite(number):
        raise InvalidValue(f"`{name}` must be finite, got {shown(float(number))}.", "Give a number for each axis.")
    return Fraction(float(number))


def _as_number(number: Fraction) -> int | float | Fraction:
    """A fraction as an integer or a float where one represents it exactly, else unchanged."""
    if number.denominator == 1:
        return int(number)
    return float(number) if Fraction(float(number)) == number else number


def _order(order: Iterable[int] | None, axes: int) -> tuple[int, ...]:
    if order is None:
        return tuple(range(axes))
    given = tuple(order) if isinstance(order, Iterable) else (order,)
    if sorted(map(str, given)) != sorted(map(str, range(axes))):
        raise InvalidValue(
            f"`order` must name each of the axes {', '.join(map(str, range(axes)))} once, got {shown(given)}.",
            "Name first the axis that changes slowest from row to row.",
        )
    return tuple(int(axis) for axis in given)


def _exact_quotient(number: int, divisor: int) -> tuple[int, float, bool]:
    """An integer over another as (whole, part, negative), the part rounded to float64."""
    whole, rest = divmod(abs(number), divisor)
    part = rest / divisor  # of integers: correctly rounded
    return (whole + 1, 0.0, number < 0) if part == 1 else (whole, part, number < 0)
