"""A user's function wrapped as a function of NumPy arrays: its axes, signature and return value are checked."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.arguments import one_of
from clockhands.encodings.rotary import Rotary, rotate
from clockhands.errors import InvalidType
from clockhands.phrases import shown
from clockhands.recognition.calling import (
    FLOATS,
    Library,
    Refused,
    TimedOut,
    float_name,
    likely_libraries,
    refusals,
)
from clockhands.recognition.suspects import RotaryObservations, rotation_suspects
from clockhands.testing._checks import wrapper
from clockhands.testing.functions._argument_names import KNOWN
from clockhands.testing.functions._call_shapes import AXES, PAIRS, CallShape, axes_of, shapes
from clockhands.testing.functions._rank_parts import ROWS, SequencePart, sequence_part
from clockhands.testing.functions._shaped_functions import ShapedFunction
from clockhands.testing.functions._wave_tables import SINES_FIRST
from clockhands.testing.reports import CannotCheck

_DIFFERS = "its numbers differ"
_RIGHT = 5  # the fit of a shape in which the numbers of a function are right
_IN_COMMON = 4.5  # of one in which they are right where all sequences have the same positions
_USUAL_ORDER = 4.3  # of one in which they are right for the other usual order of a rank's part
_OTHER_ORDER = 4.2  # of one in which they are right for another order of it
_KNOWN = 4  # of one in which they are those of a known fault
_ROTATES = 3  # of one in which they are those of another rotation that depends on the position alone
_ALIKE = 2  # of one in which equal tokens are changed alike in all sequences and heads, but not at all positions
_NEAR = 0.05  # of the largest number: more than any dtype rounds by, less than what another layout gives
_ADVISED_AXES = ("seq width", "batch heads seq width", "batch seq heads width", "batch seq width")
_ADVISED_CALLS = ("x, positions", "x", PAIRS)

_COSINES_FIRST = re.compile(r"cos.*sin", re.IGNORECASE)

_WRAPPINGS = {
    "rotated(x, positions)": (
        ' ; x [seq, width], positions [seq], or pass axes= and call=, such as call="q, k, cos, sin".'
    ),
    "table(positions)": ", of shape [seq, width]; or def added(x, positions).",
    "resized(table, size)": ", of shape [rows of the new grid, width].",
}
"""Functions that can be checked, of which a hint says that they are to be written, and what they return."""


class Called(ShapedFunction):
    """A user's function as a function of NumPy arrays: x [batch, heads, seq, width] and positions; returns float64.

    Attributes:
        library: The array library that it is called with.
        shape: The shape in which it is called.
        tried: The other shapes that were tried, and why they did not fit.
        dtype: The dtype of its tokens, as the library represents it.
        output: The dtype of its last output.
        calls, rows: The number of calls, and of tokens in all calls.
        changed: The names of the arguments that it changed.
        most: The largest number of rows for a function that counts them itself, or None if not known.
        axes_given: Whether the caller says which axes its tokens have.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        width: int,
        *,
        axes: str | None = None,
        call: str | CallShape | None = None,
        positions: str | None = None,
        rotary: Rotary | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        zigzag: bool = False,
        heads: int | None = None,
        coordinates: int = 1,
        start: int = 0,
        backend: Any = None,
        dtype: str = "float32",
        timeout: float = 60.0,
        first: str | None = None,
        wrapping: str | None = None,
    ) -> None:
        """Find out how it is called, and with which library; its first tokens have the dtype ``first``, if given."""
        if not callable(function):
            raise InvalidType(
                f"Expected a function, got {shown(function)}.", "Give a function(x, positions), or pass make=."
            )
        dtype = float_name(dtype)
        super().__init__(function, dtype, timeout)
        self.width, self.start, self.rotary, self.coordinates = width, start, rotary, coordinates
        self.wrapping: str = wrapping or ("table(positions)" if rotary is None else "rotated(x, positions)")
        self.heads: int = heads or 2
        self.all_heads: bool = heads is not None  # every call has this number
        self.given: str = one_of("dtype", first or dtype, FLOATS, "It is the dtype of x.")
        self.axes_given: bool = axes is not None
        self.most: int | None = None
        self.tried: dict[CallShape, str] = {}
        self._known: dict[tuple[bytes, bytes], bool] = {}
        candidates = shapes(function, call, axes, positions, rotary, counted=rank is not None)
        if not candidates:
            raise CannotCheck(
                "A function with these parameters is called in no way that is known.",
                "Give a function(x, positions), or name its arguments: call=.",
            )
        self.part: SequencePart | None = sequence_part(rank, ranks, zigzag, candidates[0].takes)
        self._find_shape(candidates, backend)
        self.given, self.dtype = dtype, self.library.held(dtype)

    def _find_shape(self, candidates: Sequence[CallShape], backend: Any) -> None:
        """Keep the first of these shapes in which its numbers are right, or else the one that fits best (see `fit`)."""
        libraries = [Library(name) for name in (likely_libraries(self.function) if backend is None else (backend,))]
        found: list[tuple[float, Called]] = []
        errors: list[tuple[str, Refused]] = []
        for shape, library in itertools.product(candidates, libraries):
            if found and library is not found[0][1].library:
                continue
            if found and len(shape.takes) < len(found[0][1].shape.takes):
                break  # a call without what it took would hide how it uses that
            if shape.partly and replace(shape, partly=False) in {trial.shape for _, trial in found}:
                continue  # it took whole heads, and of a part it cannot choose the wrong dimensions
            if (
                found
                and self.part is None  # a fault with its axes may be another one with other axes
                and shape.axes_text != found[-1][1].shape.axes_text
                and max(fit for fit, _ in found) >= (_ROTATES if shape.table is None else _KNOWN)
            ):
                break  # with other axes of tokens it might be right by chance
            trial = self._as(shape, library)
            try:
                fit = trial.fit(alone=shape.is_plain or shape.is_table or len(candidates) == 1)
                if shape.guessed and fit < _RIGHT:
                    raise Refused(_DIFFERS)
                found.append((fit, trial))
            except Refused as error:
                self.tried.setdefault(shape, str(error))
                errors += [(library.name, error)] * (shape is candidates[0] or isinstance(error, TimedOut))
            self.calls, self.rows = self.calls + trial.calls, self.rows + trial.rows
            if (found and found[-1][0] == _RIGHT) or (errors and isinstance(errors[-1][1], TimedOut)):
                break  # each further call of a function that does not return would take as long
        if not found:
            self.shape = candidates[0]
            others = len(self.tried) - 1
            more = f", and in {others} other layouts" if others and not self.shape.is_plain else ""
            raise CannotCheck(
                f"The function was called as {self.call_text(self._first_shape)}{more}: {refusals(errors)}.",
                self._advice(backend),
            ) from next((error.__cause__ for _, error in errors if error.__cause__), None)  # its traceback has the line
        fit, best = max(found, key=lambda each: each[0])
        if fit == _RIGHT and (other := best.shape.other_reading):
            self.tried.setdefault(other, self._as(other, best.library).why_not())
        self.tried |= {trial.shape: _DIFFERS for _, trial in found if trial is not best}
        self.tried.pop(best.shape, None)  # refused with another library
        self.shape, self.library, self.output, self.changed = best.shape, best.library, best.output, best.changed

    def _as(self, shape: CallShape, library: Library) -> "Called":
        """The same function in another shape, with another library; its calls are counted anew."""
        other = self.without_calls()
        other.shape, other.library = shape, library
        return other

    def fit(self, *, alone: bool) -> float:
        """How well the function fits its shape, found by calling it; a shape ``alone`` fits if it can be called.

        If its numbers are right, more than in any other shape. Else there is a fault, which no shape may hide or cause:
        a shape is better if equal tokens are changed alike in all sequences and heads, but not at all positions; and
        next, if tokens keep their length.

        Raises:
            Refused: It cannot be called like this.
        """
        first = first_places(self.coordinates) if self.part is None else self.part.positions(ROWS)
        shape = self._first_shape
        self(np.ones(shape), self.start + first)
        if alone:
            return _RIGHT
        if self.shape.flat:  # a head alone too, which is no wider token
            self(np.ones((*shape[:1], 1, *shape[2:])), self.start + first)
        draw = np.random.default_rng(5)
        x, same = draw.standard_normal(shape), np.broadcast_to(draw.standard_normal(self.width), shape)
        # One run for a function that is given where it starts: its path for a single token may differ, in any layout.
        at = first if self.part is not None or "offset" in self.shape.takes else self._text(np.array([0, 1, 2, 5]))
        answers = [(self(x, at), self(same, at))]
        if self.shape.pairs:
            answers += [(self(x, at, beside=x), self(same, at, beside=same))]
        if self.shape.returns and self.shape.has_tokens and not np.array_equal(self(-x, at), -answers[0][0]):
            raise Refused("it returned two arrays that depend on its tokens, not cosines and sines")
        fit = max(self._side_fit(x, at, *each) for each in answers)
        return fit if fit < _RIGHT or self._right_apart(x, at) else _IN_COMMON

    def axes_without_batch(self) -> str:
        """The axes of tokens without a batch in which the function is right too; empty if there are none.

        Such a function was written for flattened tokens, and a batch of them is given positions by broadcasting.
        """
        if self.axes_given or not {"batch", "positions"} <= {*self.shape.axes, *self.shape.takes}:
            return ""
        axes = tuple(axis for axis in self.shape.axes if axis != "batch")
        if axes[0] != "seq":
            return ""
        flat = replace(self.shape, axes=axes, places=("seq",))
        return "" if self._as(flat, self.library).why_not() else flat.axes_text.replace(" ", ", ")

    def why_not(self) -> str:
        """Why the function does not fit its shape; empty if it does."""
        try:
            return "" if self.fit(alone=False) == _RIGHT else _DIFFERS
        except Refused as error:
            return str(error)

    def _right_apart(self, x: np.ndarray, positions: np.ndarray) -> bool:
        """Whether sequences with cosines of their own get these: of one sequence, layouts look alike."""
        if self.shape.table is None or "batch" not in self.shape.table.axes or len(x) == 1 or self.part is not None:
            return True
        apart = positions + np.arange(len(x)).reshape(-1, *[1] * positions.ndim)
        try:
            return self._is_right(x, apart, self(x, apart))
        except Refused:
            return False

    def _is_right(self, x: np.ndarray, positions: np.ndarray, y: np.ndarray) -> bool:
        assert self.rotary is not None
        role = None if self.rotary.xpos is None else "query"
        right = rotate(x, self.rotary.at_original, positions, role=role)
        return bool(np.abs(y - right).max() < _NEAR * max(1.0, np.abs(right).max()))

    def _side_fit(self, x: np.ndarray, positions: np.ndarray, y: np.ndarray, same: np.ndarray) -> float:
        if self.rotary is not None:
            if self._is_right(x, positions, y):
                return _RIGHT
            if self.part is not None and (fit := self._other_order_fit(self.part, x, y)):
                return fit
            if self.shape.table is not None and self._is_known(x, positions, y):
                return _KNOWN
        alike = np.array_equal(same, np.broadcast_to(same[:1, :1], same.shape))
        apart = len(np.unique(same[0, 0], axis=0)) > 1
        sizes = np.linalg.norm(y, axis=-1) / np.linalg.norm(x, axis=-1)
        return _ALIKE * (alike and apart) + bool(np.ptp(sizes) < _NEAR)

    def _other_order_fit(self, part: SequencePart, x: np.ndarray, y: np.ndarray) -> float:
        """The fit of numbers that are right for the same part in another order of parts, a usual one first; else 0."""
        for other in part.other_orders():
            if self._is_right(x, self.start + other.positions(ROWS), y):
                return _USUAL_ORDER if other.is_usual else _OTHER_ORDER
        return 0

    def _is_known(self, x: np.ndarray, positions: np.ndarray, y: np.ndarray) -> bool:
        """Whether the numbers are those of a fault that can be had with the cosines and sines that it is given."""
        answer = x.tobytes(), y.tobytes()
        if answer not in self._known:  # many layouts give the same numbers
            self._known[answer] = self._gives_known_fault(x, positions, y)
        return self._known[answer]

    def _gives_known_fault(self, x: np.ndarray, positions: np.ndarray, y: np.ndarray) -> bool:
        assert self.rotary is not None
        line = positions if self.coordinates == 1 else positions[..., 0]  # all coordinates are equal
        for seen_x, seen_y in zip(x.reshape(-1, *x.shape[2:]), y.reshape(-1, *y.shape[2:]), strict=True):
            none, samples = np.empty((0, 0)), ((seen_x, seen_y),)
            seen = RotaryObservations(
                self.given, None, 0, None, line, none, False, samples=samples, role=None, counted=False
            )
            suspects = rotation_suspects(self.rotary, seen)
            if not any(one.parts is not None and seen.may_be(one, self.rotary) for one in suspects):
                return False
        return True

    def _advice(self, backend: Any) -> str:
        """The hint of a refused call: another way to call the function that gives right numbers, or how to wrap it."""
        needed = _RIGHT if self.rotary is not None else _ALIKE
        for axes, call in itertools.product(_ADVISED_AXES, _ADVISED_CALLS):
            if (axes_of(axes), call) == (self.axes, self.call) or self.coordinates > 1:
                continue
            shape = CallShape(tuple(call.split(", ")), axes=axes_of(axes), places=self.places)
            for name in likely_libraries(self.function) if backend is None else (backend,):
                try:
                    if self._as(shape, Library(name)).fit(alone=False) < needed:
                        continue
                except Refused as error:
                    if "did not return" in str(error):
                        return "Wrap it in a function(x, positions) that returns."
                    continue
                said = [f'axes="{axes}"'] * (shape.axes != self.axes) + [f'call="{call}"'] * (call != self.call)
                return f"It can be called with {' and '.join(said)}: pass these."
        return f"Wrap it: {wrapper(self.wrapping, self.function, KNOWN)}{_WRAPPINGS[self.wrapping]}"

    def unread_waves(self) -> dict[str, str]:
        """What is not checked of a right function that reads the first of two numbers for a pair alone, or nothing.

        Of one that returns sines and cosines, in an order that only its callers know, this order.
        """
        if self.shape.returns == SINES_FIRST and self.tried:
            name = str(getattr(self.function, "__name__", ""))
            says = f", although its name, {name}, says cosines first" if _COSINES_FIRST.search(name) else ""
            return {"which of two tables its callers take for the cosines": f"it returns the sines first{says}"}
        table = self.shape.table
        if table is None or table.order not in {"halves", "interleaved"} or self.part is not None:
            return {}
        what = f"cosines and sines whose {'halves' if table.order == 'halves' else 'neighbours'} differ"
        apart = self._as(replace(self.shape, table=table._replace(apart=1.0)), self.library)
        x, at = np.random.default_rng(5).standard_normal(self._first_shape), first_places(self.coordinates)
        try:
            alike = np.array_equal(self(x, at), apart(x, at))
        except Refused as error:
            return {what: f"it takes no such tables: {error}"}
        return {what: "it takes no second number for a pair: the first one is used for both"} if alike else {}

    @property
    def _first_shape(self) -> tuple[int, ...]:
        shape = first_shape(self.axes, self.width, self.heads)
        return shape if self.part is None else (*shape[:2], ROWS, self.width)

    @property
    def coarse(self) -> str | None:
        """A lower-precision dtype for its tokens: float16 for NumPy, bfloat16 otherwise; None if not supported."""
        if self.dtype not in {"float32", "float64"}:
            return None
        coarse = "float16" if self.library.name == "numpy" else "bfloat16"
        return coarse if self.library.holds(coarse) else None

    @property
    def summary(self) -> dict[str, Any]:
        """See `ForeignFunction`; with the shape that fitted, unless it is a plain one."""
        part = {}
        if self.part is not None:
            part = {"part": self.part.text, "other_parts": [other.text for other in self.part.other_orders()]}
        return super().summary | {"dtype": self.dtype, **part, **self.shape_words}

    @property
    def shape_words(self) -> dict[str, Any]:
        """The shape that fitted and those that did not, each with the reason; nothing of a plain shape."""
        if self.shape.is_plain:
            return {}
        words = {word: word for word in AXES}
        others = {self._said(shape, words): why for shape, why in self.tried.items() if why}
        found = {"shape": self._said(self.shape, words), "did_not_fit": others}
        other = self.shape.other_reading
        if other is None or self.tried.get(other) != _DIFFERS:
            return found
        return {**found, "other_reading": self._said(other, words)}  # which another caller may mean

    def call_text(self, shape: tuple[int, ...]) -> str:
        """The call with its shapes, as text for messages."""
        return self._said(replace(self.shape, places=self.places), dict(zip(AXES, shape, strict=True)))

    def _said(self, shape: CallShape, sizes: Mapping[str, Any]) -> str:
        return f"function({shape.text(sizes, self.width if self.rotary is None else self.rotary.rotated)})" + (
            f" -> {shape.returns}" if shape.returns else ""
        )


def first_places(coordinates: int = 1) -> np.ndarray:
    """The positions of the first tokens that a function is called with: 0 to 3, or zeros [4, coordinates]."""
    return np.arange(4) if coordinates == 1 else np.zeros((4, coordinates), np.int64)


def first_shape(axes: tuple[str, ...], width: int, heads: int = 2) -> tuple[int, ...]:
    """The shape of the first tokens that a function is called with, [batch, heads, seq, width]."""
    # The sizes differ, so that one axis cannot be taken for another.
    return (3 if "batch" in axes else 1, heads if "heads" in axes else 1, 4, width)
