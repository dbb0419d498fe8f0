"""Recognition of a sinusoidal table of one axis.

If both channels of a pair have the same wave (Funnel's factorised attention), each column is measured alone:
``x_(r+1) + x_(r-1) = 2 cos(angle) x_r`` gives its angle from row to row, without a sign, and least squares gives its
phase. The ladder is then found from angles and phases as in other tables.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Explicit, Geometric
from clockhands.encodings.rotary import Rotary
from clockhands.encodings.specs import describe, to_dict
from clockhands.encodings.written_numbers import plain
from clockhands.errors import InvalidValue
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Matches, Rows
from clockhands.recognition._preset_names import alike, named_equivalent, rope_presets, turned_round
from clockhands.recognition.tables._describing import (
    Description,
    TableShape,
    described,
    polished,
    rates_of,
    scaled_fits_of,
)
from clockhands.recognition.tables._progressions import (
    PairAngles,
    PairReading,
    Progression,
    angles_at,
    angles_of,
    covariance_of,
    progressions,
    readings,
    refined,
    turned,
)
from clockhands.recognition.tables._verifying import (
    Comparison,
    ExpectedTable,
    compared,
    exact_match,
    in_words,
    match_of,
    residual_of,
)

HEAD = 256  # rows at the start in which candidates are searched
_TRIED = 4  # the most candidates that are fitted to the whole table
_WAVES = {"sin-cos": "sin-sin", "cos-sin": "cos-cos"}
# The share of rows that may differ in a table that still counts as a sinusoidal one; one row always may.
_FEW = 0.01
# Limits for a table that is near a code; see `_moved`.
_HALF = 0.5
_CLOSE = 0.02  # rad: a rate of its own for each pair says something only if all pairs then fit closely
_PARTS = 16  # the parts of a rotation in which another shape of the waves is looked for
_TRAINED = 10.0  # the largest factor by which training may have changed a scale, up or down


@dataclass(frozen=True, eq=False)
class SinusoidFit:
    """A sinusoidal code fitted to a table, not yet checked on every row.

    Attributes:
        best: The shortest description.
        others: Other descriptions of the same numbers.
        scale: The factor on the code.
        doubt: Standard deviation of the scale.
        hands: The pairs of channels.
        progression: The measured parameters of the ladder.
        rest: Root mean square of the residual angles in the sampled rows, in radians.
        told: For each pair with both channels, the correlation with the fitted rotation: 1 exactly, 0 not at all.
        measured: Returns the description with all numbers as measured, not rounded to few digits.
    """

    best: Description
    others: tuple[Description, ...]
    scale: float
    doubt: float
    hands: PairReading
    progression: Progression
    rest: float
    told: np.ndarray
    measured: Callable[[], Description]


def head_of(given: GivenTable) -> tuple[np.ndarray, np.ndarray]:
    """The first 256 rows in float64, and which of them are not all zeros, bool [rows]."""
    head = given.at(slice(0, min(HEAD, given.rows)))
    return head, np.asarray(head.any(axis=1))


def sinusoids(given: GivenTable) -> Iterator[SinusoidFit]:
    """Sinusoidal codes that may be this table of one axis, likeliest first; the caller checks them on every row."""
    head, filled = head_of(given)
    if filled.sum() < 3 or not np.ptp(head[filled], axis=0).any():
        return
    places = np.arange(len(head)) if given.positions is None else given.positions[: len(head)]
    trials = []
    for hands in readings(head[filled]):
        even = filled.copy()
        even[filled] = _of_one_size(hands.turns)
        turns = np.zeros((len(head), hands.turns.shape[1]), complex)
        turns[even] = hands.turns[even[filled]]
        found = _trials(turns, hands, places, even, known=given.positions is not None)
        trials.extend((trial, hands) for trial in found)
    if not trials:
        return
    least = min(trial.rest for trial, _ in trials)
    trials.sort(key=lambda one: _likely(one[0], least))
    for trial, hands in trials[:_TRIED]:
        found = _followed(given, trial, hands)
        if found is not None:
            yield found


def _of_one_size(turns: np.ndarray) -> np.ndarray:
    """Rows that are used to measure angles, bool [rows]: not those with pair sizes much further from 1 than usual."""
    off = np.median(np.abs(np.abs(turns) - 1), axis=1)
    keep = off <= 10 * np.median(off) + 1e-6
    return keep if keep.mean() >= 0.9 else np.ones(len(keep), bool)


def _likely(trial: Progression, least: float) -> tuple[bool, float, float, float]:
    """The sort key of trials: of equally good fits, the slowest comes first, then the one nearest to position 0."""
    return trial.rest > 2 * least + 1e-14, round(float(trial.advances.max()), 3), abs(trial.origin), trial.rest


def _trials(
    turns: np.ndarray, hands: PairReading, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    noise = max(hands.noise, 2.0**-52)
    angles = angles_at(turns[filled], noise, places[filled]) if known else angles_of(turns, noise)
    out = _fitted(angles, turns, noise, places, filled, known=known)
    if not known and noise < 0.1 and not any(trial.kind == "geometric" for trial in out):
        # In low precision, a slow pair is rounded to few different numbers, so its errors are equal in many rows and
        # do not average out: the angle may have an error of a whole rounding step over all rows.
        loose = replace(angles, spread=np.maximum(angles.spread, 2 * noise / len(turns)))
        out += _fitted(loose, turns, noise, places, filled, known=known)
    return out


def _fitted(
    angles: PairAngles, turns: np.ndarray, noise: float, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    out = []
    least = np.inf
    for trial in progressions(angles, len(turns), known=known):
        # First a short fit on about 32 rows, because most trials are wrong by far.
        some = np.flatnonzero(filled)[:: max(1, len(turns) // 32)]
        rough = refined(trial, turns[some], places[some], rounds=2)
        if rough.rest > max(0.5, 4 * noise) or rough.rest > 20 * least + 1e-12:
            continue
        fine = refined(trial, turns[filled], places[filled])
        least = min(least, fine.rest)
        out.append(fine)
    return out


def _followed(given: GivenTable, trial: Progression, hands: PairReading) -> SinusoidFit | None:
    """A trial fitted to at most 256 rows from ever larger parts of the table, with its descriptions; or None."""
    whole = slice(0, hands.whole)
    first, second = hands.first[whole], hands.second[whole]
    reach = min(HEAD, given.rows)
    while True:
        rows = np.unique(np.linspace(0, reach - 1, min(HEAD, reach)).astype(np.int64))
        numbers = given.at(rows)
        filled = numbers.any(axis=1) & np.isfinite(numbers).all(axis=1)
        rows, numbers = rows[filled], numbers[filled]
        turns = ((numbers[:, second] - hands.offset) + 1j * (numbers[:, first] - hands.offset)) / hands.size
        places = rows.astype(float) if given.positions is None else given.positions[rows]
        trial = refined(trial, turns, places)
        if not np.isfinite(trial.rest) or trial.rest > 1:
            return None
        if reach >= given.rows:
            break
        reach = min(given.rows, 4 * reach)
    if trial.kind == "explicit" and trial.rest > _CLOSE:
        return None
    values = turned(turns, trial.order)
    along = np.real(values * np.exp(-1j * trial.phases(places)))
    size = float(np.median(along.mean(axis=1))) if len(along) > 8 else float(along.mean())
    if not 0.5 < size < 2:  # pairs that do not rotate as fitted have no scale
        return None
    doubt = max(given.rounding, 2.0**-24 if trial.rest > 2.0**-30 else 0) / math.sqrt(along.size) + trial.rest**2 / 2
    scale = hands.size * size
    shape = TableShape(
        given.width,
        hands.layout,
        trial.order,
        lone=bool((hands.second < 0).any()),
        zeros=given.width - int(max(hands.first.max(), hands.second.max())) - 1,
        pairs=len(hands.first),
    )
    if shape.lone and trial.kind == "explicit":
        return None
    full = trial
    if shape.lone:
        lone = (numbers[:, hands.first[-1]] - hands.offset) / hands.size
        full = _with_lone(trial, turns, lone, places)
    doubts = covariance_of(full, given.rounding)
    ways = described(full, doubts, shape, known=given.positions is not None, scale=scale)
    if not ways:
        return None
    best = ways[0]
    if given.rounding < 2.0**-40 and best.free and trial.rest < 1e-9 and trial.kind == "geometric":
        ways = polished(ways, values, places, known=given.positions is not None)
        best = ways[0]
    told = along.mean(axis=0) / np.sqrt((np.abs(values) ** 2).mean(axis=0))

    def measured() -> Description:
        return described(full, np.zeros((3, 3)), shape, known=given.positions is not None)[0]

    return SinusoidFit(best, tuple(ways[1:]), scale, scale * doubt, hands, trial, trial.rest, told, measured)


def _with_lone(trial: Progression, turns: np.ndarray, lone: np.ndarray, places: np.ndarray) -> Progression:
    """The trial fitted also to the last pair, whose missing second channel is computed from the trial itself."""
    full = replace(trial, advances=np.append(trial.advances, 0.0))
    full = full.with_numbers(trial.level, trial.slope, trial.origin)
    for _ in range(2):
        phase = full.phases(places)[:, -1]
        second = np.cos(phase) if trial.order == "sin-cos" else np.sin(phase)
        full = refined(full, np.column_stack([turns, second + 1j * lone]), places, rounds=1)
    return full


def identify_single(given: GivenTable, prefix: int) -> Matches:
    """The match of a table with the same wave in both channels of each pair; ``prefix`` rows of zeros precede it."""
    none = Matches([], "No two columns are sine and cosine of one frequency.")
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
        # The column is the imaginary part of a pair, whose direction of rotation is unknown: both signs are tried.
        phase = angles.phase if sign > 0 else np.pi - angles.phase
        trials += progressions(replace(angles, angle=sign * angles.angle, phase=phase), len(columns))
    for trial in sorted(trials, key=lambda trial: (-trial.sign, abs(trial.origin))):
        if trial.kind != "geometric":
            continue
        match = _checked_single(given, _refined_single(trial, columns / size), layout, size, prefix)
        if match is not None:
            return _single(match, trial.order)
    for order in ("sin-cos", "cos-sin"):
        match = _scaled_single(given, angles.angle, layout, order, prefix)
        if match is not None:
            return _single(match, order)
    return Matches([], "Every column occurs twice, but they do not follow one series of frequencies.")


def _single(match: Match, order: str) -> Matches:
    what = "sines" if order == "sin-cos" else "cosines"
    words = in_words(match, error=match.error)
    return Matches(
        [match], f"{words} The {what} that RoPE stores for its positions look the same.{_rope_in_words(match)}"
    )


def _scaled_single(given: GivenTable, angle: np.ndarray, layout: str, order: str, prefix: int) -> Match | None:
    """The match of sines or cosines from position 0 on by a ladder with a RoPE scaling.

    A slow cosine hardly changes within the rows that are read, so the ladder is fitted to the fast columns, from the
    first on; every number of all columns is compared with it.
    """
    wave, change = (np.cos, lambda phase: -np.sin(phase)) if order == "cos-sin" else (np.sin, np.cos)
    pick = slice(0, given.width // 2) if layout == "halves" else slice(None, None, 2)
    scale, reach, power = 1.0, min(HEAD, given.rows), np.ones_like(angle)
    angle = np.maximum(angle, 1e-4)
    first = float(np.median(given.at(slice(0, 1))[0, pick]))  # the row of position 0, if it is not left out as zeros
    while True:  # least squares over ever more rows, in which a smaller error of a rate shows
        rows = np.unique(np.linspace(0, reach - 1, min(HEAD, reach)).astype(np.int64))
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
        if reach == given.rows:
            break
        reach = min(given.rows, 4 * reach)
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
    seen = {"start": 0, "step": 1, "scale": scale, **dict(_rope(best, scale))}
    own = replace(best, start=float(prefix))
    expected = ExpectedTable.of_spec(spec, own.positions, scale)
    return exact_match(given, expected, best.positions(0, given.rows + prefix), [], seen)


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


def _refined_single(found: Progression, columns: np.ndarray) -> Progression:
    """The progression whose sines, or cosines, fit these columns [rows, columns] of amplitude 1 by least squares."""
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
    seen |= dict(_rope(best, spec.scale))
    expected = ExpectedTable.of_spec(spec, best.positions, spec.scale)
    return exact_match(given, expected, best.positions(-prefix, given.rows), names, seen)


def checked(given: GivenTable, found: SinusoidFit, prefix: int) -> tuple[Match | None, str]:
    """The match of a sinusoidal code if all rows but a few agree or all are near it, else None; and a reason."""
    best = found.best
    scale = _scale(found, given.width)
    spec = best.spec
    name, spec, values = _named(spec, scale)
    offset = found.hands.offset
    if abs(offset) > 1e-6 * scale:
        spec, scale = _standardised(given, best)
        name, values = next((name for name, _ in alike(spec)), None) if spec else None, None
        if spec is None:
            return None, "Pairs lie on a circle that is not centred at 0, as in no known encoding."
    check = _beside(given, best, spec, values, scale)
    if check.bad:
        return None, f"Row {check.bad[0]} holds NaN or infinite numbers."
    if check.wrong and spec.standardised is None and not best.names:
        # Rounding the parameters to few digits may have been wrong: the measured ones are tried.
        own = found.measured()
        raw = replace(own.spec, scale=found.scale)
        again = _beside(given, own, raw, None, found.scale)
        if len(again.wrong) < len(check.wrong):
            best, name, spec, values, scale, check = own, None, raw, None, found.scale, again
    if check.wrong and spec.standardised is None and scale != found.scale:
        other = _named(best.spec, found.scale)
        again = _beside(given, best, other[1], other[2], found.scale)
        if 2 * len(again.wrong) < len(check.wrong):
            (name, spec, values), scale, check = other, found.scale, again
    wrong, rows = check.wrong, given.rows
    moved = len(wrong) > max(1, _FEW * rows)
    if moved and not _moved(check, found, rows):
        return (
            None,
            f"The frequencies are those of {describe(best.spec)}, but {len(wrong)} of {rows} rows are different.",
        )
    if moved and _of_another_shape(given, found, best):
        return (
            None,
            f"The frequencies are those of {describe(best.spec)}, but the waves are not sines: another wave repeats.",
        )
    spec, positions, kept = _with_zeros(given, best, spec, check.zeros, prefix)
    if (padded := _padded(spec)) is not None:
        name, spec = padded
    residual = residual_of(check, given, found.scale, prefix, len(found.hands.first)) if wrong else None
    match = match_of(
        check,
        given,
        spec,
        positions,
        {
            "start": best.start,
            "step": best.step,
            "scale": scale,
            "measured": list(best.free),
            "names": list(best.names),
            "angle_unexplained": found.rest,
        },
        names=[] if name is None else [name],
        values=values,
        rows=kept,
        residual=residual,
        confidence=1 - (residual.share if moved and residual else len(wrong) / rows),
        moved=moved,
    )
    match = replace(
        match,
        equivalents=_equivalents(given, found, best, spec, positions),
        evidence=(*match.evidence, ("wrong_rows", check.wrong_rows), *_rope(best, spec.scale)),
    )
    where = f", from position {best.start:g} in steps of {best.step:g}"
    return match, f"{in_words(match, where, check.wrong_rows, check.error)}{_rope_in_words(match)}"


def _rope(best: Description, scale: float) -> tuple[tuple[str, Any], ...]:
    """The RoPE whose cosines and sines a table is, and the presets with its frequencies, as evidence."""
    spec = best.spec
    fit = best.rope
    spacing, scaling = (spec.spacing, None) if fit is None else (fit.spacing, fit.scaling)
    if spec.width % 2 or (best.start, best.step) != (0, 1):
        return ()
    rope = Rotary(head_width=spec.width, layout="halves", spacing=spacing, scaling=scaling)
    names = rope_presets(rope)
    found: list[tuple[str, Any]] = []
    if fit is not None:
        meant = to_dict(rope)
        found.append(("rope", {"spacing": meant["spacing"], "scaling": meant["scaling"]}))
        found.append(("rope_in_words", ", ".join(describe(rope).split(", ")[3:])))
        explained = abs(rope.attention_factor / scale - 1) < 2.0**-20
        found.append(("scale_is_attention_factor", bool(explained and scale != 1)))
    return (*found, ("rope_presets", list(names)))


def _rope_in_words(match: Match) -> str:
    seen = dict(match.evidence)
    if "rope" not in seen:
        return ""
    factor = ", whose attention factor is the factor on the rows" if seen["scale_is_attention_factor"] else ""
    named = f", as in {', '.join(seen['rope_presets'])}" if seen["rope_presets"] else ""
    return f" These are cosines and sines of RoPE: {seen['rope_in_words']}{factor}{named}."


def _moved(check: Comparison, found: SinusoidFit, rows: int) -> bool:
    """Whether every row of a table is the code's and a small difference, such as noise or further training.

    Required are a geometric ladder; a difference of at most half of the code (root
    mean square); at least 90 % of the rows moved, with a median of at least half of the 95th percentile; at least half
    of the channels moved; and at least 3 pairs that complete a full rotation, 90 % of them with a correlation above 0.5
    with the fitted rotation. If instead some rows were replaced, most rows are unchanged or nearly so.
    """
    # Root mean square of the difference over that of the code: the squares of a pair's sine and cosine sum to 1.
    share = math.sqrt(check.squares / (rows * len(found.hands.first))) / found.scale
    moves = np.array([size for _, _, size in check.wrong])
    turning = found.progression.advances[: len(found.told)] * rows > 2 * math.pi
    if found.progression.kind != "geometric" or share > _HALF or turning.sum() < 3:
        return False
    return bool(
        len(check.wrong) >= 0.9 * (rows - len(check.zeros))
        and np.median(moves) >= _HALF * np.quantile(moves, 0.95)
        and np.mean(check.uses > 0) >= _HALF
        and np.mean(found.told[turning] > _HALF) >= 0.9
    )


def _of_another_shape(given: GivenTable, found: SinusoidFit, best: Description) -> bool:
    """Whether the difference from the code repeats with each pair's phase: triangles, clipped sines, powers of sines.

    The mean difference within each of 16 parts of a rotation, by pair and channel, explains a part of the squared
    difference: all of it for another wave, one of ``rows / 16`` for noise and about that for training.
    """
    rows = np.arange(min(HEAD, given.rows))
    hands, whole = found.hands, slice(0, found.hands.whole)
    places = best.places(0, len(rows)) if given.positions is None else given.positions[: len(rows)]
    phases = np.multiply.outer(places, np.array(best.spec.ladder.rates)[whole])
    turning = np.abs(phases[-1] - phases[0]) > 4 * math.pi
    if len(rows) < 4 * _PARTS or not turning.any():
        return False
    numbers = given.at(rows)
    part = np.floor(phases[:, turning] / (2 * math.pi) * _PARTS).astype(np.int64) % _PARTS
    square = explained = 0.0
    for channels, wave in ((hands.first[whole], 0), (hands.second[whole], 1)):
        sine = wave == (0 if found.progression.order == "sin-cos" else 1)
        made = np.sin(phases[:, turning]) if sine else np.cos(phases[:, turning])
        rest = numbers[:, channels[turning]] - hands.offset - found.scale * made
        for number in range(_PARTS):
            inside = part == number
            count = np.maximum(inside.sum(axis=0), 1)
            explained += float(((rest * inside).sum(axis=0) ** 2 / count).sum())
        square += float((rest**2).sum())
    return explained > _HALF * square


def _scale(found: SinusoidFit, width: int) -> float:
    """The round number that the measured scale may be, or the measured scale.

    Rounding errors are not random: all cosines near 1 become 1. In low-precision tables with few rows, this increases
    the scale by up to a seventh of the root mean square of the residual angles. A quarter is allowed; the standard
    deviation is a sixteenth, because `plain` allows 4 standard deviations.
    """
    doubt = max(found.doubt, found.scale * found.rest / 16)
    return plain(found.scale, doubt, (1.0, math.sqrt(width), 1 / math.sqrt(width)))[1] or found.scale


def _beside(given: GivenTable, best: Description, spec: Sinusoidal, values: Any, scale: float) -> Comparison:
    """The comparison of the table with a spec, at the caller's positions if given, else at those of the description."""
    own = given.positions
    at = best.positions if own is None else lambda begin, end: own[begin:end]
    return compared(given, ExpectedTable.of_spec(spec, at, scale, values=values))


