"""A user's function wrapped as a function of NumPy arrays: its axes, signature and return value are checked."""

import itertools
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
    ForeignFunction,
    Library,
    Refused,
    TimedOut,
    as_numpy,
    float_name,
    kind_of,
    library_name,
    likely_libraries,
    refusals,
)
from clockhands.recognition.suspects import RotaryObservations, rotation_suspects
from clockhands.testing.functions._argument_names import POSITIONS, RESIZING, SETTINGS
from clockhands.testing.functions._call_shapes import AXES, PAIRS, CallShape, axes_of, shapes
from clockhands.testing.functions._counted_rows import in_runs, numbered
from clockhands.testing.functions._rank_parts import ROWS, SequencePart, sequence_part
from clockhands.testing.functions._wave_tables import parts_of, rotated_by, setting_of, table_of, waves_in
from clockhands.testing.reports import CannotCheck

_DIFFERS = "its numbers differ"
_RIGHT = 5  # the fit of a shape in which the numbers of a function are right
_IN_COMMON = 4.5  # of one in which they are right where all sequences have the same positions
_KNOWN = 4  # of one in which they are those of a known fault
_ROTATES = 3  # of one in which they are those of another rotation that depends on the position alone
_NEAR = 0.05  # of the largest number: more than any dtype rounds by, less than what another layout gives
_ADVISED_AXES = ("seq width", "batch heads seq width", "batch seq heads width", "batch seq width")
_ADVISED_CALLS = ("x, positions", "x", PAIRS)


