"""A function that turns pairs: which rotary code it is, and how exactly it computes it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.errors import ClockhandsError
from clockhands.ladders import Explicit, Joined, Spacing
from clockhands.positions import positions_of
from clockhands.recognition.decimals import Interval, shortest
from clockhands.recognition.fitting import Fit, fit_ladder
from clockhands.recognition.functions_arithmetic import (
    TELLING,
    Arithmetic,
    product_dtypes,
    rates_dtype,
    rounded,
    table_dtype,
)
from clockhands.recognition.functions_behaviour import Behaviour, unit_of
from clockhands.recognition.functions_calling import Reader
from clockhands.recognition.functions_decay import decay_of
from clockhands.recognition.functions_pairs import NoRotation, Pairs, find_pairs
from clockhands.recognition.functions_phases import Phases, measure, read_phases, wrapped
from clockhands.recognition.matches import Match
from clockhands.recognition.naming import rotary_names
from clockhands.rotary import Rotary, XPos, rotate
from clockhands.rotary.rotating import cosine_sine
from clockhands.specs import describe

# Off by more than this, a number counts as wrong: a bfloat16 table is off by 0.004.
_WRONG = 0.01
_CONTIGUOUS = 4096
# Rows that must be explained, or the ladder is that of positions 1, 2, 4, … alone.
_ENOUGH = 0.5
_RELATIVE = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True, eq=False)
class Turning:
    """Everything that was measured of a rotation."""

    reader: Reader
    longest: int
    pairs: Pairs
    phases: Phases
    unit: float
    table: str
    sign: float

    @property
    def noise(self) -> float:
        """What one phase may be off by reading it."""
        return 2 * self.unit


def identify_rotation(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The rotary code of a function that is linear in ``x``.

    Raises:
        NoRotation: It turns no pairs; the message says what it does.
    """
    turning = measured_turning(behaviour)
    factor, xpos, role = decay_of(turning.phases, turning.unit, turning.reader, turning.pairs)
    fits, bounds, rates_in = _fits(turning, factor)
    specs = [spec for fit in fits if (spec := _spec(turning, fit, xpos)) is not None]
    if not specs:
        raise NoRotation("It turns pairs, but no rotary code has them where they lie in the head.")
    spec = specs[0]
    arithmetic = _arithmetic(turning, spec, rates_in)
    checked = check(turning, spec, role, arithmetic, behaviour.last)
    if checked.explained < _ENOUGH:
        return None, (
            f"It turns pairs as {_words(spec)} would at positions 1, 2, 4, …, but not elsewhere: at position "
            f"{checked.first_wrong} it is off by more than {_WRONG:g}."
        )
    evidence: dict[str, Any] = {
        "rates": [float(rate) for rate in turning.sign * turning.phases.rates],
        "bounds": [float(bound) for bound in turning.phases.bounds],
        "attention_factor": shortest(factor),
        "rates_in": arithmetic.rates,
        "positions_in": arithmetic.positions,
        "phases_in": arithmetic.phases,
        "table_in": arithmetic.table,
        "first_wrong_position": checked.first_wrong,
        "longest_position": checked.largest,
    }
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
        equivalents=tuple(other for other in specs[1:] if not isinstance(other.spacing, Explicit)),
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
    width = reader.caller.width
    # A function that counts its rows is asked for as many as the position, for every channel.
    far = [place for place in (97, longest) if place <= (128 if reader.counts else longest)]
    positions = np.array([0, 1, 3, *far])
    identity = np.tile(np.eye(width), (len(positions), 1))
    matrices = reader(identity, np.repeat(positions, width)).reshape(len(positions), width, width)
    if not np.isfinite(matrices).all():
        raise NoRotation("It gives back numbers that are not finite.")
    _check_linear(reader, matrices[2], int(positions[2]))
    table = table_dtype(matrices, reader.caller.output)
    unit = unit_of(table)
    pairs = find_pairs(matrices, positions, unit)
    phases = measure(reader, pairs, longest, unit)
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
    return Turning(reader, longest, pairs, phases, unit, table, sign)


