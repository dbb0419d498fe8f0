"""Rotary suspects with the ladders that were measured: base, multiplier and start of each coordinate."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.ladders import Geometric, Joined
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.written_numbers import plain
from clockhands.errors import InvalidValue
from clockhands.recognition.suspects._fault_model import FaultModel
from clockhands.recognition.suspects._rotary_code import RotaryObservations, sign_of, unscaled
from clockhands.recognition.suspects._stages import Call
from clockhands.recognition.unwrapped_phases import wrapped


@dataclass(frozen=True)
class AxisLadder:
    """The measured rotation of the pairs of one coordinate: ``angle of a pair = (factor p + moved) base**-exponent``.

    Attributes:
        axis: The coordinate, None where there is one.
        pairs: Its pairs.
        declared: Their spacing in the spec; it gives the exponents.
        base, factor, moved: The measured values.
    """

    axis: int | None
    pairs: np.ndarray
    declared: Geometric
    base: float
    factor: float
    moved: float

    @property
    def how(self) -> str:
        """The values that differ from the spec's, as a phrase."""
        words = []
        if not _same(self.base, self.declared.base):
            words.append(f"base {self.base:,.10g} instead of {self.declared.base:,.10g}")
        placed = []
        if not _same(self.factor, self.declared.multiplier):
            placed.append(f"multiplied by {self.factor:.7g} instead of {self.declared.multiplier:.7g}")
        if self.moved:
            placed.append(f"moved by {self.moved:.7g}")
        if placed:
            words.append(f"{'positions' if self.axis is None else 'coordinates'} {', then '.join(placed)}")
        return ", ".join(words)


def _same(one: float, other: float) -> bool:
    return abs(one / other - 1) < 1e-5


def axis_ladders(spec: Rotary, seen: RotaryObservations) -> list[AxisLadder]:
    """The ladder of each coordinate, if the pairs of every coordinate rotate by a geometric ladder; else none.

    A rate is known up to whole rotations per token. The slowest pairs turn by less than half a rotation; from them on,
    each faster rate is the one nearest to the progression of the slower ones. Angles at position 0 are followed in the
    same order.
    """
    rates, where = seen.rates(), np.flatnonzero(seen.positions == 0)
    if rates is None or not len(where) or not seen.evenly():
        return []
    sign = sign_of(spec)
    started = sign * np.angle(seen.turning[where[0]])
    noise = 2e-4 / max(int(seen.positions.max()), 1)
    found = []
    for axis, pairs, spacing in _geometric_parts(spec):
        own = np.array(unscaled(spec).rates)[pairs]
        exponents = -np.log(own / spacing.multiplier) / np.log(spacing.base)
        made = _progression(exponents, sign * rates[pairs], started[pairs], noise)
        if made is None:
            return []
        found.append(AxisLadder(axis, pairs, spacing, *made))
    return found


def _geometric_parts(spec: Rotary) -> Iterator[tuple[int | None, np.ndarray, Geometric]]:
    """The coordinate, the pairs and the spacing of each geometric ladder of a spec; nothing if another one is in it."""
    spacing, number = spec.spacing, spec.rotated // 2
    parts = spacing.parts if isinstance(spacing, Joined) else ((number, spacing),)
    ladders = [each for _, each in parts if isinstance(each, Geometric) and each.multiplier > 0]
    if len(ladders) < len(parts):
        return
    sizes = [size for size, _ in parts]
    turns = isinstance(spacing, Joined) and spacing.in_turns
    part_of = np.tile(np.arange(len(parts)), sizes[0]) if turns else np.repeat(np.arange(len(parts)), sizes)
    axis_of = np.zeros(number, int) if spec.axes is None else np.array(spec.axes)
    for part, each in enumerate(ladders):
        for axis in sorted(set(axis_of[part_of == part].tolist())):
            pairs = np.flatnonzero((part_of == part) & (axis_of == axis))
            yield (None if spec.axes is None else axis), pairs, each


