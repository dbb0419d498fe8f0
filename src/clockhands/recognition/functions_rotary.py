"""A function that turns pairs: which rotary code it is, and how exactly it computes it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.ladders import Explicit
from clockhands.positions import positions_of
from clockhands.recognition.decimals import shortest
from clockhands.recognition.fitting import Fit
from clockhands.recognition.functions_arithmetic import Arithmetic, table_dtype
from clockhands.recognition.functions_behaviour import Behaviour, unit_of
from clockhands.recognition.functions_calling import Reader, Refused
from clockhands.recognition.functions_company import not_linear
from clockhands.recognition.functions_decay import decay_of
from clockhands.recognition.functions_pairs import NoRotation, find_pairs, turned_at_zero
from clockhands.recognition.functions_phases import measure, offset_of, read_phases, wrapped
from clockhands.recognition.functions_turning import (
    Turning,
    all_pairs,
    arithmetic_of,
    explained_by,
    first_of,
    fits_of,
    index_of,
)
from clockhands.recognition.matches import Match
from clockhands.recognition.naming import rotary_names
from clockhands.rotary import Rotary, XPos, rotate
from clockhands.rotary.rotating import cosine_sine
from clockhands.specs import describe

# Where few bits are seen, dozens of odd numbers have the same rates: the shortest are told.
_EQUIVALENTS = 8
_BETWEEN = np.array([0.3125])
# Off by more than this, a number counts as wrong: a bfloat16 table is off by 0.004.
_WRONG = 0.01
_CONTIGUOUS = 4096
# Positions from 0 on that must be explained, or the ladder is that of positions 1, 2, 4, … alone.
_ENOUGH = 64


def identify_rotation(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The rotary code of a function that is linear in ``x``.

    Raises:
        NoRotation: It turns no pairs; the message says what it does.
    """
    turning = measured_turning(behaviour)
    factor, xpos, role = decay_of(turning.phases, turning.unit, turning.reader, turning.pairs)
    fits, bounds, rates_in = fits_of(turning, factor)
    specs = [spec for fit in fits if (spec := _spec(turning, fit, xpos)) is not None]
    if not specs:
        turned = turning.pairs.channels
        raise NoRotation(
            f"It turns {len(turned)} pairs of the channels {int(turned.min())} to {int(turned.max())}, and no rotary "
            "code has them where they lie in the head: those that turn are its first or its last."
        )
    spec = specs[0]
    arithmetic = arithmetic_of(turning, spec.rates, rates_in)
    checked = check(turning, spec, role, arithmetic, behaviour.last)
    if checked.alike < min(_ENOUGH, checked.largest):
        return None, (
            f"It turns pairs, but at position {checked.alike} already not as any rotary code with the angles of "
            f"positions 1, 2, 4, … would: {_words(spec)} is off by more than rounding explains."
        )
    rates, within = all_pairs(turning)
    if turning.phases.modulo is not None:  # whole turns that were not seen, as the ladder has them
        rates = rates + turning.phases.modulo * np.round((np.array(spec.rates) - rates) / turning.phases.modulo)
    evidence: dict[str, Any] = {
        "rates": rates.tolist(),
        "bounds": within.tolist(),
        "attention_factor": shortest(factor),
        "rates_in": arithmetic.rates,
        "positions_in": arithmetic.positions,
        "phases_in": arithmetic.phases,
        "table_in": arithmetic.table,
        "first_wrong_position": checked.first_wrong,
        "longest_position": checked.largest,
    }
    if turning.offset:
        evidence["offset"] = turning.offset
    if role is not None:
        evidence["role"] = role
    if fits[0].undetermined:
        evidence["undetermined"] = {name: list(ends) for name, ends in fits[0].undetermined}
    names = rotary_names(spec, bounds)
    if names:
        evidence["presets"] = list(names)
    match = Match(
        spec,
        error=checked.error,
        confidence=checked.explained,
        name=names[0] if names else None,
        equivalents=tuple(other for other in specs[1:] if not isinstance(other.spacing, Explicit))[:_EQUIVALENTS],
        computed_in=arithmetic.coarsest,
        evidence=tuple(evidence.items()),
    )
    return match, _reason(turning, spec, arithmetic, checked)


