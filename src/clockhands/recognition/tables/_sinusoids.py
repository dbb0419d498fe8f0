"""Recognition of a sinusoidal table of one axis.

Where both channels of a pair hold one wave (Funnel's factorised attention), a column stands for itself:
``x_(r+1) + x_(r-1) = 2 cos(angle) x_r`` tells how far it turns from row to row, without a sign, and least squares its
phase. The other wave is made from both, and the ladder looked for as in any table.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clockhands.additive import Sinusoidal, table
from clockhands.errors import InvalidValue
from clockhands.grids import Grid
from clockhands.ladders import Geometric
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Equivalent, Match, Matches, Rows
from clockhands.recognition._preset_names import alike, turned_round
from clockhands.recognition.tables._describing import Description, TableShape, described, polished
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
    computed_in,
    exact_match,
    residual_of,
)
from clockhands.specs import describe
from clockhands.written_numbers import UNKNOWN, plain

HEAD = 256  # rows that a description is looked for in
_TRIED = 4  # readings of the head that are followed to the end
_WAVES = {"sin-cos": "sin-sin", "cos-sin": "cos-cos"}
# Rows that may differ from a table that is still called a sinusoid: one, or this share.
_FEW = 0.01
# What training may have moved, and what must be left of how a pair turns.
_HALF = 0.5
_TRAINED = 10.0  # times as large as it starts, or as small, a trained scale may have become


@dataclass(frozen=True, eq=False)
class SinusoidFit:
    """A sinusoid that a table may be.

    Attributes:
        best: Its description.
        others: Further descriptions of the same numbers.
        scale: What the code is multiplied by.
        doubt: One standard deviation of the scale.
        hands: How its channels are paired.
        progression: The measured numbers.
        rest: Root mean square of the angles that are not explained in the rows looked at.
        told: For each whole pair how steadily it turns as described, 1 for exactly and 0 for not at all.
        measured: Makes the description in which every number is as it was measured.
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
    """The first rows in float64, and which of them hold anything but zeros."""
    head = given.at(slice(0, min(HEAD, given.rows)))
    return head, np.asarray(head.any(axis=1))


def sinusoids(given: GivenTable) -> Iterator[SinusoidFit]:
    """The sinusoids that a table of one axis may be, likeliest first; each is still to be checked on every row."""
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
    """Which rows are fit to look for turns in: a row whose pairs differ far more in size than others' is another."""
    off = np.median(np.abs(np.abs(turns) - 1), axis=1)
    keep = off <= 10 * np.median(off) + 1e-6
    return keep if keep.mean() >= 0.9 else np.ones(len(keep), bool)


def _likely(trial: Progression, least: float) -> tuple[bool, float, float, float]:
    """What trials are sorted by: of those that fit as well, the slowest, and the one nearest to position 0."""
    return trial.rest > 2 * least + 1e-14, round(float(trial.advances.max()), 3), abs(trial.origin), trial.rest