def _named(spec: Sinusoidal, scale: float) -> tuple[str | None, Sinusoidal, Any]:
    """The name of the preset or None, the spec with its scale, and the scale as learned value or None.

    A learned scale may be at most 10 times larger or smaller than its initial value (1 or ``width ** -0.5``). Other
    scales are not from training: the table was multiplied by a constant.
    """
    near = min(abs(math.log(scale)), abs(math.log(scale * math.sqrt(spec.width)))) <= math.log(_TRAINED)
    for name, known in alike(spec):
        if known.scaled == (scale != 1) and known.scale == 1 and (near or not known.scaled):
            return name, replace(known, width=spec.width, zero_rows=(), first=0), scale if scale != 1 else None
    return None, (replace(spec, scale=scale) if scale != 1 else spec), None


def _padded(spec: Sinusoidal) -> tuple[str, Sinusoidal] | None:
    """Name and spec of the preset with the same zero rows as this spec, or None."""
    for name, known in alike(spec) if spec.zero_rows else ():
        if (known.zero_rows, known.scaled, known.scale) == (spec.zero_rows, spec.scaled, spec.scale):
            return name, replace(known, width=spec.width)
    return None


def _standardised(given: GivenTable, best: Description) -> tuple[Sinusoidal | None, float]:
    """The spec of a standardised table (mean over its rows removed) or None, and its largest number."""
    if best.start != 0 or best.step != 1 or given.width % 2:
        return None, 1.0
    spec = replace(best.spec, standardised=given.rows)
    head = given.at(slice(0, 64))
    made = table(spec, len(head), "float64")
    scale = float((head * made).sum() / (made * made).sum())
    spec = replace(spec, scale=plain(scale, abs(scale) * 2.0**-22)[1])
    return spec, float(np.abs(made).max()) * scale


