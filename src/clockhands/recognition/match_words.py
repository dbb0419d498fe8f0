"""What was recognised in words: the encoding, the positions of its rows, the error and the confidence."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from clockhands.encodings.grids import Grid
from clockhands.encodings.specs import SPECS, describe
from clockhands.phrases import listed, number_of, spoken
from clockhands.recognition._matches import Match, Residual, Rows

_OTHERS = 4  # the most other names that are shown


def title_of(match: Match) -> str:
    """The name, if it has one, and the code as text."""
    return f"{match.name}: {describe(match.spec)}" if match.name else describe(match.spec)


def rows_of(match: Match) -> Iterator[tuple[str, str]]:
    """The lines of one match: name and value."""
    if match.positions is not None:
        yield "positions", positions_in_words(match.positions)
    if match.rows != Rows():
        yield "zero rows", zeros_in_words(match.rows)
    values = None if match.values is None else np.asarray(match.values)
    if values is not None and values.size == 1:
        yield "scale", f"{float(values.reshape(())):.9g}, which is passed as values="
    elif values is not None:
        yield "values", f"{' x '.join(map(spoken, values.shape))} numbers, which are passed as values="
    yield "error", f"{match.error:.2g} at most"
    rounded = dict(match.evidence).get("rounded")
    if match.residual is not None:
        yield "off", residual_in_words(match.residual)
    if match.computed_in is not None:
        how = f"{match.computed_in}, rounding its {listed(rounded)}" if rounded else f"{match.computed_in} arithmetic"
        kept = dict(match.evidence).get("dtype", match.computed_in)
        yield "made in", how if rounded or kept == match.computed_in else f"{how}, then rounded to {kept}"
    yield "sure", f"{match.confidence:.3g} of 1: {confidence_in_words(match)}"
    if match.positions is None:
        yield from measured_in_words(match)
    rope = dict(match.evidence).get("rope_presets")
    if rope and match.name is None:
        yield "RoPE", f"the frequencies of {listed(rope)}"
    others = [describe(other) if isinstance(other, SPECS) else str(other) for other in match.equivalents]
    for number, other in enumerate(others[:_OTHERS]):
        more = f", and {len(others) - _OTHERS} more" if number == _OTHERS - 1 and len(others) > _OTHERS else ""
        yield "also" if number == 0 else "", f"{other}{more}"


def confidence_in_words(match: Match) -> str:
    """What the confidence of this match means.

    >>> confidence_in_words(Match(None, confidence=1.0)), confidence_in_words(Match(None, confidence=0.5))
    ('every row is made by it', 'the share of the rows that it makes')
    """
    if not match.computed:
        return "similarity of neighbouring rows" if match.positions is not None else "every row is kept"
    if match.residual is not None and abs(1 - match.residual.share - match.confidence) < 1e-9:
        return "1 less the share by which it differs"
    return "every row is made by it" if match.confidence == 1 else "the share of the rows that it makes"


def measured_in_words(match: Match) -> Iterator[tuple[str, str]]:
    """Measurements of a function that say more than the spec."""
    seen = dict(match.evidence)
    for name, what in (("positions_in", "positions"), ("rates_in", "rates"), ("phases_in", "phases")):
        if seen.get(name):
            held = f"rounded to {seen[name]}" if what == "positions" else f"in {seen[name]}"
            yield what, "not rounded" if seen[name] == "exact" else held
    if seen.get("attention_factor", 1) != 1:
        yield "attention", f"factor {seen['attention_factor']:.9g} on cos and sin"
    if seen.get("first_wrong_position") is not None:
        yield "wrong from", f"position {spoken(seen['first_wrong_position'])} on, by more than 0.01"
    if seen.get("calls"):
        yield "asked", f"{spoken(seen['calls'])} times, for {spoken(seen['rows'])} rows in all"


def positions_in_words(positions: Any) -> str:
    """The positions of rows, as text.

    >>> positions_in_words(range(5)), positions_in_words(range(8, 0, -2)), positions_in_words([0.5, 7])
    ('0 to 4', '8, 6, ..., 2', '0.5, 7')
    """
    if isinstance(positions, Grid):
        return grid_in_words(positions)
    if isinstance(positions, range) and positions.step == 1 and len(positions) > 2:
        return f"{spoken(positions[0])} to {spoken(positions[-1])}"
    each = positions if isinstance(positions, range) else np.asarray(positions)
    if isinstance(each, np.ndarray) and each.ndim != 1:
        return f"{each.shape[0]} rows of {each.shape[-1]} coordinates" if each.ndim else f"0 to {int(each) - 1}"
    if len(each) <= 3:
        return ", ".join(map(_number, each))
    return f"{_number(each[0])}, {_number(each[1])}, ..., {_number(each[-1])}"


def grid_in_words(grid: Grid) -> str:
    """A grid, as text: its cells, their positions, and the axis that changes slowest.

    >>> grid_in_words(Grid((2, 3), start=0.5, prefix=1))
    'a grid of 2 x 3; each axis from 0.5 in steps of 1; axis 0 changes slowest; 1 row of zeros before it'
    """
    words = [f"a grid of {' x '.join(map(spoken, grid.sizes))}"]
    if len(set(zip(grid.start, grid.step, strict=True))) == 1:
        of = "each axis" if grid.axes > 1 else "the axis"
        words.append(f"{of} from {_number(grid.start[0])} in steps of {_number(grid.step[0])}")
    else:
        each = zip(range(grid.axes), grid.start, grid.step, strict=True)
        words += [f"axis {axis} from {_number(start)} in steps of {_number(step)}" for axis, start, step in each]
    if grid.axes > 1:
        words.append(f"axis {grid.order[0]} changes slowest")
    if grid.prefix:
        words.append(f"{number_of(grid.prefix, 'row')} of zeros before it")
    return "; ".join(words)


def zeros_in_words(rows: Rows) -> str:
    """Rows of zeros, as text.

    >>> zeros_in_words(Rows(zeroed=(1,), prepended=0)), zeros_in_words(Rows(prepended=2))
    ('row 1', '2 before the first position')
    """
    words = [f"{rows.prepended} before the first position"] if rows.prepended else []
    if rows.zeroed:
        listed = ", ".join(map(str, rows.zeroed[:8])) + (", ..." if len(rows.zeroed) > 8 else "")
        words.append(f"row{'s' if len(rows.zeroed) > 1 else ''} {listed}")
    return ", and ".join(words)


def residual_in_words(residual: Residual) -> str:
    """How much a table differs from the code, and where most."""
    rows = ", ".join(map(str, residual.rows[:3]))
    return (
        f"by {residual.largest:.2g} at most, {residual.share:.2g} of the code in root mean square; furthest in row"
        f"{'s' if len(residual.rows) > 1 else ''} {rows}"
    )


def _number(value: Any) -> str:
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else f"{float(value):.9g}"
    return spoken(int(value)) if float(value).is_integer() else f"{float(value):.9g}"
