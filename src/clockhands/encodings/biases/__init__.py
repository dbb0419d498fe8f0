"""Attention biases (ALiBi, T5 buckets, KERPLE, FIRE, Swin windows): a number added to each score in each head."""

from clockhands.encodings.biases._buckets import Buckets, CeilingBuckets, Clipped
from clockhands.encodings.biases._kernels import Fire, Kerple
from clockhands.encodings.biases.codes import BiasCode, TableCode
from clockhands.encodings.biases.linear import Alibi, Decay, Slopes, some_heads
from clockhands.encodings.biases.matrices import bias, row_numbers
from clockhands.encodings.biases.windows import LogWindow, Window

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
