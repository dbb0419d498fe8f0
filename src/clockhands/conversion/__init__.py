"""Weights converted between the two layouts, so that the model computes the same.

``convert`` moves a checkpoint in safetensors files, a shard at a time; ``convert_rows`` one array. Everything that is
indexed by a channel of a query or a key moves; all else passes through bit for bit. ``convert_table`` writes a table of
positions in another convention of the same ladder.
"""

from clockhands.conversion._converting import Converted, convert
from clockhands.conversion._planning import CannotConvert
from clockhands.conversion._rows import convert_rows, row_order
from clockhands.conversion._tables import convert_table
from clockhands.sources.tensor_names import Arrangement

__all__ = ["Arrangement", "CannotConvert", "Converted", "convert", "convert_rows", "convert_table", "row_order"]
