"""The results of recognition: the spec that gives the numbers, and how well it fits."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.encodings.additive import AdditiveCode, table
from clockhands.encodings.specs import Spec, describe

_BLOCK = 2**20  # numbers that are compared together


@dataclass(frozen=True)
class Rows:
    """Rows of zeros in a table, which do not follow the code.

    Attributes:
        zeroed: Indices of rows of zeros between other rows (fairseq's padding).
        prepended: Number of rows of zeros before the first position (class tokens).
    """

    zeroed: tuple[int, ...] = ()
    prepended: int = 0


@dataclass(frozen=True)
class Residual:
    """The difference between a table and the code that its rows are near to.

    Attributes:
        largest: The largest absolute difference.
        root_mean_square: Root mean square of the difference over the whole table.
        share: Root mean square of the difference, divided by that of the code: 0 for the code itself.
        rows: The at most 10 rows with the largest differences, largest first.
        channels: The at most 10 channels with the largest differences, largest first.
    """

    largest: float
    root_mean_square: float
    share: float
    rows: tuple[int, ...]
    channels: tuple[int, ...]

    @classmethod
    def between(cls, array: np.ndarray, spec: AdditiveCode, positions: Any = None, least: float = 0.0) -> "Residual":
        """The difference between a table and a code at the positions 0, 1, 2, …, or at others, in blocks of rows.

        Rows and channels in which no difference is above ``least`` are not listed.
        """
        whole = None if positions is None else table(spec, positions, "float64")
        step, squares, power = max(1, _BLOCK // array.shape[1]), 0.0, 0.0
        rows, channels = np.empty(len(array)), np.zeros(array.shape[1])
        for begin in range(0, len(array), step):
            block = np.asarray(array[begin : begin + step]).astype(np.float64)
            end = begin + len(block)
            code = table(spec, range(begin, end), "float64") if whole is None else whole[begin:end]
            off = np.abs(block - code)
            rows[begin:end] = off.max(axis=1)
            np.maximum(channels, off.max(axis=0), out=channels)
            with np.errstate(over="ignore"):  # a wrong row may hold any number of float64
                squares, power = squares + float((off**2).sum()), power + float((code**2).sum())
        furthest, most = (
            tuple(int(one) for one in np.argsort(-each, kind="stable")[:10] if each[one] > least)
            for each in (rows, channels)
        )
        return cls(
            float(rows.max()), math.sqrt(squares / array.size), math.sqrt(squares / max(power, 1e-300)), furthest, most
        )


@dataclass(frozen=True, eq=False)
class Equivalent:
    """A code that gives the same numbers at other positions.

    Attributes:
        spec: The code.
        positions: The positions of its rows, as `clockhands.table` takes them.
        names: The names of the presets that are this code.
    """

    spec: Spec
    positions: Any
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A description of the code and of the positions of its rows."""
        at = self.positions
        if hasattr(at, "sizes"):
            start, step = ([float(one) for one in each] for each in (at.start, at.step))
            where = f"cells from {start} in steps of {step}"
        else:
            step = at[1] - at[0] if len(at) > 1 else 0
            where = f"positions from {at[0]:g} in steps of {step:g}"
        named = f"{', '.join(self.names)}: " if self.names else ""
        return f"{named}{describe(self.spec)}, at {where}"


@dataclass(frozen=True, eq=False)
class Match:
    """One description of the given table or function.

    If ``residual`` is None, ``ch.table(match.spec, match.positions, values=match.values)`` gives the table again,
    within ``error``.

    Attributes:
        spec: The code.
        positions: The positions of the rows, as `clockhands.table` takes them; None for a function.
        values: Learned numbers of the code, or None.
        error: The largest absolute difference between the given numbers and those of the spec, over all rows.
        confidence: A number from 0 to 1. For a table, the share of its rows that the code gives within the bound of its
            arithmetic; if all rows differ a little, 1 - `Residual.share`.
        name: The name of the preset that is this code, or None.
        equivalents: Other descriptions that give the same numbers: names of presets and specs, both at the same
            positions, and `Equivalent`, a spec with other positions.
        computed_in: The precision in which the numbers were computed, such as ``"float32"``; None if it cannot be
            determined.
        rows: Rows of zeros, which do not follow the code.
        residual: How far the table has moved from the code; None if it is the code.
        evidence: Measurements by name, as JSON values.
    """

    spec: Spec
    positions: Any = None
    values: Any = None
    error: float = 0.0
    confidence: float = 1.0
    name: str | None = None
    equivalents: tuple[Any, ...] = ()
    computed_in: str | None = None
    rows: Rows = Rows()
    residual: Residual | None = None
    evidence: tuple[tuple[str, Any], ...] = ()

    @property
    def computed(self) -> bool:
        """Whether the numbers are computed, perhaps with a trained scale, and not a table of trained numbers."""
        return self.values is None or np.size(self.values) == 1


class Matches(list[Match]):
    """A list of matches, best first.

    Attributes:
        reason: One or more sentences: the reason for the first match, or why there is none.
        evidence: What was measured of a table without a match, by name, as JSON values.
    """

    def __init__(
        self, matches: Iterable[Match] = (), reason: str = "", evidence: Iterable[tuple[str, Any]] = ()
    ) -> None:
        """Keep the matches, the reason and the measurements."""
        super().__init__(matches)
        self.reason = reason
        self.evidence: tuple[tuple[str, Any], ...] = tuple(evidence)
