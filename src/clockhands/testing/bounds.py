r"""How far a right function may be off, because its numbers are rounded.

A function is right if it is made of the right real numbers, each operation rounded once. With ``e = 2**-24``, half the
distance of neighbouring float32 numbers relative to their size, and ``u`` the same of the dtype of the tokens:

**Phases.** A rate is ``exp(-x)`` or ``base**(-i/n)`` with ``x = |ln rate|``: the exponent is a product of rounded
numbers, off by ``3 e x``, which is a relative error of the rate; the power or exponential adds ``2 e``, a division
``e``. A scaling passes this error on times its own derivative ``k = |d ln scaled / d ln plain|``, which is measured at
the spec's own rates (at most 1 for linear scalings, more within the ramps of YaRN and Llama 3), and adds at most ten
roundings of its own, the base of NTK scalings among them. The position and the product are two more. So a phase ``p``
is off by at most ``e |p| (k (3 x + 3) + 12)`` where there is a scaling, ``e |p| (3 x + 5)`` where there is none, and
its cosine and sine together, as a point on the circle, by no more, and never by more than 2.

**Waves and products.** Cosine and sine are rounded to the tokens' dtype (or to a finer one), times the attention factor
(``u`` each); two products and a sum are rounded: ``4 u (|a cos| + |b sin|)``, at most ``4 u`` of the pair's length; an
attention factor that is not 1 is rounded itself, which makes it ``5 u``. Second orders, and products below the smallest
normal number, are within another percent and one unit of the dtype.

A function that does all of this in float64 stays within the same bounds: nothing here has to be as bad as it may be.
"""

from dataclasses import replace
from decimal import Decimal
from functools import lru_cache

import numpy as np

from clockhands.rotary import Rotary

SINGLE = 2.0**-24
# Half the distance of neighbouring numbers, relative to their size: what one rounding is off by, at most.
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
# What is lost below the smallest normal number.
TINY = {"bfloat16": 2.0**-133, "float16": 2.0**-25, "float32": 2.0**-149, "float64": 0.0}


def phase_error(phases: np.ndarray, rates: np.ndarray, passed_on: np.ndarray | None = None) -> np.ndarray:
    """How far phases may be off that are made in float32.

    Args:
        phases: Position times rate, [..., pairs].
        rates: Those of the ladder before it is scaled, [pairs].
        passed_on: The derivative of a scaling, [pairs]; None where there is none.
    """
    logarithms = np.abs(np.log(np.where(rates > 0, rates, 1.0)))
    shares = 3 * logarithms + 5 if passed_on is None else passed_on * (3 * logarithms + 3) + 12
    return np.minimum(SINGLE * np.abs(phases) * shares, 2.0)


@lru_cache(maxsize=32)
def passed_on(spec: Rotary) -> np.ndarray | None:
    """``|d ln scaled rate / d ln plain rate|`` of a spec's scaling, [pairs]; None where it has none.

    By central differences of the scaling itself, over one part in a million: far above the rounding of float64, far
    below what its ramps take.
    """
    if spec.scaling is None:
        return None
    plain, scaling = replace(spec, scaling=None, length=None).ladder, spec.scaling
    step = Decimal("1e-6")

    def scaled(factor: Decimal) -> np.ndarray:
        moved = replace(plain.mapped(lambda _, rate: rate * factor, "moved"), ratio=plain.ratio)
        return np.array(scaling(moved, spec.length).rates)

    with np.errstate(divide="ignore", invalid="ignore"):
        derivative = (np.log(scaled(1 + step)) - np.log(scaled(1 - step))) / float(2 * step)
    return np.where(np.isfinite(derivative), np.abs(derivative), 1.0)


@lru_cache(maxsize=32)
def _plain_rates(spec: Rotary) -> np.ndarray:
    plain = spec if spec.scaling is None else replace(spec, scaling=None, length=None)
    return np.array(plain.rates)


def turned_error(x: np.ndarray, spec: Rotary, phases: np.ndarray, dtype: str) -> np.ndarray:
    """How far each channel of turned tokens may be off, of x's shape.

    Args:
        x: The tokens, float64, as the dtype holds them, [..., seq, width].
        spec: The code.
        phases: Of each token and pair, [..., seq, pairs].
        dtype: The dtype that the function computes and answers in.
    """
    first, second = spec.channels.T
    length = np.hypot(x[..., first], x[..., second]) * spec.attention_factor
    moved = phase_error(phases, _plain_rates(spec), passed_on(spec))
    # Tokens of float64 may meet waves of float32.
    unit = max(UNIT[dtype], SINGLE)
    pairs = 1.01 * length * (moved + (4 + (spec.attention_factor != 1)) * unit) + 4 * TINY[dtype]
    allowed = np.zeros(np.broadcast_shapes(x.shape, (*phases.shape[:-1], x.shape[-1])))
    allowed[..., first] = pairs
    allowed[..., second] = pairs
    return allowed
