"""`identify`: what made these numbers."""

from typing import Any

import numpy as np

from clockhands.errors import InvalidType, InvalidValue
from clockhands.recognition.given import ROUNDING, Given, given_of
from clockhands.recognition.matches import Matches

LEAST_ROWS = 4
HEAD = 256  # rows in which something must differ


def identify(given: Any, *, positions: Any = None, **options: Any) -> Matches:
    """What makes these numbers."""
    if callable(given) and not hasattr(given, "dtype"):
        from clockhands.recognition.functions import identify_function

        return identify_function(given, **options)
    if options:
        name = next(iter(options))
        raise InvalidType(f"`{name}` is for functions, and an array was given.", f"Leave `{name}` out.")
    rows, dtype = given_of(given)
    return identify_array(rows, dtype, positions)


def identify_array(rows: np.ndarray, dtype: str, positions: Any = None) -> Matches:
    """What makes a table."""
    if rows.dtype.kind in "biu":
        return Matches([], f"These are numbers of {dtype}: a code of sines and cosines has fractions.")
    if rows.dtype.kind == "c":
        return Matches([], "These are complex numbers: a table of positions is real.")
    while rows.ndim > 2 and rows.shape[0] == 1:
        rows = rows[0]
    if rows.ndim != 2:
        return Matches([], f"A table is [rows, width], and this is an array of shape {list(rows.shape)}.")
    if not rows.size:
        return Matches([], f"There is nothing in an array of shape {list(rows.shape)}.")
    if len(rows) < LEAST_ROWS:
        return Matches([], f"{len(rows)} rows are too few to tell how anything turns: give at least {LEAST_ROWS}.")
    at = None
    if positions is not None:
        from clockhands.positions import positions_of

        exact = positions_of(positions)
        if exact.shape != (len(rows),):
            raise InvalidValue(
                f"`positions` must be one for each of the {len(rows)} rows, got shape {list(exact.shape)}.",
                "They say where the rows stand.",
            )
        at = exact.as_float64()
    from clockhands.recognition.answering import identify_rows
    from clockhands.recognition.trained import identify_trained

    given = Given(rows, dtype, ROUNDING.get(dtype, 2.0**-4), at)
    if (rows[:HEAD] == rows[0]).all():
        return Matches([], f"All rows are the same, as far as row {min(HEAD, len(rows)) - 1}.")
    found = identify_rows(given)
    return found or identify_trained(given, found.reason)
