"""The check of PyTorch modules that apply a position encoding."""

from clockhands.testing.modules._checking import check_module

__all__ = ["check_module"]
