"""Conversion of weights between the interleaved and the half-split layout, without changing the model's output.

``convert`` converts a checkpoint in safetensors files, one shard at a time; ``convert_rows`` converts one array.
Tensors indexed by a channel of a query or key are reordered; all others are copied bit for bit. ``convert_table``
rewrites a position table in another convention of the same ladder.
"""

from clockhands.configs.tensor_names import Arrangement
from clockhands.conversion._converting import Converted, convert
from clockhands.conversion._planning import CannotConvert
from clockhands.conversion._rows import convert_rows, row_order
from clockhands.conversion._tables import convert_table

__all__ = ["Arrangement", "CannotConvert", "Converted", "convert", "convert_rows", "convert_table", "row_order"]
