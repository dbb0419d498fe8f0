"""Tables whose pairs hold one wave twice, sine and sine or cosine and cosine: Funnel's factorised attention.

A pair has no quadrature here, so a column stands for itself: ``x_(r+1) + x_(r-1) = 2 cos(angle) x_r`` tells how far it
turns from row to row, without a sign, and least squares its phase. The other wave is made from both, and the ladder
looked for as in any table.
"""

from dataclasses import replace

import numpy as np

from clockhands.recognition.describing import Doubts, Shape, described
from clockhands.recognition.given import Given
from clockhands.recognition.matches import Match, Matches, Rows
from clockhands.recognition.plain_numbers import UNKNOWN, plain
from clockhands.recognition.progressions import Progression, progressions
from clockhands.recognition.published import alike
from clockhands.recognition.tables import HEAD, covariance_of, expected_of
from clockhands.recognition.turning import Angles
from clockhands.recognition.verifying import compared, computed_in
from clockhands.specs import describe

_WAVES = {"sin-cos": "sin-sin", "cos-sin": "cos-cos"}


def identify_single(given: Given, prefix: int) -> Matches:
    """The table of one wave in both channels of each pair that this is."""
    none = Matches([], "No two columns hold the same wave.")
    if given.width % 2 or prefix > 1 or given.rows < 16:
        return none
    head, half = given.at(slice(0, min(HEAD, given.rows))), given.width // 2
    pairings = (("halves", head[:, :half], head[:, half:]), ("interleaved", head[:, ::2], head[:, 1::2]))
    twice = [(layout, columns) for layout, columns, again in pairings if np.array_equal(columns, again)]
    if not twice or not twice[0][1].any(axis=0).all():
        return none
    layout, columns = twice[0]
    angles, size = _angles(columns)
    trials = []
    for sign in (1, -1):
        # Whichever way it turns, the column is the imaginary part: the other wave is this or its opposite.
        phase = angles.phase if sign > 0 else np.pi - angles.phase
        trials += progressions(replace(angles, angle=sign * angles.angle, phase=phase), len(columns))
    for trial in sorted(trials, key=lambda trial: (-trial.sign, abs(trial.origin))):
        if trial.kind != "geometric":
            continue
        match = _checked(given, _refined(trial, columns / size), layout, size, prefix)
        if match is not None:
            words = f"Every row is that of {describe(match.spec)}, within {match.error:.2g}."
            what = "sines" if trial.order == "sin-cos" else "cosines"
            return Matches([match], f"{words} The {what} that a rotary code keeps for its positions look so too.")
    return Matches([], "Every column stands there twice, but they do not turn as one ladder.")


def _angles(columns: np.ndarray) -> tuple[Angles, float]:
    """How each column turns, and how large its wave is."""
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
    # A column that hardly turns does not tell its angle: the square of it is what is measured.
    spread = 2.0**-20 / np.maximum(angle, 2.0**-10) ** 2 / len(columns)
    fast = angle * len(columns) > 4
    scale = float(np.median(size[fast])) if fast.any() else float(np.median(size))
    spread = np.where(fast, spread, 10.0)
    return Angles(angle, phase, spread, np.ones_like(angle)), scale


def _refined(found: Progression, columns: np.ndarray) -> Progression:
    """The progression whose sines, or cosines, come closest to these columns of size 1."""
    rows = np.arange(float(len(columns)))
    index = np.arange(len(found.advances))
    rest, normal, spread = columns, np.eye(3), np.eye(3)
    for last in (*[False] * 8, True):
        phases = found.phases(rows) + (0 if found.order == "sin-cos" else np.pi / 2)
        rest = columns - np.sin(phases)
        reach = np.cos(phases)
        along = np.multiply.outer(found.origin + found.sign * rows, found.advances)
        parts = [along * reach, along * index * reach, np.broadcast_to(found.advances, rest.shape) * reach]
        stacked = np.stack([part.ravel() for part in parts], axis=1)
        if last:
            normal = stacked.T @ stacked
            spread = stacked.T @ (stacked * rest.reshape(-1, 1) ** 2)
            break
        change = np.linalg.lstsq(stacked, rest.ravel(), rcond=1e-12)[0]
        found = found.with_numbers(
            found.level + float(change[0]), found.slope + float(change[1]), found.origin + float(change[2])
        )
    return replace(found, rest=float(np.sqrt(np.mean(rest**2))), normal=normal, spread=spread)


def _checked(given: Given, found: Progression, layout: str, size: float, prefix: int) -> Match | None:
    if not found.rest < 0.01:
        return None
    shape = Shape(given.width, layout, found.order, lone=False, zeros=0, pairs=given.width // 2)
    ways = described(found, Doubts(covariance_of(found, given.rounding)), shape)
    if not ways:
        return None
    best = ways[0]
    if prefix and best.start != best.step:
        return None  # a row of zeros before these is that of position 0, or it is none of this
    digits, scale = plain(size, 1e-4 * size, (1.0,))
    spec = replace(best.spec, order=_WAVES[found.order], scale=scale if digits < UNKNOWN else size)
    check = compared(given, expected_of(spec, best.positions, None, spec.scale, best.places))
    if check.wrong or check.zeros or check.bad:
        return None
    names = [name for name, known in alike(spec) if known.scale == spec.scale and not known.scaled]
    return Match(
        spec,
        best.positions(-prefix, given.rows),
        error=check.error,
        name=names[0] if names else None,
        equivalents=tuple(names[1:]),
        computed_in=computed_in(check, given),
        rows=Rows(),
        evidence=(
            ("dtype", given.dtype),
            ("start", best.start - prefix * best.step),
            ("step", best.step),
            ("scale", spec.scale),
            ("not_nearest", check.inexact / max(1, check.numbers)),
        ),
    )
