"""The check of PyTorch modules that apply a position encoding."""

from clockhands.testing.modules._module_check import check_module

__all__ = ["check_module"]
