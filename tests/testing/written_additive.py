"""Functions that add a position code, as people write them by plain arithmetic."""

import functools

import numpy as np

import clockhands as ch
from clockhands.encodings.ladders import Geometric
from recognition.faults.rows import cast
from recognition.faults.written import added, rows_of

TRAINED = np.random.default_rng(3).standard_normal((300, 16)).astype(np.float32)


def spec_of(width, *, base=10_000.0, closed=False, halves=False, cosine_first=False):
    layout, order = "halves" if halves else "interleaved", "cos-sin" if cosine_first else "sin-cos"
    return ch.Sinusoidal(width, spacing=Geometric(base, "closed" if closed else "open"), layout=layout, order=order)


def wave_table(positions, width, xp=np, **how):
    """The table at these positions [..., seq], float32."""
    return rows_of(spec_of(width, **how), positions, xp)


def adding(width=32, xp=np, *, rounded=None, **how):
    """``x + table``, in float32, rounded to x's dtype; `rounded` says which numbers are rounded to which dtype."""
    return functools.partial(added, spec=spec_of(width, **how), xp=xp, **(rounded or {}))


def kept(width=32, xp=np, rows=16_384):
    """A table that is made once in float32, cast to x's dtype and added there."""
    table = wave_table(xp.arange(rows), width, xp)
    return lambda x, positions: x + cast(xp, table[positions], x.dtype)


def table_of(spec, values=None):
    """Exact rows, in float32: what a right function of any code adds."""
    return lambda x, positions: x + ch.table(spec, positions, values=values)