def _with_zeros(
    given: GivenTable, best: Description, spec: Sinusoidal, zeros: list[int], prefix: int
) -> tuple[Sinusoidal, Any, Rows]:
    """The spec and the positions that give zeros in the same rows as the table, and these rows.

    If rows of zeros have positions in the series that are not negative, they are padding rows (fairseq). Otherwise they
    have no position: they come before the first one or, between other rows, get a position that no other row has.
    """
    rows, own = given.rows, given.positions
    if not zeros and not prefix:
        return spec, best.positions(0, rows) if own is None else own, Rows()
    lead = tuple(range(prefix))
    among = tuple(prefix + row for row in zeros)
    if own is None and best.whole:
        start, step = int(best.start), int(best.step)
        places = [start + step * row for row in (*range(-prefix, 0), *zeros)]
        if min(places) >= 0:
            at = range(start - prefix * step, start + step * rows, step)
            return replace(spec, zero_rows=tuple(places)), at, Rows(zeroed=(*lead, *among))
        if not zeros:
            return spec, Grid(rows, start=start, step=step, prefix=prefix), Rows(prepended=prefix)
    if not zeros and own is None and given.rounding > 2.0**-40:
        return spec, Grid(rows, start=best.start, step=best.step, prefix=prefix), Rows(prepended=prefix)
    at = np.concatenate([np.zeros(prefix), np.asarray(best.places(0, rows) if own is None else own, float)])
    taken = set(at[prefix:].tolist())
    nowhere = next(place for place in range(rows + 1) if place not in taken)
    at[[*lead, *among]] = nowhere
    return replace(spec, zero_rows=(nowhere,)), at, Rows(zeroed=among, prepended=prefix)


