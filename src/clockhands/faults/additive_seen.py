"""What was measured of an additive implementation before suspects are tried, and how suspects are made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.additive import AdditiveCode
from clockhands.errors import ClockhandsError
from clockhands.faults.adding import Adding, Apply, Hands
from clockhands.faults.fault import Suspect
from clockhands.grids import Grid


@dataclass(frozen=True, eq=False)
class Seen:
    """What was measured of an implementation.

    Attributes:
        call: What it is called with.
        dtype: The dtype of its tokens.
        coarse: The coarser dtype that it was asked in too, or None.
        length: Positions below which it was asked.
        first_wrong: The first position at which it is wrong, or None.
        values: The code's learned numbers, or None.
        token_scale: What tokens are multiplied by.
        positions: Where its rows were measured, [n], without repetition.
        rows: What a token of zeros became there, [n, width].
        right: What it should have become.
        factor: What it multiplied tokens by, or None where it takes none.
        given: Learned numbers before they are resized, or None.
        resized: How they are resized, or None.
        grid: Whose cells its rows are, or None.
        fine: Whether parameters are taken as they were measured, and not rounded to a few digits.
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
    right: np.ndarray
    factor: float | None
    given: np.ndarray | None = None
    resized: Mapping[str, Any] | None = None
    grid: Grid | None = None
    fine: bool = False
    specs: tuple[AdditiveCode, ...] = ()

    def adding(self, spec: AdditiveCode, **stages: Any) -> Adding:
        """An implementation of a spec, with a stage of another kind."""
        cells = None if self.grid is None else np.asarray(self.grid)
        return Adding(spec, self.values, **{"token_scale": self.token_scale, "cells": cells, **stages})

    def suspect(self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], **stages: Any) -> Suspect:
        """An implementation of the right code with a stage of another kind."""
        return self.built(codes, parameters, lambda spec: self.adding(spec, **stages))

    def built(
        self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], build: Callable[[Any], Apply]
    ) -> Suspect:
        """An implementation that is built for a spec, in a process in which nothing is shared."""
        return Suspect((codes,) if isinstance(codes, str) else codes, parameters, lambda: build)

    def another(
        self, codes: str | tuple[str, ...], parameters: Mapping[str, Any], change: Callable[[Any], Any]
    ) -> Suspect:
        """An implementation of another spec; of other models it gets the same field wrong."""

        def build(spec: AdditiveCode) -> Apply:
            try:
                return self.adding(change(spec))
            except ClockhandsError:
                return self.adding(spec)

        return self.built(codes, parameters, build)

    def rates(self, hands: Hands) -> np.ndarray | None:
        """The rate of each pair, rad/token, by unwrapping positions 0, 1, 2, 4, ...; None where that is not seen."""
        if not len(hands.pairs) or len(hands.rates) > 1:
            return None
        sine, cosine = hands.pairs.T
        at = {
            int(place): np.angle(row[cosine] + 1j * row[sine])
            for place, row in zip(self.positions, self.rows, strict=True)
        }
        if 0 not in at or 1 not in at:
            return None
        rates, known = wrapped(at[1] - at[0]), 1
        for place in sorted(at):
            if known < place <= 4 * known:
                rates = rates + wrapped(at[place] - at[0] - place * rates) / place
                known = place
        return rates

    def share(self) -> float | None:
        """The number by which the right rows are multiplied to be nearest to those measured."""
        size = float((self.right**2).sum())
        return float((self.rows * self.right).sum()) / size if size and np.isfinite(self.rows).all() else None


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles between half a turn backward and half a turn forward."""
    return (angles + np.pi) % (2 * np.pi) - np.pi
