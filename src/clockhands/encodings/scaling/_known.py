"""The interface of this package's scalings beyond the formula: declaration, fits, known mistakes, regimes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from clockhands.encodings.scaling._scaling import Scaling, Spelling
from clockhands.encodings.scaling.measured import Beyond, Fit, FittedLine, MeasuredRates, Shares
from clockhands.encodings.spec_fields import KnowsItsNames


@dataclass(frozen=True)
class Mistake:
    """A known mistake in implementations of a scaling.

    Attributes:
        fault: The code of the fault.
        parameters: The parameters in the fault's sentence; None means the fields in which ``scaling`` differs.
        scaling: The scaling that the mistake amounts to; None where no scaling gives its rates.
        rates: ``(plain rates, correct rates) -> wrong rates``, where no scaling gives them.
    """

    fault: str
    parameters: Mapping[str, Any] | None = None
    scaling: Scaling | None = None
    rates: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None


class KnownScaling(KnowsItsNames, Scaling):
    """A scaling of this package: a function of ladders that also defines declarations, fits and known mistakes.

    A user's scaling needs to be only the function. The methods here return nothing by default: no fits and no known
    mistakes. Cosine and sine are multiplied by the ``attention_factor`` of the resulting ladder.

    Attributes:
        SPELLINGS: The ways in which configs declare it.
        BY_LENGTH: Whether its ladder depends on the current context length.
        BY_FACTOR: Whether its rates follow from one factor.
    """

    SPELLINGS: ClassVar[tuple[Spelling, ...]]
    BY_LENGTH: ClassVar[bool] = False
    BY_FACTOR: ClassVar[bool] = True

    # Fits to measured rates; `clockhands.recognition` calls these methods in this order.

    @classmethod
    def fits_still(cls, line: FittedLine) -> Iterable[Fit]:
        """Fits where low-frequency pairs have rate 0 and the others are a geometric ladder."""
        return ()

    @classmethod
    def fits_line(cls, line: FittedLine) -> Iterable[Fit]:
        """Fits where all pairs that rotate are a geometric ladder."""
        return ()

    @classmethod
    def fits_shares(cls, shares: Shares) -> Iterable[Fit]:
        """Fits where pairs have decreasing shares of a ladder's rates; their cost is added to that of the ladder."""
        return ()

    @classmethod
    def fits_rates(cls, measured: MeasuredRates) -> Iterable[Fit]:
        """Fits to rates that have no other description."""
        return ()

    @classmethod
    def fits_beyond(cls, beyond: Beyond) -> Iterable[Self]:
        """Scalings that may have these rates at this length."""
        return ()

    @classmethod
    def of_magnitude(cls, attention_factor: float) -> Self | None:
        """A scaling that changes no rate and has this attention factor; None if there is none."""
        return None

    # Scalings and mistakes that may be found in its place.

    @classmethod
    def usual(cls, factor: float, original: int | None) -> Iterable[Self]:
        """Scalings with this factor and original length and the usual other numbers, the most likely first."""
        needed = [each.name for each in fields(cls) if each.default is MISSING]  # type: ignore[arg-type]
        values: dict[str, Any] = {"factor": factor, "original": original}
        if all(values.get(name) is not None for name in needed):
            yield cls(**{name: values[name] for name in needed})

    def mistakes(self, length: int | None) -> Iterable[Mistake]:
        """Known mistakes in implementations of this scaling at this context length."""
        return ()

    def regimes(self, which: str | None, reach: int | None) -> Iterable[tuple[str, int | None]]:
        """The ladders that a model may hold: a name for each, with a length at which it applies (None: at any).

        Args:
            which: ``"original"``, ``"short"`` or ``"long"`` to get only that one.
            reach: The longest context length in use, or None.
        """
        return (("as declared", None),)
