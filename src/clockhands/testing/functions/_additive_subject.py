"""An additive function under test, what is expected of it, and the experiments on it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from clockhands.encodings.additive import (
    AdditiveCode,
    AxialSinusoidal,
    Binary,
    Learned,
    NormalizedCounter,
    Sinusoidal,
    WarpedPosition,
    table,
)
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Geometric
from clockhands.errors import ClockhandsError
from clockhands.recognition.channel_waves import sinusoid_channels
from clockhands.recognition.probe_positions import probe_positions
from clockhands.recognition.suspects import StagedAdditive
from clockhands.testing._experiments import ROWS, Answer, Unasked, experiment
from clockhands.testing.bounds import added_error, is_scaled, row_error, wave_error
from clockhands.testing.functions._tokens import ALONE, COUNTS, CheckedTokens, a_few_positions, token_experiments


@dataclass
class Right:
    """The expected rows of an encoding and the bounds of their errors; each is computed once and kept.

    Attributes:
        spec: The encoding.
        values: Its learned numbers, or None.
        token_scale: The factor of the tokens, before the encoding is added.
        grid: The grid whose cells the rows are, if positions are row numbers; or None.
        resizing: What the error of resizing may add to each number.
    """

    spec: AdditiveCode
    values: Any
    token_scale: float
    grid: Grid | None = None
    resizing: float = 0.0
    _made: dict[tuple[bytes, tuple[int, ...]], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _others: dict[AdditiveCode, "Right"] = field(default_factory=dict)

    def rows(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows at these positions and the bounds of their errors, both float64 [..., seq, width]."""
        key = (at.tobytes(), at.shape)
        if key not in self._made:
            self._made[key] = self._rows(at)
        return self._made[key]

    def _rows(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.grid is None:
            rows = table(self.spec, at, "float64", values=self.values)
            return rows, row_error(self.spec, self.values, at, rows) + self.resizing
        rows, cells = table(self.spec, self.grid, "float64", values=self.values)[at], np.asarray(self.grid)[at]
        error = row_error(self.spec, self.values, np.nan_to_num(cells), rows)
        nowhere: np.ndarray = np.any(np.isnan(cells.reshape(*at.shape, -1)), axis=-1)
        return rows, np.where(nowhere[..., None], 0.0, error)

    @property
    def axes(self) -> int:
        """The number of coordinates of a position."""
        return 1 if self.grid is not None else self.spec.number_of_axes

    def of(self, spec: AdditiveCode) -> "Right":
        """The same for another spec, with the same learned numbers."""
        return self._others.setdefault(spec, Right(spec, self.values, self.token_scale, self.grid))

    @property
    def lowest(self) -> int:
        """The first valid position: 1 if the warp is not defined at 0, otherwise 0."""
        return 1 if self.grid is None and isinstance(self.spec, WarpedPosition) and self.spec.warp != "square" else 0

    @property
    def goes_below_zero(self) -> bool:
        """Whether negative positions are valid."""
        return (
            self.lowest == 0 and self.grid is None and not isinstance(self.spec, Learned | Binary | NormalizedCounter)
        )

    @property
    def ends(self) -> int | None:
        """The first position after the valid ones; None if there is no limit."""
        if self.grid is not None:
            return len(self.grid)
        if isinstance(self.spec, Learned):
            return self.spec.usable
        if isinstance(self.spec, Sinusoidal) and self.spec.standardised is not None:
            return self.spec.standardised
        return self.spec.length if isinstance(self.spec, NormalizedCounter) else None


@dataclass
class CheckedAdditive(CheckedTokens):
    """An additive function under test, or a suspect in its place.

    Attributes:
        right: The expected rows.
        negative: Whether it takes positions below 0; None if not given.
    """

    right: Right = None  # type: ignore[assignment]
    negative: bool | None = None

    one_axis = "the encoding has one axis, or its positions are the rows of a grid"
    packed = (
        np.arange(8),
        np.arange(8),
        np.arange(3, 11),
        np.arange(30, 38),
        np.array([9, 2, 2, 6, 5, 40, 7, 0]),
    )
    again = ("the same positions again", 600, 3)

    @property
    def lowest(self) -> int:
        """The first position that is checked."""
        return max(self.right.lowest, self.counted_from)

    @property
    def counted_from(self) -> int:
        """The position of a sequence's first token, if the function counts its rows itself; otherwise 0."""
        return self.right.spec.first if self.call == "x" and self.right.grid is None else 0

    @property
    def coordinates(self) -> int | None:
        """See `CheckedTokens`."""
        return None if self.right.axes == 1 else self.right.axes

    def needs_positions(self) -> None:
        """See `CheckedTokens`."""
        if self.call == "x":
            raise Unasked(COUNTS)

    def later_runs(self) -> list[tuple[str, np.ndarray]]:
        """See `CheckedTokens`."""
        firsts = [max(self.lowest, min(start, self.length - 1)) for start in (5, self.length // 2)]
        runs = [np.arange(first, min(first + ROWS, self.length)) for first in firsts]
        return [(f"{len(at)} tokens from position {first:,}", at) for first, at in zip(firsts, runs, strict=True)]

    def near(self) -> np.ndarray:
        """Positions near and far; below 2,100 if it counts its rows, because it then computes every row."""
        return self.places(2100 if self.call == "x" else None)

    def coarse_positions(self, after: bool) -> np.ndarray:
        """See `CheckedTokens`."""
        return self.near()

    def sibling(self, field: str) -> tuple[str, AdditiveCode]:
        """See `CheckedTokens`."""
        changes = siblings(self.spec)
        if field not in changes:
            raise Unasked(f"the encoding has no {field} to change")
        try:
            return f"different {field}", changes[field]()
        except ClockhandsError as error:
            raise Unasked(str(error)) from error

    def for_spec(self, spec: AdditiveCode) -> Self:
        """See `CheckedTokens`."""
        return replace(self, spec=spec, right=self.right.of(spec))

    def compared(
        self, x: np.ndarray, at: np.ndarray, dtype: str | None, role: str | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `CheckedTokens`; raises `Unasked` where the encoding has no rows."""
        try:
            rows, errors = self.right.rows(at)
        except ClockhandsError as error:
            raise Unasked(str(error)) from error
        got = self(x, at, dtype=dtype, role=role)
        if rows.ndim == 3:
            rows, errors = rows[:, None], errors[:, None]
        x = np.zeros_like(x) if self.called.shape.is_table else x
        scale, size = self.right.token_scale, rows
        if self.suspect is not None:
            errors = self._errors_of_suspect(errors)
            size = np.maximum(np.abs(rows), np.abs(got - scale * x))
        scaled = is_scaled(self.spec)
        allowed = added_error(x, size, errors, dtype or self.dtype, token_scale=scale, scaled=scaled)
        return got, scale * x + rows, allowed

    def _errors_of_suspect(self, errors: np.ndarray) -> np.ndarray:
        """The bounds of the rows of the last call; larger than those given if the suspect's phases are larger."""
        built = self.model
        if not isinstance(built, StagedAdditive) or built.hands is None or "offset" in self.called.shape.takes:
            return errors
        own = abs(built.scale) * wave_error(built.spec, built.hands, built.reached)
        return np.maximum(errors, own[:, None] if own.ndim == 3 else own)

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `CheckedTokens`."""
        own = positions if self.suspect is not None else positions - self.counted_from
        return super().__call__(x, own, dtype=dtype, role=role)


def tokens_of_zeros(it: CheckedAdditive) -> list[Answer]:
    """A token of zeros becomes the row of its position: the code is added, and does not depend on the token."""
    if it.called.shape.is_table:
        raise Unasked(ALONE)
    at = it.near()
    return [it.answer("tokens of zeros", np.zeros((1, 1, len(at), it.spec.width)), at)]


def tokens_come_through(it: CheckedAdditive) -> list[Answer]:
    """The token comes through unchanged: what is added does not depend on it."""
    if it.called.shape.is_table:
        raise Unasked(ALONE)
    at = it.near()
    x = it.tokens(1, 1, len(at), seed=21)
    some = it.answer("tokens, less what tokens of zeros get", x, at)
    zeros = it.answer("", np.zeros_like(x), at)
    return [
        replace(
            some,
            got=some.got - zeros.got,
            wanted=it.right.token_scale * x,
            allowed=some.allowed + zeros.allowed,
        )
    ]


def positions_below_zero(it: CheckedAdditive) -> list[Answer]:
    """Positions below 0 have rows of their own: one token before is not one token after."""
    if it.call == "x" or not it.right.goes_below_zero:
        raise Unasked(COUNTS if it.call == "x" else "the encoding has no rows below position 0")
    if it.negative is False:
        raise Unasked("negative=False was passed")
    after = np.array([*range(1, 13), 16, 31, 40, 100, 255, 257, 300, 1001])
    x = np.tile(it.tokens(1, 1, len(after), seed=22), (1, 1, 2, 1))
    asked = it.answer("positions below 0, and the same above", x, np.concatenate([-after, after]))
    if it.negative is None and asked.wrong.any():
        before, above = np.split(asked.got, 2, axis=-2)
        same = np.abs(before - above) <= 2 * np.split(asked.allowed, 2, axis=-2)[1]
        if not same.all():
            raise Unasked(
                "below position 0 it returns unrelated values, such as rows counted from the end of a table; "
                "pass negative=True if it should take these positions"
            )
    return [asked]


def bounded(it: CheckedAdditive) -> list[Answer]:
    """The code is bounded: no wave is larger than its scale."""
    hands = sinusoid_channels(it.spec, it.right.values)
    if hands is None or (hands.raw >= 0).any() or getattr(it.spec, "standardised", None) is not None:
        raise Unasked("the encoding has no bound of sines and cosines")
    at = it.places()
    asked = it.answer("the size of the encoding", np.zeros((1, 1, len(at), it.spec.width)), at)
    largest = np.abs(asked.wanted).max()
    return [replace(asked, got=np.maximum(np.abs(asked.got), largest), wanted=np.full(asked.got.shape, largest))]


def scores_depend_on_distance(it: CheckedAdditive) -> list[Answer]:
    """The dot product of two rows depends on their distance only."""
    try:
        it.spec.clock()
    except ClockhandsError as error:
        raise Unasked("the dot products of its rows depend on more than the distance") from error
    if getattr(it.spec, "zero_rows", ()) or it.length < 520:
        raise Unasked("it has rows of zeros, or too few rows")
    at = probe_positions(520)
    at = at[at >= it.lowest]
    first, second = np.arange(len(at)), np.roll(np.arange(len(at)), -1)
    zeros = np.zeros((1, 1, len(at), it.spec.width))
    one = it.answer("the dot products of neighbouring rows of these positions", zeros, at)
    rows, size, off = one.got[0, 0], np.abs(one.wanted[0, 0]), one.allowed[0, 0]
    # The error of a product comes from both factors.
    allowed = (size[first] * off[second] + size[second] * off[first] + off[first] * off[second]).sum(axis=-1)
    right = (one.wanted[0, 0][first] * one.wanted[0, 0][second]).sum(axis=-1)
    got = (rows[first] * rows[second]).sum(axis=-1)
    return [Answer(one.asked, got[None, :, None], right[None, :, None], allowed[None, :, None], at[None, :])]


def siblings(spec: AdditiveCode) -> dict[str, Callable[[], AdditiveCode]]:
    """Encodings that differ in one field, which the key of a cache may lack, by the name of the field."""
    found: dict[str, Callable[[], AdditiveCode]] = {}
    if not isinstance(spec, Sinusoidal | AxialSinusoidal):
        return found
    if isinstance(spec.spacing, Geometric):
        base = 1e6 if spec.spacing.base < 1e5 else 1e4
        found["base"] = lambda: replace(spec, spacing=replace(spec.spacing, base=base))  # type: ignore[arg-type]
    # The second model is narrower: a table that is cached without its width is then sliced, and no error is raised.
    width = spec.width // 2 if spec.width % 4 == 0 and spec.width >= 8 else 2 * spec.width
    found["width"] = lambda: replace(spec, width=width)
    if isinstance(spec, Sinusoidal) and spec.order in {"sin-cos", "cos-sin"}:
        other = {"sin-cos": "cos-sin", "cos-sin": "sin-cos"}[spec.order]
        found["order"] = lambda: replace(spec, order=other)  # type: ignore[arg-type]
    return found


def every_position(it: CheckedAdditive) -> list[Answer]:
    """Every position below the length gets its own row."""
    at, axes = np.arange(it.lowest, it.length), it.right.axes
    # There may be millions of numbers, and uniform integers are drawn much faster than normal ones.
    x = np.zeros((1, 1, len(at), it.spec.width))
    if it.call != "positions":
        x += np.random.default_rng(17).integers(-96, 97, x.shape, np.int8) / 64
    what = f"positions {it.lowest} to {it.length - 1:,}"
    if axes == 1:
        return [it.answer(what, x, at)]
    turned = np.stack([np.roll(at, axis * len(at) // axes) for axis in range(axes)], axis=-1)
    return [it.answer(what, x, turned, given=True)]


SMALL = token_experiments(
    {
        "positions that start later": (
            "Tokens that start later get the rows of their positions, not of their number in the call."
        ),
        "decoding equals the full pass": "A token that comes alone, with its position, gets what it gets in the whole.",
        "several sequences": "Sequences beside each other, at the same positions, get the same rows.",
        "one token for each sequence": "One token of each of several sequences, as in batched decoding, gets its row.",
        "separate coordinates": (
            "Tokens whose coordinates differ, as those of an image, get the waves of each coordinate."
        ),
        "two models of different bases": "Two models of different base in one process each get the right values.",
        "two models of different widths": "Two models of different width in one process each get the right values.",
        "two models of different orders": "Two models of different order in one process each get the right values.",
    },
    first=(
        experiment(
            "a few positions",
            a_few_positions,
            "Tokens at positions near and far get the rows of these positions.",
            needed=True,
        ),
        experiment("tokens of zeros", tokens_of_zeros, needed=True),
        experiment("tokens are kept", tokens_come_through, needed=True),
        experiment("bounded", bounded),
        experiment("scores depend on distance only", scores_depend_on_distance),
    ),
    middle=(experiment("positions below zero", positions_below_zero),),
    beside="several sequences",
    fields=("base", "width", "order"),
    later_needed=False,
)
"""The quick experiments: suspects run all of them."""

EVERY = experiment("every position", every_position, needed=True)
