"""The checks of PyTorch modules that apply a position encoding, and of attention layers."""

from clockhands.testing.modules._module_check import check_attention, check_module

__all__ = ["check_attention", "check_module"]
