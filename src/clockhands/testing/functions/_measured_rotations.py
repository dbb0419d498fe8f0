"""Measured rotations of a rotary function: what the suspects are made of, and what is said if no suspect fits."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from clockhands.encodings.rotary import Rotary
from clockhands.recognition.calling import Refused
from clockhands.recognition.faults import ROTARY
from clockhands.recognition.suspects import RotaryObservations, Samples, axis_ladders, pair_factors
from clockhands.testing.functions._rank_parts import ROWS
from clockhands.testing.functions._rotary_subject import CheckedRotary
from clockhands.testing.functions._suspects import explanation_of
from clockhands.testing.reports import Explanation


def rotations_of(
    it: CheckedRotary, first_wrong: int | None, side: str | None = None, start: int = 0
) -> RotaryObservations:
    """Measure the rotation of the declared dimension pairs, from a position on."""
    powers = [2**power for power in range(1, 18) if start + 2**power < it.length]
    at = start + np.array([0, 1, *powers])
    role = "key" if side == "key" else None
    # Both draws of tokens get the same different coordinates.
    axes = it.spec.number_of_axes
    apart = np.random.default_rng(24).integers(0, min(it.length, 40), (24, axes)) if axes > 1 else None

    def answer_of(positions: np.ndarray, given: bool = False) -> Samples:
        found = []
        with suppress(Refused):
            for seed in (19, 20):
                x = it.tokens(1, 1, len(positions), seed=seed)
                y = it.answer("the rotation of pairs", x, positions, role=role, given=given).got
                found.append((x[0, 0], y[0, 0]))
            return tuple(found)
        return ()

    part = it.called.part
    if part is not None:
        at = part.positions(4 * ROWS)
    samples = answer_of(at)
    turning, alike = pair_factors(samples, it.spec)
    seen = RotaryObservations(
        it.dtype,
        it.coarse,
        it.length,
        first_wrong,
        at if samples else at[:0],
        turning,
        alike,
        axes=it.called.axes,
        samples=samples,
        role=role,
        counted=it.called.shape.counts or "offset" in it.called.shape.takes or part is not None,
        coordinates=apart,
        apart=() if apart is None else answer_of(apart, given=True),
    )
    return replace(seen, stands=seen.apparent(it.spec))


def from_first(seen: RotaryObservations, spec: Rotary) -> RotaryObservations | None:
    """Rotations relative to that of the first position, as those of positions from 0 on; None if they are none."""
    if not seen.samples or not seen.pairwise or not np.isfinite(seen.turning).all() or not seen.turning[0].all():
        return None
    back = np.conj(seen.turning[0]) / np.abs(seen.turning[0])
    one, other = spec.channels.T

    def rotated_back(y: np.ndarray) -> np.ndarray:
        pairs, made = (y[:, one] + 1j * y[:, other]) * back, y.copy()
        made[:, one], made[:, other] = pairs.real, pairs.imag
        return made

    samples = tuple((x, rotated_back(y)) for x, y in seen.samples)
    return replace(
        seen, positions=seen.positions - seen.positions[0], turning=seen.turning * back, samples=samples, stands=None
    )


def by_rates(spec: Rotary, seen: RotaryObservations) -> tuple[Explanation, ...]:
    """The explanation of a rotation with constant frequencies that no known fault gives; empty if there are none."""
    rates = seen.rates() if seen.evenly() else None
    if rates is None or not np.abs(rates).max() * seen.positions.max() > 0.05:  # tokens that do not rotate have none
        return ()
    sign = -1.0 if spec.direction == "backward" else 1.0
    declared, rates = np.array(spec.rates), sign * rates
    # A frequency is known to 0.05 rad divided by the largest position that was measured.
    wrong = np.flatnonzero(np.abs(rates - declared) > 0.05 / max(int(seen.positions.max()), 1))
    if not len(wrong):
        return ()
    pair = int(wrong[0])
    parameters = {
        "wrong": len(wrong),
        "pairs": len(rates),
        "pair": pair,
        "rate": float(rates[pair]),
        "declared": float(declared[pair]),
        "rates": tuple(map(float, rates)),
    }
    ruled = (
        axis_ladders(spec, seen) or _in_order(rates) or _even(rates) or np.allclose(np.sort(rates), np.sort(declared))
    )
    code = "other-rates" if ruled or len(wrong) <= len(rates) // 2 else "rates-uninitialised"
    return (explanation_of(ROTARY[code], parameters),)


def _in_order(rates: np.ndarray) -> bool:
    """Whether rates fall from pair to pair and stay above 0."""
    return bool((np.diff(rates) < 0).all() and rates[-1] > 0)


def _even(rates: np.ndarray) -> bool:
    """Whether neighbouring rates have one difference."""
    steps = np.diff(rates)
    return len(steps) > 1 and bool(np.ptp(steps) < 1e-3 * np.abs(steps).max())
