"""Position codes held by PyTorch: modules, a ``score_mod`` for FlexAttention, and other people's state dicts."""

from clockhands.torch.flex import score_mod
from clockhands.torch.interface import PositionModule, Prepared
from clockhands.torch.making import Mixture, NoCode, module
from clockhands.torch.modules import Additive, Bias, Rotary
from clockhands.torch.peers import without_computed

__all__ = [
    "Additive",
    "Bias",
    "Mixture",
    "NoCode",
    "PositionModule",
    "Prepared",
    "Rotary",
    "module",
    "score_mod",
    "without_computed",
]
