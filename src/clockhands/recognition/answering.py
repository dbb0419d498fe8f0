"""What a table is, checked on every row, with the words for it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.additive import Sinusoidal
from clockhands.errors import InvalidValue
from clockhands.grids import Grid
from clockhands.ladders import Geometric
from clockhands.recognition.describing import Description
from clockhands.recognition.equivalents import turned_round, with_equal_words
from clockhands.recognition.given import Given
from clockhands.recognition.grid_tables import identify_cells
from clockhands.recognition.matches import Equivalent, Match, Matches, Rows
from clockhands.recognition.mixed import identify_mixed
from clockhands.recognition.plain_numbers import UNKNOWN, plain
from clockhands.recognition.published import alike
from clockhands.recognition.single_waves import identify_single
from clockhands.recognition.tables import HEAD, Found, expected_of, sinusoids
from clockhands.recognition.verifying import Comparison, compared, computed_in, residual_of
from clockhands.specs import describe

# Rows that may differ from a table that is still called a sinusoid: one, or this share.
_FEW = 0.01
# What training may have moved, and what must be left of how a pair turns.
_HALF = 0.5
_TRAINED = 10.0  # times as large as it starts, or as small, a trained scale may have become


def identify_rows(given: Given) -> Matches:
    """The sinusoids that a table is."""
    found = _identified(given)
    return Matches([with_equal_words(match, given) for match in found], found.reason)


def _identified(given: Given) -> Matches:
    reasons = []
    prefix = _leading_zeros(given)
    if prefix:
        at = None if given.positions is None else given.positions[prefix:]
        given = replace(given, array=given.array[prefix:], positions=at)
    for found in sinusoids(given):
        match, reason = _checked(given, found, prefix)
        if match is not None:
            return Matches([match], reason)
        reasons.append(reason)
    if given.positions is None:
        for other in (identify_single, identify_cells, identify_mixed):
            match = other(given, prefix)
            if match:
                return match
            if other is identify_cells:
                reasons.append(match.reason)
    return Matches([], reasons[0] if reasons else "No pair of channels turns evenly from row to row.")


def _leading_zeros(given: Given) -> int:
    """Rows of zeros before the first other one, as far as a description is looked for."""
    filled = np.flatnonzero(np.asarray(given.array[:HEAD]).any(axis=1))
    return int(filled[0]) if filled.size else 0


def _checked(given: Given, found: Found, prefix: int) -> tuple[Match | None, str]:
    best = found.best
    scale = _scale(found, given.width)
    spec = best.spec
    name, spec, values = _named(spec, scale)
    offset = found.hands.offset
    if abs(offset) > 1e-6 * scale:
        spec, scale = _standardised(given, best)
        name, values = next((name for name, _ in alike(spec)), None) if spec else None, None
        if spec is None:
            return None, "Pairs keep a circle that does not stand in the middle, as no code that is known does."
    at = _positions(given, best)
    check = compared(given, expected_of(spec, at, values, scale, _places(given, best)))
    if check.bad:
        return None, f"Row {check.bad[0]} holds NaN or infinite numbers."
    if check.wrong and spec.standardised is None and not best.names:
        # Numbers of few digits that were taken for the meant ones may not be.
        own = found.measured()
        raw = replace(own.spec, scale=found.scale)
        again = compared(given, expected_of(raw, _positions(given, own), None, found.scale, _places(given, own)))
        if len(again.wrong) < len(check.wrong):
            best, name, spec, values, scale, check = own, None, raw, None, found.scale, again
    if check.wrong and spec.standardised is None and scale != found.scale:
        other = _named(best.spec, found.scale)
        again = compared(given, expected_of(other[1], at, other[2], found.scale, _places(given, best)))
        if 2 * len(again.wrong) < len(check.wrong):
            (name, spec, values), scale, check = other, found.scale, again
    wrong, rows = check.wrong, given.rows
    moved = len(wrong) > max(1, _FEW * rows)
    if moved and not _moved(check, found, rows):
        return None, f"Pairs turn like those of {describe(spec)}, but {len(wrong)} of {rows} rows are others."
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
        evidence=_evidence(given, found, best, check, scale),
    )
    return match, _reason(match, best, check)


def _moved(check: Comparison, found: Found, rows: int) -> bool:
    """Whether a table is one that was trained further from the code.

    Training moves every row a little: few rows are left as they were, the middle one has moved not much less than
    those that moved most, so have at least half of the channels, what has moved is less than half of the code, and the
    pairs that turn, of which there must be some, still do so. Where some rows are others altogether, most are as they
    were or nearly so.
    """
    assert check.uses is not None
    share = _share(check, found, rows)
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


def _share(check: Comparison, found: Found, rows: int) -> float:
    """Root mean square of the difference over that of the code: sine and cosine of a pair have a square of 1."""
    return math.sqrt(check.squares / (rows * len(found.hands.first))) / found.scale


def _scale(found: Found, width: int) -> float:
    """The scale that is meant, or the one that was measured.

    Rounding is no chance: cosines near 1 all become 1, which makes the scale larger by up to a seventh of the angles
    that rounding leaves, in tables of a few bits of few rows. A quarter is allowed: what `plain` takes 4 of is a
    sixteenth.
    """
    doubt = max(found.doubt, found.scale * found.rest / 16)
    digits, number = plain(found.scale, doubt, (1.0, math.sqrt(width), 1 / math.sqrt(width)))
    return number if digits < UNKNOWN and number > 0 else found.scale


def _positions(given: Given, best: Description) -> Callable[[int, int], Any]:
    own = given.positions
    return best.positions if own is None else lambda begin, end: own[begin:end]


def _places(given: Given, best: Description) -> Callable[[int, int], np.ndarray]:
    own = given.positions
    return best.places if own is None else lambda begin, end: own[begin:end]


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


def _standardised(given: Given, best: Description) -> tuple[Sinusoidal | None, float]:
    """The spec whose numbers have their mean taken away: over the rows of the table, as its code makes it."""
    if best.start != 0 or best.step != 1 or given.width % 2:
        return None, 1.0
    from clockhands.additive import table

    spec = replace(best.spec, standardised=given.rows)
    head = given.at(slice(0, 64))
    made = table(spec, len(head), "float64")
    scale = float((head * made).sum() / (made * made).sum())
    digits, number = plain(scale, abs(scale) * 2.0**-22)
    spec = replace(spec, scale=number if digits < UNKNOWN else scale)
    return spec, float(np.abs(made).max()) * scale


def _with_zeros(
    given: Given, best: Description, spec: Sinusoidal, zeros: list[int], prefix: int
) -> tuple[Sinusoidal, Any, Rows]:
    """The spec and the positions that give zeros where the table has them.

    Rows of zeros that stand at positions of their own are those of padding (fairseq). Others stand nowhere: before
    the first position, or, among other rows, at a position that no other row has.
    """
    rows, own = given.rows, given.positions
    if not zeros and not prefix:
        return spec, _positions(given, best)(0, rows), Rows()
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
    at = np.concatenate([np.zeros(prefix), np.asarray(_places(given, best)(0, rows), float)])
    taken = set(at[prefix:].tolist())
    nowhere = next(place for place in range(rows + 1) if place not in taken)
    at[[*lead, *among]] = nowhere
    return replace(spec, zero_rows=(nowhere,)), at, Rows(zeroed=among, prepended=prefix)


def _equivalents(given: Given, found: Found, best: Description, spec: Sinusoidal, positions: Any) -> tuple[Any, ...]:
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


def _evidence(
    given: Given, found: Found, best: Description, check: Comparison, scale: float
) -> tuple[tuple[str, Any], ...]:
    return (
        ("dtype", given.dtype),
        ("start", best.start),
        ("step", best.step),
        ("scale", scale),
        ("measured", list(best.free)),
        ("names", list(best.names)),
        ("angle_unexplained", found.rest),
        ("not_nearest", check.inexact / max(1, check.numbers)),
        ("wrong_rows", [row for row, *_ in check.wrong[:10]]),
    )


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
