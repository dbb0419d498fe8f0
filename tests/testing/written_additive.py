"""Functions that add a position code, as people write them by plain arithmetic."""

import importlib
import math

import numpy as np
import pytest

import clockhands as ch

TRAINED = np.random.default_rng(3).standard_normal((300, 16)).astype(np.float32)
LIBRARIES = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}


def arrays(name):
    pytest.importorskip(name)
    return importlib.import_module(LIBRARIES[name])


def cast(xp, a, dtype):
    if xp.__name__ == "torch":
        return a.to(getattr(xp, dtype) if isinstance(dtype, str) else dtype)
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return a.astype(dtype)


def through(xp, a, dtype):
    """Rounded to a dtype, and back."""
    return a if dtype is None else cast(xp, cast(xp, a, dtype), "float32")


def rates(width, base=10_000.0, span=None):
    """As everybody writes it: ``exp(arange(0, d, 2) (-log(base) / d))``, in float32."""
    return np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(base) / (span or width)))


def wave_table(positions, width, xp=np, *, base=10_000.0, span=None, halves=False, cosine_first=False, **rounded):
    """The table at these positions [..., seq], float32; `rounded` says which numbers are rounded to which dtype."""
    ladder = through(xp, xp.asarray(rates(width, base, span)), rounded.get("rates_in"))
    t = through(xp, cast(xp, positions, "float32"), rounded.get("positions_in"))
    phases = through(xp, t[..., None] * ladder, rounded.get("phases_in"))
    waves = [xp.sin(phases), xp.cos(phases)][:: -1 if cosine_first else 1]
    table = xp.concatenate(waves, -1) if halves else xp.stack(waves, -1).reshape(*positions.shape, width)
    return through(xp, table, rounded.get("table_in"))


def adding(width=32, xp=np, **how):
    """``x + table``, in float32, rounded to x's dtype."""
    return lambda x, positions: cast(xp, cast(xp, x, "float32") + wave_table(positions, width, xp, **how), x.dtype)


def kept(width=32, xp=np, rows=16_384, **how):
    """A table that is made once in float32, cast to x's dtype and added there."""
    table = wave_table(xp.arange(rows), width, xp, **how)
    return lambda x, positions: x + cast(xp, table[positions], x.dtype)


def table_of(spec, values=None):
    """Exact rows, in float32: what a right function of any code adds."""

    def forward(x, positions):
        return x + ch.table(spec, positions, values=values)

    return forward
