"""`identify`, which finds the encoding of a table or of a function."""

from typing import Any

import numpy as np

from clockhands.encodings.positions import positions_of
from clockhands.errors import InvalidType, InvalidValue
from clockhands.recognition._given import given_of
from clockhands.recognition._matches import Matches

# The modules for tables and for functions are imported on the first call, so that `import clockhands` stays fast.


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
    r"""Find the encoding of a table [rows, width] or of a function.

    A table of sines and cosines, ``x[r, c] = A sin(rate_k (start + step r) + 0 or pi / 2)``, is recognised by its
    pairs: as complex numbers, they have constant size and rotate by a constant angle from row to row. Least squares
    over the angles of all pairs gives the frequencies, the start, the step and the scale; a measured number is replaced
    by a number with few digits if that fits. Then `clockhands.table` computes every row, and every number is compared.
    A table of several axes is one such table along each axis of its grid.

    Args:
        given: An array of floats [rows, width], or an attention bias [heads, queries, keys] (leading axes of size 1 are
            removed) from NumPy (also memory-mapped), PyTorch or JAX, or a list; or a
            ``function(x [seq, width], positions [seq]) -> [seq, width]``.
        positions: The position of each row of a table, [rows]; needed if they are not evenly spaced. If the rows
            are those of other, evenly spaced positions, the match has these positions and the reason says so.
        width: For a function, the number of its channels.
        backend: For a function, the library of its arrays.
        dtype: For a function, the dtype of ``x``; for details of this and the other arguments see
            `clockhands.recognition.functions.identify_function`.
        longest: For a function, the largest position that is passed to it.
        timeout: For a function, the longest time of a call in seconds, 60 by default.

    Returns:
        Matches, best first; `Matches.reason` explains the match, or why there is none. A table has at most one match.
        If ``match.residual`` is None, ``clockhands.table(match.spec, match.positions, values=match.values)`` gives the
        table again, within ``match.error``. ``confidence`` is the share of the rows that the code gives within its
        bound; for a table that is near a code, 1 - the share by which it differs. Smooth rows that no code gives have
        no match: numbers do not show what made them, and ``Matches.evidence`` has what was measured. A table gives
        frequencies only up to a common factor, because it shows
        ``rate x step``: the highest is taken as 1 rad/token, unless a preset with other frequencies fits.
        ``equivalents`` are names of other presets that are the same code, and specs that give the same numbers with
        another base for another span or rule of odd widths. No problem is reported, because nothing is declared:
        `clockhands.recognition.diagnosis.of_rates` compares ``spec.rates`` with declared ones.

    Accuracy: a table rounded to a dtype of relative rounding ``u`` is matched if every number is within ``4 u`` of
    the scale; if its phases were computed in float32, within ``2**-24 |phase| (3 |log rate| + 5)`` more, which
    ``computed_in`` then says (derived in `clockhands.recognition.tables._verifying`). One row, or 1 % of the rows, may
    differ by any amount: `Match.residual` names them. A table is near a code only if at least 90 % of its rows differ,
    by similar amounts, by less than half of the code (a tenth for several axes), and not as another shape of the waves
    does; what changed them (training, noise) is not known. If only half of the rows differ, there is no match, and
    ``reason`` says which code its pairs rotate like. Tables of 8-bit
    floats are not identified. Large tables are read in blocks.

    Raises:
        InvalidType: ``given`` is neither an array of numbers nor a function, or an argument is for the other kind.
        InvalidValue: ``positions`` are not one for each row, a masked array has masked elements, or a function
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
    if rows.ndim == 3 and positions is None:
        from clockhands.recognition._bias_arrays import identify_bias

        if found := identify_bias(rows, kind):
            return found
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
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # arrays that are no table may overflow
        return identify_array(rows, kind, at)


def _only(name: str, value: object, kind: str) -> None:
    if value is not None:
        raise InvalidType(f"`{name}` is for {kind}.", f"Leave `{name}` out.")
