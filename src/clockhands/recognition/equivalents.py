"""Other words for a match: kept where they make the same numbers, at the positions that they say."""

from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.additive import AxialSinusoidal, Sinusoidal, table
from clockhands.errors import ClockhandsError
from clockhands.grids import Grid
from clockhands.positions import positions_of
from clockhands.presets import preset
from clockhands.recognition.given import Given
from clockhands.recognition.matches import Equivalent, Match

_ROWS = 64  # in which two codes are compared: their rates are few numbers


def with_equal_words(match: Match, given: Given) -> Match:
    """The match with those of its equivalents that make the same numbers, and no name where its scale is another."""
    equal = _Equal(match, given)
    name = match.name
    if isinstance(match.spec, AxialSinusoidal) and name is not None:
        known = preset(name)
        name = name if isinstance(known, AxialSinusoidal) and known.scale == match.spec.scale else None
    others = tuple(other for other in match.equivalents if other != name and equal(other))
    return replace(match, name=name, equivalents=others)


def turned_round(spec: Sinusoidal, positions: Any) -> Equivalent | None:
    """The same table at positions of the other sign: a sine is odd, a cosine even."""
    flipped = {"sin-cos": "-sin-cos", "cos-sin": "cos--sin"}.get(spec.order)
    if flipped is None or spec.zero_rows:
        return None
    if isinstance(positions, range):
        positions = range(-positions.start, -positions.stop, -positions.step)
    elif isinstance(positions, Grid):
        start, step = ([-one for one in each] for each in (positions.start, positions.step))
        positions = Grid(positions.sizes, start=start, step=step, order=positions.order, prefix=positions.prefix)
    else:
        positions = -np.asarray(positions)
    return Equivalent(replace(spec, order=flipped), positions)  # type: ignore[arg-type]


class _Equal:
    """Whether other words make the numbers of a match."""

    def __init__(self, match: Match, given: Given) -> None:
        """Make some rows of the match."""
        self.match = match
        places = _some(match.positions)
        self.rows = table(match.spec, places, "float64", values=match.values)  # type: ignore[arg-type]
        fastest = max((max(np.ravel(one)) for one in getattr(match.spec, "rates", ())), default=1.0)
        reach = float(np.abs(positions_of(places).as_float64()).max(initial=0.0) * fastest)
        # A base for another span is a float64, and says rates to a few roundings of themselves.
        self.allowed = (4 * given.rounding + 2.0**-48 * reach) * float(np.abs(self.rows).max(initial=0.0))
        self.known: dict[Any, bool] = {}

    def __call__(self, other: Any) -> bool:
        spec, positions = other, self.match.positions
        try:
            if isinstance(other, str):
                spec = preset(other, width=self.match.spec.width)  # type: ignore[union-attr]
            elif isinstance(other, Equivalent):
                spec, positions = other.spec, other.positions
            key = (spec, id(positions))
            if key not in self.known:
                made = table(spec, _some(positions), "float64", values=self.match.values)  # type: ignore[arg-type]
                self.known[key] = (
                    made.shape == self.rows.shape
                    and bool(np.abs(made - self.rows).max(initial=0.0) <= self.allowed)
                    and _zeros(spec, positions) == _zeros(self.match.spec, self.match.positions)
                )
            return self.known[key]
        except ClockhandsError:
            return False


def _some(positions: Any) -> Any:
    """Some of the positions, from the first to the last."""
    if isinstance(positions, Grid):
        full = Grid(positions.sizes, start=positions.start, step=positions.step, order=positions.order)
        at = positions_of(full).as_float64().reshape(-1, len(positions.sizes))
        at = at[:, 0] if len(positions.sizes) == 1 else at
    else:
        at = positions
    pick = np.unique(np.linspace(0, len(at) - 1, min(len(at), _ROWS)).astype(np.int64))
    return [at[int(row)] for row in pick] if isinstance(at, range) else np.asarray(at)[pick]


def _zeros(spec: Any, positions: Any) -> set[int]:
    """Rows of zeros that a spec has among positions."""
    rows = getattr(spec, "zero_rows", ())
    if not rows or isinstance(positions, Grid):
        return set(rows)
    return {row for row in rows if row in positions}
