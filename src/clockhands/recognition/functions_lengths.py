"""Functions whose ladder depends on the largest position of a call: dynamic NTK, LongRoPE.

Up to an original length they are one rotation, beyond it another. Where that is comes from a search; both rotations are
then measured, each with its largest position in every call.
"""

import math
from dataclasses import replace

import numpy as np

from clockhands.ladders import Geometric
from clockhands.recognition.decimals import Interval, shortest
from clockhands.recognition.functions_arithmetic import Arithmetic
from clockhands.recognition.functions_behaviour import Behaviour
from clockhands.recognition.functions_equal import equal
from clockhands.recognition.functions_rotary import check, identify_rotation, measured_turning
from clockhands.recognition.functions_turning import Turning
from clockhands.recognition.matches import Match
from clockhands.recognition.naming import rotary_names
from clockhands.recognition.scaled_ladders import divisor_in
from clockhands.rotary import Rotary
from clockhands.scaling import Dynamic, LongRope, Scaling
from clockhands.specs import describe


def identify_by_length(behaviour: Behaviour) -> tuple[Match | None, str]:
    """The code of a function that looks at how far its call goes."""
    reader, far = behaviour.reader, behaviour.longest
    last = _last_alike(behaviour)
    near = Behaviour(reader, 1 << (last.bit_length() - 1), last)
    match, reason = identify_rotation(near)
    says = f"Up to position {last:,} of a call it is one code, beyond it another for the whole call."
    says += _stateful(behaviour, last)
    if match is None or not isinstance(match.spec, Rotary):
        return match, f"{reason} {says}"
    reader.anchor = far
    turning = measured_turning(behaviour)
    rates = np.abs(turning.phases.rates)
    exact = dict(match.evidence)["rates_in"] == "float64"
    bounds = turning.phases.bounds + (0 if exact else 2.0**-21) * rates
    for scaling in _scalings(match.spec, rates, bounds, last, far):
        spec = replace(match.spec, scaling=scaling)
        beyond = replace(spec, length=far + 1)
        if (np.abs(np.array(beyond.rates) - rates) > bounds).any():
            continue
        found = _with(match, spec, beyond, turning, bounds)
        reader.anchor = None
        return found, f"It is a rotation: {describe(spec).rstrip('.')}. {says}"
    reader.anchor = None
    evidence = (*match.evidence, ("last_position_alike", last), ("rates_beyond", rates.tolist()))
    return replace(match, evidence=evidence), f"{reason} {says} Beyond it is no scaling that is known here."


def _with(match: Match, spec: Rotary, beyond: Rotary, turning: Turning, bounds: np.ndarray) -> Match:
    own = dict(match.evidence)
    arithmetic = Arithmetic(own["rates_in"], own["positions_in"], own["phases_in"], own["table_in"])
    checked = check(turning, beyond, None, arithmetic, None)
    names = rotary_names(spec, bounds)
    own.pop("presets", None)
    own.pop("undetermined", None)
    own |= {
        "original": _original(spec),
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


def _original(spec: Rotary) -> int:
    assert isinstance(spec.scaling, Dynamic | LongRope)
    return spec.scaling.original


def _last_alike(behaviour: Behaviour) -> int:
    """The largest position that leaves the other rows of its call as they are."""
    reader = behaviour.reader
    at = np.array([3, 5, 8, 13])
    x = np.random.default_rng(6).integers(-96, 97, (4, reader.caller.width)) / 64

    def seen(anchor: int) -> np.ndarray:
        reader.caller(x, at)  # some keep the ladder of the longest call until a short one comes
        reader.anchor = anchor
        try:
            return reader(x, at)
        finally:
            reader.anchor = None

    first = seen(16)
    low, high = 16, behaviour.longest  # alike, not alike
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if equal(reader.caller, first, seen(middle)) else (low, middle)
    return low


def _stateful(behaviour: Behaviour, last: int) -> str:
    """What to say where a call of middling length is answered by the ladder of a longer one before."""
    reader, middle = behaviour.reader, (last + behaviour.longest) // 2
    at = np.array([3, 5, 8, 13])
    x = np.random.default_rng(7).integers(-96, 97, (4, reader.caller.width)) / 64
    reader.caller(x, at)
    answers = []
    for anchor in (middle, behaviour.longest, middle):
        reader.anchor = anchor
        answers.append(reader(x, at))
    reader.anchor = None
    reader.caller(x, at)
    if equal(reader.caller, answers[0], answers[2]):
        return ""
    return " It keeps the ladder of the longest call so far until a short one comes."


def _scalings(spec: Rotary, rates: np.ndarray, bounds: np.ndarray, last: int, far: int) -> list[Scaling]:
    """Scalings that are this ladder up to the original length and these rates at the far one."""
    if not isinstance(spec.spacing, Geometric):
        return []
    found: list[Scaling] = []
    original = last + 1
    plain = np.array(replace(spec, scaling=None).rates)
    if spec.scaling is None and len(rates) == len(plain) > 1:
        # The slowest pair is slowed by the whole factor f L / L0 - (f - 1).
        low, high = (float(plain[-1] / (rates[-1] + side * bounds[-1])) for side in (1, -1))
        beyond = (far + 1) / original - 1
        found.append(Dynamic(max(shortest(Interval((low - 1) / beyond, (high - 1) / beyond)), 1.0), original))
    if len(rates) == len(plain):
        found.append(_longrope(spec, plain, rates, bounds, original))
    return found


def _longrope(spec: Rotary, plain: np.ndarray, rates: np.ndarray, bounds: np.ndarray, original: int) -> LongRope:
    short = spec.scaling.short if isinstance(spec.scaling, LongRope) else (1.0,) * len(plain)
    ends = zip(plain / (rates + bounds), plain / (rates - bounds), strict=True)
    long = tuple(divisor_in(Interval(float(low), float(high)))[0] for low, high in ends)
    # sqrt(1 + ln f / ln L0) is the attention factor, where it is the usual one.
    factor = spec.attention_factor
    served = original ** (factor**2 - 1)
    served = max(1.0, shortest(Interval.around(served, 4e-6 * served * math.log(original))))
    usual = math.sqrt(1 + math.log(served) / math.log(original))
    attention = None if abs(usual - factor) <= 1e-6 else factor
    return LongRope(short, long, original, served, attention_factor=attention)
