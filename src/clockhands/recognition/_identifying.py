"""`identify`, which finds the encoding of a table or of a function."""

from typing import Any

import numpy as np

from clockhands.errors import InvalidType, InvalidValue
from clockhands.positions import positions_of
from clockhands.recognition._given import given_of
from clockhands.recognition._matches import Matches

# What looks at tables and at functions is imported when one of them is given: a program that may need it pays nothing.


def identify(
    given: Any,
    *,
    positions: Any = None,
    width: int | None = None,
    backend: str | None = None,
    dtype: str | None = None,
    longest: int | None = None,
    timeout: float | None = None,
) -> Matches:
    r"""What makes these numbers: the code of a bare table [rows, width], or of a function.

    A table of sines and cosines, ``x[r, c] = A sin(rate_k (start + step r) + 0 or pi / 2)``, is told by its pairs:
    as complex numbers they keep one size and turn evenly from row to row. From the turning of all pairs follow the
    ladder, the place of position 0 and the scale, by least squares; numbers of few digits are taken for the measured
    ones where they fit. Then `clockhands.table` makes every row again and every number is compared. A table of
    several axes is one such table along each axis of its grid.

    Args:
        given: An array of floats [rows, width] (leading axes of 1 are left out), of NumPy (a memory-mapped file too),
            PyTorch or JAX, or a list; or a ``function(x [seq, width], positions [seq]) -> [seq, width]``.
        positions: Where the rows of a table stand, [rows], if they are irregular; at equal distances unless said.
            Where the rows are those of other positions, at equal distances, the match has these and the reason says so.
        width: Of a function: its channels.
        backend: Of a function: the library of its arrays.
        dtype: Of a function: what it computes with; for this and the others see
            `clockhands.recognition.functions.identify_function`.
        longest: Of a function: the largest position it takes.
        timeout: Of a function: the seconds that a call may take, 60 unless said.

    Returns:
        Matches, best first: `Matches.reason` says in words why it is this, or why it is none. Of a table there is at
        most one, and ``clockhands.table(match.spec, match.positions, values=match.values)`` makes it again, to
        ``match.error``, where ``match.residual`` is None. ``confidence`` is the share of the rows that the code makes
        within its bound; of a table that was trained further, 1 less the share that has moved; of a learned table,
        the correlation of neighbouring rows. Rates are told up to a factor that the steps make good: the fastest rate
        is 1 rad/token, unless a preset of other rates fits. ``equivalents`` are names of further presets that are the
        same code, and specs that make the same numbers with another base for another span or rule of odd widths.
        Nothing is called wrong, since nothing is declared: `clockhands.diagnosis.of_rates` compares ``spec.rates``.

    Accuracy: a table rounded to a dtype of relative rounding ``u`` is matched where every number is within ``4 u`` of
    the scale; one whose phases were made in float32, within ``2**-24 |phase| (3 |log rate| + 5)`` more, which
    ``computed_in`` then says (derived in `clockhands.recognition.tables._verifying`). One row, or one in a hundred, may
    be others, however far off: `Match.residual` names them. A table counts as trained further only where nine in ten
    rows have moved, alike and by less than half of the code (a tenth for several axes): where half of its rows have,
    ``reason`` alone says what its pairs turn like. Floats of 8 bits are not told apart. Large tables are read block
    by block.

    Raises:
        InvalidType: It is neither numbers nor a function, or an argument is for the other of the two.
        InvalidValue: ``positions`` are not one for each row, numbers of a masked array are hidden, or a function
            cannot be called, or does not return in time.

    >>> import clockhands as ch
    >>> match = ch.identify(ch.table(ch.preset("dit", width=64), [3, 5, 7, 9, 11]))[0]
    >>> match.name, match.positions, match.spec.order
    ('dit', range(3, 13, 2), 'cos-sin')
    >>> ch.identify(np.random.default_rng(0).normal(size=(9, 4)))
    []
    """
    if callable(given) and not hasattr(given, "dtype"):
        _only("positions", positions, "arrays, and a function was given")
        from clockhands.recognition.functions import identify_function

        chosen = {"backend": backend, "dtype": dtype, "longest": longest, "timeout": timeout}
        return identify_function(given, width, **{name: one for name, one in chosen.items() if one is not None})  # type: ignore[arg-type]
    chosen = {"width": width, "backend": backend, "dtype": dtype, "longest": longest, "timeout": timeout}
    for name, one in chosen.items():
        _only(name, one, "functions, and an array was given")
    rows, kind = given_of(given)
    while rows.ndim > 2 and rows.shape[0] == 1:
        rows = rows[0]
    from clockhands.recognition.tables import identify_array

    at = None
    if positions is not None:
        exact = positions_of(positions)
        if rows.ndim != 2 or exact.shape != (len(rows),):
            raise InvalidValue(
                f"`positions` must have one position for each row of an array of shape {list(rows.shape)}, got "
                f"positions of shape {list(exact.shape)}.",
                "Give a list with the position of each row.",
            )
        at = exact.as_float64()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # numbers that are no table's
        return identify_array(rows, kind, at)


def _only(name: str, value: object, kind: str) -> None:
    if value is not None:
        raise InvalidType(f"`{name}` is for {kind}.", f"Leave `{name}` out.")
