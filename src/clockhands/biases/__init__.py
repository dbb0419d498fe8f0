"""Attention biases (ALiBi, T5 buckets, KERPLE, FIRE, Swin windows): a number added to each score in each head."""

from clockhands.biases._buckets import Buckets, CeilingBuckets, Clipped
from clockhands.biases._kernels import Fire, Kerple
from clockhands.biases.codes import BiasCode, TableCode
from clockhands.biases.linear import Alibi, Decay, Slopes, some_heads
from clockhands.biases.matrices import bias, row_numbers
from clockhands.biases.windows import LogWindow, Window

CODES = (Alibi, Buckets, CeilingBuckets, Clipped, Decay, Fire, Kerple, LogWindow, Slopes, Window)
"""All biases, in the order in which messages list them."""

__all__ = [
    "CODES",
    "Alibi",
    "BiasCode",
    "Buckets",
    "CeilingBuckets",
    "Clipped",
    "Decay",
    "Fire",
    "Kerple",
    "LogWindow",
    "Slopes",
    "TableCode",
    "Window",
    "bias",
    "row_numbers",
    "some_heads",
]
