"""From measured rates to the ladder that has them: how it is spaced and scaled, in numbers that people write.

`fit_ladder` takes the rates of the pairs, in their order, with a bound on the error of each, and answers every
description by `clockhands.ladders` and `clockhands.scaling` that has all rates within the bounds.

Every family is fitted in the same way. Its numbers are first bounded by intervals: of a geometric ladder
``ln rate_j = ln m - j g`` each pair bounds ``g``, and the bounds are intersected; of a scaling the shares that pairs
keep, ``rate_j / w_j``, are a line in the pair's index (YaRN) or in its rate (Llama 3). Then the shortest decimal of
each interval is taken, or the roundest length, and the whole ladder is made by the library's own code and held to
every bound: what does not fit is not answered, so a number is never shortened beyond what was measured. Numbers that
several values of give the same rates (a YaRN's original length, whose ramp begins at a whole pair) are said in
``undetermined``.
"""

from collections.abc import Sequence

import numpy as np

from clockhands.errors import InvalidValue
from clockhands.ladders import Explicit
from clockhands.recognition.decimals import Interval, shortest
from clockhands.recognition.measured import COSTS, Fit, Measured
from clockhands.recognition.plain_ladders import plain_fits
from clockhands.recognition.scaled_ladders import scaled_fits
from clockhands.scaling import Yarn

__all__ = ["Fit", "fit_ladder"]


def fit_ladder(
    rates: Sequence[float] | np.ndarray,
    uncertainty: Sequence[float] | np.ndarray | float,
    *,
    channels: int | None = None,
    whole: int | None = None,
    attention_factor: float = 1.0,
    attention_uncertainty: float = 1e-6,
    modulo: float | None = None,
) -> list[Fit]:
    """Every description of these rates, the cheapest first; the last is `Explicit`, the rates as they are.

    Args:
        rates: Radians per token of each pair, in the order of the pairs; 0 for a pair that stands still.
        uncertainty: How far each rate may lie from the truth, rad/token: a bound, not a standard deviation, positive.
        channels: Channels that the ladder is for; 2 x pairs unless said. ``span="open"`` divides by half of them.
        whole: Channels of the head of which these are a part: the exponent may run over them instead.
        attention_factor: What cosine and sine are multiplied by. Only YaRN and LongRoPE have one other than 1.
        attention_uncertainty: How far it may lie from the truth.
        modulo: Where rates are only known up to multiples of this number (2 pi at whole positions): the slow ones are
            taken as they are, and those that are faster, and may be given as 0 or below, follow from the ladder that
            the slow ones are on.

    Returns:
        Fits, best first. ``fit.spacing.ladder(pairs, channels)``, then ``fit.scaling``, makes a ladder whose rates
        are all within the uncertainty.

    Raises:
        InvalidValue: There is no rate, a rate is negative or not finite, or an uncertainty is not positive.

    >>> fit = fit_ladder([1.0, 0.1000001, 0.0099999, 0.001], 1e-6)[0]
    >>> fit.spacing, fit.scaling
    (Geometric(base=10000.0, span='open', multiplier=1.0), None)
    """
    given = np.asarray(rates, np.float64).reshape(-1)
    bounds = np.broadcast_to(np.asarray(uncertainty, np.float64), given.shape)
    if not given.size or not np.isfinite(given).all() or (modulo is None and (given < 0).any()):
        raise InvalidValue("Rates must be finite and not negative, and at least one.", "Give rad/token for each pair.")
    if not (np.isfinite(bounds).all() and (bounds > 0).all()):
        raise InvalidValue("Uncertainties must be finite and positive.", "Give a bound in rad/token for each pair.")
    channels = 2 * len(given) if channels is None else channels
    factor = Interval.around(attention_factor, attention_uncertainty)
    measured = Measured(given, bounds, channels, channels if whole is None else whole, factor, modulo)
    found = [fit for fit in plain_fits(measured) if fit is not None]
    if not found and measured.turning == measured.pairs > 1:
        found = scaled_fits(measured)
    fits = sorted([*found, _as_given(measured)], key=lambda fit: fit.cost)
    return [fit for place, fit in enumerate(fits) if not any(_same(fit, other) for other in fits[:place])]


def _same(fit: Fit, other: Fit) -> bool:
    return (fit.spacing, fit.scaling) == (other.spacing, other.scaling)


def _as_given(measured: Measured) -> Fit:
    rates = tuple(np.where(measured.rates <= measured.bounds, 0.0, measured.rates).tolist())
    scaling = None
    if not measured.attention_factor.holds(1.0):
        scaling = Yarn(1.0, 1, attention_factor=shortest(measured.attention_factor), ramp="turns")
    return Fit(Explicit(rates), scaling, 0.0, COSTS["explicit"] + 17 * len(rates))
