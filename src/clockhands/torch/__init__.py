"""Position encodings as PyTorch modules, a ``score_mod`` for FlexAttention, and state dicts of other libraries."""

from clockhands.torch._flex import score_mod
from clockhands.torch._interface import PositionModule, Prepared
from clockhands.torch._making import Mixture, NoCode, module
from clockhands.torch._modules import Additive, Bias, Rotary
from clockhands.torch._own_encodings import OwnEncoding
from clockhands.torch._state_dicts import without_computed

__all__ = [
    "Additive",
    "Bias",
    "Mixture",
    "NoCode",
    "OwnEncoding",
    "PositionModule",
    "Prepared",
    "Rotary",
    "module",
    "score_mod",
    "without_computed",
]
