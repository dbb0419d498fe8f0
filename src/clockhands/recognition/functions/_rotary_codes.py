"""Recognition of a function that rotates pairs: its rotary code, and the accuracy of its arithmetic.

It may multiply pairs by a factor that grows with the position (xPos), and its frequencies may depend on the largest
position of a call (dynamic NTK, LongRoPE): up to an original length they are one ladder, beyond it another. A search
finds this length. Both ladders are then measured, each with calls that have the same largest position.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.ladders import Explicit, Geometric
from clockhands.encodings.positions import positions_of
from clockhands.encodings.rotary import Rotary, XPos, rotate
from clockhands.encodings.rotary.rotating import cosine_sine
from clockhands.encodings.scaling import SCALINGS, Dynamic, KnownScaling, LongRope
from clockhands.encodings.scaling.measured import Beyond
from clockhands.encodings.specs import describe
from clockhands.encodings.written_numbers import Interval, shortest
from clockhands.errors import ClockhandsError
from clockhands.recognition._fitting import Fit
from clockhands.recognition._functions_calling import Refused, RowCaller
from clockhands.recognition._matches import Match
from clockhands.recognition._preset_names import rotary_names
from clockhands.recognition.functions._behaviour import Behaviour, equal, halved, not_linear, unit_of
from clockhands.recognition.functions._phases import (
    Arithmetic,
    MeasuredRotation,
    Phases,
    all_pairs,
    arithmetic_of,
    explained_by,
    first_of,
    fits_of,
    index_of,
    measure,
    measured_match,
    offset_of,
    read_phases,
    table_dtype,
)
from clockhands.recognition.functions._rotated_pairs import NoRotation, RotatedPairs, find_pairs, mixed_at_zero
from clockhands.recognition.unwrapped_phases import wrapped

# With low precision, dozens of odd numbers give the same rates: at most this many of the shortest are returned.
_EQUIVALENTS = 8
_BETWEEN = np.array([0.3125])
# A number with a larger error counts as wrong; a bfloat16 table has errors up to 0.004.
_WRONG = 0.01
_CONTIGUOUS = 4096
# The first 64 positions must agree; otherwise the ladder holds only at the positions 1, 2, 4, … that gave it.
_ENOUGH = 64


def decay_of(
    phases: Phases, unit: float, reader: RowCaller, pairs: RotatedPairs
) -> tuple[Interval, XPos | None, str | None]:
    """The interval of the attention factor, and the xPos decay with its role (``"query"`` or ``"key"``) or None.

    Raises:
        NoRotation: Amplitudes change with the position, but not as in xPos.
    """
    amplitudes = phases.amplitudes
    agreed = np.isfinite(amplitudes) & (phases.positions[:, None] <= phases.reached)
    known = amplitudes[agreed]
    middle = float(np.median(known))
    if np.abs(known - middle).max() <= 8 * unit * middle:
        # The median of many amplitudes, each with its rounding error.
        return Interval.around(middle, 2 * unit * middle), None, None
    xpos, role = _xpos(phases, unit, reader, pairs)
    return Interval(1.0, 1.0), xpos, role


def _xpos(phases: Phases, unit: float, reader: RowCaller, pairs: RotatedPairs) -> tuple[XPos, str]:
    """The xPos parameters and the role, from the slopes ``ln zeta_j / scale`` of the logarithms of the amplitudes.

    The logarithm of an amplitude is this slope times (position - centre).
    """
    end = int(phases.positions[-1])
    number = pairs.rotated // 2
    _, ends = read_phases(reader, pairs, np.array([0, end]))
    at_zero, at_end = np.log(ends)
    slopes = (at_end - at_zero) / end
    bound = 4 * unit / end
    growing = np.sign(slopes).sum() > 0
    logarithms = -slopes if growing else slopes
    index = np.arange(number)
    if len(logarithms) != number or number < 2 or (logarithms >= bound).any():
        raise NoRotation(_unknown(slopes))
    smoothing = _smoothing(logarithms[0] / logarithms[number // 2], number, number // 2)
    if smoothing is None:
        raise NoRotation(_unknown(slopes))
    for digits in (1, 2, 3, 4, 6, 9):
        soft = float(f"{smoothing:.{digits - 1}e}")
        shares = np.log((index / number + soft) / (1 + soft))
        scales = Interval(
            float((shares / (logarithms - bound))[: number // 2 + 1].max()),
            float((shares / np.minimum(logarithms + bound, -1e-300))[: number // 2 + 1].min()),
        )
        if scales.low > scales.high:
            continue
        scale = shortest(scales)
        if np.abs(shares / scale - logarithms).max() <= 2 * bound:
            centres = Interval.around(-at_zero[0] / slopes[0], abs(4 * unit / slopes[0]))
            return XPos(scale, soft, shortest(centres)), "key" if growing else "query"
    raise NoRotation(_unknown(slopes))


def _smoothing(ratio: float, number: int, middle: int) -> float | None:
    """The xPos smoothing for which the logarithms of the first and the middle pair have this ratio, or None."""

    def of(soft: float) -> float:
        return math.log(soft / (1 + soft)) / math.log((middle / number + soft) / (1 + soft))

    low, high = 1e-6, 1e6
    if not of(high) < ratio < of(low):
        return None
    for _ in range(200):
        soft = math.sqrt(low * high)
        low, high = (soft, high) if of(soft) > ratio else (low, soft)
    return low


def _unknown(slopes: np.ndarray) -> str:
    return (
        f"It rotates pairs and changes their lengths with the position, from {math.exp(slopes.min() * 1000):.4g} to "
        f"{math.exp(slopes.max() * 1000):.4g} times over 1,000 tokens: not as xPos does, nor any other known "
        "encoding."
    )


def identify_rotation(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The match of a function that rotates pairs, or None, and the reason.

    Raises:
        NoRotation: It does not rotate pairs; the message says what it does.
    """
    turning = measured_rotation(behaviour)
    factor, xpos, role = decay_of(turning.phases, turning.unit, turning.reader, turning.pairs)
    fits, bounds, rates_in = fits_of(turning, factor)
    specs = [spec for fit in fits if (spec := _spec(turning, fit, xpos)) is not None]
    if not specs:
        turned = turning.pairs.channels
        raise NoRotation(
            f"It rotates {len(turned)} pairs of the dimensions {int(turned.min())} to {int(turned.max())}, which no "
            "RoPE variant does: the RoPE dimensions are the first or the last of a head."
        )
    spec = specs[0]
    arithmetic = arithmetic_of(turning, spec.rates, rates_in)
    checked = check(turning, spec, role, arithmetic, behaviour.last)
    if checked.alike < min(_ENOUGH, checked.largest):
        return None, (
            f"It rotates pairs, but already at position {checked.alike} not as RoPE with the angles of positions "
            f"1, 2, 4, … does: the error of {describe(spec).rstrip('.')} exceeds the rounding bound."
        )
    rates, within = all_pairs(turning)
    if turning.phases.modulo is not None:  # full rotations per token, not measurable, are taken from the ladder
        rates = rates + turning.phases.modulo * np.round((np.array(spec.rates) - rates) / turning.phases.modulo)
    more: dict[str, Any] = {}
    if turning.offset:
        more["offset"] = turning.offset
    if role is not None:
        more["role"] = role
    if fits[0].undetermined:
        more["undetermined"] = {name: list(ends) for name, ends in fits[0].undetermined}
    others = [other for other in specs[1:] if not isinstance(other.spacing, Explicit)][:_EQUIVALENTS]
    match = measured_match(
        [spec, *others],
        rotary_names(spec, bounds),
        arithmetic,
        {"rates": rates.tolist(), "bounds": within.tolist(), "attention_factor": shortest(factor)},
        error=checked.error,
        explained=checked.explained,
        first_wrong=checked.first_wrong,
        largest=checked.largest,
        more=more,
    )
    return match, _reason(turning, spec, arithmetic, checked)