def _trials(
    turns: np.ndarray, hands: PairReading, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    noise = max(hands.noise, 2.0**-52)
    angles = angles_at(turns[filled], noise, places[filled]) if known else angles_of(turns, noise)
    out = _fitted(angles, turns, noise, places, filled, known=known)
    if not known and noise < 0.1 and not any(trial.kind == "geometric" for trial in out):
        # What rounding to a few steps does to a slow pair is the same in many rows: off by a whole step in all.
        loose = replace(angles, spread=np.maximum(angles.spread, 2 * noise / len(turns)))
        out += _fitted(loose, turns, noise, places, filled, known=known)
    return out


def _fitted(
    angles: PairAngles, turns: np.ndarray, noise: float, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    out = []
    least = np.inf
    for trial in progressions(angles, len(turns), known=known):
        # First on few rows and once: most readings are far off.
        some = np.flatnonzero(filled)[:: max(1, len(turns) // 32)]
        rough = refined(trial, turns[some], places[some], rounds=2)
        if rough.rest > max(0.5, 4 * noise) or rough.rest > 20 * least + 1e-12:
            continue
        fine = refined(trial, turns[filled], places[filled])
        least = min(least, fine.rest)
        out.append(fine)
    return out


def _followed(given: GivenTable, trial: Progression, hands: PairReading) -> SinusoidFit | None:
    """A trial fitted to rows from ever larger parts of the table, and described."""
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
    values = turned(turns, trial.order)
    along = np.real(values * np.exp(-1j * trial.phases(places)))
    size = float(np.median(along.mean(axis=1))) if len(along) > 8 else float(along.mean())
    if not 0.5 < size < 2:  # what does not turn as described has no scale
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
    ways = described(full, doubts, shape, known=given.positions is not None)
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
    """A trial fitted to a last hand without its second channel too, which is made up from what is known of it."""
    full = replace(trial, advances=np.append(trial.advances, 0.0))
    full = full.with_numbers(trial.level, trial.slope, trial.origin)
    for _ in range(2):
        phase = full.phases(places)[:, -1]
        second = np.cos(phase) if trial.order == "sin-cos" else np.sin(phase)
        full = refined(full, np.column_stack([turns, second + 1j * lone]), places, rounds=1)
    return full


def _expected(
    spec: Any, positions: Callable[[int, int], Any], values: Any, scale: float, places: Callable[[int, int], Any]
) -> ExpectedTable:
    """What a sinusoid of one axis says of every number, with the rates of its channels."""
    own = np.array(spec.ladder.rates)
    pairs = len(own)
    width = min(spec.width, 2 * pairs)
    index = np.arange(width)
    rates = np.zeros((1, spec.width))
    rates[0, :width] = own[
        index // 2 if spec.layout == "interleaved" else np.where(index < pairs, index, index - pairs)
    ]

    def at(rows: np.ndarray) -> np.ndarray:
        first = int(rows[0])
        return places(first, int(rows[-1]) + 1)[rows - first, None]

    return ExpectedTable(spec, positions, values, scale, rates, at)


def identify_single(given: GivenTable, prefix: int) -> Matches:
    """The table of one wave in both channels of each pair that this is."""
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
        # Whichever way it turns, the column is the imaginary part: the other wave is this or its opposite.
        phase = angles.phase if sign > 0 else np.pi - angles.phase
        trials += progressions(replace(angles, angle=sign * angles.angle, phase=phase), len(columns))
    for trial in sorted(trials, key=lambda trial: (-trial.sign, abs(trial.origin))):
        if trial.kind != "geometric":
            continue
        match = _checked_single(given, _refined_single(trial, columns / size), layout, size, prefix)
        if match is not None:
            words = f"Every row is that of {describe(match.spec)}, within {match.error:.2g}."
            what = "sines" if trial.order == "sin-cos" else "cosines"
            return Matches([match], f"{words} The {what} that RoPE stores for its positions look the same.")
    return Matches([], "Every column occurs twice, but they do not follow one series of frequencies.")


def _angles(columns: np.ndarray) -> tuple[PairAngles, float]:
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
    return PairAngles(angle, phase, spread, np.ones_like(angle)), scale


def _refined_single(found: Progression, columns: np.ndarray) -> Progression:
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


def _checked_single(given: GivenTable, found: Progression, layout: str, size: float, prefix: int) -> Match | None:
    if not found.rest < 0.01:
        return None
    shape = TableShape(given.width, layout, found.order, lone=False, zeros=0, pairs=given.width // 2)
    ways = described(found, covariance_of(found, given.rounding), shape)
    if not ways:
        return None
    best = ways[0]
    if prefix and best.start != best.step:
        return None  # a row of zeros before these is that of position 0, or it is none of this
    digits, scale = plain(size, 1e-4 * size, (1.0,))
    spec = replace(best.spec, order=_WAVES[found.order], scale=scale if digits < UNKNOWN else size)
    names = [name for name, known in alike(spec) if known.scale == spec.scale and not known.scaled]
    seen = {"start": best.start - prefix * best.step, "step": best.step, "scale": spec.scale}
    expected = _expected(spec, best.positions, None, spec.scale, best.places)
    return exact_match(given, expected, best.positions(-prefix, given.rows), names, seen)


def checked(given: GivenTable, found: SinusoidFit, prefix: int) -> tuple[Match | None, str]:
    """The match of a sinusoid if it makes every row but a few, and the reason in words."""
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
        # Numbers of few digits that were taken for the meant ones may not be.
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
        return None, f"The frequencies are those of {describe(spec)}, but {len(wrong)} of {rows} rows are different."
    spec, positions, kept = _with_zeros(given, best, spec, check.zeros, prefix)
    if (padded := _padded(spec)) is not None:
        name, spec = padded
    residual = residual_of(check, given, found.scale, prefix, len(found.hands.first)) if wrong else None
    total = max([check.error, *(size for _, size, _ in wrong)])
    match = Match(
        spec,
        positions,
        values,
        error=total,
        confidence=1 - (residual.share if moved and residual else len(wrong) / rows),
        name=name,
        equivalents=_equivalents(given, found, best, spec, positions),
        computed_in=None if moved else computed_in(check, given),
        rows=kept,
        residual=residual,
        evidence=(
            ("dtype", given.dtype),
            ("start", best.start),
            ("step", best.step),
            ("scale", scale),
            ("measured", list(best.free)),
            ("names", list(best.names)),
            ("angle_unexplained", found.rest),
            ("not_nearest", check.inexact / max(1, check.numbers)),
            ("wrong_rows", [row for row, *_ in check.wrong[:10]]),
        ),
    )
    return match, _reason(match, best, check)


def _moved(check: Comparison, found: SinusoidFit, rows: int) -> bool:
    """Whether a table is one that was trained further from the code.

    Training moves every row a little: few rows are left as they were, the middle one has moved not much less than
    those that moved most, so have at least half of the channels, what has moved is less than half of the code, and the
    pairs that turn, of which there must be some, still do so. Where some rows are others altogether, most are as they
    were or nearly so.
    """
    assert check.uses is not None
    # Root mean square of the difference over that of the code: sine and cosine of a pair have a square of 1.
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


def _scale(found: SinusoidFit, width: int) -> float:
    """The scale that is meant, or the one that was measured.

    Rounding is no chance: cosines near 1 all become 1, which makes the scale larger by up to a seventh of the angles
    that rounding leaves, in tables of a few bits of few rows. A quarter is allowed: what `plain` takes 4 of is a
    sixteenth.
    """
    doubt = max(found.doubt, found.scale * found.rest / 16)
    digits, number = plain(found.scale, doubt, (1.0, math.sqrt(width), 1 / math.sqrt(width)))
    return number if digits < UNKNOWN and number > 0 else found.scale


def _beside(given: GivenTable, best: Description, spec: Sinusoidal, values: Any, scale: float) -> Comparison:
    """The table beside a spec, where the description or the caller says that rows stand."""
    own = given.positions
    if own is None:
        return compared(given, _expected(spec, best.positions, values, scale, best.places))

    def at(begin: int, end: int) -> np.ndarray:
        return own[begin:end]

    return compared(given, _expected(spec, at, values, scale, at))


def _named(spec: Sinusoidal, scale: float) -> tuple[str | None, Sinusoidal, Any]:
    """The preset that a description is, the spec with its scale, and the scale where it is a trained number.

    A trained scale is one that training may have reached: at most 10 times as large, or as small, as it starts
    (1 or ``width ** -0.5``). A table that is larger or smaller was multiplied by somebody.
    """
    near = min(abs(math.log(scale)), abs(math.log(scale * math.sqrt(spec.width)))) <= math.log(_TRAINED)
    for name, known in alike(spec):
        if known.scaled == (scale != 1) and known.scale == 1 and (near or not known.scaled):
            return name, replace(known, width=spec.width, zero_rows=(), first=0), scale if scale != 1 else None
    return None, (replace(spec, scale=scale) if scale != 1 else spec), None


def _padded(spec: Sinusoidal) -> tuple[str, Sinusoidal] | None:
    """The preset whose padding is where this table has zeros."""
    for name, known in alike(spec) if spec.zero_rows else ():
        if (known.zero_rows, known.scaled, known.scale) == (spec.zero_rows, spec.scaled, spec.scale):
            return name, replace(known, width=spec.width)
    return None


def _standardised(given: GivenTable, best: Description) -> tuple[Sinusoidal | None, float]:
    """The spec whose numbers have their mean taken away: over the rows of the table, as its code makes it."""
    if best.start != 0 or best.step != 1 or given.width % 2:
        return None, 1.0
    spec = replace(best.spec, standardised=given.rows)
    head = given.at(slice(0, 64))
    made = table(spec, len(head), "float64")
    scale = float((head * made).sum() / (made * made).sum())
    digits, number = plain(scale, abs(scale) * 2.0**-22)
    spec = replace(spec, scale=number if digits < UNKNOWN else scale)
    return spec, float(np.abs(made).max()) * scale


def _with_zeros(
    given: GivenTable, best: Description, spec: Sinusoidal, zeros: list[int], prefix: int
) -> tuple[Sinusoidal, Any, Rows]:
    """The spec and the positions that give zeros where the table has them.

    Rows of zeros that stand at positions of their own are those of padding (fairseq). Others stand nowhere: before
    the first position, or, among other rows, at a position that no other row has.
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
    """Other words for the same numbers: presets by name, and specs with another base for another span."""
    spacing = best.spec.spacing
    out: list[Any] = [
        other for other, known in alike(best.spec) if (known.scaled, known.scale) == (spec.scaled, spec.scale)
    ]
    for other in found.others:
        theirs = other.spec.spacing
        if other.spec == best.spec or not isinstance(spacing, Geometric) or not isinstance(theirs, Geometric):
            continue
        if abs(other.step / best.step - 1) > 0.01:  # rates of another size, in other steps
            there = replace(other.spec, scale=spec.scale, scaled=spec.scaled)
            if given.positions is None and not spec.zero_rows and not getattr(positions, "prefix", 0):
                out.append(Equivalent(there, other.positions(0, given.rows)))
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


def _reason(match: Match, best: Description, check: Comparison) -> str:
    residual = match.residual
    if residual is not None and len(check.wrong) > 5:
        return (
            f"A table trained further from {describe(match.spec)}, from position {best.start:g} in steps of "
            f"{best.step:g}: it has moved by {residual.share:.2g} of its size, {residual.largest:.2g} at most."
        )
    words = f"Every row is that of {describe(match.spec)}"
    if check.wrong:
        rows = ", ".join(str(row) for row, *_ in check.wrong[:5])
        words = f"All rows but {len(check.wrong)} (row {rows}) are those of {describe(match.spec)}"
    return f"{words}, from position {best.start:g} in steps of {best.step:g}, within {check.error:.2g}."
