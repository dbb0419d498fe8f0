"""A user's function that is called in one shape, as a function of NumPy arrays of tokens and positions."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.recognition.calling import ForeignFunction, Refused, as_numpy, kind_of, library_name
from clockhands.testing.functions._argument_names import POSITIONS, SETTINGS
from clockhands.testing.functions._call_shapes import AXES, CallShape
from clockhands.testing.functions._counted_rows import in_runs, numbered
from clockhands.testing.functions._rank_parts import SequencePart
from clockhands.testing.functions._wave_tables import WAVES, parts_of, rotated_by, setting_of, table_of, waves_in


class ShapedFunction(ForeignFunction):
    """A user's function in a shape: x [batch, heads, seq, width] and positions; it returns float64 of x's shape.

    Attributes:
        shape: The shape in which it is called.
        width: The width of tokens, of a head.
        rotary: The spec from which its cosines, sines and settings are made; None for other codes.
        part: The part of a sequence that it has, or None.
        coordinates: The number of coordinates of a position.
        heads: The number of heads of its tokens.
        all_heads: Whether every call has this number of heads.
        given: The dtype of its tokens.
        most: The largest number of rows for a function that counts them itself, or None if not known.
    """

    shape: CallShape
    width: int
    rotary: Rotary | None
    part: SequencePart | None
    coordinates: int
    heads: int
    all_heads: bool
    given: str
    most: int | None

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

    def _text(self, positions: np.ndarray) -> np.ndarray:
        return positions if self.coordinates == 1 else np.repeat(positions[:, None], self.coordinates, axis=-1)

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
        if self.shape.pairs:
            answer = parts_of(answer, "q, k")[beside is not None]
        elif isinstance(answer, Mapping) or (isinstance(answer, tuple | list) and len(answer) == 1):
            (answer,) = parts_of(answer, "x")
        return self._inside(self._checked(answer, x.shape), x.shape)

    def _argument(self, word: str, x: np.ndarray, positions: Any, dtype: str, beside: np.ndarray | None) -> Any:
        """One argument of a call, by its word."""
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
            return x.shape[-2] if self.shape.pairs or "offset" in self.shape.takes else last + 1
        assert self.shape.table is not None
        if self.part is not None:
            positions = self.part.whole(x.shape[-2])
        if self.shape.table.whole:  # longer than a packed row: one as long is taken for a table of its tokens
            positions = np.arange(last + 1 if self.part is None else positions.size + 1)
        if self.part is not None or self.shape.table.whole:
            positions = self._text(positions)
        fine = "float64" if dtype == "float64" else "float32"
        made = table_of(word, self.shape.table, spec, positions)
        if isinstance(made, tuple):
            return tuple(self.library.numbers(one, fine) for one in made)
        return self.library.numbers(made, fine)

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
            if self.shape.returns == WAVES and not held[0][0].any() and held[1][0].all():  # the sines of position 0
                raise Refused("it returns the sines first")
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
