"""Functions of tokens under test, a user's or a suspect's, and the experiments that rotary and additive codes share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import output_dtype
from clockhands.recognition.probe_positions import probe_positions
from clockhands.testing._experiments import ROWS, Answer, Experiment, Unasked, experiment
from clockhands.testing.functions._calls import Called, first_places, first_shape
from clockhands.testing.functions._counted_rows import in_runs, numbered
from clockhands.testing.functions._subject import CheckedFunction

COUNTS = "it counts its rows itself"
ALONE = "it returns a table and takes no tokens"

# Tokens of more numbers than this, which only the experiment on every position has, are not kept.
_KEPT = 2**18


@dataclass
class CheckedTokens(CheckedFunction):
    """A function of tokens under test: the user's, or a suspect that is called in the same way.

    A family of encodings says what is expected (`compared`) and which inputs its experiments have.

    Attributes:
        called: The user's function as a function of NumPy arrays.
        keys: The user's function for keys, if they are treated differently; else None.
        drawn: The tokens that were drawn, because every suspect gets the same.
        call: The arguments that it takes.
        axes: The axes of its tokens, in the function's order.
        coarse: A lower-precision dtype that its tokens may have too, or None.
    """

    called: Called
    keys: Called | None = None
    drawn: dict[tuple[Any, ...], np.ndarray] = field(default_factory=dict, repr=False)

    gets_whole_sequences = False  # a suspect that stands for a function that counts its rows itself
    one_axis = "the encoding has one axis"
    coordinate_rows = ROWS
    packed = (np.arange(8),)
    again = ("the same positions again", ROWS, 3)

    def __post_init__(self) -> None:
        """See `CheckedFunction`."""
        super().__post_init__()
        self.call: str = self.called.call
        self.axes: tuple[str, ...] = self.called.axes
        self.coarse: str | None = self.called.coarse

    @property
    def lowest(self) -> int:
        """The first position that is checked."""
        return 0

    @property
    def width(self) -> int:
        """The number of channels of a token."""
        return getattr(self.spec, "head_width", None) or self.spec.width

    @property
    def coordinates(self) -> int | None:
        """The number of coordinates of a position; None where a position is one number."""
        raise NotImplementedError

    def compared(
        self, x: np.ndarray, at: np.ndarray, dtype: str | None, role: str | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Call it: its output, the expected output, and the bound of each error.

        Of a suspect, the bound is that of the arithmetic that the suspect stands for, if its errors may be larger.
        """
        raise NotImplementedError

    def sibling(self, field: str) -> tuple[str, Any]:
        """A phrase and a spec that differs in one field, which the key of a cache may lack; or raises `Unasked`."""
        raise NotImplementedError

    def later_runs(self) -> list[tuple[str, np.ndarray]]:
        """Runs of positions that start later, each with a phrase."""
        raise NotImplementedError

    def beside(self, *_: str) -> tuple[int, int, str]:
        """The numbers of sequences and heads for one call, and a phrase for them."""
        return 3, 1, "3 sequences"

    def needs_positions(self) -> None:
        """Raise `Unasked` if the positions of an experiment cannot be passed to it."""

    def coarse_positions(self, after: bool) -> np.ndarray:
        """Positions for tokens of a lower-precision dtype, or ``after`` such tokens."""
        raise NotImplementedError

    def model_positions(self) -> np.ndarray:
        """Positions for two models."""
        return self.near_to(np.arange(ROWS))

    def places(self, most: int | None = None) -> np.ndarray:
        """Positions below the length, and below ``most``, at which rounding errors become visible."""
        at = _kept_positions(self.length if most is None else min(self.length, most))
        return at[at >= self.lowest] if self.lowest else at

    def near_to(self, positions: Any) -> np.ndarray:
        """These positions, clipped to the range from ``lowest`` to ``length - 1``."""
        return np.clip(np.asarray(positions), self.lowest, self.length - 1)

    def at_axes(self, positions: np.ndarray) -> np.ndarray:
        """Positions of text: all coordinates of a token are equal."""
        axes = self.coordinates
        return positions if axes is None else np.repeat(positions[..., None], axes, axis=-1)

    def tokens(self, *shape: int, seed: int = 0, dtype: str | None = None) -> np.ndarray:
        """Tokens [batch, heads, seq, width] that the dtype represents exactly; zeros if it returns a table."""
        shape, dtype = (*shape, self.width), dtype or self.dtype
        if self.called.shape.is_table:
            return np.zeros(shape)
        if (shape, seed, dtype) in self.drawn:
            return self.drawn[shape, seed, dtype]
        x = np.random.default_rng(seed).standard_normal(shape).astype(output_dtype(dtype)).astype(np.float64)
        if x.size <= _KEPT:
            x.flags.writeable = False
            self.drawn[shape, seed, dtype] = x
        return x

    def answer(
        self,
        asked: str,
        x: np.ndarray,
        positions: np.ndarray,
        *,
        dtype: str | None = None,
        role: str | None = None,
        given: bool = False,
    ) -> Answer:
        """Call it, and return its output with the expected output and the bounds.

        Args:
            asked: The input, as a phrase for messages.
            x: Tokens [batch, heads, seq, width].
            positions: [seq] or [batch, seq].
            dtype: The dtype of the tokens, if not its default dtype.
            role: ``"key"`` for keys.
            given: Whether positions already have the axis of coordinates.
        """
        numbers = self.compared(x, positions if given else self.at_axes(positions), dtype, role)
        where = positions[..., 0] if given and self.coordinates is not None else positions
        return Answer(asked, *numbers, np.broadcast_to(where, (len(x), x.shape[-2]))[:, None])

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """The output for tokens [batch, heads, seq, width], float64 of the same shape."""
        if self.process is not None:
            return self._simulated(x, positions, dtype or self.dtype, role)
        called = self.keys if role == "key" and self.keys is not None else self.called
        if role == "key" and self.called.shape.pairs:
            return called(other_tokens(x), positions, dtype=dtype, beside=x)
        return called(x, positions, dtype=dtype)

    def _simulated(self, x: np.ndarray, positions: np.ndarray, dtype: str, role: str | None) -> np.ndarray:
        """The output of the suspect, which is called as often as the user's function, because it may keep state."""
        if self.called.shape.counts and self.gets_whole_sequences and self.called.part is None:
            return numbered(lambda part, at: self.model(part, at, dtype, role), x, positions, self.length)
        if "offset" in self.called.shape.takes:
            return in_runs(lambda part, at: self.model(part, at, dtype, role), x, positions)
        return self.model(x, positions, dtype, role)

    def first_call(self, dtype: str | None) -> None:
        """See `CheckedFunction`."""
        shape = first_shape(self.axes, self.width)
        x = np.zeros(shape) if self.called.shape.is_table else np.ones(shape)
        self(x, self.called.start + first_places(self.coordinates or 1), dtype=dtype)

    def of(self, spec: Any, first: str | None = None) -> Any:
        """See `CheckedFunction`."""
        it = super().of(spec, first)
        if self.suspect is not None and self.suspect.parts is None:
            it.first_call(first)
        return it


