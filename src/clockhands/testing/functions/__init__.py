"""Checks of functions that apply a position code: rotary, additive, and biases."""

from clockhands.testing.functions.additive import check_additive
from clockhands.testing.functions.biases import check_bias
from clockhands.testing.functions.rotary import check_rotary

__all__ = ["check_additive", "check_bias", "check_rotary"]