def _equivalents(
    given: GivenTable, found: SinusoidFit, best: Description, spec: Sinusoidal, positions: Any
) -> tuple[Any, ...]:
    """Equivalent descriptions: names of presets, specs with another base and span, specs with other positions."""
    spacing = best.spec.spacing
    out: list[Any] = [
        other for other, known in alike(best.spec) if (known.scaled, known.scale) == (spec.scaled, spec.scale)
    ]
    for other in found.others:
        theirs = other.spec.spacing
        if other.spec == best.spec or not isinstance(spacing, Geometric) or not isinstance(theirs, Geometric):
            continue
        if abs(other.step / best.step - 1) > 0.01:  # rates that differ by a factor, with other steps
            there = replace(other.spec, scale=spec.scale, scaled=spec.scaled)
            if given.positions is None and not spec.zero_rows and not getattr(positions, "prefix", 0):
                out.append(named_equivalent(there, other.positions(0, given.rows)))
            continue
        dens = [float(one.spec.spacing.denominator(one.channels)) for one in (best, other)]  # type: ignore[union-attr]
        try:
            base = spacing.base ** (dens[1] / dens[0])
            same = replace(other.spec, spacing=Geometric(base, theirs.span, spacing.multiplier))
        except (InvalidValue, OverflowError):
            continue
        same = replace(
            same, scale=spec.scale, scaled=spec.scaled, zero_rows=spec.zero_rows, standardised=spec.standardised
        )
        if same not in out:
            out.append(same)
    other = turned_round(spec, positions) if best.step < 0 else None
    return tuple(out if other is None else [*out, other])