class Called(ForeignFunction):
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
        resizing: Mapping[str, Any] | None = None,
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
    ) -> None:
        """Find out how it is called, and with which library; its first tokens have the dtype ``first``, if given."""
        if not callable(function):
            raise InvalidType(
                f"Expected a function, got {shown(function)}.", "Give a function(x, positions), or pass make=."
            )
        dtype = float_name(dtype)
        super().__init__(function, dtype, timeout)
        self.width, self.start, self.rotary, self.coordinates = width, start, rotary, coordinates
        self.resizing: Mapping[str, Any] | None = resizing
        self.heads: int = heads or 2
        self.all_heads: bool = heads is not None  # every call has this number
        self.given: str = one_of("dtype", first or dtype, FLOATS, "It is the dtype of x.")
        self.most: int | None = None
        self.tried: dict[CallShape, str] = {}
        candidates = shapes(function, call, axes, positions, rotary, counted=rank is not None)
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
        best = max(found, key=lambda each: each[0])[1]
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
        at = self._text(np.array([0, 1, 2, 5])) if self.part is None else first
        answers = [(self(x, at), self(same, at))]
        if self.shape.pairs:
            answers += [(self(x, at, beside=x), self(same, at, beside=same))]
        if self.shape.returns and self.shape.has_tokens and not np.array_equal(self(-x, at), -answers[0][0]):
            raise Refused("it returned two arrays that depend on its tokens, not cosines and sines")
        fit = max(self._side_fit(x, at, *each) for each in answers)
        return fit if fit < _RIGHT or self._right_apart(x, at) else _IN_COMMON

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

    def _side_fit(self, x: np.ndarray, positions: np.ndarray, y: np.ndarray, same: np.ndarray) -> int:
        if self.rotary is not None:
            if self._is_right(x, positions, y):
                return _RIGHT
            if self.shape.table is not None and self._is_known(x, positions, y):
                return _KNOWN
        alike = np.array_equal(same, np.broadcast_to(same[:1, :1], same.shape))
        apart = len(np.unique(same[0, 0], axis=0)) > 1
        sizes = np.linalg.norm(y, axis=-1) / np.linalg.norm(x, axis=-1)
        return 2 * (alike and apart) + bool(np.ptp(sizes) < _NEAR)

    def _is_known(self, x: np.ndarray, positions: np.ndarray, y: np.ndarray) -> bool:
        """Whether the numbers are those of a fault that can be had with the cosines and sines that it is given."""
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

    def _text(self, positions: np.ndarray) -> np.ndarray:
        return positions if self.coordinates == 1 else np.repeat(positions[:, None], self.coordinates, axis=-1)

    def _advice(self, backend: Any) -> str:
        """The hint of a refused call: another way to call the function if one works, else how to wrap it."""
        for axes, call in itertools.product(_ADVISED_AXES, _ADVISED_CALLS):
            if (axes_of(axes), call) == (self.axes, self.call) or self.coordinates > 1:
                continue
            shape = CallShape(tuple(call.split(", ")), axes=axes_of(axes), places=self.places)
            for name in likely_libraries(self.function) if backend is None else (backend,):
                try:
                    self._as(shape, Library(name)).fit(alone=True)
                except Refused as error:
                    if "did not return" in str(error):
                        return "Wrap it in a function(x, positions) that returns."
                    continue
                said = [f'axes="{axes}"'] * (shape.axes != self.axes) + [f'call="{call}"'] * (call != self.call)
                return f"It can be called with {' and '.join(said)}: pass these."
        return (
            "Wrap it: def rotated(x, positions): return ... ; x [seq, width], positions [seq], or pass axes= and call="
            ', such as call="q, k, cos, sin".'
        )

    @property
    def call(self) -> str:
        """The arguments that it takes, and what it returns if not tokens."""
        return self.shape.call

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of its tokens, in its order."""
        return self.shape.axes

    @property
    def places(self) -> tuple[str, ...]:
        """The axes of the positions that it takes."""
        return (
            (*self.shape.places, "axes")
            if self.coordinates > 1 and "axes" not in self.shape.places
            else (self.shape.places)
        )

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
        return super().summary | {"dtype": self.dtype, **self.shape_words}

    @property
    def shape_words(self) -> dict[str, Any]:
        """The shape that fitted and those that did not, each with the reason; nothing of a plain shape."""
        if self.shape.is_plain:
            return {}
        words = {word: word for word in AXES}
        others = {self._said(shape, words): why for shape, why in self.tried.items()}
        found = {"shape": self._said(self.shape, words), "did_not_fit": others}
        table = self.shape.table
        other = None if table is None else replace(self.shape, table=table._replace(whole=not table.whole))
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

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, beside: np.ndarray | None = None
    ) -> np.ndarray:
        """The output for these tokens, float64, of x's shape.

        Args:
            x: [batch, heads, seq, width].
            positions: [seq] or [batch, seq], with one more axis for coordinates.
            dtype: The dtype in which x is passed.
            beside: Keys for a function of queries and keys; then the rotated keys are returned, else the queries.
        """
        dtype = dtype or self.given
        if self.all_heads and x.shape[1] < self.heads and "heads" in self.axes:
            every = [None if tokens is None else np.repeat(tokens, self.heads, axis=1) for tokens in (x, beside)]
            assert every[0] is not None
            return self(every[0], positions, dtype=dtype, beside=every[1])[:, :1]
        if self.part is not None:
            return self._output(x, positions, dtype, beside)
        if self.shape.counts:
            keys = x if beside is None else beside

            def whole(part: np.ndarray, at: np.ndarray) -> np.ndarray:
                return self._output(part, at, dtype, None if beside is None else part)

            return numbered(whole, keys, positions, self.most)
        if "offset" in self.shape.takes:
            keys = x if beside is None else beside
            return in_runs(
                lambda part, at: self._output(part, at[0], dtype, None if beside is None else part), keys, positions
            )
        return self._output(x, positions, dtype, beside)

    def _output(self, x: np.ndarray, positions: Any, dtype: str, beside: np.ndarray | None = None) -> np.ndarray:
        if not self.shape.partly:
            return self._answer(x, positions, dtype, beside)
        assert self.rotary is not None
        start = self.rotary.start
        part = slice(start, start + self.rotary.rotated)
        y = np.array(x if beside is None else beside)
        y[..., part] = self._answer(x[..., part], positions, dtype, None if beside is None else beside[..., part])
        return y

    def _answer(self, x: np.ndarray, positions: Any, dtype: str, beside: np.ndarray | None) -> np.ndarray:
        self._outside(x)  # raises for sequences and heads that it has no axes for
        arguments = {word: self._argument(word, x, positions, dtype, beside) for word in self.shape.takes}
        answer = self.ask(arguments, x.size // self.width, self.shape.by_name)
        if self.shape.returns:
            return self._rotated(x if beside is None else beside, answer, positions)
        if "table" in self.shape.takes:
            return self._row_answer(answer, positions, x.shape)
        if self.shape.pairs:
            answer = parts_of(answer, "q, k")[beside is not None]
        elif isinstance(answer, Mapping) or (isinstance(answer, tuple | list) and len(answer) == 1):
            (answer,) = parts_of(answer, "x")
        return self._inside(self._checked(answer, x.shape), x.shape)

    def _argument(self, word: str, x: np.ndarray, positions: Any, dtype: str, beside: np.ndarray | None) -> Any:
        """One argument of a call, by its word in `NAMES`."""
        if word in {"x", "q"}:
            return self.library.floats(self._outside(x), dtype)
        if word == "k":
            other = np.random.default_rng(11).standard_normal(x.shape) if beside is None else beside
            return self.library.floats(self._outside(other), dtype)
        if word == "offset":
            return int(positions)
        if word in POSITIONS:
            asked = {"q_positions": beside is None, "k_positions": beside is not None}.get(word, True)
            seq = -1 - (self.coordinates > 1)
            return self.library.positions(self._places(positions if asked else np.flip(positions, seq), len(x)))
        if word in RESIZING:
            return self._resizing_argument(word, dtype)
        if word in {"cu_seqlens", "rank", "ranks"}:
            part = self.part or SequencePart(0, 1)
            if word == "cu_seqlens":
                return self.library.positions(part.starts(x.shape[-2]))
            return part.rank if word == "rank" else part.ranks
        spec = self.rotary
        if spec is None:
            raise Refused(f"there is no RoPE from which {word} could be made")
        if word == "mscale" and not self.shape.computes and "freqs" not in self.shape.takes:
            return 1.0  # the cosines and sines that it is given have the factor
        if word in SETTINGS:
            return setting_of(word, spec)
        last = int(np.max(positions, initial=0))
        if word == "end":
            return last + 1
        assert self.shape.table is not None
        if self.part is not None:
            positions = self.part.whole(x.shape[-2])
        if self.shape.table.whole:
            positions = np.arange(int(np.max(positions, initial=0)) + 1)
        if self.part is not None or self.shape.table.whole:
            positions = self._text(positions)
        fine = "float64" if dtype == "float64" else "float32"
        made = table_of(word, self.shape.table, spec, positions)
        if isinstance(made, tuple):
            return tuple(self.library.numbers(one, fine) for one in made)
        return self.library.numbers(made, fine)

    def _resizing_argument(self, word: str, dtype: str) -> Any:
        """One argument of a function that resizes a learned table: the table, sizes of grids, the rows before them."""
        if self.resizing is None:
            raise Refused("there is no table that it could resize: pass values= and resized=")
        rows, old, kept = (self.resizing[name] for name in ("rows", "grid", "kept"))
        if word != "table":
            sizes = {"size": rows, "old_size": old, "height": rows[0], "width": rows[-1], "prefix": kept}
            return sizes[word]
        table = np.asarray(self.resizing["values"], np.float64)
        assert self.shape.table is not None
        if self.shape.table.axes == "batch width":
            if kept or len(old) == 1:
                raise Refused("its rows are no grid")
            table = np.moveaxis(table.reshape(*old, -1), -1, 0)
        return self.library.floats(table if self.shape.table.axes == "seq" else table[None], dtype)

    def _row_answer(self, answer: Any, positions: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The rows of these positions in a table that was resized."""
        rows = self.numbers(self.array_or_refuse(answer, kind_of(answer)))
        assert self.shape.table is not None
        assert self.resizing is not None
        if self.shape.table.axes == "batch width" and rows.ndim == 4:
            rows = np.moveaxis(rows, 1, -1)
        wanted = self.resizing["kept"] + int(np.prod(self.resizing["rows"]))
        if rows.size != wanted * self.width or rows.shape[-1] != self.width:
            raise Refused(f"it returned shape {list(answer.shape)} for {wanted} rows of width {self.width}")
        return np.broadcast_to(rows.reshape(wanted, self.width)[positions][..., None, :, :], shape)

    def _rotated(self, x: np.ndarray, answer: Any, positions: np.ndarray) -> np.ndarray:
        """Tokens rotated by the cosines and sines that it returned."""
        assert self.rotary is not None
        if self.rotary.xpos is not None:
            raise Refused("xPos has no cosines and sines that hold for queries and keys")
        wanted = self.shape.returns if "," in self.shape.returns else "x"
        held = []
        for wave in parts_of(answer, wanted):
            array: Any = as_numpy(self.array_or_refuse(wave, kind_of(wave)))
            if np.iscomplexobj(array):
                self.output = "float64" if array.itemsize > 8 else "float32"
                held.append(array)
            else:
                held.append(self.numbers(wave))
        held = list(waves_in(held, self.shape.returns))
        if "positions" not in self.shape.takes:  # it returned all rows from position 0 on
            held = [rows.reshape(-1, rows.shape[-1]) for rows in held]
            if len(held[0]) <= np.max(positions, initial=0):
                raise Refused(f"it returned {len(held[0]):,} rows for {int(np.max(positions)) + 1:,} positions")
            held = [rows[positions] for rows in held]
        return rotated_by(x, (held[0].astype(np.float64), held[1].astype(np.float64)), self.rotary)

    def _checked(self, answer: Any, shape: tuple[int, ...]) -> np.ndarray:
        answer = self.array_or_refuse(answer, kind_of(answer))
        home = library_name(answer)
        if self.library.module is None and home != self.library.name:
            raise Refused(f"it returned an array of {home}")
        wanted = self._outside(np.empty(shape)).shape
        if self.call == "positions" and tuple(answer.shape) == (1, *wanted):
            answer = answer[0]
        if tuple(answer.shape) != wanted:
            raise Refused(f"it returned shape {list(answer.shape)} for x of shape {list(wanted)}")
        return self.numbers(answer)

    def _outside(self, x: np.ndarray) -> np.ndarray:
        """Tokens [batch, heads, seq, width] with the axes of the function, in its order."""
        missing = tuple(place for place, word in enumerate(AXES) if word not in self.axes)
        for place in missing:
            if x.shape[place] > 1:
                raise Refused(f"it is called without an axis of {AXES[place]} (pass axes= if it takes one)")
        order = [word for word in AXES if word in self.axes]
        y = np.transpose(x.squeeze(missing), [order.index(word) for word in self.axes])
        return y.reshape(*y.shape[:-2], -1) if self.shape.flat else y

    def _inside(self, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        if self.shape.flat:
            y = y.reshape(*y.shape[:-1], -1, self.width)
        return np.transpose(y, [self.axes.index(word) for word in AXES if word in self.axes]).reshape(shape)

    def _places(self, positions: np.ndarray, batch: int) -> np.ndarray:
        """Positions with the axes that the function takes, in its order."""
        axes = "axes" in self.places
        wide = positions.ndim > 1 + axes
        if "batch" in self.places and not wide:
            positions = np.broadcast_to(positions, (batch, *positions.shape))
        elif wide and "batch" not in self.places:
            raise Refused(
                'it takes one row of positions for all sequences (pass positions="batch seq" if it takes more)'
            )
        return np.moveaxis(positions, -1, 0) if axes and self.places[0] == "axes" else positions


def first_places(coordinates: int = 1) -> np.ndarray:
    """The positions of the first tokens that a function is called with: 0 to 3, or zeros [4, coordinates]."""
    return np.arange(4) if coordinates == 1 else np.zeros((4, coordinates), np.int64)


def first_shape(axes: tuple[str, ...], width: int, heads: int = 2) -> tuple[int, ...]:
    """The shape of the first tokens that a function is called with, [batch, heads, seq, width]."""
    # The sizes differ, so that one axis cannot be taken for another.
    return (3 if "batch" in axes else 1, heads if "heads" in axes else 1, 4, width)
