"""Additive implementations under experiment: somebody's function, or a suspect, and what is right beside them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode, Binary, Learned, NormalizedCounter, Sinusoidal, WarpedPosition, table
from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError
from clockhands.faults import StagedAdditive, Suspect
from clockhands.grids import Grid
from clockhands.testing.additive_bounds import added_error, is_scaled, row_error, wave_error
from clockhands.testing.asking import Outside
from clockhands.testing.calling import first_places, first_shape, in_runs
from clockhands.testing.experiments import Answer, Unasked


@dataclass
class Right:
    """What is right: the rows of a code, and how far they may be off, each made once.

    Attributes:
        spec: The code.
        values: Its learned numbers, or None.
        token_scale: What tokens are multiplied by before the code is added.
        grid: Whose cells the rows are, where positions are the numbers of rows, or None.
    """

    spec: AdditiveCode
    values: Any
    token_scale: float
    grid: Grid | None = None
    _made: dict[tuple[bytes, tuple[int, ...]], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _others: dict[AdditiveCode, "Right"] = field(default_factory=dict)

    def rows(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows at these positions, float64, and their errors."""
        key = (at.tobytes(), at.shape)
        if key not in self._made:
            self._made[key] = self._rows(at)
        return self._made[key]

    def _rows(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.grid is None:
            rows = table(self.spec, at, "float64", values=self.values)
            return rows, row_error(self.spec, self.values, at, rows)
        rows, cells = table(self.spec, self.grid, "float64", values=self.values)[at], np.asarray(self.grid)[at]
        error = row_error(self.spec, self.values, np.nan_to_num(cells), rows)
        nowhere: np.ndarray = np.any(np.isnan(cells.reshape(*at.shape, -1)), axis=-1)
        return rows, np.where(nowhere[..., None], 0.0, error)

    @property
    def axes(self) -> int:
        """Coordinates of a position."""
        return 1 if self.grid is not None else self.spec.number_of_axes

    def of(self, spec: AdditiveCode) -> "Right":
        """The same of another spec, which has no learned numbers of its own."""
        return self._others.setdefault(spec, Right(spec, self.values, self.token_scale, self.grid))

    @property
    def lowest(self) -> int:
        """The first position that has a row."""
        return 1 if self.grid is None and isinstance(self.spec, WarpedPosition) and self.spec.warp != "square" else 0

    @property
    def goes_below_zero(self) -> bool:
        """Whether positions below 0 have rows."""
        return (
            self.lowest == 0 and self.grid is None and not isinstance(self.spec, Learned | Binary | NormalizedCounter)
        )

    @property
    def ends(self) -> int | None:
        """The first position that has no row any more; None where there is none."""
        if self.grid is not None:
            return len(self.grid)
        if isinstance(self.spec, Learned):
            return self.spec.usable
        if isinstance(self.spec, Sinusoidal) and self.spec.standardised is not None:
            return self.spec.standardised
        return self.spec.length if isinstance(self.spec, NormalizedCounter) else None


@dataclass
class OutsideAdding(Outside):
    """Somebody's additive function.

    Attributes:
        right: What it should give.
        negative: Whether it takes positions below 0; None where that is not said.
    """

    right: Right = None  # type: ignore[assignment]
    negative: bool | None = None

    @property
    def lowest(self) -> int:
        """The first position that it can be asked for."""
        return max(self.right.lowest, self.counted_from)

    @property
    def counted_from(self) -> int:
        """The position of the first row, where it counts its rows itself: that of a sequence's first token."""
        return self.right.spec.first if self.call == "x" and self.right.grid is None else 0

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `clockhands.testing.asking.Implementation`."""
        return self.called(x, positions - self.counted_from, dtype=dtype)


@dataclass
class InsideAdding:
    """A suspect, asked as somebody's function is."""

    like: OutsideAdding
    right: Right
    process: Any
    first: str | None = None

    def __post_init__(self) -> None:
        """Build the first model, and ask it what `Called` asks when it looks whether something can be called."""
        self.built = self.process(self.spec)
        shape = first_shape(self.like.axes, self.spec.width)
        x = np.zeros(shape) if self.call == "positions" else np.ones(shape)
        self(x, self.right.lowest + first_places(self.right.axes), dtype=self.first)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: OutsideAdding) -> "InsideAdding":
        """In a process of its own."""
        return cls(like, like.right, suspect.make())

    @property
    def spec(self) -> AdditiveCode:
        """The code that it should be."""
        return self.right.spec

    def __getattr__(self, name: str) -> Any:
        # Where it is asked in the same way: the dtypes, the length, the call.
        return getattr(self.like, name)

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `clockhands.testing.asking.Implementation`."""

        def ask(part: np.ndarray, at: np.ndarray) -> np.ndarray:
            return self.built(part, at, dtype or self.dtype, role)

        # State is kept from call to call, so a suspect is called as often as what is checked.
        return in_runs(ask, x, positions) if self.call == "x, offset" else ask(x, positions)

    def errors(self, errors: np.ndarray) -> np.ndarray:
        """How far the rows that it made last may be off, where its phases are longer than those of the code."""
        built = self.built
        if not isinstance(built, StagedAdditive) or built.hands is None or self.call == "x, offset":
            return errors
        own = abs(built.scale) * wave_error(built.spec, built.hands, built.reached)
        return np.maximum(errors, own[:, None] if own.ndim == 3 else own)

    def of(self, spec: AdditiveCode, first: str | None = None) -> "InsideAdding":
        """Another model of this process; its first tokens come in the dtype ``first``."""
        return InsideAdding(self.like, self.right.of(spec), self.process, first)


def tokens(it: Any, *shape: int, seed: int = 0, dtype: str | None = None) -> np.ndarray:
    """Tokens [batch, heads, seq, width] that the dtype holds exactly; zeros for a table alone."""
    if it.call == "positions":
        return np.zeros((*shape, it.spec.width))
    drawn = np.random.default_rng(seed).standard_normal((*shape, it.spec.width))
    return drawn.astype(output_dtype(dtype or it.dtype)).astype(np.float64)


def at_axes(axes: int, positions: np.ndarray) -> np.ndarray:
    """Positions of text: every coordinate is the token's."""
    return positions if axes == 1 else np.repeat(positions[..., None], axes, axis=-1)