def _progression(
    exponents: np.ndarray, rates: np.ndarray, started: np.ndarray, noise: float
) -> tuple[float, float, float] | None:
    """Base, factor and shift of ``(factor p + moved) base**-exponent``; None if the rates are no such ladder."""
    order = np.argsort(-exponents)
    exponents, rates, started = exponents[order], rates[order].copy(), started[order]
    if len(rates) < _FEWEST or np.ptp(exponents) == 0 or (rates[:2] <= 8 * noise).any():
        return None
    for pair in range(2, len(rates)):
        steps = np.diff(exponents[pair - 2 : pair + 1])
        expected = rates[pair - 1] * (rates[pair - 1] / rates[pair - 2]) ** (steps[1] / steps[0])
        rates[pair] += 2 * np.pi * np.round((expected - rates[pair]) / (2 * np.pi))
        if rates[pair] <= 0:
            return None
    weights = np.minimum(rates / noise, 1e6)  # one over the error of a logarithm
    slope, height = np.polyfit(exponents, np.log(rates), 1, w=weights)
    fitted = np.exp(height + slope * exponents)
    if np.abs(fitted - rates).max() > max(noise, 1e-6 * rates.max()):
        return None
    base, factor = (plain(float(value), 1e-7 * float(value))[1] for value in (np.exp(-slope), np.exp(height)))
    unit, moved = float(base) ** -exponents, 0.0
    for angle, size in zip(started, unit, strict=True):
        moved += float(wrapped(np.array(angle - moved * size))) / size
    moved = plain(moved, 2e-5)[1]
    if not base > 1 or np.abs(wrapped(started - moved * unit)).max() > _STARTED:
        return None
    return base, factor, moved


_FEWEST = 4  # pairs of a coordinate that show a progression: two of them fit any
_STARTED = 1e-3


def other_ladders(spec: Rotary, seen: RotaryObservations) -> Iterator[FaultModel]:
    """A suspect with the ladders that were measured."""
    # Beside a scaling that is not applied, the ladder is a second fault: of the spec without it.
    ladders = axis_ladders(spec, seen) if spec.scaling is None else []
    if all(not one.how for one in ladders):
        return
    shifts = np.zeros(spec.number_of_axes)
    for one in ladders:
        shifts[one.axis or 0] = one.moved / one.factor

    def moved(at: np.ndarray, _: Call) -> np.ndarray:
        return at + (shifts if spec.axes is not None else shifts[0])

    told = _fault_of_ladders(ladders, shifts)
    if told is not None:
        yield seen.of_parts(*told, lambda it: (it, {"rates": _rates_of(it, ladders), "places": moved}))


def _rates_of(spec: Rotary, ladders: list[AxisLadder]) -> np.ndarray:
    """The rates of a spec of any width with ladders that were measured at one width.

    Raises:
        InvalidValue: The spec has other coordinates than the measured one.
    """
    rates, own = np.array(spec.rates), np.array(unscaled(spec).rates)
    parts = list(_geometric_parts(spec))
    if len(parts) != len(ladders):
        raise InvalidValue(
            f"The frequencies were measured with {len(ladders)} coordinates, and this spec has {len(parts)}.",
            "Give a spec with as many axes.",
        )
    for (_, pairs, spacing), one in zip(parts, ladders, strict=True):
        rates[pairs] = one.factor * (own[pairs] / spacing.multiplier) ** (np.log(one.base) / np.log(spacing.base))
    return rates


def _fault_of_ladders(ladders: list[AxisLadder], shifts: np.ndarray) -> tuple[str, dict[str, Any]] | None:
    """The fault of measured ladders: one field of all that differs, or all that differ.

    None where one coordinate alone is stretched or moved by half tokens, which is a fault of its own.
    """
    bases, others = {(one.base, one.declared.base) for one in ladders}, set(shifts.tolist())
    ratios = [one.factor / one.declared.multiplier for one in ladders]
    plainly = all(_same(ratio, 1) for ratio in ratios)
    if plainly and len(bases) == 1 and not any(others):
        base, declared = bases.pop()
        return "another-base", {"base": base, "declared": declared}
    if all(_same(*each) for each in bases):
        if plainly and len(others) == 1 and float(shifts[0]).is_integer():
            return "positions-offset", {"offset": int(shifts[0])}
        if not any(others) and all(_same(ratio, ratios[0]) for ratio in ratios):
            return "positions-scaled", {"factor": ratios[0]}
        alone = len(ladders) > 1 and sum(bool(one.how) for one in ladders) == 1
        if alone and ((plainly and float(2 * shifts.sum()).is_integer()) or not any(others)):
            return None
    how = {f"coordinate {one.axis}: ": one.how or "as declared" for one in ladders}
    alike = len(set(how.values())) == 1
    return "other-ladder", {"how": ladders[0].how if alike else "; ".join(map("".join, how.items()))}