def measured_rotation(behaviour: Behaviour) -> MeasuredRotation:
    """The rotated pairs of a function and their measured rates.

    Raises:
        NoRotation: It does not rotate pairs; the message says what it does.
    """
    reader, longest = behaviour.reader, behaviour.longest
    # A function that counts its rows needs calls as long as the position, for every channel, so only up to 128.
    far = [place for place in (97, longest) if place <= (128 if reader.counts else longest)]
    positions = np.array([0, 1, 3, *far])
    matrices = _matrices(reader, positions)
    if not np.isfinite(matrices).all():
        raise NoRotation("It returns values that are not finite.")
    table = table_dtype(matrices, reader.caller.output)
    # Numbers computed in float32 may be returned in float64; the linearity error shows the real precision.
    unit = max(unit_of(table), _linear_to(reader, matrices[2], int(positions[2])))
    pairs = find_pairs(matrices, np.concatenate([positions, _BETWEEN])[: len(matrices)], unit)
    phases = measure(reader, pairs, longest, unit)
    offset = offset_of(reader, pairs, phases, unit) if mixed_at_zero(matrices[0]) else 0.0
    # Pairs below 1 rad/token rotate by less than half a rotation per token, so they show the direction.
    slow = np.abs(phases.rates) < 1
    turned = phases.rates[slow] if slow.any() else phases.rates
    sign = -1.0 if np.sign(turned).sum() < 0 else 1.0
    if phases.modulo is None and (sign * phases.rates < -phases.bounds).any():
        wrong = int(np.flatnonzero(sign * phases.rates < -phases.bounds)[0])
        raise NoRotation(
            f"It rotates some pairs forward and some backward: pair {tuple(map(int, pairs.channels[wrong]))} "
            "rotates against the others, as in no known convention."
        )
    return MeasuredRotation(reader, longest, pairs, phases, unit, table, sign, offset)


