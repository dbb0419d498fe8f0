"""Turning JAX arrays: the plain formula, compiled as one operation for each spec and shape."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from clockhands.rotary.formula import plain
from clockhands.rotary.spec import Rotary


@partial(jax.jit, static_argnames="spec")
def turned(x: jax.Array, cosine: Any, sine: Any, spec: Rotary) -> jax.Array:
    """See `clockhands.rotary.formula.plain`, to which this is equal."""
    return plain(x, cosine, sine, spec, jnp)
