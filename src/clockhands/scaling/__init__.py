"""RoPE scalings: how frequencies are lowered so that a model works at a longer context length.

Each scaling is a frozen value that is a function ``ladder -> ladder``; what it does to cosine and sine
beyond the rates is the ``attention_factor`` of the ladder that it returns. ``length`` is the number of
tokens in use; only `Dynamic` and `LongRope` look at it, and without it they take the trained length.

In the formulas ``w_j`` is the rate of pair ``j`` of ``n = d / 2`` pairs, ``f`` the factor, ``L0`` the original
length that the model was trained on, and ``t_j = L0 w_j / (2 pi)`` the turns that a pair makes in it.

Each class stands in a file of its own and says, besides what it does to a ladder, how configs declare it, how it is
fitted to rates (`clockhands.scaling.measured`), how it is known to be done wrong, and what its attention factor is.

All are computed in the decimal arithmetic of `clockhands.ladders`: a scaled rate is within a relative
10**-58 of the real number.
"""

from clockhands.scaling._known import KnownScaling, Mistake
from clockhands.scaling._linear import Linear
from clockhands.scaling._llama3 import Llama3
from clockhands.scaling._longrope import LongRope, longrope_magnitude
from clockhands.scaling._ntk import Dynamic, MixedNtk, Ntk
from clockhands.scaling._proportional import Proportional
from clockhands.scaling._scaling import Scaling
from clockhands.scaling._yarn import Yarn, yarn_magnitude

SCALINGS: tuple[type[KnownScaling], ...] = (Linear, Dynamic, Yarn, LongRope, Llama3, Proportional, Ntk, MixedNtk)
"""Every scaling, in the order in which messages list them."""

SIMPLE_FIRST = tuple(sorted(SCALINGS, key=lambda kind: (kind.BY_LENGTH, "original" in kind.__annotations__)))
"""Every scaling: those of a factor alone, those that know the original length, those that follow the length in use."""

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
