"""Linear RoPE scaling (position interpolation)."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import localcontext
from typing import ClassVar

from clockhands.arguments import set_fields
from clockhands.encodings.ladders import Ladder, working
from clockhands.encodings.scaling._known import KnownScaling
from clockhands.encodings.scaling._scaling import Spelling, exact, factor_of
from clockhands.encodings.scaling.measured import SCALED, Fit, FittedLine
from clockhands.encodings.written_numbers import significant


@dataclass(frozen=True)
class Linear(KnownScaling):
    """Position interpolation: ``w_j / f``, the same factor for all frequencies.

    Raises:
        InvalidValue: The factor is below 1 or not finite.

    Source: Chen et al. 2023, arXiv:2306.15595, section 3.2; Transformers ``rope_type: linear``.
    """

    factor: float

    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling("linear", needs=("factor",), make=lambda said: Linear(said["factor"])),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, factor=factor_of(self.factor))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        factor = exact(self.factor)
        with localcontext(working()):
            rates = [rate / factor for rate in ladder.exact]
        return ladder.with_rates(rates, f"linear scaling by {self.factor:g}")

    @classmethod
    def fits_line(cls, line: FittedLine) -> Iterator[Fit]:
        """A geometric ladder whose highest frequency is below 1 rad per token."""
        if line.slowed != 1:
            cost = line.cost + (SCALED + significant(line.slowed))
            yield from line.measured.fits(line.spacing, cls(line.slowed), cost)
