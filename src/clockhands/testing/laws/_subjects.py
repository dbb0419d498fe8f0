"""The subject of a law: an implementation of an encoding, and the spec that it should implement."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode
from clockhands.encodings.biases import BiasCode
from clockhands.encodings.rotary import Rotary
from clockhands.errors import InvalidType

ADDITIVE, ROTARY, BIAS = "additive", "rotary", "bias"
# Kinds of encodings that are applied to tokens; the laws of `_everywhere` hold for them.
EVERY_KIND = frozenset({ADDITIVE, ROTARY})


class LawBroken(AssertionError):
    """An implementation breaks a law of its kind."""


@dataclass(frozen=True)
class Subject:
    """An implementation of an additive or a rotary encoding.

    Attributes:
        spec: The encoding that it should implement.
        apply: ``apply(x [..., seq, width], positions [seq])``: the tokens with the encoding applied, in ``x``'s dtype;
            both are NumPy arrays. For RoPE, x are queries. Positions are [seq, axes] for several axes, and
            [batch, seq] in the law of packed sequences.
        others: The same implementation with other specs, which must give other numbers.
        positions: The valid positions; laws choose among them.
        tolerance: The largest allowed error of a number of a float32 table; for RoPE, of a dimension of the rotated
            tokens, as a share of the largest number.
        keys: Like ``apply`` for keys, if keys are treated differently from queries.
        coarse: A dtype of lower precision that the implementation takes too, or None.
    """

    spec: Any
    apply: Callable[[np.ndarray, np.ndarray], np.ndarray]
    others: tuple["Subject", ...] = ()
    positions: range = range(-(2**31), 2**31)
    tolerance: float = field(default=2.0**-25 * 1.01)
    keys: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    coarse: Any = np.float16

    @property
    def width(self) -> int:
        """The number of dimensions of a token."""
        return self.spec.head_width if isinstance(self.spec, Rotary) else self.spec.width

    def at(self, positions: np.ndarray) -> np.ndarray:
        """These positions as `apply` takes them: with further coordinates for an encoding of several axes."""
        if isinstance(self.spec, AdditiveCode):
            axes = self.spec.number_of_axes
            # On a line through the origin: a shift of these positions is one shift of all coordinates.
            return positions if axes == 1 else positions[..., None] * np.arange(1, axes + 1)
        if getattr(self.spec, "axes", None) is None:
            return positions
        return positions[..., None] // np.arange(1, self.spec.number_of_axes + 1)

    def among(self, wanted: np.ndarray) -> np.ndarray:
        """The valid ones of these positions."""
        return wanted[(wanted >= self.positions.start) & (wanted < self.positions.stop)]

    def some(self, number: int, seed: int = 0) -> np.ndarray:
        """Sorted positions: half drawn at random from all valid ones, half consecutive; fewer if few are valid."""
        drawn = np.random.default_rng(seed).integers(self.positions.start, self.positions.stop, number // 2)
        start = max(self.positions.start, min(7, self.positions.stop - 1))
        return np.unique(np.concatenate([drawn, np.arange(start, min(start + number // 2, self.positions.stop))]))

    def rows(self, positions: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """The output for one token at each of these positions, [seq, width]; zeros for an additive encoding."""
        x = np.zeros((len(positions), self.width), dtype)
        if isinstance(self.spec, Rotary):
            # Numbers that every dtype represents exactly.
            x += np.random.default_rng(4).integers(-16, 17, self.width).astype(dtype) / np.dtype(dtype).type(8)
        return np.asarray(self.apply(x, self.at(positions)))

    def allowed(self, rows: np.ndarray) -> float:
        """The largest allowed error of a number of these rows."""
        return self.tolerance * (float(np.abs(rows).max(initial=0)) if isinstance(self.spec, Rotary) else 1.0)


@dataclass(frozen=True)
class Law:
    """A property that every encoding of some kinds has.

    Attributes:
        name: Its name.
        kinds: The kinds of encodings for which it holds.
        check: Raises `LawBroken` if a subject breaks it.
    """

    name: str
    kinds: frozenset[str]
    check: Callable[[Any], None]

    @property
    def says(self) -> str:
        """The law in one sentence: the first line of the docstring of ``check``."""
        return (self.check.__doc__ or "").partition("\n")[0]


def laws_of(kinds: frozenset[str], *checks: Callable[[Any], None]) -> tuple[Law, ...]:
    """One law for each of these functions, named after it."""
    return tuple(Law(check.__name__.replace("_", " "), kinds, check) for check in checks)


def kind_of(spec: object) -> str:
    """The kind of a spec, which selects its laws.

    Raises:
        InvalidType: There are no laws for this type.
    """
    if isinstance(spec, AdditiveCode):
        return ADDITIVE
    if isinstance(spec, Rotary):
        return ROTARY
    if isinstance(spec, BiasCode):
        return BIAS
    raise InvalidType(
        f"There are no laws for {type(spec).__name__}.", "Additive codes, rotary codes and biases have laws."
    )


def demand(holds: object, message: str) -> None:
    """Raise `LawBroken` with this message if the condition is false."""
    if not holds:
        raise LawBroken(message)


def close(got: np.ndarray, wanted: np.ndarray, tolerance: float, what: str) -> None:
    """Raise `LawBroken` where the arrays differ in shape, or by more than the tolerance anywhere."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    demand(got.shape == wanted.shape, f"{what}: the shape is {got.shape}, not {wanted.shape}")
    if got.size:
        # A comparison with NaN is false, so NaN is caught too.
        worst = float(np.abs(got - wanted).max())
        demand(worst <= tolerance, f"{what}: off by {worst:.3g}, allowed is {tolerance:.3g}")
