"""The RoPE scaling of Llama 3."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar

from clockhands.arguments import count, positive, set_fields
from clockhands.encodings.ladders import TWO_PI, Ladder, working
from clockhands.encodings.scaling._known import KnownScaling
from clockhands.encodings.scaling._ramps import fits_by_rotations
from clockhands.encodings.scaling._scaling import Spelling, exact, factor_of
from clockhands.encodings.scaling.measured import Fit, Shares
from clockhands.errors import InvalidValue


@dataclass(frozen=True)
class Llama3(KnownScaling):
    """Llama 3: rates of pairs with fewer than ``low`` rotations divided by ``f``, of more than ``high`` unchanged.

    Between them the two are blended: with ``s = (t_j - low) / (high - low)`` clipped to [0, 1] the rate is
    ``(1 - s) w_j / f + s w_j``. Where ``low`` equals ``high`` (Llama 4 Scout) nothing is blended.

    Raises:
        InvalidValue: A value is not allowed.

    Source: meta-llama/llama-models, ``apply_scaling``; Transformers ``rope_type: llama3``.
    """

    factor: float
    original: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling(
            "llama3",
            needs=("factor", "low", "high"),
            may=("original",),
            original="declared",
            reaches_context=True,
            make=lambda said: Llama3(said["factor"], said["original"], said["low"], said["high"]),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(
            self,
            factor=factor_of(self.factor),
            original=count("original", self.original),
            low_freq_factor=positive("low_freq_factor", self.low_freq_factor),
            high_freq_factor=positive("high_freq_factor", self.high_freq_factor),
        )
        if self.high_freq_factor < self.low_freq_factor:
            raise InvalidValue(
                f"`high_freq_factor` must not be below `low_freq_factor`, got {self.high_freq_factor:g} "
                f"and {self.low_freq_factor:g}.",
                "Llama 3.1 uses 4 and 1.",
            )

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        given = (self.factor, self.low_freq_factor, self.high_freq_factor)
        factor, low, high = map(exact, given)

        def change(rate: Decimal) -> Decimal:
            turns = self.original * rate / TWO_PI
            if turns >= high:
                return rate
            if turns <= low:
                return rate / factor
            kept = (turns - low) / (high - low)
            return (1 - kept) * rate / factor + kept * rate

        with localcontext(working()):
            rates = [change(rate) for rate in ladder.exact]
        return ladder.with_rates(rates, f"Llama-3 scaling by {self.factor:g} from {self.original}")

    @classmethod
    def fits_shares(cls, shares: Shares) -> Iterator[Fit]:
        """A ramp in the number of rotations, with an attention factor of 1."""
        if shares.measured.attention_factor.holds(1.0):
            yield from fits_by_rotations(shares, lambda *numbers: [(cls(*numbers), 0)])
