"""An additive implementation in stages, right as it stands: a fault replaces one of them.

Positions are read, multiplied by rates, turned into waves, scaled, and added to the tokens:
``places -> phases -> waves -> table -> add``. All of it is float64, so what a fault does is not hidden by rounding;
positions are as large as models use, not as large as `clockhands.table` takes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.additive import (
    AdditiveCode,
    AxialSinusoidal,
    Binary,
    Counter,
    EvenlySpaced,
    FourierFeatures,
    Learned,
    NormalizedCounter,
    SineOnly,
    SingleFrequency,
    Sinusoidal,
    WarpedPosition,
)
from clockhands.faults.turning import rounded
from clockhands.layouts import pair_channels

Apply = Callable[..., np.ndarray]
"""``apply(x [batch, heads, seq, width], positions [seq] or [batch, seq], dtype, role)``: the tokens and the code."""

# Quarters of a turn that make a wave of a sine, for the two channels of a pair.
_QUARTERS = {
    "sin-cos": (0, 1),
    "cos-sin": (1, 0),
    "sin-sin": (0, 0),
    "cos-cos": (1, 1),
    "-sin-cos": (2, 1),
    "cos--sin": (1, 2),
    "sin": (0,),
    "cos": (1,),
}


@dataclass(frozen=True, eq=False)
class Hands:
    """What each channel holds: ``sin(sum_a p_a rates[a, c] + offsets[c] + quarters[c] pi / 2)``.

    Attributes:
        rates: Radians per token, [axes, width].
        offsets: Radians at the origin, [width].
        quarters: Quarters of a turn, [width]: 0 is a sine, 1 a cosine; -1 is a column of zeros, or a coordinate.
        raw: The axis whose coordinate itself stands here, [width]; -1 for none.
        pairs: The channels of a sine and of its cosine, [pairs, 2].
    """

    rates: np.ndarray
    offsets: np.ndarray
    quarters: np.ndarray
    raw: np.ndarray
    pairs: np.ndarray

    def waves(self, phases: np.ndarray) -> np.ndarray:
        """The waves at phases [..., width], between -1 and 1."""
        with np.errstate(invalid="ignore"):  # beyond the positions of a code that is warped, a phase may be infinite
            out = np.where(self.quarters % 2 == 0, np.sin(phases), np.cos(phases))
        return np.where(self.quarters < 0, 0.0, np.where(self.quarters >= 2, -out, out))


def hands_of(spec: AdditiveCode, values: Any = None) -> Hands | None:
    """The hands of a code of waves; None for another."""
    if isinstance(spec, AxialSinusoidal):
        return _axial(spec)
    if isinstance(spec, FourierFeatures):
        return _fourier(spec, values)
    if isinstance(spec, SineOnly):
        rates = np.array(spec.ladder.rates)[None]
        nothing = np.zeros(spec.width, int)
        return Hands(rates, np.zeros(spec.width), nothing, nothing - 1, np.empty((0, 2), int))
    if isinstance(spec, Sinusoidal):
        written = min(spec.width, 2 * spec.ladder.pairs)
        half = -(-written // 2)
        pairs = spec.ladder.pairs
        channels = pair_channels(pairs, "interleaved")
        if spec.layout == "halves":
            channels = np.stack([np.arange(pairs), half + np.arange(pairs)], axis=1)
        return _of_pairs(spec.width, [(0, np.array(spec.rates), channels)], spec.order, 1, written)
    if isinstance(spec, SingleFrequency | EvenlySpaced | WarpedPosition):
        channels = pair_channels(spec.ladder.pairs, spec.layout)
        return _of_pairs(spec.width, [(0, np.array(spec.ladder.rates), channels)], spec.order, 1, spec.width)
    return None


def _axial(spec: AxialSinusoidal) -> Hands:
    channels, coordinates = spec.places
    parts = [
        (axis, np.array(rates), places) for axis, (rates, places) in enumerate(zip(spec.rates, channels, strict=True))
    ]
    hands = _of_pairs(spec.width, parts, spec.order, spec.number_of_axes, spec.width)
    if spec.raw is not None:
        hands.raw[coordinates] = np.arange(spec.number_of_axes)
    return hands


def _of_pairs(
    width: int, parts: list[tuple[int, np.ndarray, np.ndarray]], order: str, axes: int, written: int
) -> Hands:
    rates, quarters = np.zeros((axes, width)), np.full(width, -1)
    whole: list[np.ndarray] = []
    for axis, ladder, channels in parts:
        for wave, quarter in enumerate(_QUARTERS[order]):
            at = channels[:, wave]
            there = at < written
            rates[axis, at[there]] = ladder[there]
            quarters[at[there]] = quarter
        kept = channels[(channels < written).all(axis=1)]
        whole.append(kept[:, ::-1] if order.startswith("cos") else kept)
    known = order in {"sin-cos", "cos-sin"}
    pairs = np.concatenate(whole) if known else np.empty((0, 2), int)
    return Hands(rates, np.zeros(width), quarters, np.full(width, -1), pairs)


def _fourier(spec: FourierFeatures, values: Any) -> Hands:
    numbers = np.asarray(values, np.float64).reshape(-1, spec.pairs) * spec.multiplier
    waves = _QUARTERS[spec.order]
    number = len(waves) * spec.pairs
    lead = spec.axes if spec.raw == "before" else 0
    if len(waves) == 1:
        channels = np.arange(spec.pairs)[:, None]
    elif spec.layout == "halves":
        channels = np.arange(number).reshape(2, -1).T
    else:
        channels = np.arange(number).reshape(-1, 2)
    rates, offsets = np.zeros((spec.axes, spec.width)), np.zeros(spec.width)
    quarters, raw = np.full(spec.width, -1), np.full(spec.width, -1)
    for wave, quarter in enumerate(waves):
        at = lead + channels[:, wave]
        rates[:, at], quarters[at] = numbers[: spec.axes], quarter
        if spec.offsets:
            offsets[at] = numbers[spec.axes]
    if spec.raw is not None:
        raw[np.arange(spec.axes) + (0 if spec.raw == "before" else number)] = np.arange(spec.axes)
    return Hands(rates, offsets, quarters, raw, np.empty((0, 2), int))


class Adding:
    """A right implementation, or one with a stage of another kind.

    Each stage is a function that is called with what the stage before made, and with the call (`Call`). ``reached``
    holds the positions that the last rows were made for; ``cells`` where the rows of a grid stand, [rows, axes].
    """

    def __init__(
        self,
        spec: AdditiveCode,
        values: Any = None,
        *,
        hands: Hands | None = None,
        places: Callable[[np.ndarray, "Call"], np.ndarray] | None = None,
        phases: Callable[[np.ndarray, "Call"], np.ndarray] | None = None,
        waves: Callable[[np.ndarray, "Call"], np.ndarray] | None = None,
        table: Callable[[np.ndarray, "Call"], np.ndarray] | None = None,
        add: Callable[[np.ndarray, np.ndarray, float], np.ndarray] | None = None,
        scale: float | None = None,
        token_scale: float = 1.0,
        cells: np.ndarray | None = None,
    ) -> None:
        self.spec, self.values = spec, values
        self.hands = hands_of(spec, values) if hands is None else hands
        self.mean, self.scale = getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0)))
        if scale is not None:
            self.scale = scale
        if isinstance(spec, Sinusoidal) and spec.scaled:
            self.scale = self.scale * float(np.asarray(values).reshape(()))
        self.places, self.make_phases, self.waves, self.table, self.add = places, phases, waves, table, add
        self.token_scale, self.cells = token_scale, cells
        self.reached = np.zeros(0)

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, dtype: str = "float32", role: str | None = None
    ) -> np.ndarray:
        """What it makes of tokens [batch, heads, seq, width], float64."""
        at = np.asarray(positions, np.float64)
        if self.cells is not None:  # positions are the numbers of a grid's rows
            at = self.cells[np.clip(at.astype(np.int64), 0, len(self.cells) - 1)]
        call = Call(x, at, dtype, self)
        rows = self.rows(at if self.places is None else self.places(at, call), call)
        if self.table is not None:
            rows = self.table(rows, call)
        return (self.add or added)(x, call.aligned(rows), self.token_scale)

    def rows(self, at: np.ndarray, call: "Call") -> np.ndarray:
        """The rows at these positions, before they are kept as a table."""
        if self.hands is None:
            return _plain_rows(self.spec, at, self.values)
        self.reached = at
        warped = _warped(self.spec, at)
        phases = self.phases(warped) if self.make_phases is None else self.make_phases(warped, call)
        waves = self.hands.waves(phases)
        if self.waves is not None:
            waves = self.waves(waves, call)
        for channel in np.flatnonzero(self.hands.raw >= 0):
            axis = self.hands.raw[channel]
            waves[..., channel] = at[..., axis] if self.hands.rates.shape[0] > 1 else at
        rows = (waves - self.mean) * self.scale
        for zero in getattr(self.spec, "zero_rows", ()):
            rows[at == zero] = 0
        if self.cells is not None:  # class tokens stand nowhere
            rows[np.isnan(at).reshape(*rows.shape[:-1], -1).any(axis=-1)] = 0
        return rows

    def phases(self, at: np.ndarray, rates: np.ndarray | None = None) -> np.ndarray:
        """Position times rate, [..., seq, width]."""
        assert self.hands is not None
        rates = self.hands.rates if rates is None else rates
        return (at[..., None] * rates[0] if len(rates) == 1 else at @ rates) + self.hands.offsets


class Call:
    """What a stage may know of the call that it serves."""

    def __init__(self, x: np.ndarray, positions: np.ndarray, dtype: str, adding: Adding) -> None:
        self.x, self.positions, self.dtype, self.adding = x, positions, dtype, adding

    def aligned(self, rows: np.ndarray) -> np.ndarray:
        """Rows [seq, width] or [batch, seq, width] that broadcast over heads."""
        return rows[:, None] if rows.ndim == 3 else rows


def added(x: np.ndarray, rows: np.ndarray, token_scale: float) -> np.ndarray:
    """The right last stage."""
    return token_scale * x + rows


def _warped(spec: AdditiveCode, at: np.ndarray) -> np.ndarray:
    if not isinstance(spec, WarpedPosition):
        return at
    with np.errstate(divide="ignore", invalid="ignore"):
        if spec.warp == "square":
            return at * at
        return np.log(at) if spec.warp == "log" else 1 / at


def _plain_rows(spec: AdditiveCode, at: np.ndarray, values: Any) -> np.ndarray:
    """The rows of a code without waves."""
    if isinstance(spec, Learned):
        table = np.asarray(values, np.float64)
        # As indexing does: from the end below 0; beyond the end the last row, as JAX has it.
        return table[np.clip(np.floor(at).astype(np.int64) + spec.offset, -spec.rows, spec.rows - 1)]
    channels = np.arange(spec.width)
    if isinstance(spec, Binary):
        return np.floor(at[..., None] / 2.0**channels) % 2
    if isinstance(spec, Counter):
        return np.repeat(at[..., None], spec.width, axis=-1)
    if isinstance(spec, NormalizedCounter):
        return np.repeat(at[..., None] / (spec.length - 1), spec.width, axis=-1)
    return np.zeros((*at.shape, spec.width))


__all__ = ["Adding", "Apply", "Call", "Hands", "added", "hands_of", "rounded"]
