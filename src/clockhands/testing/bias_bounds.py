r"""How far a right bias may be off, because its numbers are rounded.

With ``e = 2**-24``, half the distance of neighbouring float32 numbers relative to their size, and ``u`` the same of the
dtype that the bias should be good for (no finer than float32: learned tables and slopes are held in it):

**Slopes.** ``2 ** -x`` of an exponent ``x`` of at most three roundings is off by ``3 e x ln 2`` and the power's
``2 e``. Code that raises the root of the series to the power ``m``, or multiplies it up one by one, passes the root's
rounding on ``m`` times and adds as many: ``2 m e``. Together ``e (2 m + 3 x ln 2 + 3)``, relative.

**Lines.** Slope times distance: the slope's error times the distance, the product and the result rounded, ``u`` each in
the form that the code is of. Softmax does not see a constant of a row, so a function may compute any of the forms
(distance, key, key past the last one): each is a product with a number of tokens no larger than ``t``, the largest of
``|q - k|``, ``|k|`` and ``|last - k|``, rounded twice in float32: ``2 e slope t``.

**Tables.** What is looked up is rounded to the dtype; where it is scaled, the scale and the product are too: ``u``
each.

**Edges of buckets.** T5's ``y = ln(d / first) / ln(last / first) s`` is rounded down (DeBERTa's up). In float32 the
quotient is off by ``e``, the logarithm by ``e (1 + 2 L)`` where ``L`` is the logarithm, the constant below it, the
quotient, the product and a sum with ``first`` by ``e`` each: ``e (s / ln(last / first) (1 + 2 L) + 4 (first + y))``. A
distance whose ``y`` is nearer than that to a whole number may be in either bucket; no other may.

**Kernels.** KERPLE's ``p ln(1 + a d)``: the sum is off by ``3 e``, which is absolute in the logarithm, and the rest by
``6 e`` of the result. ``a d ** p``: the power by ``2 e p ln d + 2 e``, the product ``3 e``. FIRE's and Swin-V2's
networks are followed layer by layer: each product and sum adds ``e`` of the sum of sizes, ``n + 3`` times for ``n``
inputs.

Where constants of rows are removed, the error of the key that they are read at is added. One percent and one unit of
the smallest number are for second orders.
"""

import math
from typing import Any

import numpy as np

from clockhands.biases import BiasCode, Buckets, CeilingBuckets, Fire, Kerple, TableCode, row_numbers
from clockhands.biases.linear import Alibi, Decay
from clockhands.biases.windows import LogWindow
from clockhands.testing.bounds import TINY, UNIT

SINGLE = 2.0**-24


def slope_errors(spec: Alibi | Decay) -> np.ndarray:
    """How far slopes may be off that are made in float32, relative, [heads]."""
    if not isinstance(spec, Alibi):
        return np.full(spec.heads, 4 * SINGLE)  # 1 - 2**-n is a float32, and its logarithm is rounded
    below = 2 ** (spec.heads.bit_length() - 1)
    whole = spec.heads if spec.series == "plain" else below
    powers = [head + 1 if head < whole else 2 * (head - whole) + 1 for head in range(spec.heads)]
    exponents = -np.array([float(each) for each in spec.exponents])
    return SINGLE * (2 * np.array(powers, float) + 3 * exponents * math.log(2) + 3)


