"""An additive implementation in stages, and suspects that apply the right spec incorrectly.

Its stages are ``places -> phases -> waves -> table -> add``: the sinusoids are scaled and added to the tokens. The
suspects use wrong positions, round numbers, change the sum, or keep state between calls.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.additive import (
    AdditiveCode,
    Binary,
    Counter,
    Learned,
    NormalizedCounter,
    Sinusoidal,
    WarpedPosition,
)
from clockhands.encodings.grids import Grid
from clockhands.recognition.channel_waves import ChannelWaves, sinusoid_channels
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._stages import (
    COARSE,
    PARTS,
    Apply,
    Call,
    Places,
    Stage,
    SuspectMaker,
    always,
    coarse_caches,
    first_axis,
    first_sequence_only,
    for_tokens_of,
    kept_by_length,
    other_ends,
    phase_rounding,
    rebuilt_tables,
    rounding,
    shared,
)
from clockhands.recognition.unwrapped_phases import rates_of_angles

Add = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
"""The last stage: ``add(x, rows, factor on tokens) -> sum``."""


class StagedAdditive:
    """A correct implementation, or one with some stages replaced.

    ``reached`` has the positions of the last computed rows; ``cells`` the positions of the rows of a grid,
    [rows, axes].
    """

    def __init__(
        self,
        spec: AdditiveCode,
        values: Any = None,
        *,
        hands: ChannelWaves | None = None,
        places: Stage | None = None,
        phases: Stage | None = None,
        waves: Stage | None = None,
        table: Stage | None = None,
        add: Add | None = None,
        scale: float | None = None,
        token_scale: float = 1.0,
        cells: np.ndarray | None = None,
    ) -> None:
        self.spec: AdditiveCode = spec
        self.places: Stage | None = places
        self.other_phases: Stage | None = phases
        self.waves: Stage | None = waves
        self.values: Any = values
        self.hands: ChannelWaves | None = sinusoid_channels(spec, values) if hands is None else hands
        self.mean: Any
        self.scale: Any
        self.mean, self.scale = getattr(spec, "affine", (0.0, getattr(spec, "scale", 1.0)))
        if scale is not None:
            self.scale = scale
        if isinstance(spec, Sinusoidal) and spec.scaled:
            self.scale = self.scale * float(np.asarray(values).reshape(()))
        self.table: Stage | None = table
        self.add: Add = add or added
        self.token_scale: float = token_scale
        self.cells: np.ndarray | None = cells
        self.reached: np.ndarray = np.zeros(0)

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, dtype: str = "float32", role: str | None = None
    ) -> np.ndarray:
        """The result for tokens [batch, heads, seq, width], float64."""
        at = np.asarray(positions, np.float64)
        if self.cells is not None:  # positions are the numbers of a grid's rows
            at = self.cells[np.clip(at.astype(np.int64), 0, len(self.cells) - 1)]
        call = Call(self, x, at, dtype, role)
        if self.places is not None:
            at = self.places(at, call)
        rows = self.rows(at, call)
        if self.table is not None:
            rows = self.table(rows, call)
        return self.add(x, rows[:, None] if rows.ndim == 3 else rows, self.token_scale)

    def rows(self, at: np.ndarray, call: Call) -> np.ndarray:
        """The rows at these positions, [..., seq, width], before the ``table`` stage."""
        if self.hands is None:
            return _rows_without_waves(self.spec, at, self.values)
        self.reached = at
        warped = _warped(self.spec, at)
        phases = self.phases(warped) if self.other_phases is None else self.other_phases(warped, call)
        waves = self.hands.waves(phases)
        if self.waves is not None:
            waves = self.waves(waves, call)
        for channel in np.flatnonzero(self.hands.raw >= 0):
            axis = self.hands.raw[channel]
            waves[..., channel] = at[..., axis] if self.hands.rates.shape[0] > 1 else at
        rows = (waves - self.mean) * self.scale
        for zero in getattr(self.spec, "zero_rows", ()):
            rows[at == zero] = 0
        if self.cells is not None:  # class tokens have no position
            rows[np.isnan(at).reshape(*rows.shape[:-1], -1).any(axis=-1)] = 0
        return rows

    @property
    def rates(self) -> np.ndarray:
        """Radians per token, [axes, width]."""
        assert self.hands is not None
        return self.hands.rates

    def phases(self, at: np.ndarray, rates: np.ndarray | None = None) -> np.ndarray:
        """Position times rate, [..., seq, width]."""
        assert self.hands is not None
        rates = self.hands.rates if rates is None else rates
        return (at[..., None] * rates[0] if len(rates) == 1 else at @ rates) + self.hands.offsets


def added(x: np.ndarray, rows: np.ndarray, token_scale: float) -> np.ndarray:
    """The correct last stage."""
    return token_scale * x + rows


def _warped(spec: AdditiveCode, at: np.ndarray) -> np.ndarray:
    if not isinstance(spec, WarpedPosition):
        return at
    with np.errstate(divide="ignore", invalid="ignore"):
        if spec.warp == "square":
            return at * at
        return np.log(at) if spec.warp == "log" else 1 / at


def _rows_without_waves(spec: AdditiveCode, at: np.ndarray, values: Any) -> np.ndarray:
    """The rows of a code without waves."""
    if isinstance(spec, Learned):
        table = np.asarray(values, np.float64)
        # Like indexing: negative positions count from the end; beyond the end the last row is used, as in JAX.
        return table[np.clip(np.floor(at).astype(np.int64) + spec.offset, -spec.rows, spec.rows - 1)]
    channels = np.arange(spec.width)
    if isinstance(spec, Binary):
        return np.floor(at[..., None] / 2.0**channels) % 2
    if isinstance(spec, Counter):
        return np.repeat(at[..., None], spec.width, axis=-1)
    if isinstance(spec, NormalizedCounter):
        return np.repeat(at[..., None] / (spec.length - 1), spec.width, axis=-1)
    return np.zeros((*at.shape, spec.width))


@dataclass(frozen=True, eq=False)
class AdditiveObservations(SuspectMaker):
    """Measurements of an additive implementation.

    Attributes:
        call: The arguments that it is called with.
        dtype: The dtype of its tokens.
        coarse: The coarser dtype in which it was also called, or None.
        length: It was called at positions below this.
        first_wrong: The first wrong position, or None.
        values: The code's learned numbers, or None.
        token_scale: The correct factor on tokens.
        positions: The positions of the measured rows, [n], without repetition.
        rows: The output for a token of zeros there, [n, width].
        expected: The correct output.
        factor: The measured factor on tokens, or None if it takes no tokens.
        given: Learned numbers before they are resized, or None.
        resized: The arguments of the resizing, or None.
        grid: The grid whose cells the rows are, or None.
        fine: Whether measured parameters are used unchanged, instead of rounded to a few digits.
        specs: Codes that it was recognised as.
    """

    call: str
    dtype: str
    coarse: str | None
    length: int
    first_wrong: int | None
    values: np.ndarray | None
    token_scale: float
    positions: np.ndarray
    rows: np.ndarray
    expected: np.ndarray
    factor: float | None
    given: np.ndarray | None = None
    resized: Mapping[str, Any] | None = None
    grid: Grid | None = None
    fine: bool = False
    specs: tuple[AdditiveCode, ...] = ()

    def right(self, spec: AdditiveCode, **stages: Any) -> StagedAdditive:
        """A correct implementation with some stages replaced."""
        cells = None if self.grid is None else np.asarray(self.grid)
        return StagedAdditive(spec, self.values, **{"token_scale": self.token_scale, "cells": cells, **stages})

    def rates(self, hands: ChannelWaves) -> np.ndarray | None:
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None if not measurable."""
        if not len(hands.pairs) or len(hands.rates) > 1 or not len(self.positions):
            return None
        sine, cosine = hands.pairs.T
        return rates_of_angles(self.positions, np.angle(self.rows[:, cosine] + 1j * self.rows[:, sine]))

    def share(self) -> float | None:
        """The factor on the correct rows that fits the measured ones best."""
        size = float((self.expected**2).sum())
        return float((self.rows * self.expected).sum()) / size if size and np.isfinite(self.rows).all() else None


