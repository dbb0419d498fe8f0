"""Reads a few rows at a time of quantised tensors in GGUF files, with the format's own library."""

import numpy as np

from clockhands.arguments import shown
from clockhands.errors import Unreadable
from clockhands.formats.arrays import TensorInfo, opened_file, taken_rows
from clockhands.formats.gguf import TENSOR_TYPES

_BLOCKS = {name: (numbers, size) for name, numbers, size in TENSOR_TYPES.values() if numbers > 1}

_HINT = "Use a copy of the model in float32, float16 or bfloat16."


def is_quantised(info: TensorInfo) -> bool:
    """Whether the numbers are in quantised blocks of a GGUF type."""
    return info.dtype in _BLOCKS


def quantised_rows(info: TensorInfo, rows: np.ndarray) -> np.ndarray:
    """Some rows of a quantised matrix, float32; no other row is read.

    Raises:
        Unreadable: The extra `gguf` is not installed, it does not know the type, or the file ends inside the tensor.
    """
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise Unreadable(
            f"{shown(info.name)} in {info.file} is stored as {info.dtype}, but the library that reads this type is "
            "missing.",
            "Install it with `pip install 'clockhands[gguf]'`.",
        ) from None
    numbers, size = _BLOCKS[info.dtype]
    width = info.shape[-1] // numbers * size
    with opened_file(info) as file:
        taken = taken_rows(file, info, width, rows)
    if info.big_endian:
        raise Unreadable(
            f"{shown(info.name)} in {info.file} is quantised and in big-endian byte order, which cannot be read.", _HINT
        )
    try:
        return dequantize(taken, GGMLQuantizationType[info.dtype])
    except (KeyError, NotImplementedError):
        raise Unreadable(
            f"{shown(info.name)} in {info.file} is stored as {info.dtype}, which the library gguf does not read.", _HINT
        ) from None
