"""What the scalings of this package say of themselves, beyond what they do to a ladder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from clockhands.scaling._scaling import Scaling, Spelling
from clockhands.scaling.measured import Beyond, Fit, FittedLine, MeasuredRates, Shares


@dataclass(frozen=True)
class Mistake:
    """A way in which one scaling is known to be done wrong.

    Attributes:
        fault: The code of the fault.
        parameters: What the fault's sentence names; None: how the scaling in its place differs.
        scaling: The scaling that is done in its place; None where no scaling does what is done.
        rates: ``(plain rates, right rates) -> the rates that are made``, where no scaling makes them.
    """

    fault: str
    parameters: Mapping[str, Any] | None = None
    scaling: Scaling | None = None
    rates: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None


class KnownScaling(Scaling):
    """A scaling of this package: a function of ladders that also says how it is declared, recognised and mistaken.

    A scaling of somebody else need only be the function. What a class does not say is nothing: no fit, no mistake of
    its own. It multiplies cosine and sine by the ``attention_factor`` of the ladder that it makes.

    Attributes:
        SPELLINGS: How configs declare it.
        BY_LENGTH: Whether its ladder follows the length in use.
        BY_FACTOR: Whether its rates follow from one factor.
    """

    SPELLINGS: ClassVar[tuple[Spelling, ...]]
    BY_LENGTH: ClassVar[bool] = False
    BY_FACTOR: ClassVar[bool] = True

    # How it is fitted to rates. `clockhands.recognition` asks in this order.

    @classmethod
    def fits_still(cls, line: FittedLine) -> Iterable[Fit]:
        """Fits where slow pairs stand still and the others lie on a line."""
        return ()

    @classmethod
    def fits_line(cls, line: FittedLine) -> Iterable[Fit]:
        """Fits where all pairs that turn lie on a line."""
        return ()

    @classmethod
    def fits_shares(cls, shares: Shares) -> Iterable[Fit]:
        """Fits where pairs keep falling shares of a ladder's rates; their cost is beside that of the ladder."""
        return ()

    @classmethod
    def fits_rates(cls, measured: MeasuredRates) -> Iterable[Fit]:
        """Fits to rates that lie on nothing else."""
        return ()

    @classmethod
    def fits_beyond(cls, beyond: Beyond) -> Iterable[Self]:
        """Scalings that may have these rates at this length."""
        return ()

    @classmethod
    def of_magnitude(cls, attention_factor: float) -> Self | None:
        """The scaling that slows nothing and multiplies cosine and sine by this; None where it has none."""
        return None

    # What is done in its place.

    @classmethod
    def usual(cls, factor: float, original: int | None) -> Iterable[Self]:
        """Those that a factor and an original length say, other numbers being the usual ones; the likeliest first."""
        needed = [each.name for each in fields(cls) if each.default is MISSING]  # type: ignore[arg-type]
        values: dict[str, Any] = {"factor": factor, "original": original}
        if all(values.get(name) is not None for name in needed):
            yield cls(**{name: values[name] for name in needed})

    def mistakes(self, length: int | None) -> Iterable[Mistake]:
        """Ways in which this one is known to be done wrong, where so many tokens are in use."""
        return ()

    def regimes(self, which: str | None, reach: int | None) -> Iterable[tuple[str, int | None]]:
        """The ladders that may be held in memory: in words, with a length at which each is in use (None: at any).

        Args:
            which: ``"original"``, ``"short"`` or ``"long"`` where only one of them is meant.
            reach: The longest length in use, or None.
        """
        return (("as declared", None),)