def wrong_sums(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with a wrong sum of tokens and code."""
    what = "its table is zeros" if seen.call == "positions" else "tokens are returned unchanged"
    yield seen.suspect("not-added", {"what": what}, add=lambda x, _, scale: scale * x)
    if seen.token_scale != 1:
        yield seen.suspect(
            ("not-added", "tokens-scaled"),
            {"what": "tokens are returned unchanged", "factor": 1.0, "declared": seen.token_scale},
            add=lambda x, *_: x,
        )
    yield seen.suspect("added-twice", {}, table=lambda rows, _: 2 * rows)
    declared = seen.right(spec).scale
    if declared not in (0.0, 1.0):
        yield seen.suspect("scale-forgotten", {"declared": declared}, table=lambda rows, _: rows / declared)
    if seen.call != "positions":
        yield seen.suspect("code-multiplied", {}, add=lambda x, rows, scale: scale * x * rows)


def wrong_places(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with wrong positions."""
    read = Places(spec.number_of_axes > 1)
    # An implementation that is called without positions cannot ignore them.
    for start in dict.fromkeys((0, spec.first, 1, 2)) if seen.call != "x" else ():
        yield seen.suspect(
            "positions-ignored", {"start": start}, places=lambda at, _, start=start: read.counted(at, start)
        )
    if seen.call != "x":
        yield seen.suspect("positions-from-first", {}, places=read.from_first)
    yield seen.suspect("positions-of-first-sequence", {}, places=read.of_first_sequence)
    yield seen.suspect("sign-for-negative-positions", {}, places=lambda at, _: np.abs(at))
    yield from _ends(spec, seen)
    if read.several:
        yield seen.suspect("axis-dropped", {"which": "all coordinates but the first"}, places=first_axis)


def _ends(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with a table that ends, or is rebuilt, at the first wrong row."""
    if not seen.first_wrong or spec.number_of_axes > 1:
        return
    rows = int(seen.first_wrong)
    for how, places in other_ends(rows):
        yield seen.suspect("table-ends", {"rows": rows, "how": how}, places=places)
    yield seen.suspect(
        "table-ends",
        {"rows": rows, "how": "adds nothing"},
        table=lambda table, call: np.where(call.positions[..., None] < rows, table, 0.0),
    )
    if seen.right(spec).hands is not None:
        yield from rebuilt_tables(seen, rows)


def wrong_arithmetic(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects that round intermediate numbers, always or for low-precision tokens only."""
    waves = seen.right(spec).hands is not None
    for dtype, first in COARSE.items():
        parameters = {"dtype": dtype, "first": first}
        # The rounding may occur only if the tokens have the low-precision dtype.
        for when in (always, for_tokens_of(dtype)) if seen.coarse == dtype != seen.dtype else (always,):
            for codes, parts in ((("positions-rounded",), "p"), *PARTS) if waves else ():
                yield seen.suspect(codes, parameters, phases=phase_rounding(dtype, parts, when))
            if not waves:
                yield seen.suspect("positions-rounded", parameters, places=rounding(dtype, when))
        for stage in ("table", "waves") if waves else ("table",):
            yield seen.suspect("table-rounded", {"dtype": dtype}, **{stage: rounding(dtype)})


_CACHES = {
    ("cache-without-base",): ("spacing", "base"),
    ("cache-without-width",): ("width",),
    ("cache-without-order",): ("order",),
    # The key has only the width, or neither base, width nor order.
    ("cache-without-base", "cache-without-order"): ("spacing", "base", "order", "layout"),
    ("cache-without-base", "cache-without-width", "cache-without-order"): ("spacing", "base", "order", "width"),
}


def additive_stateful(spec: AdditiveCode, seen: AdditiveObservations) -> Iterator[FaultModel]:
    """Suspects with state between calls: caches with an incomplete key, tables in the first call's dtype."""
    waves = seen.right(spec).hands is not None
    if waves:

        def with_held_waves(held: StagedAdditive, it: AdditiveCode) -> Apply:
            assert held.hands is not None
            columns = np.resize(np.arange(held.rates.shape[1]), it.width)
            return seen.right(it, hands=held.hands.columns(columns), scale=held.scale)

        for codes, without in _CACHES.items():
            yield FaultModel(codes, {}, lambda without=without: shared(without, seen.right, with_held_waves))
    for dtype in COARSE:
        yield from coarse_caches(seen, dtype, ("table", "places", "phases") if waves else ("table",), (False,))
    yield seen.built("cache-keeps-offset", {}, lambda it: seen.right(it, places=kept_by_length()))
    yield from first_sequence_only(seen, lambda x: seen.token_scale * x)
