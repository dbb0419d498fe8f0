"""Checks of functions that apply a position encoding: rotary, additive, and biases."""

from clockhands.testing.functions._additive import check_additive
from clockhands.testing.functions._biases import check_bias
from clockhands.testing.functions._rotary import check_rotary

__all__ = ["check_additive", "check_bias", "check_rotary"]
