"""Functions of tokens under test, a user's or a suspect's, and the experiments shared by rotary and additive codes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.dtypes import output_dtype
from clockhands.testing._experiments import Answer, Unasked
from clockhands.testing.functions._calls import PAIRS, Called
from clockhands.testing.reports import CannotCheck

COUNTS = "it counts its rows itself"
ALONE = "it returns a table and takes no tokens"


class DrawnTokens:
    """The inputs of the experiments, for a user's function and for a suspect."""

    def tokens(self: Any, *shape: int, seed: int = 0, dtype: str | None = None) -> np.ndarray:
        """Tokens [batch, heads, seq, width] that the dtype represents exactly; zeros if it returns a table."""
        width = getattr(self.spec, "head_width", None) or self.spec.width
        if self.call == "positions":
            return np.zeros((*shape, width))
        drawn = np.random.default_rng(seed).standard_normal((*shape, width))
        return drawn.astype(output_dtype(dtype or self.dtype)).astype(np.float64)

    def near_to(self: Any, positions: Any) -> np.ndarray:
        """These positions, clipped to the range from ``lowest`` to ``length - 1``."""
        return np.clip(np.asarray(positions), self.lowest, self.length - 1)


@dataclass
class TokenFunction(DrawnTokens):
    """A user's function.

    Attributes:
        spec: The expected encoding.
        called: The function as a function of NumPy arrays.
        keys: The function for keys, if they are treated differently; else None.
        length: Positions ``lowest`` to ``length - 1`` are checked.
        coarse: A lower-precision dtype that its tokens may have too, or None.
        build: Builds the implementation of another spec; None without ``make``.
    """

    spec: Any
    called: Called
    length: int
    coarse: str | None
    keys: Called | None = None
    build: Callable[[Any, str | None], "TokenFunction"] | None = None

    @property
    def dtype(self) -> str:
        """The dtype of its tokens."""
        return self.called.dtype

    @property
    def call(self) -> str:
        """The arguments that it takes."""
        return self.called.call

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of its tokens, in the function's order."""
        return self.called.axes

    @property
    def lowest(self) -> int:
        """The first position that is checked."""
        return 0

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, *, dtype: str | None = None, role: str | None = None
    ) -> np.ndarray:
        """The output for tokens [batch, heads, seq, width], float64 of the same shape."""
        called = self.keys if role == "key" and self.keys is not None else self.called
        if role == "key" and self.call == PAIRS:
            return called(other_tokens(x), positions, dtype=dtype, beside=x)
        return called(x, positions, dtype=dtype)

    def of(self, spec: Any, first: str | None = None) -> "TokenFunction":
        """Another model in this process, with first tokens of dtype ``first``; raises `Unasked` without ``make``."""
        if self.build is None:
            raise Unasked("pass make=, a function that builds one for a spec, to compare two models")
        try:
            return self.build(spec, first)
        except CannotCheck as error:
            raise Unasked(error.message) from error
        except Exception as error:  # user code may raise anything; the reason is reported
            text = " ".join(str(error).split())
            raise Unasked(f"make= raised {type(error).__name__}: {text[:120]}") from error


def other_tokens(x: np.ndarray) -> np.ndarray:
    """The queries that are passed along with keys, and the keys along with queries; of this shape."""
    return np.random.default_rng(11).standard_normal(x.shape)


def one_at_a_time(it: Any) -> list[Answer]:
    """Each token alone, with its position."""
    x, at = it.tokens(1, 1, 6, seed=2), it.near_to([0, 1, 2, 5, 40, 300])
    return [
        it.answer(f"position {place} alone", x[:, :, row : row + 1], at[row : row + 1]) for row, place in enumerate(at)
    ]


def positions_of_their_own(it: Any, heads: int = 1, role: str | None = None) -> list[Answer]:
    """A batch of three sequences with different positions."""
    at = it.near_to(np.stack([np.arange(6), np.arange(3, 9), np.maximum(np.arange(6) - 2, 0)]))
    asked, seed = ("keys of ", 19) if role == "key" else ("", 5)
    roles = {} if role is None else {"role": role}
    return [
        it.answer(f"{asked}3 sequences, each with its own positions", it.tokens(3, heads, 6, seed=seed), at, **roles)
    ]


def one_token_of_many_sequences(it: Any, heads: int = 1) -> list[Answer]:
    """One token of each of three sequences."""
    return [it.answer("one token of each of 3 sequences", it.tokens(3, heads, 1, seed=6), it.near_to([9]))]


def coarser_tokens(it: Any, at: np.ndarray) -> list[Answer]:
    """Tokens of a lower-precision dtype."""
    _needs_coarser(it)
    x = it.tokens(1, 1, len(at), seed=10, dtype=it.coarse)
    return [it.answer(f"{it.coarse} tokens", x, at, dtype=it.coarse)]


def coarser_tokens_before(it: Any, at: np.ndarray, *, first: bool = False) -> list[Answer]:
    """Tokens after lower-precision tokens; with ``first``, these are the first tokens of a new model."""
    _needs_coarser(it)
    it = it.of(it.spec, first=it.coarse) if first else it
    it(it.tokens(1, 1, len(at), seed=10, dtype=it.coarse), it.at_axes(at), dtype=it.coarse)
    return [it.answer(f"the same positions after {it.coarse} tokens", it.tokens(1, 1, len(at), seed=11), at)]


def _needs_coarser(it: Any) -> None:
    if it.call == "positions":
        raise Unasked(ALONE)
    if it.coarse is None or it.coarse == it.dtype:
        raise Unasked("no lower-precision dtype is available")


def two_models(it: Any, what: str, other: Any, at: np.ndarray) -> list[Answer]:
    """Three calls: a model, a model of the spec ``other``, and the first model again.

    The specs differ in one field, which the key of a cache may lack.
    """
    first, second = it.of(it.spec), it.of(other)
    x = it.tokens(1, 1, len(at), seed=14)
    return [
        first.answer("the first model", x, at),
        second.answer(f"a second model, of {what}", second.tokens(1, 1, len(at), seed=15), at),
        first.answer(f"the first model after that of {what}", x, at),
    ]