def _matrices(reader: RowCaller, positions: np.ndarray) -> np.ndarray:
    """The matrices ``A_p``, [positions, width, width], at these positions, and at 0.3125 if fractions are accepted.

    A fraction of a token also shows pairs that complete full rotations per token.
    """
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


def _linear_to(reader: RowCaller, matrix: np.ndarray, position: int) -> float:
    """The relative error of linearity in ``x``; raises `NoRotation` if it is more than rounding of the dtype."""
    x = np.random.default_rng(2).integers(-96, 97, (2, len(matrix))) / 64
    y = reader(x, np.full(2, position))
    scale = np.abs(x).sum(axis=1).max()
    off = float(np.abs(y - x @ matrix).max() / (scale * max(1.0, np.abs(matrix).max())))
    if off > 8 * max(unit_of(reader.caller.output), unit_of("float32")):
        raise NoRotation(not_linear(reader.caller, position, min(reader.most, 4 * len(matrix))))
    return off


def _spec(turning: MeasuredRotation, fit: Fit, xpos: XPos | None) -> Rotary | None:
    pairs, width = turning.pairs, turning.reader.caller.width
    if pairs.layout is None:
        return None
    rotated, part = pairs.rotated, "first"
    if pairs.start:
        # Later RoPE dimensions must reach the end of the head; no known code rotates the middle of a head.
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
    """The comparison of a spec with the function.

    Attributes:
        error: The largest difference.
        explained: The share of rows with differences within the rounding of the function, from 0 to 1.
        first_wrong: The first position with an error above 0.01, or None.
        largest: The largest position compared.
        alike: The first position with a difference that rounding does not explain; if none, the one after the largest.
        stands: Whether the first wrong position and the following ones are rotated like the position before them.
    """

    error: float
    explained: float
    first_wrong: int | None
    largest: int
    alike: int
    stands: bool


