"""The subject of a law: an implementation of a code, and the spec that it should implement."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.biases import BiasCode
from clockhands.errors import InvalidType
from clockhands.rotary import Rotary

ADDITIVE, ROTARY, BIAS = "additive", "rotary", "bias"
# Kinds whose codes are applied to tokens; `_everywhere` holds for each of them.
EVERY_KIND = frozenset({ADDITIVE, ROTARY})


class LawBroken(AssertionError):
    """A code does not do what codes of its kind do."""


@dataclass(frozen=True)
class Subject:
    """An implementation of a code.

    Attributes:
        spec: The code that it claims to be.
        apply: ``apply(x [..., seq, width], positions [seq])``: the tokens with the code applied, in ``x``'s dtype,
            both NumPy arrays. A rotary code's queries; positions are [seq, axes] where it has several axes, and
            [batch, seq] in the law of packed sequences.
        others: The same implementation of other specs, to be told apart from this one.
        positions: Where the code has numbers; laws choose among them.
        tolerance: How far a number of a float32 table may be from the real one; for a rotary code, a channel of what
            it turned, as a share of the largest.
        keys: A rotary code's keys, where it treats them otherwise than queries.
        coarse: A dtype of less precision that the implementation takes too, or None.
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
        """Channels of what the code is applied to."""
        return self.spec.head_width if isinstance(self.spec, Rotary) else self.spec.width

    def at(self, positions: np.ndarray) -> np.ndarray:
        """These positions as `apply` takes them: with further coordinates for a code of several axes."""
        if isinstance(self.spec, AdditiveCode):
            axes = self.spec.number_of_axes
            # Along a line through the origin: a shift of these positions is one shift of all coordinates.
            return positions if axes == 1 else positions[..., None] * np.arange(1, axes + 1)
        if getattr(self.spec, "axes", None) is None:
            return positions
        return positions[..., None] // np.arange(1, self.spec.number_of_axes + 1)

    def among(self, wanted: np.ndarray) -> np.ndarray:
        """Those of these positions at which the code has numbers."""
        return wanted[(wanted >= self.positions.start) & (wanted < self.positions.stop)]

    def some(self, number: int, seed: int = 0) -> np.ndarray:
        """Positions drawn from all over, and a run of consecutive ones; fewer where there are fewer."""
        drawn = np.random.default_rng(seed).integers(self.positions.start, self.positions.stop, number // 2)
        start = max(self.positions.start, min(7, self.positions.stop - 1))
        return np.unique(np.concatenate([drawn, np.arange(start, min(start + number // 2, self.positions.stop))]))

    def rows(self, positions: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """What the code makes of one token at these positions, [seq, width]: of no numbers, or of a head's."""
        x = np.zeros((len(positions), self.width), dtype)
        if isinstance(self.spec, Rotary):
            # Numbers that every dtype holds.
            x += np.random.default_rng(4).integers(-16, 17, self.width).astype(dtype) / np.dtype(dtype).type(8)
        return np.asarray(self.apply(x, self.at(positions)))

    def allowed(self, rows: np.ndarray) -> float:
        """How far a number of these rows may be off."""
        return self.tolerance * (float(np.abs(rows).max(initial=0)) if isinstance(self.spec, Rotary) else 1.0)


@dataclass(frozen=True)
class Law:
    """Something that every code of some kinds does.

    Attributes:
        name: What it is called by.
        kinds: The kinds of codes that it holds for.
        check: Raises `LawBroken` where a subject does otherwise.
    """

    name: str
    kinds: frozenset[str]
    check: Callable[[Any], None]

    @property
    def says(self) -> str:
        """The law in one sentence."""
        return (self.check.__doc__ or "").partition("\n")[0]


def laws_of(kinds: frozenset[str], *checks: Callable[[Any], None]) -> tuple[Law, ...]:
    """The laws that these functions check, called by their names."""
    return tuple(Law(check.__name__.replace("_", " "), kinds, check) for check in checks)


def kind_of(spec: object) -> str:
    """The kind of a spec, by which its laws are chosen.

    Raises:
        InvalidType: Its kind has no laws.
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
    """Raise `LawBroken` with this message unless it holds."""
    if not holds:
        raise LawBroken(message)


def close(got: np.ndarray, wanted: np.ndarray, tolerance: float, what: str) -> None:
    """Raise `LawBroken` where the arrays differ in shape, or by more than the tolerance anywhere."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    demand(got.shape == wanted.shape, f"{what}: the shape is {got.shape}, not {wanted.shape}")
    if got.size:
        # NaN is no less than anything, so it is caught too.
        worst = float(np.abs(got - wanted).max())
        demand(worst <= tolerance, f"{what}: off by {worst:.3g}, allowed is {tolerance:.3g}")
