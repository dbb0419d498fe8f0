"""A rotary implementation in stages, right as it stands: a fault replaces one of them.

Positions are read, multiplied by rates, turned into waves, and these turn the pairs:
``places -> phases -> waves -> turn``. All of it is float64, so what a fault does is not hidden by rounding; positions
are as large as models use, not as large as `clockhands.rotate` takes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from clockhands.dtypes import output_dtype
from clockhands.errors import ClockhandsError
from clockhands.faults.fault import Suspect
from clockhands.rotary import Rotary
from clockhands.rotary.formula import plain

Apply = Callable[..., np.ndarray]
"""``apply(x [batch, heads, seq, width], positions [seq] or [batch, seq], dtype, role) -> x turned``, float64."""


class Turning:
    """A right implementation, or one with a stage of another kind.

    Each stage is a function that is called with what the stage before made, and with the call (`Call`).
    """

    def __init__(
        self,
        spec: Rotary,
        *,
        rates: np.ndarray | None = None,
        places: Callable[[np.ndarray, "Call"], np.ndarray] | None = None,
        phases: Callable[[np.ndarray, "Call"], np.ndarray] | None = None,
        waves: Callable[[np.ndarray, np.ndarray, "Call"], tuple[np.ndarray, np.ndarray]] | None = None,
        turn: Callable[[np.ndarray, np.ndarray, np.ndarray, Rotary], np.ndarray] | None = None,
        factor: float | None = None,
    ) -> None:
        self.spec = spec
        self.rates = np.array(spec.rates) if rates is None else rates
        self.factor = spec.attention_factor if factor is None else factor
        self.places, self.make_phases, self.waves, self.turn = places, phases, waves, turn

    def __call__(
        self, x: np.ndarray, positions: np.ndarray, dtype: str = "float32", role: str | None = None
    ) -> np.ndarray:
        """What it makes of tokens [batch, heads, seq, width], float64."""
        call = Call(x, dtype, role, self)
        at = np.asarray(positions, np.float64)
        at = at if self.places is None else self.places(at, call)
        phases = self.phases(at) if self.make_phases is None else self.make_phases(at, call)
        cosine, sine = np.cos(phases), np.sin(phases)
        if self.waves is not None:
            cosine, sine = self.waves(cosine, sine, call)
        growth = self.factor * self.growth(at, role)
        cosine, sine = call.aligned(cosine * growth), call.aligned(sine * growth)
        return (self.turn or turned)(x, cosine, sine, self.spec)

    def phases(self, at: np.ndarray, rates: np.ndarray | None = None) -> np.ndarray:
        """Position times rate, [..., seq, pairs], negative where the code turns backward."""
        rates = self.rates if rates is None else rates
        sign = -1.0 if self.spec.direction == "backward" else 1.0
        if self.spec.axes is None:
            return sign * at[..., None] * rates
        return sign * at[..., list(self.spec.axes)] * rates

    def growth(self, at: np.ndarray, role: str | None) -> np.ndarray | float:
        """What xPos multiplies a query by, or a key."""
        if self.spec.xpos is None:
            return 1.0
        power = self.spec.xpos.logarithms(self.spec.rotated // 2)
        exponent = (at - self.spec.xpos.centre)[..., None] * power
        return np.exp(-exponent if role == "key" else exponent)


class Call:
    """What a stage may know of the call that it serves."""

    def __init__(self, x: np.ndarray, dtype: str, role: str | None, turning: Turning) -> None:
        self.x, self.dtype, self.role, self.turning = x, dtype, role, turning

    def aligned(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers [seq, pairs] or [batch, seq, pairs] that broadcast over heads."""
        return numbers[:, None] if numbers.ndim == 3 else numbers


def turned(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, spec: Rotary) -> np.ndarray:
    """The right last stage."""
    shape = (*x.shape[:-1], cosine.shape[-1])
    return plain(x, np.broadcast_to(cosine, shape), np.broadcast_to(sine, shape), spec, np)


def rounded(numbers: Any, dtype: str) -> np.ndarray:
    """Numbers as this dtype holds them, float64 again."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float64).astype(output_dtype(dtype)).astype(np.float64)


def built(build: Callable[[Rotary], Apply]) -> Callable[[], Callable[[Rotary], Apply]]:
    """A process in which nothing is shared."""
    return lambda: build


def another(code: str, parameters: Mapping[str, Any], change: Callable[[Rotary], Rotary]) -> Suspect:
    """An implementation of another spec; of other models it gets the same field wrong."""

    def build(spec: Rotary) -> Apply:
        try:
            return Turning(change(spec))
        except ClockhandsError:
            return Turning(spec)

    return Suspect((code,), parameters, built(build))