def measured_turning(behaviour: Behaviour) -> Turning:
    """The pairs of a function and how fast they turn.

    Raises:
        NoRotation: It turns no pairs; the message says what it does.
    """
    reader, longest = behaviour.reader, behaviour.longest
    # A function that counts its rows is asked for as many as the position, for every channel.
    far = [place for place in (97, longest) if place <= (128 if reader.counts else longest)]
    positions = np.array([0, 1, 3, *far])
    matrices = _matrices(reader, positions)
    if not np.isfinite(matrices).all():
        raise NoRotation("It gives back numbers that are not finite.")
    table = table_dtype(matrices, reader.caller.output)
    # What is computed in float32 may be handed over in float64: the sums show what is left.
    unit = max(unit_of(table), _linear_to(reader, matrices[2], int(positions[2])))
    pairs = find_pairs(matrices, np.concatenate([positions, _BETWEEN])[: len(matrices)], unit)
    phases = measure(reader, pairs, longest, unit)
    offset = offset_of(reader, pairs, phases, unit) if turned_at_zero(matrices[0]) else 0.0
    # Slow hands do not make whole turns unseen: they say which way it goes.
    slow = np.abs(phases.rates) < 1
    turned = phases.rates[slow] if slow.any() else phases.rates
    sign = -1.0 if np.sign(turned).sum() < 0 else 1.0
    if phases.modulo is None and (sign * phases.rates < -phases.bounds).any():
        wrong = int(np.flatnonzero(sign * phases.rates < -phases.bounds)[0])
        raise NoRotation(
            f"It turns pairs, some forward and some backward: pair {tuple(map(int, pairs.channels[wrong]))} is turned "
            "against the others, as in no convention."
        )
    return Turning(reader, longest, pairs, phases, unit, table, sign, offset)


def _matrices(reader: Reader, positions: np.ndarray) -> np.ndarray:
    """``A_p`` at whole positions, and at parts of a token where those are taken: whole turns are seen there."""
    width = reader.caller.width

    def at(places: np.ndarray) -> np.ndarray:
        identity = np.tile(np.eye(width), (len(places), 1))
        return reader(identity, np.repeat(places, width)).reshape(len(places), width, width)

    matrices = at(positions)
    if reader.counts:
        return matrices
    try:
        between = at(_BETWEEN)
    except Refused:
        return matrices
    return np.concatenate([matrices, between]) if np.isfinite(between).all() else matrices


def _linear_to(reader: Reader, matrix: np.ndarray, position: int) -> float:
    """How far a sum of rows is from the sum of what becomes of them, relative to the rows.

    Raises:
        NoRotation: Further than float32 leaves it, or the function's dtype.
    """
    x = np.random.default_rng(2).integers(-96, 97, (2, len(matrix))) / 64
    y = reader(x, np.full(2, position))
    scale = np.abs(x).sum(axis=1).max()
    off = float(np.abs(y - x @ matrix).max() / (scale * max(1.0, np.abs(matrix).max())))
    if off > 8 * max(unit_of(reader.caller.output), unit_of("float32")):
        raise NoRotation(not_linear(reader.caller, position, min(reader.most, 4 * len(matrix))))
    return off


def _spec(turning: Turning, fit: Fit, xpos: XPos | None) -> Rotary | None:
    pairs, width = turning.pairs, turning.reader.caller.width
    if pairs.layout is None:
        return None
    rotated, part = pairs.rotated, "first"
    if pairs.start:
        # What follows the turning channels stands still too; no code has them in the middle.
        if pairs.start + pairs.rotated != width:
            return None
        part = "last"
    try:
        return Rotary(
            width,
            pairs.layout,
            spacing=fit.spacing,
            rotated=rotated,
            part=part,  # type: ignore[arg-type]
            blocks=pairs.blocks,
            direction="forward" if turning.sign > 0 else "backward",
            reordered=pairs.reordered,
            xpos=xpos,
            scaling=fit.scaling,
        )
    except ClockhandsError:
        return None


@dataclass(frozen=True)
class Check:
    """How a spec compares with the function.

    Attributes:
        error: The largest difference.
        explained: The share of rows that differ by no more than the function rounds.
        first_wrong: The first position that is off by more than 0.01, if any.
        largest: The largest position compared.
        alike: The first position whose difference is not explained, or the one after the largest.
        stands: Whether the positions from the first wrong one on are turned as the one before it.
    """

    error: float
    explained: float
    first_wrong: int | None
    largest: int
    alike: int
    stands: bool


