"""Recognition of a sinusoidal table of one axis."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.grids import Grid
from clockhands.encodings.ladders import Geometric
from clockhands.encodings.specs import describe
from clockhands.encodings.written_numbers import plain
from clockhands.errors import InvalidValue
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Rows
from clockhands.recognition._preset_names import alike, mirrored, named_equivalent
from clockhands.recognition.tables._describing import (
    Description,
    TableShape,
    described,
    polished,
    rope_evidence,
    rope_in_words,
)
from clockhands.recognition.tables._pair_angles import PairReading, angles_at, angles_of, readings
from clockhands.recognition.tables._progressions import (
    HEAD,
    Progression,
    complex_waves,
    covariance_of,
    fitted,
    growing_parts,
    likely,
    refined,
    without_second,
)
from clockhands.recognition.tables._verifying import Candidate, Comparison, ExpectedTable, compared, in_words, match_of

_TRIED = 4  # the most candidates that are fitted to the whole table
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
        told: For each pair with both channels, the correlation with the fitted rotation: 1 exactly, 0 not at all.
        measured: Returns the description with all numbers as measured, not rounded to few digits.
    """

    best: Description
    others: tuple[Description, ...]
    scale: float
    doubt: float
    hands: PairReading
    progression: Progression
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
    trials.sort(key=lambda one: likely(one[0], least))
    for trial, hands in trials[:_TRIED]:
        found = _followed(given, trial, hands)
        if found is not None:
            yield found


def _of_one_size(turns: np.ndarray) -> np.ndarray:
    """Rows that are used to measure angles, bool [rows]: not those with pair sizes much further from 1 than usual."""
    off = np.median(np.abs(np.abs(turns) - 1), axis=1)
    keep = off <= 10 * np.median(off) + 1e-6
    return keep if keep.mean() >= 0.9 else np.ones(len(keep), bool)


def _trials(
    turns: np.ndarray, hands: PairReading, places: np.ndarray, filled: np.ndarray, *, known: bool
) -> list[Progression]:
    noise = max(hands.noise, 2.0**-52)
    angles = angles_at(turns[filled], noise, places[filled]) if known else angles_of(turns, noise)
    out = fitted(angles, turns, noise, places, filled, known=known)
    if not known and noise < 0.1 and not any(trial.kind == "geometric" for trial in out):
        # In low precision, a slow pair is rounded to few different numbers, so its errors are equal in many rows and
        # do not average out: the angle may have an error of a whole rounding step over all rows.
        loose = replace(angles, spread=np.maximum(angles.spread, 2 * noise / len(turns)))
        out += fitted(loose, turns, noise, places, filled)
    return out


def _followed(given: GivenTable, trial: Progression, hands: PairReading) -> SinusoidFit | None:
    """A trial fitted to at most 256 rows from ever larger parts of the table, with its descriptions; or None."""
    whole = slice(0, hands.whole)
    first, second = hands.first[whole], hands.second[whole]
    numbers, turns, places = np.zeros((0, given.width)), hands.turns, np.zeros(0)
    for rows in growing_parts(given.rows):
        numbers = given.at(rows)
        filled = numbers.any(axis=1) & np.isfinite(numbers).all(axis=1)
        numbers, places = numbers[filled], rows[filled].astype(float)
        if given.positions is not None:
            places = given.positions[rows[filled]]
        turns = ((numbers[:, second] - hands.offset) + 1j * (numbers[:, first] - hands.offset)) / hands.size
        trial = refined(trial, turns, places)
        if not np.isfinite(trial.rest) or trial.rest > 1:
            return None
    if trial.kind == "explicit" and trial.rest > _CLOSE:
        return None
    values = complex_waves(turns, trial.order)
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
        lone = without_second((numbers[:, hands.first[-1:]] - hands.offset) / hands.size)
        full = replace(trial, advances=np.append(trial.advances, 0.0))
        full = full.with_numbers(*trial.numbers)
        full = refined(full, np.concatenate([turns, lone], axis=1), places)
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

    return SinusoidFit(best, tuple(ways[1:]), scale, scale * doubt, hands, trial, told, measured)


