"""Output dtypes float64, float32, float16 and bfloat16: conversion with one rounding, and what a rounding costs.

Numbers are computed in float64. NumPy rounds float64 to float32 and float16 directly. ``ml_dtypes`` rounds to bfloat16
through float32, which would round twice. So the float32 is made by rounding to odd (Boldo and Melquiond 2008): its last
bit is set where anything was cut off. Its 24 bits are more than the 8 + 2 bits that this method needs, and the second
rounding gives the correctly rounded bfloat16.
"""

from typing import Any

import numpy as np

from clockhands.errors import InvalidType, InvalidValue
from clockhands.phrases import shown

_NUMPY = (np.ndarray, np.generic)  # a tuple: torch.compile cannot build a union of types

NAMES = ("float64", "float32", "float16", "bfloat16")
# Unit roundoff: the largest relative error of one rounding.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# The smallest number above 0.
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


def output_dtype(dtype: object) -> np.dtype:
    """The NumPy dtype for a name, a dtype or a scalar type.

    Raises:
        InvalidValue: The dtype is not one of `NAMES`.
    """
    name = str(getattr(dtype, "__name__", None) or dtype).removeprefix("torch.").removeprefix("jax.numpy.")
    if name not in NAMES and dtype is not None:  # NumPy reads None as float64
        try:
            name = np.dtype(dtype).name  # type: ignore[arg-type]
        except (TypeError, ValueError):
            name = ""
    if name not in NAMES:
        raise InvalidValue(f"`dtype` must be one of {', '.join(NAMES)}, got {shown(dtype)}.", "The default is float32.")
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def limits(dtype: np.dtype) -> tuple[int, float]:
    """The number of significant bits of an output dtype, including the hidden bit, and its largest number.

    >>> limits(np.dtype(np.float16))
    (11, 65504.0)
    """
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    return int(info.nmant) + 1, float(info.max)


def name_of(array: Any) -> str:
    """The name of an array's dtype, without its byte order."""
    return array.dtype.name if isinstance(array, _NUMPY) else str(array.dtype).rpartition(".")[2]


def rounded(numbers: Any, dtype: str) -> np.ndarray:
    """Numbers after a cast to this dtype, as float64; those beyond its largest number are infinite.

    >>> rounded([257.0, 70000.0], "bfloat16").tolist(), rounded([257.0, 70000.0], "float16").tolist()
    ([256.0, 70144.0], [257.0, inf])
    """
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float64).astype(output_dtype(dtype)).astype(np.float64)


def before_rounding(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``numbers`` (float64 or complex128) such that assigning the result to ``dtype`` rounds them only once."""
    # bfloat16 is the one output dtype that NumPy itself does not know; asking for its name would be slow.
    return to_odd_float32(numbers) if dtype.kind == "V" else numbers


def to_odd_float32(numbers: np.ndarray) -> np.ndarray:
    """float64 (or the parts of complex128) cut to float32, the last bit set where anything was cut off."""
    exact = np.ascontiguousarray(numbers).view(np.float64)
    near = exact.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    bits -= np.abs(back) > np.abs(exact)  # towards zero: a float stores sign and magnitude separately
    bits |= back != exact
    return near.view(np.complex64) if numbers.dtype.kind == "c" else near


def float_of(array: Any, name: str, hint: str) -> str:
    """The name of an array's dtype, one of `NAMES`.

    Raises:
        InvalidType: It is of another dtype.
    """
    kind = name_of(array)
    if kind not in NAMES:
        raise InvalidType(f"`{name}` must be of a float dtype, got {kind}.", hint)
    return kind
