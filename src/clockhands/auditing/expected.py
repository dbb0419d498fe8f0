"""The rates that follow from a declared position code, as the diagnosis of held or stored rates takes them."""

from dataclasses import dataclass, field

import numpy as np

from clockhands.diagnosis import Reference, reference_of, slack_of
from clockhands.rotary import Rotary
from clockhands.sources.resolved import Code


@dataclass(frozen=True)
class Expected(Reference):
    """The rates that a module should hold, with the code that declares them and the layers that turn by them."""

    code: Code = field(kw_only=True)
    layers: str | None = None

    @property
    def factor_on_cosines(self) -> float:
        """What cosines and sines are multiplied by."""
        return self.code.attention_factor or 1.0


def expected_of(
    code: Code, layers: str | None, which: str | None = None, reach: int | None = None, *, sure: bool = True
) -> Expected | None:
    """What a module that serves a code should hold; ``which`` of its ladders, and how far it has been asked."""
    if not code.rates:
        return None
    # Of a type whose class was not read the layout is not known, and the rest is guessed from common keys.
    sure = sure and code.layout is not None
    factor = (code.scaling or {}).get("factor")
    if isinstance(code.spec, Rotary):
        made = reference_of(code.spec, which, reach, sure=sure)
        return Expected(**(vars(made) | {"factor": factor, "base": code.base}), code=code, layers=layers)
    plain = code.base ** (-np.arange(len(code.rates)) / len(code.rates)) if code.scaling and code.base else None
    ladders = {"as declared": np.array(code.rates)}
    slack = slack_of(code.rates, factor)
    return Expected(None, ladders, plain, slack, code.base, factor, sure, code=code, layers=layers)