def bias_error(
    spec: BiasCode, queries: np.ndarray, keys: np.ndarray, numbers: np.ndarray, *, values: Any, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """How far each number of a bias may be off, before constants of rows are removed.

    Args:
        spec: The code.
        queries: Their positions, [queries].
        keys: Theirs, [keys].
        numbers: What is right, float64 [heads, queries, keys].
        values: Learned numbers, or None.
        dtype: What the numbers should be good for.

    Returns:
        Two arrays that broadcast to [heads, queries, keys]: the error, and a relative one that the whole row has in
        common (that of a slope): of a difference of two keys it is the share that may be off.
    """
    unit, least = max(UNIT[dtype], SINGLE), TINY[dtype] + TINY["float32"]
    none = np.zeros((1, 1, 1))
    if isinstance(spec, Alibi | Decay):
        slopes = np.array(spec.slopes)[:, None, None]
        apart = np.abs(queries[:, None] - keys[None, :])
        last = max(keys.max(initial=0), queries.max(initial=0))
        tokens = np.maximum(apart, np.maximum(np.abs(keys), np.abs(last - keys))[None, :])
        own = 2 * SINGLE * slopes * tokens + 2 * unit * np.abs(numbers)
        return 1.01 * own + least, 1.01 * slope_errors(spec)[:, None, None]
    sizes = np.abs(numbers)
    if isinstance(spec, Kerple):
        return 1.01 * _kerple(spec, queries, keys, sizes, values) + unit * sizes + least, none
    if isinstance(spec, Fire):
        return 1.01 * _fire(spec, queries, keys, values) + unit * sizes + least, none
    if isinstance(spec, LogWindow):
        table = _log_window(spec, values)[row_numbers(spec, queries, keys)]
        return 1.01 * np.moveaxis(table, -1, 0) + unit * sizes + least, none
    scaled = getattr(spec, "scale", 1.0) != 1
    return 1.01 * unit * (3 if scaled else 1) * sizes + least, none


def _kerple(spec: Kerple, queries: np.ndarray, keys: np.ndarray, sizes: np.ndarray, values: Any) -> np.ndarray:
    p = np.asarray(values["p"], np.float64)[:, None, None]
    if spec.kernel == "log":
        return SINGLE * (3 * np.abs(p) + 6 * sizes)
    apart = np.maximum(np.abs(queries[:, None] - keys[None, :]), 1)
    return SINGLE * sizes * (6 + 2 * np.abs(p) * np.log(apart))


def _fire(spec: Fire, queries: np.ndarray, keys: np.ndarray, values: Any) -> np.ndarray:
    arrays = {name: np.asarray(array, np.float64) for name, array in values.items()}
    rate = abs(float(arrays["c"]))
    apart = np.maximum(queries[:, None] - keys[None, :], 0)
    above = np.log1p(rate * apart)
    below = np.log1p(rate * np.maximum(queries, float(arrays["threshold"])))[:, None] + spec.epsilon
    share = above / below
    moved = SINGLE * ((3 + 3 * above) / below + share * (3 + 3 * below) / below + 2 * share)
    first, offset = np.abs(arrays["w1"]).reshape(-1, 1, 1), np.abs(arrays["b1"]).reshape(-1, 1, 1)
    hidden = first * share + offset
    error = first * moved + 4 * SINGLE * hidden
    second = np.abs(arrays["w2"])
    total = np.tensordot(second, hidden, 1) + np.abs(arrays["b2"])[:, None, None]
    return np.tensordot(second, error, 1) + SINGLE * (spec.hidden + 3) * total


def _log_window(spec: LogWindow, values: Any) -> np.ndarray:
    """Of the table, [differences, heads]."""
    first, offset, second = (np.abs(np.asarray(values[name], np.float64)) for name in ("w1", "b1", "w2"))
    hidden = np.abs(spec.coordinates().reshape(-1, 2)) @ first.T + offset
    # Coordinates are logarithms of quotients: six roundings, relative. A sigmoid passes on at most a quarter.
    error = 12 * SINGLE * hidden @ second.T + SINGLE * (spec.hidden + 3) * (hidden @ second.T)
    return 16 * (error / 4 + 4 * SINGLE)


def near_edge(spec: BiasCode, distances: np.ndarray) -> np.ndarray:
    """Which sizes of distances lie so near an edge of two buckets that float32 may put them on either side.

    Such a distance is the last of its bucket, or the first: the other bucket is that of a neighbour (`beyond_edge`).
    """
    if isinstance(spec, Buckets):
        way = spec.buckets // 2 if spec.bidirectional else spec.buckets
        first, steps, last = way // 2, way - way // 2, spec.max_distance
        added = spec.epsilon
    elif isinstance(spec, CeilingBuckets):
        first, last, added = spec.span // 2, spec.max_distance - 1, 0.0
        steps = first - 1
    else:
        return np.zeros(np.shape(distances), bool)
    sizes = np.abs(np.asarray(distances, np.float64))
    logarithm = np.log(np.maximum(sizes, first) / first + added)
    whole = math.log(last / first)
    y = logarithm / whole * steps
    off = SINGLE * (steps / whole * (1 + 2 * logarithm) + 4 * (first + y))
    at = np.round(y)
    return (sizes >= first) & (np.abs(y - at) <= off) & (at <= steps)


def beyond_edge(spec: BiasCode, distances: np.ndarray) -> np.ndarray:
    """The neighbour of each distance that lies in the next bucket, before or after; itself where none does."""
    sizes, sign = np.abs(distances), np.where(distances < 0, -1, 1)
    limits = np.array(spec.boundaries, np.int64)  # type: ignore[attr-defined]
    row = np.searchsorted(limits, sizes, side="right")
    near = near_edge(spec, distances)
    down = near & (np.searchsorted(limits, sizes - 1, side="right") != row)
    up = near & ~down & (np.searchsorted(limits, sizes + 1, side="right") != row)
    return sign * (sizes - down + up)


def looks_up(spec: BiasCode) -> bool:
    """Whether the code is a learned table, whose rows can be told apart without knowing them."""
    return isinstance(spec, TableCode) and not isinstance(spec, LogWindow)