def _candidates(given: GivenTable, found: SinusoidFit) -> Iterator[tuple[Description, Candidate]]:
    """The codes that the fit may be: with round numbers, as measured, and with the measured scale only."""
    best, scale, own = found.best, _scale(found, given.width), given.positions

    def candidate(way: Description, spec: Sinusoidal, name: str | None, scale: float, values: Any) -> Candidate:
        at = way.positions if own is None else lambda begin, end: own[begin:end]  # type: ignore[index]
        seen = {
            "start": way.start,
            "step": way.step,
            "scale": scale,
            "measured": list(way.free),
            "names": list(way.names),
            "angle_unexplained": found.progression.rest,
        }
        expected = ExpectedTable.of_spec(spec, at, scale, values=values)
        return Candidate(expected, at(0, given.rows), seen, [name] if name else [], may_differ=True)

    if abs(found.hands.offset) > 1e-6 * scale:
        spec, largest = _standardised(given, best)
        if spec is not None:
            yield best, candidate(best, spec, next((name for name, _ in alike(spec)), None), largest, None)
        return
    yield best, candidate(best, *_named(best.spec, scale))
    if not best.names:  # rounding the parameters to few digits may have been wrong
        own_numbers = found.measured()
        yield own_numbers, candidate(own_numbers, *_named(own_numbers.spec, found.scale))
    if scale != found.scale:
        yield best, candidate(best, *_named(best.spec, found.scale))


def checked(given: GivenTable, found: SinusoidFit, prefix: int) -> tuple[Match | None, str]:
    """The match of a sinusoidal code if all rows but a few agree or all are near it, else None; and a reason."""
    kept: tuple[Comparison, Description, Candidate] | None = None
    for way, candidate in _candidates(given, found):
        check = compared(given, candidate.expected)
        if check.bad:
            return None, f"Row {check.bad[0]} holds NaN or infinite numbers."
        # A scale that is not round must explain at least half of the rows that differ.
        gain = 2 if way is found.best else 1
        if kept is None or gain * len(check.wrong) < len(kept[0].wrong):
            kept = check, way, candidate
        if not kept[0].wrong:
            break
    if kept is None:
        return None, "Pairs lie on a circle that is not centred at 0, as in no known encoding."
    check, best, candidate = kept
    like = f"The frequencies are those of {describe(best.spec)}, but"
    if check.differs(given) and not _moved(check, found, given):
        return None, f"{like} {len(check.wrong)} of {given.rows} rows are different."
    if check.differs(given) and _of_another_shape(given, found, best):
        return None, f"{like} the waves are not sines: another wave repeats."
    match = match_of(check, given, replace(candidate, prefix=prefix), found.scale, len(found.hands.first))
    spec, positions, rows = _with_zeros(given, best, cast(Sinusoidal, match.spec), check.zeros, prefix)
    name, spec = _padded(spec) or (match.name, spec)
    match = replace(
        match,
        spec=spec,
        positions=positions,
        name=name,
        rows=rows,
        equivalents=_equivalents(given, found, best, spec, positions),
        evidence=(*match.evidence, *rope_evidence(best, spec.scale)),
    )
    where = f", from position {best.start:g} in steps of {best.step:g}"
    return match, f"{in_words(match, where, check.wrong_rows, check.error)}{rope_in_words(match)}"


def _moved(check: Comparison, found: SinusoidFit, given: GivenTable) -> bool:
    """Whether every row of a table is the code's and a small difference, such as noise or further training.

    Required are a geometric ladder; a difference of at most half of the code; at least half of the channels moved; and
    at least 3 pairs that complete a full rotation, 90 % of them with a correlation above 0.5 with the fitted rotation.
    """
    turning = found.progression.advances[: len(found.told)] * given.rows > 2 * math.pi
    return bool(
        found.progression.kind == "geometric"
        and turning.sum() >= 3
        and check.moved(given, found.scale, len(found.hands.first), _HALF)
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
    doubt = max(found.doubt, found.scale * found.progression.rest / 16)
    return plain(found.scale, doubt, (1.0, math.sqrt(width), 1 / math.sqrt(width)))[1] or found.scale


def _named(spec: Sinusoidal, scale: float) -> tuple[Sinusoidal, str | None, float, Any]:
    """The spec with its scale, the name of its preset or None, the scale, and the scale as learned value or None.

    A learned scale may be at most 10 times larger or smaller than its initial value (1 or ``width ** -0.5``). Other
    scales are not from training: the table was multiplied by a constant.
    """
    near = min(abs(math.log(scale)), abs(math.log(scale * math.sqrt(spec.width)))) <= math.log(_TRAINED)
    for name, known in alike(spec):
        if known.scaled == (scale != 1) and known.scale == 1 and (near or not known.scaled):
            own = replace(known, width=spec.width, zero_rows=(), first=0)
            return own, name, scale, scale if scale != 1 else None
    return (replace(spec, scale=scale) if scale != 1 else spec), None, scale, None


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
    other = mirrored(spec, positions) if best.step < 0 else None
    return tuple(out if other is None else [*out, other])
