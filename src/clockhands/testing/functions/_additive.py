"""`check_additive`: whether a function adds the numbers of an additive encoding to its tokens.

Tokens are drawn once, with values around 1, and rounded to the dtype in which they are passed, so that the input is
exact. The expected output is the token times its scale plus `clockhands.table`, in float64.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from clockhands.arguments import count, positive, shown
from clockhands.encodings.additive import (
    AdditiveCode,
    AxialSinusoidal,
    Binary,
    Learned,
    NormalizedCounter,
    Sinusoidal,
    WarpedPosition,
    resize,
    table,
)
from clockhands.encodings.dtypes import output_dtype
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.memory import refuse_larger
from clockhands.encodings.positions import numpy_of
from clockhands.errors import ClockhandsError, InvalidType, InvalidValue
from clockhands.recognition import identify
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import ADDITIVE
from clockhands.recognition.suspects import (
    SeenAdditive,
    StagedAdditive,
    Suspect,
    additive_suspects,
    further_suspects,
    hands_of,
)
from clockhands.testing._checks import COPIES, checked, function_of, named, resolved
from clockhands.testing._experiments import ROWS, Answer, Asked, Experiment, Unasked, experiment, failed_of, telling
from clockhands.testing.bounds import added_error, is_scaled, row_error, wave_error
from clockhands.testing.functions._calls import PAIRS, Called, first_places, first_shape, in_runs
from clockhands.testing.functions._suspects import (
    collided,
    explanations,
    few_numbers,
    fitting,
    of_any_code,
    only_coarse,
    told_of,
)
from clockhands.testing.functions._tokens import (
    ALONE,
    COUNTS,
    DrawnTokens,
    TokenFunction,
    coarser_tokens,
    coarser_tokens_before,
    one_at_a_time,
    one_token_of_many_sequences,
    positions_of_their_own,
    two_models,
)
from clockhands.testing.reports import Explanation, Report


@dataclass
class Right:
    """The expected rows of an encoding and the bounds of their errors; each is computed once and kept.

    Attributes:
        spec: The encoding.
        values: Its learned numbers, or None.
        token_scale: The factor of the tokens, before the encoding is added.
        grid: The grid whose cells the rows are, if positions are row numbers; or None.
    """

    spec: AdditiveCode
    values: Any
    token_scale: float
    grid: Grid | None = None
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
            return rows, row_error(self.spec, self.values, at, rows)
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


def _at_axes(self: Any, positions: np.ndarray) -> np.ndarray:
    """Positions of text: all coordinates of a token are equal."""
    axes = self.right.axes
    return positions if axes == 1 else np.repeat(positions[..., None], axes, axis=-1)


def _answer(
    it: Any,
    asked: str,
    x: np.ndarray,
    positions: np.ndarray,
    *,
    dtype: str | None = None,
    given: bool = False,
) -> Answer:
    """Call the implementation, and return its output with the expected output and the bounds.

    Args:
        it: The implementation.
        asked: The input, as a phrase for messages.
        x: Tokens [batch, heads, seq, width].
        positions: [seq] or [batch, seq].
        dtype: The dtype of the tokens, if not the default dtype of the implementation.
        given: Whether positions already have the axis of coordinates.
    """
    spec, right = it.right.spec, it.right
    at = positions if given else it.at_axes(positions)
    try:
        rows, errors = right.rows(at)
    except ClockhandsError as error:
        raise Unasked(str(error)) from error
    got = it(x, at, dtype=dtype)
    if rows.ndim == 3:
        rows, errors = rows[:, None], errors[:, None]
    x = np.zeros_like(x) if it.call == "positions" else x
    size = rows
    if isinstance(it, AdditiveSuspect):  # the bound for the numbers that the suspect computes
        errors = it.errors(errors)
        size = np.maximum(np.abs(rows), np.abs(got - right.token_scale * x))
    allowed = added_error(x, size, errors, dtype or it.dtype, token_scale=right.token_scale, scaled=is_scaled(spec))
    where = positions[..., 0] if given and right.axes > 1 else positions
    shown = np.broadcast_to(where, (len(x), x.shape[-2]))[:, None]
    return Answer(asked, got, right.token_scale * x + rows, allowed, shown)


@dataclass
class AdditiveFunction(TokenFunction):
    """A user's additive function.

    Attributes:
        right: The expected rows.
        negative: Whether it takes positions below 0; None if not given.
    """

    right: Right = None  # type: ignore[assignment]
    negative: bool | None = None
    at_axes = _at_axes
    answer = _answer

    @property
    def lowest(self) -> int:
        """The first position that is checked."""
        return max(self.right.lowest, self.counted_from)

    @property
    def counted_from(self) -> int:
        """The position of a sequence's first token, if the function counts its rows itself; otherwise 0."""
        return self.right.spec.first if self.call == "x" and self.right.grid is None else 0

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `TokenFunction`."""
        return self.called(x, positions - self.counted_from, dtype=dtype)


@dataclass
class AdditiveSuspect(DrawnTokens):
    """A suspect, called in the same way as the user's function."""

    like: AdditiveFunction
    right: Right
    process: Any
    first: str | None = None
    at_axes = _at_axes
    answer = _answer

    def __post_init__(self) -> None:
        """Build the first model, and call it as `Called` calls a function for the first time."""
        self.built = self.process(self.spec)
        shape = first_shape(self.like.axes, self.spec.width)
        x = np.zeros(shape) if self.call == "positions" else np.ones(shape)
        self(x, self.right.lowest + first_places(self.right.axes), dtype=self.first)

    @classmethod
    def of_suspect(cls, suspect: Suspect, like: AdditiveFunction) -> "AdditiveSuspect":
        """The suspect in a new process."""
        return cls(like, like.right, suspect.make())

    @property
    def spec(self) -> AdditiveCode:
        """The expected encoding."""
        return self.right.spec

    def __getattr__(self, name: str) -> Any:
        # The dtypes, the length and the call are those of the user's function.
        return getattr(self.like, name)

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """See `TokenFunction`."""

        def ask(part: np.ndarray, at: np.ndarray) -> np.ndarray:
            return self.built(part, at, dtype or self.dtype, role)

        # Suspects keep state between calls, so a suspect is called as often as the function under test.
        return in_runs(ask, x, positions) if self.call == "x, offset" else ask(x, positions)

    def errors(self, errors: np.ndarray) -> np.ndarray:
        """The bounds of the rows of the last call; larger than those given if the suspect's phases are larger."""
        built = self.built
        if not isinstance(built, StagedAdditive) or built.hands is None or self.call == "x, offset":
            return errors
        own = abs(built.scale) * wave_error(built.spec, built.hands, built.reached)
        return np.maximum(errors, own[:, None] if own.ndim == 3 else own)

    def of(self, spec: AdditiveCode, first: str | None = None) -> "AdditiveSuspect":
        """Another model in the same process; its first tokens have the dtype ``first``."""
        return AdditiveSuspect(self.like, self.right.of(spec), self.process, first)


