"""NTK-aware scaling, by a fixed factor or by one that follows the length."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar

from clockhands.arguments import count, settle
from clockhands.errors import InvalidValue
from clockhands.ladders import Ladder, working
from clockhands.scaling._scaling import Spelling, exact, factor_of, length_of


@dataclass(frozen=True)
class Ntk:
    """NTK-aware: ``w_j f ** (-j / (n - 1))``; the fastest hand keeps its rate, the slowest is slowed ``f`` times.

    On the paper's ladder that is the base times ``f ** (d / (d - 2))``. Hunyuan's ``alpha`` is this factor.

    Raises:
        InvalidValue: The factor is below 1 or not finite; or, on use, there is a single pair.

    Source: bloc97 2023 ("NTK-aware scaled RoPE"); Peng et al. 2023, arXiv:2309.00071, section 3.1.
    """

    factor: float

    # No file names it: a few classes make it of `dynamic` where an alpha stands beside it, whatever else does.
    SPELLINGS: ClassVar = (
        Spelling(
            "ntk_alpha",
            needs=("alpha",),
            may=("factor", "fast", "slow", "mscale", "mscale_all"),
            make=lambda said: Ntk(said["factor"]),
        ),
    )

    def __post_init__(self) -> None:
        """Check the values."""
        settle(self, factor=factor_of(self.factor))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The scaled ladder; the length does not matter."""
        return _ntk(ladder, exact(self.factor), f"NTK-aware scaling by {self.factor:g}")


@dataclass(frozen=True)
class Dynamic:
    """Dynamic NTK: `Ntk` by ``f L / L0 - (f - 1)``, where ``L = max(length, L0)``.

    Up to the original length the ladder is untouched. Keys that were cached at a shorter length hold
    another ladder's phases.

    Raises:
        InvalidValue: A value is impossible; or, on use, there is a single pair.

    Source: Transformers ``rope_type: dynamic``; Peng et al. 2023, arXiv:2309.00071, section 3.3.
    """

    factor: float
    original: int

    SPELLINGS: ClassVar = (
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
        settle(self, factor=factor_of(self.factor), original=count("original", self.original))

    def __call__(self, ladder: Ladder, length: int | None = None) -> Ladder:
        """The ladder in use at ``length`` tokens."""
        reach = max(length_of(length) or self.original, self.original)
        with localcontext(working()):
            factor = Decimal(self.factor) * reach / self.original - (Decimal(self.factor) - 1)
        return _ntk(ladder, factor, f"dynamic NTK by {self.factor:g} at length {reach}")


def _ntk(ladder: Ladder, factor: Decimal, origin: str) -> Ladder:
    if ladder.pairs < 2:
        raise InvalidValue(
            "NTK-aware scaling spreads its factor over the pairs, and there is only one.",
            "Rotate at least 4 channels, or use linear scaling.",
        )
    with localcontext(working()):
        step = (-factor.ln() / (ladder.pairs - 1)).exp()
        shares = [Decimal(1)]
        for _ in range(ladder.pairs - 1):
            shares.append(shares[-1] * step)
    return ladder.mapped(lambda pair, rate: rate * shares[pair], origin)