def answer(
    it: Any,
    asked: str,
    x: np.ndarray,
    positions: np.ndarray,
    *,
    dtype: str | None = None,
    given: bool = False,
) -> Answer:
    """Ask, and put what is right beside it.

    Args:
        it: Whom.
        asked: In words.
        x: Tokens [batch, heads, seq, width].
        positions: [seq] or [batch, seq].
        dtype: The dtype of the tokens, if not the implementation's own.
        given: Whether positions have their coordinates already.
    """
    spec, right = it.right.spec, it.right
    at = positions if given else at_axes(right.axes, positions)
    try:
        rows, errors = right.rows(at)
    except ClockhandsError as error:
        raise Unasked(str(error)) from error
    got = it(x, at, dtype=dtype)
    if rows.ndim == 3:
        rows, errors = rows[:, None], errors[:, None]
    x = np.zeros_like(x) if it.call == "positions" else x
    size = rows
    if isinstance(it, InsideAdding):  # as far off as honest arithmetic of what it makes would be
        errors = it.errors(errors)
        size = np.maximum(np.abs(rows), np.abs(got - right.token_scale * x))
    allowed = added_error(x, size, errors, dtype or it.dtype, token_scale=right.token_scale, scaled=is_scaled(spec))
    where = positions[..., 0] if given and right.axes > 1 else positions
    shown = np.broadcast_to(where, (len(x), x.shape[-2]))[:, None]
    return Answer(asked, got, right.token_scale * x + rows, allowed, shown)


__all__ = ["InsideAdding", "OutsideAdding", "Right", "answer", "at_axes", "tokens"]