def check(turning: Turning, spec: Rotary, role: str | None, arithmetic: Arithmetic, last: int | None) -> Check:
    """The function beside the spec, at every position near 0 and many far away, on rows of all channels."""
    reader, end = turning.reader, turning.longest if last is None else min(last, 2 * turning.longest - 1)
    draw = np.random.default_rng(3)
    near = np.arange(min(end + 1, _CONTIGUOUS))
    far = np.unique(np.concatenate([draw.integers(0, end + 1, 256), [end, end // 2, end // 3]]))
    positions = np.concatenate([near, far[far >= len(near)]])
    phases, shift = [], int(turning.offset) if turning.offset % 1 == 0 else turning.offset
    at = index_of(turning.pairs)

    def compared(asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far off the function is at these positions, and how far it may be."""
        seen, amplitude = read_phases(reader, turning.pairs, asked)
        phases.append(seen)
        cosine, sine = (wave[:, at] for wave in cosine_sine(spec, positions_of(asked + shift), np.dtype(float), role))
        off = np.maximum(np.abs(amplitude * np.cos(seen) - cosine), np.abs(amplitude * np.sin(seen) - sine))
        off = np.where(np.isfinite(off), off, np.inf) / np.maximum(1.0, np.hypot(cosine, sine))
        return off.max(axis=1), explained_by(turning, arithmetic, np.abs(asked + shift), spec.rates)

    off, bounds = compared(positions)
    seen = phases[0]
    # Rows of all channels at once, where unturned channels are seen too; each sum is of two products with up to 1.5.
    some = np.concatenate([np.arange(min(len(near), 64)), draw.integers(0, len(positions), 192)])
    x = draw.integers(-96, 97, (len(some), spec.head_width)) / 64
    ours = rotate(x, spec, positions[some] + shift, role=role)
    rows = np.abs(reader(x, positions[some]) - ours).max(axis=1)
    rows = np.where(np.isfinite(rows), rows, np.inf)
    cosine, sine = cosine_sine(spec, positions_of(positions[some] + shift), np.dtype(float), role)
    grown = np.maximum(1.0, np.hypot(cosine, sine).max(axis=1))
    explained = np.concatenate([off <= bounds, rows <= 3 * grown * (bounds[some] + unit_of(reader.caller.output))])
    first_wrong = first_of(positions, off > _WRONG, lambda asked: compared(asked)[0] > _WRONG)
    alike = first_of(positions, off > bounds, lambda asked: np.greater(*compared(asked)))
    if alike is None:
        alike = int(positions[-1]) + 1
    error = max(float(rows.max()), float(off.max()))
    stands = False
    if first_wrong is not None and 0 < first_wrong < len(near) - 2:
        before, *beyond = seen[first_wrong - 1 : first_wrong + 3]
        stands = bool((np.abs(wrapped(np.array(beyond) - before)) <= 2 * turning.noise).all())
    return Check(error, float(explained.mean()), first_wrong, int(positions[-1]), alike, stands)


def _words(spec: Rotary) -> str:
    return describe(spec).rstrip(".")


def _reason(turning: Turning, spec: Rotary, arithmetic: Arithmetic, checked: Check) -> str:
    said = [f"It is a rotation: {_words(spec)}."]
    if isinstance(spec.spacing, Explicit):
        said.append("Its rates are on no ladder that is known here; they are given one by one.")
    if turning.phases.modulo is not None:
        said.append("It was asked at whole positions only, where whole turns per token are not seen.")
    said += arithmetic.words()
    if turning.offset:
        sign = "-" if turning.offset < 0 else "+"
        said.append(f"Position p is turned as p {sign} {abs(turning.offset):g} would be.")
    if checked.first_wrong is not None:
        said.append(f"From position {checked.first_wrong:,} on it is off by more than {_WRONG:g}.")
        if checked.stands:
            said.append(f"It stands still there: positions beyond {checked.first_wrong - 1:,} are taken for that one.")
    if checked.alike <= checked.largest and checked.alike != checked.first_wrong:
        said.append(f"From position {checked.alike:,} on it differs by more than its rounding explains.")
    return " ".join(said)
