"""How fast each pair of a function turns, to as many digits as its arithmetic keeps.

A row with a 1 in the first channel of every pair comes out with each pair's cosine and sine, so one row a position
reads all phases. The rate is known from position 1 to the error of one phase; position 2 halves that, position 4
halves it again, and so on: the last phase tells which turn the next one is in (lag doubling). A power of two times a
number is rounded nowhere in binary floating point, so what is measured there are the rates as the function holds them,
whatever it rounds elsewhere.
"""

from dataclasses import dataclass

import numpy as np

from clockhands.recognition.functions_calling import Reader, Refused
from clockhands.recognition.functions_pairs import NoRotation, Pairs

_TURN = 2 * np.pi
# Parts of a token, where a function takes them: rates up to pi x 2**10 are then known from the first step on.
_PARTS = 2.0 ** np.arange(-10, 0)


@dataclass(frozen=True, eq=False)
class Phases:
    """What was measured of each pair.

    Attributes:
        rates: Radians per token, signed: from the first channel of a pair to the second.
        bounds: How far each may be off, rad/token.
        reached: The last power of two that still agreed with those before.
        positions: Where amplitudes were read.
        amplitudes: What cosine and sine are multiplied by, [positions, pairs].
        modulo: 2 pi where only whole positions were taken, so that whole turns per token are not seen; else None.
    """

    rates: np.ndarray
    bounds: np.ndarray
    reached: np.ndarray
    positions: np.ndarray
    amplitudes: np.ndarray
    modulo: float | None


def read_phases(reader: Reader, pairs: Pairs, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Phase in (-pi, pi] and amplitude of each pair at these positions, [positions, pairs] each."""
    x = np.zeros((len(positions), reader.caller.width))
    a, b = pairs.channels.T
    x[:, a] = 1
    y = reader(x, positions)[:, pairs.order]
    return np.arctan2(y[:, b], y[:, a]), np.hypot(y[:, a], y[:, b])


def measure(reader: Reader, pairs: Pairs, longest: int, unit: float) -> Phases:
    """The rate of each pair, by positions 1, 2, 4, … up to the longest.

    Args:
        reader: The function.
        pairs: Its pairs.
        longest: The largest position that it takes.
        unit: Rounding of one number that it gives, relative to 1.
    """
    whole = 1 << np.arange(int(longest).bit_length())
    phases, amplitudes = read_phases(reader, pairs, whole)
    start = read_phases(reader, pairs, np.array([0]))[0]
    start = np.where(np.abs(start) > 16 * unit, start, 0.0)  # of positions that are counted from elsewhere
    phases = wrapped(phases - start)
    noise = 2 * unit  # of a phase: half a unit in cosine and in sine, and what their functions are off
    parts = _parts(reader, pairs)
    if parts is not None:
        positions = np.concatenate([_PARTS, whole])
        rates, bounds, reached = doubled(np.concatenate([wrapped(parts - start), phases]), positions, noise)
        if (reached >= 1).all():
            return Phases(rates, bounds, reached, whole, amplitudes, None)
    rates, bounds, reached = doubled(phases, whole.astype(np.float64), noise)
    return Phases(rates, bounds, reached, whole, amplitudes, _TURN)


def offset_of(reader: Reader, pairs: Pairs, phases: Phases, unit: float) -> float:
    """How many tokens early positions are counted, where pairs stand turned at position 0 already.

    Raises:
        NoRotation: No shift of the positions gives the angles at position 0.
    """
    start = read_phases(reader, pairs, np.array([0]))[0][0]
    order = np.argsort(np.abs(phases.rates))
    order = order[np.abs(phases.rates[order]) > 0]
    offset: float | None = None
    for pair in order:  # the slowest says about where, faster ones say more exactly
        rate, off = phases.rates[pair], start[pair]
        if offset is not None:
            off = offset * rate + wrapped(off - offset * rate)
        offset = float(off / rate)
        if abs(offset - round(offset)) < 8 * unit / abs(rate):
            offset = float(round(offset))
    if offset is None or np.abs(wrapped(start - offset * phases.rates)).max() > 64 * unit * max(1.0, abs(offset)):
        raise NoRotation(
            "It is not a rotation by positions: at position 0 its pairs are turned already, by angles that no shift of "
            "the positions gives."
        )
    return float(f"{offset:.6g}")


def _parts(reader: Reader, pairs: Pairs) -> np.ndarray | None:
    """Phases at parts of a token, or None where the function takes none."""
    if reader.counts:
        return None
    try:
        phases, _ = read_phases(reader, pairs, _PARTS)
    except Refused:
        return None
    return phases if np.isfinite(phases).all() and (phases != 0).any() else None


def doubled(phases: np.ndarray, positions: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates, their bounds and the last position that agreed, from phases at positions that double.

    A phase agrees where it lies within what the rate so far and the noise of one phase allow.
    """
    rates = phases[0] / positions[0]
    bounds = np.full(rates.shape, noise / positions[0])
    reached = np.where(np.isfinite(rates), positions[0], 0.0)
    going = np.isfinite(rates)
    for phase, position in zip(phases[1:], positions[1:], strict=True):
        off = phase - rates * position
        off = off - _TURN * np.round(off / _TURN)
        # Twice the last bound and once the noise; four times that, since a function may round once more.
        # The product itself is rounded in double precision.
        rounding = 2.0**-51 * np.abs(rates) * position
        going = going & np.isfinite(off) & (np.abs(off) <= 12 * noise + rounding)
        rates = np.where(going, rates + off / position, rates)
        bounds = np.where(going, (noise + rounding) / position, bounds)
        reached = np.where(going, position, reached)
    return rates, bounds, reached


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles brought to [-pi, pi]."""
    with np.errstate(invalid="ignore"):  # what is not finite stays so
        return angles - _TURN * np.round(angles / _TURN)