def _check_linear(reader: Reader, matrix: np.ndarray, position: int) -> None:
    x = np.random.default_rng(2).integers(-96, 97, (2, len(matrix))) / 64
    y = reader(x, np.full(2, position))
    scale = np.abs(x).sum(axis=1).max()
    if np.abs(y - x @ matrix).max() > 8 * unit_of(reader.caller.output) * scale:
        raise NoRotation("It is not a rotation: it is not linear in x (a sum of rows is not turned as the rows are).")


# --- the ladder ------------------------------------------------------------------------------------------------


def _index(pairs: Pairs) -> np.ndarray:
    """Which pair of the rotated channels each measured pair is."""
    first = pairs.channels[:, 0] - pairs.start
    if pairs.blocks:
        return np.arange(len(first))
    return first // 2 if pairs.layout == "interleaved" else first


def _fits(turning: Turning, factor: Interval) -> tuple[list[Fit], np.ndarray, str | None]:
    """Ladders with the measured rates, what these are known to, and the dtype they are held in, if it is seen."""
    pairs, phases = turning.pairs, turning.phases
    number = pairs.rotated // 2
    rates, bounds = np.zeros(number), np.full(number, turning.noise / turning.longest)
    at = _index(pairs)
    rates[at], bounds[at] = turning.sign * phases.rates, phases.bounds
    held = rates_dtype(phases, None)
    # Rates are powers of the base: in floating point the exponent is off by half a unit, so the power by half its
    # logarithm, and power, division and rounding by three more.
    steps = np.abs(np.log(np.maximum(np.abs(rates), 1e-30))) / 2 + 3
    tries = {"float32": ("float32",), "bfloat16": ("float32", "bfloat16"), "float16": ("float32", "float16")}
    found: list[Fit] = []
    within = bounds
    for dtype in tries.get(held or "", ("float64", "float32")):
        slack = steps * _RELATIVE[dtype] * np.abs(rates)
        if held in ("bfloat16", "float16"):  # cast once, from what was computed in float32
            slack = slack + _RELATIVE[held] * np.abs(rates) + (2.0**-25 if held == "float16" else 0)
        fits = _fit(turning, rates, bounds + slack, factor)
        if not found or fits[0].cost < found[0].cost:
            found, within = fits, bounds + slack
        if not isinstance(fits[0].spacing, Explicit) and len(rates) > 2:
            return fits, bounds + slack, held
    return found, within, held


def _fit(turning: Turning, rates: np.ndarray, bounds: np.ndarray, factor: Interval) -> list[Fit]:
    modulo, blocks = turning.phases.modulo, turning.pairs.blocks
    settings: dict[str, Any] = {
        "attention_factor": factor.middle,
        "attention_uncertainty": (factor.high - factor.low) / 2,
        "modulo": modulo,
    }
    rates = rates if modulo is not None else np.maximum(rates, 0)
    fits = fit_ladder(rates, bounds, whole=turning.reader.caller.width, **settings)
    if len(blocks) > 1 and isinstance(fits[0].spacing, Explicit):
        joined = _joined(rates, bounds, blocks, settings)
        if joined is not None:
            fits = [joined, *fits]
    return fits


def _joined(rates: np.ndarray, bounds: np.ndarray, blocks: tuple[int, ...], settings: dict[str, Any]) -> Fit | None:
    """A ladder for each block, one after another."""
    ends = np.cumsum(blocks)
    parts: list[Fit] = []
    for size, end in zip(blocks, ends, strict=True):
        block = slice(int(end) - size, int(end))
        plain = [fit for fit in fit_ladder(rates[block], bounds[block], **settings) if fit.scaling is None]
        if not plain or isinstance(plain[0].spacing, Joined):
            return None
        parts.append(plain[0])
    spacing: Spacing = Joined(tuple(zip(blocks, [fit.spacing for fit in parts], strict=True)))  # type: ignore[arg-type]
    return Fit(spacing, None, max(fit.difference for fit in parts), sum(fit.cost for fit in parts))


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


# --- how it is computed ----------------------------------------------------------------------------------------