def check(turning: MeasuredRotation, spec: Rotary, role: str | None, arithmetic: Arithmetic, last: int | None) -> Check:
    """Compare the function with the spec, at positions 0 to 4,095 and about 260 later ones, also on random rows."""
    reader, end = turning.reader, turning.longest if last is None else min(last, 2 * turning.longest - 1)
    draw = np.random.default_rng(3)
    near = np.arange(min(end + 1, _CONTIGUOUS))
    far = np.unique(np.concatenate([draw.integers(0, end + 1, 256), [end, end // 2, end // 3]]))
    positions = np.concatenate([near, far[far >= len(near)]])
    phases, shift = [], int(turning.offset) if turning.offset % 1 == 0 else turning.offset
    at = index_of(turning.pairs)

    def compared(asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The error of the function at these positions and its bound, [positions] each."""
        seen, amplitude = read_phases(reader, turning.pairs, asked)
        phases.append(seen)
        cosine, sine = (wave[:, at] for wave in cosine_sine(spec, positions_of(asked + shift), np.dtype(float), role))
        off = np.maximum(np.abs(amplitude * np.cos(seen) - cosine), np.abs(amplitude * np.sin(seen) - sine))
        off = np.where(np.isfinite(off), off, np.inf) / np.maximum(1.0, np.hypot(cosine, sine))
        return off.max(axis=1), explained_by(turning, arithmetic, np.abs(asked + shift), spec.rates)

    off, bounds = compared(positions)
    seen = phases[0]
    # Random rows also check channels that are not rotated; each output is a sum of two products with |x| up to 1.5.
    some = np.concatenate([np.arange(min(len(near), 64)), draw.integers(0, len(positions), 192)])
    x = draw.integers(-96, 97, (len(some), spec.head_width)) / 64
    ours = rotate(x, spec.at_original, positions[some] + shift, role=role)
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


def _reason(turning: MeasuredRotation, spec: Rotary, arithmetic: Arithmetic, checked: Check) -> str:
    said = [f"It is a rotation: {describe(spec).rstrip('.')}."]
    if isinstance(spec.spacing, Explicit):
        said.append("Its frequencies follow no known rule; they are listed one by one.")
    if turning.phases.modulo is not None:
        said.append("It was called with integer positions only, which cannot show whole rotations per token.")
    said += arithmetic.words()
    if turning.offset:
        sign = "-" if turning.offset < 0 else "+"
        said.append(f"Position p is rotated as p {sign} {abs(turning.offset):g}.")
    if checked.first_wrong is not None:
        said.append(f"From position {checked.first_wrong:,} on it is off by more than {_WRONG:g}.")
        if checked.stands:
            said.append(f"It stops there: positions beyond {checked.first_wrong - 1:,} are treated as that one.")
    if checked.alike <= checked.largest and checked.alike != checked.first_wrong:
        said.append(f"From position {checked.alike:,} on it differs by more than rounding.")
    return " ".join(said)


def identify_by_length(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The match of a function with frequencies that depend on a call's largest position, or None, and the reason."""
    reader, far = behaviour.reader, behaviour.longest
    last = _last_alike(behaviour)
    near = Behaviour(reader, 1 << (last.bit_length() - 1), last)
    match, reason = identify_rotation(near)
    says = f"Up to position {last:,} of a call it is one code, beyond it another for the whole call."
    says += _stateful(behaviour, last)
    if match is None or not isinstance(match.spec, Rotary):
        return match, f"{reason} {says}"
    turning = measured_rotation(replace(behaviour, reader=replace(reader, anchor=far)))
    rates = np.abs(turning.phases.rates)
    exact = dict(match.evidence)["rates_in"] == "float64"
    bounds = turning.phases.bounds + (0 if exact else 2.0**-21) * rates
    for scaling in _scalings(match.spec, rates, bounds, last + 1, far + 1):
        spec = replace(match.spec, scaling=scaling)
        beyond = replace(spec, length=far + 1)
        if (np.abs(np.array(beyond.rates) - rates) > bounds).any():
            continue
        found = _with(match, spec, beyond, turning, bounds)
        return found, f"It is a rotation: {describe(spec).rstrip('.')}. {says}"
    evidence = (*match.evidence, ("last_position_alike", last), ("rates_beyond", rates.tolist()))
    return replace(match, evidence=evidence), f"{reason} {says} Beyond it is no scaling that is known here."


def _with(match: Match, spec: Rotary, beyond: Rotary, turning: MeasuredRotation, bounds: np.ndarray) -> Match:
    assert isinstance(spec.scaling, Dynamic | LongRope)
    own = dict(match.evidence)
    arithmetic = Arithmetic(own["rates_in"], own["positions_in"], own["phases_in"], own["table_in"])
    checked = check(turning, beyond, None, arithmetic, None)
    names = rotary_names(spec, bounds)
    own.pop("presets", None)
    own.pop("undetermined", None)
    own |= {
        "original": spec.scaling.original,
        "longest_position": checked.largest,
        "first_wrong_position": checked.first_wrong,
    }
    if names:
        own["presets"] = list(names)
    return replace(
        match,
        spec=spec,
        error=max(match.error, checked.error),
        confidence=min(match.confidence, checked.explained),
        name=names[0] if names else None,
        equivalents=(),
        evidence=tuple(own.items()),
    )


def _last_alike(behaviour: Behaviour) -> int:
    """The largest position that does not change the other rows of its call."""
    reader = behaviour.reader
    at = np.array([3, 5, 8, 13])
    x = np.random.default_rng(6).integers(-96, 97, (4, reader.caller.width)) / 64

    def seen(anchor: int) -> np.ndarray:
        reader.caller(x, at)  # a short call first: some functions keep the ladder of the longest call until then
        return replace(reader, anchor=anchor)(x, at)

    first = seen(16)
    return halved(lambda anchor: equal(reader.caller, first, seen(anchor)), 16, behaviour.longest)


def _stateful(behaviour: Behaviour, last: int) -> str:
    """A sentence if a call of medium length gets the ladder of an earlier longer call; else an empty string."""
    reader, middle = behaviour.reader, (last + behaviour.longest) // 2
    at = np.array([3, 5, 8, 13])
    x = np.random.default_rng(7).integers(-96, 97, (4, reader.caller.width)) / 64
    reader.caller(x, at)
    first, _, last_again = (replace(reader, anchor=anchor)(x, at) for anchor in (middle, behaviour.longest, middle))
    reader.caller(x, at)
    if equal(reader.caller, first, last_again):
        return ""
    return " It keeps the frequencies of the longest call so far until a short one comes."


def _scalings(
    spec: Rotary, rates: np.ndarray, bounds: np.ndarray, original: int, length: int
) -> Iterator[KnownScaling]:
    """Scalings that leave this ladder unchanged up to the original length and may give these rates at ``length``."""
    plain = np.array(replace(spec, scaling=None).rates)
    if isinstance(spec.spacing, Geometric) and len(rates) == len(plain):
        beyond = Beyond(spec.scaling, spec.attention_factor, plain, rates, bounds, original, length)
        for kind in SCALINGS:
            yield from kind.fits_beyond(beyond)
