"""Position encodings as JAX pytrees: learned numbers are leaves, the spec is static."""

from clockhands.jax._pytrees import Additive, Bias, Rotary

__all__ = ["Additive", "Bias", "Rotary"]
