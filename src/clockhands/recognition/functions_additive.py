"""A function that adds a table to ``x``: the table is read off and recognised, then checked far away."""

from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.additive import Learned, table
from clockhands.dtypes import output_dtype
from clockhands.recognition.answering import identify_rows
from clockhands.recognition.decimals import Interval, shortest
from clockhands.recognition.functions_behaviour import Behaviour, Unfit, unit_of
from clockhands.recognition.functions_calling import Reader
from clockhands.recognition.given import ROUNDING, Given
from clockhands.recognition.matches import Match

# Rows that are recognised; positions beyond are compared with what was found.
_ROWS = 2048
_WRONG = 0.01


def identify_additive(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The additive code of a function ``factor * x + table(position)``.

    Raises:
        Unfit: It adds numbers, but does something else to ``x`` as well.
    """
    reader = behaviour.reader
    end = behaviour.longest if behaviour.last is None else behaviour.last
    factor = _factor_on_x(reader)
    rows = min(end + 1, _ROWS)
    read = _read(reader, np.arange(rows))
    output = reader.caller.output if reader.caller.output in ROUNDING else "float32"
    given = Given(read.astype(output_dtype(output)), output, ROUNDING[output], None)
    found = identify_rows(given)
    said = f"It adds a table to x{'' if factor == 1 else f', which it multiplies by {factor:g}'}."
    if not found:
        return _learned(behaviour, read, factor, said, found.reason)
    match = found[0]
    own = dict(match.evidence)
    start, step = float(own.get("start", 0.0)), float(own.get("step", 1.0))
    far = np.unique(np.random.default_rng(4).integers(0, end + 1, 256))
    made = table(match.spec, start + step * far, "float64", values=match.values)  # type: ignore[arg-type]
    off = np.abs(_read(reader, far) - made).max(axis=1)
    evidence = {
        **own,
        "factor_on_x": factor,
        "first_wrong_position": int(far[off > _WRONG][0]) if (off > _WRONG).any() else None,
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
        reasons.append(f"Position p is row {step:g} p + {start:g} of the code.")
    return match, " ".join(reasons)


def _read(reader: Reader, positions: np.ndarray) -> np.ndarray:
    return reader(np.zeros((len(positions), reader.caller.width)), positions)


def _factor_on_x(reader: Reader) -> float:
    """What ``x`` is multiplied by.

    Raises:
        Unfit: It is not multiplied by one number.
    """
    draw = np.random.default_rng(5)
    at = np.array([0, 1, 6])
    x = draw.integers(-96, 97, (3, reader.caller.width)) / 64
    moved = reader(x, at) - _read(reader, at)
    factor = float((moved * x).sum() / (x * x).sum())
    unit = unit_of(reader.caller.output)
    if np.abs(moved - factor * x).max() > 8 * unit * max(1.0, abs(factor)) * np.abs(x).max():
        raise Unfit("It adds numbers to x and turns or mixes the channels of x as well: that is two codes in one.")
    return shortest(Interval.around(factor, 4 * unit * max(1.0, abs(factor))))


def _learned(behaviour: Behaviour, read: np.ndarray, factor: float, said: str, why: str) -> tuple[Match | None, str]:
    """A table that ends is one that is kept: learned, or at least looked up."""
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
    return match, f"{said} It holds {rows:,} rows that are on no ladder, learned or random. {why}"
