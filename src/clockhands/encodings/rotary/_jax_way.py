"""Rotation of JAX arrays: the plain formula, compiled as one operation for each spec and shape."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clockhands.encodings.rotary._cosines import CosSin
from clockhands.encodings.rotary._spec import Rotary
from clockhands.encodings.rotary.formula import plain
from clockhands.encodings.traces import is_traced


@partial(jax.jit, static_argnames="spec")
def rotated_by_library(x: jax.Array, cosine: Any, sine: Any, spec: Rotary) -> jax.Array:
    """See `clockhands.rotary.formula.plain`, to which this is equal."""
    return plain(x, cosine, sine, spec, jnp)


def copied(part: np.ndarray, like: jax.Array) -> jax.Array:
    """A copy of an array, on the device of ``like`` if that is a single known device."""
    made = jnp.array(part)
    devices = set() if is_traced(like) else like.devices()
    return jax.device_put(made, *devices) if len(devices) == 1 else made


jax.tree_util.register_dataclass(CosSin, data_fields=["cosine", "sine"], meta_fields=["spec", "role", "dtype"])