@lru_cache(maxsize=64)
def _kept_positions(length: int) -> np.ndarray:
    at = probe_positions(length)
    at.flags.writeable = False
    return at


def other_tokens(x: np.ndarray) -> np.ndarray:
    """The queries that are passed along with keys, and the keys along with queries; of this shape."""
    return np.random.default_rng(11).standard_normal(x.shape)


def a_few_positions(it: CheckedTokens) -> list[Answer]:
    """Tokens at positions near and far."""
    at = it.places()
    return [it.answer("a few positions", it.tokens(1, 1, len(at)), at)]


def positions_that_start_later(it: CheckedTokens) -> list[Answer]:
    """Runs of tokens that do not start at position 0."""
    it.needs_positions()
    return [it.answer(words, it.tokens(1, 1, len(at)), at) for words, at in it.later_runs()]


def any_order(it: CheckedTokens) -> list[Answer]:
    """Packed sequences, repeated positions and positions out of order get what each token gets alone."""
    it.needs_positions()
    at = it.near_to(np.concatenate(it.packed))
    return [it.answer("sequences packed into one", it.tokens(1, 1, len(at), seed=1), at)]


def one_at_a_time(it: CheckedTokens) -> list[Answer]:
    """Each token alone, with its position."""
    it.needs_positions()
    x, at = it.tokens(1, 1, 6, seed=2), it.near_to([0, 1, 2, 5, 40, 300])
    return [
        it.answer(f"position {place} alone", x[:, :, row : row + 1], at[row : row + 1]) for row, place in enumerate(at)
    ]


def repeated_call(it: CheckedTokens) -> list[Answer]:
    """The same question has the same answer, whatever was asked between."""
    words, most, seed = it.again
    at = it.places(most)
    return [it.answer(words, it.tokens(1, 1, len(at), seed=seed), at) for _ in range(2)]


def beside_each_other(it: CheckedTokens, role: str | None = None) -> list[Answer]:
    """Sequences and heads beside each other, at the same positions."""
    batch, heads, words = it.beside()
    asked, seed = ("keys, ", 18) if role == "key" else ("", 4)
    x = it.tokens(batch, heads, 5, seed=seed)
    return [it.answer(f"{asked}{words}", x, it.near_to(np.arange(2, 7)), role=role)]


def positions_of_their_own(it: CheckedTokens, role: str | None = None) -> list[Answer]:
    """Sequences of a batch that have positions of their own, as with padding on the left, get what each gets alone."""
    it.needs_positions()
    heads = it.beside("batch")[1]
    at = it.near_to(np.stack([np.arange(6), np.arange(3, 9), np.maximum(np.arange(6) - 2, 0)]))
    asked, seed = ("keys of ", 19) if role == "key" else ("", 5)
    x = it.tokens(3, heads, 6, seed=seed)
    answer = it.answer(f"{asked}3 sequences, each with its own positions", x, at, role=role)
    if it.suspect is None and answer.wrong.any() and (axes := it.called.axes_without_batch()):
        raise Unasked(
            f"it takes no batch, as far as is known: x [{axes}] with positions [seq] fits as well; "
            f'pass axes="{it.called.shape.axes_text}" and positions="batch seq" if it has one'
        )
    return [answer]


