"""The results of recognition: a spec that gives the numbers, and how well it fits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from clockhands.specs import Spec, describe


@dataclass(frozen=True)
class Rows:
    """Rows of a table that follow another rule than the rest.

    Attributes:
        zeroed: Rows of zeros among the others (fairseq's padding).
        prepended: Rows of zeros before the first position (class tokens).
    """

    zeroed: tuple[int, ...] = ()
    prepended: int = 0


@dataclass(frozen=True)
class Residual:
    """How far a table lies from the code that it started as.

    Attributes:
        largest: The largest absolute difference.
        root_mean_square: Of the difference, over the whole table.
        share: Root mean square of the difference over that of the code: 0 for the code itself.
        rows: The rows that moved furthest, furthest first, at most 10.
        channels: The channels that moved furthest, furthest first, at most 10.
    """

    largest: float
    root_mean_square: float
    share: float
    rows: tuple[int, ...]
    channels: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Equivalent:
    """A code that makes the same numbers at other positions.

    Attributes:
        spec: The code.
        positions: Where its rows stand, as `clockhands.table` takes them.
    """

    spec: Spec
    positions: Any

    def __str__(self) -> str:
        """The code in words, and where its rows stand."""
        at = self.positions
        if hasattr(at, "sizes"):
            start, step = ([float(one) for one in each] for each in (at.start, at.step))
            where = f"cells from {start} in steps of {step}"
        else:
            step = at[1] - at[0] if len(at) > 1 else 0
            where = f"positions from {at[0]:g} in steps of {step:g}"
        return f"{describe(self.spec)}, at {where}"


@dataclass(frozen=True, eq=False)
class Match:
    """One description of what was given.

    ``ch.table(match.spec, match.positions, values=match.values)`` makes a table again, within ``error`` of the one
    that was given, where ``residual`` is None.

    Attributes:
        spec: The code.
        positions: Where the rows stand, as `clockhands.table` takes them; None for a function.
        values: Learned numbers of the code, or None.
        error: The largest absolute difference between what was given and what the spec makes, over every row.
        confidence: How sure, from 0 to 1. Of a table: the share of its rows that the code makes within the bound of its
            arithmetic; where all have moved, 1 less `Residual.share`; of learned rows, the correlation of neighbours.
        name: The preset that this is, or None.
        equivalents: Other descriptions that make the same numbers: names of presets, and specs, both at the same
            positions; and `Equivalent`, a spec with positions of its own.
        computed_in: The precision that the numbers were made in, such as ``"float32"``; None where it cannot be seen.
        rows: Rows that follow another rule.
        residual: How far the table has moved from the code, or None where it is the code.
        evidence: What was seen, by name: JSON values.
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


class Matches(list[Match]):
    """Matches, best first, with the reason in words: of the first match, or why there is none.

    Attributes:
        reason: One or more sentences.
    """

    def __init__(self, matches: Iterable[Match] = (), reason: str = "") -> None:
        """Keep the matches and the reason."""
        super().__init__(matches)
        self.reason = reason
