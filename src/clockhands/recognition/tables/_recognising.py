"""Recognition of a table's code: one method after another is tried until one succeeds."""

from dataclasses import replace

import numpy as np

from clockhands.encodings.additive import FourierFeatures
from clockhands.encodings.dtypes import UNIT_ROUNDOFF
from clockhands.encodings.ladders import Explicit
from clockhands.encodings.positions import positions_of
from clockhands.encodings.specs import describe
from clockhands.recognition._given import GivenTable
from clockhands.recognition._matches import Match, Matches
from clockhands.recognition._preset_names import with_equal_words
from clockhands.recognition.tables._fourier_tables import identify_mixed
from clockhands.recognition.tables._grid_tables import identify_cells
from clockhands.recognition.tables._low_precision import identify_low_precision
from clockhands.recognition.tables._published_rows import identify_published
from clockhands.recognition.tables._single_waves import identify_single
from clockhands.recognition.tables._sinusoids import checked, sinusoids
from clockhands.recognition.tables._unknown_rows import unknown_rows

LEAST_ROWS = 4
HEAD = 256  # rows at the start that are checked: they must be finite and not all equal
TURNED = 1 << 20  # the largest table, in numbers, that is also tried transposed and negated

_STEP = 2  # rows that show one


def identify_array(rows: np.ndarray, dtype: str, positions: np.ndarray | None) -> Matches:
    """The matches of a table [rows, width]; ``dtype`` is its original one, ``positions`` [rows] may be None."""
    why = _why_not(rows, dtype)
    if why is not None:
        return Matches([], why)
    given = GivenTable(rows, dtype, positions)
    found = identify_rows(given)
    if positions is not None and (not found or found[0].residual is not None):
        found = _elsewhere(given, positions) or found
    if positions is None and (not found or found[0].residual is not None or _of_free_rates(found[0])):
        # Rounding to 8 or 11 bits looks like noise on the code; repeating the rounding tells them apart.
        found = identify_low_precision(rows) or found
    return found or _unknown(given, found.reason)


def _of_free_rates(match: Match) -> bool:
    """Whether the frequencies are on no ladder, as those that were rounded are not."""
    if isinstance(match.spec, FourierFeatures):
        return match.spec.axes == 1
    spacing = getattr(match.spec, "spacing", None)
    return isinstance(spacing, Explicit) and match.name is None and "rope" not in dict(match.evidence)


def _unknown(given: GivenTable, reason: str) -> Matches:
    """The result for a table of no known code: no match, the reason and what was measured."""
    found = unknown_rows(given, reason)
    waves = "columns_that_turn" in dict(found.evidence)
    return Matches([], f"{found.reason}{_if_transposed(given, waves=waves)}", found.evidence)


def _if_transposed(given: GivenTable, *, waves: bool) -> str:
    """A sentence if the transposed or negated table is a known code; else an empty string."""
    if given.rows * given.width > TURNED:
        return ""
    others = [(given.array.T, "Its columns are the rows")]
    if waves:
        others.append((-given.array, "With the other sign it is that"))
    for array, words in others:
        if len(array) < LEAST_ROWS or not array[:HEAD].any():
            continue
        found = identify_rows(replace(given, array=array, positions=None))
        if found and found[0].residual is None:
            return f" {words} of {describe(found[0].spec)}."
    return ""


def _elsewhere(given: GivenTable, positions: np.ndarray) -> Matches | None:
    """The matches of a table at other positions than those given, if every row agrees; else None."""
    found = identify_rows(replace(given, positions=None))
    if not found or found[0].residual is not None:
        return None
    true = positions_of(found[0].positions).as_float64()
    off = positions - true if true.shape == positions.shape else np.zeros(0)
    words = "Its rows are not at the positions given."
    if off.size and (np.abs(off - off[0]) <= 1e-6 * (1 + abs(off[0]))).all():
        words = f"The positions given are {abs(off[0]):.9g} too {'high' if off[0] > 0 else 'low'}."
    return Matches(found, f"{words} {found.reason}")


def _why_not(rows: np.ndarray, dtype: str) -> str | None:
    """Why an array cannot be a table of a code, as far as its type, shape and first rows show; else None."""
    if rows.dtype.kind in "biu":
        return f"These are numbers of {dtype}: a code of sines and cosines has fractions."
    if rows.dtype.kind == "c":
        return "These are complex numbers: a table of positions is real."
    if dtype not in UNIT_ROUNDOFF:
        return f"Numbers of {dtype} have too few digits to tell one table from another: give those it was made of."
    if rows.ndim != 2:
        flat = f", reshaped to {[rows.size // rows.shape[-1], rows.shape[-1]]}" if rows.ndim > 2 and rows.size else ""
        return f"A table is [rows, width], and this is an array of shape {list(rows.shape)}: give it row by row{flat}."
    if not rows.size:
        return f"There is nothing in an array of shape {list(rows.shape)}."
    if len(rows) < LEAST_ROWS:
        return f"{len(rows)} rows are too few to measure frequencies: pass at least {LEAST_ROWS}."
    head = rows[:HEAD].astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(head).all(axis=1))
    if bad.size:
        return f"Row {bad[0]} holds NaN or infinite numbers."
    if not 1e-100 < (largest := np.abs(head).max()) < 1e100:
        return f"Its largest number is {largest:.3g}, which is none of a table's."
    if (head == head[0]).all():
        return f"All rows are the same, as far as row {min(HEAD, len(rows)) - 1}."
    return None


def identify_rows(given: GivenTable) -> Matches:
    """The matches of a table [rows, width] with codes of sines and cosines; at most one."""
    found = _identified(given)
    return Matches([with_equal_words(match, given) for match in found], found.reason)


def _identified(given: GivenTable) -> Matches:
    reasons = []
    prefix = _leading_zeros(given)
    if prefix:
        at = None if given.positions is None else given.positions[prefix:]
        given = replace(given, array=given.array[prefix:], positions=at)
    if given.rows < _STEP:
        return Matches([], f"Behind {prefix} rows of zeros is one row, which shows no step from row to row.")
    for found in sinusoids(given):
        match, reason = checked(given, found, prefix)
        if match is not None:
            return Matches([match], reason)
        reasons.append(reason)
    if given.positions is None:
        for other in (identify_single, identify_cells, identify_published, identify_mixed):
            match = other(given, prefix)
            if match:
                return match
            if match is not None:
                reasons.append(match.reason)
    return Matches([], reasons[0] if reasons else "No dimension pair has a constant frequency from row to row.")


def _leading_zeros(given: GivenTable) -> int:
    """The number of rows of zeros at the start, as far as the first 256 rows show."""
    filled = np.flatnonzero(np.asarray(given.array[:HEAD]).any(axis=1))
    return int(filled[0]) if filled.size else 0
