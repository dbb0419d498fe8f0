"""Recognition of a table in which both channels of a pair have the same wave (Funnel's factorised attention).

Each column is measured alone: ``x_(r+1) + x_(r-1) = 2 cos(angle) x_r`` gives its angle from row to row, without a sign,
and least squares gives its phase. The ladder is then found from angles and phases as in other tables.
"""

from dataclasses import replace

import numpy as np

from clockhands.encodings.additive import Sinusoidal
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.written_numbers import plain
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Matches
from clockhands.recognition._preset_names import alike
from clockhands.recognition.tables._describing import (
    Description,
    TableShape,
    described,
    rates_of,
    rope_evidence,
    rope_in_words,
    scaled_fits_of,
)
from clockhands.recognition.tables._pair_angles import PairAngles
from clockhands.recognition.tables._progressions import (
    HEAD,
    Progression,
    covariance_of,
    growing_parts,
    progressions,
    refined,
    without_second,
)
from clockhands.recognition.tables._verifying import Candidate, ExpectedTable, in_words, verified

_WAVES = {"sin-cos": "sin-sin", "cos-sin": "cos-cos"}


def identify_single(given: GivenTable, prefix: int) -> Matches | None:
    """The match of a table with one wave in both channels of each pair, or None; behind ``prefix`` rows of zeros."""
    if given.width % 2 or prefix > 1 or given.rows < 16:
        return None
    head, half = given.at(slice(0, min(HEAD, given.rows))), given.width // 2
    pairings = (("halves", head[:, :half], head[:, half:]), ("interleaved", head[:, ::2], head[:, 1::2]))
    twice = [(layout, columns) for layout, columns, again in pairings if np.array_equal(columns, again)]
    if not twice or not twice[0][1].any(axis=0).all():
        return None
    layout, columns = twice[0]
    angles, size = _angles(columns)
    trials = []
    for sign in (1, -1):
        # The column is the imaginary part of a pair, whose direction of rotation is unknown: both signs are tried.
        phase = angles.phase if sign > 0 else np.pi - angles.phase
        trials += progressions(replace(angles, angle=sign * angles.angle, phase=phase), len(columns))
    for trial in sorted(trials, key=lambda trial: (-trial.sign, abs(trial.origin))):
        if trial.kind != "geometric":
            continue
        fine = refined(trial, without_second(columns / size), np.arange(float(len(columns))), rounds=8)
        match = _checked_single(given, fine, layout, size, prefix)
        if match is not None:
            return _single(match, trial.order)
    for order in ("sin-cos", "cos-sin"):
        match = _scaled_single(given, angles.angle, layout, order, prefix)
        if match is not None:
            return _single(match, order)
    return None


def _single(match: Match, order: str) -> Matches:
    what = "sines" if order == "sin-cos" else "cosines"
    words = in_words(match, error=match.error)
    return Matches(
        [match], f"{words} The {what} that RoPE stores for its positions look the same.{rope_in_words(match)}"
    )


