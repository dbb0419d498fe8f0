"""Gemma 4's proportional RoPE scaling."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from clockhands.arguments import positive, set_fields
from clockhands.encodings.ladders import Ladder
from clockhands.encodings.scaling._known import KnownScaling
from clockhands.encodings.scaling._scaling import Spelling, exact, factor_of
from clockhands.encodings.scaling.measured import SCALED, Fit, FittedLine
from clockhands.encodings.written_numbers import Interval, shortest, significant
from clockhands.errors import InvalidValue


@dataclass(frozen=True)
class Proportional(KnownScaling):
    """Proportional (Gemma 4): the first ``int(fraction n)`` pairs have the whole head's rates, the others rate 0.

    In partial RoPE, by contrast, the exponent runs over the RoPE dimensions only. All rates are divided by ``factor``.

    Raises:
        InvalidValue: A value is not allowed.

    Source: Transformers 5.23.0 ``rope_type: proportional``.
    """

    fraction: float
    factor: float = 1.0

    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling(
            "proportional",
            may=("factor",),
            make=lambda said: Proportional(said["share"] or 1.0, said["factor"] or 1.0),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, fraction=positive("fraction", self.fraction), factor=factor_of(self.factor))
        if self.fraction > 1:
            raise InvalidValue(
                f"`fraction` must be at most 1, got {self.fraction:g}.", "It is the share of the pairs that rotate."
            )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        turning, factor = int(self.fraction * ladder.pairs), exact(self.factor)
        return ladder.mapped(
            lambda pair, rate: rate / factor if pair < turning else Decimal(0),
            f"proportional scaling ({self.fraction:g} of the pairs)",
        )

    @classmethod
    def fits_still(cls, line: FittedLine) -> Iterator[Fit]:
        """The share of the pairs that rotate, if their rates are on the whole head's ladder."""
        if line.spacing.span != "open" or line.spacing.multiplier != 1:
            return
        turning, pairs = line.measured.turning, line.measured.pairs
        share = turning / pairs
        if significant(share) > 4 or int(share * pairs) != turning:
            share = shortest(Interval(turning / pairs, (turning + 1 - 1e-6) / pairs))
        cost = line.cost + SCALED + (significant(line.slowed) if line.slowed != 1 else 0)
        yield from line.measured.fits(line.spacing, cls(share, line.slowed), cost)
