"""Position codes held by JAX: pytrees whose leaves are what is learned, and whose spec is static."""

from clockhands.jax._pytrees import Additive, Bias, Rotary

__all__ = ["Additive", "Bias", "Rotary"]
