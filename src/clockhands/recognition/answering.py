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
from clockhands.presets import presets
from clockhands.recognition.describing import Description
from clockhands.recognition.given import Given
from clockhands.recognition.matches import Match, Matches, Residual, Rows
from clockhands.recognition.plain_numbers import UNKNOWN, plain
from clockhands.recognition.tables import HEAD, Found, expected_of, sinusoids
from clockhands.recognition.verifying import Comparison, compared
from clockhands.specs import describe

# Rows that may differ from a table that is still called a sinusoid: one, or this share.
_FEW = 0.01
# Of the presets that are one and the same code, the one that most readers know.
_KNOWN = ("vaswani2017", "tensor2tensor", "marian", "dit", "musicgen")
# What training may have moved, and what must be left of how a pair turns.
_HALF = 0.5


def identify_rows(given: Given) -> Matches:
    """The sinusoids of one axis that a table is."""
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
    return Matches([], reasons[0] if reasons else "No pair of channels turns evenly from row to row.")


def _leading_zeros(given: Given) -> int:
    """Rows of zeros before the first other one, as far as a description is looked for."""
    filled = np.flatnonzero(np.asarray(given.array[:HEAD]).any(axis=1))
    return int(filled[0]) if filled.size else 0


def _checked(given: Given, found: Found, prefix: int) -> tuple[Match | None, str]:
    best = found.best
    digits, number = plain(found.scale, found.doubt, (1.0, math.sqrt(given.width), 1 / math.sqrt(given.width)))
    scale = number if digits < UNKNOWN else found.scale
    spec = best.spec
    name, spec, values = _named(spec, scale)
    offset = found.hands.offset
    if abs(offset) > 1e-6 * scale:
        spec, scale = _standardised(given, best)
        name, values = _name_of(spec), None
        if spec is None:
            return None, "Pairs keep a circle that does not stand in the middle, as no code that is known does."
    at = _positions(given, best)
    check = compared(given, expected_of(spec, at, values, scale, _places(given, best)), 2.0**-24)
    if check.bad:
        return None, f"Row {check.bad[0]} holds NaN or infinite numbers."
    wrong, rows = check.wrong, given.rows
    moved = len(wrong) > max(1, _FEW * rows)
    if moved and not _moved(check, found, rows):
        return None, f"Pairs turn like those of {describe(spec)}, but {len(wrong)} of {rows} rows are others."
    spec, positions, kept = _with_zeros(given, best, spec, check.zeros, prefix)
    if (padded := _zero_name(spec)) is not None:
        name, spec = padded.name, replace(padded.spec, width=spec.width)
    residual = _residual(check, given, found, prefix) if wrong else None
    total = max([check.error, *(size for _, size in wrong)])
    match = Match(
        spec,
        positions,
        values,
        error=total,
        confidence=1 - (residual.share if moved and residual else len(wrong) / rows),
        name=name,
        equivalents=_equivalents(found, best, spec, name),
        computed_in=_computed_in(check, given),
        rows=kept,
        residual=residual,
        evidence=_evidence(given, found, best, check, scale),
    )
    return match, _reason(match, best, check)


def _moved(check: Comparison, found: Found, rows: int) -> bool:
    """Whether a table is one that was trained further from the code.

    Training moves every row a little: few rows are left as they were, what has moved is less than half of the code,
    and the pairs that turn, of which there must be some, still do so.
    """
    share = _share(check, found, rows)
    turning = found.progression.advances[: len(found.told)] * rows > 2 * math.pi
    return bool(
        share <= _HALF
        and len(check.wrong) >= 0.9 * (rows - len(check.zeros))
        and turning.sum() >= 3
        and np.mean(found.told[turning] > _HALF) >= 0.9
    )


def _share(check: Comparison, found: Found, rows: int) -> float:
    """Root mean square of the difference over that of the code: sine and cosine of a pair have a square of 1."""
    return math.sqrt(check.squares / (rows * len(found.hands.first))) / found.scale


def _positions(given: Given, best: Description) -> Callable[[int, int], Any]:
    own = given.positions
    return best.positions if own is None else lambda begin, end: own[begin:end]


def _places(given: Given, best: Description) -> Callable[[int, int], np.ndarray]:
    own = given.positions
    return best.places if own is None else lambda begin, end: own[begin:end]


