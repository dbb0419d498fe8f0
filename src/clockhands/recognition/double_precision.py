"""The last digits of a description, for tables of float64.

There a phase of thousands of radians is told to a rounding of the table, and a base, a start and a step in float64 are
just good enough to say it: they are fitted with phases that are exact, and tried in their last places. Positions may
be float64 numbers, rounded one by one, or the real numbers of a progression: what makes smaller errors is taken.
"""

import itertools
import math
from dataclasses import replace
from typing import cast

import numpy as np

from clockhands.ladders import Geometric, Ladder
from clockhands.phases import units
from clockhands.positions import Positions, positions_of
from clockhands.recognition.describing import Description

_ENOUGH = 3 * 2.0**-53  # what the roundings of the table itself leave
_HOPELESS = 128 * 2.0**-53  # phases that were rounded themselves: no last place helps
_HANDS = 32  # of these the last places are told


def polished(ways: list[Description], values: np.ndarray, places: np.ndarray, *, known: bool) -> list[Description]:
    """Descriptions with the free numbers that fit best, the closest first.

    A base that somebody chose makes smaller errors than one of another span that only comes near its rates.

    Args:
        ways: Descriptions of geometric ladders.
        values: ``cos + i sin`` of the pairs as the table has them, [rows, pairs].
        places: The numbers of these rows; or their positions, where they are ``known``.
        known: Whether positions were given.
    """
    fitted, largest = _closest(ways, values, places)
    if largest >= _ENOUGH and not known and not fitted[0].whole:
        real, _ = _closest([replace(way, real=True) for way in ways], values, places)
        fitted = min(fitted, real, key=lambda some: _off(some[0], values, places)[1])
    return fitted


def _closest(ways: list[Description], values: np.ndarray, places: np.ndarray) -> tuple[list[Description], float]:
    """The ways fitted, the closest first and in its last places, and the largest angle that it leaves."""
    fitted = sorted((_fitted(way, values, places) for way in ways), key=lambda way: _off(way, values, places)[1])
    best, largest = _nudged(fitted[0], values, places)
    return [best, *fitted[1:]], largest


def _at(way: Description, places: np.ndarray) -> Positions:
    """Where rows stand, exactly as the description says."""
    if not way.real:
        return positions_of(way.start + way.step * places)
    line = positions_of(way.positions(0, int(places.max()) + 1))
    rows = places.astype(np.int64)
    limbs = line.sizes(0, line.size)
    part, negative = (None if limb is None else limb[rows] for limb in (limbs.part, limbs.negative))
    return Positions((len(rows),), limbs.whole[rows], part, negative)


def _off(way: Description, values: np.ndarray, places: np.ndarray, hands: slice = slice(None)) -> tuple[float, float]:
    """The largest angle that a description leaves, and the root mean square."""
    ladder = way.spec.ladder
    ladder = Ladder(ladder.exact[: values.shape[1]][hands])
    rest = np.imag(values[:, hands] * units(ladder, _at(way, places)).conj())
    return float(np.abs(rest).max()), float(np.sqrt(np.mean(rest**2)))


def _nudged(way: Description, values: np.ndarray, places: np.ndarray) -> tuple[Description, float]:
    """The description with its measured numbers in the last places that fit best, and the largest angle it leaves.

    Positions are rounded as those of the table only where start and step are the very numbers it was made with.
    """
    hands = slice(None, None, max(1, values.shape[1] // _HANDS))
    largest, least = _off(way, values, places, hands)
    found = way
    if least > _HOPELESS:
        return way, largest
    each = [((name, ulps),) for name in way.free for ulps in (-1, 1, -2, 2)]
    both = itertools.product(*([(name, ulps) for ulps in range(-2, 3)] for name in way.free if name != "base"))
    for moves in itertools.chain(each, both):
        if largest < _ENOUGH:
            break
        other = way
        for name, ulps in moves:
            spacing = cast(Geometric, other.spec.spacing)
            number = float(spacing.base if name == "base" else getattr(other, name))
            moved = number + ulps * float(np.spacing(abs(number)))
            if name == "base":
                other = replace(other, spec=replace(other.spec, spacing=replace(spacing, base=moved)))
            else:
                other = replace(other, **{name: moved})
        most, off = _off(other, values, places, hands)
        if off < least:
            found, largest, least = other, most, off
    return found, largest


def _fitted(way: Description, values: np.ndarray, places: np.ndarray) -> Description:
    """The description whose free numbers leave the smallest angles."""
    if not way.free:
        return way
    spacing = cast(Geometric, way.spec.spacing)
    pairs = values.shape[1]
    for _ in range(4):
        ladder, exact = way.spec.ladder, _at(way, places)
        at = exact.as_float64()
        rest = np.imag(values * units(Ladder(ladder.exact[:pairs]), exact).conj())
        rates = np.array(ladder.rates[:pairs])
        slower = rates * np.log(rates) / abs(math.log(spacing.base))  # what a larger base does to the rates
        changes = {"step": (places, rates), "start": (np.ones_like(places), rates), "base": (at, slower)}
        # Positions are rounded too: those near 0 are the exact ones.
        rounded = 0.0 if way.real else np.multiply.outer(np.spacing(np.abs(at)) / 2, rates)
        sure = (1 / np.hypot(2.0**-53, rounded * np.ones_like(rest))).ravel()
        stacked = np.stack([np.multiply.outer(*changes[name]).ravel() * sure for name in way.free], axis=1)
        scale = np.sqrt((stacked**2).mean(axis=0)) + 1e-300
        change = np.linalg.lstsq(stacked / scale, rest.ravel() * sure, rcond=1e-15)[0] / scale
        moves = dict(zip(way.free, map(float, change), strict=True))
        before = (way.start, way.step, spacing.base)
        way = replace(way, start=way.start + moves.get("start", 0.0), step=way.step + moves.get("step", 0.0))
        if "base" in moves:
            rising = spacing.base < 1
            base = (1 / spacing.base if rising else spacing.base) * math.exp(moves["base"])
            den = float(spacing.denominator(way.channels))
            multiplier = base ** (-(ladder.pairs - 1) / den) if rising else spacing.multiplier
            spacing = Geometric(1 / base if rising else base, spacing.span, multiplier)
            way = replace(way, spec=replace(way.spec, spacing=spacing))
        if before == (way.start, way.step, spacing.base):
            break
    return way
