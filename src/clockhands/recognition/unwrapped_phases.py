"""Frequencies from phases that are known up to whole rotations."""

import numpy as np

_TURN = 2 * np.pi
_LEAST = 2.0**-51  # of two angles in float64: a smaller difference is none


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Angles reduced to [-pi, pi]."""
    with np.errstate(invalid="ignore"):  # numbers that are not finite stay so
        return angles - _TURN * np.round(angles / _TURN)


def rates_of_phases(
    phases: np.ndarray, positions: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates, their error bounds and the last position that agreed, [pairs] each, from phases at growing positions.

    A position is at most 4 times the one before: the rate so far gives the number of whole rotations there. A phase
    agrees if its difference from the prediction is within the errors of the rate so far and of one phase.

    Args:
        phases: [positions, pairs] in [-pi, pi], each relative to that at position 0.
        positions: [positions].
        noise: The error of one phase.
    """
    rates = phases[0] / positions[0]
    bounds = np.full(rates.shape, noise / positions[0])
    reached = np.where(np.isfinite(rates), positions[0], 0.0)
    going = np.isfinite(rates)
    for phase, position in zip(phases[1:], positions[1:], strict=True):
        off = wrapped(phase - rates * position)
        # The prediction has twice the last error and the phase has one noise, 3 in total; 4 times that is allowed,
        # because a function may round once more. The product itself is rounded in float64.
        rounding = 2.0**-51 * np.abs(rates) * position
        going = going & np.isfinite(off) & (np.abs(off) <= 12 * noise + rounding)
        rates = np.where(going, rates + off / position, rates)
        bounds = np.where(going, (noise + rounding) / position, bounds)
        reached = np.where(going, position, reached)
    return rates, bounds, reached


def rates_of_angles(positions: np.ndarray, angles: np.ndarray) -> np.ndarray | None:
    """Rates from angles [positions, pairs] at 0, 1, 2, 4, ..., whatever their errors; None where 0 or 1 is missing."""
    at = dict(zip(positions.astype(int).tolist(), angles, strict=True))
    if 0 not in at or 1 not in at:
        return None
    reached = [1]
    for place in sorted(at):
        if reached[-1] < place <= 4 * reached[-1]:
            reached.append(place)
    phases = wrapped(np.stack([at[place] - at[0] for place in reached]))
    rates = rates_of_phases(phases, np.array(reached, np.float64), np.inf)[0]
    return np.where(np.abs(rates) < _LEAST / reached[-1], 0.0, rates)