def far(it: Any) -> np.ndarray:
    """Positions below the length at which rounding errors become visible."""
    at = telling(it.length)
    return at[at >= it.lowest]


def near(it: Any) -> np.ndarray:
    """The same positions; those of a function that counts its rows are below 2,100, because it computes every row."""
    at = telling(min(it.length, 2100)) if it.call == "x" else telling(it.length)
    return at[at >= it.lowest]


def a_few_positions(it: Any) -> list[Answer]:
    """Tokens at positions near and far get the rows of these positions."""
    at = far(it)
    return [it.answer("a few positions", it.tokens(1, 1, len(at)), at)]


def tokens_of_zeros(it: Any) -> list[Answer]:
    """A token of zeros becomes the row of its position: the code is added, and does not depend on the token."""
    if it.call == "positions":
        raise Unasked(ALONE)
    at = near(it)
    return [it.answer("tokens of zeros", np.zeros((1, 1, len(at), it.spec.width)), at)]


def tokens_come_through(it: Any) -> list[Answer]:
    """The token comes through unchanged: what is added does not depend on it."""
    if it.call == "positions":
        raise Unasked(ALONE)
    at = near(it)
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


def positions_that_start_later(it: Any) -> list[Answer]:
    """Tokens that start later get the rows of where they stand, not of their number in the call."""
    if it.call == "x":
        raise Unasked(COUNTS)
    answers = []
    for start in (5, it.length // 2):
        first = max(it.lowest, min(start, it.length - 1))
        at = np.arange(first, min(first + ROWS, it.length))
        answers.append(it.answer(f"{len(at)} tokens from position {first:,}", it.tokens(1, 1, len(at)), at))
    return answers


def any_order(it: Any) -> list[Answer]:
    """Packed sequences, repeated positions and positions out of order get what each token gets alone."""
    if it.call == "x":
        raise Unasked(COUNTS)
    parts = [np.arange(8), np.arange(8), np.arange(3, 11), np.arange(30, 38), np.array([9, 2, 2, 6, 5, 40, 7, 0])]
    at = it.near_to(np.concatenate(parts))
    return [it.answer("sequences packed into one", it.tokens(1, 1, len(at), seed=1), at)]


def _one_at_a_time(it: Any) -> list[Answer]:
    """A token that comes alone, with its position, gets what it gets in the whole."""
    if it.call == "x":
        raise Unasked(COUNTS)
    return one_at_a_time(it)


def asked_again(it: Any) -> list[Answer]:
    """The same question has the same answer, whatever was asked between."""
    at = telling(min(it.length, 600))
    at = at[at >= it.lowest]
    return [it.answer("the same positions again", it.tokens(1, 1, len(at), seed=3), at) for _ in range(2)]


def sequences_beside_each_other(it: Any) -> list[Answer]:
    """Sequences beside each other, at the same positions, get the same rows."""
    at = it.near_to(np.arange(2, 7))
    return [it.answer("3 sequences", it.tokens(3, 1, 5, seed=4), at)]


def _positions_of_their_own(it: Any) -> list[Answer]:
    """Sequences of a batch that have positions of their own, as with padding on the left, get what each gets alone."""
    if it.call == "x":
        raise Unasked(COUNTS)
    return positions_of_their_own(it)


def coordinates_of_their_own(it: Any) -> list[Answer]:
    """Tokens whose coordinates differ, as those of an image, get the hands of each coordinate."""
    axes = it.right.axes
    if axes == 1:
        raise Unasked("the encoding has one axis, or its positions are the rows of a grid")
    at = np.random.default_rng(8).integers(0, min(it.length, 40), (ROWS, axes))
    return [it.answer("coordinates that differ", it.tokens(1, 1, ROWS, seed=7), at, given=True)]


def positions_below_zero(it: Any) -> list[Answer]:
    """Positions below 0 have rows of their own: one token before is not one token after."""
    if it.call == "x" or not it.right.goes_below_zero:
        raise Unasked(COUNTS if it.call == "x" else "the encoding has no rows below position 0")
    if it.negative is False:
        raise Unasked("negative=False was passed")
    after = np.array([*range(1, 13), 16, 31, 40, 100, 255, 257, 300, 1001])
    x = np.tile(it.tokens(1, 1, len(after), seed=22), (1, 1, 2, 1))
    asked = it.answer("positions below 0, and the same above", x, np.concatenate([-after, after]))
    if it.negative is None and (asked.shares > 1).any():
        before, above = np.split(asked.got, 2, axis=-2)
        same = np.abs(before - above) <= 2 * np.split(asked.allowed, 2, axis=-2)[1]
        if not same.all():
            raise Unasked(
                "below position 0 it returns unrelated values, such as rows counted from the end of a table; "
                "pass negative=True if it should take these positions"
            )
    return [asked]


def _coarser_tokens(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype get the same code, rounded to it at the end."""
    return coarser_tokens(it, near(it))


def _coarser_tokens_before(it: Any) -> list[Answer]:
    """Tokens of a coarser dtype leave nothing behind for those after them."""
    return coarser_tokens_before(it, near(it))


def _coarser_model_first(it: Any) -> list[Answer]:
    """A model whose first tokens are of a coarser dtype gives later ones the same code."""
    return coarser_tokens_before(it, near(it), first=True)


def bounded(it: Any) -> list[Answer]:
    """The code is bounded: no wave is larger than its scale."""
    hands = hands_of(it.spec, it.right.values)
    if hands is None or (hands.raw >= 0).any() or getattr(it.spec, "standardised", None) is not None:
        raise Unasked("the encoding has no bound of sines and cosines")
    at = far(it)
    asked = it.answer("the size of the encoding", np.zeros((1, 1, len(at), it.spec.width)), at)
    largest = np.abs(asked.wanted).max()
    return [replace(asked, got=np.maximum(np.abs(asked.got), largest), wanted=np.full(asked.got.shape, largest))]


def scores_depend_on_distance(it: Any) -> list[Answer]:
    """The dot product of two rows depends on their distance only."""
    try:
        it.spec.clock()
    except ClockhandsError as error:
        raise Unasked("the dot products of its rows depend on more than the distance") from error
    if getattr(it.spec, "zero_rows", ()) or it.length < 520:
        raise Unasked("it has rows of zeros, or too few rows")
    at = telling(520)
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


def _two_models(what: str) -> Experiment:
    """The experiment with two models in one process that differ in this field."""

    def run(it: Any) -> list[Answer]:
        changes = siblings(it.spec)
        if what not in changes:
            raise Unasked(f"the encoding has no {what} to change")
        try:
            other = changes[what]()
        except ClockhandsError as error:
            raise Unasked(str(error)) from error
        return two_models(it, f"different {what}", other, it.near_to(np.arange(ROWS)))

    asks = f"Two models of different {what} in one process each get the right values."
    return Experiment(f"two models of different {what}s", asks, run)


def every_position(it: Any) -> list[Answer]:
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


SMALL = (
    experiment("a few positions", a_few_positions, needed=True),
    experiment("tokens of zeros", tokens_of_zeros, needed=True),
    experiment("tokens are kept", tokens_come_through, needed=True),
    experiment("bounded", bounded),
    experiment("scores depend on distance only", scores_depend_on_distance),
    experiment("positions that start later", positions_that_start_later),
    experiment("packed equals separate", any_order),
    experiment("decoding equals the full pass", _one_at_a_time),
    experiment("several sequences", sequences_beside_each_other),
    experiment("separate positions per sequence", _positions_of_their_own),
    experiment(
        "one token for each sequence",
        one_token_of_many_sequences,
        "One token of each of several sequences, as in batched decoding, gets its row.",
    ),
    experiment("separate coordinates", coordinates_of_their_own),
    experiment("positions below zero", positions_below_zero),
    experiment("repeated call", asked_again),
    experiment("low-precision tokens", _coarser_tokens),
    experiment("after low-precision tokens", _coarser_tokens_before),
    _two_models("base"),
    _two_models("width"),
    _two_models("order"),
    experiment("a model of low-precision tokens first", _coarser_model_first),
)
"""The quick experiments: suspects run all of them."""

EVERY = experiment("every position", every_position, needed=True)


LENGTH = 10_000
_TELLING = 64  # with fewer wrong numbers, a suspect is judged by the right ones


def check_additive(
    fn: Callable[..., Any] | None = None,
    like: AdditiveCode | str | None = None,
    *,
    make: Callable[[Any], Callable[..., Any]] | None = None,
    values: Any = None,
    resized: Mapping[str, Any] | None = None,
    grid: Grid | None = None,
    token_scale: float = 1.0,
    axes: str = "seq width",
    call: str = "x, positions",
    positions: str = "seq",
    negative: bool | None = None,
    backend: Any = None,
    dtype: str = "float32",
    length: int | None = None,
    timeout: float = 60.0,
    raises: bool = True,
) -> Report:
    r"""Check that a function adds the numbers of an additive encoding to its tokens.

    ``x -> token_scale x + table(spec, positions)``, checked at every position below `length`, in any order, for
    batches, packed sequences, single tokens, tokens of zeros and a lower-precision dtype, before and after other calls.
    Failures are explained by trying every known fault.

    Args:
        fn: The function, in any array library.
        like: The expected encoding: a spec, or a preset's name with fields (``"vaswani2017:width=64"``).
        make: A function(spec) that builds the function for a spec: then two models in one process are compared too.
        values: The learned numbers: the rows of `Learned`, the frequencies of `FourierFeatures`, a trained scale.
        resized: How the function resizes a learned table first, as keywords of `clockhands.additive.resize`
            (``{"rows": (32, 32), "kind": "cubic"}``); ``values`` are the rows before, ``like`` the encoding after it.
        grid: The cells of its rows, for a function that counts its rows itself (``call="x"``).
        token_scale: The factor of the tokens, before the encoding is added (``width ** 0.5`` in the paper's model).
        axes: The axes of x in the function's order: ``"batch seq width"``.
        call: The arguments of the function: ``"x, positions"``; ``"x"`` if it counts its rows itself; ``"x, offset"``;
            ``"positions"`` if it returns the table.
        positions: The axes of its positions: ``"seq"`` or ``"batch seq"``; with ``axes`` for several coordinates.
        negative: Whether it takes positions below 0. None tries them, and accepts what looks like an index from the
            end.
        backend: ``"numpy"``, ``"torch"``, ``"jax"`` or a module of the array API; detected by default.
        dtype: The dtype of its tokens, or of the table that it returns.
        length: Positions 0 to ``length - 1`` are checked: 10,000, or fewer if the encoding has fewer.
        timeout: The time limit of a call, in seconds.
        raises: Whether a failure is raised; otherwise it is only in the report.

    Returns:
        The report; with failures only if ``raises`` is false.

    Accuracy: the error of a number may be that of correct float32 arithmetic, derived in `clockhands.testing.bounds`,
        for the dtype of the tokens. A fault with smaller errors is not found.

    Raises:
        CheckFailed: An experiment failed; the message is the report.
        CannotCheck: The function cannot be called like that; the message gives the call and its result.
        InvalidValue, InvalidType: An argument cannot be used.

    >>> import clockhands as ch
    >>> def added(x, positions): return ch.add(x, ch.Sinusoidal(8, base=500.0), positions)
    >>> report = check_additive(added, ch.Sinusoidal(8), length=300, raises=False)
    >>> sorted(report.codes)
    ['another-base']
    """
    __tracebackhide__ = True
    spec: AdditiveCode = resolved(like, AdditiveCode, "additive")
    given, values = _values(spec, values, resized)
    right = Right(spec, values, positive("token_scale", token_scale), _grid(grid, spec, call))
    if call == PAIRS:
        raise InvalidValue(
            f"`call` must take tokens for an additive encoding, got {shown(call)}.", 'Pass call="x, positions".'
        )
    ends = LENGTH if right.ends is None else min(LENGTH, right.ends)
    length = ends if length is None else _length(length, right)

    def outside(function: Callable[..., Any], own: Right, first: str | None = None) -> AdditiveFunction:
        called = Called(
            function,
            own.spec.width,
            axes=axes,
            call=call,
            positions=positions,
            coordinates=own.axes,
            start=own.lowest,
            backend=backend,
            dtype=dtype,
            timeout=timeout,
            first=first,
        )
        return AdditiveFunction(own.spec, called, length, called.coarse, None, build, own, negative)

    def another(other: AdditiveCode, first: str | None = None) -> AdditiveFunction:
        assert make is not None
        return outside(make(other), right.of(other), first)

    build = None if make is None else another
    it = outside(function_of(fn, make, spec), right)
    explained = partial(_explained, it, given=given, resized=resized)
    return checked("additive", named(fn, make), it, (*SMALL, EVERY), explained, raises=raises)


def _values(
    spec: AdditiveCode, values: Any, resized: Mapping[str, Any] | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The learned numbers as given, and after resizing; None without learned numbers."""
    given = None if values is None else numpy_of(values, "values").astype(np.float64)
    own = given
    if resized is not None:
        if not isinstance(spec, Learned) or given is None:
            raise InvalidValue(
                "`resized` needs a learned table and its rows.",
                "Give like=Learned(…), and values= the rows.",
            )
        own = resize(given, **resized)
    spec.check_values(None if own is None else own.shape)
    return given, own


def _grid(grid: Any, spec: AdditiveCode, call: str) -> Grid | None:
    if grid is None:
        return None
    if not isinstance(grid, Grid):
        raise InvalidType(f"`grid` must be a grid, got {shown(grid)}.", "Give clockhands.grids.Grid((rows, columns)).")
    if call not in ("x", "x, offset"):
        raise InvalidValue(
            f"`grid` is for functions that count their rows themselves, got call={shown(call)}.", 'Pass call="x".'
        )
    if grid.axes != spec.number_of_axes:
        raise InvalidValue(
            f"The number of axes of `grid` must be {spec.number_of_axes}, as in the encoding, got {grid.axes}.",
            "Give one size for each axis of the encoding, in the same order.",
        )
    return grid


def _length(length: int, right: Right) -> int:
    wanted = count("length", length)
    if right.ends is not None and wanted > right.ends:
        raise InvalidValue(
            f"`length` must be at most {right.ends:,}, the number of positions of the encoding, got {wanted:,}.",
            "Leave it out to check all of them.",
        )
    refuse_larger((wanted, right.spec.width), COPIES * 8, "The array for all positions", "Pass a smaller length=.")
    return wanted


def _explained(
    it: AdditiveFunction, asked: list[Asked], given: np.ndarray | None, resized: Mapping[str, Any] | None
) -> tuple[Explanation, ...]:
    """The explanations of the failures."""
    small = [one for one in asked if one.experiment is not EVERY]
    every = next((one for one in asked if one.experiment is EVERY), None)
    first_wrong = None
    if every is not None and it.right.axes == 1:
        first_wrong, chosen = _chosen(every.answers[0], it.lowest, it.length)
        with suppress(Refused, Unasked):
            small.append(Asked(chosen, chosen.run(it)))
    if not any(one.wrong for one in small):
        return unexplained(it, asked)
    seen = replace(_seen(it, first_wrong), given=given, resized=resized, grid=it.right.grid)

    def built(suspect: Suspect) -> AdditiveSuspect:
        return AdditiveSuspect.of_suspect(suspect, it)

    def tried(suspects: Iterator[Suspect]) -> Iterator[Suspect]:
        return (one for one in suspects if _may_be(small[0], partial(built, one)))

    found, note = fitting(small, tried(additive_suspects(it.spec, seen)), built)
    if not found or note:
        finer, word = fitting(small, tried(further_suspects(it.spec, replace(seen, fine=True))), built)
        if finer and (not word or not found):
            found, note = finer, word
    told = explanations(found, ADDITIVE, note) or unexplained(it, asked)
    specs = () if told else _recognised(it)
    if specs:
        found, note = fitting(small, tried(further_suspects(it.spec, replace(seen, specs=specs))), built)
        told = explanations(found, ADDITIVE, note)
    return only_coarse(told, asked, it.coarse)


def _may_be(first: Asked, build: Callable[[], AdditiveSuspect]) -> bool:
    """Whether a suspect is worth running in all experiments, judged by the first experiment.

    It is rejected if it leaves at least half of the squared error there and gives at most a tenth of the wrong numbers.
    If fewer than 64 numbers are wrong, it is rejected unless it gives more than 90 % of the right ones.
    """
    seen = first.answers[0]
    wrong = seen.shares > 1
    try:
        made = first.experiment.run(build())[0]
    except (Unasked, ClockhandsError):
        return False
    alike = np.abs(seen.got - made.got) <= 2 * np.maximum(seen.allowed, made.allowed)
    if wrong.sum() < _TELLING:
        return bool(alike[~wrong].mean() > 0.9)
    left, whole = (seen.got - made.got)[wrong], (seen.got - seen.wanted)[wrong]
    both = np.isfinite(left) & np.isfinite(whole)
    return bool(alike[wrong].mean() > 0.1 or (left[both] ** 2).sum() < 0.5 * (whole[both] ** 2).sum())


def _chosen(dense: Answer, lowest: int, length: int) -> tuple[int | None, Experiment]:
    """The first wrong position, and a quick experiment with wrong positions and others."""
    wrong = np.flatnonzero((dense.shares[0, 0] > 1).any(axis=-1)) + lowest
    spread = wrong[np.linspace(0, len(wrong) - 1, 6).astype(int)] if len(wrong) else wrong
    some = np.concatenate([wrong[:12], spread, wrong[-1:]]).astype(np.int64)
    # With the position before each wrong one, to locate where errors begin; padded to a constant number, because
    # libraries compile for every shape.
    found = np.unique(np.maximum(np.concatenate([some, some - 1]), lowest))
    others = np.setdiff1d(np.arange(lowest, min(length, lowest + 2 * ROWS)), found)
    at = np.sort(np.concatenate([found, others[: max(ROWS - len(found), 0)]]))

    def run(it: Any) -> list[Answer]:
        return [it.answer("chosen positions", it.tokens(1, 1, len(at), seed=18), at)]

    chosen = Experiment("chosen positions", "Positions at which it is wrong, and others.", run)
    return int(wrong[0]) if len(wrong) else None, chosen


def _seen(it: AdditiveFunction, first_wrong: int | None) -> SeenAdditive:
    """Measure the rows of the function, and the factor of its tokens."""
    powers = np.array([0, *(2**power for power in range(18) if 2**power < it.length)])
    others = np.setdiff1d(np.arange(min(it.length, ROWS)), powers)
    at = np.sort(np.concatenate([powers, others[: ROWS - len(powers)]]))
    at = at[at >= it.lowest]
    if it.right.grid is not None:  # enough to reach the second row of a grid
        at = np.arange(min(it.length, 4 * ROWS))
    width = it.spec.width
    try:
        zeros = it.answer("rows", np.zeros((1, 1, len(at), width)), at)
        rows, right, factor = zeros.got[0, 0], zeros.wanted[0, 0], None
        if it.call != "positions":
            x = it.tokens(1, 1, len(at), seed=19)
            through = (it.answer("tokens", x, at).got - zeros.got)[0, 0]
            factor = float((through * x[0, 0]).sum() / (x * x).sum())
    except (Refused, Unasked):
        at, rows, right, factor = at[:0], np.zeros((0, width)), np.zeros((0, width)), None
    return SeenAdditive(
        it.call,
        it.dtype,
        it.coarse,
        it.length,
        first_wrong,
        it.right.values,
        it.right.token_scale,
        at,
        rows,
        right,
        factor,
    )


def _recognised(it: AdditiveFunction) -> tuple[AdditiveCode, ...]:
    """The specs of the additive encoding that the function computes, if it is another known one."""
    if it.spec.number_of_axes > 1 or it.right.grid is not None or it.length < 300 or it.lowest:
        return ()

    def asked(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        y = it(x[None, None], positions)[0, 0]
        return (y + x if it.call == "positions" else y).astype(output_dtype(it.dtype))

    with suppress(ClockhandsError, Refused):
        if it.call == "x":
            rows = it(np.zeros((1, 1, min(it.length, 2048), it.spec.width)), np.arange(min(it.length, 2048)))
            matches = identify(rows[0, 0].astype(np.float32))
        else:
            matches = identify(asked, width=it.spec.width, backend="numpy", dtype=it.dtype, longest=it.length - 1)
        return tuple(match.spec for match in matches if isinstance(match.spec, AdditiveCode) and not match.spec.learned)
    return ()


# If the squared difference exceeds this share of the rows' squared deviation from their mean, the rows may be those of
# another table, so a different resizing is not reported.
_ALIKE = 0.5


def unexplained(it: Any, asked: Sequence[Asked]) -> tuple[Explanation, ...]:
    """Explanations by rules, for failures that no suspect explains."""
    if told := of_any_code(it, asked, ADDITIVE):
        return told
    every = failed_of(asked).get(EVERY.name)
    if every is None:
        return ()
    few = few_numbers(every.answers[0])
    if few:
        return (told_of(ADDITIVE["one-number-wrong"], {"which": few}),)
    if isinstance(it.spec, Learned):
        one = every.answers[0]
        return _resized(it.right.rows(np.arange(it.lowest, it.length))[0], (one.got - one.wanted)[0, 0])
    return collided(it, ADDITIVE) if it.spec.number_of_axes == 1 and it.right.grid is None else ()


def _resized(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    """The explanation of a learned table that is close to the right one [rows, width]: its rows are moved or mixed.

    Rows at ``p + d(p)`` with a small ``d(p) = u + v p`` differ by ``d(p)`` times the slope of the rows, from which
    ``u`` and ``v`` are fitted.
    """
    spread = float(((right - right.mean(axis=0)) ** 2).sum())
    if len(right) < 8 or not np.isfinite(off).all() or (off**2).sum() > _ALIKE * spread:
        return ()
    return _moved(right, off)


def _moved(right: np.ndarray, off: np.ndarray) -> tuple[Explanation, ...]:
    at = np.arange(len(right), dtype=np.float64)
    slope = np.gradient(right, axis=0)
    parts = np.stack([slope.reshape(-1), (slope * at[:, None]).reshape(-1)], axis=1)
    (start, growth), *_ = np.linalg.lstsq(parts, off.reshape(-1), rcond=None)
    there = at + start + growth * at
    moved = np.stack([np.interp(there, at, column) for column in right.T], axis=-1)
    left = float(((right + off - moved) ** 2).sum() / (off**2).sum())
    if left < _ALIKE:
        used = (
            f"row p is that of position {1 + growth:.5g} p {start:+.3g}, by linear interpolation ({1 - left:.0%} of the"
        )
        used += " squared difference)"
        return (told_of(ADDITIVE["rows-moved"], {"used": used, "declared": "position p"}),)
    largest = float(np.abs(off).max())
    used = f"each row is a mixture of those near it, off by up to {largest:.3g}"
    return (told_of(ADDITIVE["rows-rescaled"], {"used": used, "declared": "the rows that were given"}),)
