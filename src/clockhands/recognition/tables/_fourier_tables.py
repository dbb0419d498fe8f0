"""Recognition of Fourier features: pairs without a common ladder, each with a separate rate along every axis.

Each pair is a complex number of constant size that rotates by one angle from cell to cell along each axis. A grid shows
rates only modulo a full rotation per cell; these are returned as ``values``. In Fourier features, all pairs have
phase 0 at one common position; other rotations of pairs do not.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clockhands.encodings.additive import FourierFeatures
from clockhands.encodings.grids import Grid
from clockhands.encodings.written_numbers import plain
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Matches
from clockhands.recognition._preset_names import of_kind, ranked
from clockhands.recognition.tables._pair_angles import readings
from clockhands.recognition.tables._progressions import complex_waves
from clockhands.recognition.tables._verifying import Candidate, ExpectedTable, in_words, verified

_TURN = 2 * math.pi
_CLOSE = 0.01  # the largest difference of steps of one pair (about rad) while a grid is searched
_LARGEST = 1 << 24  # the largest table that is searched, in numbers
_KNOWN = ("gaussian-fourier", "sam")


class GridRotation(NamedTuple):
    """Pairs that rotate by constant angles along the axes of a grid, the slowest axis first.

    Attributes:
        sizes: Number of cells of each axis.
        angles: Radians from cell to cell, [axes, pairs], in (-pi, pi].
        phase: Radians at the first cell, [pairs].
    """

    sizes: tuple[int, ...]
    angles: np.ndarray
    phase: np.ndarray


def identify_mixed(given: GivenTable, prefix: int) -> Matches | None:
    """The match of a table of Fourier features, or None; ``prefix`` rows of zeros precede the table.

    In an odd width, the first channel is the coordinate of a single axis.
    """
    if given.rows * given.width > _LARGEST:
        return None
    rows, lead = given.at(slice(None)), int(given.width % 2 and not prefix)
    for hands, order in itertools.product(readings(rows[:, lead:]), ("sin-cos", "cos-sin")):
        lone = (hands.second < 0).any() or int(hands.second.max()) + 1 + lead != given.width
        found = (
            None if lone or hands.noise > 0.02 or hands.offset else _rotating_grid(complex_waves(hands.turns, order))
        )  # type: ignore[arg-type]
        if found is None or (lead and len(found.sizes) > 1):
            continue
        raw = "before" if lead else None
        spec = FourierFeatures(given.width, len(found.sizes), layout=hands.layout, order=order, raw=raw)  # type: ignore[arg-type]
        if lead:
            candidates = _beside(spec, found, rows[:, 0], given.rounding)
        else:
            scale = plain(hands.size, max(hands.noise, 2.0**-24) * hands.size, (1.0,))[1]
            candidates = _without_coordinates(replace(spec, scale=scale), found, prefix)
        for one in candidates:
            match = verified(given, one)
            if match is not None:
                return Matches([match], in_words(match, error=match.error))
    return None


def _beside(spec: FourierFeatures, found: GridRotation, coordinate: np.ndarray, rounding: float) -> Iterator[Candidate]:
    """The features of one axis that follow the coordinate itself, if it is on a line."""
    start, step = float(coordinate[0]), float(coordinate[-1] - coordinate[0]) / max(1, len(coordinate) - 1)
    straight = start + step * np.arange(len(coordinate))
    if step and np.abs(coordinate - straight).max() <= 4 * rounding * np.abs(straight).max():
        grid = Grid(len(coordinate), start=start, step=step)
        expected = ExpectedTable.of_cells(spec, grid, values=found.angles[0] / (spec.multiplier * step))
        yield Candidate(expected, grid, {"start": start, "step": step}, _names(spec))


def _rotating_grid(values: np.ndarray) -> GridRotation | None:
    """The grid along which these complex pairs [rows, pairs] rotate by constant angles, or None."""
    sizes: list[int] = []
    angles = []
    line = values / np.maximum(np.abs(values), 1e-300)
    while len(line) > 1:
        steps = line[1:] * line[:-1].conj()
        length = _length(steps)
        if length is None:
            return None
        inner = line.reshape(-1, length, line.shape[1])
        angle = np.angle((inner[:, 1:] * inner[:, :-1].conj()).sum(axis=(0, 1)))
        angles.append(angle)
        sizes.append(length)
        line = (inner * np.exp(-1j * np.multiply.outer(np.arange(length), angle))).sum(axis=1)
        line /= np.maximum(np.abs(line), 1e-300)
    if len(sizes) > 4 or max(sizes) < 3:
        return None
    found = GridRotation(tuple(sizes[::-1]), np.array(angles[::-1]), np.angle(line[0]))
    # Angles and phases together, by least squares over all cells.
    cells = np.stack(np.unravel_index(np.arange(len(values)), found.sizes), axis=1).astype(float)
    for _ in range(2):
        rest = np.angle(values * np.exp(-1j * (cells @ found.angles + found.phase)))
        if np.abs(rest).max() > 0.5:
            return None
        full = np.concatenate([cells, np.ones((len(cells), 1))], axis=1)
        change = np.linalg.lstsq(full, rest, rcond=None)[0]
        found = GridRotation(found.sizes, found.angles + change[:-1], found.phase + change[-1])
    return found


def _length(steps: np.ndarray) -> int | None:
    """The number of rows of the longest blocks in which all pairs rotate by constant angles; None if there are none."""
    number = len(steps) + 1
    for length in range(number, 1, -1):
        if number % length:
            continue
        inside = (np.arange(1, number) % length) != 0
        some = steps[inside]
        if (np.abs(some - some[0]) <= _CLOSE).all():
            return length
    return None


def _origins(found: GridRotation) -> list[tuple[float, ...]]:
    """Possible places of position 0, in cells of each axis: the middle, the first cell, or 0.5 or 1 cell before it."""
    each = [sorted({(size - 1) / 2, 0.0, -1.0, -0.5}, key=lambda one: -one) for size in found.sizes]
    middle = tuple((size - 1) / 2 for size in found.sizes)
    rest = [origin for origin in itertools.product(*each) if origin != middle]
    out = [middle, *rest]
    if len(found.sizes) == 1:
        out += _lines(found)
    return out


def _lines(found: GridRotation) -> list[tuple[float, ...]]:
    """Further origins of a single axis: those at which the slowest pair has phase 0, within 8 full rotations."""
    order = np.argsort(np.abs(found.angles[0]))
    slow, phase = found.angles[0][order], found.phase[order]
    slow, phase = slow[np.abs(slow) > 1e-3][:3], phase[np.abs(slow) > 1e-3][:3]
    if not len(slow):
        return []
    return [(-float(phase[0] + _TURN * turns) / float(slow[0]),) for turns in range(-8, 9)]


def _without_coordinates(spec: FourierFeatures, found: GridRotation, prefix: int) -> Iterator[Candidate]:
    """The features with position 0 at each of the places where it may be."""
    axes, turn = spec.axes, slice(None, None, -1)  # the axes of the spec, the fastest first (x, y), as in SAM
    sizes, running = found.sizes[turn], tuple(range(spec.axes))[turn]
    for origin in _origins(found):
        angles = _angles_about(found, origin)
        if angles is None:
            continue
        if axes > 1 and all(place == (size - 1) / 2 for place, size in zip(origin, found.sizes, strict=True)):
            full = Grid.centres(sizes, -1, 1, order=running, prefix=prefix)
        else:
            full = Grid(sizes, start=[-place for place in origin[turn]], order=running, prefix=prefix)
        values = angles[turn] / (spec.multiplier * np.array([float(one) for one in full.step])[:, None])
        seen = {
            "grid": list(found.sizes),
            "start": [float(one) for one in full.start],
            "step": [float(one) for one in full.step],
            "rates": "modulo a whole rotation from cell to cell",
        }
        expected = ExpectedTable.of_cells(spec, replace(full, prefix=0), values=values if axes > 1 else values[0])
        yield Candidate(expected, full, seen, _names(spec), prefix)


def _angles_about(found: GridRotation, origin: tuple[float, ...]) -> np.ndarray | None:
    """The angles from cell to cell with which all pairs have phase 0 at this place, or None."""
    angles = found.angles.copy()
    off = found.phase + np.array(origin) @ angles
    off -= _TURN * np.round(off / _TURN)
    for axis, place in enumerate(origin):
        # The origin is half a cell off the cells, so one full rotation per cell more or less changes the phase there by
        # half a rotation.
        if place % 1 == 0.5:
            wrong = np.abs(np.abs(off) - math.pi) < 0.1
            angles[axis, wrong] -= _TURN * np.where(angles[axis, wrong] > 0, 1, -1)
            off[wrong] = 0
            break
    return angles if np.abs(off).max() <= 0.05 else None


def _names(spec: FourierFeatures) -> list[str]:
    """The presets of this form; beside raw coordinates of any scale."""
    same = [
        name
        for name, known in of_kind(FourierFeatures)
        if (known.axes, known.layout, known.order, known.raw) == (spec.axes, spec.layout, spec.order, spec.raw)
        and (spec.raw is not None or known.scale == spec.scale)
    ]
    return ranked(same, _KNOWN)
