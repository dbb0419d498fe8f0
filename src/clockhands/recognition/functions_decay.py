"""What a function multiplies its pairs by: one number for all, or one that grows with the position (xPos)."""

import math

import numpy as np

from clockhands.recognition.decimals import Interval, shortest
from clockhands.recognition.functions_calling import Reader
from clockhands.recognition.functions_pairs import NoRotation, Pairs
from clockhands.recognition.functions_phases import Phases, read_phases
from clockhands.rotary import XPos


def decay_of(phases: Phases, unit: float, reader: Reader, pairs: Pairs) -> tuple[Interval, XPos | None, str | None]:
    """The attention factor, or the decay and its role.

    Raises:
        NoRotation: Amplitudes change with the position in a way that no code here has.
    """
    amplitudes = phases.amplitudes
    agreed = np.isfinite(amplitudes) & (phases.positions[:, None] <= phases.reached)
    known = amplitudes[agreed]
    middle = float(np.median(known))
    if np.abs(known - middle).max() <= 8 * unit * middle:
        # The middle of many, each off by its rounding.
        return Interval.around(middle, 2 * unit * middle), None, None
    xpos, role = _xpos(phases, unit, reader, pairs)
    return Interval(1.0, 1.0), xpos, role


def _xpos(phases: Phases, unit: float, reader: Reader, pairs: Pairs) -> tuple[XPos, str]:
    """Slopes of the logarithms of the amplitudes: ``ln zeta_j / scale``, times position less centre."""
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
    """The smoothing for which the first and the middle pair's logarithms have this ratio."""

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
        "It turns pairs and changes their lengths with the position, from "
        f"{math.exp(slopes.min() * 1000):.4g} to {math.exp(slopes.max() * 1000):.4g} times over 1,000 tokens: not as "
        "xPos does, and no other code here does."
    )