def _arithmetic(turning: Turning, spec: Rotary, rates_in: str | None) -> Arithmetic:
    phases = turning.phases
    if rates_in is None:
        rates_in = rates_dtype(phases, np.array(spec.rates)[_index(turning.pairs)])
    positions = np.array([place for place in TELLING if place <= turning.longest])
    if not positions.size:
        positions = np.arange(1, turning.longest + 1)
    seen, _ = read_phases(turning.reader, turning.pairs, positions)
    places, product = product_dtypes(positions, seen, phases, turning.noise)
    return Arithmetic(rates_in, places, product, turning.table)


@dataclass(frozen=True)
class Check:
    """How a spec compares with the function: the largest difference, the share of rows explained, where it is wrong."""

    error: float
    explained: float
    first_wrong: int | None
    largest: int


def check(turning: Turning, spec: Rotary, role: str | None, arithmetic: Arithmetic, last: int | None) -> Check:
    """The function beside the spec, at every position near 0 and many far away, on rows of all channels."""
    reader, end = turning.reader, turning.longest if last is None else min(last, 2 * turning.longest - 1)
    draw = np.random.default_rng(3)
    near = np.arange(min(end + 1, _CONTIGUOUS))
    far = np.unique(np.concatenate([draw.integers(0, end + 1, 256), [end, end // 2, end // 3]]))
    positions = np.concatenate([near, far[far >= len(near)]])
    seen, amplitude = read_phases(reader, turning.pairs, positions)
    cosine, sine = cosine_sine(spec, positions_of(positions), np.dtype(np.float64), role)
    at = _index(turning.pairs)
    off = np.maximum(np.abs(amplitude * np.cos(seen) - cosine[:, at]), np.abs(amplitude * np.sin(seen) - sine[:, at]))
    off = np.where(np.isfinite(off), off, np.inf) / np.maximum(1.0, np.hypot(cosine, sine)[:, at])
    off = off.max(axis=1)
    wrong = np.flatnonzero(off > _WRONG)
    explained = off <= _explained(turning, arithmetic, positions, spec, at)
    # Rows of all channels at once, where unturned channels are seen too.
    some = np.concatenate([positions[: min(len(near), 64)], draw.choice(positions, 192)])
    x = draw.integers(-96, 97, (len(some), spec.head_width)) / 64
    error = float(np.abs(reader(x, some) - rotate(x, spec, some, role=role)).max())
    first_wrong = int(positions[wrong[0]]) if wrong.size else None
    return Check(max(error, float(off.max())), float(explained.mean()), first_wrong, int(positions[-1]))


def _explained(
    turning: Turning, arithmetic: Arithmetic, positions: np.ndarray, spec: Rotary, at: np.ndarray
) -> np.ndarray:
    """How far each row may be off by what the function rounds, [positions]."""
    rates = np.abs(np.array(spec.rates)[at])
    held = np.abs(turning.phases.rates)
    places = positions.astype(np.float64)
    if arithmetic.positions in _RELATIVE:
        places = rounded(places, arithmetic.positions)
    exact = positions[:, None] * rates
    moved = np.abs(wrapped(places[:, None] * held - exact)) + positions[:, None] * turning.phases.bounds
    if arithmetic.phases in _RELATIVE:
        moved = moved + 2 * _RELATIVE[arithmetic.phases] * exact
    return np.max(moved, axis=1) + 4 * turning.noise


def _words(spec: Rotary) -> str:
    return describe(spec).rstrip(".")


def _reason(turning: Turning, spec: Rotary, arithmetic: Arithmetic, checked: Check) -> str:
    said = [f"It is a rotation: {_words(spec)}."]
    if isinstance(spec.spacing, Explicit):
        said.append("Its rates are on no ladder that is known here; they are given one by one.")
    if turning.phases.modulo is not None:
        said.append("It was asked at whole positions only, where whole turns per token are not seen.")
    if arithmetic.positions in ("bfloat16", "float16"):
        said.append(f"Positions are rounded to {arithmetic.positions}.")
    if arithmetic.rates in ("bfloat16", "float16"):
        said.append(f"Rates are held in {arithmetic.rates}.")
    if arithmetic.phases in ("bfloat16", "float16"):
        said.append(f"Phases are rounded to {arithmetic.phases}.")
    if checked.first_wrong is not None:
        said.append(f"From position {checked.first_wrong:,} on it is off by more than {_WRONG:g}.")
    return " ".join(said)
