"""Recognition of a function that adds a table to ``x``: the table is read, recognised, and checked at far positions."""

from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.encodings.additive import Learned, Sinusoidal, table
from clockhands.encodings.additive.sinusoidal import Waves
from clockhands.encodings.dtypes import UNIT_ROUNDOFF, output_dtype
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.layouts import Layout
from clockhands.encodings.specs import describe
from clockhands.encodings.written_numbers import Interval, shortest
from clockhands.recognition._functions_calling import RowCaller
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match
from clockhands.recognition._preset_names import sinusoidal_names
from clockhands.recognition.functions._behaviour import Behaviour, Unfit, unit_of
from clockhands.recognition.functions._phases import (
    MeasuredRotation,
    arithmetic_of,
    explained_by,
    first_of,
    fits_of,
    measure,
    measured_match,
    table_dtype,
)
from clockhands.recognition.functions._rotated_pairs import NOTHING, RotatedPairs
from clockhands.recognition.tables import identify_rows

# The most rows from which the table is recognised; later positions are compared with the recognised code.
_ROWS = 2048
_WRONG = 0.01


def identify_additive(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The additive code of a function ``factor * x + table(position)``.

    Raises:
        Unfit: It adds a table, but also changes ``x`` in another way.
    """
    reader = behaviour.reader
    end = behaviour.longest if behaviour.last is None else behaviour.last
    factor = _factor_on_x(reader)
    said = f"It adds a table to x{'' if factor == 1 else f', which it multiplies by {factor:g}'}."
    match, reason = _by_phases(behaviour, end, factor)
    if match is not None:
        return match, f"{said} {reason}"
    rows = min(end + 1, _ROWS)
    read = _read(reader, np.arange(rows))
    output = reader.caller.output if reader.caller.output in UNIT_ROUNDOFF else "float32"
    given = GivenTable(read.astype(output_dtype(output)), output)
    found = identify_rows(given)
    if not found:
        return _learned(behaviour, read, factor, said, found.reason)
    match = found[0]
    own = dict(match.evidence)
    start, step = float(own.get("start", 0.0)), float(own.get("step", 1.0))
    far = np.unique(np.random.default_rng(4).integers(0, end + 1, 256))

    def apart(at: np.ndarray) -> np.ndarray:
        made = table(match.spec, start + step * at, "float64", values=match.values)  # type: ignore[arg-type]
        return np.abs(_read(reader, at) - made).max(axis=1)

    off = apart(far)
    evidence = {
        **own,
        "factor_on_x": factor,
        "first_wrong_position": first_of(far, off > _WRONG, lambda at: apart(at) > _WRONG),
        "longest_position": end,
    }
    match = replace(
        match,
        positions=None,
        error=max(match.error, float(off.max())),
        confidence=float(match.confidence * np.mean(off <= 2.0**-22 * far + 8 * unit_of(output))),
        evidence=tuple(evidence.items()),
    )
    reasons = [said, found.reason]
    if evidence["first_wrong_position"] is not None:
        reasons.append(
            f"Far away it is not: at position {evidence['first_wrong_position']:,} it is off by more than {_WRONG:g}."
        )
    if (start, step) != (0.0, 1.0):
        place = f"{'' if step == 1 else f'{step:g} '}p {'-' if start < 0 else '+'} {abs(start):g}"
        reasons.append(f"Position p is row {place} of the code.")
    return match, " ".join(reasons)


class _Rows:
    """A reader of the added table alone: it ignores ``x`` and calls the function with zeros."""

    def __init__(self, reader: RowCaller) -> None:
        """Keep the reader of the function."""
        self.reader, self.caller, self.counts = reader, reader.caller, reader.counts

    def __call__(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The rows of the table at these positions, [rows, width]."""
        return self.reader(np.zeros_like(x), positions)


def _by_phases(behaviour: Behaviour, end: int, factor: float) -> tuple[Match | None, str]:
    """The sinusoidal code with position 0 as origin, from the phases of its pairs at positions 1, 2, 4, …; or None.

    This recognises also tables that are wrong at most positions, such as those with rounded positions, because powers
    of two are not rounded.
    """
    rows: Any = _Rows(behaviour.reader)
    width = rows.caller.width
    start = _read(behaviour.reader, np.array([0]))[0]
    found = _columns(start)
    if found is None:
        return None, ""
    layout, order, sines, cosines = found
    some = _read(behaviour.reader, np.array([1, 2, 3, 97 % (end + 1)]))
    table_in = table_dtype(some, rows.caller.output)
    unit = unit_of(table_in)
    pairs = RotatedPairs(
        np.stack([cosines, sines], axis=1), layout, (width // 2,), 0, width, np.arange(width), reordered=False
    )
    phases = measure(rows, pairs, behaviour.longest, unit)
    scale = float(np.median(phases.amplitudes))
    if np.abs(phases.amplitudes - scale).max() > 16 * unit * scale or (phases.rates < -phases.bounds).any():
        return None, ""
    whole = [number for number in (1.0, width**0.5, width**-0.5) if abs(number - scale) <= 2 * unit * scale]
    scale = whole[0] if whole else shortest(Interval.around(scale, 2 * unit * scale))
    turning = MeasuredRotation(rows, behaviour.longest, pairs, phases, unit, table_in, 1.0)
    fits, bounds, rates_in = fits_of(turning, Interval(1.0, 1.0))
    plain = [fit for fit in fits if fit.scaling is None]
    specs = [Sinusoidal(width, spacing=fit.spacing, layout=layout, order=order, scale=scale) for fit in plain]
    spec = specs[0]
    arithmetic = arithmetic_of(turning, spec.rates, rates_in)
    near = np.arange(min(end + 1, _ROWS))
    far = np.unique([*np.random.default_rng(4).integers(0, end + 1, 256), end])
    at = np.concatenate([near, far[far >= len(near)]])

    def apart(asked: np.ndarray) -> np.ndarray:
        return np.abs(_read(behaviour.reader, asked) - table(spec, asked, "float64")).max(axis=1)

    off = apart(at)
    explained = off <= scale * explained_by(turning, arithmetic, at, spec.rates)
    limit = _WRONG * max(1.0, scale)
    if isinstance(spec.spacing, Explicit) or not explained[: min(64, len(near))].all():
        return None, ""
    first_wrong = first_of(at, off > limit, lambda asked: apart(asked) > limit)
    match = measured_match(
        specs,
        sinusoidal_names(spec, bounds),
        arithmetic,
        {"rates": phases.rates.tolist(), "bounds": phases.bounds.tolist(), "factor_on_x": factor},
        error=float(off.max()),
        explained=float(explained.mean()),
        first_wrong=first_wrong,
        largest=int(at[-1]),
    )
    said = [f"It is {describe(spec).rstrip('.')}.", *arithmetic.words()]
    if first_wrong is not None:
        said.append(f"From position {first_wrong:,} on it is off by more than {_WRONG:g}.")
    return match, " ".join(said)


def _columns(start: np.ndarray) -> tuple[Layout, Waves, np.ndarray, np.ndarray] | None:
    """Layout, order, and channels of sines and cosines by the row of position 0, where all sines are 0; or None."""
    width = len(start)
    if width % 2:
        return None
    index = np.arange(width)
    zero = np.abs(start) <= NOTHING * np.abs(start).max()
    for layout, first in (("interleaved", index % 2 == 0), ("halves", index < width // 2)):
        for order, sines in (("sin-cos", first), ("cos-sin", ~first)):
            if np.array_equal(zero, sines):
                return layout, order, index[sines], index[~sines]  # type: ignore[return-value]
    return None


def _read(reader: RowCaller, positions: np.ndarray) -> np.ndarray:
    return reader(np.zeros((len(positions), reader.caller.width)), positions)


def _factor_on_x(reader: RowCaller) -> float:
    """The factor on ``x``; raises `Unfit` if the change of ``x`` is not one factor."""
    draw = np.random.default_rng(5)
    at = np.array([0, 1, 6])
    x = draw.integers(-96, 97, (3, reader.caller.width)) / 64
    moved = reader(x, at) - _read(reader, at)
    factor = float((moved * x).sum() / (x * x).sum())
    unit = unit_of(reader.caller.output)
    if np.abs(moved - factor * x).max() > 8 * unit * max(1.0, abs(factor)) * np.abs(x).max():
        raise Unfit("It adds to x and also rotates or mixes the dimensions of x: that is two encodings in one.")
    return shortest(Interval.around(factor, 4 * unit * max(1.0, abs(factor))))


def _learned(behaviour: Behaviour, read: np.ndarray, factor: float, said: str, why: str) -> tuple[Match | None, str]:
    """The match of a learned table, if the function refuses positions beyond a last one; else None.

    A table that ends is stored, not computed, whatever its rows are from; `Learned` is the code of stored rows.
    """
    if behaviour.last is None or behaviour.reader.counts:
        return None, f"{said} {why}"
    rows = behaviour.last + 1
    values = read if rows == len(read) else _read(behaviour.reader, np.arange(rows))
    evidence: tuple[tuple[str, Any], ...] = (
        ("factor_on_x", factor),
        ("longest_position", behaviour.last),
        ("standard_deviation", float(values.std())),
    )
    match = Match(Learned(read.shape[1], rows), None, values.astype(np.float32), confidence=1.0, evidence=evidence)
    return match, f"{said} It holds {rows:,} rows without known frequencies, of unknown origin. {why}"