def _named(spec: Sinusoidal, scale: float) -> tuple[str | None, Sinusoidal, Any]:
    """The preset that a description is, the spec with its scale, and the scale where it is a trained number."""
    alike = [known for known in _alike(spec) if known.spec.scaled == (scale != 1)]
    if alike:
        own = replace(alike[0].spec, width=spec.width, zero_rows=(), first=0)
        return alike[0].name, own, scale if scale != 1 else None
    return None, (replace(spec, scale=scale) if scale != 1 else spec), None


def _alike(spec: Sinusoidal) -> list[Any]:
    """Presets with this ladder, order, layout and rule for odd widths, those without further rules first."""
    out = []
    for known in presets():
        own = known.spec
        if type(own) is not Sinusoidal or own.spacing != spec.spacing:
            continue
        if (own.layout, own.order, own.standardised) != (spec.layout, spec.order, spec.standardised):
            continue
        if spec.width % 2 and own.odd != spec.odd:
            continue
        out.append(known)
    return sorted(out, key=lambda known: (bool(known.spec.zero_rows), _rank(known.name), known.name))


def _rank(name: str) -> int:
    return _KNOWN.index(name) if name in _KNOWN else len(_KNOWN)


def _name_of(spec: Sinusoidal | None) -> str | None:
    if spec is None:
        return None
    names = [known.name for known in _alike(spec) if known.spec.scale == spec.scale]
    return names[0] if names else None


def _zero_name(spec: Sinusoidal) -> Any:
    """The preset whose padding is where this table has zeros, or None."""
    for known in _alike(spec) if spec.zero_rows else ():
        if (known.spec.zero_rows, known.spec.scaled, known.spec.scale) == (spec.zero_rows, spec.scaled, spec.scale):
            return known
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


def _residual(check: Comparison, given: Given, found: Found, prefix: int) -> Residual:
    worst = sorted(check.wrong, key=lambda one: -one[1])
    squares = check.squares
    assert check.channels is not None
    channels = np.argsort(-check.channels, kind="stable")[:10]
    return Residual(
        largest=worst[0][1],
        root_mean_square=math.sqrt(squares / max(1, given.rows * given.width)),
        share=_share(check, found, given.rows),
        rows=tuple(prefix + row for row, _ in worst[:10]),
        channels=tuple(int(channel) for channel in channels),
    )


def _computed_in(check: Comparison, given: Given) -> str | None:
    """The arithmetic that the numbers were made in, where it can be seen.

    Numbers made in double precision and rounded once are the nearest of their dtype, but for those that the measured
    description misses by little. Phases in float32 leave a good part of the numbers others than the nearest.
    """
    share = check.inexact / max(1, check.numbers)
    if check.excess > 1:
        return "float32"
    if given.dtype == "float64":
        return "float64" if check.error < 2.0**-40 else "float32"
    if given.dtype == "float32":
        return "float64" if share < 0.02 else "float32" if share > 0.1 else None
    return None


def _equivalents(found: Found, best: Description, spec: Sinusoidal, name: str | None) -> tuple[Any, ...]:
    """Other words for the same numbers: presets by name, and specs with another base for another span."""
    spacing = best.spec.spacing
    out: list[Any] = [
        known.name
        for known in _alike(best.spec)
        if known.name != name and known.spec.scaled == spec.scaled and known.spec.scale == spec.scale
    ]
    for other in found.others:
        theirs = other.spec.spacing
        if other.spec == best.spec or not isinstance(spacing, Geometric) or not isinstance(theirs, Geometric):
            continue
        if abs(other.step / best.step - 1) > 0.01:  # rates of another size, in other steps
            out.append(f"{describe(other.spec)}, multiplier {theirs.multiplier:g}, step {other.step:g}")
            continue
        dens = [float(one.spec.spacing.denominator(one.channels)) for one in (best, other)]  # type: ignore[union-attr]
        try:
            base = spacing.base ** (dens[1] / dens[0])
            same = replace(other.spec, spacing=Geometric(base, theirs.span, spacing.multiplier))
        except (InvalidValue, OverflowError):
            continue
        same = replace(same, scale=spec.scale, scaled=spec.scaled)
        if same not in out:
            out.append(same)
    return tuple(out)


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
        ("wrong_rows", [row for row, _ in check.wrong[:10]]),
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
        rows = ", ".join(str(row) for row, _ in check.wrong[:5])
        words = f"All rows but {len(check.wrong)} (row {rows}) are those of {describe(match.spec)}"
    return f"{words}, from position {best.start:g} in steps of {best.step:g}, within {check.error:.2g}."
