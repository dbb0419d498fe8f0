"""What is for PyTorch alone."""

from clockhands.torch.flex import score_mod

__all__ = ["score_mod"]
