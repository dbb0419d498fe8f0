"""Functions that return a table, as functions of positions: of a learned table for another grid, or of a length."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from clockhands.encodings.additive import Sinusoidal, table
from clockhands.encodings.presets import names, preset
from clockhands.encodings.specs import describe
from clockhands.errors import ClockhandsError
from clockhands.recognition.calling import Refused, as_numpy, kind_of
from clockhands.testing._checks import named
from clockhands.testing._number_rules import (
    InputNumbers,
    NamedCall,
    NumberRule,
    first_judged,
    judged,
    named_parameters,
)
from clockhands.testing._usual_names import meanings
from clockhands.testing.functions._call_shapes import CallShape
from clockhands.testing.functions._calls import Called
from clockhands.testing.reports import Report

_KNOWN = meanings("seq_len", "channels")
_LENGTHS, _WIDTHS = (9, 24, 5), (16, 64)
_ERROR = 1e-4


class TableFunction(Called):
    """A user's function that returns a table, as a function of positions: the rows of these positions.

    Attributes:
        takes: What each of its parameters means.
    """

    def __init__(self, function: Callable[..., Any], takes: Mapping[str, str], width: int, **options: Any) -> None:
        """Find out with which library it is called."""
        self.takes: Mapping[str, str] = takes
        super().__init__(function, width, call=CallShape(("positions",)), **options)

    def rows_at(self, positions: np.ndarray, dtype: str) -> np.ndarray:
        """The rows of positions [..., seq], as [..., seq, width]."""
        raise NotImplementedError

    def answered(self, given: Mapping[str, Any], rows: int, dtype: str) -> Any:
        """The table that it returns for these values of quantities."""
        values = {name: given[word] for name, word in self.takes.items()}
        held = {
            name: self.library.floats(each, dtype) if isinstance(each, np.ndarray) else each
            for name, each in values.items()
        }
        answer = self.ask(held, rows, tuple(held))
        return self.array_or_refuse(answer, kind_of(answer))

    def _answer(self, x: np.ndarray, positions: Any, dtype: str, beside: np.ndarray | None) -> np.ndarray:
        return np.broadcast_to(self.rows_at(positions, dtype)[..., None, :, :], x.shape)


class LengthTable(NamedTuple):
    """A table [rows, width] of a function of a length, and where its rows stand.

    Attributes:
        length: The length.
        rows: Its numbers.
    """

    length: int
    rows: np.ndarray

    def positions(self) -> Iterator[np.ndarray]:
        """The positions, or distances, of its rows in the usual orders."""
        up = np.arange(len(self.rows)) - (self.length - 1 if len(self.rows) > self.length else 0)
        yield up
        yield up[::-1]


length_taken = partial(named_parameters, known=_KNOWN, enough=(("seq_len",),))
"""What the parameters of a function mean, if they are a length, and the width of a table."""


def _table_of(answer: Any, length: int) -> LengthTable:
    """The table in an answer: a row for each position of a length, or for each distance of two of them."""
    if not hasattr(answer, "shape") or as_numpy(answer).dtype.kind != "f":
        raise Refused(f"it returned {kind_of(answer)}, not a table")
    array = as_numpy(answer).astype(np.float64)
    if array.ndim < 2 or array.size != np.prod(array.shape[-2:]) or array.shape[-2] not in {length, 2 * length - 1}:
        raise Refused(f"it returned shape {list(array.shape)} for a length of {length}")
    return LengthTable(length, array.reshape(array.shape[-2:]))


def check_length(function: Callable[..., Any], takes: Mapping[str, str], backend: Any, timeout: float) -> Report:
    """The report on a function that makes the table of a length: of positions, or of distances query - key.

    The rows are those of a published encoding of sines and cosines, from the first position to the last, or back.

    Raises:
        CannotCheck: It cannot be called, or its rows are those of no known encoding.
    """
    called = NamedCall(function, takes, backend, timeout)

    def attempt(width: int) -> Report:
        asked = []
        for length in _LENGTHS:
            made: list[LengthTable] = []

            def read(answer: Any, length: int = length, made: list[LengthTable] = made) -> np.ndarray:
                made.append(_table_of(answer, length))
                return made[-1].rows

            rows = called.answer({"seq_len": length, "channels": width}, length, read)
            asked.append(InputNumbers(f"a length of {length}", made[-1], rows))
        return judged(named(function, None), "additive", asked, _readings(asked[0].given), called, error=_ERROR)

    return first_judged((f"a width of {width}", partial(attempt, width)) for width in _WIDTHS)


def _readings(first: LengthTable) -> Iterator[NumberRule]:
    """Every published encoding, with rows in both orders, and with the row of k for distance -k."""
    specs: dict[Sinusoidal, None] = {}
    for each in map(preset, ("vaswani2017", *names())):
        if isinstance(each, Sinusoidal) and not each.learned:
            with suppress(ClockhandsError):  # it has no such width
                specs[replace(each, width=first.rows.shape[1])] = None
    relative = len(first.rows) > first.length
    what = "distances" if relative else "positions"

    def numbers(one: LengthTable, spec: Sinusoidal, back: bool, sign: int) -> np.ndarray:
        at = list(one.positions())[back]
        try:
            return table(spec, sign * np.abs(at) if sign else at, "float64")
        except ClockhandsError:  # it has no such positions
            return np.empty((0, 0))

    for spec, back in itertools.product(specs, (False, True)):
        order = f"from the {'last' if back else 'first'} to the {'first' if back else 'last'}"
        words = f"{describe(spec)}; a row for each of the {what}, {order}"
        yield NumberRule(partial(numbers, spec=spec, back=back, sign=0), words)
    for spec, sign in itertools.product(specs, (1, -1)) if relative else ():
        rows = partial(numbers, spec=spec, back=False, sign=sign)
        yield NumberRule(rows, code="sign-for-negative-positions")


class TableOfLength(TableFunction):
    """A user's function of a length, as a function of positions.

    Attributes:
        right: The expected rows of positions: where a table has both orders, the one nearer to them is meant.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        takes: Mapping[str, str],
        width: int,
        right: Callable[[np.ndarray], np.ndarray],
        **options: Any,
    ) -> None:
        """See `TableFunction`."""
        self.right = right
        super().__init__(function, takes, width, **options)

    def rows_at(self, positions: np.ndarray, dtype: str) -> np.ndarray:
        """See `TableFunction`."""
        length = int(np.abs(positions).max(initial=3)) + 1
        answer = self.answered({"seq_len": length, "channels": self.width}, length, dtype)
        made = _table_of(answer, length)
        self.numbers(answer)
        if made.rows.shape[1] != self.width:
            raise Refused(f"it returned rows of width {made.rows.shape[1]}, expected {self.width}")
        if len(made.rows) == length and np.min(positions, initial=0) < 0:
            raise Refused("it returns rows of positions from 0 on")
        orders = list(made.positions())
        off = [float(np.abs(made.rows - self.right(at)).sum()) for at in orders]
        # A wrong table is as far from both: then the first row is that of the first position.
        falling = 2 * off[1] < off[0]
        return made.rows[np.argsort(orders[falling])][positions - min(orders[0])]