def _scaled_single(given: GivenTable, angle: np.ndarray, layout: str, order: str, prefix: int) -> Match | None:
    """The match of sines or cosines from position 0 on by a ladder with a RoPE scaling.

    A slow cosine hardly changes within the rows that are read, so the ladder is fitted to the fast columns, from the
    first on; every number of all columns is compared with it.
    """
    wave, change = (np.cos, lambda phase: -np.sin(phase)) if order == "cos-sin" else (np.sin, np.cos)
    pick = slice(0, given.width // 2) if layout == "halves" else slice(None, None, 2)
    scale, power = 1.0, np.ones_like(angle)
    angle = np.maximum(angle, 1e-4)
    first = float(np.median(given.at(slice(0, 1))[0, pick]))  # the row of position 0, if it is not left out as zeros
    for rows in growing_parts(given.rows):  # least squares, in which ever smaller errors of a rate show
        columns, at = given.at(rows)[:, pick], (prefix + rows).astype(np.float64)[:, None]
        for _ in range(12):
            waves = wave(at * angle)
            scale = (
                first if order == "cos-sin" else float((columns * waves).sum() / max(float((waves**2).sum()), 1e-300))
            )
            slope = scale * at * change(at * angle)
            power = np.maximum((slope**2).sum(axis=0), 1e-300)
            off = (slope * (columns - scale * waves)).sum(axis=0) / power
            angle = np.abs(angle + np.clip(off, -0.5 * angle, 0.5 * angle))
    if not scale > 0:
        return None
    scale = plain(scale, 2.0**-22 * scale, (1.0,))[1]
    bounds = 8 * scale * max(given.rounding, 2.0**-24) / np.sqrt(power) + 2.0**-20 * angle
    sure = bounds < 0.01 * angle
    number = len(sure) if sure.all() else int(np.argmin(sure))
    if number < 4:
        return None
    fit = next((fit for fit in scaled_fits_of(angle[:number], bounds[:number], given.width, scale)), None)
    if fit is None:
        return None
    spacing = Explicit(rates_of(fit, given.width // 2))
    spec = Sinusoidal(given.width, spacing=spacing, layout=layout, order=_WAVES[order], scale=scale)  # type: ignore[arg-type,index]
    best = Description(spec, 0.0, 1.0, 0.0, rope=fit)
    seen = {"start": 0, "step": 1, "scale": scale, **dict(rope_evidence(best, scale))}
    own = replace(best, start=float(prefix))
    expected = ExpectedTable.of_spec(spec, own.positions, scale)
    return verified(given, Candidate(expected, best.positions(0, given.rows + prefix), seen))


def _angles(columns: np.ndarray) -> tuple[PairAngles, float]:
    """The angle and phase of each column, and the common amplitude of the columns."""
    middle = columns[1:-1]
    power = np.maximum((middle**2).sum(axis=0), 1e-300)
    cosine = (middle * (columns[2:] + columns[:-2])).sum(axis=0) / (2 * power)
    angle = np.arccos(np.clip(cosine, -1, 1))
    rows = np.arange(len(columns))
    phase, size = np.zeros_like(angle), np.zeros_like(angle)
    for column, turn in enumerate(angle):
        waves = np.stack([np.sin(turn * rows), np.cos(turn * rows)], axis=1)
        first, second = np.linalg.lstsq(waves, columns[:, column], rcond=1e-9)[0]
        phase[column], size[column] = np.arctan2(second, first), np.hypot(first, second)
    # The angle is measured by its cosine, hence by its square, so a column that hardly rotates does not show it.
    spread = 2.0**-20 / np.maximum(angle, 2.0**-10) ** 2 / len(columns)
    fast = angle * len(columns) > 4
    scale = float(np.median(size[fast])) if fast.any() else float(np.median(size))
    spread = np.where(fast, spread, 10.0)
    return PairAngles(angle, phase, spread), scale


def _checked_single(given: GivenTable, found: Progression, layout: str, size: float, prefix: int) -> Match | None:
    if not found.rest < 0.01:
        return None
    shape = TableShape(given.width, layout, found.order, lone=False, zeros=0, pairs=given.width // 2)
    ways = described(found, covariance_of(found, given.rounding), shape, scale=size)
    if not ways:
        return None
    best = ways[0]
    if prefix and best.start != best.step:
        return None  # a row of zeros before the others is allowed only if it is the row of position 0
    spec = replace(best.spec, order=_WAVES[found.order], scale=plain(size, 1e-4 * size, (1.0,))[1])
    names = [name for name, known in alike(spec) if known.scale == spec.scale and not known.scaled]
    seen = {"start": best.start - prefix * best.step, "step": best.step, "scale": spec.scale}
    seen |= dict(rope_evidence(best, spec.scale))
    expected = ExpectedTable.of_spec(spec, best.positions, spec.scale)
    return verified(given, Candidate(expected, best.positions(-prefix, given.rows), seen, names))