def one_token_of_many_sequences(it: CheckedTokens) -> list[Answer]:
    """One token of each of three sequences."""
    heads = it.beside("batch")[1]
    return [it.answer("one token of each of 3 sequences", it.tokens(3, heads, 1, seed=6), it.near_to([9]))]


def coordinates_of_their_own(it: CheckedTokens) -> list[Answer]:
    """Tokens whose coordinates differ, as those of an image."""
    if it.coordinates is None:
        raise Unasked(it.one_axis)
    rows = it.coordinate_rows
    at = np.random.default_rng(8).integers(0, min(it.length, 40), (rows, it.coordinates))
    return [it.answer("coordinates that differ", it.tokens(1, 1, rows, seed=7), at, given=True)]


def coarser_tokens(it: CheckedTokens) -> list[Answer]:
    """Tokens of a coarser dtype get the same code, rounded to it at the end."""
    _needs_coarser(it)
    at = it.coarse_positions(after=False)
    x = it.tokens(1, 1, len(at), seed=10, dtype=it.coarse)
    return [it.answer(f"{it.coarse} tokens", x, at, dtype=it.coarse)]


def coarser_tokens_before(it: CheckedTokens, *, first: bool = False) -> list[Answer]:
    """Tokens of a coarser dtype leave nothing behind for those after them.

    With ``first``, these are the first tokens of a new model.
    """
    _needs_coarser(it)
    at = it.coarse_positions(after=True)
    it = it.of(it.spec, first=it.coarse) if first else it
    it(it.tokens(1, 1, len(at), seed=10, dtype=it.coarse), it.at_axes(at), dtype=it.coarse)
    return [it.answer(f"the same positions after {it.coarse} tokens", it.tokens(1, 1, len(at), seed=11), at)]


def coarser_model_first(it: CheckedTokens) -> list[Answer]:
    """A model whose first tokens are of a coarser dtype gives later ones the same code."""
    return coarser_tokens_before(it, first=True)


def _needs_coarser(it: CheckedTokens) -> None:
    if it.called.shape.is_table:
        raise Unasked(ALONE)
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("no lower-precision dtype is available")


def two_models(field: str, asks: str) -> Experiment:
    """The experiment with two models in one process that differ in this field, which the key of a cache may lack.

    Three calls: a model, a model of the other spec, and the first model again.
    """

    def run(it: CheckedTokens) -> list[Answer]:
        what, other = it.sibling(field)
        first, second, at = it.of(it.spec), it.of(other), it.model_positions()
        x = it.tokens(1, 1, len(at), seed=14)
        return [
            first.answer("the first model", x, at),
            second.answer(f"a second model, of {what}", second.tokens(1, 1, len(at), seed=15), at),
            first.answer(f"the first model after that of {what}", x, at),
        ]

    return Experiment(f"two models of different {field}s", asks, run)


def token_experiments(
    asks: Mapping[str, str],
    *,
    first: tuple[Experiment, ...],
    middle: tuple[Experiment, ...],
    last: tuple[Experiment, ...] = (),
    beside: str,
    fields: tuple[str, ...],
    later_needed: bool,
) -> tuple[Experiment, ...]:
    """The quick experiments of a family: the shared ones, in their order, with those of its own between them.

    Args:
        asks: What a shared experiment tests in this family, by its name.
        first: Experiments of the family alone, before the shared ones.
        middle: Those before the shared ones on repeated calls.
        last: Those before the shared ones on two models.
        beside: The name of the experiment on sequences and heads beside each other.
        fields: The fields in which two models differ.
        later_needed: Whether a function must take positions that start later.
    """

    def shared(name: str, run: Callable[[Any], list[Answer]], *, needed: bool = False) -> Experiment:
        return experiment(name, run, asks.get(name, ""), needed=needed)

    return (
        *first,
        shared("positions that start later", positions_that_start_later, needed=later_needed),
        shared("packed equals separate", any_order),
        shared("decoding equals the full pass", one_at_a_time),
        shared(beside, beside_each_other),
        shared("separate positions per sequence", positions_of_their_own),
        shared("one token for each sequence", one_token_of_many_sequences),
        shared("separate coordinates", coordinates_of_their_own),
        *middle,
        shared("repeated call", repeated_call),
        shared("low-precision tokens", coarser_tokens),
        shared("after low-precision tokens", coarser_tokens_before),
        *last,
        *(two_models(field, asks[f"two models of different {field}s"]) for field in fields),
        shared("a model of low-precision tokens first", coarser_model_first),
    )


def chosen_positions(at: np.ndarray) -> Experiment:
    """A quick experiment at positions at which the function is wrong, and at others."""

    def run(it: CheckedTokens) -> list[Answer]:
        return [it.answer("chosen positions", it.tokens(1, 1, len(at), seed=18), at)]

    return Experiment("chosen positions", "Positions at which it is wrong, and others.", run)
