"""The frequencies that a declared code gives, in the form in which stored and measured ones are compared with them."""

from dataclasses import dataclass, field

import numpy as np

from clockhands.configs.resolved import LayerEncoding
from clockhands.encodings.rotary import Rotary
from clockhands.recognition.diagnosis import Reference, reference_of, slack_of


@dataclass(frozen=True)
class Expected(Reference):
    """The frequencies that a module should hold, with the code that declares them and the layers that use them."""

    code: LayerEncoding = field(kw_only=True)
    layers: str | None = None

    @property
    def factor_on_cosines(self) -> float:
        """The factor on cosines and sines."""
        return self.code.attention_factor or 1.0


def expected_of(
    code: LayerEncoding, layers: str | None, which: str | None = None, reach: int | None = None, *, sure: bool = True
) -> Expected | None:
    """What a module that serves a code should hold; ``which`` of its ladders, ``reach`` the longest length used."""
    if not code.rates:
        return None
    # The layout of a type whose class was not read is not known, and the rest is guessed from common keys.
    sure = sure and code.layout is not None
    factor = (code.scaling or {}).get("factor")
    if isinstance(code.spec, Rotary):
        made = reference_of(code.spec, which, reach, sure=sure)
        return Expected(**(vars(made) | {"factor": factor, "base": code.base}), code=code, layers=layers)
    plain = code.base ** (-np.arange(len(code.rates)) / len(code.rates)) if code.scaling and code.base else None
    ladders = {"as declared": np.array(code.rates)}
    slack = slack_of(code.rates, factor)
    return Expected(None, ladders, plain, slack, code.base, factor, sure, code=code, layers=layers)
