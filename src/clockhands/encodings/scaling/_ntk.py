"""NTK-aware RoPE scaling: with a fixed factor, dynamic (a factor that follows the length), and mixed."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar

from clockhands.arguments import count, positive, set_fields
from clockhands.encodings.ladders import Geometric, Ladder, working
from clockhands.encodings.scaling._known import KnownScaling
from clockhands.encodings.scaling._scaling import Spelling, exact, factor_of, length_of
from clockhands.encodings.scaling.measured import SCALED, Beyond, Fit, FittedLine
from clockhands.encodings.usual_values import USUAL_BASES
from clockhands.encodings.written_numbers import Interval, shortest, significant
from clockhands.errors import InvalidValue


@dataclass(frozen=True)
class Ntk(KnownScaling):
    """NTK-aware: ``w_j f ** (-j / (n - 1))``; the highest rate is unchanged, the lowest is divided by ``f``.

    On the usual ladder this equals multiplying the base by ``f ** (d / (d - 2))``. Hunyuan's ``alpha`` is this factor.

    Raises:
        InvalidValue: The factor is below 1 or not finite; or, on use, there is a single pair.

    Source: bloc97 2023 ("NTK-aware scaled RoPE"); Peng et al. 2023, arXiv:2309.00071, section 3.1.
    """

    factor: float

    # No file names it: a few model classes use it for `dynamic` if the config also has an alpha.
    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling(
            "ntk_alpha",
            needs=("alpha",),
            may=("factor", "fast", "slow", "mscale", "mscale_all"),
            make=lambda said: Ntk(said["factor"]),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, factor=factor_of(self.factor))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        return _ntk(ladder, exact(self.factor), f"NTK-aware scaling by {self.factor:g}")

    @classmethod
    def fits_line(cls, line: FittedLine) -> Iterator[Fit]:
        """The same ladder described as a usual base with its base raised."""
        measured, spacing = line.measured, line.spacing
        if not line.plain or measured.pairs < 2 or spacing.span != "open" or spacing.multiplier != 1:
            return
        for base in USUAL_BASES[:3]:
            factor = (spacing.base / base) ** ((measured.pairs - 1) / measured.pairs)
            if not 1.01 < factor < 1e4:
                continue
            # The lowest rate is divided by the factor itself.
            reach = float(measured.relative[-1])
            short = shortest(Interval(factor * (1 - reach), factor * (1 + reach)))
            if significant(short) <= 3:
                yield from measured.fits(Geometric(base), cls(short), line.cost + SCALED + significant(short))

    @classmethod
    def usual(cls, factor: float, original: int | None) -> "Iterator[Ntk]":
        """With this factor, and with its square."""
        yield from super().usual(factor, original)
        yield cls(factor**2)


@dataclass(frozen=True)
class Dynamic(KnownScaling):
    """Dynamic NTK: `Ntk` with the factor ``f L / L0 - (f - 1)``, where ``L = max(length, L0)``.

    Up to the original length the ladder is unchanged. Keys that were cached at a shorter length were rotated by a
    different ladder.

    Raises:
        InvalidValue: A value is not allowed; or, on use, there is a single pair.

    Source: Transformers ``rope_type: dynamic``; Peng et al. 2023, arXiv:2309.00071, section 3.3.
    """

    factor: float
    original: int

    BY_LENGTH: ClassVar[bool] = True
    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling(
            "dynamic",
            needs=("factor",),
            may=("original",),
            original="context",
            make=lambda said: Dynamic(said["factor"], said["original"]),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, factor=factor_of(self.factor), original=count("original", self.original))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The ladder in effect at ``length`` tokens."""
        reach = max(length_of(length) or self.original, self.original)
        with localcontext(working()):
            factor = Decimal(self.factor) * reach / self.original - (Decimal(self.factor) - 1)
        return _ntk(ladder, factor, f"dynamic NTK by {self.factor:g} at length {reach}")

    @classmethod
    def fits_beyond(cls, beyond: Beyond) -> "Iterator[Dynamic]":
        """The factor from the lowest rate, which is divided by the whole ``f L / L0 - (f - 1)``."""
        if beyond.scaling is None and len(beyond.plain) > 1:
            low, high = (float(beyond.plain[-1] / (beyond.rates[-1] + side * beyond.bounds[-1])) for side in (1, -1))
            longer = beyond.length / beyond.original - 1
            yield cls(max(shortest(Interval((low - 1) / longer, (high - 1) / longer)), 1.0), beyond.original)

    def regimes(self, which: str | None, reach: int | None) -> Iterator[tuple[str, int]]:
        """The ladder at the longest length in use if given, else the one up to the original length."""
        if reach is not None and reach > self.original and which != "original":
            yield f"at {reach:,} tokens", reach
        else:
            yield f"up to {self.original:,} tokens", self.original


@dataclass(frozen=True)
class MixedNtk(KnownScaling):
    """Mixed NTK: ``w_j f ** (-((j + 1) / n) ** b)``; the lowest rate is divided by ``f``, the highest changes least.

    With the exponent ``b = 1`` this is the base times ``f``, with all rates divided by ``f ** (1 / n)``, which configs
    call a fixed NTK.

    Raises:
        InvalidValue: The factor is below 1 or not finite, or the exponent is not above 0.

    Source: Su 2023, kexue.fm/archives/9706, (6), (10), (12) and (13), as in ``modeling.py`` of Alibaba-NLP/new-impl and
    in
    ``ntk_scaling_rope.py`` of vLLM 0.11.0.
    """

    factor: float
    exponent: float = 1.0

    SPELLINGS: ClassVar[tuple[Spelling, ...]] = (
        Spelling(
            "ntk",
            needs=("factor",),
            may=("exponent",),
            make=lambda said: MixedNtk(said["factor"], said.get("exponent", 1.0)),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        set_fields(self, factor=factor_of(self.factor), exponent=positive("exponent", self.exponent))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        with localcontext(working()):
            fall, power = exact(self.factor).ln(), exact(self.exponent)
            parts = (Decimal(pair + 1) / ladder.pairs for pair in range(ladder.pairs))
            shares = [(-fall * (part if self.exponent == 1 else part**power)).exp() for part in parts]
        return ladder.mapped(lambda pair, rate: rate * shares[pair], f"mixed NTK by {self.factor:g}")

    @classmethod
    def usual(cls, factor: float, original: int | None) -> "Iterator[MixedNtk]":
        """Nothing: no other model is known to use it."""
        return iter(())


def _ntk(ladder: Ladder, factor: Decimal, origin: str) -> Ladder:
    if ladder.pairs < 2:
        raise InvalidValue(
            "NTK-aware scaling spreads its factor over several pairs, but there is only one pair.",
            "Rotate at least 4 dimensions, or use linear scaling.",
        )
    with localcontext(working()):
        step = (-factor.ln() / (ladder.pairs - 1)).exp()
        shares = [Decimal(1)]
        for _ in range(ladder.pairs - 1):
            shares.append(shares[-1] * step)
    return ladder.mapped(lambda pair, rate: rate * shares[pair], origin)
