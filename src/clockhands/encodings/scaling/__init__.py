"""RoPE scalings: how frequencies are lowered so that a model works at a longer context length.

Each scaling is a frozen value that can be called as a function ``ladder -> ladder``. A factor on cosine and sine is
the ``attention_factor`` of the resulting ladder. ``length`` is the current context length; only `Dynamic` and
`LongRope` depend on it, and without it they use the original length.

In the formulas ``w_j`` is the rate of pair ``j`` of ``n = d / 2`` pairs, ``f`` the factor, ``L0`` the original context
length, and ``t_j = L0 w_j / (2 pi)`` the number of full rotations (turns) of a pair within ``L0`` tokens.

Each file has the classes of one method. Besides the formula, a class defines how configs declare the scaling, how it is
fitted to measured rates (`clockhands.scaling.measured`), known mistakes in implementations, and its attention factor.

All are computed in the decimal arithmetic of `clockhands.ladders`: a scaled rate is within a relative
10**-58 of the real number.
"""

from clockhands.encodings.scaling._known import KnownScaling, Mistake
from clockhands.encodings.scaling._linear import Linear
from clockhands.encodings.scaling._llama3 import Llama3
from clockhands.encodings.scaling._longrope import LongRope, longrope_magnitude
from clockhands.encodings.scaling._ntk import Dynamic, MixedNtk, Ntk
from clockhands.encodings.scaling._proportional import Proportional
from clockhands.encodings.scaling._scaling import Scaling
from clockhands.encodings.scaling._yarn import Yarn, yarn_magnitude

SCALINGS: tuple[type[KnownScaling], ...] = (Linear, Dynamic, Yarn, LongRope, Llama3, Proportional, Ntk, MixedNtk)
"""All scalings, in the order in which messages list them."""

SIMPLE_FIRST = tuple(sorted(SCALINGS, key=lambda kind: (kind.BY_LENGTH, "original" in kind.__annotations__)))
"""All scalings: those with a factor only, those with an original length, those that depend on the current length."""

__all__ = [
    "SCALINGS",
    "SIMPLE_FIRST",
    "Dynamic",
    "KnownScaling",
    "Linear",
    "Llama3",
    "LongRope",
    "Mistake",
    "MixedNtk",
    "Ntk",
    "Proportional",
    "Scaling",
    "Yarn",
    "longrope_magnitude",
    "yarn_magnitude",
]
